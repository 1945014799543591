//! How long a message takes over a ring from one core to another: two pinned threads that play
//! ping-pong. Owns its threads for the time of the measurement and nothing else.

use std::{
    thread,
    time::{Duration, Instant},
};

use shards::{
    ring::{Consumer, Producer, ring},
    topology,
};

/// Cores that are paired; with more, the first ones stand for all.
const CPUS_MAX: usize = 8;
/// Round trips of a pair.
const ROUNDS: usize = 2_000;
/// A pair ends after this time with what it has, should somebody else use its cores.
const PAIR_MAX: Duration = Duration::from_millis(50);
/// Looks at an empty ring before the core is offered to others.
const SPINS: u32 = 10_000;

/// The time between two cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) cpus: (usize, usize),
    /// Half of the median round trip.
    pub(crate) one_way_ns: u64,
}

/// Measures all pairs of `cpus`, one after the other. A pair that cannot be pinned is left out.
pub(crate) fn measure(cpus: &[usize]) -> Vec<Pair> {
    let cpus = cpus.get(..CPUS_MAX).unwrap_or(cpus);
    let mut pairs = Vec::new();
    for (index, &one) in cpus.iter().enumerate() {
        for &other in &cpus[index + 1..] {
            if one == other {
                continue;
            }
            if let Some(one_way_ns) = measure_pair(one, other) {
                pairs.push(Pair {
                    cpus: (one, other),
                    one_way_ns,
                });
            }
        }
    }
    pairs
}

fn measure_pair(one: usize, other: usize) -> Option<u64> {
    let (mut to_other, mut at_other) = ring::<u64>(16);
    let (mut to_one, mut at_one) = ring::<u64>(16);
    thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let is_pinned = topology::pin(other);
            let end = Instant::now() + PAIR_MAX * 2;
            while let Some(message) = wait(&mut at_other, end) {
                if message == 0 || !send(&mut to_one, message, end) {
                    break;
                }
            }
            is_pinned
        });
        // A thread of its own, so that the caller's keeps its cores.
        let ask = scope.spawn(move || {
            let is_pinned = topology::pin(one);
            let end = Instant::now() + PAIR_MAX;
            let mut times = Vec::with_capacity(ROUNDS);
            for round in 1..=ROUNDS as u64 {
                let sent_at = Instant::now();
                if !send(&mut to_other, round, end) || wait(&mut at_one, end).is_none() {
                    break;
                }
                times.push(sent_at.elapsed());
            }
            send(&mut to_other, 0, end + PAIR_MAX);
            (is_pinned, times)
        });
        let (is_pinned, mut times) = ask.join().ok()?;
        if !echo.join().ok()? || !is_pinned || times.is_empty() {
            return None;
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2)?;
        u64::try_from(median.as_nanos() / 2).ok()
    })
}

fn send(ring: &mut Producer<u64>, message: u64, end: Instant) -> bool {
    while ring.push(message).is_err() {
        if Instant::now() >= end {
            return false;
        }
        thread::yield_now();
    }
    true
}

fn wait(ring: &mut Consumer<u64>, end: Instant) -> Option<u64> {
    loop {
        for _ in 0..SPINS {
            if let Some(message) = ring.pop() {
                return Some(message);
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= end {
            return None;
        }
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_different_cores_is_measured_once() {
        assert!(measure(&[0]).is_empty());
        assert!(measure(&[0, 0]).is_empty());
        // A core that does not exist cannot be pinned to.
        assert!(measure(&[0, 1_000]).is_empty());
    }
}
