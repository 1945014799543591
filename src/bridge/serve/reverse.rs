//! Requests for a server that connects to us, which shards speak to in either profile: in sessions,
//! and without any (mcp.md 2).
//!
//! Its clients' sessions are the bridge's own and outlive the server: while it is away their lists
//! are empty and their calls fail at once. What a client without a session wants is asked in the
//! gateway's one session with the server.

use std::sync::Arc;

use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::{StatusCode, header::HeaderValue};

use super::{
    Posted, Reply, SESSION_HEADER, event, event_stream, json_reply, no_session, plain,
    result_document, rpc,
};
use crate::{
    bridge::{
        numbers::ReverseNumbers,
        peer::{SendFault, Session, Told},
        stand_in::{self, Verdict},
    },
    mcp::{
        edits::Edits,
        envelope::{Envelope, Kind, scan},
        json::{self, DEPTH_MAX},
        profile,
        reply_scan::scan_reply,
        version::Version,
    },
    refusal::rpc_error,
};

/// The key of a subscription's id in what is said on its stream.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The key by which a request says that it is of the stateless revision.
const REVISION: &str = "io.modelcontextprotocol/protocolVersion";

/// Whether a stateless result says how long it may be kept: lists do.
pub(super) type IsKept = bool;

/// How a call of such a server ends, whatever happens.
pub(super) struct Manner {
    /// The caller's raw id.
    pub(super) id: Box<[u8]>,
    /// What is asked for.
    pub(super) method: Box<[u8]>,
    /// The caller has no session.
    pub(super) stateless: Option<IsKept>,
    /// What is counted.
    pub(super) numbers: Arc<ReverseNumbers>,
}

impl Manner {
    /// What the caller is told: with an error of ours where the server says nothing.
    pub(super) fn told(&self, heard: Result<Told, SendFault>) -> Told {
        let fail = |text| {
            self.numbers.failed();
            rpc_error(Some(&self.id), -32603, text)
        };
        let document = match heard {
            Ok(Told::Answer(document)) => document,
            Ok(aside @ Told::Aside(_)) => return aside,
            Err(SendFault::Late) => fail(stand_in::LATE),
            Err(SendFault::Gone | SendFault::Status(_)) => {
                let parting = stand_in::parting(&self.id, &self.method);
                parting.unwrap_or_else(|| fail(stand_in::AWAY))
            }
        };
        Told::Answer(match self.stateless {
            Some(is_kept) => to_stateless(document, is_kept),
            None => document,
        })
    }
}

/// A response of a session as one of the stateless revision.
fn to_stateless(document: Vec<u8>, is_kept: IsKept) -> Vec<u8> {
    let Ok(scan) = scan_reply(&document) else {
        return document;
    };
    let mut edits = Edits::default();
    match scan.result {
        Some(result) => profile::result_to_stateless(&document, result, is_kept, &mut edits),
        None => profile::error_to_stateless(&document, &scan, &mut edits),
    }
    let mut out = Vec::with_capacity(document.len() + 128);
    edits.apply(&mut out, &document);
    out
}

/// Answers a POST.
pub(super) async fn answer(posted: Posted<'_>, session_id: Option<&str>) -> Reply {
    let Ok(message) = scan(&posted.body, DEPTH_MAX) else {
        return rpc(StatusCode::BAD_REQUEST, None, -32600, "Invalid Request");
    };
    let id = message.id.map(|at| at.slice(&posted.body).to_vec());
    match session_id {
        Some(known) => match posted.hub.session(&posted.way.route, known) {
            Some(session) => within(posted, session, &message).await,
            None => no_session(id.as_deref()),
        },
        None if posted.is(&message, b"initialize") && message.kind == Kind::Request => {
            open(&posted, &message)
        }
        None if is_stateless(&posted.body, &message) => stateless(posted, &message).await,
        None => rpc(
            StatusCode::BAD_REQUEST,
            id.as_deref(),
            -32000,
            "Bad Request: no valid session ID provided",
        ),
    }
}

fn is_stateless(body: &[u8], message: &Envelope) -> bool {
    message.meta.is_some_and(|meta| {
        let meta = meta.slice(body);
        json::member(meta, REVISION).is_some_and(|at| json::says(at.slice(meta), "2026-07-28"))
    })
}

/// `initialize` of a client's session: it always succeeds.
fn open(posted: &Posted<'_>, message: &Envelope) -> Reply {
    let session = posted.hub.join_reverse(&posted.way.route);
    let requested = message.protocol_version.map(|at| at.slice(&posted.body));
    let requested = requested.and_then(json::unescape);
    let requested = requested.and_then(|name| Version::from_name(name.as_bytes()));
    let facts = session.peer.facts();
    let requested = requested.unwrap_or(Version::LATEST);
    let result = stand_in::introduction(facts.as_deref(), requested);
    let id = message.id.map_or(&b"null"[..], |at| at.slice(&posted.body));
    let mut reply = json_reply(result_document(id, &result));
    match posted
        .hub
        .enter(session)
        .as_deref()
        .map(HeaderValue::from_str)
    {
        Some(Ok(value)) => {
            reply.headers_mut().insert(SESSION_HEADER, value);
            reply
        }
        _ => plain(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// A message of a session.
async fn within(posted: Posted<'_>, session: Arc<Session>, message: &Envelope) -> Reply {
    match message.kind {
        Kind::Request => call(posted, session, message).await,
        Kind::Response => tell(posted, session, message).await,
        // What else a client says of itself, a server of several clients could not place.
        Kind::Notification if posted.is(message, b"notifications/cancelled") => {
            tell(posted, session, message).await
        }
        Kind::Notification => plain(StatusCode::ACCEPTED),
    }
}

/// Passes on a notification or a response; nobody waits for what becomes of it.
async fn tell(posted: Posted<'_>, session: Arc<Session>, message: &Envelope) -> Reply {
    let peer = &session.peer;
    if let Some(line) = peer.other(session.key, &posted.body, message) {
        // A server that is gone needs to hear nothing.
        let _ = peer.send(line, posted.headers).await;
    }
    plain(StatusCode::ACCEPTED)
}

/// A request: for the server, or answered in its place.
async fn call(posted: Posted<'_>, session: Arc<Session>, message: &Envelope) -> Reply {
    let id = message.id.map_or(&b"null"[..], |at| at.slice(&posted.body));
    let method = message.method.map_or(&b""[..], |at| at.slice(&posted.body));
    let facts = session.peer.facts();
    let document = match stand_in::judge(facts.as_deref(), method) {
        Verdict::Ask => return posted.call(session, message).await,
        Verdict::Result(result) => result_document(id, result.as_bytes()),
        Verdict::Fault(code, text) => {
            posted.hub.numbers.failed();
            rpc_error(Some(id), code, text)
        }
    };
    json_reply(match posted.stateless {
        Some(is_kept) => to_stateless(document, is_kept),
        None => document,
    })
}

/// A message that belongs to no session.
async fn stateless(posted: Posted<'_>, message: &Envelope) -> Reply {
    if message.kind != Kind::Request {
        return plain(StatusCode::ACCEPTED);
    }
    let session = posted.hub.join_reverse(&posted.way.route);
    let id = message.id.map_or(&b"null"[..], |at| at.slice(&posted.body));
    let method = message.method.map_or(&b""[..], |at| at.slice(&posted.body));
    match method {
        b"server/discover" => {
            let facts = session.peer.facts();
            json_reply(result_document(id, &stand_in::discovery(facts.as_deref())))
        }
        b"subscriptions/listen" => listen(&posted, session, message),
        _ => {
            let is_kept = matches!(
                method,
                b"tools/list"
                    | b"prompts/list"
                    | b"resources/list"
                    | b"resources/templates/list"
                    | b"resources/read"
            );
            let mut edits = Edits::default();
            profile::anonymise(&posted.body, message, &mut edits);
            let mut body = Vec::with_capacity(posted.body.len());
            edits.apply(&mut body, &posted.body);
            let Ok(message) = scan(&body, DEPTH_MAX) else {
                return rpc(StatusCode::BAD_REQUEST, Some(id), -32600, "Invalid Request");
            };
            let posted = Posted {
                body: body.into(),
                stateless: Some(is_kept),
                ..posted
            };
            call(posted, session, &message).await
        }
    }
}

/// The families a listener wants to hear of, as the request has them.
const WANTED: [(&str, &str); 3] = [
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
];

/// A stream that tells when lists are others, until its reader leaves.
fn listen(posted: &Posted<'_>, session: Arc<Session>, message: &Envelope) -> Reply {
    let body = &posted.body;
    let params = message.params.map_or(&b"{}"[..], |at| at.slice(body));
    let filter = json::member(params, "notifications");
    let filter = filter.map_or(&b"{}"[..], |at| at.slice(params));
    let is_wanted =
        |flag: &str| json::member(filter, flag).is_some_and(|value| value.slice(filter) == b"true");
    let wanted: Vec<(&'static str, &str)> = WANTED
        .into_iter()
        .filter(|(_, flag)| is_wanted(flag))
        .collect();
    let id = message.id.map_or(&b"null"[..], |at| at.slice(body));
    let id = String::from_utf8_lossy(id);
    let tag = format!("\"{SUBSCRIPTION_ID}\":{id}");
    let honoured: Vec<String> = wanted
        .iter()
        .map(|(_, flag)| format!("\"{flag}\":true"))
        .collect();
    let first = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{{tag}}},"notifications":{{{}}}}}}}"#,
        honoured.join(",")
    );
    let families: Vec<&'static str> = wanted.into_iter().map(|(family, _)| family).collect();
    let told = session.outbox.open();
    let state = (session, told, Some(first));
    let events = stream::unfold(state, move |(session, told, first)| {
        let (families, tag) = (families.clone(), tag.clone());
        async move {
            if let Some(first) = first {
                return Some((event(first.as_bytes()), (session, told, None)));
            }
            loop {
                let message = told.next().await?;
                let family = stand_in::family_of(&message);
                if let Some(family) = family.filter(|family| families.contains(family)) {
                    let message = stand_in::changed(family, Some(&tag));
                    return Some((event(&message), (session, told, None)));
                }
            }
        }
    });
    event_stream(StreamBody::new(events).boxed_unsync())
}
