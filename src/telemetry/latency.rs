//! A shard's histograms, microseconds: total time of a call, the backend's part, and ours.

use hdrhistogram::Histogram;

/// Significant decimal digits kept.
const DIGITS: u8 = 3;
/// Highest value told apart, microseconds: ten minutes.
const MICROSECONDS_MAX: u64 = 600_000_000;

/// Histograms of one shard since it started.
#[derive(Debug, Clone)]
pub struct Latency {
    /// From the last byte of the request to the last byte of the answer handed to the kernel.
    pub total: Histogram<u32>,
    /// The backend's part of `total`: from sending to the head of its reply.
    pub upstream: Histogram<u32>,
    /// `total` without `upstream`: what the gateway adds.
    pub overhead: Histogram<u32>,
}

impl Latency {
    /// Empty histograms.
    pub fn new() -> Self {
        // The bounds are constants that the library accepts.
        let empty = || {
            Histogram::new_with_bounds(1, MICROSECONDS_MAX, DIGITS)
                .unwrap_or_else(|_| unreachable!("constant bounds"))
        };
        let mut histograms = Self {
            total: empty(),
            upstream: empty(),
            overhead: empty(),
        };
        for histogram in [
            &mut histograms.total,
            &mut histograms.upstream,
            &mut histograms.overhead,
        ] {
            histogram.auto(true);
        }
        histograms
    }

    /// Records one call.
    pub fn record(&mut self, total_us: u64, upstream_us: u64) {
        self.total.saturating_record(total_us.max(1));
        self.upstream.saturating_record(upstream_us.max(1));
        self.overhead
            .saturating_record(total_us.saturating_sub(upstream_us).max(1));
    }

    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        // Same bounds: adding cannot fail.
        let _ = self.total.add(&other.total);
        let _ = self.upstream.add(&other.upstream);
        let _ = self.overhead.add(&other.overhead);
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_counts() {
        let (mut a, mut b) = (Latency::new(), Latency::new());
        a.record(100, 60);
        b.record(300, 250);
        b.record(0, 0);
        a.add(&b);
        assert_eq!(a.total.len(), 3);
        assert_eq!(a.total.max(), 300);
        assert_eq!(a.overhead.value_at_quantile(1.0), 50);
    }
}
