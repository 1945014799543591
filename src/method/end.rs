//! DELETE: ends a session and its backend sessions.

use std::rc::Rc;

use crate::{
    preflight,
    refusal::{Answer, Refusal},
    reply::Reply,
    request::{Caller, gone_is_fine, session_of},
    shard_state::ShardState,
    upstream::open,
};

/// Ends the caller's session: 200, and 404 from then on (market.md S3).
pub async fn end(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let version = preflight::session_version(caller.protocols(shard), caller.request)?;
    let session = session_of(shard, caller)?;
    preflight::check_version(caller.protocols(shard), version, &session)?;
    let removed = shard.sessions.borrow_mut().remove(&session.id);
    if let Some(session) = removed {
        shard.numbers.sessions_deleted.add(1);
        shard.publish_load();
        open::end_all(shard, &session);
    }
    let answer = Answer {
        status: 200,
        content_type: "",
        body: Vec::new(),
        headers: "",
        must_close: false,
    };
    gone_is_fine(reply.answer(answer).await)
}
