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
        node::{MessageId, Node, millis},
        registry::{Call, Cluster},
        session::{Session, Terms},
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

/// Writes the envelope to `out`, if it is not too large.
fn write(node: &Node, envelope: &Envelope<'_>, out: &mut Vec<u8>) -> Result<(), Answer> {
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
    Ok(())
}

/// The session that an envelope is for.
enum Target<'a> {
    /// One of this shard.
    Here(Rc<Session>),
    /// One of another node, with what envelopes to it are checked against.
    Elsewhere(&'a Rc<Cluster>, SessionId, Rc<Terms>),
}

impl Target<'_> {
    fn id(&self) -> SessionId {
        match self {
            Self::Here(session) => session.id,
            Self::Elsewhere(_, id, _) => *id,
        }
    }

    /// The answer to a fault, with what callers are told of it.
    fn refusal(&self, fault: &Fault, envelope: &Envelope<'_>) -> Answer {
        let data = match fault {
            Fault::InvalidToken => {
                let expected = match self {
                    Self::Here(session) => &session.claims.consumer_type,
                    Self::Elsewhere(_, _, terms) => &terms.consumer_type,
                };
                json!({
                    "expectedConsumerType": expected,
                    "actualConsumerType": envelope.consumer_type,
                })
            }
            Fault::CapabilityDenied if envelope.capability.is_some() => {
                json!({"capability": envelope.capability})
            }
            Fault::ResourceLimit(name, max) => {
                json!({"limit": name, "sessionId": self.id().as_str(), "max": max})
            }
            other => return Answer::fault(other),
        };
        Answer::fault_with(fault, data)
    }

    /// The checks of the contract's table (3.1) from the session on, in its order.
    fn check(&self, node: &Node, envelope: &Envelope<'_>) -> Result<(), Fault> {
        match self {
            Self::Here(session) => session.check_from_caller(envelope)?,
            Self::Elsewhere(_, id, _) if envelope.session_id != id.as_str() => {
                return Err(Fault::SessionNotFound);
            }
            Self::Elsewhere(_, _, terms) => terms.check(envelope)?,
        }
        if node.settings.require_capability && envelope.capability.is_none() {
            return Err(Fault::CapabilityDenied);
        }
        if node.is_draining() {
            return Err(Fault::Draining);
        }
        let request_id = envelope.request_id.as_deref();
        match self {
            Self::Here(session) => node.check_in_flight(session, request_id),
            Self::Elsewhere(cluster, id, _) => cluster.check_in_flight(node, *id, request_id),
        }
    }
}

/// Finds the session and checks the envelope.
async fn target<'a>(
    node: &'a Node,
    id: Option<SessionId>,
    envelope: &Envelope<'_>,
) -> Result<Target<'a>, Answer> {
    let target = match id.and_then(|id| node.session(id)) {
        Some(session) => Target::Here(session),
        None => match super::elsewhere(node, id) {
            Some((cluster, id)) => {
                let terms = cluster.terms(node, id).await;
                let terms = terms.map_err(|fault| Answer::fault(&fault))?;
                Target::Elsewhere(cluster, id, terms)
            }
            None => return Err(Answer::fault(&Fault::SessionNotFound)),
        },
    };
    let outcome = target.check(node, envelope);
    outcome.map_err(|fault| target.refusal(&fault, envelope))?;
    Ok(target)
}

/// Publishes, for nobody in particular.
pub(super) async fn accept(
    state: &Rc<ShardState>,
    node: &Node,
    id: Option<SessionId>,
    request: &Request,
) -> Answer {
    let mut written = state.shard.buffers.take();
    let outcome = publish(node, id, request, &mut written).await;
    state.shard.buffers.put(written);
    match outcome {
        Ok(message_id) => Answer::with_data(202, |out| write_accepted(out, message_id)),
        Err(answer) => answer,
    }
}

async fn publish(
    node: &Node,
    id: Option<SessionId>,
    request: &Request,
    written: &mut Vec<u8>,
) -> Result<MessageId, Answer> {
    let publication = read(request, Mode::Accept)?;
    let envelope = &publication.envelope;
    write(node, envelope, written)?;
    let target = target(node, id, envelope).await?;
    let outcome = match &target {
        Target::Here(session) => node.publish(session, written),
        Target::Elsewhere(cluster, id, terms) => {
            let what = (written.as_slice(), envelope.request_id.as_deref());
            let to = (*id, terms.generation);
            cluster.publish(node, to, what, None).await
        }
    };
    outcome.map_err(|fault| target.refusal(&fault, envelope))
}

/// A streamed request whose caller may leave at any time.
struct Open<'a> {
    node: &'a Node,
    party: Party,
    exchange: Rc<Exchange>,
}

/// Who answers it.
enum Party {
    /// The client of a session of this shard.
    Here(Rc<Session>, Box<str>),
    /// That of a session of another node.
    Elsewhere(Rc<Cluster>, Rc<Call>),
}

impl Open<'_> {
    /// The caller has taken so much.
    fn unbuffer(&self, bytes: usize) {
        match &self.party {
            Party::Here(session, _) => self.node.unbuffer(session, bytes),
            Party::Elsewhere(..) => {
                let waiting = &self.node.numbers.stream_buffer_bytes;
                waiting.subtract(bytes as u64);
            }
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        match &self.party {
            Party::Here(session, request_id) => {
                self.node.caller_left(session, request_id, &self.exchange);
            }
            Party::Elsewhere(cluster, call) => cluster.caller_left(self.node, call),
        }
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
    let mut written = state.shard.buffers.take();
    let outcome = begin(state, node, id, (request, reply.is_chunked()), &mut written).await;
    state.shard.buffers.put(written);
    let open = outcome?;
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

async fn begin<'a>(
    state: &Rc<ShardState>,
    node: &'a Node,
    id: Option<SessionId>,
    (request, is_chunked): (&Request, bool),
    written: &mut Vec<u8>,
) -> Result<Open<'a>, Answer> {
    let mut publication = read(request, Mode::Stream)?;
    let envelope = &mut publication.envelope;
    if envelope.request_id.is_none() {
        envelope.request_id = Some(Cow::Owned(answer::made_up(state).as_str().to_owned()));
    }
    write(node, envelope, written)?;
    let target = target(node, id, envelope).await?;
    let coding = if is_chunked {
        Coding::Chunked
    } else {
        Coding::Plain
    };
    let timeout_ms = publication.timeout_ms;
    let timeout_ms = timeout_ms.unwrap_or_else(|| millis(node.settings.session_ttl));
    let buffers = &state.shard.buffers;
    match &target {
        Target::Here(session) => {
            let outcome = node.publish(session, written);
            outcome.map_err(|fault| target.refusal(&fault, envelope))?;
            let request_id = envelope.request_id.as_deref().unwrap_or_default();
            // Nothing was heard since the check: this shard did nothing else.
            let exchange = node.begin_exchange(
                session,
                request_id,
                (coding, timeout_ms),
                (envelope.capability.as_deref(), buffers),
            );
            Ok(Open {
                node,
                party: Party::Here(session.clone(), request_id.into()),
                exchange,
            })
        }
        Target::Elsewhere(cluster, id, terms) => {
            let call = cluster.begin(node, *id, envelope, (coding, timeout_ms), buffers);
            let call = call.ok_or_else(|| Answer::fault(&Fault::SessionNotFound))?;
            let open = Open {
                node,
                exchange: call.exchange.clone(),
                party: Party::Elsewhere((*cluster).clone(), call.clone()),
            };
            let what = (written.as_slice(), envelope.request_id.as_deref());
            let to = (*id, terms.generation);
            match cluster.publish(node, to, what, Some(&call)).await {
                Ok(_) => {}
                Err(Fault::OutcomeUnknown) => {
                    // The client may be at it already: its caller is told, and it is not repeated.
                    let reason = "Gateway could not tell whether the request was published";
                    cluster.fail_call(node, &call, reason);
                }
                Err(fault) => {
                    cluster.take_back_call(node, &call);
                    return Err(target.refusal(&fault, envelope));
                }
            }
            Ok(open)
        }
    }
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
            open.unbuffer(bytes);
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
