//! Session skew: how much more the fullest shard has than the mean.
//!
//! A session stays on its shard, so the fullest shard decides the tail. Sessions dealt by chance
//! alone exceed the mean by about sqrt(2 ln N x N / S) (balls in bins, S much larger than N). The
//! gateway takes the less loaded of two shards, which leaves about log2(ln N) + 1 sessions.

use serde::Serialize;

/// Below this many sessions on each shard, chance alone is felt.
pub const SESSIONS_PER_SHARD_MIN: f64 = 200.0;

/// Sessions of the fullest shard, relative to the mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Skew {
    /// As the gateway places sessions that cause equal load.
    pub placed: f64,
    /// By chance alone: sessions of very different load, or dealt out by a hash in front.
    pub by_chance: f64,
    /// Whether there are few sessions for each shard.
    pub is_thin: bool,
}

/// The skew to expect.
pub fn skew(sessions: u64, shards: u16) -> Skew {
    let (s, n) = (sessions.max(1) as f64, f64::from(shards.max(1)));
    if shards <= 1 {
        return Skew {
            placed: 1.0,
            by_chance: 1.0,
            is_thin: false,
        };
    }
    let mean = s / n;
    // No shard has more than all sessions.
    let within = |ratio: f64| ratio.clamp(1.0, n);
    Skew {
        placed: within(1.0 + (n.ln().max(1.0).log2() + 1.0) / mean),
        by_chance: within(1.0 + (2.0 * n.ln() * n / s).sqrt()),
        is_thin: mean < SESSIONS_PER_SHARD_MIN,
    }
}

/// The skew of counted loads: the largest relative to the mean; none without load.
pub fn measured(loads: &[u64]) -> Option<f64> {
    let sum: u64 = loads.iter().sum();
    let largest = *loads.iter().max()?;
    (sum > 0).then(|| largest as f64 * loads.len() as f64 / sum as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % bound as u64) as usize
        }
    }

    /// The mean of `rounds` simulated skews.
    fn simulated(sessions: u64, shards: usize, choices: usize) -> f64 {
        let mut random = Random(88_172_645_463_325_252);
        let rounds = 200;
        let sum: f64 = (0..rounds)
            .map(|_| {
                let mut loads = vec![0_u64; shards];
                for _ in 0..sessions {
                    let picked = (0..choices).map(|_| random.below(shards));
                    let least = picked.min_by_key(|shard| loads[*shard]).unwrap();
                    loads[least] += 1;
                }
                measured(&loads).unwrap()
            })
            .sum();
        sum / f64::from(rounds)
    }

    #[test]
    fn the_formulas_are_close_to_what_happens_and_not_below() {
        for (sessions, shards) in [(400_u64, 2_u16), (1_000, 4), (3_200, 16), (12_800, 64)] {
            let expected = skew(sessions, shards);
            let chance = simulated(sessions, usize::from(shards), 1);
            assert!(
                expected.by_chance >= chance * 0.99,
                "{sessions} {shards} {chance}"
            );
            assert!(
                expected.by_chance <= chance * 1.12,
                "{sessions} {shards} {chance}"
            );
            let placed = simulated(sessions, usize::from(shards), 2);
            assert!(
                expected.placed >= placed * 0.99,
                "{sessions} {shards} {placed}"
            );
            assert!(
                expected.placed <= placed * 1.05,
                "{sessions} {shards} {placed}"
            );
        }
    }

    #[test]
    fn few_sessions_are_told() {
        assert!(skew(399, 2).is_thin && !skew(400, 2).is_thin);
        assert_eq!(skew(0, 1).by_chance, 1.0);
        assert!(skew(1, 8).by_chance <= 8.0);
        assert_eq!(measured(&[3, 1]), Some(1.5));
        assert_eq!(measured(&[0, 0]), None);
        assert_eq!(measured(&[]), None);
    }
}
