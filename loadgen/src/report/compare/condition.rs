//! Conditions of `--fail-if`, such as `p99>+10%`: parsing, and what they say of two runs.
//!
//! A bound with a sign is a change from A to B: `+10%` of A's value, or `+200us` more. A bound
//! without a sign is a limit on B alone: `p99>5ms`, `errors>0.1%`, `rate<1000`.

use std::{fmt, str::FromStr};

use hdrhistogram::Histogram;

use crate::{
    record::Recording,
    report::html::words::{digits, percent, time},
};

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Metric {
    /// A percentile, 0 to 1.
    Quantile(f64),
    /// The arithmetic mean.
    Mean,
    /// The longest time.
    Max,
    /// Good calls per second.
    Rate,
    /// Share of the sent calls that failed.
    Errors,
    /// Share of the schedule that was sent.
    Sent,
}

/// Which times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From the intended start.
    Response,
    /// From the first byte sent.
    Service,
    /// How late calls were sent.
    Slip,
    /// How late although a caller was free.
    Lag,
}

/// What B's value, or its change, must not pass.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    /// Nanoseconds, calls per second, or a share.
    Limit(f64),
    /// The same, B less A.
    Difference(f64),
    /// Of A's value.
    Change(f64),
}

/// Something that must not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// As it was written.
    text: String,
    /// One operation; `None`: all together.
    operation: Option<String>,
    kind: Kind,
    metric: Metric,
    is_above: bool,
    bound: Bound,
}

/// Why a text is no condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConditionFault {
    /// Neither `>` nor `<`.
    #[error("a condition is METRIC>BOUND or METRIC<BOUND, as p99>+10%")]
    Form,
    /// No such metric.
    #[error("the metric is pN (as p99.9), mean, max, rate, errors or sent")]
    Metric,
    /// No such bound, or not one of this metric.
    #[error(
        "the bound is +N% or -N% of the first run, or N of the second, with a unit for times: ns, us, ms, s"
    )]
    Bound,
}

/// What a condition says of two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether the condition holds, or cannot be judged: the comparison fails.
    pub is_failure: bool,
    /// The condition and the values.
    pub text: String,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = ConditionFault;

    fn from_str(text: &str) -> Result<Self, ConditionFault> {
        let plain: String = text.chars().filter(|one| !one.is_whitespace()).collect();
        let at = plain.find(['>', '<']).ok_or(ConditionFault::Form)?;
        let (name, rest) = plain.split_at(at);
        let (is_above, bound) = (rest.starts_with('>'), &rest[1..]);
        let (operation, name) = match name.rsplit_once(':') {
            Some((operation, name)) => (Some(operation.to_owned()), name),
            None => (None, name),
        };
        let (kind, name) = match name.split_once('.') {
            Some(("service", name)) => (Kind::Service, name),
            Some(("slip", name)) => (Kind::Slip, name),
            Some(("lag", name)) => (Kind::Lag, name),
            Some(("response", name)) => (Kind::Response, name),
            // The dot of p99.9.
            _ => (Kind::Response, name),
        };
        let metric = parse_metric(name).ok_or(ConditionFault::Metric)?;
        // The schedule is of the run, not of an operation; and so is what kept to it.
        if operation.is_some() && (matches!(kind, Kind::Slip | Kind::Lag) || metric == Metric::Sent)
        {
            return Err(ConditionFault::Metric);
        }
        Ok(Self {
            text: text.trim().to_owned(),
            operation,
            kind,
            metric,
            is_above,
            bound: parse_bound(metric, bound).ok_or(ConditionFault::Bound)?,
        })
    }
}

fn parse_metric(name: &str) -> Option<Metric> {
    Some(match name {
        "mean" => Metric::Mean,
        "max" => Metric::Max,
        "rate" => Metric::Rate,
        "errors" => Metric::Errors,
        "sent" => Metric::Sent,
        _ => {
            let percentile: f64 = name.strip_prefix('p')?.parse().ok()?;
            let is_sound = (0.0..=100.0).contains(&percentile);
            is_sound.then_some(Metric::Quantile(percentile / 100.0))?
        }
    })
}

fn parse_bound(metric: Metric, text: &str) -> Option<Bound> {
    let is_signed = text.starts_with(['+', '-']);
    let bare = |number: &str| {
        let number: f64 = number.parse().ok()?;
        number.is_finite().then_some(number)
    };
    if is_signed && let Some(number) = text.strip_suffix('%') {
        return Some(Bound::Change(bare(number)? / 100.0));
    }
    let value = match metric {
        Metric::Rate => bare(text)?,
        // A difference of shares would be taken for a share of a share.
        Metric::Errors | Metric::Sent if is_signed => return None,
        Metric::Errors | Metric::Sent => bare(text.strip_suffix('%')?)? / 100.0,
        Metric::Quantile(_) | Metric::Mean | Metric::Max => parse_time(text)?,
    };
    Some(if is_signed {
        Bound::Difference(value)
    } else {
        Bound::Limit(value)
    })
}

/// A time with its unit, in nanoseconds.
fn parse_time(text: &str) -> Option<f64> {
    // `s` last: the others end with it too.
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some(number * factor)
}

impl Condition {
    /// What it says of A and B.
    pub fn judge(&self, a: &Recording, b: &Recording) -> Finding {
        let value = |run| value_of(run, self.operation.as_deref(), self.kind, self.metric);
        let told = |is_failure, values: String| Finding {
            is_failure,
            text: format!("{}: {values}", self.text),
        };
        let Some(of_b) = value(b) else {
            return told(true, "the second run has no such times".to_owned());
        };
        let is_beyond = |value: f64, bound: f64| {
            if self.is_above {
                value > bound
            } else {
                value < bound
            }
        };
        let now = shown(self.metric, of_b);
        if let Bound::Limit(limit) = self.bound {
            return told(is_beyond(of_b, limit), now);
        }
        let Some(of_a) = value(a) else {
            return told(true, "the first run has no such times".to_owned());
        };
        let change = change(of_a, of_b);
        let is_failure = match self.bound {
            Bound::Change(bound) => is_beyond(change, bound),
            Bound::Difference(bound) => is_beyond(of_b - of_a, bound),
            Bound::Limit(_) => false,
        };
        let before = shown(self.metric, of_a);
        told(is_failure, format!("{before} -> {now}, {}", signed(change)))
    }
}

/// The value of a metric; `None`: nothing was measured.
pub(crate) fn value_of(
    run: &Recording,
    operation: Option<&str>,
    kind: Kind,
    metric: Metric,
) -> Option<f64> {
    let one = match operation {
        Some(name) => Some(run.operations.get(name)?),
        None => None,
    };
    let (sent, good, errors) = match one {
        Some(one) => (one.sent, one.good(), one.error_count()),
        None => (run.sent(), run.good(), run.error_count()),
    };
    match metric {
        Metric::Rate => Some(good as f64 / run.measured_s).filter(|rate| rate.is_finite()),
        Metric::Errors => (sent > 0).then(|| errors as f64 / sent as f64),
        Metric::Sent => Some(run.sent_share()),
        Metric::Quantile(_) | Metric::Mean | Metric::Max => {
            let times = times_of(run, operation, kind)?;
            (!times.is_empty()).then(|| match metric {
                Metric::Quantile(quantile) => times.value_at_quantile(quantile) as f64,
                Metric::Mean => times.mean(),
                _ => times.max() as f64,
            })
        }
    }
}

/// The times of an operation, or of all together.
pub(crate) fn times_of(
    run: &Recording,
    operation: Option<&str>,
    kind: Kind,
) -> Option<Histogram<u64>> {
    let Some(name) = operation else {
        return Some(match kind {
            Kind::Response => run.response(),
            Kind::Service => run.service(),
            Kind::Slip => run.slip.whole().clone(),
            Kind::Lag => run.lag.whole().clone(),
        });
    };
    let one = run.operations.get(name)?;
    match kind {
        Kind::Response => Some(one.response.whole().clone()),
        Kind::Service => Some(one.service.whole().clone()),
        Kind::Slip | Kind::Lag => None,
    }
}

/// B against A: 0.1 is 10 % more.
pub(crate) fn change(a: f64, b: f64) -> f64 {
    if a == b {
        0.0
    } else if a == 0.0 {
        f64::INFINITY
    } else {
        b / a - 1.0
    }
}

/// A change as `+12.3 %`.
pub(crate) fn signed(change: f64) -> String {
    if change.is_infinite() {
        return "from nothing".to_owned();
    }
    // From here on a percentage is hard to take in.
    if change >= 4.0 {
        return format!("{} times", digits(1.0 + change));
    }
    let percent = change * 100.0;
    // What rounds to nothing has no sign.
    if percent.abs() < 0.05 {
        return "0 %".to_owned();
    }
    format!("{percent:+.1} %")
}

/// A value with its unit.
pub(crate) fn shown(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Rate => format!("{}/s", digits(value)),
        Metric::Errors | Metric::Sent => percent(value),
        Metric::Quantile(_) | Metric::Mean | Metric::Max => time(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn conditions_are_read() {
        for (text, metric, bound) in [
            ("p99>+10%", Metric::Quantile(0.99), Bound::Change(0.1)),
            (" p50 > 5ms ", Metric::Quantile(0.5), Bound::Limit(5e6)),
            ("max>+200us", Metric::Max, Bound::Difference(2e5)),
            ("mean<-1.5s", Metric::Mean, Bound::Difference(-1.5e9)),
            ("rate<-5%", Metric::Rate, Bound::Change(-0.05)),
            ("rate<1000", Metric::Rate, Bound::Limit(1000.0)),
            ("errors>0.1%", Metric::Errors, Bound::Limit(0.001)),
            ("errors>+50%", Metric::Errors, Bound::Change(0.5)),
            ("sent<99%", Metric::Sent, Bound::Limit(0.99)),
        ] {
            let condition: Condition = text.parse().unwrap();
            let quantile = |metric| match metric {
                Metric::Quantile(quantile) => quantile,
                _ => -1.0,
            };
            assert!(
                (quantile(condition.metric) - quantile(metric)).abs() < 1e-9,
                "{text}"
            );
            let number = |bound| match bound {
                Bound::Limit(one) | Bound::Difference(one) | Bound::Change(one) => one,
            };
            assert!(
                (number(condition.bound) / number(bound) - 1.0).abs() < 1e-9,
                "{text}"
            );
            let same =
                |a: Bound, b: Bound| std::mem::discriminant(&a) == std::mem::discriminant(&b);
            assert!(same(condition.bound, bound), "{text}");
        }
        let one: Condition = "tools_call:service.p99.9>5ms".parse().unwrap();
        assert_eq!(
            (one.operation.as_deref(), one.kind),
            (Some("tools_call"), Kind::Service)
        );
        let one: Condition = "p99.9<5ms".parse().unwrap();
        assert_eq!((one.kind, one.is_above), (Kind::Response, false));
    }

    #[test]
    fn other_texts_are_refused() {
        use ConditionFault::{Bound, Form, Metric};
        for (text, fault) in [
            ("", Form),
            ("p99", Form),
            ("p99=5ms", Form),
            (">5ms", Metric),
            ("p101>5ms", Metric),
            ("pnan>5ms", Metric),
            ("p9x>5ms", Metric),
            ("tools_call:slip.p99>1ms", Metric),
            ("tools_call:sent<99%", Metric),
            ("p99>", Bound),
            ("p99>5", Bound),
            ("p99>10%", Bound),
            ("p99>+infms", Bound),
            ("p99>>5ms", Bound),
            ("rate<5ms", Bound),
            ("errors>0.1", Bound),
            ("errors>+0.1", Bound),
        ] {
            assert_eq!(text.parse::<Condition>(), Err(fault), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_condition_or_a_fault(text in ".{0,24}", bound in "[+-]?[0-9.]{0,9}(%|ms|s)?") {
            // Neither may panic.
            let _ = text.parse::<Condition>();
            let _ = format!("p99>{bound}").parse::<Condition>();
        }
    }

    #[test]
    fn changes_have_a_sign() {
        let signs = [change(10.0, 12.0), change(10.0, 9.0), change(10.0, 10.001)].map(signed);
        assert_eq!(signs, ["+20.0 %", "-10.0 %", "0 %"]);
        assert_eq!(
            [signed(change(10.0, 49.0)), signed(change(1.0, 876.0))],
            ["+390.0 %", "876 times"]
        );
        assert_eq!(
            [signed(change(0.0, 0.0)), signed(change(0.0, 1.0))],
            ["0 %", "from nothing"]
        );
    }
}
