//! What a shard counts about itself, readable by anyone without stopping it.
//!
//! Each counter has one writer, its shard, which does a plain load and store; no locked instruction
//! is on a request's path.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one shard writes and anyone reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the owning shard may call this.
    pub fn add(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }

    /// Takes `count` off, for gauges. Only the owning shard may call this.
    pub fn subtract(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).saturating_sub(count),
            Ordering::Relaxed,
        );
    }

    /// The present value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The engine's counters of one shard.
#[derive(Debug, Default)]
pub struct EngineCounters {
    /// Connections accepted by this shard's listeners.
    pub accepted: Counter,
    /// Connections of this shard that are open now.
    pub open: Counter,
    /// Sockets sent to their owner.
    pub handed_over: Counter,
    /// Sockets received from another shard.
    pub received: Counter,
    /// Requests sent over a ring to their owner.
    pub forwarded: Counter,
    /// Requests served for another shard.
    pub served: Counter,
    /// Times a ring or its call slots were full and a message was refused.
    pub ring_full: Counter,
    /// Times another shard was woken.
    pub doorbells: Counter,
    /// Accept errors (descriptor or memory shortage).
    pub accept_errors: Counter,
    /// Connections closed because a deadline passed.
    pub deadlines_passed: Counter,
    /// The kernel's number of the shard's thread, 0 while it is not known.
    pub thread: Counter,
    /// Times this shard asked the heap for memory, as of its last tick.
    pub allocations: Counter,
    /// Load used for placement: live sessions, in practice.
    pub load: Counter,
}
