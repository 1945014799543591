//! Who is compared: no gateway, nginx, the gateway. Each is started once and stays up.

mod bare;
mod connect;
mod gateway;
mod haproxy;
mod nginx;
mod peer;

use std::{
    fs, io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use loadgen::backend::{Backend, BackendFault, BackendOptions, ReplyKind};

use crate::{engines::Engine, plain::Endpoint, process::Process};
pub use connect::{ConnectNode, ConnectPlan};
pub use gateway::GatewayPlan;
pub(crate) use haproxy::PROGRAM as HAPROXY;
pub(crate) use nginx::PROGRAM as NGINX;
pub use peer::{Peer, PeerFault};

/// Time a contestant has until it takes connections.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Progress notifications ahead of a reply, where there are any.
pub const PROGRESS_COUNT: u32 = 3;

/// What is asked of a contestant, by the backend behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// JSON replies of 200 bytes.
    Small,
    /// JSON replies of 16 KiB.
    Large,
    /// One event of 200 bytes.
    Stream,
    /// Three progress notifications, then an event of 200 bytes.
    Progress,
    /// Two backends behind one endpoint.
    Pair,
    /// Five backends with 50 tools each behind one endpoint.
    Five,
}

impl Case {
    /// The cases that contestants are compared by, by calls.
    pub const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Stream];

    /// Name in paths and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "json200",
            Self::Large => "json16k",
            Self::Stream => "sse200",
            Self::Progress => "progress",
            Self::Pair => "pair",
            Self::Five => "five",
        }
    }

    /// Size of a reply's JSON.
    pub fn bytes(self) -> usize {
        match self {
            Self::Large => 16 * 1024,
            Self::Small | Self::Stream | Self::Progress | Self::Pair | Self::Five => 200,
        }
    }
}

/// Backends, one for a case, in this process, on one core.
pub struct Backends {
    running: Vec<(Case, Backend)>,
}

impl Backends {
    /// Starts one for each of the cases on core `cpu`, at ports in a row from `port` on, or where
    /// there is room.
    pub fn start(cpu: usize, cases: &[Case], port: Option<u16>) -> Result<Self, BackendFault> {
        let mut running = Vec::new();
        for (index, case) in (0_u16..).zip(cases.iter().copied()) {
            let port = port.map_or(0, |port| port.saturating_add(index));
            let backend = Backend::start(BackendOptions {
                address: ([127, 0, 0, 1], port).into(),
                cpus: Some(vec![cpu]),
                name: case.name().to_owned(),
                reply: match case {
                    Case::Stream | Case::Progress => ReplyKind::Sse,
                    Case::Small | Case::Large | Case::Pair | Case::Five => ReplyKind::Json,
                },
                progress_count: if case == Case::Progress {
                    PROGRESS_COUNT
                } else {
                    0
                },
                payload_bytes: Some(case.bytes()),
                ..BackendOptions::default()
            })?;
            running.push((case, backend));
        }
        Ok(Self { running })
    }

    /// I/O driver of the backends, and of the generator on the same machine.
    pub fn driver(&self) -> String {
        self.running
            .first()
            .map(|(_, backend)| backend.driver().to_string())
            .unwrap_or_default()
    }

    /// Address of a case's backend.
    pub fn addresses(&self) -> Vec<(Case, SocketAddr)> {
        self.running
            .iter()
            .map(|(case, backend)| (*case, backend.address()))
            .collect()
    }

    /// Ends all of them.
    pub fn stop(self) {
        for (_, backend) in self.running {
            // Shards that died are no matter of who is done with them.
            let _ = backend.stop();
        }
    }

    /// Two backends that answer at once, for one endpoint.
    pub fn pair(&self) -> Vec<(Case, SocketAddr)> {
        let two = self.running.iter().take(2);
        two.map(|(_, backend)| (Case::Pair, backend.address()))
            .collect()
    }
}

/// Why a contestant does not take part.
#[derive(Debug, thiserror::Error)]
pub enum Absence {
    /// There is no such program.
    #[error("{0} is not there")]
    NotThere(PathBuf),
    /// It cannot be prepared or started.
    #[error("cannot be started: {0}")]
    Start(#[from] io::Error),
    /// There is no process of this number.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// It ended, or did not listen in time; what it said last.
    #[error("did not come up: {0}")]
    NotUp(String),
}

/// One contestant, up and listening.
#[derive(Debug)]
pub struct Contestant {
    /// Name in tables.
    pub label: String,
    /// Its process; `None` when the backend is called directly, or nobody said which it is.
    pub process: Option<Process>,
    /// Its admin listener.
    pub admin: Option<SocketAddr>,
    /// Further header lines it wants.
    pub headers: Vec<String>,
    /// The name under which it has the backend's tool; `None`: the backend's own.
    pub tool: Option<String>,
    endpoints: Vec<(Case, Endpoint)>,
}

impl Contestant {
    /// The backends without anything in front.
    pub fn direct(backends: &[(Case, SocketAddr)]) -> Self {
        let endpoints = backends
            .iter()
            .map(|(case, address)| (*case, Endpoint::new(*address, "/mcp", None)))
            .collect();
        Self::new("direct", None, endpoints)
    }

    fn new(label: &str, process: Option<Process>, endpoints: Vec<(Case, Endpoint)>) -> Self {
        Self {
            label: label.to_owned(),
            process,
            admin: None,
            headers: Vec::new(),
            tool: None,
            endpoints,
        }
    }

    /// nginx on core `cpu`.
    pub fn nginx(
        folder: &Path,
        cpu: usize,
        backends: &[(Case, SocketAddr)],
    ) -> Result<Self, Absence> {
        nginx::start(folder, cpu, backends)
    }

    /// HAProxy on core `cpu`.
    pub fn haproxy(
        folder: &Path,
        cpu: usize,
        backends: &[(Case, SocketAddr)],
    ) -> Result<Self, Absence> {
        haproxy::start(folder, cpu, backends)
    }

    /// A bare proxy on core `cpu`: this very program, once more.
    pub fn bare(
        folder: &Path,
        engine: Engine,
        cpu: usize,
        backends: &[(Case, SocketAddr)],
    ) -> Result<Self, Absence> {
        bare::start(folder, &std::env::current_exe()?, engine, cpu, backends)
    }

    /// A gateway that somebody else has started.
    pub fn peer(peer: &Peer) -> Result<Self, Absence> {
        peer.contestant()
    }

    /// The gateway as `plan` says.
    pub fn gateway(
        folder: &Path,
        plan: &GatewayPlan<'_>,
        backends: &[(Case, SocketAddr)],
    ) -> Result<Self, Absence> {
        gateway::start(folder, plan, backends)
    }

    /// Where a case is served.
    pub fn endpoint(&self, case: Case) -> Option<Endpoint> {
        let (_, endpoint) = self.endpoints.iter().find(|(known, _)| *known == case)?;
        Some(endpoint.clone())
    }
}

/// A loopback address nobody listens on just now.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// Waits until somebody listens; the end of the process's log when nobody does.
pub(crate) fn wait_for(
    process: &mut Process,
    address: SocketAddr,
    log: &Path,
) -> Result<(), Absence> {
    let start = Instant::now();
    while start.elapsed() < START_LIMIT && process.is_running() {
        // An attempt from the very port that is asked for would meet itself.
        let is_other = |stream: &TcpStream| stream.local_addr().ok() != Some(address);
        if TcpStream::connect(address).is_ok_and(|stream| is_other(&stream)) {
            return Ok(());
        }
        // Often at first, for what is measured from its start.
        let is_young = start.elapsed() < Duration::from_millis(100);
        std::thread::sleep(Duration::from_millis(if is_young { 1 } else { 20 }));
    }
    Err(Absence::NotUp(last_line(log)))
}

/// What runs a program of ours in a folder of its own, under another one, a profiler say, or by
/// itself; arguments are still to come.
fn command_in(folder: &Path, program: &Path, under: &[String]) -> Result<Command, Absence> {
    if !program.exists() {
        return Err(Absence::NotThere(program.to_owned()));
    }
    // The process starts in that folder: a relative path would be another one there.
    let program = fs::canonicalize(program)?;
    let mut command = match under {
        [] => Command::new(program),
        [wrapper, arguments @ ..] => {
            let mut command = Command::new(wrapper);
            command.args(arguments).arg(program);
            command
        }
    };
    // Nothing of the operator's environment changes what is measured.
    command.env_clear().current_dir(folder);
    Ok(command)
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
        .to_owned()
}
