//! What a second shard costs and gives: forwarding, hand-over, sharing, balance.
//!
//! Which calls of a mixed load were forwarded is the gateway's own count; the cost of one is what
//! the mixed load cost more than the local one, divided by that count.

use loadgen::run::Pattern;

use super::{Bench, CONNECTIONS, outcome::Cycles};
use crate::{
    contestant::Case,
    sample::{Point, median},
};

/// Connections of the load that opens a new one for each call.
const FRESH_CONNECTIONS: u32 = 8;
/// Sessions that take turns on one connection.
const SESSIONS_OF_ONE: u32 = 8;

/// The samples of one cycle.
#[derive(Default)]
struct Cycle {
    one_sticky: Point,
    two_sticky: Point,
    two_spread: Point,
    two_single: Point,
    one_fresh: Point,
    two_fresh: Point,
}

impl Bench {
    /// V5, V6, V14, V16, V18.
    pub(super) fn shards(&mut self) {
        if !self.wants(&["V5", "V6", "V14", "V16", "V18"]) {
            return;
        }
        let (test, load) = (self.options.test_cpu, self.options.load_cpu);
        let Some(two) = self.gateway("shardgate 2 shards", "io-uring", &[test, load]) else {
            return;
        };
        let Some(one) = self.gateway("shardgate 1 shard", "io-uring", &[test]) else {
            return;
        };
        let sticky = self.load(Case::Small, CONNECTIONS, Pattern::Sticky);
        let spread = self.load(Case::Small, CONNECTIONS, Pattern::Pooled);
        let mut single = self.load(Case::Small, 1, Pattern::Pooled);
        single.sessions = Some(SESSIONS_OF_ONE);
        let fresh = self.load(Case::Small, FRESH_CONNECTIONS, Pattern::Fresh);
        let mut cycles = Vec::new();
        for index in 0..self.options.cycles {
            let mut cycle = Cycle::default();
            let mut order = [0, 1, 2, 3, 4, 5];
            if index % 2 == 1 {
                order.reverse();
            }
            for step in order {
                match step {
                    0 => cycle.one_sticky = self.sample("sticky", &one, &sticky),
                    1 => cycle.two_sticky = self.sample("sticky", &two, &sticky),
                    2 if self.wants(&["V5"]) => {
                        cycle.two_spread = self.sample("spread", &two, &spread);
                    }
                    3 if self.wants(&["V6"]) => {
                        cycle.two_single = self.sample("one connection", &two, &single);
                    }
                    4 if self.wants(&["V16"]) => {
                        cycle.one_fresh = self.sample("fresh", &one, &fresh);
                    }
                    5 if self.wants(&["V16"]) => {
                        cycle.two_fresh = self.sample("fresh", &two, &fresh);
                    }
                    _ => {}
                }
            }
            cycles.push(cycle);
        }
        let over = |figure: fn(&Cycle) -> Option<f64>| median(cycles.iter().filter_map(figure));
        self.outcome.reach("V5", over(forwarded_ratio));
        self.outcome.reach("V6", over(forwarded_added_us));
        self.outcome.reach("V14", over(two_shards_ratio));
        self.outcome.reach("V16", over(hand_over_us));
        self.outcome.reach("V18", over(local_share));
        self.outcome.reach("V18B", over(imbalance));
        type Pick = fn(Cycle) -> [Point; 6];
        let pick: Pick = |cycle| {
            [
                cycle.one_sticky,
                cycle.two_sticky,
                cycle.two_spread,
                cycle.two_single,
                cycle.one_fresh,
                cycle.two_fresh,
            ]
        };
        let labels = [
            "1 sticky",
            "2 sticky",
            "2 spread",
            "2 spread, 1 connection",
            "1 fresh",
            "2 fresh",
        ];
        let mut rows: Vec<(String, Cycles)> = labels
            .into_iter()
            .map(|label| (label.to_owned(), Vec::new()))
            .collect();
        for cycle in cycles {
            for (row, sample) in rows.iter_mut().zip(pick(cycle)) {
                row.1.push(sample);
            }
        }
        self.outcome.keep("shards".to_owned(), rows);
    }
}

/// V5: (mixed - local share of local) / forwarded share, over local.
fn forwarded_ratio(cycle: &Cycle) -> Option<f64> {
    let (local, mixed) = (cycle.two_sticky.good()?, cycle.two_spread.good()?);
    let share = mixed
        .per_call("forwarded")
        .filter(|share| *share > 0.05)?
        .min(1.0);
    let forwarded_us = (mixed.cpu_us - (1.0 - share) * local.cpu_us) / share;
    Some(forwarded_us / local.cpu_us)
}

/// V6: of the sessions of one connection, as many are foreign as the forwarded share says; they
/// are the slower ones.
fn forwarded_added_us(cycle: &Cycle) -> Option<f64> {
    let sample = cycle.two_single.good()?;
    let times = &sample.sessions_p50_us;
    let foreign = (sample.per_call("forwarded")? * times.len() as f64).round() as usize;
    if foreign == 0 || foreign >= times.len() {
        return None;
    }
    let (local, foreign) = times.split_at(times.len() - foreign);
    Some(median(foreign.iter().copied())? - median(local.iter().copied())?)
}

/// V14.
fn two_shards_ratio(cycle: &Cycle) -> Option<f64> {
    Some(cycle.two_sticky.good()?.cpu_us / cycle.one_sticky.good()?.cpu_us)
}

/// V16: what a call on a new connection costs more with two shards, less what any call does, for
/// each socket handed over.
fn hand_over_us(cycle: &Cycle) -> Option<f64> {
    let (one, two) = (cycle.one_fresh.good()?, cycle.two_fresh.good()?);
    let share = two.per_call("handed_over").filter(|share| *share > 0.05)?;
    let second_shard_us = cycle.two_sticky.good()?.cpu_us - cycle.one_sticky.good()?.cpu_us;
    Some((two.cpu_us - one.cpu_us - second_shard_us) / share)
}

/// V18, percent.
fn local_share(cycle: &Cycle) -> Option<f64> {
    let sample = cycle.two_sticky.good()?;
    let foreign = sample.per_call("forwarded")? + sample.per_call("handed_over")?;
    Some((1.0 - foreign) * 100.0)
}

/// V18: the fullest shard's sessions over the mean.
fn imbalance(cycle: &Cycle) -> Option<f64> {
    let sessions = cycle
        .two_sticky
        .good()?
        .metrics
        .as_ref()?
        .1
        .by_shard("sessions");
    let most = sessions.iter().copied().reduce(f64::max)?;
    let mean = sessions.iter().sum::<f64>() / sessions.len() as f64;
    (mean > 0.0).then_some(most / mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{metrics::Metrics, sample::Sample};

    fn sample(cpu_us: f64, before: &str, after: &str) -> Point {
        let metrics = Some((Metrics::parse(before), Metrics::parse(after)));
        Point::from(Sample {
            cpu_us,
            calls: 100,
            metrics,
            ..Sample::default()
        })
    }

    #[test]
    fn figures_of_a_cycle() {
        let none = "shardgate_forwarded_total 0\nshardgate_handed_over_total 0";
        let half = "shardgate_forwarded_total 50\nshardgate_handed_over_total 50";
        let seated = "shardgate_forwarded_total 0\nshardgate_handed_over_total 1\n\
            shardgate_sessions{shard=\"0\"} 30\nshardgate_sessions{shard=\"1\"} 34";
        let mut single = sample(0.0, none, half).sample.unwrap();
        single.sessions_p50_us = vec![100.0, 102.0, 130.0, 132.0];
        let cycle = Cycle {
            one_sticky: sample(20.0, none, none),
            two_sticky: sample(21.0, none, seated),
            two_spread: sample(26.0, none, half),
            two_single: single.into(),
            one_fresh: sample(60.0, none, none),
            two_fresh: sample(75.0, none, half),
        };
        let is = |value: Option<f64>, wanted: f64| {
            assert!((value.unwrap() - wanted).abs() < 1e-9, "{value:?} {wanted}");
        };
        // Half the calls cost 21, so the other half cost 31.
        is(forwarded_ratio(&cycle), 31.0 / 21.0);
        is(forwarded_added_us(&cycle), 30.0);
        is(two_shards_ratio(&cycle), 1.05);
        is(hand_over_us(&cycle), 28.0);
        is(local_share(&cycle), 99.0);
        is(imbalance(&cycle), 34.0 / 32.0);
    }

    #[test]
    fn without_counters_there_are_no_figures() {
        let cycle = Cycle {
            one_sticky: sample(20.0, "", ""),
            two_sticky: sample(21.0, "", ""),
            two_spread: sample(26.0, "", ""),
            two_single: sample(1.0, "", ""),
            one_fresh: sample(60.0, "", ""),
            two_fresh: sample(75.0, "", ""),
        };
        for figure in [
            forwarded_ratio,
            forwarded_added_us,
            hand_over_us,
            local_share,
            imbalance,
        ] {
            assert_eq!(figure(&cycle), None);
        }
        assert!(two_shards_ratio(&cycle).is_some());
        // Nor from a sample that was refused.
        let mut refused = cycle;
        refused.one_sticky.refusal = Some("x".to_owned());
        assert_eq!(two_shards_ratio(&refused), None);
    }
}
