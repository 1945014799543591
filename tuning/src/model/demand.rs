//! Service demand: the time a shard is busy for one call, and what a forwarded call costs more.
//!
//! Busy cores = rate x D x (1 + f c), with D the demand of a local call, f the share of calls that
//! cross a ring and c what a crossing costs relative to D.

use serde::Serialize;

use super::{Point, fit::non_negative};

/// What a crossing costs when the points do not tell it: they all had the same share.
pub const FORWARD_COST: f64 = 0.5;
/// Shares of forwarded calls have to differ by this much to tell the cost of a crossing.
const SHARES_APART: f64 = 0.2;
/// Below this the shards' idle work is a large part of what was measured.
const BUSY_MIN: f64 = 0.02;

/// Demand of a call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Demand {
    /// Microseconds of a shard for a local call.
    pub local_us: f64,
    /// A crossing, relative to a local call.
    pub forward_cost: f64,
    /// Whether the cost of a crossing was measured.
    pub forward_is_measured: bool,
    /// Root mean square of the relative differences from the points.
    pub residual: f64,
}

impl Demand {
    /// Fits the points that tell how busy their shards were.
    pub fn fit(points: &[Point]) -> Option<Self> {
        let usable: Vec<(f64, f64, f64)> = points
            .iter()
            .filter_map(|point| {
                let busy = point.busy.filter(|busy| *busy >= BUSY_MIN)?;
                let cores = busy * f64::from(point.shards);
                (point.good_per_s > 0.0).then_some((
                    cores / point.good_per_s * 1e6,
                    point.forwarded.unwrap_or(0.0),
                    point.good_per_s,
                ))
            })
            .collect();
        let shares = usable.iter().map(|(_, share, _)| *share);
        let least = shares.clone().fold(f64::INFINITY, f64::min);
        let tells_cost = shares.fold(0.0, f64::max) - least >= SHARES_APART;
        let (local_us, forward_cost) = if tells_cost {
            // Relative differences count: each row is divided by its demand.
            let rows: Vec<[f64; 2]> = usable
                .iter()
                .map(|(demand, share, _)| [1.0 / demand, share / demand])
                .collect();
            let ([local, crossing], _) = non_negative(&rows, &vec![1.0; rows.len()])?;
            (local, crossing / local)
        } else {
            let rows: Vec<[f64; 1]> = usable
                .iter()
                .map(|(demand, share, _)| [(1.0 + share * FORWARD_COST) / demand])
                .collect();
            let ([local], _) = non_negative(&rows, &vec![1.0; rows.len()])?;
            (local, FORWARD_COST)
        };
        if !(local_us > 0.0 && forward_cost.is_finite()) {
            return None;
        }
        let squares: f64 = usable
            .iter()
            .map(|(demand, share, _)| {
                (local_us * (1.0 + share * forward_cost) / demand - 1.0).powi(2)
            })
            .sum();
        Some(Self {
            local_us,
            forward_cost,
            forward_is_measured: tells_cost,
            residual: (squares / usable.len() as f64).sqrt(),
        })
    }

    /// Share of the time each shard is busy at a rate, the calls spread evenly.
    pub fn utilization(&self, rate: f64, shards: f64, forwarded: f64) -> f64 {
        rate * self.local_us / 1e6 * (1.0 + forwarded * self.forward_cost) / shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(rate: f64, shards: u16, forwarded: f64, demand: f64, cost: f64) -> Point {
        Point {
            shards,
            rate,
            good_per_s: rate,
            forwarded: Some(forwarded),
            busy: Some(rate * demand / 1e6 * (1.0 + forwarded * cost) / f64::from(shards)),
            ..Point::default()
        }
    }

    proptest! {
        #[test]
        fn demand_and_cost_are_found_again(demand in 4.0_f64..80.0, cost in 0.1_f64..1.5) {
            let points = [
                point(5_000.0, 1, 0.0, demand, cost),
                point(9_000.0, 2, 0.5, demand, cost),
                point(12_000.0, 4, 0.75, demand, cost),
            ];
            let fitted = Demand::fit(&points).unwrap();
            // Points with idle shards are left out: then the cost may be unknown.
            if fitted.forward_is_measured {
                prop_assert!((fitted.forward_cost / cost - 1.0).abs() < 1e-6);
                prop_assert!((fitted.local_us / demand - 1.0).abs() < 1e-6);
                prop_assert!(fitted.residual < 1e-6);
            }
        }
    }

    #[test]
    fn an_equal_share_leaves_the_cost_assumed() {
        let points = [
            point(20_000.0, 1, 0.0, 20.0, 9.9),
            point(30_000.0, 2, 0.0, 20.0, 9.9),
        ];
        let fitted = Demand::fit(&points).unwrap();
        assert!(!fitted.forward_is_measured);
        assert!((fitted.local_us - 20.0).abs() < 1e-9);
        assert!((fitted.utilization(65_000.0, 2.0, 0.0) - 0.65).abs() < 1e-9);
        assert!((fitted.utilization(65_000.0, 2.0, 1.0) - 0.975).abs() < 1e-9);
    }

    #[test]
    fn points_without_a_busy_share_tell_nothing() {
        assert!(Demand::fit(&[]).is_none());
        let silent = Point {
            good_per_s: 100.0,
            shards: 1,
            ..Point::default()
        };
        assert!(Demand::fit(&[silent]).is_none());
    }
}
