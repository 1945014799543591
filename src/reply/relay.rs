//! The relay: a backend's reply to one call, passed on with the caller's id in place of ours.
//!
//! A JSON reply is one write. An event stream is relayed event by event as it arrives
//! ([`crate::reply::stream`]).

use std::rc::Rc;

use crate::{
    mcp::{
        edits::Edits,
        json,
        reply_scan::{ReplyKind, ReplyScan},
        revision,
    },
    reply::{ClientGone, Reply, stream::Stream},
    route::rewrite,
    session::{Session, calls::ClientCall},
    shard_state::ShardState,
    upstream::{
        CallFault, Exchange,
        rpc::{ReplyForm, response_to},
        say::Listener,
    },
};

/// The call a reply belongs to.
#[derive(Debug)]
pub struct Call<'a> {
    /// The session.
    pub session: &'a Rc<Session>,
    /// The backend.
    pub backend: &'a Listener,
    /// The method called.
    pub method: &'a [u8],
    /// The caller's request id, raw.
    pub client_id: &'a [u8],
    /// Our request id at the backend, raw.
    pub upstream_id: &'a [u8],
    /// Its entry in the session's table.
    pub entry: &'a Rc<ClientCall>,
    /// The caller's head.
    pub client_head: &'a [u8],
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

/// Relays the reply whose head has arrived in `exchange`. The exchange ends with it. Says whether
/// it was a result or an error.
pub async fn relay(
    shard: &Rc<ShardState>,
    call: &Call<'_>,
    mut exchange: Exchange,
    reply: &mut Reply<'_>,
) -> Result<ReplyKind, Cut> {
    match shard.upstream.form(&mut exchange).await? {
        ReplyForm::Json => {
            let mut out = shard.shard.buffers.take();
            let document = shard.upstream.document(&mut exchange).await?;
            let scan = response_to(&document, call.upstream_id)?;
            if call.entry.cancel.is_cancelled() {
                return Err(CallFault::Cancelled.into());
            }
            write_response(reply, &mut out, &document, &scan, call);
            drop(document);
            shard.shard.buffers.put(shard.upstream.finish(exchange));
            shard.shard.buffers.put(reply.last(out).await?);
            Ok(scan.kind)
        }
        ReplyForm::Stream => Box::pin(Stream::new(shard, call, exchange, reply).relay()).await,
    }
}

/// Writes a whole JSON reply: the document in the client's terms.
fn write_response(
    reply: &mut Reply<'_>,
    out: &mut Vec<u8>,
    document: &[u8],
    scan: &ReplyScan,
    call: &Call<'_>,
) {
    let Some(edits) = edits_of(document, scan, call) else {
        let length = document.len() - scan.id.map_or(0, |id| id.len()) + call.client_id.len();
        out.reserve(length + 256);
        reply.json_head(out, length);
        restore_id(out, document, scan, call);
        return;
    };
    let mut body = Vec::with_capacity(document.len() + 256);
    edits.apply(&mut body, document);
    out.reserve(body.len() + 256);
    reply.json_head(out, body.len());
    out.extend_from_slice(&body);
}

/// Appends the response in the client's terms.
pub fn response(out: &mut Vec<u8>, document: &[u8], scan: &ReplyScan, call: &Call<'_>) {
    match edits_of(document, scan, call) {
        None => restore_id(out, document, scan, call),
        Some(edits) => edits.apply(out, document),
    }
}

fn restore_id(out: &mut Vec<u8>, document: &[u8], scan: &ReplyScan, call: &Call<'_>) {
    match scan.id {
        Some(id) => json::splice(out, document, &[(id, call.client_id)]),
        None => out.extend_from_slice(document),
    }
}

/// What has to change in a response; `None`: the id alone, as in most of them.
fn edits_of(document: &[u8], scan: &ReplyScan, call: &Call<'_>) -> Option<Edits> {
    let place = &call.backend.place;
    let is_newer = call.backend.open.version > call.session.version;
    if place.host.is_single && !is_newer {
        return None;
    }
    let method = std::str::from_utf8(call.method).unwrap_or_default();
    let mut edits = Edits::default();
    if let Some(id) = scan.id {
        edits.put_copy(id, call.client_id);
    }
    rewrite::expose_response(&place.host, place.index, method, document, scan, &mut edits);
    if is_newer {
        revision::fit_response(call.session.version, method, document, scan, &mut edits);
    }
    Some(edits)
}
