//! What travels on the rings, and what of it the shard's own code gets to see.

use std::net::SocketAddr;

use super::ReplySink;
use crate::{Parcel, ShardId};

/// A connection on its way to the shard that owns its session.
#[derive(Debug)]
pub struct MovedSocket {
    /// The connection.
    pub parcel: Parcel,
    /// Bytes already read from it, in order; the receiver starts with them.
    pub bytes: Vec<u8>,
    /// Protocol state that belongs to the connection (a TLS session), opaque to this crate.
    pub baggage: Option<Box<dyn std::any::Any + Send>>,
    /// The client's address.
    pub peer: SocketAddr,
    /// Which listener group accepted it.
    pub listener: u8,
    /// Times it has moved.
    pub moves: u8,
}

/// What comes in over the rings for the shard's own code to handle.
#[derive(Debug)]
pub enum Arrival<R: 'static> {
    /// A connection this shard now owns.
    Socket(MovedSocket),
    /// A request to serve for another shard.
    Call {
        /// The shard that has the client's connection.
        from: ShardId,
        /// The request.
        request: R,
        /// Where its reply goes.
        reply: ReplySink<R>,
    },
}

/// One message of a ring. The slot of a call is chosen by the shard that makes it.
#[derive(Debug)]
pub(super) enum Message<R> {
    /// A connection for the shard that owns its session.
    Socket(Box<MovedSocket>),
    /// A request for the shard that owns its session.
    Call { slot: u32, request: R },
    /// A part of a reply.
    Chunk { slot: u32, bytes: Vec<u8> },
    /// The last part of a reply.
    Last { slot: u32, bytes: Vec<u8> },
    /// The reply was cut off.
    Aborted { slot: u32 },
    /// A part was written: here is its buffer, and leave to send one more.
    Credit { slot: u32, buffer: Vec<u8> },
    /// Nobody reads the reply any more.
    Cancel { slot: u32 },
}
