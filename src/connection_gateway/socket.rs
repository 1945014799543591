//! One WebSocket of the connection gateway: opened, bound, heard and written to by one task, until
//! it ends.
//!
//! The task either writes what waits or reads; while callers have too much to take it does not
//! read, so the client is slowed down by its own connection. Whatever ends the task, a panic
//! included, the session it bound is ended with it.

use std::{net::SocketAddr, pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use shards::Stream;

use super::{
    fault::Fault,
    handshake::{self, Answer},
    message::{self, ClientMessage},
    node::{End, Node},
    outbox::Outbox,
    reverse::{
        self, Admitted, Framing, Server,
        contextforge::{self, Frame},
    },
    session::{Now, Session},
    token::Claims,
};
use crate::{
    http::{Parsed, PathRule, connection::OpenCount, parse_request_under},
    link::Link,
    shard_state::ShardState,
    websocket::{CloseCode, Event, Receiver, Role, Violation, frame},
};

/// Room for a message that has begun.
const LONG_READ_BYTES: usize = 64 * 1024;
/// How long the other side may take to end after we did.
const LINGER: Duration = Duration::from_secs(1);
/// Added to the time of a slow consumer before a write that makes no progress ends the connection:
/// by then it was told, if it could be.
const WRITE_GRACE: Duration = Duration::from_secs(2);

/// Starts to serve a connection of the WebSocket listener.
pub fn accepted(
    state: &Rc<ShardState>,
    node: &Rc<Node>,
    (stream, peer): (Stream, SocketAddr),
    open: OpenCount,
) {
    let (state, node) = (state.clone(), node.clone());
    shards::spawn(async move {
        let _open = open;
        let mut link = Link::Plain(stream);
        link.deadline().arm_idle(state.settings.timeouts.head);
        // In a box: the room a handshake takes is not kept for a connection's life.
        let Some(opened) = Box::pin(handshake(&state, &node, &mut link, peer)).await else {
            return;
        };
        let _counted = opened.counted;
        Socket::new(state, node, link, opened.talk)
            .run(opened.rest)
            .await;
    });
}

/// Counts a WebSocket from before its client can know that it is open to its end.
struct Connected(Rc<Node>);

impl Connected {
    fn new(node: &Rc<Node>) -> Self {
        node.numbers.connections.add(1);
        Self(node.clone())
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.numbers.connections.subtract(1);
    }
}

/// A connection that is open.
struct Opened {
    talk: Talk,
    /// What came after the opening request.
    rest: Vec<u8>,
    counted: Connected,
}

/// What is said on a connection, and by whom.
struct Talk {
    framing: Framing,
    outbox: Rc<Outbox>,
    /// Whose server a proxy may register.
    subject: Option<Box<str>>,
    /// Until when a proxy's heartbeats are not answered, monotonic ms.
    beaten_until: u64,
    /// Before the session: the bridge hears of its end before its source is free.
    server: Option<Server>,
    bound: Option<Bound>,
}

/// Reads the opening request and answers it.
async fn handshake(
    state: &Rc<ShardState>,
    node: &Rc<Node>,
    link: &mut Link,
    peer: SocketAddr,
) -> Option<Opened> {
    let mut buffer = state.shard.buffers.take();
    let mut admitted = Admitted::Anybody;
    let answer = loop {
        match parse_request_under(&buffer, &state.head_limits, PathRule::Opaque) {
            Ok(Parsed::Complete(head)) => {
                let mut answer = handshake::answer(&head, &buffer, |path| node.framing_at(path));
                if let Answer::Opened(_, framing) = &answer {
                    let request = (&head, &*buffer);
                    match reverse::admit(state, node, *framing, request, peer).await {
                        Ok(who) => admitted = who,
                        Err(refused) => answer = refused,
                    }
                }
                buffer.drain(..head.len);
                break answer;
            }
            Ok(Parsed::Partial) => {}
            Err(_) => break Answer::BAD,
        }
        let (result, returned) = link.read(buffer).await;
        buffer = returned;
        if !matches!(result, Ok(count) if count > 0) {
            state.shard.buffers.put(buffer);
            return None;
        }
    };
    let mut answer = match answer {
        Answer::Opened(..) if node.is_draining() || node.is_full() => {
            node.numbers.connections_refused.add(1);
            Answer::BUSY
        }
        other => other,
    };
    let counted = matches!(answer, Answer::Opened(..)).then(|| Connected::new(node));
    let mut talk = None;
    if let Answer::Opened(_, framing) = &answer {
        match Talk::begin(state, node, link, *framing, admitted).await {
            Ok(begun) => talk = Some(begun),
            Err(refused) => answer = refused,
        }
    }
    link.deadline().arm(state.settings.timeouts.write);
    let (result, _) = link.write_all(answer.bytes().to_vec()).await;
    link.deadline().disarm();
    match (talk, counted) {
        (Some(talk), Some(counted)) if result.is_ok() => Some(Opened {
            talk,
            rest: buffer,
            counted,
        }),
        _ => {
            state.shard.buffers.put(buffer);
            linger(state, link).await;
            None
        }
    }
}

/// Says the end, and reads until the other side has done so too, for a short while.
async fn linger(state: &ShardState, link: &mut Link) {
    link.deadline().arm(LINGER);
    link.end_output().await;
    let mut buffer = state.shard.buffers.take();
    loop {
        buffer.clear();
        let (result, returned) = link.read(buffer).await;
        buffer = returned;
        if !matches!(result, Ok(count) if count > 0) {
            break;
        }
    }
    state.shard.buffers.put(buffer);
}

/// The session of a connection, which ends with it.
struct Bound {
    session: Rc<Session>,
    state: Rc<ShardState>,
    node: Rc<Node>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Nobody here waits for its claims.
        let _ = self.node.end(&self.state, &self.session, End::Closed);
    }
}

impl Talk {
    /// Begins what an opening request was let in for: a server that has said all is bound before it
    /// is answered.
    async fn begin(
        state: &Rc<ShardState>,
        node: &Rc<Node>,
        link: &Link,
        framing: Framing,
        admitted: Admitted,
    ) -> Result<Self, Answer> {
        let cutter = link.deadline().cutter();
        let buffers = state.shard.buffers.clone();
        let mut talk = Self {
            framing,
            outbox: Rc::new(Outbox::new(framing, Some(cutter), buffers)),
            subject: None,
            beaten_until: 0,
            server: None,
            bound: None,
        };
        match admitted {
            Admitted::Anybody => {}
            Admitted::Proxy(subject) => talk.subject = Some(subject),
            Admitted::NoProxy => {
                let reason = "the token is missing or not good";
                talk.outbox.close(Some((CloseCode::POLICY, reason)));
            }
            Admitted::Server(claims) => {
                let lease = node.settings.lease;
                talk.serve(state, node, claims, lease)
                    .await
                    .map_err(|fault| match fault {
                        Fault::AlreadyBound => Answer::CONFLICT,
                        Fault::InvalidToken => Answer::UNAUTHORIZED,
                        _ => Answer::BUSY,
                    })?;
                node.ping_later(&talk.outbox);
            }
        }
        Ok(talk)
    }

    /// Binds a session with these claims, whose client is a server.
    async fn serve(
        &mut self,
        state: &Rc<ShardState>,
        node: &Rc<Node>,
        claims: Claims,
        lease: Duration,
    ) -> Result<(), Fault> {
        let bound = node.bind_claims(state, (claims, lease), None, &self.outbox);
        let bound = Bound {
            session: bound
                .await
                .inspect_err(|_| node.numbers.binds_refused.add(1))?,
            state: state.clone(),
            node: node.clone(),
        };
        self.server = Some(Server::attach(state, node, self.framing, &bound.session)?);
        self.bound = Some(bound);
        Ok(())
    }
}

struct Socket {
    state: Rc<ShardState>,
    node: Rc<Node>,
    link: Link,
    receiver: Receiver,
    talk: Talk,
}

impl Socket {
    fn new(state: Rc<ShardState>, node: Rc<Node>, link: Link, talk: Talk) -> Self {
        node.opened(&talk.outbox);
        let bytes_max = match talk.framing {
            Framing::Envelopes => node.settings.envelope_bytes_max,
            // What a backend says, however it is connected.
            Framing::ContextForge | Framing::Plain => state.settings.limits.response_bytes_max,
        };
        let receiver = Receiver::new(Role::Server, bytes_max);
        Self {
            state,
            node,
            link,
            receiver,
            talk,
        }
    }

    async fn run(mut self, rest: Vec<u8>) {
        // A drain waits for the end that it has told.
        let _pass = self.state.shard.gate.enter();
        if !rest.is_empty() {
            Box::pin(self.take_in(&rest)).await;
        }
        self.state.shard.buffers.put(rest);
        loop {
            if let Some(server) = &self.talk.server {
                server.pump(&self.talk.outbox);
            }
            if !self.talk.outbox.is_empty() {
                if !self.write().await {
                    return;
                }
            } else if self.talk.outbox.is_closing() {
                // The source is free at once, after the server that had it.
                self.talk.server = None;
                self.talk.bound = None;
                linger(&self.state, &mut self.link).await;
                return;
            } else if !self.read().await {
                return;
            }
        }
    }

    /// Writes what waits; false: the connection is gone.
    async fn write(&mut self) -> bool {
        let limit = self
            .node
            .settings
            .slow_consumer_time
            .saturating_add(WRITE_GRACE);
        let bytes = self.talk.outbox.take();
        let (result, bytes) = self.link.write_all_within(bytes, limit).await;
        self.node.written(&self.talk.outbox, bytes);
        result.is_ok()
    }

    /// Waits for something to read and takes it in, unless something is to be written first; false:
    /// the connection has ended.
    async fn read(&mut self) -> bool {
        let talk = &self.talk;
        let bound = talk.bound.as_ref();
        let is_clogged = bound.is_some_and(|bound| self.node.is_clogged(&bound.session))
            || talk.server.as_ref().is_some_and(Server::is_clogged);
        if is_clogged {
            talk.outbox.changed.wait().await;
            return true;
        }
        let outcome = {
            let readable = pin!(self.link.readable());
            let changed = pin!(self.talk.outbox.changed.wait());
            matches!(select(readable, changed).await, Either::Left(_))
        };
        if !outcome {
            return true;
        }
        let mut buffer = self.state.shard.buffers.take();
        if !self.receiver.is_between_messages() {
            buffer.reserve(LONG_READ_BYTES);
        }
        let (result, buffer) = self.link.read(buffer).await;
        let is_open = matches!(result, Ok(count) if count > 0);
        if is_open {
            // Boxed: most connections are idle most of the time.
            Box::pin(self.take_in(&buffer)).await;
        }
        self.state.shard.buffers.put(buffer);
        is_open
    }

    /// Takes in bytes of the client.
    async fn take_in(&mut self, bytes: &[u8]) {
        let mut at = 0;
        let mut line = self.state.shard.buffers.take();
        while at < bytes.len() && !self.talk.outbox.is_closing() {
            match self.receiver.read(&bytes[at..]) {
                Ok((taken, event)) => {
                    at += taken;
                    if let (Some(server), Some(event)) = (&self.talk.server, &event) {
                        server.is_alive(matches!(event, Event::Text(_)));
                    }
                    let ears = Ears {
                        state: &self.state,
                        node: &self.node,
                        talk: &mut self.talk,
                        line: &mut line,
                    };
                    match event {
                        None | Some(Event::Pong(_)) => {}
                        Some(Event::Text(text)) if self.node.settings.echoes => {
                            self.talk.outbox.push_frame(frame::TEXT, text.as_bytes());
                        }
                        Some(Event::Binary(bytes)) if self.node.settings.echoes => {
                            self.talk.outbox.push_frame(frame::BINARY, bytes);
                        }
                        Some(Event::Text(text)) => ears.hear(text).await,
                        Some(Event::Ping(payload)) => self.talk.outbox.push_pong(payload),
                        Some(Event::Close(code)) => {
                            self.talk
                                .outbox
                                .close(code.map(|(code, _)| (CloseCode(code), "")));
                        }
                        Some(Event::Binary(_)) => {
                            let reason = "binary messages are not taken";
                            self.refuse(CloseCode::UNSUPPORTED, reason);
                        }
                    }
                }
                Err(violation) => {
                    self.violated(violation);
                    break;
                }
            }
        }
        self.state.shard.buffers.put(line);
    }

    fn violated(&self, violation: Violation) {
        self.refuse(violation.code(), &violation.to_string());
    }

    /// Ends the connection with a code. Before it is bound the real client waits for ever unless an
    /// error comes first.
    fn refuse(&self, code: CloseCode, reason: &str) {
        let outbox = &self.talk.outbox;
        if !outbox.is_bound.get() {
            let fault = Fault::InvalidMessage(reason.to_owned());
            outbox.push_error(None, &fault);
        }
        outbox.close(Some((code, reason)));
    }
}

/// What hears a message: all of a connection but its receiver, which has the text.
struct Ears<'a> {
    state: &'a Rc<ShardState>,
    node: &'a Rc<Node>,
    talk: &'a mut Talk,
    line: &'a mut Vec<u8>,
}

impl Ears<'_> {
    async fn hear(self, text: &str) {
        match (self.talk.framing, &self.talk.server) {
            (Framing::Envelopes, _) => self.hear_message(text).await,
            (Framing::ContextForge, _) => self.hear_frame(text).await,
            (Framing::Plain, Some(server)) => server.hear(text),
            // A server that frames nothing is bound before anything is heard of it.
            (Framing::Plain, None) => {}
        }
    }

    /// A frame of a ContextForge proxy.
    async fn hear_frame(self, text: &str) {
        let outbox = self.talk.outbox.clone();
        let refuse = |text: &str| outbox.push(|out| contextforge::write_error(out, text));
        match (Frame::parse(text), &self.talk.server) {
            (Ok(Frame::Register(_)), Some(_)) => {
                refuse("the server is registered already");
                outbox.close(Some((CloseCode::POLICY, "registered twice")));
            }
            (Ok(Frame::Register(name)), None) => self.register(&name).await,
            (Ok(Frame::Unregister), _) => outbox.close(Some((CloseCode::NORMAL, ""))),
            (Ok(Frame::Heartbeat), _) => {
                let now = Now::read();
                if now.mono_ms < self.talk.beaten_until {
                    return;
                }
                self.talk.beaten_until = now.mono_ms + reverse::CONTEXTFORGE_BEAT_MS;
                let session = self.talk.bound.as_ref().map(|bound| bound.session.id);
                let id = session.as_ref().map_or("", |id| id.as_str());
                outbox.push(|out| contextforge::write_heartbeat(out, id, now.unix_ms));
            }
            (Ok(Frame::Message(message)), Some(server)) => server.hear(message),
            (Ok(Frame::Message(_)), None) => refuse("no server is registered"),
            (Err(wrong), _) => refuse(wrong.0),
        }
    }

    async fn register(self, name: &str) {
        let outbox = self.talk.outbox.clone();
        let Some(subject) = self.talk.subject.clone() else {
            return;
        };
        let claims = reverse::claims_of(&subject, name);
        let lease = reverse::CONTEXTFORGE_LEASE;
        let served = self.talk.serve(self.state, self.node, claims, lease).await;
        let session = self.talk.bound.as_ref().map(|bound| bound.session.id);
        let id = session.as_ref().map_or("", |id| id.as_str());
        outbox.push(|out| contextforge::write_ack(out, id));
        let failure = served.as_ref().err().map(Fault::message);
        outbox.push(|out| contextforge::write_complete(out, id, failure.as_deref()));
        if let Err(fault) = served {
            outbox.close(Some((fault.close_code(), "")));
        }
    }

    /// A message of the connection gateway's own protocol.
    async fn hear_message(self, text: &str) {
        let outbox = self.talk.outbox.clone();
        let message = match ClientMessage::parse(text) {
            Ok(message) => message,
            Err(wrong) => {
                let fault = Fault::InvalidMessage(format!("Invalid message: {}", wrong.reason));
                outbox.fail(wrong.request_id.as_deref(), &fault);
                return;
            }
        };
        let session = self.talk.bound.as_ref();
        let session = session.map(|bound| bound.session.clone());
        match (message, session) {
            (ClientMessage::Bind { request_id, .. }, Some(_)) => {
                // The session it has goes on.
                self.node.numbers.binds_refused.add(1);
                outbox.push_error(Some(&request_id), &Fault::AlreadyBound);
            }
            (
                ClientMessage::Bind {
                    request_id,
                    token,
                    metadata,
                },
                None,
            ) => self.bind(&request_id, &token, metadata).await,
            (ClientMessage::Heartbeat, session) => {
                let now = Now::read();
                if let Some(session) = session {
                    self.node.heard(&session, now);
                }
                outbox.push(|out| message::write_heartbeat(out, now.unix_ms));
            }
            (ClientMessage::Envelope(envelope), Some(session)) => {
                self.node.heard(&session, Now::read());
                let heard = match &self.talk.server {
                    Some(server) if !session.is_awaited(&envelope) => {
                        server.hear_envelope(&envelope)
                    }
                    _ => self.node.receive(&session, &envelope, self.line),
                };
                if let Err(fault) = heard {
                    outbox.push_error(envelope.request_id.as_deref(), &fault);
                }
            }
            (ClientMessage::Metadata { metadata, .. }, Some(session)) => {
                let now = Now::read();
                self.node.heard(&session, now);
                self.node.registry.update_soon(&session, metadata);
                session.note(now, "info", "Gateway session metadata updated", None);
            }
            (ClientMessage::Envelope(envelope), None) => {
                outbox.push_error(envelope.request_id.as_deref(), &Fault::Unbound);
            }
            (ClientMessage::Metadata { request_id, .. }, None) => {
                outbox.push_error(request_id.as_deref(), &Fault::Unbound);
            }
        }
    }

    async fn bind(self, request_id: &str, token: &str, metadata: Option<&str>) {
        let outbox = self.talk.outbox.clone();
        let bound = self.node.bind(self.state, token, metadata, &outbox).await;
        let bound = bound.and_then(|session| {
            // Ends it again when it cannot serve.
            let bound = Bound {
                session,
                state: self.state.clone(),
                node: self.node.clone(),
            };
            if bound.session.is_server() && self.node.bridge.is_some() {
                let framing = self.talk.framing;
                let server = Server::attach(self.state, self.node, framing, &bound.session)?;
                self.talk.server = Some(server);
            }
            Ok(bound)
        });
        match bound {
            Ok(bound) => {
                outbox.push(|out| {
                    message::write_bound(out, request_id, |out| bound.session.write_bound(out));
                });
                self.talk.bound = Some(bound);
            }
            Err(fault) => {
                self.node.numbers.binds_refused.add(1);
                outbox.fail(Some(request_id), &fault);
            }
        }
    }
}
