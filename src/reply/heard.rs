//! What a backend says beside the response: its notifications and its own requests, sorted, and put
//! in the client's terms.
//!
//! The same for what comes on a call's stream and on a backend's own stream. Nothing is passed on
//! that the client did not ask for: progress goes to the call whose token it carries, updates to
//! subscribers, log messages from the level on that was set; a client is not asked what it cannot
//! do.

use std::{rc::Rc, time::Duration};

use crate::{
    http::Span,
    mcp::{
        edits::Edits,
        json,
        profile::META_PREFIX,
        reply_scan::{ReplyKind, ReplyScan, scan_reply},
    },
    route::rewrite,
    session::{Session, calls::ClientCall},
    shard_state::ShardState,
    upstream::{
        log_level,
        say::{self, Listener},
    },
};

/// JSON-RPC: no such method.
const METHOD_NOT_FOUND: (i32, &str) = (-32601, "Method not found");
/// The code the SDKs use for a request that took too long.
const TIMED_OUT: (i32, &str) = (-32001, "Request timed out");
const TOO_MANY: (i32, &str) = (-32603, "Too many requests wait for the client");

/// A backend that is heard in a session.
#[derive(Debug, Clone, Copy)]
pub struct Ear<'a> {
    /// The shard.
    pub shard: &'a Rc<ShardState>,
    /// The session.
    pub session: &'a Rc<Session>,
    /// The backend.
    pub from: &'a Listener,
    /// The least level of log messages that a client without a session asked for.
    pub level: Option<&'static str>,
}

/// What is to be done about something heard.
#[derive(Debug)]
pub enum Heard {
    /// Nothing, or it is done.
    Nothing,
    /// This is to be said to the client, on the stream that corresponds to the one it was heard on:
    /// the call's, or a GET stream.
    Message(Vec<u8>),
    /// The client is to be asked, and has no session to be asked in.
    Question(Question),
}

/// What a backend asks a client that has no session.
#[derive(Debug)]
pub struct Question {
    /// The backend's id of it, raw.
    pub backend_id: Box<[u8]>,
    /// What it wants.
    pub method: Box<[u8]>,
    /// Its parameters in the client's terms, raw.
    pub params: Option<Box<[u8]>>,
}

impl From<Option<Vec<u8>>> for Heard {
    fn from(message: Option<Vec<u8>>) -> Self {
        message.map_or(Self::Nothing, Self::Message)
    }
}

impl Heard {
    /// The message, if it is one.
    pub fn into_message(self) -> Option<Vec<u8>> {
        match self {
            Self::Message(message) => Some(message),
            Self::Nothing | Self::Question(_) => None,
        }
    }
}

impl Ear<'_> {
    /// What is to be done.
    pub fn hear(&self, data: &[u8], scan: &ReplyScan, call: Option<&ClientCall>) -> Heard {
        let method = scan.method.map_or(&b""[..], |span| span.slice(data));
        let has_client = self.session.has_client();
        let message = match (scan.kind, scan.id) {
            (ReplyKind::Notification, _) if has_client => {
                self.notification(method, data, scan, call)
            }
            (ReplyKind::Notification, _) => self.of_request(method, data, scan, call),
            // A stateless backend has no business to ask.
            (ReplyKind::Request, _) if self.from.open.version.is_stateless() => None,
            (ReplyKind::Request, Some(id)) if has_client => self.request(method, data, scan, id),
            (ReplyKind::Request, Some(id)) => return self.question(method, data, scan, id),
            _ => None,
        };
        message.into()
    }

    /// A request to a client that has no session: it is asked by the result of its own request.
    fn question(&self, method: &[u8], data: &[u8], scan: &ReplyScan, id: Span) -> Heard {
        let (session, from) = (self.session, self.from.clone());
        let raw_id = id.slice(data);
        let is_known = matches!(
            method,
            b"elicitation/create" | b"sampling/createMessage" | b"roots/list"
        );
        if method == b"ping" {
            say::pong(self.shard, session, from, raw_id);
            return Heard::Nothing;
        }
        if !is_known || !session.can_be_asked(method) {
            say::refuse(self.shard, session, from, raw_id, METHOD_NOT_FOUND);
            return Heard::Nothing;
        }
        let exposed = self.exposed(data, scan, &[]);
        let params = scan_reply(&exposed).ok().and_then(|scan| scan.params);
        Heard::Question(Question {
            backend_id: raw_id.into(),
            method: method.into(),
            params: params.map(|span| span.slice(&exposed).into()),
        })
    }

    /// What a client without a session hears on the stream of its request: what belongs to that
    /// request and nothing else (mcp.md 2.6).
    fn of_request(
        &self,
        method: &[u8],
        data: &[u8],
        scan: &ReplyScan,
        call: Option<&ClientCall>,
    ) -> Option<Vec<u8>> {
        match method {
            b"notifications/progress" => self.progress(data, scan, call),
            b"notifications/message" => {
                let level = member(data, scan, "level").map(|span| span.slice(data));
                let is_wanted = log_level::is_at_least(level, self.level?);
                is_wanted.then(|| self.exposed(data, scan, &[]))
            }
            b"notifications/cancelled"
            | b"notifications/resources/updated"
            | b"notifications/tools/list_changed"
            | b"notifications/resources/list_changed"
            | b"notifications/prompts/list_changed" => None,
            _ => Some(self.exposed(data, scan, &[])),
        }
    }

    fn notification(
        &self,
        method: &[u8],
        data: &[u8],
        scan: &ReplyScan,
        call: Option<&ClientCall>,
    ) -> Option<Vec<u8>> {
        let session = self.session;
        match method {
            b"notifications/progress" => self.progress(data, scan, call),
            b"notifications/cancelled" => {
                let id = member(data, scan, "requestId")?;
                let withdrawn = session
                    .asked
                    .borrow_mut()
                    .withdraw(&self.from.open, id.slice(data))?;
                Some(self.exposed(data, scan, &[(id, withdrawn.id)]))
            }
            b"notifications/message" => {
                let level = member(data, scan, "level").map(|span| span.slice(data));
                let is_wanted = session
                    .log_level
                    .get()
                    .is_none_or(|least| log_level::is_at_least(level, least));
                is_wanted.then(|| self.exposed(data, scan, &[]))
            }
            b"notifications/resources/updated" => {
                let uri = json::unescape(member(data, scan, "uri")?.slice(data))?;
                let key = &self.from.place.backend().key;
                session.is_subscribed(key, &uri).then_some(())?;
                let message = self.exposed(data, scan, &[]);
                self.once(message, call)
            }
            b"notifications/tools/list_changed"
            | b"notifications/resources/list_changed"
            | b"notifications/prompts/list_changed" => {
                session.learned.take();
                self.shard.generations.bump(self.from.place.backend());
                // One kind is one message, whatever else a backend writes into it.
                let mut message = br#"{"jsonrpc":"2.0","method":""#.to_vec();
                message.extend_from_slice(method);
                message.extend_from_slice(br#""}"#);
                self.once(message, call)
            }
            _ => Some(self.exposed(data, scan, &[])),
        }
    }

    /// A message that counts once: equal ones that wait for a GET stream collapse.
    fn once(&self, message: Vec<u8>, call: Option<&ClientCall>) -> Option<Vec<u8>> {
        if call.is_some() {
            return Some(message);
        }
        self.session.streams.post(&message);
        None
    }

    /// Progress carries our token and goes to the call that has it, with its caller's token, by
    /// whatever way it came.
    fn progress(
        &self,
        data: &[u8],
        scan: &ReplyScan,
        call: Option<&ClientCall>,
    ) -> Option<Vec<u8>> {
        let token = member(data, scan, "progressToken")?;
        let owner = self
            .session
            .calls
            .of_token(&self.from.open, token.slice(data))?;
        if owner.progress_token().is_empty() || owner.cancel.is_cancelled() {
            return None;
        }
        let mut edits = Edits::default();
        edits.put_copy(token, owner.progress_token());
        let message = self.applied(data, scan, edits);
        if call.is_some_and(|call| std::ptr::eq(call, &*owner)) {
            return Some(message);
        }
        owner.inject(message);
        None
    }

    /// A request: under an id of ours from here on. The backend's progress token becomes our id.
    fn request(&self, method: &[u8], data: &[u8], scan: &ReplyScan, id: Span) -> Option<Vec<u8>> {
        let (shard, session, from) = (self.shard, self.session, self.from);
        let raw_id = id.slice(data);
        if method == b"ping" {
            say::pong(shard, session, from.clone(), raw_id);
            return None;
        }
        if !session.can_be_asked(method) {
            say::refuse(shard, session, from.clone(), raw_id, METHOD_NOT_FOUND);
            return None;
        }
        let token = progress_token(data, scan);
        let asked = session.asked.borrow_mut().ask(
            &from.place,
            &from.open,
            raw_id,
            token.map(|span| span.slice(data)),
        );
        let Some(our_id) = asked else {
            say::refuse(shard, session, from.clone(), raw_id, TOO_MANY);
            return None;
        };
        shard.numbers.client_asked.add(1);
        expire_later(shard, session, our_id);
        let mut ours: Vec<(Span, u64)> = vec![(id, our_id)];
        ours.extend(token.map(|span| (span, our_id)));
        Some(self.exposed(data, scan, &ours))
    }

    /// The message in the client's terms, with numbers of ours in some places.
    fn exposed(&self, data: &[u8], scan: &ReplyScan, ours: &[(Span, u64)]) -> Vec<u8> {
        let mut edits = Edits::default();
        for (span, number) in ours {
            edits.put(*span, number.to_string().into_bytes());
        }
        self.applied(data, scan, edits)
    }

    fn applied(&self, data: &[u8], scan: &ReplyScan, mut edits: Edits) -> Vec<u8> {
        let place = &self.from.place;
        let (host, index) = (&place.host, place.index);
        if self.from.open.version.is_stateless()
            && self.session.has_client()
            && let Some(meta) = member(data, scan, "_meta")
        {
            // Which subscription it belongs to is between the backend and us.
            edits.drop_members(data, meta, |key| key.starts_with(META_PREFIX));
        }
        if scan.kind == ReplyKind::Request {
            rewrite::expose_request(host, index, data, scan, &mut edits);
        } else {
            rewrite::expose_notification(host, index, data, scan, &mut edits);
        }
        let mut message = Vec::with_capacity(data.len() + 64);
        edits.apply(&mut message, data);
        message
    }
}

/// A member of `params`.
fn member(data: &[u8], scan: &ReplyScan, name: &str) -> Option<Span> {
    let params = scan.params?;
    let found = json::member(params.slice(data), name)?;
    Some(json::within(params, found))
}

fn progress_token(data: &[u8], scan: &ReplyScan) -> Option<Span> {
    let meta = member(data, scan, "_meta")?;
    let found = json::member(meta.slice(data), "progressToken")?;
    Some(json::within(meta, found))
}

/// Answers a backend with an error when the client has not answered in time, and tells the client
/// that nobody waits any more.
fn expire_later(shard: &Rc<ShardState>, session: &Rc<Session>, our_id: u64) {
    let limit: Duration = shard.upstream.limits.client_answer;
    let (shard, session) = (shard.clone(), Rc::downgrade(session));
    shards::spawn(async move {
        shards::sleep(limit).await;
        let Some(session) = session.upgrade() else {
            return;
        };
        let raw_id = our_id.to_string().into_bytes();
        let Some(asked) = session.asked.borrow_mut().take(&raw_id) else {
            return;
        };
        shard.numbers.client_answers_late.add(1);
        let to = Listener {
            place: asked.place,
            open: asked.open,
        };
        say::refuse(&shard, &session, to, &asked.backend_id, TIMED_OUT);
        // Nobody must be asked what nobody waits for.
        let start = format!(r#"{{"jsonrpc":"2.0","id":{our_id},"#);
        session
            .streams
            .unsay(|message| message.starts_with(start.as_bytes()));
        if session.streams.is_open() {
            let message = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{our_id},"reason":"Request timed out"}}}}"#
            );
            session.streams.push(message.as_bytes());
        }
    });
}
