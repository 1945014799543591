//! The thread that wakes shards when a call is due.
//!
//! The shards' own timers count milliseconds, which is too coarse for a schedule, and polling would
//! take the core from whatever shares it. So one thread sleeps until the next call of any shard
//! that waits is due, and rings that shard; one with a core of its own it rings a little before,
//! and the shard polls from there on (`watch`).

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use shards::shard::ShardHandle;

use super::worker::Order;

/// No call waits.
pub(crate) const NOT_WAITING: u64 = u64::MAX;
/// The pacer looks at the shards at least this often.
const LOOK_INTERVAL: Duration = Duration::from_micros(500);

/// When a shard's first waiting call is due, ns after the start.
#[derive(Debug)]
pub(crate) struct Due(pub(crate) AtomicU64);

impl Default for Due {
    fn default() -> Self {
        Self(AtomicU64::new(NOT_WAITING))
    }
}

/// The pacer thread: rings each shard whose first waiting call is due, until the run is stopped.
pub(crate) fn tick(
    due: &[Due],
    is_stopped: &AtomicBool,
    started_at: Instant,
    handles: &[ShardHandle<Order>],
) {
    while !is_stopped.load(Ordering::Relaxed) {
        let now_ns = started_at.elapsed().as_nanos() as u64;
        let mut next_ns = now_ns.saturating_add(LOOK_INTERVAL.as_nanos() as u64);
        for (due, handle) in due.iter().zip(handles) {
            let due_ns = due.0.load(Ordering::Acquire);
            if due_ns > now_ns {
                next_ns = next_ns.min(due_ns);
            } else {
                // The shard sets it again when it next waits.
                due.0.store(NOT_WAITING, Ordering::Relaxed);
                // Refused only by a shard that has ended.
                let _ = handle.post(Order::Due);
            }
        }
        let now_ns = started_at.elapsed().as_nanos() as u64;
        std::thread::sleep(Duration::from_nanos(next_ns.saturating_sub(now_ns)));
    }
}
