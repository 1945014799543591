//! One shard's part of the node: its sessions, its part of the registry, and what is due when.
//!
//! Everything that happens to a session happens here, on the shard that owns it: it is bound,
//! heard, published to, answered for, and ended. No socket and no HTTP.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use hashbrown::HashMap;
use ring::hmac;
use shards::buffer::BufferPool;

use super::{
    envelope::Envelope,
    exchange::{Coding, Exchange},
    fault::Fault,
    index::{Ask, Index},
    message,
    numbers::{AllNumbers, GatewayNumbers, sum},
    outbox::Outbox,
    registry::Registry,
    session::{Delivery, Now, Session, Status},
    session_id::SessionId,
    timers::{Due, Timers},
    token::{self, Claims, TokenFault},
};
use crate::{
    http::HeadLimits, settings::ConnectionGateway, shard_state::ShardState, websocket::CloseCode,
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
    /// The other nodes' side of sessions.
    pub registry: Registry,
    /// Counters of this shard.
    pub numbers: Arc<GatewayNumbers>,
    /// Counters of all shards.
    pub all_numbers: AllNumbers,
    pub(super) index: RefCell<Index>,
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
            registry: Registry::Memory,
            numbers: all_numbers[shard].clone(),
            all_numbers,
            index: RefCell::default(),
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
        let id = SessionId::draw(&state.shard.slots, state.shard.id);
        let id = id.ok_or_else(|| Fault::BindFailed("Gateway has no random numbers".into()))?;
        self.registry.claim((state, self), &claims, id).await?;
        let now = Now::read();
        let lease_ms = millis(self.settings.lease);
        let owner = (&self.node_id, lease_ms);
        let session = Rc::new(Session::new(
            id,
            claims,
            metadata,
            outbox.clone(),
            owner,
            now,
        ));
        session.note_bound(now);
        self.sessions.borrow_mut().insert(id, session.clone());
        let due = Due::Lease(Rc::downgrade(&session));
        self.timers.add(session.lease_until(), due);
        outbox.is_bound.set(true);
        self.numbers.binds.add(1);
        self.numbers.sessions.add(1);
        Ok(session)
    }

    fn check_token(&self, token: &str) -> Result<Claims, Fault> {
        token::verify(&self.token_key, token, shards::clock::unix_ms()).map_err(|fault| match fault
        {
            TokenFault::Invalid => Fault::InvalidToken,
            TokenFault::Expired => Fault::TokenExpired,
            TokenFault::Capability => Fault::CapabilityDenied,
            TokenFault::Claims(names) => {
                let names = names.join(", ");
                Fault::BindFailed(format!("Invalid connection token claims: {names}"))
            }
        })
    }

    /// Takes an envelope of the client.
    pub(super) fn receive(
        &self,
        session: &Session,
        envelope: &Envelope<'_>,
        line: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        if let Err(fault) = session.check_from_client(envelope) {
            self.numbers.envelopes_refused.add(1);
            return Err(fault);
        }
        match session.deliver(envelope, line) {
            Delivery::Taken(bytes) => self.buffer(session, bytes),
            Delivery::Last(bytes, exchange) => {
                self.buffer(session, bytes);
                self.exchange_over(session, &exchange);
            }
            Delivery::Late => {
                self.numbers.late_replies.add(1);
                return Ok(());
            }
        }
        self.numbers.replies.add(1);
        Ok(())
    }

    /// Whether callers have so much to take that the client must wait.
    pub(super) fn is_clogged(&self, session: &Session) -> bool {
        session.buffered.get() > self.settings.slow_consumer_bytes
    }

    fn buffer(&self, session: &Session, bytes: usize) {
        session.buffered.set(session.buffered.get() + bytes);
        self.numbers.stream_buffer_bytes.add(bytes as u64);
    }

    /// A caller has taken so much, or has left it.
    pub(super) fn unbuffer(&self, session: &Session, bytes: usize) {
        let was_clogged = self.is_clogged(session);
        session
            .buffered
            .set(session.buffered.get().saturating_sub(bytes));
        self.numbers.stream_buffer_bytes.subtract(bytes as u64);
        if was_clogged && !self.is_clogged(session) {
            session.outbox.changed.notify();
        }
    }

    /// Queues a caller's envelope, written already, for the client; the message's id. What is
    /// queued is never dropped but with its session; who would go over the bounds is told.
    pub(super) fn publish(&self, session: &Session, envelope: &[u8]) -> Result<MessageId, Fault> {
        if session.outbox.is_closing() {
            // It is told the end already and has nothing else to hear.
            return Err(Fault::NotConnected(Status::Closed.word()));
        }
        let max = self.settings.mailbox_messages_max;
        if session.outbox.envelopes() >= max {
            return Err(Fault::ResourceLimit("mailboxMaxLength", max as u64));
        }
        let bytes_max = self.settings.slow_consumer_bytes;
        if session.outbox.bytes() > bytes_max {
            return Err(Fault::ResourceLimit(
                "slowConsumerBufferBytes",
                bytes_max as u64,
            ));
        }
        session.outbox.push_envelope(envelope);
        self.numbers.mailbox_lag.add(1);
        self.numbers.published.add(1);
        if session.outbox.bytes() > bytes_max && session.outbox.slow_since.get().is_none() {
            let now = shards::clock::now_ms();
            session.outbox.slow_since.set(Some(now));
            let due = Due::Slow(Rc::downgrade(&session.outbox));
            self.timers
                .add(now + millis(self.settings.slow_consumer_time), due);
        }
        let count = self.message_count.get();
        self.message_count.set(count + 1);
        Ok((shards::clock::unix_ms(), count))
    }

    /// The connection has written what it took.
    pub(super) fn written(&self, outbox: &Outbox, buffer: Vec<u8>) {
        self.numbers
            .mailbox_lag
            .subtract(outbox.written(buffer) as u64);
        if outbox.bytes() <= self.settings.slow_consumer_bytes {
            outbox.slow_since.set(None);
        }
    }

    /// Whether the session may have one more request outstanding, and none of this id.
    pub(super) fn check_in_flight(
        &self,
        session: &Session,
        request_id: Option<&str>,
    ) -> Result<(), Fault> {
        let exchanges = session.exchanges.borrow();
        if request_id.is_some_and(|id| exchanges.contains_key(id)) {
            return Err(Fault::DuplicateRequest);
        }
        let max = self.settings.in_flight_max;
        if exchanges.len() >= max {
            return Err(Fault::ResourceLimit("maxInFlightPerSession", max as u64));
        }
        Ok(())
    }

    /// Begins a streamed request, which [`Self::check_in_flight`] has let pass.
    pub(super) fn begin_exchange(
        &self,
        session: &Rc<Session>,
        request_id: &str,
        (coding, timeout_ms): (Coding, u64),
        (capability, buffers): (Option<&str>, &BufferPool),
    ) -> Rc<Exchange> {
        let now = shards::clock::now_ms();
        let exchange = Rc::new(Exchange::new(coding, now, capability, buffers));
        let due = Due::Exchange(
            Rc::downgrade(session),
            request_id.into(),
            Rc::downgrade(&exchange),
        );
        exchange
            .timer
            .set(Some(self.timers.add(now.saturating_add(timeout_ms), due)));
        session
            .exchanges
            .borrow_mut()
            .insert(request_id.into(), exchange.clone());
        self.numbers.in_flight.add(1);
        exchange
    }

    /// The caller of a streamed request has left, or has had its last line.
    pub(super) fn caller_left(&self, session: &Session, request_id: &str, exchange: &Rc<Exchange>) {
        self.unbuffer(session, exchange.waiting());
        if exchange.is_over() {
            return;
        }
        let removed = session.exchanges.borrow_mut().remove(request_id);
        debug_assert!(removed.is_some_and(|removed| Rc::ptr_eq(&removed, exchange)));
        self.numbers.exchanges_cancelled.add(1);
        if session.can_cancel() {
            session
                .outbox
                .push(|out| message::write_cancel(out, request_id));
        }
        self.exchange_over(session, exchange);
    }

    /// Ends a request with a line of the gateway's own.
    fn fail_exchange(
        &self,
        session: &Session,
        request_id: &str,
        exchange: &Exchange,
        reason: &str,
    ) {
        let mut line = session.failure_line(request_id, exchange, reason, Now::read());
        let bytes = exchange.push(&mut line, true);
        self.buffer(session, bytes);
        self.numbers.exchanges_failed.add(1);
        self.exchange_over(session, exchange);
    }

    fn fail_exchanges(&self, session: &Session, reason: &str) {
        let all = std::mem::take(&mut *session.exchanges.borrow_mut());
        for (request_id, exchange) in all {
            self.fail_exchange(session, &request_id, &exchange, reason);
        }
    }

    /// A request has had its last line; the session has it no more.
    fn exchange_over(&self, session: &Session, exchange: &Exchange) {
        if let Some(place) = exchange.timer.take() {
            self.timers.remove(place);
        }
        self.numbers.in_flight.subtract(1);
        let took = shards::clock::now_ms().saturating_sub(exchange.began_ms);
        self.numbers.exchange_took(took);
        if self.is_draining() && session.exchanges.borrow().is_empty() {
            session.outbox.close(Some((CloseCode::GOING_AWAY, "")));
        }
    }

    /// Ends a session; what happens to its connection is the caller's to say.
    pub(super) fn end(self: &Rc<Self>, state: &Rc<ShardState>, session: &Rc<Session>, end: End) {
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
            return;
        }
        let claims = &session.claims;
        self.registry.release(
            (state, self),
            claims.subject.clone(),
            claims.sources.clone(),
            session.id,
            shown_until,
        );
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

    /// Answers another shard, or this one.
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

    /// Does what is due.
    pub fn look(self: &Rc<Self>, state: &Rc<ShardState>) {
        let now = Now::read();
        while let Some(due) = self.timers.pop(now.mono_ms) {
            match due {
                Due::Lease(session) => {
                    if let Some(session) = session.upgrade() {
                        self.lease_due(state, &session, now);
                    }
                }
                Due::Exchange(session, request_id, exchange) => {
                    if let (Some(session), Some(exchange)) = (session.upgrade(), exchange.upgrade())
                        && !exchange.is_over()
                    {
                        exchange.timer.set(None);
                        session.exchanges.borrow_mut().remove(&request_id);
                        let reason = "Gateway request timed out waiting for its response";
                        self.fail_exchange(&session, &request_id, &exchange, reason);
                    }
                }
                Due::Bind(outbox) => {
                    if let Some(outbox) = outbox.upgrade()
                        && !outbox.is_bound.get()
                        && !outbox.is_closing()
                    {
                        outbox.fail(None, &Fault::BindTimeout);
                        self.cut_later(&outbox, now);
                    }
                }
                Due::Slow(outbox) => {
                    if let Some(outbox) = outbox.upgrade() {
                        self.slow_due(&outbox, now);
                    }
                }
                Due::Cut(outbox) => {
                    if let Some(outbox) = outbox.upgrade() {
                        outbox.cut();
                    }
                }
                Due::Forget(id) => self.forget(id),
            }
        }
    }

    fn lease_due(self: &Rc<Self>, state: &Rc<ShardState>, session: &Rc<Session>, now: Now) {
        if session.status() != Status::Connected {
            return;
        }
        // While we do not read, silence is ours; how long we do not is bounded elsewhere.
        if self.is_clogged(session) || session.outbox.is_writing() {
            self.registry.renew(session, now);
        }
        if session.lease_until() > now.mono_ms {
            let due = Due::Lease(Rc::downgrade(session));
            self.timers.add(session.lease_until(), due);
            return;
        }
        self.numbers.lease_expiries.add(1);
        self.end(state, session, End::Expired);
        session.outbox.fail(None, &Fault::OwnerExpired);
        self.cut_later(&session.outbox, now);
    }

    fn slow_due(&self, outbox: &Rc<Outbox>, now: Now) {
        let Some(since) = outbox.slow_since.get() else {
            return;
        };
        let until = since + millis(self.settings.slow_consumer_time);
        if until > now.mono_ms {
            self.timers.add(until, Due::Slow(Rc::downgrade(outbox)));
            return;
        }
        self.numbers.slow_consumers.add(1);
        let dropped = outbox.give_up(&Fault::SlowConsumer);
        self.numbers.mailbox_lag.subtract(dropped as u64);
        self.cut_later(outbox, now);
    }

    /// Ends a connection for good if its client does not.
    pub(super) fn cut_later(&self, outbox: &Rc<Outbox>, now: Now) {
        self.timers
            .add(now.mono_ms + CUT_AFTER_MS, Due::Cut(Rc::downgrade(outbox)));
    }

    /// Forgets what is over.
    pub fn sweep(&self) {
        let now = Now::read();
        self.index.borrow_mut().sweep(now.mono_ms, now.unix_ms);
        self.outboxes
            .borrow_mut()
            .retain(|outbox| outbox.strong_count() > 0);
        let sessions = self.sessions.borrow();
        self.closed
            .borrow_mut()
            .retain(|id| sessions.contains_key(id));
    }

    /// Takes nothing on any more. A session ends when nothing of it is outstanding.
    pub fn drain(&self, outstanding: Outstanding) {
        self.is_draining.set(true);
        let sessions: Vec<_> = self.sessions.borrow().values().cloned().collect();
        for session in sessions {
            if outstanding == Outstanding::Fail {
                self.fail_exchanges(&session, "Gateway is shutting down");
            }
            if session.exchanges.borrow().is_empty() {
                session.outbox.close(Some((CloseCode::GOING_AWAY, "")));
            }
        }
        let outboxes: Vec<_> = self
            .outboxes
            .borrow()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for outbox in outboxes.iter().filter(|outbox| !outbox.is_bound.get()) {
            // Before it is bound the real client waits for ever unless it is told.
            outbox.fail(None, &Fault::Draining);
        }
    }

    /// Things that are due some time; for tests of what stays behind.
    pub fn due_count(&self) -> usize {
        self.timers.len()
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4)
}
