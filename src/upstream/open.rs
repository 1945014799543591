//! A backend's part of a session: opened by `initialize` under single flight, found lost, opened
//! again, ended.
//!
//! Opening runs as a task of its own, so that a caller's patience and the opening's are two things:
//! a backend that is late joins when it is ready, and nobody opens twice.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use futures_util::future::join_all;
use shards::{deadline::now_ms, notify::Event, spawn};

use crate::{
    config::{
        compiled::{Backend, VirtualHost},
        user_config::BackendProtocol,
    },
    mcp::{json, profile, version::Version},
    session::{
        BackendLink, BackendSession, Session,
        state::{OpenBackend, SessionKind},
    },
    shard_state::ShardState,
    upstream::{
        CallFault, Voice,
        discover::{self, Era},
        exchange::{Manner, Repeat},
        farewell::{Goodbye, farewell},
        listen, log_level, request,
    },
};

const LIST_CHANGED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
/// Pauses between attempts to open backends that were missing, ms: first and longest.
const JOIN_PAUSE_MS: (u64, u64) = (500, 30_000);

/// The open backend session `link`, which is that of the backend at `index` of `host`, opened if it
/// is not; waits at most `patience`.
pub async fn ensure(
    shard: &Rc<ShardState>,
    session: &Rc<Session>,
    (host, index): (&Rc<VirtualHost>, usize),
    link: &Rc<BackendSession>,
    patience: Duration,
) -> Result<Rc<OpenBackend>, CallFault> {
    if let Some(open) = link.open() {
        return Ok(open);
    }
    let opened = start(shard, session, host, index, link)?;
    let _ = shards::task::within(patience, opened.wait()).await;
    match link.open() {
        Some(open) => Ok(open),
        None => Err(link.last_fault.get().unwrap_or(CallFault::FirstByteTimeout)),
    }
}

/// How long a backend session has been opening, ms; `None` when it is not being opened.
pub fn opening_for_ms(link: &BackendSession) -> Option<u64> {
    match &*link.link.borrow() {
        BackendLink::Opening(_, since_ms) => Some(now_ms().saturating_sub(*since_ms)),
        BackendLink::Closed | BackendLink::Open(_) => None,
    }
}

/// Starts to open the backend session at `index`, unless that is under way; the event says when it
/// has succeeded or failed.
fn start(
    shard: &Rc<ShardState>,
    session: &Rc<Session>,
    host: &Rc<VirtualHost>,
    index: usize,
    link: &Rc<BackendSession>,
) -> Result<Rc<Event>, CallFault> {
    if session.has_ended.get() {
        return Err(CallFault::SessionEnded);
    }
    if !session.holds(link) {
        return Err(CallFault::Reconfigured);
    }
    if let BackendLink::Opening(event, _) = &*link.link.borrow() {
        return Ok(event.clone());
    }
    let event = Rc::new(Event::default());
    link.last_fault.set(None);
    *link.link.borrow_mut() = BackendLink::Opening(event.clone(), now_ms());
    let opening = Opening {
        link: link.clone(),
        event: event.clone(),
    };
    let (shard, session, host) = (shard.clone(), session.clone(), host.clone());
    spawn(async move {
        let backend = &host.backends[index];
        let result = open_any(&shard, &session, backend, &opening.link).await;
        match result {
            Ok(open) => {
                if !open.version.is_stateless() {
                    shard.numbers.backend_opened.add(1);
                }
                if session.has_ended.get() || !session.holds(&opening.link) {
                    let (id, version) = (open.session_id.as_deref(), Some(open.version));
                    end(&shard, backend, id, version, &session.voice()).await;
                    return;
                }
                opening.settle(Ok(open));
                listen::start(&shard, &session);
            }
            Err(Unopened { fault, left_behind }) => {
                // That a backend has sessions is something to know, and none has failed.
                if fault != CallFault::NotStateless {
                    shard.numbers.backend_open_failed.add(1);
                }
                opening.settle(Err(fault));
                if let Some((id, version)) = left_behind {
                    end(&shard, backend, Some(&id), version, &session.voice()).await;
                }
            }
        }
    });
    Ok(event)
}

/// The obligation to leave `Opening` again, whatever happens, a panic included.
struct Opening {
    link: Rc<BackendSession>,
    event: Rc<Event>,
}

impl Opening {
    fn settle(self, result: Result<Rc<OpenBackend>, CallFault>) {
        match result {
            Ok(open) => *self.link.link.borrow_mut() = BackendLink::Open(open),
            Err(fault) => self.link.last_fault.set(Some(fault)),
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        {
            let mut link = self.link.link.borrow_mut();
            if matches!(&*link, BackendLink::Opening(event, _) if Rc::ptr_eq(event, &self.event)) {
                *link = BackendLink::Closed;
            }
        }
        self.event.fire();
    }
}

/// Why a backend session is not open, and what there is of it at the backend all the same: every
/// further attempt would leave one more behind.
struct Unopened {
    fault: CallFault,
    left_behind: Option<(Box<[u8]>, Option<Version>)>,
}

impl From<CallFault> for Unopened {
    fn from(fault: CallFault) -> Self {
        Self {
            fault,
            left_behind: None,
        }
    }
}

/// Opens a backend in the profile that it and the client have: a client with a session gets one
/// there too wherever there are any, a client without never does (dual-profile.md 2.1).
async fn open_any(
    shard: &Rc<ShardState>,
    session: &Session,
    backend: &Backend,
    link: &BackendSession,
) -> Result<Rc<OpenBackend>, Unopened> {
    let voice = session.voice();
    voice.admit(backend)?;
    let era = || {
        let patience = shard.upstream.limits.first_byte;
        discover::era(shard, backend, voice.say(), patience)
    };
    let is_known_stateless = backend.protocol == BackendProtocol::Stateless;
    if session.kind == SessionKind::Standing || is_known_stateless {
        return match Box::pin(era()).await? {
            Era::Stateless(open) => Ok(open),
            Era::Sessions => Err(CallFault::NotStateless.into()),
        };
    }
    let refused = match initialize(shard, session, backend, link, &voice).await {
        Ok(open) => return Ok(Rc::new(open)),
        Err(refused) => refused,
    };
    // It may know no sessions at all. The refusal stands when that is not so.
    let may_be_stateless = backend.protocol == BackendProtocol::Auto
        && session.kind == SessionKind::Client
        && refused.left_behind.is_none()
        && matches!(
            refused.fault,
            CallFault::InitializeRefused | CallFault::Status(400 | 404)
        );
    if may_be_stateless && shard.settings.protocols.stateless {
        backend.target.discoveries.forget(backend);
        if let Ok(Era::Stateless(open)) = Box::pin(era()).await {
            return Ok(open);
        }
    }
    Err(refused)
}

async fn initialize(
    shard: &Rc<ShardState>,
    session: &Session,
    backend: &Backend,
    link: &BackendSession,
    voice: &Voice,
) -> Result<OpenBackend, Unopened> {
    let upstream = &shard.upstream;
    let manner = Manner {
        // A second initialize makes a second session, which is harmless but for its cost.
        repeat: Repeat::Harmless,
        first_byte: upstream.limits.first_byte,
        is_lateness_telling: true,
        is_stateless: false,
        is_endless: false,
        cancel: None,
    };
    let id = link.next_id().to_string();
    let body = initialize_body(&id, session);
    let head = request::post_head(backend, None, None);
    let answer = upstream
        .ask(
            &backend.target,
            whole(head, backend, &body, voice),
            id.as_bytes(),
            manner,
        )
        .await;
    let answer = match answer {
        // There is no session yet that could be lost: that path does not exist.
        Err(CallFault::SessionLost) => return Err(CallFault::Status(404).into()),
        other => other?,
    };
    if answer.result().is_none() {
        return Err(CallFault::InitializeRefused.into());
    }
    let version = answer
        .result_member("protocolVersion")
        .and_then(json::unescape)
        .and_then(|name| Version::from_name(name.as_bytes()));
    let Some(version) = version else {
        return Err(Unopened {
            fault: CallFault::Revision,
            left_behind: answer.session_id.map(|id| (id, None)),
        });
    };
    let head = request::post_head(backend, answer.session_id.as_deref(), Some(version));
    let open = OpenBackend {
        version,
        capabilities: answer.result_member("capabilities").unwrap_or(b"{}").into(),
        instructions: RefCell::new(
            answer
                .result_member("instructions")
                .filter(|raw| raw.starts_with(b"\""))
                .map(Box::from),
        ),
        head: head.clone().into(),
        session_id: answer.session_id,
        is_mute: Cell::new(false),
        mirrored: Default::default(),
    };
    let notification = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let told = upstream
        .tell(
            &backend.target,
            whole(head, backend, notification, voice),
            manner,
        )
        .await;
    if let Err(fault) = told {
        return Err(Unopened {
            fault,
            left_behind: open.session_id.map(|id| (id, Some(version))),
        });
    }
    let to = log_level::Recipient {
        backend,
        link,
        open: &open,
    };
    set_level(shard, session, to).await;
    subscribe_again(shard, session, to).await;
    Ok(open)
}

/// Tells a backend that has just opened the level the client wants, which may change meanwhile.
async fn set_level(shard: &Rc<ShardState>, session: &Session, to: log_level::Recipient<'_>) {
    let mut told = None;
    while told != session.log_level.get() && log_level::is_offered(to.open) {
        told = session.log_level.get();
        let Some(level) = told else { return };
        let patience = shard.upstream.limits.first_byte;
        // A backend that refuses a level is of use all the same.
        let _ = log_level::set(shard, to, level, session.voice().say(), patience).await;
    }
}

/// Tells a backend that was opened again what its client had subscribed to.
async fn subscribe_again(shard: &Rc<ShardState>, session: &Session, to: log_level::Recipient<'_>) {
    for uri in session.subscriptions_at(&to.backend.key) {
        let id = to.link.next_id().to_string();
        let mut body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/subscribe","params":{{"uri":"#
        )
        .into_bytes();
        json::quote(&mut body, &uri);
        body.extend_from_slice(b"}}");
        let head = to.open.head.to_vec();
        let request = whole(head, to.backend, &body, &session.voice());
        let manner = Manner {
            repeat: Repeat::Harmless,
            first_byte: shard.upstream.limits.first_byte,
            is_lateness_telling: false,
            is_stateless: false,
            is_endless: false,
            cancel: None,
        };
        let upstream = &shard.upstream;
        let asked = upstream.ask(&to.backend.target, request, id.as_bytes(), manner);
        if !asked.await.is_ok_and(|answer| answer.result().is_some()) {
            session.unsubscribe(&to.backend.key, &uri);
        }
    }
}

/// Our `initialize`: the client's revision, name and capabilities, because what they stand for
/// (requests from server to client) is relayed.
fn initialize_body(id: &str, session: &Session) -> Vec<u8> {
    let mut body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{}","capabilities":"#,
        session.version.for_session().name()
    )
    .into_bytes();
    body.extend_from_slice(&session.client_capabilities);
    body.extend_from_slice(br#","clientInfo":"#);
    match &session.client_info {
        Some(info) => body.extend_from_slice(info),
        None => body.extend_from_slice(profile::OWN_INFO.as_bytes()),
    }
    body.extend_from_slice(b"}}");
    body
}

fn whole(head: Vec<u8>, backend: &Backend, body: &[u8], voice: &Voice) -> Vec<u8> {
    let mut request = head;
    request::finish_head(&mut request, body.len(), backend, voice.say());
    request.extend_from_slice(body);
    request
}

/// Ends a backend session (mcp.md 1.2), if it is one; best effort.
pub async fn end(
    shard: &Rc<ShardState>,
    backend: &Backend,
    session_id: Option<&[u8]>,
    version: Option<Version>,
    voice: &Voice,
) {
    let Some(session_id) = session_id else {
        return;
    };
    let manner = Manner {
        repeat: Repeat::Harmless,
        first_byte: Duration::from_secs(5),
        is_lateness_telling: false,
        is_stateless: false,
        is_endless: false,
        cancel: None,
    };
    let request = request::delete(backend, session_id, version, voice.say());
    if shard
        .upstream
        .tell(&backend.target, request, manner)
        .await
        .is_err()
    {
        shard.numbers.backend_end_failed.add(1);
    }
}

/// Ends all backend sessions of a session that has ended.
pub fn end_all(shard: &Rc<ShardState>, session: &Session) {
    session.streams.end();
    let set = session.backends.borrow();
    for (index, link) in set.sessions.iter().enumerate() {
        let Some(open) = link.open() else { continue };
        link.forget(&open);
        let goodbye = Goodbye {
            host: set.host.clone(),
            index,
            open,
            voice: session.voice(),
            pass: shard.shard.gate.enter(),
        };
        farewell(shard, goodbye);
    }
}

/// Indices of the backends that are not open.
fn missing_of(session: &Session) -> Vec<usize> {
    let links = session.all_backends();
    let is_missing =
        |(index, link): (usize, &Rc<BackendSession>)| link.open().is_none().then_some(index);
    links.iter().enumerate().filter_map(is_missing).collect()
}

/// Keeps trying to open the backends that are missing, and tells the client when one has come.
pub fn join_late(shard: &Rc<ShardState>, session: &Rc<Session>, host: &Rc<VirtualHost>) {
    let mut missing = missing_of(session);
    if missing.is_empty() || session.is_joining.replace(true) {
        return;
    }
    let (shard, session, host) = (shard.clone(), session.clone(), host.clone());
    spawn(async move {
        let mut pause_ms = JOIN_PAUSE_MS.0;
        loop {
            // Sessions that miss the same backend do not ask it all at once.
            let jitter_ms = shard.random() % (pause_ms / 4);
            shards::sleep(Duration::from_millis(pause_ms + jitter_ms)).await;
            let is_current = Rc::ptr_eq(&session.backends.borrow().host, &host);
            if session.has_ended.get() || !is_current || shard.shard.gate.is_closed() {
                break;
            }
            missing.extend(missing_of(&session));
            missing.sort_unstable();
            missing.dedup();
            // One that is silent must not hold up the news of another.
            let attempts = missing.iter().map(|&index| {
                let (shard, session, host) = (&shard, &session, &host);
                async move {
                    let patience = shard.upstream.limits.fan_out;
                    let Some(link) = session.backend(host, index) else {
                        return Some(index);
                    };
                    // It may have come meanwhile; the client has not been told.
                    let outcome = ensure(shard, session, (host, index), &link, patience).await;
                    if outcome.is_ok() {
                        session.streams.post(LIST_CHANGED);
                    }
                    outcome.err().map(|_| index)
                }
            });
            missing = join_all(attempts).await.into_iter().flatten().collect();
            if missing.is_empty() {
                break;
            }
            pause_ms = (pause_ms * 2).min(JOIN_PAUSE_MS.1);
        }
        session.is_joining.set(false);
    });
}
