//! MCP servers at the other end of a connection: they connect to the gateway and are backends of
//! its virtual hosts from then on, under `reverse:SOURCE`.
//!
//! Three framings carry the same JSON-RPC messages, chosen by the path of the WebSocket:
//!
//! * [`fastgpt`]: in envelopes, over the connection gateway's own protocol
//! * [`contextforge`]: the frames of ContextForge's reverse proxy
//! * plain: one message, one text
//!
//! A connection stays on its shard like any other; its messages go over a line
//! ([`crate::bridge::line`]) to the bridge, which speaks MCP with the server and is what shards
//! ask.

pub mod contextforge;
pub mod fastgpt;

mod admission;

use std::{cell::Cell, rc::Rc, time::Duration};

use super::{
    envelope::Envelope,
    fault::Fault,
    node::Node,
    outbox::Outbox,
    session::{Now, Session},
};
use crate::{
    bridge::line::{Line, Taken},
    shard_state::ShardState,
    websocket::CloseCode,
};

pub(super) use admission::{Admitted, admit, claims_of};

/// Where ContextForge's reverse proxies connect to.
pub const CONTEXTFORGE_PATH: &str = "/reverse-proxy/ws";
/// Where servers connect to that frame nothing.
pub const PLAIN_PATH: &str = "/reverse/v1";
/// The consumer type, and the capability, of who brings a server.
pub const MCP: &str = "mcp";
/// Nothing heard of a ContextForge proxy for so long: its server is unreachable
/// (connection-gateway.md 10).
pub(super) const CONTEXTFORGE_LEASE: Duration = Duration::from_secs(90);
/// Between two answers to heartbeats of a ContextForge proxy, ms: some answer every answer.
pub(super) const CONTEXTFORGE_BEAT_MS: u64 = 1_000;
/// Bytes that are taken from the line ahead of a connection that writes.
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// How messages are framed on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The connection gateway's own messages, with MCP in envelopes or without any.
    Envelopes,
    /// ContextForge's reverse proxy.
    ContextForge,
    /// One JSON-RPC message, one text.
    Plain,
}

/// A server at the other end of a connection. Dropping it takes it from its virtual hosts.
pub(super) struct Server {
    line: Line,
    framing: Framing,
    session: Rc<Session>,
    node: Rc<Node>,
    next_request: Cell<u64>,
}

impl Server {
    /// Makes the session's client a server under its source.
    ///
    /// # Errors
    /// It has not exactly one source, or no more servers are taken just now.
    pub(super) fn attach(
        state: &ShardState,
        node: &Rc<Node>,
        framing: Framing,
        session: &Rc<Session>,
    ) -> Result<Self, Fault> {
        let [source] = &*session.claims.sources else {
            let text = "An MCP server needs a token with exactly one source";
            return Err(Fault::BindFailed(text.to_owned()));
        };
        let line = node
            .bridge
            .as_ref()
            .and_then(|bridge| bridge.attach(source, state.shard.id))
            .ok_or_else(|| Fault::BindFailed("Gateway is busy".to_owned()))?;
        node.line_opened(line.number(), &session.outbox);
        session.outbox.has_server.set(true);
        Ok(Self {
            line,
            framing,
            session: session.clone(),
            node: node.clone(),
            next_request: Cell::new(1),
        })
    }

    /// Queues what the bridge has for the server, as far as there is room, or the end.
    pub(super) fn pump(&self, outbox: &Outbox) {
        self.line.look();
        while outbox.bytes() < AHEAD_BYTES_MAX && !outbox.is_closing() {
            match self.line.take() {
                Taken::Message(message) => self.frame(outbox, &message),
                Taken::Nothing => break,
                Taken::Over => {
                    let reason = "the server did not initialize";
                    outbox.close(Some((CloseCode::INTERNAL, reason)));
                }
            }
        }
        if self.node.is_draining() && self.line.is_idle() {
            outbox.close(Some((CloseCode::GOING_AWAY, "")));
        }
    }

    fn frame(&self, outbox: &Outbox, message: &[u8]) {
        match self.framing {
            Framing::Envelopes => {
                let number = self.next_request.get();
                self.next_request.set(number + 1);
                let mut envelope = Vec::with_capacity(message.len() + 320);
                let now_ms = shards::clock::unix_ms();
                fastgpt::write(&mut envelope, &self.session, number, message, now_ms);
                outbox.push_envelope(&envelope);
                self.node.numbers.mailbox_lag.add(1);
            }
            Framing::ContextForge => outbox.push(|out| {
                contextforge::write_request(out, self.session.id.as_str(), message);
            }),
            Framing::Plain => outbox.push(|out| out.extend_from_slice(message)),
        }
    }

    /// Takes in a message of the server.
    pub(super) fn hear(&self, message: &str) {
        self.line.say(message.as_bytes().to_vec());
    }

    /// Takes in an envelope of the server's client.
    ///
    /// # Errors
    /// It is none that this session may send, or holds no message.
    pub(super) fn hear_envelope(&self, envelope: &Envelope<'_>) -> Result<(), Fault> {
        self.session.check_from_server(envelope)?;
        match fastgpt::message_of(envelope) {
            Some(message) => {
                self.hear(message);
                Ok(())
            }
            None if fastgpt::is_empty_end(envelope) => Ok(()),
            None => Err(Fault::InvalidEnvelope(
                "Gateway envelope without an MCP message",
            )),
        }
    }

    /// Whether the bridge has so much to take that the server must wait.
    pub(super) fn is_clogged(&self) -> bool {
        self.line.is_clogged()
    }

    /// The server gave a sign of life: in any frame where it is asked for one, else in a message.
    pub(super) fn is_alive(&self, is_message: bool) {
        if is_message || self.framing == Framing::Plain {
            self.node.heard(&self.session, Now::read());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.node.line_closed(self.line.number());
    }
}
