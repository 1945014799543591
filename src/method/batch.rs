//! Batches: several messages in one POST, for sessions of revision 2025-03-26 alone (mcp.md 1.2).
//!
//! Each message is served as if it had come by itself; the responses are one JSON array. What a
//! backend says meanwhile goes to the session's own streams.

use std::{rc::Rc, time::Instant};

use futures_util::future::join_all;

use crate::{
    auth::scope,
    mcp::{
        envelope::{self, EnvelopeFault, Kind},
        json,
        version::Version,
    },
    preflight,
    refusal::Refusal,
    reply::{Reply, Sink},
    request::{Caller, gone_is_fine, message_of_session, session_of},
    shard_state::ShardState,
};

/// Messages of one batch at the most, as the SDKs have it (mcp.md 1.2).
const MESSAGES_MAX: usize = 100;

/// Serves the batch that is the body.
pub async fn serve(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let (body, started) = (caller.body, Instant::now());
    let refused = || Refusal::Envelope(EnvelopeFault::Batch, None);
    let header = preflight::session_version(caller.protocols(shard), caller.request)?;
    let session = session_of(shard, caller)?;
    preflight::check_version(caller.protocols(shard), header, &session)?;
    if session.version != Version::V2025_03_26 {
        return Err(refused());
    }
    let start = json::skip_whitespace(body, 0);
    let array = body.get(start..).unwrap_or_default();
    let mut elements = Vec::new();
    for element in json::elements(array) {
        let element = element.map_err(|_| Refusal::Envelope(EnvelopeFault::NotJson, None))?;
        elements.push(element.slice(array));
        if elements.len() > MESSAGES_MAX {
            return Err(refused());
        }
    }
    if elements.is_empty() {
        return Err(refused());
    }
    let depth_max = shard.settings.limits.json_depth_max;
    let mut messages = Vec::with_capacity(elements.len());
    for element in elements {
        // One that cannot be read makes the whole doubtful: nothing of it is done.
        let message =
            envelope::scan(element, depth_max).map_err(|fault| Refusal::Envelope(fault, None))?;
        let is_initialize = message.method.map(|span| span.slice(element)) == Some(b"initialize");
        if is_initialize || message.meta_protocol_version.is_some() {
            return Err(refused());
        }
        // A status is one for the whole batch, and so is the challenge that comes with it.
        if message.kind == Kind::Request {
            let method = message.method.map_or(&b""[..], |span| span.slice(element));
            scope::check(shard, &caller.principal, method)?;
        }
        messages.push((element, message));
    }
    let all = messages.iter().map(|(element, message)| {
        let session = &session;
        async move {
            let caller = caller.with_body(element);
            let sink = Sink::Memory(Vec::new());
            let mut own = Reply::new(sink, shard.shard.gate.clone(), true, 1);
            let served =
                message_of_session(shard, &caller, session, message, started, &mut own).await;
            if let Err(refusal) = served {
                shard.numbers.refused.count(&refusal);
                let _ = own.refuse(&refusal).await;
            }
            own.into_body()
        }
    });
    let mut array = b"[".to_vec();
    for response in join_all(all).await {
        if response.is_empty() {
            continue;
        }
        if array.len() > 1 {
            array.push(b',');
        }
        array.extend_from_slice(&response);
    }
    if array.len() == 1 {
        return gone_is_fine(reply.accepted().await);
    }
    array.push(b']');
    gone_is_fine(reply.json(&array).await)
}
