//! `initialize`: places the session on a shard, opens its backends, answers what they can do.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use futures_util::future::join_all;
use shards::deadline::now_ms;

use crate::{
    http::Span,
    mcp::{capabilities, envelope::Envelope, json, profile::OWN_INFO, version::Version},
    method::{id_of, result},
    preflight::text,
    refusal::Refusal,
    reply::Reply,
    request::{Caller, gone_is_fine},
    session::{
        BackendSession, Calls, Session, SessionCap, Streams,
        state::{BackendSet, OpenBackend, SessionKind},
    },
    shard_state::ShardState,
    upstream::{CallFault, Voice, open},
};

/// Bytes of `clientInfo`, and of the client's capabilities, kept for backends that join late.
const CLIENT_BYTES_MAX: usize = 16 * 1024;

/// Opens a session. A session id the client sent along is ignored (market.md S3).
pub async fn open(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    message: &Envelope,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    if shard.shard.gate.is_closed() {
        return Err(Refusal::Draining);
    }
    let body = caller.body;
    let requested = text(message.protocol_version.map(|span| span.slice(body)))
        .ok_or_else(|| Refusal::rpc(id, -32602, "Invalid params: protocolVersion is missing"))?;
    let served = caller.protocols(shard).with_sessions();
    let version = Version::agreed(requested.as_bytes(), served);
    shard
        .sessions
        .borrow()
        .admit(&caller.principal.fingerprint)
        .map_err(|cap| match cap {
            SessionCap::Total => Refusal::SessionCap,
            SessionCap::Principal => Refusal::PrincipalSessionCap,
        })?;
    let object = |span: Option<Span>| {
        span.map(|span| span.slice(body))
            .filter(|raw| raw.starts_with(b"{") && raw.len() <= CLIENT_BYTES_MAX)
    };
    let session = new_session(
        shard,
        caller,
        NewSession {
            kind: SessionKind::Client,
            version,
            client_info: object(message.client_info),
            client_capabilities: object(message.capabilities).unwrap_or(b"{}"),
        },
    )?;
    shard.sessions.borrow_mut().insert(session.clone());
    shard.publish_load();
    shard.numbers.sessions_opened.add(1);

    let patience = shard.upstream.limits.fan_out;
    let opened = open_backends(shard, &session, caller, patience).await;
    if shard.fails_closed(&caller.host)
        && let Some(fault) = opened.iter().find_map(|outcome| outcome.as_ref().err())
    {
        discard(shard, &session);
        return Err(Refusal::Backend(id.into(), *fault));
    }
    open::join_late(shard, &session, &caller.host);

    let backends: Vec<(&str, &OpenBackend)> = caller
        .host
        .backends
        .iter()
        .zip(&opened)
        .filter_map(|(backend, outcome)| Some((&*backend.key, &**outcome.as_ref().ok()?)))
        .collect();
    let has_tools = !caller.host.declared.is_empty();
    let document = result(id, &initialize_result(version, &backends, has_tools));
    let mut out = Vec::with_capacity(512 + document.len());
    reply.head(&mut out, 200);
    out.extend_from_slice(b"content-type: application/json\r\nmcp-session-id: ");
    out.extend_from_slice(session.id.as_bytes());
    out.extend_from_slice(b"\r\n");
    reply.length(&mut out, document.len());
    out.extend_from_slice(&document);
    if reply.last(out).await.is_err() {
        // The client never learned of it.
        discard(shard, &session);
    }
    gone_is_fine(Ok(()))
}

/// What makes one new session differ from another of the same caller.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    /// What it stands for.
    pub kind: SessionKind,
    /// Revision its client speaks.
    pub version: Version,
    /// `clientInfo`, raw.
    pub client_info: Option<&'a [u8]>,
    /// The client's capabilities, raw.
    pub client_capabilities: &'a [u8],
}

/// A session of this shard's, in no table yet, with no backend open.
pub fn new_session(
    shard: &ShardState,
    caller: &Caller<'_>,
    new: NewSession<'_>,
) -> Result<Rc<Session>, Refusal> {
    let (me, slots) = (shard.shard.id, &shard.shard.slots);
    let id = shard
        .id_keys
        .mint(|bytes| slots.owner_of(bytes) == me)
        .map_err(|_| Refusal::Internal)?;
    let voice = Voice::of(caller.request, &caller.principal, &caller.host);
    let sessions = caller
        .host
        .backends
        .iter()
        .map(|backend| Rc::new(BackendSession::new(backend.target.clone())))
        .collect();
    let now = now_ms();
    Ok(Rc::new(Session {
        kind: new.kind,
        id,
        principal: caller.principal.fingerprint,
        virtual_host: caller.host.name.clone(),
        version: new.version,
        client_info: new.client_info.map(Box::from),
        client_capabilities: new.client_capabilities.into(),
        voice: RefCell::new(Rc::new(voice)),
        opened_ms: now,
        used_ms: Cell::new(now),
        backends: RefCell::new(BackendSet {
            host: caller.host.clone(),
            sessions,
        }),
        log_level: Cell::new(None),
        streams: Streams::new(shard.events.clone()),
        calls: Calls::default(),
        asked: RefCell::default(),
        subscriptions: RefCell::default(),
        saying: Cell::new(0),
        in_flight: Cell::new(0),
        is_joining: Cell::new(false),
        has_ended: Cell::new(false),
        learned: RefCell::default(),
    }))
}

fn discard(shard: &Rc<ShardState>, session: &Session) {
    if let Some(session) = shard.sessions.borrow_mut().remove(&session.id) {
        open::end_all(shard, &session);
    }
    shard.publish_load();
}

/// All backends at once; each has until `patience` has passed.
async fn open_backends(
    shard: &Rc<ShardState>,
    session: &Rc<Session>,
    caller: &Caller<'_>,
    patience: Duration,
) -> Vec<Result<Rc<OpenBackend>, CallFault>> {
    let host = &caller.host;
    let all = session
        .all_backends()
        .into_iter()
        .enumerate()
        .map(|(index, link)| async move {
            open::ensure(shard, session, (host, index), &link, patience).await
        });
    join_all(all).await
}

/// The result: what the backends can do and we relay, tools of our own, our name, the backends'
/// instructions.
fn initialize_result(
    version: Version,
    backends: &[(&str, &OpenBackend)],
    has_tools: bool,
) -> Vec<u8> {
    let mut out = format!(
        r#"{{"protocolVersion":"{}","capabilities":{{"#,
        version.name()
    )
    .into_bytes();
    let all: Vec<&[u8]> = backends
        .iter()
        .map(|(_, open)| &*open.capabilities)
        .collect();
    capabilities::merge(&mut out, version, &all, has_tools);
    out.extend_from_slice(b"},\"serverInfo\":");
    out.extend_from_slice(OWN_INFO.as_bytes());
    let instructions = instructions(backends);
    if !instructions.is_empty() {
        out.extend_from_slice(br#","instructions":"#);
        json::quote(&mut out, &instructions);
    }
    out.push(b'}');
    out
}

/// One backend's instructions as they are; several under their keys.
pub fn instructions(backends: &[(&str, &OpenBackend)]) -> String {
    let texts: Vec<(&str, String)> = backends
        .iter()
        .filter_map(|(key, open)| {
            let raw = match open.version.is_stateless() {
                // Others are told the same.
                true => open.instructions.borrow().clone()?,
                false => open.instructions.take()?,
            };
            let text = json::unescape(&raw)?;
            (!text.is_empty()).then(|| (*key, text.into_owned()))
        })
        .collect();
    match texts.as_slice() {
        [(_, text)] if backends.len() == 1 => text.clone(),
        several => {
            let parts: Vec<String> = several
                .iter()
                .map(|(key, text)| format!("{key}:\n{text}"))
                .collect();
            parts.join("\n\n")
        }
    }
}
