//! The highest rate that meets an objective: doubled until it does not, then halved in.

use std::time::Duration;

use crate::{
    record::{FoundMax, Step, Verdict},
    run::{Report, RunFault, RunOptions, run},
    slo::Slo,
};

/// How far below its start a search goes.
const DEPTH_MAX: f64 = 1024.0;
/// Part of a probe that is not measured, and the most of it.
const WARM_UP_PART: u32 = 5;
const WARM_UP_MAX: Duration = Duration::from_secs(1);
/// A probe whose last replies come this much later than its end, as a share of its length and at
/// the least, is one in which the server fell behind: longer, it would have missed the objective.
const BEHIND_SHARE: f64 = 0.03;
const BEHIND_MIN: Duration = Duration::from_millis(100);
/// Rates with which a knee can be told from noise.
const KNEE_POINTS_MIN: usize = 4;
/// How far below the straight line a curve must bend.
const KNEE_DEPTH_MIN: f64 = 0.1;

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchOptions {
    /// The first rate, calls per second.
    pub start: f64,
    /// No rate above this is tried.
    pub rate_max: f64,
    /// Length of a probe.
    pub probe: Duration,
    /// The result is known when good and bad are this close, as a share of the good rate.
    pub precision: f64,
    /// Rates tried at the most.
    pub tries_max: u32,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            start: 100.0,
            rate_max: 1_000_000.0,
            probe: Duration::from_secs(5),
            precision: 0.05,
            tries_max: 48,
        }
    }
}

/// Which rate to try next, from what came of those before. Knows nothing of how a rate is tried.
#[derive(Debug, Clone)]
pub struct Search {
    options: SearchOptions,
    good: Option<f64>,
    bad: Option<f64>,
    tries: u32,
}

impl Search {
    /// Nothing tried yet.
    pub fn new(options: SearchOptions) -> Self {
        Self {
            options,
            good: None,
            bad: None,
            tries: 0,
        }
    }

    /// The rate to try, calls per second; `None`: the result is known, or cannot be.
    pub fn next_rate(&self) -> Option<f64> {
        let options = &self.options;
        if self.tries >= options.tries_max {
            return None;
        }
        match (self.good, self.bad) {
            (None, None) => Some(options.start.min(options.rate_max)),
            (Some(good), None) => {
                (good < options.rate_max).then(|| (good * 2.0).min(options.rate_max))
            }
            (None, Some(bad)) => {
                let lower = bad / 2.0;
                (lower >= options.start / DEPTH_MAX).then_some(lower)
            }
            (Some(good), Some(bad)) => {
                (bad - good > options.precision * good).then(|| f64::midpoint(good, bad))
            }
        }
    }

    /// What came of a rate: whether the objective was met.
    pub fn note(&mut self, rate: f64, is_good: bool) {
        self.tries += 1;
        if is_good {
            self.good = Some(self.good.map_or(rate, |good| good.max(rate)));
        } else {
            self.bad = Some(self.bad.map_or(rate, |bad| bad.min(rate)));
        }
    }

    /// The highest rate that met the objective.
    pub fn last_good(&self) -> Option<f64> {
        self.good
    }

    /// The lowest rate that did not.
    pub fn first_bad(&self) -> Option<f64> {
        self.bad
    }
}

/// What a search found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Last good, first bad, knee.
    pub max: FoundMax,
    /// All probes, in the order they were made.
    pub steps: Vec<Step>,
    /// The run at the last good rate, else at the lowest rate tried.
    pub best: Report,
    /// Why the generator itself was the limit, if it was.
    pub own_limit: Option<String>,
    /// Whether a reply came that was not what it had to be: no rate makes that good.
    pub is_wrong: bool,
}

/// Searches. `options` say everything but rate and duration; `watch` is told of each probe.
pub fn find_max(
    options: &RunOptions,
    search: SearchOptions,
    slo: &Slo,
    mut watch: impl FnMut(&Step),
) -> Result<Found, RunFault> {
    let mut state = Search::new(search);
    let mut steps = Vec::new();
    let mut best: Option<(f64, bool, Report)> = None;
    let (mut own_limit, mut first_bad_rate) = (None, f64::INFINITY);
    let mut is_wrong = false;
    while let Some(rate) = state.next_rate() {
        let report = run(RunOptions {
            rate: Some(rate),
            shape: None,
            calls: None,
            duration: Some(search.probe),
            warm_up: (search.probe / WARM_UP_PART).min(WARM_UP_MAX),
            ..options.clone()
        })?;
        let step = step_of(rate, &report, search.probe, slo);
        watch(&step);
        state.note(rate, step.is_met);
        if !step.is_met && rate < first_bad_rate {
            first_bad_rate = rate;
            own_limit = report.own_limit();
        }
        is_wrong |= report.wrong_count + report.violation_count > 0;
        let is_better = best.as_ref().is_none_or(|(known, was_met, _)| {
            if step.is_met {
                !was_met || rate > *known
            } else {
                !was_met && rate < *known
            }
        });
        if is_better {
            best = Some((rate, step.is_met, report));
        }
        steps.push(step);
        if is_wrong {
            break;
        }
    }
    // A search always makes a first probe, so only a broken one gets here without.
    let (_, _, mut best) = best.ok_or(RunFault::Rate)?;
    let max = FoundMax {
        slo: slo.to_string(),
        last_good: state.last_good(),
        first_bad: state.first_bad(),
        knee: knee(&steps),
    };
    best.recording.steps.clone_from(&steps);
    best.recording.found_max = Some(max.clone());
    Ok(Found {
        max,
        steps,
        best,
        own_limit,
        is_wrong,
    })
}

fn step_of(rate: f64, report: &Report, probe: Duration, slo: &Slo) -> Step {
    let verdicts = slo.judge(&report.recording);
    let mut remarks: Vec<String> = verdicts
        .iter()
        .filter(|verdict| !verdict.is_met)
        .map(
            |Verdict {
                 wanted, measured, ..
             }| format!("{wanted}: {measured}"),
        )
        .collect();
    if !report.is_honest() {
        let share = report.recording.sent_share() * 100.0;
        remarks.push(format!("only {share:.1} % could be sent"));
    }
    let behind = behind(
        report.measured,
        probe,
        report.service.value_at_quantile(0.99),
    );
    if let Some(behind) = behind {
        remarks.push(format!("{} ms behind at its end", behind.as_millis()));
    }
    if report.wrong_count + report.violation_count > 0 {
        remarks.push("wrong replies".to_owned());
    }
    let is_met = remarks.is_empty();
    remarks.extend(report.own_limit().filter(|_| !is_met));
    let us = |quantile| report.response.value_at_quantile(quantile) as f64 / 1000.0;
    Step {
        rate,
        good_per_s: report.calls_per_s(),
        sent_share: report.recording.sent_share(),
        error_share: report.recording.error_share(),
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        is_met,
        remark: remarks.join("; "),
    }
}

/// How far a server was behind when a probe ended, if it was.
fn behind(measured: Duration, probe: Duration, service_p99_ns: u64) -> Option<Duration> {
    let usual = probe + Duration::from_nanos(service_p99_ns);
    let behind = measured.saturating_sub(usual);
    (behind > BEHIND_MIN.max(probe.mul_f64(BEHIND_SHARE))).then_some(behind)
}

/// The rate above which latency grows faster than load: where the curve of the 99th percentile lies
/// farthest below the straight line from its first point to its last.
fn knee(steps: &[Step]) -> Option<f64> {
    let mut points: Vec<(f64, f64)> = steps
        .iter()
        .filter(|step| step.p99_us > 0.0)
        .map(|step| (step.rate, step.p99_us))
        .collect();
    points.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let ((left, low), (right, high)) = (*points.first()?, *points.last()?);
    if points.len() < KNEE_POINTS_MIN || right <= left || high <= low {
        return None;
    }
    let depth =
        |(rate, p99): (f64, f64)| (rate - left) / (right - left) - (p99 - low) / (high - low);
    let deepest = points
        .into_iter()
        .max_by(|one, other| depth(*one).total_cmp(&depth(*other)))?;
    (depth(deepest) >= KNEE_DEPTH_MIN).then_some(deepest.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Searches a server that is good up to `limit`; good, bad, and how many probes it took.
    fn search_to_the_end(limit: f64, options: SearchOptions) -> (Option<f64>, Option<f64>, u32) {
        let mut search = Search::new(options);
        while let Some(rate) = search.next_rate() {
            search.note(rate, rate <= limit);
        }
        (search.last_good(), search.first_bad(), search.tries)
    }

    proptest! {
        #[test]
        fn the_limit_is_between_good_and_bad_and_they_are_close(
            limit in 10.0_f64..1e6,
            start in 1.0_f64..10_000.0,
        ) {
            let options = SearchOptions { start, ..SearchOptions::default() };
            let (good, bad, tries) = search_to_the_end(limit, options);
            let (good, bad) = (good.unwrap(), bad.unwrap());
            prop_assert!(good <= limit && limit < bad, "{} {}", good, bad);
            prop_assert!(bad - good <= 0.05 * good, "{} {}", good, bad);
            prop_assert!(tries <= 27, "{}", tries);
        }
    }

    #[test]
    fn a_limit_that_is_tried_counts_as_kept() {
        for limit in [0.5, 100.0, 102_400.0] {
            let (good, bad, _) = search_to_the_end(limit, SearchOptions::default());
            assert!(good.unwrap() <= limit && limit < bad.unwrap(), "{limit}");
        }
    }

    #[test]
    fn a_search_ends_at_its_bounds() {
        let options = SearchOptions {
            rate_max: 1000.0,
            ..SearchOptions::default()
        };
        assert_eq!(
            search_to_the_end(f64::INFINITY, options),
            (Some(1000.0), None, 5)
        );
        let (good, bad, tries) = search_to_the_end(0.0, options);
        assert_eq!((good, tries), (None, 11));
        assert!(bad.unwrap() < 0.2);
        // One that changes its mind all the time ends as well.
        let mut search = Search::new(options);
        while let Some(rate) = search.next_rate() {
            let is_good = search.tries.is_multiple_of(2);
            search.note(rate, is_good);
        }
        assert!(search.tries <= options.tries_max);
        let few = SearchOptions {
            tries_max: 4,
            ..SearchOptions::default()
        };
        assert_eq!(search_to_the_end(1e6, few), (Some(800.0), None, 4));
    }

    #[test]
    fn a_server_that_falls_behind_is_told_from_one_that_is_slow() {
        let s = Duration::from_secs;
        let second_ns = 1_000_000_000;
        assert_eq!(behind(s(6), s(5), second_ns), None, "a call takes a second");
        assert_eq!(
            behind(s(6), s(5), 1000),
            Some(s(1) - Duration::from_micros(1))
        );
        assert_eq!(behind(s(61), s(60), 1000), None, "less than 3 %");
        assert_eq!(behind(s(4), s(5), 1000), None);
    }

    #[test]
    fn the_knee_is_where_the_curve_turns_up() {
        let steps = |p99: fn(f64) -> f64| -> Vec<Step> {
            (1..=20)
                .map(|index| f64::from(index) * 100.0)
                .map(|rate| Step {
                    rate,
                    p99_us: p99(rate),
                    ..Step::default()
                })
                .collect()
        };
        // Flat to 1500, then steep.
        let bent = steps(|rate| {
            if rate <= 1500.0 {
                500.0
            } else {
                500.0 + (rate - 1500.0) * 20.0
            }
        });
        assert_eq!(knee(&bent), Some(1500.0));
        assert_eq!(knee(&steps(|rate| rate)), None, "a straight line has none");
        assert_eq!(knee(&steps(|_| 500.0)), None);
        assert_eq!(knee(&bent[..3]), None);
    }
}
