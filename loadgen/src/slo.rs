//! What has to hold: `p99=5ms,errors=0.1%`, for all operations or one: `tools/call.p99.9=20ms`.

use std::{fmt, str::FromStr, time::Duration};

use hdrhistogram::Histogram;

use crate::{
    operation::Method,
    record::{Operation, Recording, Verdict, histogram},
    units::{parse_share, parse_time, show_ns},
};

/// What is not of the mix, and counts for no objective of all operations.
const HOUSEKEEPING: [&str; 3] = ["delete", "initialized", "stream_open"];

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Measure {
    /// A percentile of the response time, 0 to 100.
    Percentile(f64),
    Mean,
    Max,
    /// Share of the calls that failed.
    Errors,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Time(Duration),
    Share(f64),
}

#[derive(Debug, Clone, PartialEq)]
struct Goal {
    /// An operation's name in reports; `None`: all of the mix.
    operation: Option<String>,
    measure: Measure,
    limit: Limit,
}

/// A list of goals, all of which have to be met.
#[derive(Debug, Clone, PartialEq)]
pub struct Slo {
    goals: Vec<Goal>,
    text: String,
}

impl Default for Slo {
    /// No call fails.
    fn default() -> Self {
        Self {
            goals: vec![Goal {
                operation: None,
                measure: Measure::Errors,
                limit: Limit::Share(0.0),
            }],
            text: "errors=0%".to_owned(),
        }
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let goals = text.split(',').map(|part| {
            parse_goal(part.trim()).ok_or_else(|| {
                format!(
                    "`{}` is no objective; write p50, p90, p99, p99.9, mean or max = a time, or \
                     errors = a share, as p99=5ms,errors=0.1%; of one operation as \
                     tools/call.p99=5ms",
                    part.trim()
                )
            })
        });
        Ok(Self {
            goals: goals.collect::<Result<_, _>>()?,
            text: text.to_owned(),
        })
    }
}

fn parse_goal(part: &str) -> Option<Goal> {
    let (name, limit) = part.split_once('=')?;
    let (name, limit) = (name.trim(), limit.trim());
    let (operation, measure) = Method::ALL
        .iter()
        .find_map(|method| {
            let rest = name.strip_prefix(method.name())?.strip_prefix('.')?;
            Some((Some(recorded_name(method.name())), rest))
        })
        .unwrap_or((None, name));
    let measure = match measure {
        "errors" => Measure::Errors,
        "mean" => Measure::Mean,
        "max" => Measure::Max,
        other => {
            let percentile: f64 = other.strip_prefix('p')?.parse().ok()?;
            let is_percentile = percentile > 0.0 && percentile < 100.0;
            is_percentile.then_some(Measure::Percentile(percentile))?
        }
    };
    let limit = match measure {
        Measure::Errors => Limit::Share(parse_share(limit)?),
        _ => Limit::Time(parse_time(limit)?),
    };
    Some(Goal {
        operation,
        measure,
        limit,
    })
}

/// The name that recordings give an operation.
fn recorded_name(name: &str) -> String {
    name.replace('/', "_")
}

impl Slo {
    /// How each goal came out.
    pub fn judge(&self, recording: &Recording) -> Vec<Verdict> {
        self.goals
            .iter()
            .map(|goal| goal.judge(recording))
            .collect()
    }

    /// The tightest limit of a percentile (0 to 100) of all operations, if it has one.
    pub fn percentile_limit(&self, percentile: f64) -> Option<Duration> {
        let limits = self.goals.iter().filter_map(|goal| match goal {
            Goal {
                operation: None,
                measure: Measure::Percentile(of),
                limit: Limit::Time(limit),
            } if *of == percentile => Some(*limit),
            _ => None,
        });
        limits.min()
    }
}

impl Goal {
    fn judge(&self, recording: &Recording) -> Verdict {
        let (mut times, mut sent, mut failed) = (histogram(), 0, 0);
        for (name, operation) in &recording.operations {
            if self.concerns(name) {
                let Operation { response, .. } = operation;
                crate::record::add(&mut times, response.whole());
                sent += operation.sent;
                failed += operation.error_count();
            }
        }
        let (measured, is_met) = match self.limit {
            Limit::Share(limit) => {
                let share = failed as f64 / sent.max(1) as f64;
                let measured = format!("{} % ({failed} of {sent})", short(share * 100.0));
                (measured, sent > 0 && share <= limit)
            }
            // Of nothing, nothing can be said.
            Limit::Time(_) if times.is_empty() => ("no good call".to_owned(), false),
            Limit::Time(limit) => {
                let found = self.measure.of(&times);
                (show_ns(found), u128::from(found) <= limit.as_nanos())
            }
        };
        Verdict {
            wanted: self.to_string(),
            measured,
            is_met,
        }
    }

    fn concerns(&self, name: &str) -> bool {
        match &self.operation {
            Some(operation) => operation == name,
            None => !HOUSEKEEPING.contains(&name),
        }
    }
}

impl Measure {
    fn of(self, times: &Histogram<u64>) -> u64 {
        match self {
            Self::Percentile(percentile) => times.value_at_percentile(percentile),
            Self::Mean => times.mean() as u64,
            Self::Max | Self::Errors => times.max(),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = &self.operation {
            write!(f, "{operation} ")?;
        }
        match self.measure {
            Measure::Percentile(percentile) => write!(f, "p{percentile}")?,
            Measure::Mean => f.write_str("mean")?,
            Measure::Max => f.write_str("max")?,
            Measure::Errors => f.write_str("errors")?,
        }
        match self.limit {
            Limit::Time(limit) => {
                let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
                write!(f, " <= {}", show_ns(ns))
            }
            Limit::Share(limit) => write!(f, " <= {} %", short(limit * 100.0)),
        }
    }
}

/// A number without the zeros it does not need.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Recorder, Timing};

    /// A hundred calls of 1 to 100 ms and a failed one.
    fn recording() -> Recording {
        let mut recorder = Recorder::new(true, Duration::ZERO);
        let call = recorder.operation("tools/call");
        let timing = |done| Timing {
            intended: Duration::ZERO,
            sent: Duration::ZERO,
            done: Duration::from_millis(done),
        };
        for time in 1..=100 {
            recorder.good(call, None, timing(time), 1);
        }
        recorder.failed(call, None, timing(1), "status", || "500".to_owned());
        let delete = recorder.operation("delete");
        recorder.good(delete, None, timing(5000), 1);
        recorder.finish(0)
    }

    #[test]
    fn goals_are_judged() {
        for (text, met) in [
            ("p50=51ms", &[true][..]),
            ("p50=49ms", &[false]),
            ("p99=100ms, errors=1%", &[true, true]),
            ("p99.9=99ms,errors=0.9%", &[false, false]),
            ("max=101ms,mean=51ms", &[true, true]),
            ("tools/call.p90=91ms,ping.p99=1s", &[true, false]),
            ("tools/call.errors=0%,ping.errors=1%", &[false, false]),
        ] {
            let slo: Slo = text.parse().unwrap();
            let verdicts = slo.judge(&recording());
            let found: Vec<_> = verdicts.iter().map(|one| one.is_met).collect();
            assert_eq!(found, met, "{text}: {verdicts:?}");
        }
        let verdict = &Slo::default().judge(&recording())[0];
        assert_eq!(verdict.wanted, "errors <= 0 %");
        assert_eq!(verdict.measured, "0.9901 % (1 of 101)");
        assert!(!verdict.is_met);
    }

    #[test]
    fn what_is_no_objective_is_refused() {
        for text in [
            "",
            "p99",
            "p99=",
            "p99=5",
            "p0=1ms",
            "p100=1ms",
            "p=1ms",
            "pnan=1ms",
            "errors=5ms",
            "errors=200%",
            "call.p99=1ms",
            "p99=5ms,,",
        ] {
            assert!(text.parse::<Slo>().is_err(), "{text}");
        }
    }
}
