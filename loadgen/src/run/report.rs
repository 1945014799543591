//! What a run measured, ready to be judged and shown.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use shards::DriverKind;

use super::{
    Rhythm, RunOptions,
    tally::{Tally, merge},
};
use crate::{
    affinity::Violation,
    arrivals::{Arrivals, Shape},
    record::{Asked, ErrorTally, GeneratorShard, Machine, Mode, Recording, redacted_url},
};

/// Share of its core above which a shard of the generator was the limit.
const BUSY_SHARE_MAX: f64 = 0.95;
/// Calls of which one in a hundred can be told.
const LAG_CALLS_MIN: u64 = 100;
/// Lateness of a call with a free caller above which the generator was the limit.
const LAG_MAX: Duration = Duration::from_millis(10);

/// What a run measured. Histograms hold successful calls after the warm-up.
#[derive(Debug, Clone)]
pub struct Report {
    /// Everything, per operation, interval and owner.
    pub recording: Recording,
    /// From the intended start to the last byte, ns; of all operations.
    pub response: Histogram<u64>,
    /// From the first byte sent (or the connect, with fresh connections) to the last byte, ns.
    pub service: Histogram<u64>,
    /// How late calls started, ns; only with a schedule.
    pub slip: Option<Histogram<u64>>,
    /// How late calls started although a caller was free, ns; only with a schedule.
    pub lag: Option<Histogram<u64>>,
    /// First byte of replies that were event streams, first line of exchanges, ns; from the
    /// request.
    pub first_byte: Option<Histogram<u64>>,
    /// Between the events of GET streams, ns.
    pub stream_gap: Option<Histogram<u64>>,
    /// Events of GET streams.
    pub stream_events: u64,
    /// Median service time of each session, ascending; only with shared connections and at most 64
    /// sessions a shard.
    pub sessions_p50_ns: Vec<u64>,
    /// Failed calls after the warm-up, by reason.
    pub errors: BTreeMap<String, ErrorTally>,
    /// Calls of the mix that were sent, the warm-up's included.
    pub sent: u64,
    /// Calls of the schedule that were not sent, because the run had ended before their turn came.
    pub unsent: u64,
    /// Bytes of all good replies, heads included.
    pub bytes: u64,
    /// Connections opened anew after a fault or because the server closed them.
    pub reconnects: u64,
    /// The rate asked for, calls per second; the highest, of a shape.
    pub rate: Option<f64>,
    /// From the end of the warm-up to the last reply.
    pub measured: Duration,
    /// Numbers that did not follow; the first hundred of each shard.
    pub violations: Vec<Violation>,
    /// How many there were.
    pub violation_count: u64,
    /// Replies that came and were not what they had to be.
    pub wrong_count: u64,
    /// Whether the clients of sessions counted.
    pub has_counter: bool,
    /// What `first_byte` is called.
    first_name: &'static str,
}

impl Report {
    pub(super) fn new(
        options: &RunOptions,
        shape: Option<&Shape>,
        driver: DriverKind,
        started_unix_ms: u64,
        tallies: Vec<Tally>,
    ) -> Self {
        let mut recording = Recording::default();
        let (mut lag, mut first_byte, mut stream_gap) = (None, None, None);
        let (mut stream_events, mut violation_count, mut wrong_count) = (0, 0, 0);
        let (mut by_session, mut violations) = (Vec::new(), Vec::new());
        let (mut sent, mut generators) = (0, Vec::new());
        let host = Machine::here().host;
        for (shard, tally) in (0_u16..).zip(tallies) {
            recording.merge(&tally.recorder.finish(started_unix_ms));
            merge(&mut lag, tally.lag);
            merge(&mut first_byte, tally.first_byte);
            merge(&mut stream_gap, tally.stream_gap);
            by_session.extend(tally.by_session);
            violations.extend(tally.violations);
            stream_events += tally.stream_events;
            violation_count += tally.violation_count;
            wrong_count += tally.wrong;
            sent += tally.sent;
            let cpu = options.cpus.as_ref().and_then(|cpus| {
                let index = usize::from(shard).checked_rem(cpus.len())?;
                u32::try_from(cpus[index]).ok()
            });
            generators.push(GeneratorShard {
                host: host.clone(),
                shard,
                cpu,
                sent: tally.sent,
                busy: tally.busy,
            });
        }
        let is_used = |operation: &crate::record::Operation| operation.sent + operation.unsent > 0;
        recording
            .operations
            .retain(|_, operation| is_used(operation));
        recording.generators = generators;
        recording.asked = asked(options, shape);
        recording.machines = vec![Machine {
            shards: options.shards,
            pinned: options.cpus.clone(),
            driver: driver.to_string(),
            ..Machine::here()
        }];
        if let Some(lag) = &lag {
            recording.lag.add(0, lag);
        }
        let mut sessions_p50_ns: Vec<u64> = by_session
            .iter()
            .map(|times| times.value_at_quantile(0.5))
            .collect();
        sessions_p50_ns.sort_unstable();
        let offered = recording.offered();
        Self {
            response: recording.response(),
            service: recording.service(),
            slip: shape.map(|_| recording.slip.whole().clone()),
            lag,
            first_byte,
            stream_gap,
            stream_events,
            sessions_p50_ns,
            errors: recording.errors(),
            sent,
            unsent: offered - recording.sent(),
            bytes: recording.operations.values().map(|one| one.bytes).sum(),
            reconnects: recording.reconnects,
            rate: shape.map(Shape::peak),
            measured: Duration::try_from_secs_f64(recording.measured_s).unwrap_or_default(),
            violations,
            violation_count,
            wrong_count,
            has_counter: options.has_counter(),
            first_name: match options.exchange {
                Some(_) => "first line",
                None => "first byte",
            },
            recording,
        }
    }

    /// Failed calls, the warm-up's included.
    pub fn error_count(&self) -> u64 {
        self.recording.error_count() + self.recording.warm_up.errors
    }

    /// Good calls per second after the warm-up.
    pub fn calls_per_s(&self) -> f64 {
        self.recording.good_per_s()
    }

    /// Whether at least 99 % of the schedule was sent; true in a closed loop.
    pub fn is_honest(&self) -> bool {
        self.recording.is_honest()
    }

    /// Why the generator itself, and not what it called, was the limit.
    pub fn own_limit(&self) -> Option<String> {
        let busiest = self
            .recording
            .generators
            .iter()
            .filter_map(|shard| shard.busy)
            .fold(0.0, f64::max);
        if busiest > BUSY_SHARE_MAX {
            return Some(format!(
                "a shard of the generator was busy {:.0} % of the time: give it more (--shards) \
                 or its own cores (--cpu-list)",
                busiest * 100.0
            ));
        }
        let lag = self.lag.as_ref()?;
        if lag.len() < LAG_CALLS_MIN {
            return None;
        }
        let lag_ns = lag.value_at_quantile(0.99);
        (u128::from(lag_ns) > LAG_MAX.as_nanos()).then(|| {
            format!(
                "one call in a hundred was sent {} late although a caller was free: the machine \
                 is too busy",
                crate::units::show_ns(lag_ns)
            )
        })
    }

    /// As one JSON object; times in microseconds.
    pub fn to_json(&self) -> Value {
        let errors: BTreeMap<_, _> = self
            .errors
            .iter()
            .map(|(label, error)| (label, error.count))
            .collect();
        let operations: BTreeMap<_, _> = self
            .recording
            .operations
            .iter()
            .map(|(name, operation)| {
                let value = json!({
                    "sent": operation.sent,
                    "unsent": operation.unsent,
                    "errors": operation.error_count(),
                    "response_us": quantiles(operation.response.whole()),
                    "service_us": quantiles(operation.service.whole()),
                });
                (name, value)
            })
            .collect();
        json!({
            "calls": self.service.len(),
            "calls_per_s": self.calls_per_s(),
            "rate": self.rate,
            "sent": self.sent,
            "unsent": self.unsent,
            "sent_share": self.recording.sent_share(),
            "errors": self.error_count(),
            "errors_by_reason": errors,
            "violations": self.violation_count,
            "reconnects": self.reconnects,
            "bytes": self.bytes,
            "measured_s": self.measured.as_secs_f64(),
            "response_us": quantiles(&self.response),
            "service_us": quantiles(&self.service),
            "slip_us": self.slip.as_ref().map(quantiles),
            "lag_us": self.lag.as_ref().map(quantiles),
            "first_byte_us": self.first_byte.as_ref().map(quantiles),
            "stream_gap_us": self.stream_gap.as_ref().map(quantiles),
            "stream_events": self.stream_events,
            "operations": operations,
            "generator_busy": self.recording.generators.iter()
                .map(|shard| shard.busy).collect::<Vec<_>>(),
            "generator_limit": self.own_limit(),
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
            "{:>20} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            "us", "calls", "p50", "p90", "p99", "p99.9", "max"
        );
        let operations = &self.recording.operations;
        if operations.len() > 1 {
            for (name, operation) in operations {
                text += &row(name, operation.response.whole());
            }
        }
        let rows = [
            ("response", Some(&self.response)),
            ("service", Some(&self.service)),
            ("slip", self.slip.as_ref()),
            ("generator's own lag", self.lag.as_ref()),
            (self.first_name, self.first_byte.as_ref()),
            ("stream gap", self.stream_gap.as_ref()),
        ];
        for (name, times) in rows {
            text += &times.map_or_else(String::new, |times| row(name, times));
        }
        if self.recording.owners.len() > 1 {
            text += &self.owners_text();
        }
        for (label, error) in &self.errors {
            text += &format!("error {label}: {} (first: {})\n", error.count, error.first);
        }
        for violation in self.violations.iter().take(10) {
            text += &format!("affinity: {violation}\n");
        }
        if self.violation_count > 10 {
            text += &format!("affinity: {} in all\n", self.violation_count);
        }
        if let Some(limit) = self.own_limit() {
            text += &format!("note: {limit}\n");
        }
        text
    }

    /// The share of each of the target's shards.
    fn owners_text(&self) -> String {
        let owners = &self.recording.owners;
        let all: u64 = owners.values().map(|owner| owner.sent).sum();
        let shares = owners.iter().map(|(shard, owner)| {
            let share = owner.sent as f64 * 100.0 / all.max(1) as f64;
            format!(
                "shard {shard}: {share:.1} % of calls, {} sessions",
                owner.sessions
            )
        });
        let shares: Vec<_> = shares.collect();
        format!("owners: {}\n", shares.join("; "))
    }
}

fn asked(options: &RunOptions, shape: Option<&Shape>) -> Asked {
    let mut settings = BTreeMap::new();
    let mut set = |name: &str, value: String| settings.insert(name.to_owned(), value);
    set("connections", options.pattern.name().to_owned());
    set("seed", options.seed.to_string());
    if let Some(exchange) = &options.exchange {
        set("clients_at", redacted_url(&exchange.clients_at));
        set("chunks", exchange.chunks.to_string());
        set("chunk_bytes", exchange.chunk_bytes.to_string());
        if exchange.heartbeats > 0.0 {
            set("heartbeats", exchange.heartbeats.to_string());
        }
    } else {
        set("era", options.era.name().to_owned());
    }
    let mix: Vec<_> = options
        .operations()
        .iter()
        .map(|operation| format!("{}={}", operation.name, operation.weight))
        .collect();
    set("mix", mix.join(","));
    if options.arrivals == Arrivals::Poisson {
        set("arrivals", "poisson".to_owned());
    }
    if options.rhythm == Rhythm::Agent {
        set("profile", "agent".to_owned());
    }
    if !options.think.is_none() {
        set("think", options.think.to_string());
    }
    if let Some(sessions) = options.sessions {
        set("sessions", sessions.to_string());
    }
    if let Some(life) = options.session_life {
        set("session_life", life.to_string());
    }
    if let Some(shards) = options.target_shards {
        set("target_shards", shards.to_string());
    }
    if options.streams > 0 {
        set("streams", options.streams.to_string());
    }
    Asked {
        target: redacted_url(&options.url),
        mode: if shape.is_some() {
            Mode::Open
        } else {
            Mode::Closed
        },
        rate: options.rate.filter(|_| options.shape.is_none()),
        callers: options.connections,
        warm_up_s: options.warm_up.as_secs_f64(),
        settings,
    }
}

fn row(name: &str, times: &Histogram<u64>) -> String {
    let at = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    format!(
        "{name:>20} {:>9} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}\n",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        times.max() as f64 / 1000.0
    )
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
    use crate::record::Timing;

    fn tally(open_loop: bool, times_ms: &[u64], unsent: u64) -> Tally {
        let mut tally = Tally::new(&RunOptions::default(), open_loop, 1);
        let operation = tally.recorder.operation("tools/call");
        let ms = Duration::from_millis;
        for time in times_ms {
            let timing = Timing {
                intended: ms(0),
                sent: ms(1),
                done: ms(1 + time),
            };
            tally.recorder.good(operation, None, timing, 100);
            tally.by_session[0].saturating_record(time * 1_000_000);
            tally.sent += 1;
        }
        for _ in 0..unsent {
            tally.recorder.unsent(operation, ms(5));
        }
        tally
    }

    fn report(tallies: Vec<Tally>) -> Report {
        let shape = Shape::ramp(1.0, 1.0, Duration::from_secs(1));
        let options = RunOptions::default();
        Report::new(&options, Some(&shape), DriverKind::Epoll, 0, tallies)
    }

    #[test]
    fn shards_are_merged_call_by_call() {
        let mut one = tally(true, &[10, 30], 0);
        let timing = Timing {
            intended: Duration::ZERO,
            sent: Duration::ZERO,
            done: Duration::from_millis(1),
        };
        let text = || "HTTP status 500".to_owned();
        let operation = one.recorder.operation("tools/call");
        one.recorder.failed(operation, None, timing, "status", text);
        let report = report(vec![one, tally(true, &[20], 0)]);
        assert_eq!(report.service.len(), 3);
        let p50 = report.response.value_at_quantile(0.5);
        assert!(p50.abs_diff(21_000_000) < 21_000, "{p50}");
        assert_eq!(
            (report.error_count(), report.errors["status"].count),
            (1, 1)
        );
        assert_eq!(report.sessions_p50_ns.len(), 2);
        let json = report.to_json();
        assert_eq!(json["errors_by_reason"]["status"], 1);
        assert_eq!(json["operations"]["tools_call"]["sent"], 4);
        let text = report.to_text();
        assert!(
            text.contains("error status: 1 (first: HTTP status 500)"),
            "{text}"
        );
    }

    #[test]
    fn a_schedule_mostly_unsent_is_not_honest() {
        let calls = vec![1; 99];
        assert!(report(vec![tally(true, &calls, 1)]).is_honest());
        assert!(!report(vec![tally(true, &calls, 2)]).is_honest());
    }

    #[test]
    fn a_generator_that_is_late_says_so() {
        let mut late = tally(true, &[1], 0);
        assert_eq!(report(vec![tally(true, &[1], 0)]).own_limit(), None);
        if let Some(lag) = &mut late.lag {
            (0..100).for_each(|_| lag.saturating_record(20_000_000));
        }
        assert!(
            report(vec![late])
                .own_limit()
                .unwrap()
                .contains("20.0 ms late")
        );
        let mut busy = tally(true, &[1], 0);
        busy.busy = Some(0.99);
        assert!(report(vec![busy]).own_limit().unwrap().contains("99 %"));
    }
}
