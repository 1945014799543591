//! `server/discover`: what all backends that serve stateless clients can do, as one server
//! (mcp.md 2.4).
//!
//! A virtual host with a backend that no stateless client can reach does not pretend: it answers as
//! a server of the older revisions does, so that a client which knows both opens a session and
//! misses nothing.

use std::rc::Rc;

use crate::{
    mcp::{capabilities, json, profile, version},
    mcp::{envelope::Envelope, version::Version},
    method::{id_of, initialize::instructions, result},
    refusal::Refusal,
    reply::Reply,
    request::{Caller, gone_is_fine},
    session::state::OpenBackend,
    settings::Protocols,
    shard_state::ShardState,
    stateless::{Standing, StatelessFault},
    upstream::CallFault,
};

/// Answers.
pub async fn answer(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    standing: &Standing,
    message: &Envelope,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let refused = |fault| Refusal::modern(Some(id), fault);
    let opened = standing.all_open(shard, caller).await;
    let mut first_fault = None;
    let mut open: Vec<(&str, Rc<OpenBackend>)> = Vec::with_capacity(opened.len());
    for (index, outcome) in opened.into_iter().enumerate() {
        let backend = &caller.host.backends[index];
        match outcome {
            Ok(one) => open.push((&*backend.key, one)),
            Err(CallFault::NotStateless) if backend.bridge.is_some() => {
                match standing.bridged(shard, caller, index).await {
                    Ok(one) => open.push((&*backend.key, one)),
                    Err(fault) => first_fault = first_fault.or(Some(fault)),
                }
            }
            Err(CallFault::NotStateless) => return Err(refused(StatelessFault::Method)),
            Err(fault) => first_fault = first_fault.or(Some(fault)),
        }
    }
    let has_tools = !caller.host.declared.is_empty();
    if let Some(fault) = first_fault
        && ((open.is_empty() && !has_tools) || shard.fails_closed(&caller.host))
    {
        return Err(refused(StatelessFault::Backend(fault)));
    }
    let ttl_ms = match first_fault {
        // Whoever is missing may be there the next time.
        Some(_) => 0,
        None => caller.protocols(shard).discover_ttl_ms,
    };
    let document = discovered(caller.protocols(shard), &open, has_tools, ttl_ms);
    gone_is_fine(reply.response(&result(id, &document)).await)
}

fn discovered(
    protocols: &Protocols,
    open: &[(&str, Rc<OpenBackend>)],
    has_tools: bool,
    ttl_ms: u64,
) -> Vec<u8> {
    let mut out = b"{".to_vec();
    out.extend_from_slice(profile::own_result_members(ttl_ms, true).as_bytes());
    out.extend_from_slice(b"\"supportedVersions\":[");
    for (position, name) in version::names(true, protocols.with_sessions())
        .iter()
        .enumerate()
    {
        if position > 0 {
            out.push(b',');
        }
        json::quote(&mut out, name);
    }
    out.extend_from_slice(b"],\"capabilities\":{");
    let all: Vec<&[u8]> = open.iter().map(|(_, one)| &*one.capabilities).collect();
    capabilities::merge(&mut out, Version::V2026_07_28, &all, has_tools);
    out.extend_from_slice(b"},");
    let named: Vec<(&str, &OpenBackend)> = open.iter().map(|(key, one)| (*key, &**one)).collect();
    let instructions = instructions(&named);
    if !instructions.is_empty() {
        out.extend_from_slice(b"\"instructions\":");
        json::quote(&mut out, &instructions);
        out.push(b',');
    }
    out.extend_from_slice(b"\"_meta\":{");
    out.extend_from_slice(profile::own_server_info().as_bytes());
    out.extend_from_slice(b"}}");
    out
}
