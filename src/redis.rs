//! A Redis client on the shard's own I/O: one pipelined connection per shard.
//!
//! [`client`] is what the rest of the gateway calls; [`options`] says whom to talk to and for how
//! long; [`resp`] and [`reply`] are the wire format without sockets. Below them: `pipeline` pairs
//! commands with replies in order, `connection` opens, keeps and ends one connection. When Redis is
//! away every call fails at once: no caller ever waits inside a reconnect loop.
//!
//! Keys, values and passwords are never logged and never printed by `Debug`.

pub mod client;
pub mod options;
pub mod reply;
pub mod resp;

mod connection;
mod pipeline;

pub use client::{
    Connect, ConnectionEnd, Invalidated, OnInvalidate, RedisClient, RedisCounters, RedisFault,
    Tracking,
};
pub use options::RedisOptions;
pub use reply::Reply;
pub use resp::{RespFault, RespLimits};
