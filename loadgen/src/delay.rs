//! Times that vary: a server's latency, a user's thinking.
//!
//! Written `5ms`, `uniform:1ms..20ms`, `exponential:5ms` (its mean) or `lognormal:5ms,0.8` (its
//! median, and the deviation of its logarithm).

use std::{fmt, str::FromStr, time::Duration};

use crate::{random::Random, units::parse_time};

/// Longest time a distribution gives: an endless tail must not hold up a run.
const LONGEST: Duration = Duration::from_secs(60);

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delay {
    /// Always the same.
    Fixed(Duration),
    /// Evenly between two.
    Uniform(Duration, Duration),
    /// Memoryless, with this mean.
    Exponential(Duration),
    /// Its logarithm is normal: most are near the median, a few far above.
    LogNormal {
        /// Half are below.
        median: Duration,
        /// Deviation of the logarithm; 0.5 is mild, 1.5 is wild.
        sigma: f64,
    },
}

/// Text that is no distribution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is none of 5ms, uniform:1ms..20ms, exponential:5ms, lognormal:5ms,0.8 (median, sigma)"
)]
pub struct NotADelay(String);

impl Default for Delay {
    fn default() -> Self {
        Self::Fixed(Duration::ZERO)
    }
}

impl Delay {
    /// The next time, 60 s at the most.
    pub fn draw(&self, random: &mut Random) -> Duration {
        let seconds = match self {
            Self::Fixed(time) => return *time,
            Self::Uniform(from, to) => {
                from.as_secs_f64() + (to.as_secs_f64() - from.as_secs_f64()) * random.unit()
            }
            Self::Exponential(mean) => mean.as_secs_f64() * random.exponential(),
            Self::LogNormal { median, sigma } => {
                median.as_secs_f64() * (sigma * random.normal()).exp()
            }
        };
        Duration::try_from_secs_f64(seconds).map_or(LONGEST, |time| time.min(LONGEST))
    }

    /// Whether it is always no time at all.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl FromStr for Delay {
    type Err = NotADelay;

    fn from_str(text: &str) -> Result<Self, NotADelay> {
        let parsed = match text.split_once(':') {
            None => parse_time(text).map(Self::Fixed),
            Some(("uniform", range)) => range.split_once("..").and_then(|(from, to)| {
                let (from, to) = (parse_time(from)?, parse_time(to)?);
                (from <= to).then_some(Self::Uniform(from, to))
            }),
            Some(("exponential", mean)) => parse_time(mean).map(Self::Exponential),
            Some(("lognormal", pair)) => pair.split_once(',').and_then(|(median, sigma)| {
                let sigma: f64 = sigma.trim().parse().ok()?;
                (0.0..=5.0).contains(&sigma).then_some(Self::LogNormal {
                    median: parse_time(median)?,
                    sigma,
                })
            }),
            Some(_) => None,
        };
        parsed.ok_or_else(|| NotADelay(text.to_owned()))
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(time) => write!(f, "{time:?}"),
            Self::Uniform(from, to) => write!(f, "uniform:{from:?}..{to:?}"),
            Self::Exponential(mean) => write!(f, "exponential:{mean:?}"),
            Self::LogNormal { median, sigma } => write!(f, "lognormal:{median:?},{sigma}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn every_form_is_read_and_written() {
        for (text, delay) in [
            ("5ms", Delay::Fixed(5 * MS)),
            ("uniform:1ms..20ms", Delay::Uniform(MS, 20 * MS)),
            ("exponential:1.5s", Delay::Exponential(1500 * MS)),
            (
                "lognormal:5ms,0.8",
                Delay::LogNormal {
                    median: 5 * MS,
                    sigma: 0.8,
                },
            ),
        ] {
            assert_eq!(text.parse(), Ok(delay));
            assert_eq!(delay.to_string(), text);
        }
        for text in [
            "",
            "5",
            "ms",
            "-5ms",
            "uniform:5ms",
            "uniform:2ms..1ms",
            "lognormal:5ms",
            "lognormal:5ms,-1",
            "lognormal:5ms,nan",
            "gauss:5ms",
        ] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_distribution() {
        let quantile = |delay: Delay, share: f64| {
            let mut random = Random::new(3);
            let mut times: Vec<_> = (0..100_000).map(|_| delay.draw(&mut random)).collect();
            times.sort_unstable();
            times[(100_000.0 * share) as usize].as_secs_f64() * 1000.0
        };
        let is_near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.03;
        assert!(is_near(quantile(Delay::Uniform(MS, 101 * MS), 0.9), 91.0));
        // -ln(1 - p) times the mean.
        assert!(is_near(quantile(Delay::Exponential(10 * MS), 0.99), 46.05));
        let delay = Delay::LogNormal {
            median: 10 * MS,
            sigma: 0.5,
        };
        assert!(is_near(quantile(delay, 0.5), 10.0));
        // exp(0.5 * 1.2816) times the median.
        assert!(is_near(quantile(delay, 0.9), 18.98));
    }

    #[test]
    fn a_tail_ends() {
        let delay = Delay::Exponential(Duration::from_secs(100_000));
        assert_eq!(delay.draw(&mut Random::new(1)), LONGEST);
    }
}
