//! The connection gateway: long-lived WebSocket sessions of clients behind NAT, and an internal
//! HTTP API through which others reach them. Wire-compatible with FastGPT-Plugin's.
//!
//! In the order of a session's life:
//!
//! * `handshake`: what is answered on the WebSocket port before a connection is one
//! * [`socket`]: one connection, read and written by one task
//! * [`message`], [`envelope`]: the messages and what they carry
//! * [`token`]: who may bind
//! * [`session`], [`session_id`]: one bound session, and which shard owns it
//! * [`node`]: a shard's sessions, and everything that happens to one
//! * [`registry`], [`index`]: who holds which source and subject, across shards
//! * [`reverse`]: MCP servers at the other end of a connection
//! * [`api`]: the internal HTTP API; `exchange`: a streamed request
//! * [`outbox`], [`timers`], [`fault`], [`numbers`]
//!
//! The rules of the protocol take bytes and a time and do no I/O; [`socket`] and [`api`] are the
//! two thin skins around them.

pub mod api;
pub mod envelope;
pub mod fault;
pub mod index;
pub mod message;
pub mod node;
pub mod numbers;
pub mod outbox;
pub mod registry;
pub mod reverse;
pub mod session;
pub mod session_id;
pub mod socket;
pub mod timers;
pub mod token;

mod exchange;
mod handshake;
mod json;

pub use node::{Listeners, Node};
pub use numbers::{AllNumbers, GatewayNumbers};
