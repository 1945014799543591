//! Random numbers that a seed repeats: what a run draws is the same on every machine.

/// xorshift64* over a SplitMix-scrambled seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring sequences, and the state must not be 0.
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((state ^ (state >> 31)) | 1)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Evenly from [0, 1).
    pub fn unit(&mut self) -> f64 {
        // 53 bits, all that a double holds.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly from 0 to `bound`, exclusive; 0 when the bound is.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Normal with mean 0 and deviation 1 (Box-Muller, one of its two).
    pub fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// True in this share of draws.
    pub fn is_in(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence_and_neighbours_differ() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(draw(0), draw(u64::MAX));
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(1);
        let count = 200_000;
        let mut mean = |draw: fn(&mut Random) -> f64| {
            (0..count).map(|_| draw(&mut random)).sum::<f64>() / f64::from(count)
        };
        // Ten standard errors of the mean.
        assert!((mean(Random::unit) - 0.5).abs() < 0.007);
        assert!((mean(Random::exponential) - 1.0).abs() < 0.023);
        assert!(mean(Random::normal).abs() < 0.023);
        assert!((mean(|random| random.normal().powi(2)) - 1.0).abs() < 0.032);
        assert!((mean(|random| random.below(10) as f64) - 4.5).abs() < 0.065);
        assert_eq!(random.below(0), 0);
        assert!(!random.is_in(0.0) && random.is_in(1.0));
    }
}
