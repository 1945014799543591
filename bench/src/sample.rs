//! One measurement of one contestant: load for a while, CPU and counters before and after.

use std::time::Duration;

use loadgen::run::{Check, Pattern, RunFault, RunOptions, start};

use crate::{
    contestant::{Case, Contestant},
    metrics::Metrics,
};

/// Share of failed calls above which a sample is worth nothing.
const ERROR_SHARE_MAX: f64 = 0.001;

/// The load of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// What is asked.
    pub case: Case,
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
    /// Too many calls failed.
    #[error("{failed} of {sent} calls failed: {reasons}")]
    Errors {
        /// Calls that failed.
        failed: u64,
        /// Calls sent.
        sent: u64,
        /// How they failed.
        reasons: String,
    },
    /// No call was answered.
    #[error("no call was answered")]
    Nothing,
}

/// Measures `contestant` under `load`.
pub fn measure(contestant: &Contestant, load: &Load) -> Result<Sample, SampleFault> {
    let endpoint = contestant
        .endpoint(load.case)
        .ok_or(SampleFault::NotServed)?;
    let running = start(RunOptions {
        url: format!("http://{}{}", endpoint.address, endpoint.path),
        token: endpoint.token,
        connections: load.connections,
        sessions: load.sessions,
        cpus: Some(vec![load.cpu]),
        pattern: load.pattern,
        rate: load.rate,
        check: Check::Bytes(load.case.bytes()),
        warm_up: load.warm_up,
        ..RunOptions::default()
    })?;
    let read_metrics = || contestant.admin.and_then(|admin| Metrics::read(admin).ok());
    let read_cpu = || {
        contestant
            .process
            .as_ref()
            .map(|process| process.cpu_time())
    };
    std::thread::sleep(load.warm_up);
    let metrics_before = read_metrics();
    let (cpu_before, calls_before) = (read_cpu(), running.calls());
    std::thread::sleep(load.duration);
    let (cpu_after, calls_after) = (read_cpu(), running.calls());
    let metrics_after = read_metrics();
    running.stop();
    let report = running.wait()?;
    let calls = calls_after - calls_before;
    let failed = report.error_count();
    if failed as f64 > report.sent as f64 * ERROR_SHARE_MAX {
        let reasons: Vec<_> = report
            .errors
            .values()
            .map(|error| format!("{} ({})", error.first, error.count))
            .collect();
        let reasons = reasons.join(", ");
        return Err(SampleFault::Errors {
            failed,
            sent: report.sent,
            reasons,
        });
    }
    if calls == 0 || report.response.is_empty() {
        return Err(SampleFault::Nothing);
    }
    let used = match (cpu_before, cpu_after) {
        (Some(before), Some(after)) => after.since(before),
        _ => Default::default(),
    };
    let us = |ns: u64| ns as f64 / 1000.0;
    Ok(Sample {
        cpu_us: used.total_ns as f64 / calls as f64 / 1000.0,
        user_us: used.user_ns() / calls as f64 / 1000.0,
        calls_per_s: report.calls_per_s(),
        p50_us: us(report.response.value_at_quantile(0.5)),
        p99_us: us(report.response.value_at_quantile(0.99)),
        sessions_p50_us: report.sessions_p50_ns.iter().map(|ns| us(*ns)).collect(),
        metrics: metrics_before.zip(metrics_after),
        calls,
    })
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

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, f64::NAN, 2.0, 3.0]), Some(2.5));
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
