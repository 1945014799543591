//! Publishing to a client: accepted and forgotten, or streamed back line by line.

use std::{borrow::Cow, pin::pin, rc::Rc};

use futures_util::future::{Either, select};
use serde_json::json;

use super::{
    answer::{self, Answer},
    validate, write_accepted,
};
use crate::{
    connection_gateway::{
        envelope::Envelope,
        exchange::{Coding, Exchange},
        fault::Fault,
        json as fields,
        node::{Node, millis},
        session::Session,
        session_id::SessionId,
    },
    reply::{ClientGone, Reply},
    request::Request,
    shard_state::ShardState,
};

/// What a body says.
struct Publication<'a> {
    envelope: Envelope<'a>,
    timeout_ms: Option<u64>,
}

/// Whether the answer is streamed: then the body may say how long that may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Accept,
    Stream,
}

fn read(request: &Request, mode: Mode) -> Result<Publication<'_>, Answer> {
    let body = std::str::from_utf8(request.body_bytes()).unwrap_or_default();
    let read = || {
        let [envelope, timeout] = fields::members(body, ["envelope", "timeoutMs"])?;
        let timeout_ms = match timeout.filter(|_| mode == Mode::Stream) {
            None => None,
            Some(raw) => Some(fields::integer(raw, 1)?),
        };
        Some(Publication {
            envelope: Envelope::parse(envelope?)?,
            timeout_ms,
        })
    };
    let has_timeout = mode == Mode::Stream;
    read().ok_or_else(|| Answer::invalid(&validate::publication(body, has_timeout)))
}

/// The checks of the contract's table (3.1), in its order; the envelope is written to `out`.
fn check(
    node: &Node,
    id: Option<SessionId>,
    envelope: &Envelope<'_>,
    out: &mut Vec<u8>,
) -> Result<Rc<Session>, Answer> {
    out.clear();
    envelope.write(out);
    let max = node.settings.envelope_bytes_max;
    if out.len() > max {
        // Blanks in a payload do not count.
        let actual = fields::compact_length(out);
        if actual > max {
            return Err(Answer::fault(&Fault::EnvelopeTooLarge(max, actual)));
        }
    }
    let session = id.and_then(|id| node.session(id));
    let session = session.ok_or_else(|| Answer::fault(&Fault::SessionNotFound))?;
    session.check_from_caller(envelope).map_err(|fault| {
        let data = match fault {
            Fault::InvalidToken => json!({
                "expectedConsumerType": session.claims.consumer_type,
                "actualConsumerType": envelope.consumer_type,
            }),
            Fault::CapabilityDenied => json!({"capability": envelope.capability}),
            _ => return Answer::fault(&fault),
        };
        Answer::fault_with(&fault, data)
    })?;
    if node.settings.require_capability && envelope.capability.is_none() {
        return Err(Answer::fault(&Fault::CapabilityDenied));
    }
    if node.is_draining() {
        return Err(Answer::fault(&Fault::Draining));
    }
    let outcome = node.check_in_flight(&session, envelope.request_id.as_deref());
    outcome.map_err(|fault| limit(&session, &fault))?;
    Ok(session)
}

/// The answer to a limit, with which one it is.
fn limit(session: &Session, fault: &Fault) -> Answer {
    match fault {
        Fault::ResourceLimit(name, max) => {
            let data = json!({"limit": name, "sessionId": session.id.as_str(), "max": max});
            Answer::fault_with(fault, data)
        }
        other => Answer::fault(other),
    }
}

/// Publishes, for nobody in particular.
pub(super) fn accept(
    state: &Rc<ShardState>,
    node: &Node,
    id: Option<SessionId>,
    request: &Request,
) -> Answer {
    let mut written = state.shard.buffers.take();
    let outcome = read(request, Mode::Accept).and_then(|publication| {
        let session = check(node, id, &publication.envelope, &mut written)?;
        let message_id = node.publish(&session, &written);
        message_id.map_err(|fault| limit(&session, &fault))
    });
    state.shard.buffers.put(written);
    match outcome {
        Ok(message_id) => Answer::with_data(202, |out| write_accepted(out, message_id)),
        Err(answer) => answer,
    }
}

/// A streamed request whose caller may leave at any time.
struct Open<'a> {
    node: &'a Node,
    session: Rc<Session>,
    request_id: Box<str>,
    exchange: Rc<Exchange>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.node
            .caller_left(&self.session, &self.request_id, &self.exchange);
    }
}

/// Publishes and streams the answers back; `Err`: it was refused before anything was sent.
pub(super) async fn stream(
    state: &Rc<ShardState>,
    node: &Node,
    id: Option<SessionId>,
    request: &Request,
    reply: &mut Reply<'_>,
) -> Result<Result<(), ClientGone>, Answer> {
    let open = begin(state, node, id, request, reply)?;
    let mut out = state.shard.buffers.take();
    reply.head(&mut out, 200);
    answer::write_request_id(state, request, &mut out);
    out.extend_from_slice(
        b"content-type: application/x-ndjson; charset=utf-8\r\n\
          cache-control: no-cache, no-transform\r\n",
    );
    if reply.is_chunked() {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(relay(state, &open, out, reply).await)
}

fn begin<'a>(
    state: &Rc<ShardState>,
    node: &'a Node,
    id: Option<SessionId>,
    request: &Request,
    reply: &Reply<'_>,
) -> Result<Open<'a>, Answer> {
    let mut publication = read(request, Mode::Stream)?;
    let envelope = &mut publication.envelope;
    if envelope.request_id.is_none() {
        envelope.request_id = Some(Cow::Owned(answer::made_up(state).as_str().to_owned()));
    }
    let mut written = state.shard.buffers.take();
    let outcome = check(node, id, envelope, &mut written).and_then(|session| {
        let message_id = node.publish(&session, &written);
        message_id.map_err(|fault| limit(&session, &fault))?;
        Ok(session)
    });
    state.shard.buffers.put(written);
    let session = outcome?;
    let request_id = envelope.request_id.as_deref().unwrap_or_default();
    let coding = if reply.is_chunked() {
        Coding::Chunked
    } else {
        Coding::Plain
    };
    let timeout_ms = publication.timeout_ms;
    let timeout_ms = timeout_ms.unwrap_or_else(|| millis(node.settings.session_ttl));
    // Nothing was heard since the check: this shard did nothing else.
    let exchange = node.begin_exchange(
        &session,
        request_id,
        (coding, timeout_ms),
        (envelope.capability.as_deref(), &state.shard.buffers),
    );
    Ok(Open {
        node,
        request_id: request_id.into(),
        session,
        exchange,
    })
}

/// Writes the head and then the lines as they come, until the last one or until the caller leaves.
async fn relay(
    state: &ShardState,
    open: &Open<'_>,
    head: Vec<u8>,
    reply: &mut Reply<'_>,
) -> Result<(), ClientGone> {
    let buffer = reply.part(head).await?;
    state.shard.buffers.put(buffer);
    loop {
        let bytes = open.exchange.waiting();
        let is_over = open.exchange.is_over();
        if bytes > 0 {
            let empty = if is_over {
                Vec::new()
            } else {
                state.shard.buffers.take()
            };
            let lines = open.exchange.take(empty);
            let outcome = if is_over {
                reply.last(lines).await
            } else {
                reply.part(lines).await
            };
            open.node.unbuffer(&open.session, bytes);
            state.shard.buffers.put(outcome?);
        }
        if is_over {
            return Ok(());
        }
        let changed = pin!(open.exchange.changed.wait());
        let left = pin!(reply.client_hung_up());
        if let Either::Right(_) = select(changed, left).await {
            return Err(ClientGone);
        }
    }
}
