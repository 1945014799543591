//! How busy a generator shard is, so that a generator that was itself the limit can say so.

use std::{
    fs,
    time::{Duration, Instant},
};

/// CPU time of the calling thread and the moment it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    cpu_ns: u64,
    at: Instant,
}

impl Reading {
    /// Reads it; a few microseconds, once at the start and once at the end of a run.
    pub(crate) fn take() -> Option<Self> {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Self {
            cpu_ns: text.split_whitespace().next()?.parse().ok()?,
            at: Instant::now(),
        })
    }

    /// Share of the time since then that the thread was running, 0 to 1; but for `polling`, in
    /// which it ran and had nothing to do.
    pub(crate) fn busy_since(self, polling: Duration) -> Option<f64> {
        let now = Self::take()?;
        let wall_ns = now.at.duration_since(self.at).as_nanos() as f64;
        let cpu_ns = now.cpu_ns.saturating_sub(self.cpu_ns) as f64 - polling.as_nanos() as f64;
        (wall_ns > 0.0).then(|| (cpu_ns / wall_ns).clamp(0.0, 1.0))
    }
}
