//! How soon what keeps failing is tried again: a server is started, a gateway connected to. Pure:
//! time is given.

use std::time::{Duration, Instant};

/// What lived at least this long did not fail by being started.
const STEADY: Duration = Duration::from_secs(10);
/// First and longest pause; the first failure in a row costs none.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The failures in a row of one server or connection.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Backoff {
    failures: u32,
    not_before: Option<Instant>,
}

impl Backoff {
    /// It could not be started, or ended by itself after `lived`.
    pub(crate) fn failed(&mut self, now: Instant, lived: Duration) {
        self.failures = if lived >= STEADY {
            1
        } else {
            self.failures.saturating_add(1)
        };
        self.not_before = self.pause().map(|pause| now + pause);
    }

    fn pause(&self) -> Option<Duration> {
        let doublings = self.failures.checked_sub(2)?;
        let pause = PAUSE.0.saturating_mul(1 << doublings.min(10));
        Some(pause.min(PAUSE.1))
    }

    /// How long to wait before the next attempt.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.not_before
            .map_or(Duration::ZERO, |then| then.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_a_steady_life_ends_them() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            backoff.failed(now, Duration::ZERO);
            waits.push(backoff.wait(now).as_millis());
        }
        assert_eq!(waits, [0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert_eq!(backoff.wait(now + PAUSE.1), Duration::ZERO);
        backoff.failed(now, STEADY);
        assert_eq!(backoff.wait(now), Duration::ZERO);
    }
}
