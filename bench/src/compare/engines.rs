//! The bare proxies against nginx and HAProxy: what the engines cost on this host, without MCP.

use loadgen::run::Pattern;

use super::{
    Bench, CONNECTIONS,
    outcome::{Cycles, good, ratio},
};
use crate::{
    contestant::{Case, Contestant},
    engines::Engine,
    sample::{Sample, median},
};

/// Ratio within which two engines are called equal: a noisy host moves by more.
const EQUAL: f64 = 0.05;

impl Bench {
    /// All engines in all cases.
    pub(super) fn engines(&mut self) {
        let backends = self.backends.addresses();
        let cpu = self.options.test_cpu;
        let mut field = vec![Contestant::direct(&backends)];
        field.extend(self.plain_proxies());
        for engine in Engine::ALL {
            let started = Contestant::bare(&self.folder, engine, cpu, &backends);
            field.extend(self.admit(engine.label(), started));
        }
        field.extend(self.peers());
        for case in Case::ALL {
            let load = self.load(case, CONNECTIONS, Pattern::Sticky);
            let name = format!("{}, {CONNECTIONS} connections", case.name());
            let rows = self.turns(&name, &field, &load);
            self.advise(&name, &rows, "CPU", |sample| sample.cpu_us);
            self.outcome.keep(name, rows);
        }
        let load = self.load(Case::Small, 1, Pattern::Sticky);
        let name = format!("{}, 1 connection", Case::Small.name());
        let rows = self.turns(&name, &field, &load);
        self.advise(&name, &rows, "p50", |sample| sample.p50_us);
        self.outcome.keep(name, rows);
        for rate in self.options.rates.clone() {
            let mut load = self.load(Case::Small, CONNECTIONS, Pattern::Sticky);
            load.rate = Some(rate);
            let name = format!("{}, {rate} calls/s", Case::Small.name());
            let rows = self.turns(&name, &field, &load);
            self.advise(&name, &rows, "p99", |sample| sample.p99_us);
            self.outcome.keep(name, rows);
        }
    }

    /// A line on the two drivers of the gateway, in words.
    fn advise(
        &mut self,
        name: &str,
        rows: &[(String, Cycles)],
        what: &str,
        pick: fn(&Sample) -> f64,
    ) {
        let find = |engine: Engine| {
            let mut rows = rows.iter();
            rows.find(|(label, _)| label == engine.label())
                .map(|(_, cycles)| cycles)
        };
        let (Some(uring), Some(epoll)) = (find(Engine::IoUring), find(Engine::Epoll)) else {
            return;
        };
        let Some(ratio) = ratio(uring, epoll, pick) else {
            return;
        };
        let middle = |cycles| median(good(cycles).map(pick)).unwrap_or_default();
        let verdict = if ratio > 1.0 + EQUAL {
            "epoll does better"
        } else if ratio < 1.0 - EQUAL {
            "io-uring does better"
        } else {
            "no difference to speak of"
        };
        self.outcome.advise(format!(
            "{name}: {what} of io-uring / epoll {ratio:.2} ({:.1} / {:.1} us): {verdict}",
            middle(uring),
            middle(epoll),
        ));
    }
}
