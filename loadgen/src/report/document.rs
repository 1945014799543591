//! `report.json`: a summary with a versioned schema, for people, scripts and CI.
//!
//! `docs/loadgen-report.schema.json` describes it. Members may be added within a version; none is
//! removed or changes its meaning. Times are microseconds, from histograms of nanoseconds.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::utc::utc;
use crate::record::{
    Asked, COUNT_MAX, ErrorTally, Flow, FoundMax, GeneratorShard, Machine, Operation, Owner,
    Recording, Step, Verdict,
};

/// Names the schema and its version.
pub const SCHEMA: &str = "shardgate.loadgen.report/1";

/// Bytes of an operation's name.
const NAME_BYTES_MAX: usize = 64;

/// Percentiles of one kind of times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Times {
    /// How many times.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Shortest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile.
    pub p9999: f64,
    /// Longest.
    pub max: f64,
}

impl Times {
    /// Of a histogram of nanoseconds.
    pub fn of(times: &Histogram<u64>) -> Self {
        if times.is_empty() {
            return Self::default();
        }
        let at = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            count: times.len(),
            mean: times.mean() / 1000.0,
            min: times.min() as f64 / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: times.max() as f64 / 1000.0,
        }
    }
}

/// What was run, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunPart {
    /// What was asked for.
    #[serde(flatten)]
    pub asked: Asked,
    /// Start of the measured time, UTC.
    pub started: String,
    /// The same, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Measured time, seconds.
    pub measured_s: f64,
    /// Length of an interval, seconds.
    pub interval_s: u32,
}

/// The figures of the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Calls of the schedule.
    pub offered: u64,
    /// Calls sent.
    pub sent: u64,
    /// Good calls.
    pub good: u64,
    /// Failed calls.
    pub errors: u64,
    /// Good calls per second.
    pub good_per_s: f64,
    /// Share of the schedule that was sent.
    pub sent_share: f64,
    /// Share of the sent calls that failed.
    pub error_share: f64,
    /// Whether enough was sent for the figures to count.
    pub is_honest: bool,
    /// Connections opened anew.
    pub reconnects: u64,
    /// From the intended start to the last byte, all operations.
    pub response_us: Times,
    /// From the first byte sent to the last byte received, all operations.
    pub service_us: Times,
    /// How late calls were sent.
    pub slip_us: Times,
    /// How late although a caller was free; none in reports of before it was measured.
    #[serde(default)]
    pub lag_us: Times,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationPart {
    /// Calls sent.
    pub sent: u64,
    /// Calls of the schedule that were not sent.
    pub unsent: u64,
    /// Good calls.
    pub good: u64,
    /// Bytes of good replies.
    pub bytes: u64,
    /// Failed calls by reason.
    pub errors: BTreeMap<String, ErrorTally>,
    /// From the intended start.
    pub response_us: Times,
    /// From the first byte sent.
    pub service_us: Times,
}

/// One shard of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnerPart {
    /// Sessions it owns.
    pub sessions: u64,
    /// Calls sent to them.
    pub sent: u64,
    /// Of these failed.
    pub errors: u64,
    /// Response times.
    pub response_us: Times,
}

/// All of `report.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was run.
    pub run: RunPart,
    /// Figures of the whole run.
    pub summary: Summary,
    /// What had to hold.
    pub verdicts: Vec<Verdict>,
    /// By name.
    pub operations: BTreeMap<String, OperationPart>,
    /// By shard of the target.
    pub owners: BTreeMap<String, OwnerPart>,
    /// Steps of a ramp or a search.
    pub steps: Vec<Step>,
    /// Of a search.
    pub found_max: Option<FoundMax>,
    /// By interval.
    pub flow: Vec<Flow>,
    /// Before the measured time.
    pub warm_up: Flow,
    /// The generator's shards.
    pub generators: Vec<GeneratorShard>,
    /// The generator's machines.
    pub machines: Vec<Machine>,
}

/// Why a document is none of ours.
#[derive(Debug, thiserror::Error)]
pub enum DocumentFault {
    /// No JSON, or members are missing.
    #[error("not a report: {0}")]
    Json(#[from] serde_json::Error),
    /// Of another version.
    #[error("a report of another version than {SCHEMA}")]
    Schema,
    /// A figure that cannot be.
    #[error("{0} is not possible")]
    Figure(&'static str),
}

impl Document {
    /// The summary of a recording.
    pub fn of(recording: &Recording) -> Self {
        let operations = recording.operations.iter();
        let owners = recording.owners.iter();
        Self {
            schema: SCHEMA.to_owned(),
            run: RunPart {
                asked: recording.asked.clone(),
                started: utc(recording.started_unix_ms),
                started_unix_ms: recording.started_unix_ms,
                measured_s: recording.measured_s,
                interval_s: recording.interval_s,
            },
            summary: Summary {
                offered: recording.offered(),
                sent: recording.sent(),
                good: recording.good(),
                errors: recording.error_count(),
                good_per_s: recording.good_per_s(),
                sent_share: recording.sent_share(),
                error_share: recording.error_share(),
                is_honest: recording.is_honest(),
                reconnects: recording.reconnects,
                response_us: Times::of(&recording.response()),
                service_us: Times::of(&recording.service()),
                slip_us: Times::of(recording.slip.whole()),
                lag_us: Times::of(recording.lag.whole()),
            },
            verdicts: recording.verdicts.clone(),
            operations: operations
                .map(|(name, one)| (name.clone(), operation_part(one)))
                .collect(),
            owners: owners
                .map(|(shard, one)| (shard.to_string(), owner_part(one)))
                .collect(),
            steps: recording.steps.clone(),
            found_max: recording.found_max.clone(),
            flow: recording.flow.clone(),
            warm_up: recording.warm_up,
            generators: recording.generators.clone(),
            machines: recording.machines.clone(),
        }
    }

    /// Reads a document of this version.
    pub fn parse(text: &[u8]) -> Result<Self, DocumentFault> {
        #[derive(Deserialize)]
        struct Named {
            schema: String,
        }
        // The version first: another one may lack members.
        let named: Named = serde_json::from_slice(text)?;
        if named.schema != SCHEMA {
            return Err(DocumentFault::Schema);
        }
        if !is_countable(&serde_json::from_slice(text)?) {
            return Err(DocumentFault::Figure("a count above 2^53"));
        }
        let document: Self = serde_json::from_slice(text)?;
        let is_plain = |name: &String| {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_word)
        };
        // Names become names of files.
        if !document.operations.keys().all(is_plain) {
            return Err(DocumentFault::Figure("an operation's name"));
        }
        if !document.run.interval_s.is_power_of_two() {
            return Err(DocumentFault::Figure("interval_s"));
        }
        if document.flow.len() > crate::record::INTERVALS_MAX as usize {
            return Err(DocumentFault::Figure("the number of intervals"));
        }
        if !(0.0..=1e9).contains(&document.run.measured_s) {
            return Err(DocumentFault::Figure("measured_s"));
        }
        Ok(document)
    }

    /// A recording without its histograms.
    pub(super) fn into_recording(self) -> Result<Recording, DocumentFault> {
        let operations = self.operations.into_iter().map(|(name, part)| {
            let operation = Operation {
                sent: part.sent,
                unsent: part.unsent,
                bytes: part.bytes,
                errors: part.errors,
                ..Operation::default()
            };
            (name, operation)
        });
        let owners = self.owners.into_iter().map(|(shard, part)| {
            let owner = Owner {
                sessions: part.sessions,
                sent: part.sent,
                errors: part.errors,
                ..Owner::default()
            };
            Ok((
                shard
                    .parse()
                    .map_err(|_| DocumentFault::Figure("an owner's number"))?,
                owner,
            ))
        });
        Ok(Recording {
            asked: self.run.asked,
            started_unix_ms: self.run.started_unix_ms,
            measured_s: self.run.measured_s,
            interval_s: self.run.interval_s,
            warm_up: self.warm_up,
            operations: operations.collect(),
            flow: self.flow,
            owners: owners.collect::<Result<_, DocumentFault>>()?,
            reconnects: self.summary.reconnects,
            generators: self.generators,
            machines: self.machines,
            steps: self.steps,
            found_max: self.found_max,
            verdicts: self.verdicts,
            ..Recording::default()
        })
    }
}

fn is_countable(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_none_or(|number| number <= COUNT_MAX),
        Value::Array(items) => items.iter().all(is_countable),
        Value::Object(members) => members.values().all(is_countable),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn operation_part(operation: &Operation) -> OperationPart {
    OperationPart {
        sent: operation.sent,
        unsent: operation.unsent,
        good: operation.good(),
        bytes: operation.bytes,
        errors: operation.errors.clone(),
        response_us: Times::of(operation.response.whole()),
        service_us: Times::of(operation.service.whole()),
    }
}

fn owner_part(owner: &Owner) -> OwnerPart {
    OwnerPart {
        sessions: owner.sessions,
        sent: owner.sent,
        errors: owner.errors,
        response_us: Times::of(owner.response.whole()),
    }
}
