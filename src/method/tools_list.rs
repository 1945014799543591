//! `tools/list`: all pages of all backends, merged.

use std::{rc::Rc, time::Duration};

use futures_util::future::join_all;
use shards::deadline::now_ms;

use crate::{
    mcp::{envelope::Envelope, json},
    method::{id_of, result},
    refusal::Refusal,
    reply::Reply,
    request::{Caller, gone_is_fine},
    route::{
        family::Family,
        merge::{BackendPages, Merged, merge},
    },
    session::Session,
    settings::FailMode,
    shard_state::ShardState,
    upstream::{
        CallFault,
        exchange::{Manner, Repeat},
        open, request,
    },
};

/// Pages followed of one backend.
const PAGES_MAX: usize = 64;

/// Answers `tools/list`. Backends that fail are left out and named in the result's `_meta`.
pub async fn list(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    message: &Envelope,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    if message.cursor.is_some() {
        // Everything is on the first page, so we have given out no cursor.
        return Err(Refusal::rpc(id, -32602, "Invalid params: unknown cursor"));
    }
    let (merged, missing) = gather(shard, caller, session).await;
    if shard.fail_mode == FailMode::Closed
        && let Some((_, fault)) = missing.first()
    {
        return Err(Refusal::Backend(id.into(), *fault));
    }
    let mut object = Vec::with_capacity(merged.array.len() + 64);
    object.extend_from_slice(b"{\"tools\":");
    object.extend_from_slice(&merged.array);
    if !missing.is_empty() {
        object.extend_from_slice(b",\"_meta\":{\"shardgate/unavailable\":[");
        for (position, (backend, _)) in missing.iter().enumerate() {
            if position > 0 {
                object.push(b',');
            }
            json::quote(&mut object, &caller.host.backends[*backend].key);
        }
        object.extend_from_slice(b"]}");
    }
    object.push(b'}');
    gone_is_fine(reply.json(&result(id, &object)).await)
}

/// The merged list, and which backends are not in it and why.
pub async fn gather(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
) -> (Merged, Vec<(usize, CallFault)>) {
    let all = (0..caller.host.backends.len())
        .map(|backend| backend_pages(shard, caller, session, backend));
    let mut pages = Vec::new();
    let mut missing = Vec::new();
    for (backend, outcome) in join_all(all).await.into_iter().enumerate() {
        match outcome {
            Ok(arrays) => pages.push(BackendPages { backend, arrays }),
            Err(fault) => missing.push((backend, fault)),
        }
    }
    if !missing.is_empty() {
        shard.numbers.lists_partial.add(1);
        open::join_late(shard, session, &caller.host);
    }
    let mut merged = merge(&caller.host, Family::Tools, &pages);
    shard
        .numbers
        .name_collisions
        .add(merged.collisions.len() as u64);
    // The indices are those of this configuration.
    if caller.host.is_ambiguous && Rc::ptr_eq(&session.backends.borrow().host, &caller.host) {
        let lesson = std::mem::take(&mut merged.lesson);
        session.learned.borrow_mut().replace(Family::Tools, lesson);
    }
    (merged, missing)
}

/// All pages of one backend, as raw arrays. A backend that has no tools has none to list.
async fn backend_pages(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    index: usize,
) -> Result<Vec<Vec<u8>>, CallFault> {
    let patience = shard.upstream.limits.fan_out;
    let place = (&caller.host, index);
    let link = session
        .backend(&caller.host, index)
        .ok_or(CallFault::Reconfigured)?;
    // A backend that is late already, or that fails at once, costs the list nothing.
    if open::opening_for_ms(&link).is_some_and(|ms| u128::from(ms) >= patience.as_millis())
        || (link.open().is_none() && link.target.breaker.is_open(now_ms()))
    {
        return Err(link.last_fault.get().unwrap_or(CallFault::CircuitOpen));
    }
    let mut is_second = false;
    loop {
        let lost = open::ensure(shard, session, place, &link, patience).await?;
        match pages_of(shard, caller, &link, &lost, index, patience).await {
            Err(CallFault::SessionLost) if !is_second => {
                is_second = true;
                link.forget(&lost);
                shard.numbers.backend_reopened.add(1);
            }
            outcome => return outcome,
        }
    }
}

async fn pages_of(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    link: &crate::session::BackendSession,
    open: &crate::session::state::OpenBackend,
    index: usize,
    patience: Duration,
) -> Result<Vec<Vec<u8>>, CallFault> {
    if json::member(&open.capabilities, "tools").is_none() {
        return Ok(Vec::new());
    }
    let backend = &caller.host.backends[index];
    let mut arrays = Vec::new();
    let mut cursors: Vec<Vec<u8>> = Vec::new();
    while arrays.len() < PAGES_MAX {
        let id = link.next_id().to_string();
        let mut body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list""#).into_bytes();
        if let Some(cursor) = cursors.last() {
            body.extend_from_slice(b",\"params\":{\"cursor\":");
            body.extend_from_slice(cursor);
            body.push(b'}');
        }
        body.push(b'}');
        let mut http = open.head.to_vec();
        request::finish_head(&mut http, body.len(), backend, caller.request.head_bytes());
        http.extend_from_slice(&body);
        let manner = Manner {
            repeat: Repeat::Harmless,
            first_byte: patience,
            is_lateness_telling: true,
        };
        let answer = shard
            .upstream
            .ask(&backend.target, http, id.as_bytes(), manner)
            .await?;
        let array = answer.result_member("tools").ok_or(CallFault::NotAReply)?;
        if !array.starts_with(b"[") {
            return Err(CallFault::NotAReply);
        }
        arrays.push(array.to_vec());
        let next = answer
            .result_member("nextCursor")
            .filter(|raw| raw.starts_with(b"\""));
        match next {
            // A cursor met before would go on for ever (market.md S1).
            Some(next) if cursors.iter().any(|known| known == next) => {
                shard.numbers.lists_cyclic.add(1);
                break;
            }
            Some(next) => cursors.push(next.to_vec()),
            None => break,
        }
    }
    Ok(arrays)
}
