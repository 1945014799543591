//! What a call costs that belongs to no session, against one that does: the same gateway process,
//! the same backend, turn by turn.

use loadgen::{era::Era, run::Pattern};

use super::{
    Bench, CONNECTIONS,
    outcome::{Cycles, ratio},
};
use crate::contestant::Case;

impl Bench {
    /// V12.
    pub(super) fn stateless(&mut self) {
        if !self.wants(&["V12"]) {
            return;
        }
        let cpu = self.options.test_cpu;
        let Some(gateway) = self.gateway("shardgate both eras", "io-uring", &[cpu]) else {
            return;
        };
        let mut rows: Vec<(String, Cycles)> = Era::ALL
            .into_iter()
            .map(|era| (era.name().to_owned(), Vec::new()))
            .collect();
        for cycle in 0..self.options.cycles {
            let mut order = [0, 1];
            if cycle % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let mut load = self.load(Case::Small, CONNECTIONS, Pattern::Sticky);
                load.era = Era::ALL[index];
                let point = self.sample(load.era.name(), &gateway, &load);
                rows[index].1.push(point);
            }
        }
        if let [(_, with_session), (_, without)] = &rows[..] {
            let cpu = ratio(without, with_session, |sample| sample.cpu_us);
            self.outcome.reach("V12", cpu);
        }
        self.outcome.keep(
            format!("{}, with sessions and without", Case::Small.name()),
            rows,
        );
    }
}
