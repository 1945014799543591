//! One WebSocket of the connection gateway: opened, bound, heard and written to by one task, until
//! it ends.
//!
//! The task either writes what waits or reads; while callers have too much to take it does not
//! read, so the client is slowed down by its own connection. Whatever ends the task, a panic
//! included, the session it bound is ended with it.

use std::{pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use shards::Stream;

use super::{
    fault::Fault,
    handshake::{self, Answer},
    message::{self, ClientMessage},
    node::{End, Node},
    outbox::Outbox,
    session::{Now, Session},
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
pub fn accepted(state: &Rc<ShardState>, node: &Rc<Node>, stream: Stream, open: OpenCount) {
    let (state, node) = (state.clone(), node.clone());
    shards::spawn(async move {
        let _open = open;
        let mut link = Link::Plain(stream);
        link.deadline().arm_idle(state.settings.timeouts.head);
        // In a box: the room a handshake takes is not kept for a connection's life.
        let Some((rest, _counted)) = Box::pin(handshake(&state, &node, &mut link)).await else {
            return;
        };
        Socket::new(state, node, link).run(rest).await;
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

/// Reads the opening request and answers it; what came after it, when the connection is open.
async fn handshake(
    state: &ShardState,
    node: &Rc<Node>,
    link: &mut Link,
) -> Option<(Vec<u8>, Connected)> {
    let mut buffer = state.shard.buffers.take();
    let answer = loop {
        match parse_request_under(&buffer, &state.head_limits, PathRule::Opaque) {
            Ok(Parsed::Complete(head)) => {
                let answer = handshake::answer(&head, &buffer, &node.settings.path);
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
    let answer = match answer {
        Answer::Opened(_) if node.is_draining() || node.is_full() => {
            node.numbers.connections_refused.add(1);
            Answer::BUSY
        }
        other => other,
    };
    let counted = matches!(answer, Answer::Opened(_)).then(|| Connected::new(node));
    link.deadline().arm(state.settings.timeouts.write);
    let (result, _) = link.write_all(answer.bytes().to_vec()).await;
    link.deadline().disarm();
    match counted {
        Some(counted) if result.is_ok() => Some((buffer, counted)),
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

struct Socket {
    state: Rc<ShardState>,
    node: Rc<Node>,
    link: Link,
    outbox: Rc<Outbox>,
    receiver: Receiver,
    bound: Option<Bound>,
}

impl Socket {
    fn new(state: Rc<ShardState>, node: Rc<Node>, link: Link) -> Self {
        let cutter = link.deadline().cutter();
        let outbox = Rc::new(Outbox::new(Some(cutter), state.shard.buffers.clone()));
        node.opened(&outbox);
        let receiver = Receiver::new(Role::Server, node.settings.envelope_bytes_max);
        Self {
            state,
            node,
            link,
            outbox,
            receiver,
            bound: None,
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
            if !self.outbox.is_empty() {
                if !self.write().await {
                    return;
                }
            } else if self.outbox.is_closing() {
                // The source is free at once.
                self.bound = None;
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
        let bytes = self.outbox.take();
        let (result, bytes) = self.link.write_all_within(bytes, limit).await;
        self.node.written(&self.outbox, bytes);
        result.is_ok()
    }

    /// Waits for something to read and takes it in, unless something is to be written first; false:
    /// the connection has ended.
    async fn read(&mut self) -> bool {
        let is_clogged = self
            .bound
            .as_ref()
            .is_some_and(|bound| self.node.is_clogged(&bound.session));
        if is_clogged {
            self.outbox.changed.wait().await;
            return true;
        }
        let outcome = {
            let readable = pin!(self.link.readable());
            let changed = pin!(self.outbox.changed.wait());
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
        while at < bytes.len() && !self.outbox.is_closing() {
            match self.receiver.read(&bytes[at..]) {
                Ok((taken, event)) => {
                    at += taken;
                    let ears = Ears {
                        state: &self.state,
                        node: &self.node,
                        outbox: &self.outbox,
                        bound: &mut self.bound,
                        line: &mut line,
                    };
                    match event {
                        None | Some(Event::Pong(_)) => {}
                        Some(Event::Text(text)) if self.node.settings.echoes => {
                            self.outbox.push_frame(frame::TEXT, text.as_bytes());
                        }
                        Some(Event::Binary(bytes)) if self.node.settings.echoes => {
                            self.outbox.push_frame(frame::BINARY, bytes);
                        }
                        Some(Event::Text(text)) => ears.hear(text).await,
                        Some(Event::Ping(payload)) => self.outbox.push_pong(payload),
                        Some(Event::Close(code)) => {
                            self.outbox
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
        if !self.outbox.is_bound.get() {
            let fault = Fault::InvalidMessage(reason.to_owned());
            self.outbox.push_error(None, &fault);
        }
        self.outbox.close(Some((code, reason)));
    }
}

/// What hears a message: all of a connection but its receiver, which has the text.
struct Ears<'a> {
    state: &'a Rc<ShardState>,
    node: &'a Rc<Node>,
    outbox: &'a Rc<Outbox>,
    bound: &'a mut Option<Bound>,
    line: &'a mut Vec<u8>,
}

impl Ears<'_> {
    async fn hear(self, text: &str) {
        let message = match ClientMessage::parse(text) {
            Ok(message) => message,
            Err(wrong) => {
                let fault = Fault::InvalidMessage(format!("Invalid message: {}", wrong.reason));
                self.outbox.fail(wrong.request_id.as_deref(), &fault);
                return;
            }
        };
        let session = self.bound.as_ref().map(|bound| bound.session.clone());
        match (message, session) {
            (ClientMessage::Bind { request_id, .. }, Some(_)) => {
                // The session it has goes on.
                self.node.numbers.binds_refused.add(1);
                self.outbox
                    .push_error(Some(&request_id), &Fault::AlreadyBound);
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
                self.outbox
                    .push(|out| message::write_heartbeat(out, now.unix_ms));
            }
            (ClientMessage::Envelope(envelope), Some(session)) => {
                self.node.heard(&session, Now::read());
                if let Err(fault) = self.node.receive(&session, &envelope, self.line) {
                    self.outbox
                        .push_error(envelope.request_id.as_deref(), &fault);
                }
            }
            (ClientMessage::Metadata { metadata, .. }, Some(session)) => {
                let now = Now::read();
                self.node.heard(&session, now);
                self.node.registry.update_soon(&session, metadata);
                session.note(now, "info", "Gateway session metadata updated", None);
            }
            (ClientMessage::Envelope(envelope), None) => {
                self.outbox
                    .push_error(envelope.request_id.as_deref(), &Fault::Unbound);
            }
            (ClientMessage::Metadata { request_id, .. }, None) => {
                self.outbox
                    .push_error(request_id.as_deref(), &Fault::Unbound);
            }
        }
    }

    async fn bind(self, request_id: &str, token: &str, metadata: Option<&str>) {
        match self
            .node
            .bind(self.state, token, metadata, self.outbox)
            .await
        {
            Ok(session) => {
                self.outbox.push(|out| {
                    message::write_bound(out, request_id, |out| session.write_bound(out));
                });
                *self.bound = Some(Bound {
                    session,
                    state: self.state.clone(),
                    node: self.node.clone(),
                });
            }
            Err(fault) => {
                self.node.numbers.binds_refused.add(1);
                self.outbox.fail(Some(request_id), &fault);
            }
        }
    }
}
