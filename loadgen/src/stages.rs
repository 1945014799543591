//! What a run was like over its time: each stage of a shape, and the end of a soak against its
//! beginning. Percentiles come from the histograms of the intervals, added up.

use std::ops::Range;

use hdrhistogram::Histogram;

use crate::{
    arrivals::Shape,
    record::{Recording, Step, Verdict, histogram},
    slo::Slo,
    units::show_ns,
};

/// A soak fails when its last tenth is this much slower than its first ...
const DRIFT_FACTOR_MAX: f64 = 2.0;
/// ... and by more than this, which is noise.
const DRIFT_NS_MIN: u64 = 1_000_000;

/// A row for each stage: of the whole intervals inside it.
pub fn steps(recording: &Recording, shape: &Shape, slo: &Slo) -> Vec<Step> {
    let interval_s = f64::from(recording.interval_s);
    let mut rows = Vec::new();
    let mut start_s = 0.0;
    for stage in shape.stages() {
        let end_s = start_s + stage.length.as_secs_f64();
        let first = (start_s / interval_s).ceil() as u32;
        let last = (end_s / interval_s + 1e-9).floor() as u32;
        if last > first {
            let rate = f64::midpoint(stage.from, stage.to);
            rows.push(step(recording, first..last, rate, slo));
        }
        start_s = end_s;
    }
    rows
}

fn step(recording: &Recording, intervals: Range<u32>, rate: f64, slo: &Slo) -> Step {
    let part = part_of(recording, intervals.clone());
    let times = part.response();
    let flow = recording
        .flow
        .get(intervals.start as usize..)
        .unwrap_or_default();
    let flow = &flow[..flow.len().min(intervals.len())];
    let sum = |count: fn(&crate::record::Flow) -> u64| flow.iter().map(count).sum::<u64>();
    let seconds = f64::from(recording.interval_s) * intervals.len() as f64;
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let us = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    let missed = slo.judge(&part).into_iter().filter(|one| !one.is_met);
    // Failures are not kept by interval and operation; their share is judged over the whole run.
    let missed: Vec<_> = missed
        .filter(|one| !one.wanted.contains("errors"))
        .map(|one| format!("{}: {}", one.wanted, one.measured))
        .collect();
    Step {
        rate,
        good_per_s: sum(|flow| flow.good) as f64 / seconds,
        sent_share: share(sum(|flow| flow.sent), sum(|flow| flow.offered)).min(1.0),
        error_share: share(sum(|flow| flow.errors), sum(|flow| flow.good + flow.errors)),
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        is_met: missed.is_empty(),
        remark: missed.join("; "),
    }
}

/// The response times of some intervals, as a recording of their own.
fn part_of(recording: &Recording, intervals: Range<u32>) -> Recording {
    let mut part = Recording::default();
    for (name, operation) in &recording.operations {
        let ours = part.operations.entry(name.clone()).or_default();
        for (index, packed) in operation.response.intervals().range(intervals.clone()) {
            ours.response.add(*index, &packed.unpack());
        }
        ours.sent = ours.response.whole().len();
    }
    part
}

/// Whether the last tenth of a soak was as fast as its first.
pub fn drift(recording: &Recording) -> Option<Verdict> {
    let count = u32::try_from(recording.flow.len()).ok()?;
    let tenth = (count / 10).max(1);
    if count < 2 {
        return None;
    }
    let p99 = |intervals: Range<u32>| {
        let mut times: Histogram<u64> = histogram();
        let part = part_of(recording, intervals);
        crate::record::add(&mut times, &part.response());
        times.value_at_quantile(0.99)
    };
    let (first, last) = (p99(0..tenth), p99(count - tenth..count));
    let is_slower = last as f64 > first as f64 * DRIFT_FACTOR_MAX;
    Some(Verdict {
        wanted: "soak: the p99 of the last tenth is at most twice that of the first".to_owned(),
        measured: format!("{}, then {}", show_ns(first), show_ns(last)),
        is_met: !(is_slower && last - first > DRIFT_NS_MIN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Recorder, Timing};
    use std::time::Duration;

    /// Ten calls a second; in second n each takes `time_ms(n)`.
    fn recording(seconds: u64, time_ms: fn(u64) -> u64) -> Recording {
        let mut recorder = Recorder::new(true, Duration::ZERO);
        let call = recorder.operation("tools/call");
        for second in 0..seconds {
            for tenth in 0..10 {
                let start = Duration::from_millis(second * 1000 + tenth * 50);
                let timing = Timing {
                    intended: start,
                    sent: start,
                    done: start + Duration::from_millis(time_ms(second)),
                };
                recorder.good(call, None, timing, 1);
            }
        }
        recorder.finish(0)
    }

    #[test]
    fn each_stage_has_its_row() {
        let shape = Shape::steps(10.0, 20.0, 10.0, Duration::from_secs(8));
        let recording = recording(8, |second| if second < 4 { 5 } else { 50 });
        let slo: Slo = "p99=10ms,errors=0%".parse().unwrap();
        let rows = steps(&recording, &shape, &slo);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].rate, rows[1].rate), (10.0, 20.0));
        assert!((rows[0].p99_us - 5000.0).abs() < 10.0, "{rows:?}");
        assert!((rows[1].p99_us - 50_000.0).abs() < 100.0, "{rows:?}");
        assert!(rows[0].is_met && !rows[1].is_met);
        assert!(rows[1].remark.contains("p99"), "{rows:?}");
        assert!((rows[0].good_per_s - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_soak_that_slows_down_is_found() {
        assert!(drift(&recording(20, |_| 5)).unwrap().is_met);
        assert!(!drift(&recording(20, |second| 5 + second)).unwrap().is_met);
        assert!(drift(&recording(1, |_| 5)).is_none());
    }
}
