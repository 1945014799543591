//! `check`: all rows, and what they come to.

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    around::Documents,
    checks,
    host::Host,
    place::Place,
    plan::Plan,
    row::{Row, Severity},
};

/// What to check against. What is not said is what the gateway would take for itself.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Read /proc and /sys below this folder instead of the root, and try nothing on this machine.
    pub root: Option<PathBuf>,
    /// Shards the gateway will run.
    pub shards: Option<u16>,
    /// Cores the shards will be pinned to.
    pub cpus: Option<Vec<usize>>,
    /// Client connections to plan for.
    pub connections: Option<u32>,
    /// Connections to one backend to plan for.
    pub upstream_connections: Option<u32>,
    /// Live sessions to plan for.
    pub sessions: Option<u32>,
    /// Whether sleeps on the shards' cores and rings between them may be measured; takes 200 ms and
    /// up to 50 ms for each pair of eight cores.
    pub may_measure: bool,
    /// The Redis of the gateway, `HOST:PORT`; asked when named.
    pub redis: Option<String>,
    /// The gateway's documents; their backends are asked.
    pub documents: Option<Documents>,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Where the process runs.
    pub place: Place,
    /// What the host was judged against.
    pub plan: Plan,
    /// The answers, by their numbers.
    pub rows: Vec<Row>,
}

impl Report {
    /// The worst of the rows.
    pub fn worst(&self) -> Severity {
        let worst = self.rows.iter().map(|row| row.severity).max();
        worst.unwrap_or(Severity::Unseen)
    }

    /// 0 when nothing has to be done, 1 when something should be, 2 when the plan cannot be served.
    pub fn exit_code(&self) -> u8 {
        match self.worst() {
            Severity::Fatal => 2,
            Severity::Warn => 1,
            Severity::Info | Severity::Ok | Severity::Unseen => 0,
        }
    }

    /// How many rows are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let of = |row: &&Row| row.severity == severity;
        self.rows.iter().filter(of).count()
    }
}

/// Looks at the host. Changes nothing; takes the time of the measurement, if that is allowed.
pub fn check(options: &Options) -> Report {
    let host = Host::read(options);
    let rows = checks::ALL.iter().map(|check| check(&host)).collect();
    Report {
        place: host.place,
        plan: host.plan,
        rows,
    }
}
