//! When calls start: the schedule of a fixed rate, and the thread that wakes shards for it.
//!
//! The shards' own timers count milliseconds, which is too coarse for a schedule, and spinning
//! would take the core from whatever shares it. So one thread sleeps until the next call of any
//! shard that waits is due, and rings that shard.

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

/// A shard's part of a fixed rate: every `stride`th call of the whole schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    interval_s: f64,
    first: u64,
    stride: u64,
}

impl Schedule {
    pub(crate) fn new(rate: f64, shard: u16, shards: u16) -> Self {
        Self {
            interval_s: rate.recip(),
            first: u64::from(shard),
            stride: u64::from(shards),
        }
    }

    /// Intended start of this shard's call `index`, after the start of the run.
    pub(crate) fn at(&self, index: u64) -> Duration {
        // Computed from the index each time, so that rounding never adds up.
        let index = index * self.stride + self.first;
        Duration::try_from_secs_f64(index as f64 * self.interval_s).unwrap_or(Duration::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_share_one_even_schedule() {
        let shards: Vec<Schedule> = (0..3).map(|id| Schedule::new(1000.0, id, 3)).collect();
        let mut all: Vec<u128> = (0..1000)
            .flat_map(|index| shards.iter().map(move |shard| shard.at(index).as_micros()))
            .collect();
        all.sort_unstable();
        for (index, at) in all.iter().enumerate() {
            assert!(at.abs_diff(index as u128 * 1000) <= 1, "{index} {at}");
        }
    }

    #[test]
    fn rounding_does_not_add_up() {
        let schedule = Schedule::new(3.0, 0, 1);
        assert_eq!(schedule.at(3_000_000), Duration::from_secs(1_000_000));
    }
}
