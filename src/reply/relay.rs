//! The relay: a backend's reply to one call, passed on with the caller's id in place of ours.
//!
//! A JSON reply is one write. An event stream is relayed event by event as it arrives; when the
//! response is the first thing in it, it is answered as JSON, which saves the client a stream. What
//! comes before is never held back: the stream begins with the first message, or with a heartbeat
//! when the backend is silent for that long.

use std::rc::Rc;

use futures_util::future::{Either, select};

use crate::{
    config::compiled::VirtualHost,
    http::{LAST_CHUNK, encode_chunk, sse, sse::EventParser},
    mcp::{
        json,
        reply_scan::{ReplyKind, scan_reply},
    },
    refusal::rpc_error,
    reply::{ClientGone, Reply},
    session::state::OpenBackend,
    shard_state::ShardState,
    upstream::{
        CallFault, Exchange, answer,
        rpc::{ReplyForm, is_message, response_to},
    },
};

/// Requests a backend may send on one call's stream before we stop answering them.
const BACKEND_REQUESTS_MAX: usize = 256;

/// The call a reply belongs to.
#[derive(Debug)]
pub struct Call<'a> {
    /// The virtual host.
    pub host: &'a Rc<VirtualHost>,
    /// Index of the backend in it.
    pub backend: usize,
    /// The backend's session.
    pub open: &'a Rc<OpenBackend>,
    /// The caller's request id, raw.
    pub client_id: &'a [u8],
    /// Our request id at the backend, raw.
    pub upstream_id: &'a [u8],
}

/// How a relay ended short of a whole reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The backend failed; nothing was written to the client yet.
    Backend(CallFault),
    /// The client has left.
    Client,
}

impl From<CallFault> for Cut {
    fn from(fault: CallFault) -> Self {
        Self::Backend(fault)
    }
}

impl From<ClientGone> for Cut {
    fn from(_: ClientGone) -> Self {
        Self::Client
    }
}

/// Relays the reply whose head has arrived in `exchange`. The exchange ends with it.
pub async fn relay(
    shard: &Rc<ShardState>,
    call: &Call<'_>,
    mut exchange: Exchange,
    reply: &mut Reply<'_>,
) -> Result<(), Cut> {
    match shard.upstream.form(&mut exchange).await? {
        ReplyForm::Json => {
            let mut out = shard.shard.buffers.take();
            let document = shard.upstream.document(&mut exchange).await?;
            write_response(reply, &mut out, &document, call)?;
            drop(document);
            shard.shard.buffers.put(shard.upstream.finish(exchange));
            shard.shard.buffers.put(reply.last(out).await?);
            Ok(())
        }
        ReplyForm::Stream => {
            let stream = Stream {
                shard,
                call,
                exchange,
                reply,
                has_head: false,
            };
            Box::pin(stream.relay()).await
        }
    }
}

/// Writes a whole JSON reply: the document with the caller's id.
fn write_response(
    reply: &mut Reply<'_>,
    out: &mut Vec<u8>,
    document: &[u8],
    call: &Call<'_>,
) -> Result<(), CallFault> {
    let scan = response_to(document, call.upstream_id)?;
    let id = scan.id.ok_or(CallFault::NotAReply)?;
    let length = document.len() - id.len() + call.client_id.len();
    out.reserve(length + 256);
    reply.json_head(out, length);
    json::splice(out, document, &[(id, call.client_id)]);
    Ok(())
}

struct Stream<'a, 'b, 'c> {
    shard: &'a Rc<ShardState>,
    call: &'a Call<'b>,
    exchange: Exchange,
    reply: &'a mut Reply<'c>,
    has_head: bool,
}

/// What one piece of a backend's stream held.
#[derive(Default)]
struct Batch {
    /// Events for the client, formatted.
    events: Vec<u8>,
    /// The response with the caller's id.
    response: Option<Vec<u8>>,
    /// Requests of the backend: raw id, whether it is a ping.
    requests: Vec<(Vec<u8>, bool)>,
}

impl Stream<'_, '_, '_> {
    async fn relay(mut self) -> Result<(), Cut> {
        let limits = &self.shard.upstream.limits;
        let mut parser = EventParser::new(limits.event_bytes_max);
        let mut piece = self.shard.shard.buffers.take();
        let mut request_count = 0;
        loop {
            if self.exchange.body.needs_input() {
                let is_silent = {
                    let input = std::pin::pin!(self.exchange.link.readable());
                    let pause = std::pin::pin!(shards::sleep(limits.heartbeat));
                    matches!(select(input, pause).await, Either::Right(_))
                };
                if is_silent {
                    let mut comment = Vec::new();
                    sse::write_comment(&mut comment, b"");
                    self.pass_on(&comment).await?;
                    continue;
                }
            }
            piece.clear();
            match self
                .exchange
                .body
                .piece(&mut self.exchange.link, &mut piece)
                .await
            {
                Ok(true) => {}
                Ok(false) => return self.fail(CallFault::NoResponse).await,
                Err(fault) => return self.fail(fault).await,
            }
            let mut batch = Batch::default();
            let fed = parser.feed(&piece, |event| {
                if is_message(event.name) && !event.data.is_empty() {
                    sort(event.data, self.call, &mut batch);
                }
            });
            for (id, is_ping) in batch.requests {
                request_count += 1;
                if request_count <= BACKEND_REQUESTS_MAX {
                    let call = self.call;
                    let to = (call.host, call.backend);
                    answer::answer(self.shard, to, call.open, &id, is_ping);
                }
            }
            if let Some(response) = batch.response {
                self.shard.shard.buffers.put(piece);
                return self.finish(batch.events, response).await;
            }
            if fed.is_err() {
                return self.fail(CallFault::TooLarge).await;
            }
            if !batch.events.is_empty() {
                self.pass_on(&batch.events).await?;
            }
        }
    }

    /// Writes events as a part of the stream.
    async fn pass_on(&mut self, events: &[u8]) -> Result<(), ClientGone> {
        let mut out = self.shard.shard.buffers.take();
        self.frame(&mut out, events);
        let buffer = self.reply.part(out).await?;
        self.shard.shard.buffers.put(buffer);
        Ok(())
    }

    fn frame(&mut self, out: &mut Vec<u8>, events: &[u8]) {
        if !self.has_head {
            self.has_head = true;
            self.reply.stream_head(out);
        }
        if self.reply.is_chunked() {
            encode_chunk(out, events);
        } else {
            out.extend_from_slice(events);
        }
    }

    /// Writes the response as the last thing: in the stream if one was begun, else as JSON.
    async fn finish(mut self, mut events: Vec<u8>, response: Vec<u8>) -> Result<(), Cut> {
        let mut out = self.shard.shard.buffers.take();
        if !self.has_head && events.is_empty() {
            self.reply.json_head(&mut out, response.len());
            out.extend_from_slice(&response);
        } else {
            sse::write_event(&mut events, None, None, &response);
            self.frame(&mut out, &events);
            if self.reply.is_chunked() {
                out.extend_from_slice(LAST_CHUNK);
            }
        }
        let Self {
            shard,
            exchange,
            reply,
            ..
        } = self;
        shard.upstream.drain_later(exchange);
        shard.shard.buffers.put(reply.last(out).await?);
        Ok(())
    }

    /// The backend failed: an error in the stream if one was begun, else the caller's to answer.
    async fn fail(self, fault: CallFault) -> Result<(), Cut> {
        if !self.has_head {
            return Err(fault.into());
        }
        let text = format!("Routing problem... {fault}");
        let response = rpc_error(Some(self.call.client_id), -32603, &text);
        self.shard.numbers.calls_failed.add(1);
        self.finish(Vec::new(), response).await
    }
}

/// Sorts one message of the backend's stream.
fn sort(data: &[u8], call: &Call<'_>, batch: &mut Batch) {
    if batch.response.is_some() {
        return;
    }
    let Ok(scan) = scan_reply(data) else { return };
    match (scan.kind, scan.id) {
        (ReplyKind::Result | ReplyKind::Error, Some(id)) if id.slice(data) == call.upstream_id => {
            let mut response = Vec::new();
            json::splice(&mut response, data, &[(id, call.client_id)]);
            batch.response = Some(response);
        }
        (ReplyKind::Notification, _) => sse::write_event(&mut batch.events, None, None, data),
        (ReplyKind::Request, Some(id)) => {
            let is_ping = scan
                .method
                .is_some_and(|method| method.slice(data) == b"ping");
            batch.requests.push((id.slice(data).to_vec(), is_ping));
        }
        _ => {}
    }
}
