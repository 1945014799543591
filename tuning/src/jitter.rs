//! How late a core wakes a thread that slept: short sleeps on each of the shards' cores.
//!
//! Owns its threads for the time of the measurement and nothing else. On a loaded core the figures
//! tell of the load, which is what a shard there would feel as well.

use std::{
    thread,
    time::{Duration, Instant},
};

use shards::topology;

/// What is asked of the timer each time.
const SLEEP: Duration = Duration::from_millis(1);

/// How late sleeps ended on one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Jitter {
    pub(crate) cpu: usize,
    /// Whether the thread could be pinned to the core.
    pub(crate) is_pinned: bool,
    /// Sleeps, at least one.
    pub(crate) count: usize,
    /// 99 of 100 sleeps were at most this late.
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

/// Sleeps on all `cpus` at once, for about `length`. A core whose thread cannot be started is left
/// out.
pub(crate) fn measure(cpus: &[usize], length: Duration) -> Vec<Jitter> {
    thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .filter_map(|&cpu| {
                thread::Builder::new()
                    .name(format!("jitter-{cpu}"))
                    .spawn_scoped(scope, move || measure_one(cpu, length))
                    .ok()
            })
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    })
}

fn measure_one(cpu: usize, length: Duration) -> Jitter {
    let is_pinned = topology::pin(cpu);
    let start = Instant::now();
    let mut late = Vec::new();
    while late.is_empty() || start.elapsed() < length {
        let asleep = Instant::now();
        thread::sleep(SLEEP);
        late.push(asleep.elapsed().saturating_sub(SLEEP));
    }
    late.sort_unstable();
    Jitter {
        cpu,
        is_pinned,
        count: late.len(),
        p99: percentile(&late, 99),
        max: percentile(&late, 100),
    }
}

/// The smallest value that `percent` of all values do not exceed; zero of none.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!(percentile(&sorted, 99), Duration::from_micros(198));
        assert_eq!(percentile(&sorted, 100), Duration::from_micros(200));
        assert_eq!(percentile(&sorted[..1], 99), Duration::from_micros(1));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn every_core_is_measured_at_least_once() {
        let measured = measure(&[0, 0], Duration::ZERO);
        assert_eq!(measured.len(), 2);
        for jitter in measured {
            assert_eq!(jitter.count, 1);
            assert_eq!(jitter.p99, jitter.max);
        }
    }
}
