//! One measurement of one contestant: load for a while, CPU and counters before and after.

use std::{net::SocketAddr, time::Duration};

use loadgen::{
    era::Era,
    run::{Check, Pattern, RunFault, RunOptions, start},
};

use crate::{
    contestant::{Case, Contestant},
    metrics::Metrics,
    process::Process,
};

/// Share of failed calls above which a sample is refused.
const ERROR_SHARE_MAX: f64 = 0.001;
/// Share of the schedule below which a sample is refused: the generator did not ask for it all.
const SENT_SHARE_MIN: f64 = 0.99;

/// The load of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// What is asked.
    pub case: Case,
    /// Whether calls belong to sessions.
    pub era: Era,
    /// Connections.
    pub connections: u32,
    /// Sessions, when they share connections.
    pub sessions: Option<u32>,
    /// How calls spread over connections.
    pub pattern: Pattern,
    /// Calls per second, started on time whether replies have come or not; `None`: closed loop.
    pub rate: Option<f64>,
    /// Core of the generator.
    pub cpu: usize,
    /// Before measuring.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
}

/// What one measurement gave.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// CPU of the process under test per call, user and system, us; 0 without a process.
    pub cpu_us: f64,
    /// The user share of it, us.
    pub user_us: f64,
    /// Calls per second.
    pub calls_per_s: f64,
    /// Median response time, us.
    pub p50_us: f64,
    /// 99th percentile of the response time, us.
    pub p99_us: f64,
    /// Median service time of each session, us, ascending; only of shared sessions.
    pub sessions_p50_us: Vec<f64>,
    /// The contestant's own counters before and after, when it has any.
    pub metrics: Option<(Metrics, Metrics)>,
    /// Calls between the two CPU readings.
    pub calls: u64,
    /// Share of the schedule that was sent; 1 in a closed loop.
    pub sent_share: f64,
    /// Share of the calls that failed.
    pub error_share: f64,
}

/// One attempt to measure something, whether its figures count or not.
#[derive(Debug, Clone, Default)]
pub struct Point {
    /// What was measured; `None`: nothing could be, or nothing was asked for.
    pub sample: Option<Sample>,
    /// Why it does not count.
    pub refusal: Option<String>,
}

impl Point {
    /// Nothing could be measured.
    fn nothing(fault: SampleFault) -> Self {
        Self {
            sample: None,
            refusal: Some(fault.to_string()),
        }
    }

    /// The sample, when it counts.
    pub fn good(&self) -> Option<&Sample> {
        self.sample.as_ref().filter(|_| self.refusal.is_none())
    }
}

impl From<Sample> for Point {
    fn from(sample: Sample) -> Self {
        Self {
            refusal: None,
            sample: Some(sample),
        }
    }
}

impl Sample {
    /// How much a counter grew for each call. (The counters are read a little outside the calls,
    /// by less than a hundredth of a measurement.)
    pub fn per_call(&self, name: &str) -> Option<f64> {
        let (before, after) = self.metrics.as_ref()?;
        Some(after.growth(before, name)? / self.calls as f64)
    }
}

/// Why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum SampleFault {
    /// The contestant does not serve this case.
    #[error("does not serve this case")]
    NotServed,
    /// The load could not be started.
    #[error(transparent)]
    Run(#[from] RunFault),
    /// No call was answered.
    #[error("no call was answered")]
    Nothing,
}

/// Measures `contestant` under `load`. What is measured and cannot be trusted is given back with
/// the reason: too many calls failed, or the generator did not send what it was to send.
pub fn measure(contestant: &Contestant, load: &Load) -> Point {
    attempt(contestant, load).unwrap_or_else(Point::nothing)
}

fn attempt(contestant: &Contestant, load: &Load) -> Result<Point, SampleFault> {
    let endpoint = contestant
        .endpoint(load.case)
        .ok_or(SampleFault::NotServed)?;
    let defaults = RunOptions::default();
    let options = RunOptions {
        url: endpoint.url(),
        era: load.era,
        token: endpoint.token,
        headers: contestant.headers.clone(),
        tool: contestant.tool.clone().unwrap_or(defaults.tool.clone()),
        connections: load.connections,
        sessions: load.sessions,
        cpus: Some(vec![load.cpu]),
        pattern: load.pattern,
        rate: load.rate,
        check: Check::Bytes(load.case.bytes()),
        warm_up: load.warm_up,
        ..defaults
    };
    let process = contestant.process.as_ref();
    attempt_run(options, load.duration, process, contestant.admin)
}

/// Measures what these options start, for `duration` after their warm-up: CPU of `process`,
/// counters of the listener `admin`.
pub fn measure_run(
    options: RunOptions,
    duration: Duration,
    process: Option<&Process>,
    admin: Option<SocketAddr>,
) -> Point {
    attempt_run(options, duration, process, admin).unwrap_or_else(Point::nothing)
}

fn attempt_run(
    options: RunOptions,
    duration: Duration,
    process: Option<&Process>,
    admin: Option<SocketAddr>,
) -> Result<Point, SampleFault> {
    let (rate, warm_up) = (options.rate, options.warm_up);
    let running = start(RunOptions {
        // A schedule has an end, so that what was not sent of it can be told.
        duration: rate.map(|_| duration),
        ..options
    })?;
    let read_metrics = || admin.and_then(|admin| Metrics::read(admin).ok());
    let read_cpu = || process.map(|process| process.cpu_time());
    std::thread::sleep(warm_up);
    let metrics_before = read_metrics();
    let (cpu_before, calls_before) = (read_cpu(), running.calls());
    std::thread::sleep(duration);
    let (cpu_after, calls_after) = (read_cpu(), running.calls());
    let metrics_after = read_metrics();
    if rate.is_none() {
        running.stop();
    }
    let report = running.wait()?;
    let calls = calls_after - calls_before;
    if report.sent == 0 {
        return Err(SampleFault::Nothing);
    }
    let used = match (cpu_before, cpu_after) {
        (Some(before), Some(after)) => after.since(before),
        _ => Default::default(),
    };
    let us = |ns: u64| ns as f64 / 1000.0;
    let per_call = |ns: f64| ns / calls.max(1) as f64 / 1000.0;
    let sample = Sample {
        cpu_us: per_call(used.total_ns as f64),
        user_us: per_call(used.user_ns()),
        calls_per_s: report.calls_per_s(),
        p50_us: us(report.response.value_at_quantile(0.5)),
        p99_us: us(report.response.value_at_quantile(0.99)),
        sessions_p50_us: report.sessions_p50_ns.iter().map(|ns| us(*ns)).collect(),
        metrics: metrics_before.zip(metrics_after),
        calls,
        sent_share: report.recording.sent_share(),
        error_share: report.error_count() as f64 / report.sent as f64,
    };
    let reasons: Vec<_> = report
        .errors
        .values()
        .map(|error| format!("{} ({})", error.first, error.count))
        .collect();
    Ok(Point {
        refusal: refusal(&sample, &reasons.join(", ")),
        sample: Some(sample),
    })
}

/// Why a sample does not count, if so; `reasons` say how calls failed.
fn refusal(sample: &Sample, reasons: &str) -> Option<String> {
    let percent = |share: f64| share * 100.0;
    if sample.error_share > ERROR_SHARE_MAX {
        let errors = percent(sample.error_share);
        Some(format!("{errors:.2} % of the calls failed: {reasons}"))
    } else if sample.sent_share < SENT_SHARE_MIN {
        let sent = percent(sample.sent_share);
        Some(format!("only {sent:.1} % of the schedule was sent"))
    } else if sample.calls == 0 {
        Some("no call was answered".to_owned())
    } else {
        None
    }
}

/// The middle of the values; of an even number, the mean of the two middle ones.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values
        .into_iter()
        .filter(|value| value.is_finite())
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadgen::backend::{Backend, BackendOptions};

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, f64::NAN, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn samples_are_refused_for_errors_and_for_what_was_not_sent() {
        let refused = |error_share, sent_share, calls| {
            let sample = Sample {
                error_share,
                sent_share,
                calls,
                ..Sample::default()
            };
            refusal(&sample, "cannot connect (7)")
        };
        assert_eq!(refused(0.001, 0.99, 1), None);
        let errors = refused(0.0011, 1.0, 1).unwrap();
        assert!(errors.contains("0.11 %") && errors.contains("cannot connect (7)"));
        assert!(refused(0.0, 0.989, 1).unwrap().contains("98.9 %"));
        assert!(refused(0.0, 1.0, 0).is_some());
    }

    #[test]
    fn a_schedule_that_cannot_be_kept_is_refused_and_kept() {
        let backend = Backend::start(BackendOptions {
            // One connection and 50 ms a call: 20 calls a second.
            delay: Some(Duration::from_millis(50)),
            payload_bytes: Some(200),
            ..BackendOptions::default()
        })
        .unwrap();
        let direct = Contestant::direct(&[(Case::Small, backend.address())]);
        let mut load = Load {
            case: Case::Small,
            era: Era::default(),
            connections: 1,
            sessions: None,
            pattern: Pattern::Sticky,
            rate: Some(1000.0),
            cpu: 0,
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(300),
        };
        let point = measure(&direct, &load);
        assert!(point.good().is_none());
        assert!(point.refusal.unwrap().contains("of the schedule was sent"));
        assert!(point.sample.unwrap().p99_us > 0.0);
        load.case = Case::Large;
        let point = measure(&direct, &load);
        assert!(point.sample.is_none() && point.refusal.is_some());
        backend.stop();
    }

    #[test]
    fn counters_per_call_need_both_readings() {
        let read = |text: &str| Metrics::parse(text);
        let mut sample = Sample {
            calls: 20,
            ..Sample::default()
        };
        assert_eq!(sample.per_call("forwarded"), None);
        let after = read("shardgate_forwarded_total 11");
        sample.metrics = Some((read("shardgate_forwarded_total 1"), after.clone()));
        assert_eq!(sample.per_call("forwarded"), Some(0.5));
        assert_eq!(sample.per_call("handed_over"), None);
        sample.metrics = Some((Metrics::default(), after));
        assert_eq!(sample.per_call("forwarded"), None);
    }
}
