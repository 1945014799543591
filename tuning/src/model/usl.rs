//! The Universal Scalability Law: what more shards bring, and where they stop bringing it.
//!
//! X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1)): lambda is what one shard does, sigma
//! the share that waits in line, kappa the cost of every pair talking (N. Gunther, 1993).

use serde::Serialize;

use super::fit::non_negative;

/// Points at different numbers of shards that make a fit worth something.
pub const POINTS_WANTED: usize = 6;

/// A fitted law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usl {
    /// Calls per second of one shard.
    pub lambda: f64,
    /// Contention, 0 to 1.
    pub sigma: f64,
    /// Coherence.
    pub kappa: f64,
    /// Root mean square of the relative differences from the points.
    pub residual: f64,
    /// Different numbers of shards it was fitted to.
    pub points: usize,
    /// The largest number of shards among them.
    pub shards_max: f64,
}

impl Usl {
    /// Fits throughputs at numbers of shards; `None` without a usable point. With one number of
    /// shards only lambda is found, with two lambda and the better of the others.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let usable: Vec<(f64, f64)> = points
            .iter()
            .copied()
            .filter(|(shards, rate)| {
                *shards >= 1.0 && *rate > 0.0 && shards.is_finite() && rate.is_finite()
            })
            .collect();
        let mut different: Vec<u64> = usable.iter().map(|(shards, _)| shards.to_bits()).collect();
        different.sort_unstable();
        different.dedup();
        // N / X = a + b (N - 1) + c N (N - 1), each row divided by its left side, so that relative
        // differences count and large systems do not outweigh small ones.
        let rows: Vec<[f64; 3]> = usable
            .iter()
            .map(|(n, x)| [x / n, x / n * (n - 1.0), x * (n - 1.0)])
            .collect();
        let rows = scaled(rows);
        let wanted = vec![1.0; rows.0.len()];
        let (solution, _) = match different.len() {
            0 => return None,
            1 => {
                let one: Vec<[f64; 1]> = rows.0.iter().map(|row| [row[0]]).collect();
                let ([a], left) = non_negative(&one, &wanted)?;
                ([a, 0.0, 0.0], left)
            }
            2 => one_cost(&rows.0, &wanted, 1)?,
            _ => non_negative(&rows.0, &wanted)?,
        };
        let [mut a, mut b, mut c] = solution;
        // All calls in one line is the most that contention can be: what is worse is coherence.
        if b > a && different.len() > 1 {
            ([a, b, c], _) = one_cost(&rows.0, &wanted, 2)?;
        }
        if a <= 0.0 {
            return None;
        }
        let mut usl = Self {
            lambda: rows.1 / a,
            sigma: b / a,
            kappa: c / a,
            residual: 0.0,
            points: different.len(),
            shards_max: usable.iter().map(|(shards, _)| *shards).fold(1.0, f64::max),
        };
        let squares: f64 = usable
            .iter()
            .map(|(shards, rate)| (usl.throughput(*shards) / rate - 1.0).powi(2))
            .sum();
        usl.residual = (squares / usable.len() as f64).sqrt();
        Some(usl)
    }

    /// Calls per second at a number of shards.
    pub fn throughput(&self, shards: f64) -> f64 {
        let pairs = shards * (shards - 1.0);
        self.lambda * shards / (1.0 + self.sigma * (shards - 1.0) + self.kappa * pairs)
    }

    /// N*: the number of shards beyond which more bring less; none when there is no such number.
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 1e-12 && self.sigma < 1.0)
            .then(|| ((1.0 - self.sigma) / self.kappa).sqrt().max(1.0))
    }
}

/// Throughputs are numbers of many digits, and rates differ from machine to machine: rows are
/// divided by the largest, which is undone in lambda.
fn scaled(mut rows: Vec<[f64; 3]>) -> (Vec<[f64; 3]>, f64) {
    let largest = rows.iter().map(|row| row[0]).fold(0.0, f64::max);
    for row in &mut rows {
        for cell in row {
            *cell /= largest;
        }
    }
    (rows, largest)
}

/// With contention (column 1) or coherence (column 2) alone. Two numbers of shards cannot tell one
/// from the other.
fn one_cost(rows: &[[f64; 3]], wanted: &[f64], column: usize) -> Option<([f64; 3], f64)> {
    let two: Vec<[f64; 2]> = rows.iter().map(|row| [row[0], row[column]]).collect();
    let ([a, cost], left) = non_negative(&two, wanted)?;
    let mut solution = [a, 0.0, 0.0];
    solution[column] = cost;
    Some((solution, left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn law(lambda: f64, sigma: f64, kappa: f64) -> Usl {
        Usl {
            lambda,
            sigma,
            kappa,
            residual: 0.0,
            points: 0,
            shards_max: 1.0,
        }
    }

    fn points(law: &Usl, shards: &[u16]) -> Vec<(f64, f64)> {
        shards
            .iter()
            .map(|n| (f64::from(*n), law.throughput(f64::from(*n))))
            .collect()
    }

    proptest! {
        #[test]
        fn a_law_is_found_again(
            lambda in 100.0_f64..200_000.0,
            sigma in 0.0_f64..0.3,
            kappa in 0.0_f64..0.01,
        ) {
            let law = law(lambda, sigma, kappa);
            let fitted = Usl::fit(&points(&law, &[1, 2, 3, 4, 6, 8, 12, 16])).unwrap();
            prop_assert!((fitted.lambda / lambda - 1.0).abs() < 1e-3, "{:?}", fitted);
            prop_assert!((fitted.sigma - sigma).abs() < 1e-3, "{:?}", fitted);
            prop_assert!((fitted.kappa - kappa).abs() < 1e-4, "{:?}", fitted);
            prop_assert!(fitted.residual < 1e-4);
        }

        #[test]
        fn noise_moves_the_law_by_little(seed in any::<u64>()) {
            let law = law(10_000.0, 0.05, 0.001);
            let mut state = seed | 1;
            let noisy: Vec<(f64, f64)> = points(&law, &[1, 2, 3, 4, 6, 8, 12, 16])
                .into_iter()
                .map(|(n, x)| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Up to 3 % in either direction.
                    (n, x * (0.97 + 0.06 * (state >> 40) as f64 / f64::from(1 << 24)))
                })
                .collect();
            let fitted = Usl::fit(&noisy).unwrap();
            prop_assert!(fitted.sigma >= 0.0 && fitted.kappa >= 0.0);
            prop_assert!(fitted.residual < 0.03);
            for n in [1.0, 5.0, 16.0] {
                let error = fitted.throughput(n) / law.throughput(n) - 1.0;
                prop_assert!(error.abs() < 0.08, "{} at {}", error, n);
            }
        }

        #[test]
        fn no_points_break_the_fit(
            points in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..6)
        ) {
            let _ = Usl::fit(&points);
        }
    }

    #[test]
    fn the_peak_is_where_the_law_turns() {
        let law = law(1000.0, 0.1, 0.01);
        let peak = law.peak().unwrap();
        assert!((peak - 9.486).abs() < 0.01);
        assert!(law.throughput(peak) > law.throughput(peak - 1.0));
        assert!(law.throughput(peak) > law.throughput(peak + 1.0));
        assert_eq!(self::law(1000.0, 0.1, 0.0).peak(), None);
    }

    #[test]
    fn few_points_give_few_parameters() {
        let one = Usl::fit(&[(1.0, 500.0), (1.0, 520.0)]).unwrap();
        assert!((one.lambda - 510.0).abs() < 1.0);
        assert_eq!((one.sigma, one.kappa, one.points), (0.0, 0.0, 1));
        let two = Usl::fit(&[(1.0, 500.0), (2.0, 900.0)]).unwrap();
        assert!((two.sigma - 0.111).abs() < 0.01 && two.kappa == 0.0);
        // Less than one shard did alone: no contention is that bad, and there is a peak.
        let retrograde = Usl::fit(&[(1.0, 700.0), (2.0, 250.0)]).unwrap();
        assert_eq!(retrograde.sigma, 0.0);
        assert!(retrograde.residual < 1e-6 && retrograde.peak() == Some(1.0));
        // More than double is no negative contention.
        let lucky = Usl::fit(&[(1.0, 500.0), (2.0, 1100.0)]).unwrap();
        assert_eq!(lucky.sigma, 0.0);
        assert!(lucky.residual > 0.0);
        assert!(Usl::fit(&[]).is_none());
        assert!(Usl::fit(&[(0.0, 5.0), (2.0, 0.0)]).is_none());
    }
}
