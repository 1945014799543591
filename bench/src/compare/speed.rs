//! CPU per call and latency on one core: nobody, nginx, HAProxy, the gateway on both drivers, and
//! whoever else takes part; saturated, and at fixed rates.

use loadgen::run::Pattern;

use super::{
    Bench, CONNECTIONS,
    outcome::{Cycles, good, ratio},
};
use crate::{
    contestant::{Case, Contestant},
    sample::{Load, Point, median},
};

/// Rate of V8: what a core does with ease, so that queues are the exception.
pub const CALLS_PER_S: f64 = 5000.0;
/// Labels of the gateway's contestants.
const URING: &str = "shardgate io_uring";
const EPOLL: &str = "shardgate epoll";

impl Bench {
    /// V1 to V4, V7, V8, V10, V17.
    pub(super) fn speed(&mut self) {
        if !self.wants(&["V1", "V2", "V3", "V4", "V7", "V8", "V10", "V17"]) {
            return;
        }
        let backends = self.backends.addresses();
        let cpu = self.options.test_cpu;
        let mut field = vec![Contestant::direct(&backends)];
        field.extend(self.plain_proxies());
        field.extend(self.peers());
        field.extend(self.gateway(URING, "io-uring", &[cpu]));
        if self.wants(&["V2"]) {
            field.extend(self.gateway(EPOLL, "epoll", &[cpu]));
        }
        for (case, ids) in [
            (Case::Small, &["V1", "V2", "V10", "V17"][..]),
            (Case::Large, &["V3"]),
            (Case::Stream, &["V4"]),
        ] {
            if !self.wants(ids) {
                continue;
            }
            let load = self.load(case, CONNECTIONS, Pattern::Sticky);
            let rows = self.turns(case.name(), &field, &load);
            let against_nginx = |label| {
                ratio(find(&rows, label)?, find(&rows, "nginx")?, |sample| {
                    sample.cpu_us
                })
            };
            match case {
                Case::Small => {
                    self.outcome.reach("V1", against_nginx(URING));
                    self.outcome.reach("V2", against_nginx(EPOLL));
                    let user = find(&rows, URING)
                        .and_then(|cycles| median(good(cycles).map(|sample| sample.user_us)));
                    self.outcome.reach("V17", user);
                    let allocations = find(&rows, URING).and_then(|cycles| {
                        let samples = good(cycles);
                        median(samples.filter_map(|sample| sample.per_call("allocations")))
                    });
                    self.outcome.reach("V10", allocations);
                }
                Case::Large => self.outcome.reach("V3", against_nginx(URING)),
                Case::Stream => self.outcome.reach("V4", against_nginx(URING)),
                Case::Progress | Case::Pair | Case::Five => {}
            }
            self.outcome
                .keep(format!("{}, {CONNECTIONS} connections", case.name()), rows);
        }
        if self.wants(&["V7"]) {
            let load = self.load(Case::Small, 1, Pattern::Sticky);
            let rows = self.turns("1 connection", &field, &load);
            self.outcome.reach("V7", added(&rows));
            self.outcome
                .keep(format!("{}, 1 connection", Case::Small.name()), rows);
        }
        if self.wants(&["V8"]) {
            for rate in self.options.rates.clone() {
                self.on_time(&field, rate);
            }
        }
    }

    /// An open loop: calls start when they are due, `rate` in a second. V8 at its rate.
    fn on_time(&mut self, field: &[Contestant], rate: f64) {
        let mut load = self.load(Case::Small, CONNECTIONS, Pattern::Sticky);
        load.rate = Some(rate);
        let name = format!("{}, {rate} calls/s", Case::Small.name());
        let rows = self.turns(&name, field, &load);
        if rate == CALLS_PER_S {
            let tail = find(&rows, URING)
                .zip(find(&rows, "nginx"))
                .and_then(|(ours, theirs)| ratio(ours, theirs, |sample| sample.p99_us));
            self.outcome.reach("V8", tail);
        }
        self.outcome.keep(name, rows);
    }

    /// All contestants in turn, in every cycle.
    pub(super) fn turns(
        &mut self,
        name: &str,
        field: &[Contestant],
        load: &Load,
    ) -> Vec<(String, Cycles)> {
        let cycles = self.options.cycles;
        let field: Vec<&Contestant> = field
            .iter()
            .filter(|contestant| contestant.endpoint(load.case).is_some())
            .collect();
        let mut rows: Vec<(String, Cycles)> = field
            .iter()
            .map(|contestant| {
                let none = (0..cycles).map(|_| Point::default());
                (contestant.label.clone(), none.collect())
            })
            .collect();
        for cycle in 0..cycles as usize {
            let mut order: Vec<usize> = (0..field.len()).collect();
            if cycle % 2 == 1 {
                order.reverse();
            }
            for index in order {
                rows[index].1[cycle] = self.sample(name, field[index], load);
            }
        }
        rows
    }
}

fn find<'a>(rows: &'a [(String, Cycles)], label: &str) -> Option<&'a Cycles> {
    rows.iter()
        .find(|(known, _)| known == label)
        .map(|(_, cycles)| cycles)
}

/// Median over the cycles of (gateway - direct) / (nginx - direct), medians of latency.
fn added(rows: &[(String, Cycles)]) -> Option<f64> {
    let (direct, nginx, gateway) = (
        find(rows, "direct")?,
        find(rows, "nginx")?,
        find(rows, URING)?,
    );
    let ratios = gateway
        .iter()
        .zip(nginx)
        .zip(direct)
        .filter_map(|((gateway, nginx), direct)| {
            let direct = direct.good()?.p50_us;
            let by_nginx = nginx.good()?.p50_us - direct;
            (by_nginx > 0.0).then_some((gateway.good()?.p50_us - direct) / by_nginx)
        });
    median(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn added_latency_is_compared_and_not_latency() {
        let cycles = |values: &[f64]| -> Cycles {
            values
                .iter()
                .map(|p50_us| {
                    Point::from(Sample {
                        p50_us: *p50_us,
                        ..Sample::default()
                    })
                })
                .collect()
        };
        let rows = [
            ("direct".to_owned(), cycles(&[100.0, 90.0, 100.0])),
            ("nginx".to_owned(), cycles(&[200.0, 190.0, 90.0])),
            (URING.to_owned(), cycles(&[180.0, 150.0, 500.0])),
        ];
        // In the third cycle nginx took off time, which is noise: no ratio.
        let ratio = added(&rows).unwrap();
        assert!((ratio - 0.7).abs() < 1e-9, "{ratio}");
        assert_eq!(added(&rows[..2]), None);
    }
}
