//! How well the backend behaves: latency, stalls, errors, streams; all drawn from one seed.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use super::{BackendOptions, ErrorKind, ReplyKind};
use crate::random::Random;

/// A stall of the whole server: at the end of every period nothing is answered for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// From the end of one stall to the end of the next.
    pub every: Duration,
    /// How long nothing is answered.
    pub length: Duration,
}

impl Stall {
    /// How long an answer has to wait that is ready `elapsed` after the start.
    pub fn left(&self, elapsed: Duration) -> Duration {
        if self.every.is_zero() {
            return Duration::ZERO;
        }
        // Both are bounded by what a process lives, far below 2^64 ns.
        let every_ns = self.every.as_nanos() as u64;
        let into_ns = elapsed.as_nanos() as u64 % every_ns;
        let left = Duration::from_nanos(every_ns - into_ns);
        if left <= self.length {
            left
        } else {
            Duration::ZERO
        }
    }
}

/// One shard's conduct.
pub(super) struct Conduct {
    started_at: Instant,
    random: RefCell<Random>,
}

impl Conduct {
    pub(super) fn new(started_at: Instant, seed: u64, shard: u16) -> Self {
        Self {
            started_at,
            random: RefCell::new(Random::new(seed.wrapping_add(u64::from(shard)))),
        }
    }

    /// How long the reply to a call waits, beside what its tool asks for.
    pub(super) fn latency(&self, options: &BackendOptions) -> Duration {
        let mut random = self.random.borrow_mut();
        let mut wait = options.delay.unwrap_or_default() + options.latency.draw(&mut random);
        if random.is_in(options.stall_rate) {
            wait += options.stall_length;
        }
        wait
    }

    /// How a call fails, when it is one that does.
    pub(super) fn error(&self, options: &BackendOptions) -> Option<ErrorKind> {
        let fails = self.random.borrow_mut().is_in(options.error_rate);
        fails.then_some(options.error_kind)
    }

    /// How the next request is answered.
    pub(super) fn reply(&self, options: &BackendOptions) -> ReplyKind {
        match options.sse_share {
            None => options.reply,
            Some(share) if self.random.borrow_mut().is_in(share) => ReplyKind::Sse,
            Some(_) => ReplyKind::Json,
        }
    }

    /// How long the whole server will not answer.
    pub(super) fn stall_left(&self, options: &BackendOptions) -> Duration {
        options.stall.map_or(Duration::ZERO, |stall| {
            stall.left(self.started_at.elapsed())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_ends_each_period() {
        let second = Duration::from_secs(1);
        let stall = Stall {
            every: 10 * second,
            length: second,
        };
        for (elapsed_ms, left_ms) in [
            (0, 0),
            (8_999, 0),
            (9_000, 1000),
            (9_999, 1),
            (10_000, 0),
            (29_500, 500),
        ] {
            let left = stall.left(Duration::from_millis(elapsed_ms));
            assert_eq!(left, Duration::from_millis(left_ms), "{elapsed_ms}");
        }
    }

    #[test]
    fn shares_are_kept() {
        let options = BackendOptions {
            error_rate: 0.25,
            sse_share: Some(0.75),
            ..BackendOptions::default()
        };
        let conduct = Conduct::new(Instant::now(), 1, 0);
        let errors = (0..10_000).filter(|_| conduct.error(&options).is_some());
        assert!(errors.count().abs_diff(2500) < 250);
        let streams = (0..10_000).filter(|_| conduct.reply(&options) == ReplyKind::Sse);
        assert!(streams.count().abs_diff(7500) < 250);
    }
}
