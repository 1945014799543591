//! When calls are due: a rate over time, and the schedule that follows from it.
//!
//! A [`Shape`] is a rate in straight lines: constant, ramps, steps, a spike. What is due by a
//! moment is the area below it, so the moment of the nth call is that area's inverse: exact for
//! every shape, and no rounding adds up. Poisson arrivals are a process of rate 1 bent the same
//! way.

use std::time::Duration;

use crate::random::Random;

/// A stretch of a shape: from one rate to another in a straight line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Calls per second at its beginning.
    pub from: f64,
    /// Calls per second at its end.
    pub to: f64,
    /// How long it lasts.
    pub length: Duration,
}

impl Stage {
    /// The same rate all the time.
    pub fn constant(rate: f64, length: Duration) -> Self {
        Self {
            from: rate,
            to: rate,
            length,
        }
    }

    /// Calls due in it.
    fn area(&self) -> f64 {
        f64::midpoint(self.from, self.to) * self.length.as_secs_f64()
    }

    /// Seconds after its beginning at which `area` calls are due.
    fn seconds_of(&self, area: f64) -> f64 {
        let length = self.length.as_secs_f64();
        if length <= 0.0 {
            return 0.0;
        }
        let slope = (self.to - self.from) / length;
        // from * t + slope * t^2 / 2 = area, in the form that is stable for a slope near 0.
        let root = (2.0f64.mul_add(slope * area, self.from * self.from))
            .max(0.0)
            .sqrt();
        let sum = self.from + root;
        if sum <= 0.0 { 0.0 } else { 2.0 * area / sum }
    }
}

/// A rate over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shape {
    stages: Vec<Stage>,
}

impl Shape {
    /// These stages, one after the other.
    pub fn new(stages: Vec<Stage>) -> Self {
        Self { stages }
    }

    /// From one rate to another in a straight line.
    pub fn ramp(from: f64, to: f64, length: Duration) -> Self {
        Self::new(vec![Stage { from, to, length }])
    }

    /// From one rate to another in steps of equal length.
    pub fn steps(from: f64, to: f64, step: f64, length: Duration) -> Self {
        let count = ((to - from).abs() / step.abs()).floor();
        let count = if count.is_finite() { count as u32 } else { 0 };
        let signed = step.abs().copysign(to - from);
        let each = length / (count + 1);
        let rate = |index: u32| f64::from(index).mul_add(signed, from);
        Self::new(
            (0..=count)
                .map(|index| Stage::constant(rate(index), each))
                .collect(),
        )
    }

    /// `base`, in the middle third `peak`.
    pub fn spike(base: f64, peak: f64, length: Duration) -> Self {
        let third = length / 3;
        Self::new(vec![
            Stage::constant(base, third),
            Stage::constant(peak, third),
            Stage::constant(base, third),
        ])
    }

    /// The shape after a time at its first rate.
    pub fn after(mut self, warm_up: Duration) -> Self {
        if let Some(first) = self.stages.first()
            && !warm_up.is_zero()
        {
            let stage = Stage::constant(first.from, warm_up);
            self.stages.insert(0, stage);
        }
        self
    }

    /// Its stages, one after the other.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// How long it lasts.
    pub fn length(&self) -> Duration {
        self.stages.iter().map(|stage| stage.length).sum()
    }

    /// Calls due from its beginning to its end.
    pub fn area(&self) -> f64 {
        self.stages.iter().map(Stage::area).sum()
    }

    /// Highest rate.
    pub fn peak(&self) -> f64 {
        let rates = self.stages.iter().flat_map(|stage| [stage.from, stage.to]);
        rates.fold(0.0, f64::max)
    }

    /// Whether every rate is a number above 0, or at least not below and not all are 0.
    pub fn is_sound(&self) -> bool {
        let mut rates = self.stages.iter().flat_map(|stage| [stage.from, stage.to]);
        rates.all(|rate| rate >= 0.0 && rate.is_finite()) && self.peak() > 0.0
    }
}

/// How calls follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Constant,
    /// At random, as from many clients that know nothing of each other.
    Poisson,
}

/// One shard's part of a schedule.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    stages: Vec<Stage>,
    /// The stage of the next call, when it begins and what was due before it.
    stage: usize,
    stage_start_s: f64,
    stage_area: f64,
    /// Constant: this shard's first call and how many shards there are. Poisson: drawn so far.
    first: f64,
    stride: f64,
    index: u64,
    drawn: Option<(Random, f64)>,
    next: Option<Duration>,
}

impl Schedule {
    /// The part of `shard` of `shards`. Calls of all shards together make the whole schedule.
    pub(crate) fn new(
        shape: &Shape,
        arrivals: Arrivals,
        seed: u64,
        shard: u16,
        shards: u16,
    ) -> Self {
        let mut schedule = Self {
            stages: shape.stages.clone(),
            stage: 0,
            stage_start_s: 0.0,
            stage_area: 0.0,
            first: f64::from(shard),
            stride: f64::from(shards),
            index: 0,
            // A sum of Poisson processes is one: each shard has its own at its share of the rate.
            drawn: (arrivals == Arrivals::Poisson)
                .then(|| (Random::new(seed ^ (u64::from(shard) << 32)), 0.0)),
            next: None,
        };
        schedule.advance();
        schedule
    }

    /// Intended start of the next call, after the start of the run, and on to the call after it;
    /// `None`: there are no more.
    pub(crate) fn take(&mut self) -> Option<Duration> {
        let due = self.next;
        if due.is_some() {
            self.advance();
        }
        due
    }

    /// Intended start of the next call; `None`: there are no more.
    pub(crate) fn peek(&self) -> Option<Duration> {
        self.next
    }

    fn advance(&mut self) {
        let area = match &mut self.drawn {
            Some((random, sum)) => {
                *sum += random.exponential() * self.stride;
                *sum
            }
            // Computed from the index each time, so that rounding never adds up.
            None => (self.index as f64).mul_add(self.stride, self.first),
        };
        self.index += 1;
        self.next = self.time_of(area);
    }

    /// When the area below the shape is `area`; areas come in ascending order.
    fn time_of(&mut self, area: f64) -> Option<Duration> {
        loop {
            let stage = self.stages.get(self.stage)?;
            let within = area - self.stage_area;
            // The end belongs to the next stage; a sum of stages may miss by a rounding.
            if within < stage.area() - 1e-9 {
                let seconds = self.stage_start_s + stage.seconds_of(within.max(0.0));
                return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
            }
            self.stage_area += stage.area();
            self.stage_start_s += stage.length.as_secs_f64();
            self.stage += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// All calls of all shards, in order, in seconds.
    fn all(shape: &Shape, arrivals: Arrivals, shards: u16) -> Vec<f64> {
        let mut times = Vec::new();
        for shard in 0..shards {
            let mut schedule = Schedule::new(shape, arrivals, 7, shard, shards);
            while let Some(due) = schedule.take() {
                times.push(due.as_secs_f64());
            }
        }
        times.sort_unstable_by(f64::total_cmp);
        times
    }

    fn count_in(times: &[f64], from: f64, to: f64) -> usize {
        times.iter().filter(|at| (from..to).contains(*at)).count()
    }

    #[test]
    fn the_shards_share_one_even_schedule() {
        let shape = Shape::new(vec![Stage::constant(1000.0, 3 * SECOND)]);
        let times = all(&shape, Arrivals::Constant, 3);
        assert_eq!(times.len(), 3000);
        for (index, at) in times.iter().enumerate() {
            assert!((at - index as f64 / 1000.0).abs() < 1e-6, "{index} {at}");
        }
    }

    #[test]
    fn rounding_does_not_add_up() {
        let shape = Shape::new(vec![Stage::constant(3.0, 2_000_000 * SECOND)]);
        let mut schedule = Schedule::new(&shape, Arrivals::Constant, 1, 0, 1);
        let mut last = None;
        for _ in 0..3_000_001 {
            last = schedule.take();
        }
        assert_eq!(last, Some(1_000_000 * SECOND));
    }

    #[test]
    fn a_ramp_steps_and_a_spike_have_their_rates() {
        let ramp = all(&Shape::ramp(0.0, 200.0, 10 * SECOND), Arrivals::Constant, 2);
        assert_eq!(ramp.len(), 1000);
        // A quarter of the area lies below the first half.
        assert_eq!(count_in(&ramp, 0.0, 5.0), 250);
        assert!(ramp.is_sorted());
        let down = all(&Shape::ramp(200.0, 0.0, 10 * SECOND), Arrivals::Constant, 1);
        assert_eq!(count_in(&down, 0.0, 5.0), 750);
        let steps = Shape::steps(100.0, 300.0, 100.0, 6 * SECOND);
        let steps = all(&steps, Arrivals::Constant, 2);
        for (from, count) in [(0.0, 200), (2.0, 400), (4.0, 600)] {
            assert_eq!(count_in(&steps, from - 1e-7, from + 2.0 - 1e-7), count);
        }
        let spike = Shape::spike(10.0, 500.0, 3 * SECOND);
        assert_eq!((spike.peak(), spike.area().round()), (500.0, 520.0));
        let spike = all(&spike.after(2 * SECOND), Arrivals::Constant, 1);
        assert_eq!(count_in(&spike, 3.0 - 1e-7, 4.0 - 1e-7), 500);
        assert_eq!(spike.len(), 540);
        assert_eq!(
            Shape::steps(300.0, 100.0, 100.0, SECOND).stages[2].from,
            100.0
        );
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_no_memory() {
        let shape = Shape::new(vec![Stage::constant(1000.0, 100 * SECOND)]);
        let times = all(&shape, Arrivals::Poisson, 4);
        // Ten standard deviations of a count of 100,000.
        assert!(times.len().abs_diff(100_000) < 3200, "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let longer = gaps.iter().filter(|gap| **gap > 0.001).count();
        // exp(-1) of the gaps are longer than the mean gap.
        let share = longer as f64 / gaps.len() as f64;
        assert!((share - 0.3679).abs() < 0.02, "{share}");
        assert_eq!(
            times,
            all(&shape, Arrivals::Poisson, 4),
            "the seed repeats it"
        );
        let ramp = Shape::ramp(0.0, 2000.0, 100 * SECOND);
        let times = all(&ramp, Arrivals::Poisson, 1);
        assert!(count_in(&times, 0.0, 50.0).abs_diff(25_000) < 1600);
    }

    #[test]
    fn what_is_no_rate_is_found() {
        for (from, to) in [
            (0.0, 0.0),
            (-1.0, 5.0),
            (1.0, f64::NAN),
            (1.0, f64::INFINITY),
        ] {
            assert!(!Shape::ramp(from, to, SECOND).is_sound(), "{from} {to}");
        }
        assert!(Shape::ramp(0.0, 1.0, SECOND).is_sound());
        assert!(!Shape::default().is_sound());
        assert_eq!(
            all(&Shape::default(), Arrivals::Constant, 1),
            Vec::<f64>::new()
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        /// Whatever the shape, the shards together send what is due, in order, inside it.
        #[test]
        fn shards_together_send_the_area(
            rates in proptest::collection::vec((0_u32..300, 0_u32..300, 1_u64..3000), 1..5),
            shards in 1_u16..5,
        ) {
            let stages = rates.iter().map(|(from, to, length)| Stage {
                from: f64::from(*from),
                to: f64::from(*to),
                length: Duration::from_millis(*length),
            });
            let shape = Shape::new(stages.collect());
            let times = all(&shape, Arrivals::Constant, shards);
            // The first is due at area 0, if anything is.
            let expected = (shape.area() - 1e-6).ceil().max(0.0);
            proptest::prop_assert!((times.len() as f64 - expected).abs() <= 1.0);
            let length = shape.length().as_secs_f64();
            proptest::prop_assert!(times.iter().all(|at| (0.0..=length + 1e-6).contains(at)));
        }
    }
}
