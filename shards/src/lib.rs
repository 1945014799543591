//! The machine half of the gateway: pinned cores, sockets, rings, timers and buffers.
//!
//! A *shard* is one thread, pinned to one core, with a single-threaded runtime; all in it is
//! `!Send`. What one shard must say to another goes over a bounded ring ([`mesh`]). This crate
//! knows no protocol: it moves sockets, bytes and opaque requests. It holds all `unsafe` of the
//! product.
//!
//! In the order of a connection's life: [`topology`] picks the cores, [`driver`] the I/O driver,
//! [`listener`] the sockets, [`shard`] starts the threads, [`stream`] carries bytes, [`deadline`]
//! ends what takes too long, [`slots`] names the owner, [`mesh`] reaches it, [`gate`] drains.

pub mod alarm;
pub mod buffer;
mod busy_poll;
pub mod child;
pub mod clock;
pub mod counters;
pub mod deadline;
pub mod driver;
pub mod gate;
pub mod heap;
pub mod listener;
pub mod mesh;
pub mod notify;
mod pace;
pub mod ring;
pub mod shard;
pub mod slots;
pub mod stream;
pub mod task;
pub mod topology;

mod bell;

pub use counters::EngineCounters;
pub use deadline::{Cutter, Deadline, Deadlines};
pub use driver::{DriverChoice, DriverKind};
pub use mesh::{Arrival, MovedSocket, Port, ReplySink, ReplyStream};
pub use shard::{Control, Plan, Shard, Shards, start};
pub use stream::{Parcel, Stream};
pub use task::{next_turn, sleep, spawn, yield_now};

/// Index of a shard, 0 up to the number of shards.
pub type ShardId = u16;
