//! The relay: a backend's reply to one call, passed on with the caller's id in place of ours.
//!
//! A JSON reply is one write. An event stream is relayed event by event as it arrives
//! ([`crate::reply::stream`]).

use std::rc::Rc;

use crate::{
    mcp::{
        capabilities::TASKS_EXTENSION,
        edits::Edits,
        json,
        profile::{self, ResultMarks, ResultType},
        reply_scan::{ReplyKind, ReplyScan, first_error_code},
        revision,
    },
    method::call::tool_error,
    reply::{
        ClientGone, Reply,
        flow::Flow,
        stream::{Parked, Source, Stream},
    },
    route::rewrite,
    session::{Session, calls::ClientCall},
    shard_state::ShardState,
    upstream::{
        CallFault, Exchange, FromClient,
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
    /// The caller's request.
    pub client: FromClient<'a>,
    /// The extensions that its client said it knows, a raw object.
    pub extensions: &'a [u8],
    /// Callers are told apart: what a backend would have kept for all is for this one.
    pub is_private: bool,
    /// The log level its request asked for, of a client without a session.
    pub log_level: Option<&'static str>,
}

/// How a relay ended short of a whole reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The backend failed; nothing was written to the client yet.
    Backend(CallFault),
    /// The caller's headers do not say what its body says.
    Headers(&'static str),
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

/// What became of a reply.
#[derive(Debug)]
pub enum Relayed {
    /// It was said to the client: a result or an error.
    Said(ReplyKind),
    /// A stateless backend asks the client first: its document.
    Asked(Box<[u8]>),
    /// A backend with sessions asks a client that has none: the stream goes on once it has
    /// answered.
    Parked(Box<Parked>),
}

/// Relays the reply whose head has arrived in `exchange`. The exchange ends with it, unless it is
/// parked.
pub async fn relay(
    shard: &Rc<ShardState>,
    call: &Call<'_>,
    mut exchange: Exchange,
    flow: &mut Flow<'_, '_>,
) -> Result<Relayed, Cut> {
    let is_stateless = call.backend.open.version.is_stateless();
    match shard.upstream.form(&mut exchange, is_stateless).await? {
        ReplyForm::Json => {
            let status = exchange.head.status;
            let document = shard.upstream.document(&mut exchange).await?;
            let scan = match response_to(&document, call.upstream_id, is_stateless) {
                // An HTTP error that carries no response says no more than its status.
                Err(_) if status != 200 => return Err(CallFault::Status(status).into()),
                other => other?,
            };
            let verdict = judge(&document, &scan, call)?;
            if call.entry.cancel.is_cancelled() {
                return Err(CallFault::Cancelled.into());
            }
            let said = |marks| Said {
                document: &document,
                scan: &scan,
                marks,
            };
            let mut out = shard.shard.buffers.take();
            let status = match verdict {
                Verdict::Relay(marks) if flow.is_plain() => {
                    write_response(flow.reply(), &mut out, said(marks), call, status);
                    drop(document);
                    shard.shard.buffers.put(shard.upstream.finish(exchange));
                    shard.shard.buffers.put(flow.reply().last(out).await?);
                    return Ok(Relayed::Said(scan.kind));
                }
                Verdict::Relay(marks) => {
                    response(&mut out, said(marks), call);
                    status_of(said(marks), call, status)
                }
                Verdict::Replace(result) => {
                    out = crate::method::result(call.client_id, result.as_bytes());
                    200
                }
                Verdict::Ask => {
                    let asked = document.as_ref().into();
                    drop(document);
                    shard.shard.buffers.put(out);
                    shard.shard.buffers.put(shard.upstream.finish(exchange));
                    return Ok(Relayed::Asked(asked));
                }
            };
            drop(document);
            shard.shard.buffers.put(shard.upstream.finish(exchange));
            flow.finish(Vec::new(), out, status).await?;
            Ok(Relayed::Said(scan.kind))
        }
        ReplyForm::Stream => {
            let source = Source::new(exchange, shard.upstream.limits.event_bytes_max);
            Box::pin(Stream::new(shard, call, source, flow).relay()).await
        }
    }
}

/// A response as it came.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// Its bytes.
    pub document: &'a [u8],
    /// What they are.
    pub scan: &'a ReplyScan,
    /// What its result says of itself; `None`: not looked at, it has no such thing.
    pub marks: Option<ResultMarks>,
}

/// What becomes of a response.
#[derive(Debug)]
pub enum Verdict {
    /// It is relayed; with what a stateless backend's result says of itself.
    Relay(Option<ResultMarks>),
    /// The client could not make anything of it: this result is said in its place.
    Replace(String),
    /// It is a question to a client with a session.
    Ask,
}

/// Judges what only stateless backends say (mcp.md 2.3, dual-profile.md 2.3).
///
/// # Errors
/// What is between the gateway and the backend, and none of the client's concern.
pub fn judge(document: &[u8], scan: &ReplyScan, call: &Call<'_>) -> Result<Verdict, CallFault> {
    if !call.backend.open.version.is_stateless() {
        return Ok(Verdict::Relay(None));
    }
    if let Some(error) = scan.error {
        let backend = call.backend.place.backend();
        return match first_error_code(error.slice(document)) {
            Some(-32022) => {
                backend.target.discoveries.forget(backend);
                Err(CallFault::Revision)
            }
            Some(-32020) => Err(CallFault::HeaderMismatch),
            _ => Ok(Verdict::Relay(None)),
        };
    }
    if scan.result.is_none() {
        return Ok(Verdict::Relay(None));
    }
    let is_stateless = call.session.version.is_stateless();
    let marks = profile::result_marks(document, scan);
    match marks.kind {
        ResultType::Complete => Ok(Verdict::Relay(Some(marks))),
        ResultType::InputRequired if is_stateless => Ok(Verdict::Relay(Some(marks))),
        ResultType::InputRequired if can_be_asked_again(call.method) => Ok(Verdict::Ask),
        kind @ (ResultType::Task | ResultType::Extension)
            if is_stateless && is_known(kind, call.extensions) =>
        {
            Ok(Verdict::Relay(Some(marks)))
        }
        ResultType::Task | ResultType::Extension if call.method == b"tools/call" => {
            Ok(Verdict::Replace(match is_stateless {
                true => tool_error(NOT_SUPPORTED),
                false => session_tool_error(NOT_SUPPORTED),
            }))
        }
        _ => Err(CallFault::ResultType),
    }
}

/// What a tool's result says in the place of one that the client could make nothing of.
pub const NOT_SUPPORTED: &str = "The tool's answer needs what this client does not support";

/// Whether a client that knows these extensions can have named the one that a result is of. Only
/// that of tasks can be told by its results.
fn is_known(kind: ResultType, extensions: &[u8]) -> bool {
    match kind {
        ResultType::Task => json::member(extensions, TASKS_EXTENSION).is_some(),
        _ => json::members(extensions).any(|member| member.is_ok()),
    }
}

/// The methods whose result may be a question (mcp.md 2.8).
fn can_be_asked_again(method: &[u8]) -> bool {
    matches!(method, b"tools/call" | b"prompts/get" | b"resources/read")
}

/// Writes a whole JSON reply: the document in the client's terms.
fn write_response(
    reply: &mut Reply<'_>,
    out: &mut Vec<u8>,
    said: Said<'_>,
    call: &Call<'_>,
    status: u16,
) {
    let Said { document, scan, .. } = said;
    let status = status_of(said, call, status);
    let Some(edits) = edits_of(said, call) else {
        let length = document.len() - scan.id.map_or(0, |id| id.len()) + call.client_id.len();
        out.reserve(length + 256);
        reply.json_head_with(out, status, length);
        restore_id(out, document, scan, call);
        return;
    };
    let mut body = Vec::with_capacity(document.len() + 256);
    edits.apply(&mut body, document);
    out.reserve(body.len() + 256);
    reply.json_head_with(out, status, body.len());
    out.extend_from_slice(&body);
}

/// The HTTP status of a response by itself, where the backend's was `status`.
fn status_of(said: Said<'_>, call: &Call<'_>, status: u16) -> u16 {
    match call.session.version.is_stateless() {
        true => profile::status_of_error(said.document, said.scan).unwrap_or(status),
        false => 200,
    }
}

/// Appends the response in the client's terms.
pub fn response(out: &mut Vec<u8>, said: Said<'_>, call: &Call<'_>) {
    match edits_of(said, call) {
        None => restore_id(out, said.document, said.scan, call),
        Some(edits) => edits.apply(out, said.document),
    }
}

fn restore_id(out: &mut Vec<u8>, document: &[u8], scan: &ReplyScan, call: &Call<'_>) {
    match scan.id {
        Some(id) => json::splice(out, document, &[(id, call.client_id)]),
        None => out.extend_from_slice(document),
    }
}

/// What has to change in a response; `None`: the id alone, as in most of them.
fn edits_of(said: Said<'_>, call: &Call<'_>) -> Option<Edits> {
    let Said { document, scan, .. } = said;
    let place = &call.backend.place;
    let (ours, theirs) = (call.session.version, call.backend.open.version);
    let is_newer = theirs > ours;
    if place.host.is_single && !is_newer && !ours.is_stateless() {
        return None;
    }
    let method = std::str::from_utf8(call.method).unwrap_or_default();
    let mut edits = Edits::default();
    if ours.is_stateless() || theirs.is_stateless() {
        cross(said, call, &mut edits);
        if place.host.is_single && edits.is_empty() {
            return None;
        }
    }
    if let Some(id) = scan.id {
        edits.put_copy(id, call.client_id);
    }
    rewrite::expose_response(&place.host, place.index, method, document, scan, &mut edits);
    if is_newer && !ours.is_stateless() {
        revision::fit_response(call.session.version, method, document, scan, &mut edits);
    }
    Some(edits)
}

/// What one profile says and the other does not.
fn cross(said: Said<'_>, call: &Call<'_>, edits: &mut Edits) {
    let Said {
        document,
        scan,
        marks,
    } = said;
    let (ours, theirs) = (call.session.version, call.backend.open.version);
    if let Some(result) = scan.result {
        match (ours.is_stateless(), theirs.is_stateless()) {
            (true, true) => {
                if let Some(marks) = marks {
                    profile::result_between_stateless(document, &marks, call.is_private, edits);
                }
            }
            (true, false) => {
                let is_kept = call.method == b"resources/read";
                profile::result_to_stateless(document, result, is_kept, edits);
            }
            (false, _) => profile::result_to_session(document, result, edits),
        }
    } else if ours.is_stateless() {
        profile::error_to_stateless(document, scan, edits);
    }
}

/// A tool's result that says why there is none, in the words of sessions.
pub fn session_tool_error(text: &str) -> String {
    serde_json::json!({"content": [{"type": "text", "text": text}], "isError": true}).to_string()
}
