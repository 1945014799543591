//! Toward the backend: its own names in the params of a client's message.

use super::{RELATED_TASK, inner};
use crate::{
    config::compiled::VirtualHost,
    http::Span,
    mcp::{edits::Edits, envelope::Envelope, json},
    route::{
        family::Family,
        names::{Route, route_task},
    },
};

/// Puts what the backend calls it in place of the name, URI, reference or task id that `method` was
/// routed by, and of a task the message is tied to, if that is the same backend's. With a single
/// backend only an alias makes a difference.
pub fn original_params(
    host: &VirtualHost,
    route: &Route<'_>,
    method: &[u8],
    body: &[u8],
    envelope: &Envelope,
    edits: &mut Edits,
) {
    let at = match method {
        b"tools/call" | b"prompts/get" => envelope.name,
        b"resources/read" | b"resources/subscribe" | b"resources/unsubscribe" => envelope.uri,
        b"completion/complete" => reference(body, envelope).map(|(_, at)| at),
        b"tasks/get" | b"tasks/result" | b"tasks/cancel" => envelope.task_id,
        _ => None,
    };
    if let Some(at) = at {
        put_if_other(body, at, &route.original, edits);
    }
    original_related_task(host, route.backend, body, envelope, edits);
}

/// Puts the backend's id in place of the task that a client's message is tied to, if that task is
/// the backend's: in the `_meta` of params, or of the result of a client's answer (mcp.md 3.4).
/// Ids of tasks that the client keeps name no backend and stay.
pub fn original_related_task(
    host: &VirtualHost,
    backend: usize,
    body: &[u8],
    envelope: &Envelope,
    edits: &mut Edits,
) {
    let related = match (envelope.related_task, envelope.result) {
        (Some(related), _) => Some(related),
        (None, Some(result)) => {
            inner(body, result, "_meta").and_then(|meta| inner(body, meta, RELATED_TASK))
        }
        (None, None) => None,
    };
    if let Some(at) = related.and_then(|related| inner(body, related, "taskId"))
        && let Some(id) = json::unescape(at.slice(body))
        && let Some(route) = route_task(host, &id)
        && route.backend == backend
    {
        put_if_other(body, at, &route.original, edits);
    }
}

/// What a completion's reference names, and where: a prompt, or the URI or template of a resource.
pub fn reference(body: &[u8], envelope: &Envelope) -> Option<(Family, Span)> {
    let kind = envelope.reference_type?.slice(body);
    if json::says(kind, "ref/prompt") {
        Some((Family::Prompts, envelope.reference_name?))
    } else if json::says(kind, "ref/resource") {
        Some((Family::Resources, envelope.reference_uri?))
    } else {
        None
    }
}

/// Bytes that say the same already stay as the client spelt them.
fn put_if_other(body: &[u8], at: Span, original: &str, edits: &mut Edits) {
    let lexeme = at.slice(body);
    // Nearly all names are spelt plainly: equal bytes need no decoding.
    let is_same = (!original.contains('\\') && json::says(lexeme, original))
        || json::unescape(lexeme).is_some_and(|text| text == original);
    if !is_same {
        edits.put_text(at, original);
    }
}
