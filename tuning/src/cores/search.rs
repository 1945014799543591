//! The search for the highest rate that keeps an objective: doubling, then halving the distance.
//! Knows nothing of how a rate is tried.

/// Where the search stands.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    next: Option<f64>,
    good: Option<f64>,
    bad: Option<f64>,
    tries_left: u32,
    precision: f64,
}

/// Below this a rate is no load.
const RATE_MIN: f64 = 1.0;

impl Search {
    /// Starts at a rate. Ends when good and bad are closer than `precision`, a factor above 1, or
    /// after `tries`.
    pub(crate) fn new(start: f64, precision: f64, tries: u32) -> Self {
        Self {
            next: Some(start.max(RATE_MIN)),
            good: None,
            bad: None,
            tries_left: tries,
            precision: precision.max(1.001),
        }
    }

    /// The rate to try; none when the search has ended.
    pub(crate) fn next(&self) -> Option<f64> {
        self.next.filter(|_| self.tries_left > 0)
    }

    /// What came of it.
    pub(crate) fn told(&mut self, rate: f64, is_met: bool) {
        self.tries_left = self.tries_left.saturating_sub(1);
        if is_met {
            self.good = Some(self.good.map_or(rate, |good| good.max(rate)));
            // A rate that was bad once and lies below is an outlier.
            self.bad = self.bad.filter(|bad| *bad > rate);
        } else {
            self.bad = Some(self.bad.map_or(rate, |bad| bad.min(rate)));
            self.good = self.good.filter(|good| *good < rate);
        }
        self.next = match (self.good, self.bad) {
            (Some(good), None) => Some(good * 2.0),
            (None, Some(bad)) => Some(bad / 2.0).filter(|rate| *rate >= RATE_MIN),
            (Some(good), Some(bad)) if bad / good > self.precision => Some((good * bad).sqrt()),
            _ => None,
        };
    }

    /// The highest rate that was met.
    pub(crate) fn last_good(&self) -> Option<f64> {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(capacity: f64, start: f64, tries: u32) -> (Search, u32) {
        let mut search = Search::new(start, 1.05, tries);
        let mut count = 0;
        while let Some(rate) = search.next() {
            count += 1;
            search.told(rate, rate <= capacity);
        }
        (search, count)
    }

    proptest! {
        #[test]
        fn the_capacity_is_found_to_the_precision(
            capacity in 10.0_f64..1e6,
            start in 1.0_f64..1e6,
        ) {
            let (search, count) = found(capacity, start, 60);
            let (good, bad) = (search.last_good().unwrap(), search.bad.unwrap());
            prop_assert!(good <= capacity && capacity < bad);
            prop_assert!(bad / good <= 1.05);
            prop_assert!(count <= 30);
        }
    }

    #[test]
    fn tries_are_bounded_and_nothing_may_be_good() {
        assert_eq!(found(1e6, 1.0, 4).1, 4);
        let (search, _) = found(0.0, 100.0, 60);
        assert_eq!(search.last_good(), None);
    }

    #[test]
    fn a_single_outlier_does_not_end_the_search_below() {
        let mut search = Search::new(100.0, 1.05, 20);
        search.told(100.0, false);
        assert_eq!(search.next(), Some(50.0));
        search.told(50.0, true);
        search.told(120.0, true);
        assert_eq!(search.next(), Some(240.0));
    }
}
