//! The comparison: which contestants, which measurements, in which order, and what they come to.
//!
//! Contestants take turns in every cycle, in reversed order every other cycle, so that what the
//! machine does meanwhile hits all of them; a ratio is taken between samples of one cycle, and the
//! median of the cycles is reported.

mod engines;
mod exchange;
mod list;
mod outcome;
mod shards;
mod size;
mod speed;
mod stateless;

use std::{collections::BTreeSet, fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use loadgen::{backend::BackendFault, era::Era, run::Pattern};

use crate::{
    contestant::{Absence, Backends, Case, Contestant, GatewayPlan, Peer},
    machine,
    process::Process,
    sample::{Load, Point, measure},
};
pub use outcome::Outcome;
pub use speed::CALLS_PER_S as RATE_OF_V8;

/// What to compare.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Measured seconds of each sample.
    pub seconds: f64,
    /// Cycles; the medians are over them.
    pub cycles: u32,
    /// The gateway's release binary.
    pub gateway: PathBuf,
    /// Other gateways, started by somebody else.
    pub peers: Vec<Peer>,
    /// First of the backends' ports, for those who have to be told where they are.
    pub backend_port: Option<u16>,
    /// Calls per second of the open loops.
    pub rates: Vec<f64>,
    /// Targets to measure; empty: all.
    pub only: BTreeSet<String>,
    /// Core of the process under test.
    pub test_cpu: usize,
    /// Core of generator and backends.
    pub load_cpu: usize,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum CompareFault {
    /// No place for the contestants' files.
    #[error("cannot make a folder for the contestants: {0}")]
    Folder(#[from] io::Error),
    /// No backend.
    #[error(transparent)]
    Backend(#[from] BackendFault),
}

/// Kept connections of the load.
const CONNECTIONS: u32 = 64;

/// A run of the comparison.
struct Bench {
    options: CompareOptions,
    folder: PathBuf,
    backends: Backends,
    outcome: Outcome,
}

/// Measures everything asked for.
pub fn compare(options: CompareOptions) -> Result<Outcome, CompareFault> {
    measured(options, |bench| {
        bench.speed();
        bench.shards();
        bench.list();
        bench.stateless();
        bench.exchange();
        bench.size();
    })
}

/// Measures the bare proxies on all engines.
pub fn engines(options: CompareOptions) -> Result<Outcome, CompareFault> {
    measured(options, Bench::engines)
}

/// Prepares, has `work` done, and notes what it was done on.
fn measured(
    options: CompareOptions,
    work: impl FnOnce(&mut Bench),
) -> Result<Outcome, CompareFault> {
    let folder = std::env::temp_dir().join(format!("bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    // Thousands of connections are held at a time; who has fewer descriptors is told by the rows.
    let _ = ::shards::topology::raise_descriptor_limit();
    let backends = Backends::start(options.load_cpu, &Case::ALL, options.backend_port)?;
    let load_before = machine::load_average();
    let peer_cores: Vec<(String, String)> = options.peers.iter().filter_map(cores_of).collect();
    let mut bench = Bench {
        options,
        folder,
        backends,
        outcome: Outcome::default(),
    };
    work(&mut bench);
    let options = &bench.options;
    let mut facts = machine::Facts::here(&options.gateway);
    facts.add("generator_driver", bench.backends.driver());
    facts.add("test_cpu", options.test_cpu.to_string());
    facts.add("load_cpu", options.load_cpu.to_string());
    facts.add("load_average_before", load_before);
    for (name, cores) in peer_cores {
        facts.add(&format!("cores of {name}"), cores);
    }
    bench.outcome.machine = facts.to_json();
    bench.outcome.cycles = options.cycles;
    bench.outcome.is_debug = cfg!(debug_assertions);
    // What stays behind is small and in the system's temporary folder.
    let _ = fs::remove_dir_all(&bench.folder);
    Ok(bench.outcome)
}

impl Bench {
    /// Whether one of these targets is asked for.
    fn wants(&self, ids: &[&str]) -> bool {
        self.options.only.is_empty() || ids.iter().any(|id| self.options.only.contains(*id))
    }

    /// nginx and HAProxy, as far as they are installed.
    fn plain_proxies(&mut self) -> Vec<Contestant> {
        let backends = self.backends.addresses();
        let cpu = self.options.test_cpu;
        let nginx = Contestant::nginx(&self.folder, cpu, &backends);
        let haproxy = Contestant::haproxy(&self.folder, cpu, &backends);
        let nginx = self.admit("nginx", nginx);
        let haproxy = self.admit("haproxy", haproxy);
        nginx.into_iter().chain(haproxy).collect()
    }

    /// Gateways of others, as far as they run.
    fn peers(&mut self) -> Vec<Contestant> {
        let peers = self.options.peers.clone();
        peers
            .iter()
            .filter_map(|peer| self.admit(&peer.name, Contestant::peer(peer)))
            .collect()
    }

    /// A contestant, or a note that it is absent.
    fn admit<T>(&mut self, label: &str, started: Result<T, Absence>) -> Option<T> {
        match started {
            Ok(contestant) => Some(contestant),
            Err(absence) => {
                self.outcome.skip(format!("{label}: {absence}"));
                None
            }
        }
    }

    fn gateway(
        &mut self,
        label: &'static str,
        driver: &'static str,
        cpus: &[usize],
    ) -> Option<Contestant> {
        let backends = self.backends.addresses();
        self.gateway_before(label, driver, cpus, &backends)
    }

    /// A gateway in front of these backends.
    fn gateway_before(
        &mut self,
        label: &'static str,
        driver: &'static str,
        cpus: &[usize],
        backends: &[(Case, SocketAddr)],
    ) -> Option<Contestant> {
        let program = self.options.gateway.clone();
        let plan = GatewayPlan {
            label,
            program: &program,
            driver,
            cpus,
            shards: cpus.len(),
            under: &[],
        };
        let started = Contestant::gateway(&self.folder, &plan, backends);
        self.admit(label, started)
    }

    /// Measured time of a sample.
    fn duration(&self) -> Duration {
        Duration::try_from_secs_f64(self.options.seconds).unwrap_or_default()
    }

    /// Long enough for connections to reach their shard and caches to fill.
    fn warm_up(&self) -> Duration {
        (self.duration() / 4).max(Duration::from_millis(100))
    }

    fn load(&self, case: Case, connections: u32, pattern: Pattern) -> Load {
        Load {
            case,
            era: Era::default(),
            connections,
            sessions: None,
            pattern,
            rate: None,
            cpu: self.options.load_cpu,
            warm_up: self.warm_up(),
            duration: self.duration(),
        }
    }

    /// A point, and a note when it does not count.
    fn sample(&mut self, name: &str, contestant: &Contestant, load: &Load) -> Point {
        let point = measure(contestant, load);
        if let Some(refusal) = &point.refusal {
            self.outcome
                .refuse(format!("{} {name}: {refusal}", contestant.label));
        }
        point
    }
}

/// Where a peer's process may run: nobody here has pinned it.
fn cores_of(peer: &Peer) -> Option<(String, String)> {
    let process = Process::watch(peer.process?)?;
    Some((peer.name.clone(), process.cores()?))
}
