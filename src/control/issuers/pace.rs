//! How often an unknown key may have an issuer asked: a few times at once, then now and then.

use std::time::Duration;

use tokio::time::Instant;

/// Attempts that may follow one another at once: a rotation takes one or two.
const BURST: u32 = 4;
/// What brings one attempt back.
const REFILL: Duration = Duration::from_secs(15);

/// The attempts one issuer has left.
#[derive(Debug)]
pub(super) struct Pace {
    left: u32,
    counted: Instant,
}

impl Pace {
    /// With all attempts.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            counted: now,
        }
    }

    /// Whether one more may be made now; takes it.
    pub(super) fn may(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.counted);
        let back = u32::try_from(since.as_secs() / REFILL.as_secs()).unwrap_or(u32::MAX);
        if self.left.saturating_add(back) >= BURST {
            self.left = BURST;
            self.counted = now;
        } else {
            self.left += back;
            self.counted += REFILL * back;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_at_once_and_then_one_in_a_while() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert!(pace.may(start));
        }
        assert!(!pace.may(start));
        assert!(!pace.may(start + REFILL - Duration::from_secs(1)));
        assert!(pace.may(start + REFILL));
        assert!(!pace.may(start + REFILL));
        // What was not used does not add up.
        let late = start + REFILL * 100;
        let made = (0..20).filter(|_| pace.may(late)).count();
        assert_eq!(made, BURST as usize);
    }

    #[test]
    fn a_steady_stream_gets_one_attempt_a_refill() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let minute = (0..60u64).filter(|second| pace.may(start + Duration::from_secs(*second)));
        assert_eq!(minute.count(), BURST as usize + 3);
    }
}
