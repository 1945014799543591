//! What one shard measures.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::RunOptions;
use crate::{
    affinity::Violation,
    record::{Recorder, histogram},
};

/// Violations a shard keeps; beyond these it counts them.
const VIOLATIONS_MAX: usize = 100;

/// A histogram of sessions, of which there may be many: two digits, up to 60 s.
fn small_histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constant and valid")]
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("bounds of the histogram")
}

/// One shard's measurements.
pub(crate) struct Tally {
    pub(crate) recorder: Recorder,
    /// How late calls were sent although a caller was free: the generator's own fault.
    pub(crate) lag: Option<Histogram<u64>>,
    /// First byte of replies that are event streams, from when the request was sent.
    pub(crate) first_byte: Option<Histogram<u64>>,
    /// Between the events of a GET stream.
    pub(crate) stream_gap: Option<Histogram<u64>>,
    pub(crate) stream_events: u64,
    /// Service times of each session, with few shared ones.
    pub(crate) by_session: Vec<Histogram<u64>>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) violation_count: u64,
    /// Replies that came and were not what they had to be.
    pub(crate) wrong: u64,
    pub(crate) sent: u64,
    pub(crate) busy: Option<f64>,
}

impl Tally {
    pub(crate) fn new(options: &RunOptions, is_open_loop: bool, sessions_told: usize) -> Self {
        Self {
            recorder: Recorder::new(is_open_loop, options.warm_up),
            lag: is_open_loop.then(histogram),
            first_byte: None,
            stream_gap: None,
            stream_events: 0,
            by_session: (0..sessions_told).map(|_| small_histogram()).collect(),
            violations: Vec::new(),
            violation_count: 0,
            wrong: 0,
            sent: 0,
            busy: None,
        }
    }

    pub(crate) fn add_violation(&mut self, violation: Violation) {
        self.violation_count += 1;
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(violation);
        }
    }
}

/// Records a time into a histogram that most runs do not need.
pub(crate) fn record(times: &mut Option<Histogram<u64>>, time: Duration) {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    times.get_or_insert_with(histogram).saturating_record(ns);
}

/// Adds what another shard recorded.
pub(crate) fn merge(ours: &mut Option<Histogram<u64>>, theirs: Option<Histogram<u64>>) {
    match (ours, theirs) {
        (_, None) => {}
        (Some(ours), Some(theirs)) => crate::record::add(ours, &theirs),
        (ours, theirs) => *ours = theirs,
    }
}
