//! What a run measured: the data behind every report.
//!
//! A [`Recorder`] on each generator shard takes calls in; its [`Recording`] holds, per operation,
//! response and service times as HDR histograms over the run and per interval, and counts. Merging
//! recordings of shards, processes and machines adds histograms bucket by bucket, so percentiles
//! are exact and never averaged. Everything is of the measured time, after the warm-up, but
//! [`Recording::warm_up`].

mod machine;
mod recorder;
mod series;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use machine::{Machine, redacted_command_line, redacted_url};
pub use recorder::{Recorder, Timing};
pub(crate) use series::{COUNT_MAX, add};
pub use series::{DIGITS, Packed, PackedFault, Series, TIME_NS_MAX, histogram};

/// Intervals a recording holds at the most; then they are made twice as long.
pub const INTERVALS_MAX: u32 = 1024;
/// Share of the schedule that must have been sent for the figures to count.
pub const HONEST_SHARE: f64 = 0.99;

/// How calls were started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By a schedule; response times count from the intended start.
    Open,
    /// Each caller after its last reply; response times are service times.
    #[default]
    Closed,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Asked {
    /// The endpoint, without credentials.
    pub target: String,
    /// Open or closed loop.
    pub mode: Mode,
    /// Calls per second of the schedule, where it is one constant rate.
    pub rate: Option<f64>,
    /// Calls in flight at the most, of all machines.
    pub callers: u32,
    /// Seconds before measuring.
    pub warm_up_s: f64,
    /// Everything else worth knowing, by name: pattern, mix, seed, tool, ...
    pub settings: BTreeMap<String, String>,
}

/// Calls of one reason to fail.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ErrorTally {
    /// How many.
    pub count: u64,
    /// What the first one said.
    pub first: String,
}

/// One operation, such as `tools_call`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Operation {
    /// Calls sent.
    pub sent: u64,
    /// Calls of the schedule that were not sent, because the run had ended before their turn came.
    pub unsent: u64,
    /// Bytes of good replies.
    pub bytes: u64,
    /// Failed calls by reason.
    pub errors: BTreeMap<String, ErrorTally>,
    /// From the intended start to the last byte, good calls.
    pub response: Series,
    /// From the first byte sent to the last byte received, good calls.
    pub service: Series,
}

impl Operation {
    /// Good calls.
    pub fn good(&self) -> u64 {
        self.response.whole().len()
    }

    /// Failed calls.
    pub fn error_count(&self) -> u64 {
        self.errors.values().map(|error| error.count).sum()
    }

    fn merge(&mut self, other: &Self, shift: u32) {
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.bytes += other.bytes;
        merge_errors(&mut self.errors, &other.errors);
        self.response.merge(&other.response, shift);
        self.service.merge(&other.service, shift);
    }
}

/// Adds failed calls up; the first of a reason stays the first.
fn merge_errors(ours: &mut BTreeMap<String, ErrorTally>, theirs: &BTreeMap<String, ErrorTally>) {
    for (reason, error) in theirs {
        let entry = ours.entry(reason.clone()).or_insert_with(|| ErrorTally {
            count: 0,
            first: error.first.clone(),
        });
        entry.count += error.count;
    }
}

/// What went in and out during one interval, all operations together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Flow {
    /// Calls whose intended start was in it.
    pub offered: u64,
    /// Calls sent in it.
    pub sent: u64,
    /// Good replies in it.
    pub good: u64,
    /// Calls that failed in it.
    pub errors: u64,
}

impl Flow {
    fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.sent += other.sent;
        self.good += other.good;
        self.errors += other.errors;
    }
}

/// Calls to sessions that one shard of the target owns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Owner {
    /// Sessions opened there.
    pub sessions: u64,
    /// Calls sent.
    pub sent: u64,
    /// Failed calls.
    pub errors: u64,
    /// Response times of good calls.
    pub response: Series,
}

/// One shard of a generator: whether it kept up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GeneratorShard {
    /// Its machine.
    pub host: String,
    /// Its number.
    pub shard: u16,
    /// Core it was pinned to.
    pub cpu: Option<u32>,
    /// Calls it sent.
    pub sent: u64,
    /// Share of the time it was busy, 0 to 1, where known.
    pub busy: Option<f64>,
}

/// One trial at one load: a step of a ramp, or a probe of the search for the highest rate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Step {
    /// Calls per second offered.
    pub rate: f64,
    /// Good replies per second.
    pub good_per_s: f64,
    /// Share of the offered calls that were sent, 0 to 1.
    pub sent_share: f64,
    /// Share of the sent calls that failed, 0 to 1.
    pub error_share: f64,
    /// Median response time, microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Whether the objective was met.
    pub is_met: bool,
    /// Why not, or another remark.
    pub remark: String,
}

/// Outcome of the search for the highest rate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FoundMax {
    /// The objective, as given.
    pub slo: String,
    /// Highest rate that met it.
    pub last_good: Option<f64>,
    /// Lowest rate that did not.
    pub first_bad: Option<f64>,
    /// Rate above which latency grows faster than load.
    pub knee: Option<f64>,
}

/// Something that was to hold, and whether it did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// What was wanted, as `p99 <= 5 ms`.
    pub wanted: String,
    /// What was measured.
    pub measured: String,
    /// Whether it held.
    pub is_met: bool,
}

/// Everything a run measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// What was asked for.
    pub asked: Asked,
    /// Start of the measured time, milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
    /// Length of the measured time, to the last reply, seconds.
    pub measured_s: f64,
    /// Length of an interval, seconds: a power of two.
    pub interval_s: u32,
    /// Calls before the measured time; they are nowhere else.
    pub warm_up: Flow,
    /// By name: `tools_call`, `tools_list`, `initialize`, ...
    pub operations: BTreeMap<String, Operation>,
    /// How late calls were sent; empty in a closed loop.
    pub slip: Series,
    /// How late calls were sent although a caller was free, the warm-up's too: the generator's own
    /// part of the slip. The first interval stands for the whole run.
    pub lag: Series,
    /// By interval.
    pub flow: Vec<Flow>,
    /// By shard of the target, as far as the generator can tell.
    pub owners: BTreeMap<u16, Owner>,
    /// Connections opened anew after a fault or because the server closed them.
    pub reconnects: u64,
    /// The generator's own shards.
    pub generators: Vec<GeneratorShard>,
    /// The generator's machines.
    pub machines: Vec<Machine>,
    /// Steps of a ramp or a search.
    pub steps: Vec<Step>,
    /// Of a search.
    pub found_max: Option<FoundMax>,
    /// What had to hold.
    pub verdicts: Vec<Verdict>,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            asked: Asked::default(),
            started_unix_ms: 0,
            measured_s: 0.0,
            interval_s: 1,
            warm_up: Flow::default(),
            operations: BTreeMap::new(),
            slip: Series::default(),
            lag: Series::default(),
            flow: Vec::new(),
            owners: BTreeMap::new(),
            reconnects: 0,
            generators: Vec::new(),
            machines: Vec::new(),
            steps: Vec::new(),
            found_max: None,
            verdicts: Vec::new(),
        }
    }
}

impl Recording {
    /// Adds what another shard, process or machine recorded. Exact: the result is what one
    /// recorder of all calls would hold. Starts apart are kept apart, to the interval.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        if self.is_empty() {
            self.started_unix_ms = other.started_unix_ms;
            self.interval_s = self.interval_s.max(other.interval_s);
        }
        let interval_s = self.interval_s.max(other.interval_s);
        self.widen_to(interval_s);
        other.widen_to(interval_s);
        let first = self.started_unix_ms.min(other.started_unix_ms);
        let mut shifts = [&*self, &other].map(|one| one.intervals_after(first));
        let mut end = shifts[0] + self.flow.len() as u64;
        end = end.max(shifts[1] + other.flow.len() as u64);
        while end > u64::from(INTERVALS_MAX) {
            let wider = self.interval_s.saturating_mul(2);
            self.widen_to(wider);
            other.widen_to(wider);
            shifts = [&*self, &other].map(|one| one.intervals_after(first));
            end = (shifts[0] + self.flow.len() as u64).max(shifts[1] + other.flow.len() as u64);
        }
        // Both fit below INTERVALS_MAX now.
        let [ours, theirs] = shifts.map(|shift| shift as u32);
        self.shift(ours);
        self.measured_s = self.end_s(first).max(other.end_s(first));
        self.started_unix_ms = first;
        self.take_in(other, theirs);
    }

    /// Milliseconds from `first` to the start, in whole intervals.
    fn intervals_after(&self, first: u64) -> u64 {
        let interval_ms = u64::from(self.interval_s) * 1000;
        (self.started_unix_ms.saturating_sub(first) + interval_ms / 2) / interval_ms
    }

    fn end_s(&self, first: u64) -> f64 {
        self.started_unix_ms.saturating_sub(first) as f64 / 1000.0 + self.measured_s
    }

    fn shift(&mut self, by: u32) {
        if by == 0 {
            return;
        }
        let empty = Self::default();
        let ours = std::mem::replace(self, empty);
        self.interval_s = ours.interval_s;
        self.started_unix_ms = ours.started_unix_ms;
        self.measured_s = ours.measured_s;
        self.take_in(ours, by);
    }

    /// Adds the other's contents, its intervals moved by `shift`.
    fn take_in(&mut self, other: Self, shift: u32) {
        self.asked.merge(other.asked);
        self.warm_up.add(&other.warm_up);
        for (name, operation) in &other.operations {
            let ours = self.operations.entry(name.clone()).or_default();
            ours.merge(operation, shift);
        }
        self.slip.merge(&other.slip, shift);
        self.lag.merge(&other.lag, 0);
        let length = shift as usize + other.flow.len();
        if self.flow.len() < length {
            self.flow.resize(length, Flow::default());
        }
        for (ours, theirs) in self.flow[shift as usize..].iter_mut().zip(&other.flow) {
            ours.add(theirs);
        }
        for (shard, owner) in &other.owners {
            let ours = self.owners.entry(*shard).or_default();
            ours.sessions += owner.sessions;
            ours.sent += owner.sent;
            ours.errors += owner.errors;
            ours.response.merge(&owner.response, shift);
        }
        self.reconnects += other.reconnects;
        self.generators.extend(other.generators);
        for machine in other.machines {
            if !self.machines.contains(&machine) {
                self.machines.push(machine);
            }
        }
        self.steps.extend(other.steps);
        self.found_max = self.found_max.take().or(other.found_max);
        for verdict in other.verdicts {
            // What held everywhere is said once.
            if !self.verdicts.contains(&verdict) {
                self.verdicts.push(verdict);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.flow.is_empty() && self.operations.is_empty()
    }

    /// Makes intervals `interval_s` long, a multiple of what they are.
    fn widen_to(&mut self, interval_s: u32) {
        let factor = interval_s / self.interval_s;
        if factor <= 1 {
            return;
        }
        self.interval_s = interval_s;
        let operations = self.operations.values_mut();
        for operation in operations {
            operation.response.widen(factor);
            operation.service.widen(factor);
        }
        for owner in self.owners.values_mut() {
            owner.response.widen(factor);
        }
        self.slip.widen(factor);
        self.flow = widened(&self.flow, factor);
    }

    /// Response times of all operations together.
    pub fn response(&self) -> Histogram<u64> {
        sum(self.operations.values().map(|one| one.response.whole()))
    }

    /// Service times of all operations together.
    pub fn service(&self) -> Histogram<u64> {
        sum(self.operations.values().map(|one| one.service.whole()))
    }

    /// Calls sent.
    pub fn sent(&self) -> u64 {
        self.operations.values().map(|one| one.sent).sum()
    }

    /// Calls of the schedule; in a closed loop what was sent.
    pub fn offered(&self) -> u64 {
        let unsent: u64 = self.operations.values().map(|one| one.unsent).sum();
        self.sent() + unsent
    }

    /// Good calls.
    pub fn good(&self) -> u64 {
        self.operations.values().map(Operation::good).sum()
    }

    /// Failed calls.
    pub fn error_count(&self) -> u64 {
        self.operations.values().map(Operation::error_count).sum()
    }

    /// Failed calls by reason, over all operations.
    pub fn errors(&self) -> BTreeMap<String, ErrorTally> {
        let mut all = BTreeMap::new();
        for operation in self.operations.values() {
            merge_errors(&mut all, &operation.errors);
        }
        all
    }

    /// Share of the sent calls that failed, 0 to 1.
    pub fn error_share(&self) -> f64 {
        share(self.error_count(), self.sent()).unwrap_or(0.0)
    }

    /// Share of the schedule that was sent, 0 to 1.
    pub fn sent_share(&self) -> f64 {
        share(self.sent(), self.offered()).unwrap_or(1.0)
    }

    /// Whether at least 99 % of the schedule was sent; true in a closed loop.
    pub fn is_honest(&self) -> bool {
        self.sent_share() >= HONEST_SHARE
    }

    /// Good calls per second.
    pub fn good_per_s(&self) -> f64 {
        if self.measured_s > 0.0 {
            self.good() as f64 / self.measured_s
        } else {
            0.0
        }
    }
}

impl Asked {
    /// Several generators at one target: their callers and rates add up.
    fn merge(&mut self, other: Self) {
        if self.target.is_empty() {
            *self = other;
            return;
        }
        self.callers += other.callers;
        self.rate = self
            .rate
            .zip(other.rate)
            .map(|(ours, theirs)| ours + theirs);
        for (name, value) in other.settings {
            self.settings.entry(name).or_insert(value);
        }
    }
}

/// The sum of histograms.
pub(crate) fn sum<'a>(all: impl Iterator<Item = &'a Histogram<u64>>) -> Histogram<u64> {
    let mut sum = histogram();
    all.for_each(|times| add(&mut sum, times));
    sum
}

fn widened(flow: &[Flow], factor: u32) -> Vec<Flow> {
    let together = |several: &[Flow]| {
        let mut sum = Flow::default();
        several.iter().for_each(|one| sum.add(one));
        sum
    };
    flow.chunks(factor as usize).map(together).collect()
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
