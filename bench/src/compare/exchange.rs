//! What an exchange costs the connection gateway: a caller's request, the three parts that its
//! client answers with, and the end (V13).

use super::{
    Bench, CONNECTIONS,
    outcome::{Cycles, good},
};
use crate::{
    contestant::{ConnectNode, ConnectPlan},
    sample::{Point, measure_run, median},
};

/// Clients, which the callers share: four requests of each are under way at a time.
const CLIENTS: u32 = 16;
/// Name of the row.
const LABEL: &str = "shardgate connect";

impl Bench {
    /// V13.
    pub(super) fn exchange(&mut self) {
        if !self.wants(&["V13"]) {
            return;
        }
        let program = self.options.gateway.clone();
        let plan = ConnectPlan {
            label: "connect",
            program: &program,
            driver: "io-uring",
            cpu: self.options.test_cpu,
            under: &[],
        };
        let started = ConnectNode::start(&self.folder, &plan);
        let Some(node) = self.admit(LABEL, started) else {
            return;
        };
        let cycles: Cycles = (0..self.options.cycles)
            .map(|_| self.exchanged(&node))
            .collect();
        let cpu = median(good(&cycles).map(|sample| sample.cpu_us));
        self.outcome.reach("V13", cpu);
        let name = format!("exchange of 3 parts, {CONNECTIONS} callers, {CLIENTS} clients");
        self.outcome.keep(name, vec![(LABEL.to_owned(), cycles)]);
    }

    /// One sample, and a note when it does not count.
    fn exchanged(&mut self, node: &ConnectNode) -> Point {
        let mut options = node.run_options();
        options.connections = CONNECTIONS;
        options.sessions = Some(CLIENTS);
        options.cpus = Some(vec![self.options.load_cpu]);
        options.warm_up = self.warm_up();
        let point = measure_run(options, self.duration(), Some(&node.process), None);
        if let Some(refusal) = &point.refusal {
            self.outcome.refuse(format!("{LABEL}: {refusal}"));
        }
        point
    }
}
