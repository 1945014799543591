//! What a run measured: histograms in nanoseconds, counts, and their summary.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::RunOptions;
use crate::client::CallFault;

/// Longest time a histogram tells apart.
const TIME_NS_MAX: u64 = 60_000_000_000;

/// A histogram of times in nanoseconds.
pub(crate) fn histogram(digits: u8) -> Histogram<u64> {
    // Constant bounds, and callers pass 2 or 3 digits.
    #[expect(clippy::expect_used, reason = "the bounds are constant and valid")]
    Histogram::new_with_bounds(1, TIME_NS_MAX, digits).expect("bounds of the histogram")
}

/// Calls that failed for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCount {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: CallFault,
}

/// One shard's measurements.
pub(crate) struct Tally {
    pub(crate) service: Histogram<u64>,
    /// Only at a fixed rate; in a closed loop it is the service time.
    pub(crate) response: Option<Histogram<u64>>,
    /// Only at a fixed rate.
    pub(crate) slip: Option<Histogram<u64>>,
    /// For each session, with few shared ones.
    pub(crate) by_session: Vec<Histogram<u64>>,
    pub(crate) errors: BTreeMap<&'static str, ErrorCount>,
    pub(crate) sent: u64,
    pub(crate) unsent: u64,
    pub(crate) bytes: u64,
    pub(crate) reconnects: u64,
    pub(crate) ended_at: Option<Instant>,
}

impl Tally {
    pub(crate) fn new(is_open_loop: bool, sessions_told: usize) -> Self {
        Self {
            service: histogram(3),
            response: is_open_loop.then(|| histogram(3)),
            slip: is_open_loop.then(|| histogram(3)),
            by_session: (0..sessions_told).map(|_| histogram(2)).collect(),
            errors: BTreeMap::new(),
            sent: 0,
            unsent: 0,
            bytes: 0,
            reconnects: 0,
            ended_at: None,
        }
    }

    pub(crate) fn add_error(&mut self, fault: CallFault) {
        let entry = self.errors.entry(fault.label()).or_insert(ErrorCount {
            count: 0,
            first: fault,
        });
        entry.count += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        merge(&mut self.service, &other.service);
        for (ours, theirs) in [
            (&mut self.response, &other.response),
            (&mut self.slip, &other.slip),
        ] {
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                merge(ours, theirs);
            }
        }
        self.by_session.extend(other.by_session.iter().cloned());
        for (label, error) in &other.errors {
            let entry = self.errors.entry(label).or_insert(ErrorCount {
                count: 0,
                first: error.first,
            });
            entry.count += error.count;
        }
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.bytes += other.bytes;
        self.reconnects += other.reconnects;
        self.ended_at = self.ended_at.max(other.ended_at);
    }

    pub(crate) fn into_report(self, options: &RunOptions, started_at: Instant) -> Report {
        let measured_from = started_at + options.warm_up;
        let ended_at = self.ended_at.unwrap_or(started_at);
        let mut sessions_p50_ns: Vec<u64> = self
            .by_session
            .iter()
            .map(|times| times.value_at_quantile(0.5))
            .collect();
        sessions_p50_ns.sort_unstable();
        Report {
            response: self.response.unwrap_or_else(|| self.service.clone()),
            service: self.service,
            slip: self.slip,
            sessions_p50_ns,
            errors: self.errors,
            sent: self.sent,
            unsent: self.unsent,
            bytes: self.bytes,
            reconnects: self.reconnects,
            rate: options.rate,
            measured: ended_at.saturating_duration_since(measured_from),
        }
    }
}

fn merge(ours: &mut Histogram<u64>, theirs: &Histogram<u64>) {
    // Same bounds, so nothing is out of range.
    let _ = ours.add(theirs);
}

/// What a run measured. Histograms hold successful calls after the warm-up; counts hold all.
#[derive(Debug, Clone)]
pub struct Report {
    /// From the intended start to the last byte, ns.
    pub response: Histogram<u64>,
    /// From the first byte sent (or the connect, with fresh connections) to the last byte, ns.
    pub service: Histogram<u64>,
    /// How late calls started, ns; only at a fixed rate.
    pub slip: Option<Histogram<u64>>,
    /// Median service time of each session, ascending; only with [`super::Pattern::Spread`] and at
    /// most 64 sessions a shard.
    pub sessions_p50_ns: Vec<u64>,
    /// Failed calls, by reason.
    pub errors: BTreeMap<&'static str, ErrorCount>,
    /// Calls sent.
    pub sent: u64,
    /// Calls of the schedule that were not sent, because the run had ended before their turn came.
    pub unsent: u64,
    /// Bytes of all good replies, heads included.
    pub bytes: u64,
    /// Connections opened anew after a fault or because the server closed them.
    pub reconnects: u64,
    /// The rate asked for, calls per second.
    pub rate: Option<f64>,
    /// From the end of the warm-up to the last reply.
    pub measured: Duration,
}

impl Report {
    /// Failed calls.
    pub fn error_count(&self) -> u64 {
        self.errors.values().map(|error| error.count).sum()
    }

    /// Good calls per second after the warm-up.
    pub fn calls_per_s(&self) -> f64 {
        let seconds = self.measured.as_secs_f64();
        if seconds > 0.0 {
            self.service.len() as f64 / seconds
        } else {
            0.0
        }
    }

    /// Whether at least 99 % of the schedule was sent; true in a closed loop.
    pub fn is_honest(&self) -> bool {
        self.unsent * 99 <= self.sent
    }

    /// As one JSON object; times in microseconds.
    pub fn to_json(&self) -> Value {
        let errors: BTreeMap<_, _> = self
            .errors
            .iter()
            .map(|(label, error)| (*label, error.count))
            .collect();
        json!({
            "calls": self.service.len(),
            "calls_per_s": self.calls_per_s(),
            "rate": self.rate,
            "sent": self.sent,
            "unsent": self.unsent,
            "errors": self.error_count(),
            "errors_by_reason": errors,
            "reconnects": self.reconnects,
            "bytes": self.bytes,
            "measured_s": self.measured.as_secs_f64(),
            "response_us": quantiles(&self.response),
            "service_us": quantiles(&self.service),
            "slip_us": self.slip.as_ref().map(quantiles),
        })
    }

    /// As lines for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{} calls in {:.3} s, {:.0} calls/s, {} errors, {} bytes\n",
            self.service.len(),
            self.measured.as_secs_f64(),
            self.calls_per_s(),
            self.error_count(),
            self.bytes,
        );
        if let Some(rate) = self.rate {
            text += &format!(
                "rate {rate} calls/s: {} sent, {} not sent\n",
                self.sent, self.unsent
            );
        }
        text += &format!(
            "{:>9} {:>10} {:>10} {:>10} {:>10} {:>10}   us\n",
            "", "p50", "p90", "p99", "p99.9", "max"
        );
        let rows = [
            ("response", Some(&self.response)),
            ("service", Some(&self.service)),
            ("slip", self.slip.as_ref()),
        ];
        for (name, times) in rows
            .into_iter()
            .filter_map(|(name, times)| Some((name, times?)))
        {
            let at = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
            text += &format!(
                "{name:>9} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}\n",
                at(0.5),
                at(0.9),
                at(0.99),
                at(0.999),
                times.max() as f64 / 1000.0
            );
        }
        for (label, error) in &self.errors {
            text += &format!("error {label}: {} (first: {})\n", error.count, error.first);
        }
        text
    }
}

fn quantiles(times: &Histogram<u64>) -> Value {
    let at = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    json!({
        "mean": times.mean() / 1000.0,
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "p999": at(0.999),
        "max": times.max() as f64 / 1000.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(times: &[u64], faults: &[CallFault]) -> Tally {
        let mut tally = Tally::new(true, 1);
        for time in times {
            tally.service.saturating_record(*time);
            tally.response.as_mut().unwrap().saturating_record(time * 2);
            tally.by_session[0].saturating_record(*time);
        }
        faults.iter().for_each(|fault| tally.add_error(*fault));
        tally.sent = times.len() as u64;
        tally
    }

    #[test]
    fn shards_are_merged_call_by_call() {
        let mut one = tally(&[1000, 3000], &[CallFault::Status(500)]);
        let other = tally(&[2000], &[CallFault::Status(503), CallFault::Timeout]);
        one.merge(&other);
        let report = one.into_report(&RunOptions::default(), Instant::now());
        assert_eq!(report.service.len(), 3);
        assert!(report.response.value_at_quantile(0.5).abs_diff(4000) < 8);
        assert_eq!(report.errors["status"].count, 2);
        assert_eq!(report.errors["status"].first, CallFault::Status(500));
        assert_eq!(report.error_count(), 3);
        assert_eq!(report.sessions_p50_ns.len(), 2);
        let json = report.to_json();
        assert_eq!(json["errors_by_reason"]["timeout"], 1);
        assert_eq!(json["sent"], 3);
        assert!(
            report
                .to_text()
                .contains("error status: 2 (first: HTTP status 500)")
        );
    }

    #[test]
    fn a_schedule_mostly_unsent_is_not_honest() {
        let mut tally = tally(&[1], &[]);
        (tally.sent, tally.unsent) = (99, 1);
        assert!(
            tally
                .into_report(&RunOptions::default(), Instant::now())
                .is_honest()
        );
        let mut tally = self::tally(&[1], &[]);
        (tally.sent, tally.unsent) = (98, 1);
        assert!(
            !tally
                .into_report(&RunOptions::default(), Instant::now())
                .is_honest()
        );
    }
}
