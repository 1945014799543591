//! One shard's part of the node: its sessions, its part of the registry, and what is due when.
//!
//! Everything that happens to a session happens here, on the shard that owns it: it is bound,
//! heard, published to, answered for, and ended. No socket and no HTTP.

mod due;
mod releasing;
mod traffic;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use hashbrown::HashMap;
use ring::hmac;

use shards::notify::Event;

use self::releasing::Releasing;
use super::{
    fault::Fault,
    index::{Ask, Index},
    numbers::{AllNumbers, GatewayNumbers, sum},
    outbox::Outbox,
    registry::Registry,
    reverse::{CONTEXTFORGE_PATH, Framing, PLAIN_PATH},
    session::{Now, Session, Status},
    session_id::SessionId,
    timers::{Due, Timers},
    token::{self, Claims, TokenFault},
};
use crate::{
    bridge::Bridge, http::HeadLimits, settings::ConnectionGateway, shard_state::ShardState,
};

/// Closed sessions that are still shown, a shard.
const CLOSED_MAX: usize = 10_000;
/// How long a client that was told to end may take to do so, ms.
const CUT_AFTER_MS: u64 = 1_000;

/// The id of a published envelope: ms since 1970, and a number.
pub(super) type MessageId = (u64, u64);

/// Which of the engine's listeners are whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listeners {
    /// The internal HTTP API's.
    pub http: u8,
    /// The WebSockets'.
    pub websocket: u8,
}

/// What a drain does with streamed requests that are outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outstanding {
    /// They may end by themselves.
    Finish,
    /// They end now, each with a line that says so.
    Fail,
}

/// Why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its connection did. It is shown until its lease ends.
    Closed,
    /// A caller deleted it.
    Deleted,
    /// Its lease is over.
    Expired,
}

/// One shard's part of the connection gateway.
pub struct Node {
    /// The settings.
    pub settings: Arc<ConnectionGateway>,
    /// Name of this node.
    pub node_id: Rc<str>,
    /// The engine's listeners.
    pub listeners: Listeners,
    /// Bounds of requests to the internal API.
    pub head_limits: HeadLimits,
    /// Who else knows of sessions.
    pub registry: Registry,
    /// Counters of this shard.
    pub numbers: Arc<GatewayNumbers>,
    /// Counters of all shards.
    pub all_numbers: AllNumbers,
    /// Where servers that connect themselves go; only beside an MCP gateway.
    pub bridge: Option<Arc<Bridge>>,
    /// The connections of those, by the number of their line.
    lines: RefCell<HashMap<u64, Weak<Outbox>>>,
    pub(super) index: RefCell<Index>,
    pub(super) releasing: Releasing,
    pub(super) timers: Timers,
    sessions: RefCell<HashMap<SessionId, Rc<Session>>>,
    closed: RefCell<VecDeque<SessionId>>,
    outboxes: RefCell<Vec<Weak<Outbox>>>,
    token_key: hmac::Key,
    /// Key of its own that bearer tokens are compared under, and the right one under it.
    bearer: (hmac::Key, hmac::Tag),
    message_count: Cell<u64>,
    is_draining: Cell<bool>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

impl Node {
    /// A shard's part; `secret` is random and the process's own, `all_numbers` has one for each
    /// shard.
    pub fn new(
        settings: Arc<ConnectionGateway>,
        node_id: &str,
        listeners: Listeners,
        secret: &[u8],
        (all_numbers, shard): (AllNumbers, usize),
        (registry, bridge): (Registry, Option<Arc<Bridge>>),
    ) -> Self {
        let bearer_key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let bearer = hmac::sign(&bearer_key, settings.auth_token.bytes());
        // Room for the rest of a body around its envelope, which may be written less compactly.
        let body_bytes_max = (settings.envelope_bytes_max as u64)
            .saturating_mul(2)
            .saturating_add(64 << 10);
        Self {
            node_id: node_id.into(),
            listeners,
            head_limits: HeadLimits {
                target_bytes_max: 8 << 10,
                body_bytes_max,
                ..HeadLimits::default()
            },
            registry,
            numbers: all_numbers[shard].clone(),
            all_numbers,
            bridge,
            lines: RefCell::default(),
            index: RefCell::default(),
            releasing: Releasing::default(),
            timers: Timers::default(),
            sessions: RefCell::default(),
            closed: RefCell::default(),
            outboxes: RefCell::default(),
            token_key: token::key(settings.jwt_secret.bytes()),
            bearer: (bearer_key, bearer),
            message_count: Cell::new(0),
            is_draining: Cell::new(false),
            settings,
        }
    }

    /// Whether a bearer token is the right one; the time says nothing about how much of it was.
    pub(super) fn is_bearer(&self, token: &[u8]) -> bool {
        hmac::verify(&self.bearer.0, token, self.bearer.1.as_ref()).is_ok()
    }

    /// Whether the shard takes nothing on any more.
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// A session of this shard, closed ones too.
    pub(super) fn session(&self, id: SessionId) -> Option<Rc<Session>> {
        self.sessions.borrow().get(&id).cloned()
    }

    /// Whether the process has as many WebSockets as it may.
    pub(super) fn is_full(&self) -> bool {
        let open = sum(&self.all_numbers, |numbers| &numbers.connections);
        open >= self.settings.connections_max as u64
    }

    /// A connection was opened: it has so long to bind.
    pub(super) fn opened(&self, outbox: &Rc<Outbox>) {
        if self.settings.echoes {
            // An echo waits for no session.
            outbox.is_bound.set(true);
        }
        let after = millis(self.settings.bind_timeout);
        let due = Due::Bind(Rc::downgrade(outbox));
        self.timers
            .add(shards::clock::now_ms().saturating_add(after), due);
        let mut outboxes = self.outboxes.borrow_mut();
        if outboxes.len() == outboxes.capacity() {
            outboxes.retain(|outbox| outbox.strong_count() > 0);
        }
        outboxes.push(Rc::downgrade(outbox));
    }

    /// Binds a session to a connection (contract 5.2: token, budget of the subject, sources).
    pub(super) async fn bind(
        self: &Rc<Self>,
        state: &Rc<ShardState>,
        token: &str,
        metadata: Option<&str>,
        outbox: &Rc<Outbox>,
    ) -> Result<Rc<Session>, Fault> {
        if self.is_draining() {
            return Err(Fault::Draining);
        }
        let claims = self.check_token(token)?;
        let lease = self.settings.lease;
        self.bind_claims(state, (claims, lease), metadata, outbox)
            .await
    }

    /// The same for somebody whose claims are known, with this lease.
    pub(super) async fn bind_claims(
        self: &Rc<Self>,
        state: &Rc<ShardState>,
        (claims, lease): (Claims, Duration),
        metadata: Option<&str>,
        outbox: &Rc<Outbox>,
    ) -> Result<Rc<Session>, Fault> {
        if self.is_draining() {
            return Err(Fault::Draining);
        }
        let id = SessionId::draw(&state.shard.slots, state.shard.id);
        let id = id.ok_or_else(|| Fault::BindFailed("Gateway has no random numbers".into()))?;
        let now = Now::read();
        let lease_ms = millis(lease);
        let owner = (&self.node_id, lease_ms);
        let session = Rc::new(Session::new(
            id,
            claims,
            metadata,
            outbox.clone(),
            owner,
            now,
        ));
        self.registry.claim((state, self), &session).await?;
        let now = Now::read();
        session.note_bound(now);
        self.sessions.borrow_mut().insert(id, session.clone());
        let due = Due::Lease(Rc::downgrade(&session));
        self.timers.add(session.lease_until(), due);
        outbox.is_bound.set(true);
        self.numbers.binds.add(1);
        self.numbers.sessions.add(1);
        Ok(session)
    }

    /// What a connect token says, or what is wrong with it.
    pub(super) fn verify(&self, token: &str) -> Result<Claims, TokenFault> {
        token::verify(&self.token_key, token, shards::clock::unix_ms())
    }

    /// How messages are framed at a path of the WebSocket port; `None`: nothing is there.
    pub(super) fn framing_at(&self, path: &[u8]) -> Option<Framing> {
        if path == self.settings.path.as_bytes() {
            return Some(Framing::Envelopes);
        }
        self.bridge.as_ref()?;
        match std::str::from_utf8(path).ok()? {
            CONTEXTFORGE_PATH => Some(Framing::ContextForge),
            PLAIN_PATH => Some(Framing::Plain),
            _ => None,
        }
    }

    /// The line with this number has a connection, for as long as that has the outbox.
    pub(super) fn line_opened(&self, number: u64, outbox: &Rc<Outbox>) {
        let mut lines = self.lines.borrow_mut();
        lines.insert(number, Rc::downgrade(outbox));
    }

    /// The line with this number has none any more.
    pub(super) fn line_closed(&self, number: u64) {
        self.lines.borrow_mut().remove(&number);
    }

    /// The bridge has something for the line with this number.
    pub fn line_has_news(&self, number: u64) {
        let outbox = self.lines.borrow().get(&number).and_then(Weak::upgrade);
        if let Some(outbox) = outbox {
            outbox.changed.notify();
        }
    }

    fn check_token(&self, token: &str) -> Result<Claims, Fault> {
        self.verify(token).map_err(|fault| match fault {
            TokenFault::Invalid => Fault::InvalidToken,
            TokenFault::Expired => Fault::TokenExpired,
            TokenFault::Capability => Fault::CapabilityDenied,
            TokenFault::Claims(names) => {
                let names = names.join(", ");
                Fault::BindFailed(format!("Invalid connection token claims: {names}"))
            }
        })
    }

    /// Ends a session; what happens to its connection is the caller's to say. The event, when there
    /// is one, is that its claims are free.
    pub(super) fn end(
        self: &Rc<Self>,
        state: &Rc<ShardState>,
        session: &Rc<Session>,
        end: End,
    ) -> Option<Rc<Event>> {
        let was_connected = session.status() == Status::Connected;
        let shown_until = match end {
            End::Closed => session.lease_until(),
            End::Deleted | End::Expired => {
                self.sessions.borrow_mut().remove(&session.id);
                0
            }
        };
        if was_connected {
            session.set_closed();
            self.numbers.sessions.subtract(1);
            let reason = match end {
                End::Closed => "Gateway session closed",
                End::Deleted => "Gateway session deleted",
                End::Expired => "Gateway session owner expired",
            };
            self.fail_exchanges(session, reason);
            let now = Now::read();
            session.note(now, "info", reason, None);
            if end == End::Closed {
                self.keep_closed(session);
            }
        } else if end == End::Closed {
            return None;
        }
        self.registry
            .release((state, self), session, (end, shown_until))
    }

    /// Shows a closed session until its lease ends, unless there are too many.
    fn keep_closed(&self, session: &Session) {
        let due = Due::Forget(session.id);
        self.timers.add(session.lease_until(), due);
        let mut closed = self.closed.borrow_mut();
        closed.push_back(session.id);
        if closed.len() > CLOSED_MAX
            && let Some(oldest) = closed.pop_front()
        {
            self.forget(oldest);
        }
    }

    fn forget(&self, id: SessionId) {
        let mut sessions = self.sessions.borrow_mut();
        if sessions
            .get(&id)
            .is_some_and(|session| session.status() == Status::Closed)
        {
            sessions.remove(&id);
        }
    }

    /// Answers another shard, or this one; but for [`Ask::AwaitEnd`], which [`Self::await_end`]
    /// answers in its time.
    pub fn answer(&self, ask: Ask) -> Vec<u8> {
        if let Ask::View(id) = ask {
            let mut view = Vec::new();
            if let Some(session) = self.session(id) {
                session.write_view(&mut view);
            }
            return view;
        }
        self.index.borrow_mut().apply(ask)
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4)
}
