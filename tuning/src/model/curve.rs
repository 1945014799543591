//! Capacity and latency as measured: the highest rate that met the objective at each number of
//! shards, and the percentiles on the way there.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Point;

/// What a point has to keep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Objective {
    /// Largest 99th percentile, microseconds.
    pub p99_us: f64,
    /// Largest share of failed calls, 0 to 1.
    pub error_share: f64,
}

/// Share of the schedule that must have been sent for a point to count as held.
const SENT_SHARE_MIN: f64 = 0.99;

impl Objective {
    /// Whether a point kept it.
    pub fn is_met(&self, point: &Point) -> bool {
        point.p99_us <= self.p99_us
            && point.error_share <= self.error_share
            && point.sent_share >= SENT_SHARE_MIN
            && point.good_per_s > 0.0
    }
}

/// Percentiles of the response time, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Latency {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

/// Where percentiles come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Between points of the same number of shards.
    Interpolated,
    /// The lowest measured load was higher: it will be this or less.
    UpperBound,
    /// From the nearest number of shards, at the same share of its capacity.
    Extrapolated,
}

/// All points of one number of shards.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Highest rate that met the objective.
    pub capacity: f64,
    /// Whether a higher one did not; else the capacity is at least this.
    pub is_bounded: bool,
    /// The point at the capacity.
    pub last_good: Point,
    /// The lowest above it that did not meet the objective.
    pub first_bad: Option<Point>,
    /// A lower rate missed the objective: something else was at work on the machine.
    pub is_noisy: bool,
    /// Share of the capacity, and what was measured there or below; ascending.
    steps: Vec<(f64, Latency)>,
}

/// All lines, by number of shards.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve(pub BTreeMap<u16, Line>);

impl Curve {
    /// Reads the points with an objective. Numbers of shards that never met it have no line.
    pub fn new(points: &[Point], objective: &Objective) -> Self {
        let mut by_shards: BTreeMap<u16, Vec<Point>> = BTreeMap::new();
        for point in points
            .iter()
            .filter(|point| point.rate > 0.0 && point.shards > 0)
        {
            by_shards.entry(point.shards).or_default().push(*point);
        }
        let lines = by_shards.into_iter().filter_map(|(shards, mut points)| {
            points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            Some((shards, line(&points, objective)?))
        });
        Self(lines.collect())
    }

    /// Numbers of shards and their capacities.
    pub fn capacities(&self) -> Vec<(f64, f64)> {
        self.0
            .iter()
            .map(|(shards, line)| (f64::from(*shards), line.capacity))
            .collect()
    }

    /// The most shards with a line.
    pub fn shards_max(&self) -> u16 {
        self.0.keys().next_back().copied().unwrap_or(0)
    }

    /// The line of a number of shards, or of the nearest; true when it is its own.
    pub fn nearest(&self, shards: u16) -> Option<(&Line, bool)> {
        let nearest = self
            .0
            .iter()
            .min_by_key(|(known, _)| known.abs_diff(shards));
        nearest.map(|(known, line)| (line, *known == shards))
    }

    /// Percentiles at a share of the capacity, 0 to 1; none above.
    pub fn latency(&self, shards: u16, share: f64) -> Option<(Latency, Origin)> {
        let (line, is_own) = self.nearest(shards)?;
        let (latency, origin) = line.at(share)?;
        Some((latency, if is_own { origin } else { Origin::Extrapolated }))
    }
}

fn line(points: &[Point], objective: &Objective) -> Option<Line> {
    let good = points.iter().filter(|point| objective.is_met(point));
    let last_good = *good.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
    let first_bad = points
        .iter()
        .find(|point| point.rate > last_good.rate && !objective.is_met(point))
        .copied();
    let mut worst = Latency::default();
    let below = || points.iter().filter(|point| point.rate <= last_good.rate);
    let held = |rate: f64| below().any(|point| point.rate == rate && objective.is_met(point));
    let is_noisy = below().any(|point| !held(point.rate));
    let steps = below()
        .filter(|point| objective.is_met(point))
        .map(|point| {
            // Less load is not slower: what says so is noise, and the worse figure is kept.
            worst = Latency {
                p50_us: worst.p50_us.max(point.p50_us),
                p99_us: worst.p99_us.max(point.p99_us),
                p999_us: worst.p999_us.max(point.p999_us),
            };
            (point.rate / last_good.rate, worst)
        })
        .collect();
    Some(Line {
        capacity: last_good.rate,
        is_bounded: first_bad.is_some(),
        last_good,
        first_bad,
        is_noisy,
        steps,
    })
}

impl Line {
    fn at(&self, share: f64) -> Option<(Latency, Origin)> {
        let above = self.steps.iter().position(|(known, _)| *known >= share)?;
        let (high, upper) = self.steps[above];
        let Some((low, lower)) = above.checked_sub(1).map(|below| self.steps[below]) else {
            let is_there = high - share < 1e-9;
            let origin = if is_there {
                Origin::Interpolated
            } else {
                Origin::UpperBound
            };
            return Some((upper, origin));
        };
        let part = if high > low {
            (share - low) / (high - low)
        } else {
            1.0
        };
        let between = |low: f64, high: f64| low + (high - low) * part;
        Some((
            Latency {
                p50_us: between(lower.p50_us, upper.p50_us),
                p99_us: between(lower.p99_us, upper.p99_us),
                p999_us: between(lower.p999_us, upper.p999_us),
            },
            Origin::Interpolated,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn point(shards: u16, rate: f64, p99_us: f64) -> Point {
        Point {
            shards,
            rate,
            good_per_s: rate,
            p50_us: p99_us / 5.0,
            p99_us,
            p999_us: p99_us * 2.0,
            sent_share: 1.0,
            ..Point::default()
        }
    }

    const OBJECTIVE: Objective = Objective {
        p99_us: 5_000.0,
        error_share: 0.001,
    };

    fn curve() -> Curve {
        let points = [
            point(1, 2_000.0, 400.0),
            point(1, 8_000.0, 900.0),
            point(1, 10_000.0, 4_000.0),
            point(1, 12_000.0, 30_000.0),
            point(2, 18_000.0, 4_500.0),
        ];
        Curve::new(&points, &OBJECTIVE)
    }

    #[test]
    fn capacity_is_the_highest_rate_that_met_the_objective() {
        let curve = curve();
        assert_eq!(curve.capacities(), [(1.0, 10_000.0), (2.0, 18_000.0)]);
        assert!(curve.0[&1].is_bounded && !curve.0[&2].is_bounded);
        assert_eq!(curve.0[&1].first_bad.unwrap().rate, 12_000.0);
    }

    #[test]
    fn latency_is_read_between_points_and_never_above_the_last() {
        let curve = curve();
        let (latency, origin) = curve.latency(1, 0.9).unwrap();
        assert!((latency.p99_us - 2_450.0).abs() < 1e-6);
        assert_eq!(origin, Origin::Interpolated);
        let (latency, origin) = curve.latency(1, 0.05).unwrap();
        assert_eq!((latency.p99_us, origin), (400.0, Origin::UpperBound));
        assert!(curve.latency(1, 1.01).is_none());
        assert_eq!(curve.latency(4, 1.0).unwrap().1, Origin::Extrapolated);
    }

    #[test]
    fn noise_makes_no_load_cheaper_than_a_lower_one() {
        let points = [point(1, 1_000.0, 900.0), point(1, 2_000.0, 500.0)];
        let curve = Curve::new(&points, &OBJECTIVE);
        assert_eq!(curve.latency(1, 1.0).unwrap().0.p99_us, 900.0);
    }

    #[test]
    fn a_lower_rate_that_missed_is_noise_unless_it_was_held_the_second_time() {
        let points = [point(1, 500.0, 9_000.0), point(1, 2_000.0, 500.0)];
        let curve = Curve::new(&points, &OBJECTIVE);
        assert!(curve.0[&1].is_noisy);
        assert_eq!(curve.latency(1, 0.2).unwrap().0.p99_us, 500.0);
        let again = [points[0], point(1, 500.0, 300.0), points[1]];
        assert!(!Curve::new(&again, &OBJECTIVE).0[&1].is_noisy);
    }

    #[test]
    fn points_that_were_not_held_do_not_count() {
        let unsent = Point {
            sent_share: 0.98,
            ..point(1, 10.0, 1.0)
        };
        let failing = Point {
            error_share: 0.01,
            ..point(1, 10.0, 1.0)
        };
        let slow = point(1, 10.0, 5_001.0);
        for bad in [unsent, failing, slow] {
            assert!(Curve::new(&[bad], &OBJECTIVE).0.is_empty());
        }
    }
}
