//! The internal HTTP API: status, publish, streamed requests, metadata, deletion, metrics.
//!
//! A request is read, kept alive and forwarded by the same code as any other ([`crate::http::
//! connection`]); here stands who may ask, which shard knows the answer, and the answer. Nothing
//! here is for browsers, so nothing says CORS.

mod answer;
mod publish;
mod route;
mod validate;

use std::{rc::Rc, time::Duration};

use serde_json::json;
use shards::{ShardId, task::within};

use self::{answer::Answer, route::Route};
use super::{
    envelope::write_number,
    fault::Fault,
    json as fields,
    node::{End, Node},
    numbers,
    registry::{Cluster, Registry},
    session::Now,
    session_id::SessionId,
};
use crate::{
    http::{HttpRefusal, header_values},
    refusal::Refusal,
    reply::{ClientGone, Reply},
    request::Request,
    shard_state::ShardState,
};

/// How long a deletion waits for the other shards to free what the session had.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

/// Whether the caller of this request is to be watched while its answer is made, as the owner must
/// hear when it leaves.
pub fn is_stream(request: &Request) -> bool {
    matches!(Route::of(request), Route::Stream(_))
}

/// The shard that knows the answer.
pub fn owner(state: &ShardState, node: &Node, request: &Request) -> ShardId {
    // Who may not ask crosses no ring.
    if !is_authorized(node, request) {
        return state.shard.id;
    }
    let slots = &state.shard.slots;
    match Route::of(request) {
        Route::Status(id)
        | Route::Publish(id)
        | Route::Stream(id)
        | Route::Metadata(id)
        | Route::Delete(id) => id.map(|id| slots.owner_of(id.as_str().as_bytes())),
        Route::BySource(source) => source.map(|source| slots.owner_of(source.as_bytes())),
        Route::Health | Route::Metrics | Route::Unknown => None,
    }
    .unwrap_or(state.shard.id)
}

fn is_authorized(node: &Node, request: &Request) -> bool {
    let value = request
        .field(request.head.authorization)
        .unwrap_or_default();
    value
        .strip_prefix(b"Bearer ")
        .is_some_and(|token| node.is_bearer(token))
}

/// Serves one request. Whatever happens, a panic included, it has one answer or its connection
/// ends.
pub async fn serve(
    state: &Rc<ShardState>,
    node: &Rc<Node>,
    request: &Request,
    reply: &mut Reply<'_>,
) {
    let _pass = state.shard.gate.enter();
    let outcome = shards::task::guard(steps(state, node, request, reply)).await;
    if outcome.is_none() {
        state.numbers.panics.add(1);
        if !reply.has_started() {
            let internal = Answer::internal();
            // A caller that has left needs no answer.
            let _ = internal.write(state, request, reply).await;
        }
    }
}

/// Answers a request that was not read to its end or did not reach its shard; `max` is the limit of
/// an envelope.
pub async fn refuse(refusal: &Refusal, max: usize, reply: &mut Reply<'_>) {
    let answer = match refusal {
        Refusal::Http(HttpRefusal { status: 413, .. }) => {
            Answer::fault(&Fault::EnvelopeTooLarge(max, max + 1))
        }
        Refusal::Http(refusal) => Answer::text(refusal.status, refusal.reason),
        Refusal::Draining => Answer::fault(&Fault::Draining),
        Refusal::Busy => Answer::fault(&Fault::Busy),
        _ => Answer::internal(),
    };
    // A caller that has left needs no answer.
    let _ = answer.write_closing(reply).await;
}

async fn steps(
    state: &Rc<ShardState>,
    node: &Rc<Node>,
    request: &Request,
    reply: &mut Reply<'_>,
) -> Result<(), ClientGone> {
    let route = Route::of(request);
    let is_open = matches!(route, Route::Health);
    if !is_open && route::is_guarded(request) && !is_authorized(node, request) {
        return Answer::text(401, "Unauthorized")
            .write(state, request, reply)
            .await;
    }
    let answer = match route {
        Route::Health => Answer::data(&json!({
            "status": "ok",
            "timestamp": answer::timestamp(Now::read().unix_ms),
        })),
        Route::Metrics => metrics(node, request),
        Route::Status(id) => match id.and_then(|id| node.session(id)) {
            Some(session) => Answer::view(|out| session.write_view(out)),
            None => match elsewhere(node, id) {
                Some((cluster, id)) => {
                    shown_view(cluster.look_up(node, id).await.map(|seen| Some(seen?.view)))
                }
                None => Answer::no_session(),
            },
        },
        Route::BySource(Some(source)) => {
            shown_view(node.registry.view_of_source((state, node), &source).await)
        }
        Route::BySource(None) => Answer::text(400, "Bad Request"),
        Route::Publish(id) => publish::accept(state, node, id, request).await,
        Route::Stream(id) => match publish::stream(state, node, id, request, reply).await {
            Ok(outcome) => return outcome,
            Err(answer) => answer,
        },
        Route::Metadata(id) => metadata(node, id, request).await,
        Route::Delete(id) => match delete(state, node, id).await {
            Ok(()) => Answer::data(&json!({"deleted": true})),
            Err(fault) => Answer::fault(&fault),
        },
        Route::Unknown => Answer::text(404, "404 Not Found"),
    };
    answer.write(state, request, reply).await
}

/// Ends a session, wherever it is. Once this has returned its sources can be bound by the next one.
async fn delete(
    state: &Rc<ShardState>,
    node: &Rc<Node>,
    id: Option<SessionId>,
) -> Result<(), Fault> {
    if let Some(session) = id.and_then(|id| node.session(id)) {
        let free = node.end(state, &session, End::Deleted);
        session.outbox.close(None);
        if let Some(free) = free {
            // Late, they are still given back, and whoever binds waits for it.
            let _ = within(RELEASE_PATIENCE, free.wait()).await;
        }
        return Ok(());
    }
    match elsewhere(node, id) {
        Some((cluster, id)) => cluster.delete(id).await,
        None => Ok(()),
    }
}

/// Where to ask for a session that is not this node's.
fn elsewhere(node: &Node, id: Option<SessionId>) -> Option<(&Rc<Cluster>, SessionId)> {
    match &node.registry {
        Registry::Memory => None,
        Registry::Redis(cluster) => Some((cluster, id?)),
    }
}

fn shown_view(view: Result<Option<Vec<u8>>, Fault>) -> Answer {
    match view {
        Ok(Some(view)) => Answer::view(|out| out.extend_from_slice(&view)),
        Ok(None) => Answer::no_session(),
        Err(fault) => Answer::fault(&fault),
    }
}

/// JSON, or Prometheus text for those who would rather have text.
fn metrics(node: &Node, request: &Request) -> Answer {
    let wants_text = header_values(request.head_bytes(), "accept").any(|value| {
        [&b"text/plain"[..], b"application/openmetrics-text"]
            .iter()
            .any(|kind| memchr::memmem::find(value, kind).is_some())
    });
    if wants_text {
        Answer::metrics_text(numbers::as_text(&node.all_numbers))
    } else {
        Answer::data(&numbers::as_json(
            &node.all_numbers,
            &node.node_id,
            &node.settings,
        ))
    }
}

async fn metadata(node: &Node, id: Option<SessionId>, request: &Request) -> Answer {
    let body = std::str::from_utf8(request.body_bytes()).unwrap_or_default();
    let found = fields::members(body, ["metadata"]);
    let metadata = found
        .and_then(|[metadata]| metadata)
        .filter(|raw| fields::is_object(raw));
    let Some(metadata) = metadata else {
        return Answer::invalid(&validate::metadata(body));
    };
    let Some(session) = id.and_then(|id| node.session(id)) else {
        let Some((cluster, id)) = elsewhere(node, id) else {
            return Answer::fault(&Fault::SessionNotFound);
        };
        return match cluster.patch(id, metadata).await {
            Ok(session) => Answer::view(|out| {
                out.extend_from_slice(br#"{"session":"#);
                out.extend_from_slice(&session);
                out.push(b'}');
            }),
            Err(fault) => Answer::fault(&fault),
        };
    };
    node.registry.update(&session, metadata).await;
    session.note(
        Now::read(),
        "info",
        "Gateway session metadata updated",
        None,
    );
    Answer::view(|out| {
        out.extend_from_slice(br#"{"session":"#);
        session.write(out);
        out.push(b'}');
    })
}

/// Appends the answer to an accepted publication.
fn write_accepted(out: &mut Vec<u8>, (at_ms, count): (u64, u64)) {
    out.extend_from_slice(br#"{"messageId":""#);
    write_number(out, at_ms);
    out.push(b'-');
    write_number(out, count);
    out.extend_from_slice(br#"","accepted":true}"#);
}
