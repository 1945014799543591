//! Fail-fast for a target that fails: closed, open for a while, then one probe at a time.

use std::cell::Cell;

/// Failures in a row that open it.
const FAILURES_MAX: u32 = 3;
/// First and longest time it stays open, ms; doubled from one to the other.
const OPEN_MS: (u64, u64) = (1_000, 30_000);

/// The state of one target. Counts only failures of the target itself: connect, first byte.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: Cell<u32>,
    open_until_ms: Cell<u64>,
    open_ms: Cell<u64>,
    is_probing: Cell<bool>,
}

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The target is asked.
    Closed,
    /// The next attempt, or one under way, decides.
    HalfOpen,
    /// The target is not asked.
    Open,
}

impl State {
    /// Short name for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

impl Breaker {
    /// Whether an attempt may be made at `now_ms`. When it has been open for its time, this lets
    /// one attempt through and stays open for the others.
    pub fn admit(&self, now_ms: u64) -> bool {
        // Closed → closed
        if self.failures.get() < FAILURES_MAX {
            return true;
        }
        // Open → open
        if now_ms < self.open_until_ms.get() {
            return false;
        }
        // Open → probing: the next attempt is due only after this one had its time.
        self.open_until_ms.set(now_ms + self.open_ms.get());
        self.is_probing.set(true);
        true
    }

    /// An attempt succeeded. (any → Closed)
    pub fn succeeded(&self) {
        self.failures.set(0);
        self.open_ms.set(0);
        self.is_probing.set(false);
    }

    /// An attempt failed at `now_ms`. (Closed → Closed | Open; probing → Open, for longer)
    pub fn failed(&self, now_ms: u64) {
        // Open → open: attempts that began together fail together, which is one failure's news.
        if self.is_open(now_ms) && !self.is_probing.replace(false) {
            return;
        }
        let failures = self.failures.get().saturating_add(1);
        self.failures.set(failures);
        if failures >= FAILURES_MAX {
            let open_ms = (self.open_ms.get() * 2).clamp(OPEN_MS.0, OPEN_MS.1);
            self.open_ms.set(open_ms);
            self.open_until_ms.set(now_ms + open_ms);
        }
    }

    /// Where it stands at `now_ms`.
    pub fn state(&self, now_ms: u64) -> State {
        if self.failures.get() < FAILURES_MAX {
            State::Closed
        } else if self.is_probing.get() || now_ms >= self.open_until_ms.get() {
            State::HalfOpen
        } else {
            State::Open
        }
    }

    /// Whether it is open at `now_ms`.
    pub fn is_open(&self, now_ms: u64) -> bool {
        self.failures.get() >= FAILURES_MAX && now_ms < self.open_until_ms.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_probes_and_closes() {
        let breaker = Breaker::default();
        for now in 0..3 {
            assert!(breaker.admit(now));
            breaker.failed(now);
        }
        assert!(!breaker.admit(10) && breaker.is_open(10));
        assert_eq!(breaker.state(10), State::Open);
        assert_eq!(breaker.state(1_002), State::HalfOpen);
        assert!(breaker.admit(1_002), "its time is over: one probe");
        assert_eq!(breaker.state(1_003), State::HalfOpen);
        assert!(!breaker.admit(1_003), "only one");
        breaker.failed(1_500);
        assert_eq!(breaker.state(1_500), State::Open);
        assert!(!breaker.admit(3_000), "open for twice as long");
        assert!(breaker.admit(3_500));
        breaker.succeeded();
        assert_eq!(breaker.state(3_501), State::Closed);
        assert!(breaker.admit(3_501) && breaker.admit(3_502));
    }

    #[test]
    fn the_pause_is_bounded() {
        let breaker = Breaker::default();
        let mut now = 0;
        for _ in 0..50 {
            breaker.failed(now);
            now += 100_000;
        }
        breaker.failed(now);
        assert!(!breaker.admit(now + 29_999) && breaker.admit(now + 30_000));
    }

    #[test]
    fn attempts_that_fail_together_open_it_for_the_shortest_time() {
        let breaker = Breaker::default();
        for _ in 0..100 {
            breaker.failed(5);
        }
        assert!(!breaker.admit(1_004) && breaker.admit(1_005));
        breaker.failed(1_010);
        breaker.failed(1_010);
        assert!(!breaker.admit(3_009) && breaker.admit(3_010));
    }
}
