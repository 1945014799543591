//! `logging/setLevel`: remembered for the session and told to every backend that logs.
//!
//! Backends that open later are told when they open ([`crate::upstream::open`]).

use std::rc::Rc;

use futures_util::future::join_all;

use crate::{
    mcp::{envelope::Envelope, json},
    method::{id_of, result},
    refusal::Refusal,
    reply::Reply,
    request::{Caller, gone_is_fine},
    session::Session,
    shard_state::ShardState,
    upstream::{CallFault, FromClient, listen, log_level, open},
};

/// Sets the level. It has failed only when every backend that logs has refused it.
pub async fn set(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    message: &Envelope,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let level = level_in(caller, message)
        .ok_or_else(|| Refusal::rpc(id, -32602, "Invalid params: level"))?;
    session.log_level.set(Some(level));
    let all =
        (0..caller.host.backends.len()).map(|index| tell(shard, caller, session, index, level));
    let told = join_all(all).await;
    let mut outcomes = told.into_iter().flatten().peekable();
    if outcomes.peek().is_none() {
        // We did not advertise it: no backend logs.
        return Err(Refusal::rpc(id, -32601, "Method not found"));
    }
    let mut fault = None;
    for outcome in outcomes {
        match outcome {
            Ok(()) => {
                listen_too(shard, session).await;
                return gone_is_fine(reply.json(&result(id, b"{}")).await);
            }
            Err(other) => fault = Some(other),
        }
    }
    let fault = fault.unwrap_or(CallFault::LevelRefused);
    Err(Refusal::Backend(id.into(), fault))
}

/// Opens the backends' own streams first, so that no message after the answer is missed.
async fn listen_too(shard: &Rc<ShardState>, session: &Rc<Session>) {
    let all = listen::start(shard, session);
    let opened = join_all(all.iter().map(|stream| stream.wait()));
    // A backend that is late with its stream must not hold up the answer.
    let _ = shards::task::within(shard.upstream.limits.fan_out, opened).await;
}

fn level_in(caller: &Caller<'_>, message: &Envelope) -> Option<&'static str> {
    let params = message.params?.slice(caller.body);
    let level = json::member(params, "level")?.slice(params);
    log_level::level_of(&json::unescape(level)?)
}

/// Tells one backend; `None`: it does not log, or is not open and will be told when it opens.
async fn tell(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    index: usize,
    level: &'static str,
) -> Option<Result<(), CallFault>> {
    let link = session.backend(&caller.host, index)?;
    let opened = link.open().filter(|open| log_level::is_offered(open))?;
    if opened.version.is_stateless() {
        // It is told with every request.
        return Some(Ok(()));
    }
    let to = log_level::Recipient {
        backend: &caller.host.backends[index],
        link: &link,
        open: &opened,
    };
    let patience = shard.upstream.limits.fan_out;
    if let Err(fault) = to.backend.admit(&caller.principal) {
        return Some(Err(fault));
    }
    let client = FromClient::of(caller.request, &caller.principal);
    let told = log_level::set(shard, to, level, client, patience).await;
    if told != Err(CallFault::SessionLost) {
        return Some(told);
    }
    // Opening it again tells it the level.
    link.forget(&opened);
    shard.numbers.backend_reopened.add(1);
    let place = (&caller.host, index);
    let again = open::ensure(shard, session, place, &link, patience).await;
    Some(again.map(drop))
}
