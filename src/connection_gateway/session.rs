//! One bound session, without sockets: what it is, what may pass it in either direction, and the
//! requests that are outstanding.
//!
//! All of it is plain memory of the shard that owns the session. A renewal of the lease is two
//! stores, whatever the session's metadata weigh.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use hashbrown::HashMap;
use shards::notify::Event;

use super::{
    envelope::{self, Envelope, Kind, write_number},
    exchange::Exchange,
    fault::Fault,
    json,
    message::has_feature,
    outbox::Outbox,
    registry::Shared,
    reverse::MCP,
    session_id::SessionId,
    token::Claims,
};

/// Log lines kept of a session.
const LOG_LINES_MAX: usize = 100;

/// What a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Its client is there.
    Connected,
    /// Its client is gone; it is shown until its lease ends.
    Closed,
}

impl Status {
    /// Its word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Closed => "closed",
        }
    }
}

/// The two clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, ms: for limits.
    pub mono_ms: u64,
    /// Since 1970, ms: for what is shown.
    pub unix_ms: u64,
}

impl Now {
    /// This moment.
    pub fn read() -> Self {
        Self {
            mono_ms: shards::clock::now_ms(),
            unix_ms: shards::clock::unix_ms(),
        }
    }
}

/// A line about a session that its status shows.
#[derive(Debug)]
struct LogLine {
    at_ms: u64,
    level: &'static str,
    message: &'static str,
    /// JSON.
    data: Option<String>,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Who bound it, and for what.
    pub claims: Claims,
    /// Rises when a session is taken over; a session bound anew has an id of its own.
    pub generation: u64,
    node_id: Rc<str>,
    status: Cell<Status>,
    connected_at: Cell<u64>,
    last_seen: Cell<u64>,
    /// End of the lease, wall clock.
    expires_at: Cell<u64>,
    /// The same, monotonic.
    lease_until: Cell<u64>,
    lease_ms: u64,
    metadata: RefCell<Option<Box<str>>>,
    can_cancel: Cell<bool>,
    /// What waits for its client.
    pub(super) outbox: Rc<Outbox>,
    pub(super) exchanges: RefCell<HashMap<Box<str>, Rc<Exchange>>>,
    /// Bytes of answers that wait for callers.
    pub(super) buffered: Cell<usize>,
    log: RefCell<VecDeque<LogLine>>,
    /// It is connected no more.
    pub(super) ended: Event,
    /// What it has to do with other nodes.
    pub(super) shared: Shared,
}

/// What envelopes of a session are checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Its generation.
    pub generation: u64,
    /// Its kind of consumer.
    pub consumer_type: Box<str>,
    /// What it may do.
    pub capabilities: Vec<Box<str>>,
}

impl Terms {
    /// Whether an envelope keeps to them.
    pub(super) fn check(&self, envelope: &Envelope<'_>) -> Result<(), Fault> {
        let terms = (&*self.consumer_type, &*self.capabilities);
        check(self.generation, terms, envelope)
    }
}

fn check(
    generation: u64,
    (consumer_type, capabilities): (&str, &[Box<str>]),
    envelope: &Envelope<'_>,
) -> Result<(), Fault> {
    if envelope.generation != generation {
        return Err(Fault::StaleGeneration(generation, envelope.generation));
    }
    if envelope.consumer_type != *consumer_type {
        return Err(Fault::InvalidToken);
    }
    let holds = |wanted: &str| capabilities.iter().any(|held| **held == *wanted);
    match &envelope.capability {
        Some(wanted) if !holds(wanted) => Err(Fault::CapabilityDenied),
        _ => Ok(()),
    }
}

/// What became of an envelope from a client.
#[derive(Debug)]
pub(super) enum Delivery {
    /// A caller will have it: bytes that wait more.
    Taken(usize),
    /// The same, and it was the last one of its request.
    Last(usize, Rc<Exchange>),
    /// Nobody waits for it.
    Late,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        claims: Claims,
        metadata: Option<&str>,
        outbox: Rc<Outbox>,
        (node_id, lease_ms): (&Rc<str>, u64),
        now: Now,
    ) -> Self {
        let session = Self {
            id,
            claims,
            generation: 0,
            node_id: node_id.clone(),
            status: Cell::new(Status::Connected),
            connected_at: Cell::new(now.unix_ms),
            last_seen: Cell::new(now.unix_ms),
            expires_at: Cell::new(0),
            lease_until: Cell::new(0),
            lease_ms,
            metadata: RefCell::default(),
            can_cancel: Cell::new(false),
            outbox,
            exchanges: RefCell::default(),
            buffered: Cell::new(0),
            log: RefCell::default(),
            ended: Event::default(),
            shared: Shared::default(),
        };
        session.renew(now);
        session.set_metadata(metadata);
        session
    }

    /// What it is now.
    pub fn status(&self) -> Status {
        self.status.get()
    }

    pub(super) fn set_closed(&self) {
        self.status.set(Status::Closed);
        self.ended.fire();
    }

    /// It has what it needs: it is connected from now on.
    pub(super) fn begin(&self, now: Now) {
        self.connected_at.set(now.unix_ms);
        self.renew(now);
    }

    /// Its client was heard: the lease begins anew.
    pub(super) fn renew(&self, now: Now) {
        self.last_seen.set(now.unix_ms);
        self.expires_at
            .set(now.unix_ms.saturating_add(self.lease_ms));
        self.lease_until
            .set(now.mono_ms.saturating_add(self.lease_ms));
    }

    /// End of its lease, monotonic ms: its client was not heard for so long, or others could not be
    /// told that it was.
    pub(super) fn lease_until(&self) -> u64 {
        self.lease_until.get().min(self.shared.safe_until())
    }

    /// End of its lease as far as its client is concerned, monotonic ms.
    pub(super) fn lease_until_heard(&self) -> u64 {
        self.lease_until.get()
    }

    /// End of its lease, ms since 1970.
    pub(super) fn expires_at(&self) -> u64 {
        self.expires_at.get()
    }

    /// When its client was heard last, ms since 1970.
    pub(super) fn last_seen(&self) -> u64 {
        self.last_seen.get()
    }

    /// When it was bound, ms since 1970.
    pub(super) fn connected_at(&self) -> u64 {
        self.connected_at.get()
    }

    /// Name of the node that has its client.
    pub(super) fn node_id(&self) -> &str {
        &self.node_id
    }

    /// Its metadata: a JSON object.
    pub(super) fn metadata(&self) -> Option<Box<str>> {
        self.metadata.borrow().clone()
    }

    /// Whether a request of this id is outstanding, for whomever.
    pub(super) fn has_request(&self, request_id: &str) -> bool {
        self.exchanges.borrow().contains_key(request_id) || self.shared.has_caller(request_id)
    }

    /// Whether nothing is outstanding.
    pub(super) fn is_quiet(&self) -> bool {
        self.exchanges.borrow().is_empty() && !self.shared.has_callers()
    }

    /// Replaces the metadata: a JSON object, kept as it came.
    pub(super) fn set_metadata(&self, metadata: Option<&str>) {
        self.can_cancel.set(has_feature(metadata, "cancel"));
        *self.metadata.borrow_mut() = metadata.map(Box::from);
    }

    /// Whether its client understands `cancel`.
    pub(super) fn can_cancel(&self) -> bool {
        self.can_cancel.get()
    }

    /// Keeps a line for whoever asks about the session.
    pub(super) fn note(
        &self,
        now: Now,
        level: &'static str,
        message: &'static str,
        data: Option<String>,
    ) {
        let mut log = self.log.borrow_mut();
        if log.len() == LOG_LINES_MAX {
            log.pop_front();
        }
        log.push_back(LogLine {
            at_ms: now.unix_ms,
            level,
            message,
            data,
        });
    }

    /// The first line of its log.
    pub(super) fn note_bound(&self, now: Now) {
        let mut data = br#"{"consumerType":"#.to_vec();
        json::write_text(&mut data, &self.claims.consumer_type);
        data.extend_from_slice(br#","subject":"#);
        json::write_text(&mut data, &self.claims.subject);
        write_member(
            &mut data,
            r#","transport":"websocket","generation":"#,
            self.generation,
        );
        data.push(b'}');
        // Texts in quotes and digits.
        let data = String::from_utf8(data).ok();
        self.note(now, "info", "Gateway WebSocket session bound", data);
    }

    /// Whether an envelope from the client is one that this session may send.
    pub(super) fn check_from_client(&self, envelope: &Envelope<'_>) -> Result<(), Fault> {
        if envelope.session_id != self.id.as_str() {
            return Err(Fault::SessionMismatch);
        }
        self.check(envelope)?;
        match (envelope.kind, &envelope.request_id) {
            (Kind::Request, _) => Err(Fault::InvalidEnvelope("A client may not send requests")),
            (_, None) => Err(Fault::InvalidEnvelope(
                "Gateway envelope without a requestId",
            )),
            _ => Ok(()),
        }
    }

    /// Whether an envelope is one that the client of an MCP server may send of itself.
    pub(super) fn check_from_server(&self, envelope: &Envelope<'_>) -> Result<(), Fault> {
        if envelope.session_id != self.id.as_str() {
            return Err(Fault::SessionMismatch);
        }
        self.check(envelope)?;
        match envelope.kind {
            Kind::Request => Err(Fault::InvalidEnvelope("A client may not send requests")),
            Kind::Response | Kind::Event | Kind::Stream => Ok(()),
        }
    }

    /// Whether a caller waits for the envelope.
    pub(super) fn is_awaited(&self, envelope: &Envelope<'_>) -> bool {
        let exchanges = self.exchanges.borrow();
        let id = envelope.request_id.as_deref();
        id.is_some_and(|id| exchanges.contains_key(id))
    }

    /// Whether its client is an MCP server.
    pub(super) fn is_server(&self) -> bool {
        let mut held = self.claims.capabilities.iter();
        *self.claims.consumer_type == *MCP && held.any(|held| **held == *MCP)
    }

    /// Whether a caller's envelope may go to the client (contract 3.1, from the status on).
    pub(super) fn check_from_caller(&self, envelope: &Envelope<'_>) -> Result<(), Fault> {
        if self.status.get() != Status::Connected {
            return Err(Fault::NotConnected(self.status.get().word()));
        }
        if envelope.session_id != self.id.as_str() {
            return Err(Fault::SessionNotFound);
        }
        self.check(envelope)
    }

    fn check(&self, envelope: &Envelope<'_>) -> Result<(), Fault> {
        let claims = &self.claims;
        let terms = (&*claims.consumer_type, &*claims.capabilities);
        check(self.generation, terms, envelope)
    }

    /// Hands an envelope of the client to the caller that waits for it.
    pub(super) fn deliver(&self, envelope: &Envelope<'_>, line: &mut Vec<u8>) -> Delivery {
        let Some(request_id) = envelope.request_id.as_deref() else {
            return Delivery::Late;
        };
        let mut exchanges = self.exchanges.borrow_mut();
        let Some(exchange) = exchanges.get(request_id) else {
            return Delivery::Late;
        };
        line.clear();
        envelope.write(line);
        if envelope.is_terminal() {
            // What comes later has nobody to go to, and another request may have the id.
            let Some(exchange) = exchanges.remove(request_id) else {
                return Delivery::Late;
            };
            Delivery::Last(exchange.push(line, true), exchange)
        } else {
            Delivery::Taken(exchange.push(line, false))
        }
    }

    /// The line that ends a request which failed, understood by the plugin server.
    pub(super) fn failure_line(
        &self,
        request_id: &str,
        exchange: &Exchange,
        reason: &str,
        now: Now,
    ) -> Vec<u8> {
        envelope::failure_line(
            (self.id, self.generation, &self.claims.consumer_type),
            (request_id, exchange.capability.as_deref()),
            reason,
            now.unix_ms,
        )
    }

    /// Appends its members up to the capabilities, as an object that is not ended.
    pub(super) fn write_claims(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"id":""#);
        out.extend_from_slice(self.id.as_str().as_bytes());
        out.extend_from_slice(br#"","consumerType":"#);
        json::write_text(out, &self.claims.consumer_type);
        out.extend_from_slice(br#","subject":"#);
        json::write_text(out, &self.claims.subject);
        out.extend_from_slice(br#","sessionScope":"#);
        out.extend_from_slice(self.claims.scope.as_bytes());
        out.extend_from_slice(br#","transport":"websocket","capabilities":["#);
        for (index, capability) in self.claims.capabilities.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            json::write_text(out, capability);
        }
        out.push(b']');
    }

    fn write_node(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#","ownerNodeId":"#);
        json::write_text(out, &self.node_id);
        out.extend_from_slice(br#","status":""#);
        out.extend_from_slice(self.status.get().word().as_bytes());
        out.push(b'"');
    }

    pub(super) fn write_metadata(&self, out: &mut Vec<u8>) {
        if let Some(metadata) = &*self.metadata.borrow() {
            out.extend_from_slice(br#","metadata":"#);
            json::write_value(out, metadata);
        }
    }

    /// Appends it as `bound` shows it; the contract's order, its `now` included.
    pub(super) fn write_bound(&self, out: &mut Vec<u8>) {
        self.write_claims(out);
        self.write_node(out);
        write_member(out, r#","expiresAt":"#, self.expires_at.get());
        self.write_metadata(out);
        write_member(out, r#","now":"#, self.connected_at.get());
        write_member(out, r#","generation":"#, self.generation);
        write_member(out, r#","connectedAt":"#, self.connected_at.get());
        write_member(out, r#","lastSeenAt":"#, self.last_seen.get());
        out.push(b'}');
    }

    /// Appends it as everybody else sees it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.write_claims(out);
        write_member(out, r#","generation":"#, self.generation);
        self.write_node(out);
        write_member(out, r#","connectedAt":"#, self.connected_at.get());
        write_member(out, r#","lastSeenAt":"#, self.last_seen.get());
        write_member(out, r#","expiresAt":"#, self.expires_at.get());
        self.write_metadata(out);
        out.push(b'}');
    }

    /// Appends its status view (contract 3.5).
    pub(super) fn write_view(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"session":"#);
        self.write(out);
        let is_alive = self.status.get() == Status::Connected;
        out.extend_from_slice(br#","ownerAlive":"#);
        out.extend_from_slice(if is_alive { b"true" } else { b"false" });
        write_member(out, r#","mailboxLag":"#, self.outbox.envelopes() as u64);
        out.extend_from_slice(br#","logs":["#);
        for (index, line) in self.log.borrow().iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_member(out, r#"{"ts":"#, line.at_ms);
            out.extend_from_slice(br#","level":""#);
            out.extend_from_slice(line.level.as_bytes());
            out.extend_from_slice(br#"","message":"#);
            json::write_text(out, line.message);
            if let Some(data) = &line.data {
                out.extend_from_slice(br#","data":"#);
                out.extend_from_slice(data.as_bytes());
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
    }
}

fn write_member(out: &mut Vec<u8>, name: &str, number: u64) {
    out.extend_from_slice(name.as_bytes());
    write_number(out, number);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Claims of a session for tests.
    pub(in super::super) fn claims() -> Claims {
        Claims {
            consumer_type: "plugin-debug".into(),
            subject: "u".into(),
            scope: r#"{"userId":"u"}"#.into(),
            sources: Vec::new(),
            capabilities: vec!["gateway.bind".into(), "invoke".into()],
            expires_at: u64::MAX,
            nonce: None,
        }
    }

    /// A moment.
    pub(in super::super) const NOW: Now = Now {
        mono_ms: 1_000,
        unix_ms: 5_000,
    };

    fn session(metadata: Option<&str>) -> Session {
        session_of(claims(), metadata, NOW)
    }

    /// A session of a node `n`, whose lease is 100 ms.
    pub(in super::super) fn session_of(
        claims: Claims,
        metadata: Option<&str>,
        now: Now,
    ) -> Session {
        let outbox = Rc::new(Outbox::of_nobody());
        let id = SessionId::of([7; 16]);
        Session::new(id, claims, metadata, outbox, (&"n".into(), 100), now)
    }

    fn shown(session: &Session) -> serde_json::Value {
        let mut out = Vec::new();
        session.write(&mut out);
        serde_json::from_slice(&out).unwrap()
    }

    /// D26 of the contract: what a renewal touches does not depend on the metadata.
    #[test]
    fn a_renewal_leaves_the_metadata_where_they_are() {
        let session = session(Some(r#"{"a":1}"#));
        let place = session.metadata.borrow().as_ref().map(|text| text.as_ptr());
        session.renew(Now {
            mono_ms: 1_050,
            unix_ms: 5_050,
        });
        assert_eq!(
            session.metadata.borrow().as_ref().map(|text| text.as_ptr()),
            place
        );
        assert_eq!(session.lease_until(), 1_150);
        let shown = shown(&session);
        assert_eq!(
            (&shown["expiresAt"], &shown["lastSeenAt"]),
            (&5_150.into(), &5_050.into())
        );
        assert_eq!(shown["metadata"]["a"], 1);
    }

    #[test]
    fn a_log_is_bounded_and_keeps_the_latest() {
        let session = session(None);
        for at in 0..250 {
            session.note(
                Now {
                    mono_ms: 0,
                    unix_ms: at,
                },
                "info",
                "line",
                None,
            );
        }
        let mut out = Vec::new();
        session.write_view(&mut out);
        let view: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let times: Vec<u64> = view["logs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["ts"].as_u64().unwrap())
            .collect();
        assert_eq!(times, (150..250).collect::<Vec<u64>>());
        assert_eq!(shown(&session).get("metadata"), None);
    }
}
