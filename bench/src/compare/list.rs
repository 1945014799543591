//! What a merged list and an opened session cost: requests that go to several backends at once.
//!
//! A list through the gateway is held against as many lists asked of the backends themselves: the
//! CPU of the gateway's process against that of the backends', which are processes of their own.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use super::Bench;
use crate::{
    contestant::{Case, Contestant, free_address, wait_for},
    plain::Endpoint,
    process::{CpuTime, Process},
    sample::median,
};

/// Backends behind the list.
const BACKENDS: usize = 5;
/// Tools of each, of which the sample backend's own are three.
const FILLER_TOOLS: &str = "47";
/// Askers at a time; each has a connection to each endpoint and asks one after the other.
const ASKERS: usize = 8;
/// Sessions opened before CPU is read, so that pools and connections to backends are there.
const SESSIONS_FIRST: usize = 64;
/// Sessions opened between the two readings.
const SESSIONS: usize = 400;

impl Bench {
    /// V11, V15.
    pub(super) fn list(&mut self) {
        if self.wants(&["V11"]) {
            match self.listed_ratio() {
                Ok(ratio) => self.outcome.reach("V11", ratio),
                Err(fault) => self.outcome.skip(format!("V11: {fault}")),
            }
        }
        if self.wants(&["V15"]) {
            let pair = self.backends.pair();
            let cpu = self.options.test_cpu;
            let Some(gateway) = self.gateway_before("shardgate pair", "io-uring", &[cpu], &pair)
            else {
                return;
            };
            let costs = (0..self.options.cycles).map(|_| opening_us(&gateway));
            match costs.collect::<io::Result<Vec<f64>>>() {
                Ok(costs) => self.outcome.reach("V15", median(costs)),
                Err(fault) => self.outcome.skip(format!("V15: {fault}")),
            }
        }
    }

    /// V11: in each cycle both ways, one after the other.
    fn listed_ratio(&mut self) -> io::Result<Option<f64>> {
        let (mut processes, mut addresses) = (Vec::new(), Vec::new());
        for index in 0..BACKENDS {
            let address = free_address()?;
            processes.push(self.list_backend(index, address)?);
            addresses.push((Case::Five, address));
        }
        let cpu = self.options.test_cpu;
        let gateway = self.gateway_before("shardgate lists", "io-uring", &[cpu], &addresses);
        let Some(gateway) = gateway else {
            return Ok(None);
        };
        let merged: Vec<Endpoint> = gateway.endpoint(Case::Five).into_iter().collect();
        let direct: Vec<Endpoint> = addresses
            .iter()
            .filter_map(|address| Contestant::direct(&[*address]).endpoint(Case::Five))
            .collect();
        let own = || sum(gateway.process.iter());
        let of_backends = || sum(processes.iter());
        let mut ratios = Vec::new();
        for cycle in 0..self.options.cycles {
            let (ours, theirs);
            if cycle % 2 == 0 {
                theirs = self.round_us(&direct, of_backends)?;
                ours = self.round_us(&merged, own)?;
            } else {
                ours = self.round_us(&merged, own)?;
                theirs = self.round_us(&direct, of_backends)?;
            }
            ratios.push(ours / theirs);
        }
        Ok(median(ratios))
    }

    /// A sample backend in a process of its own: the gateway's binary brings it along.
    fn list_backend(&self, index: usize, address: SocketAddr) -> io::Result<Process> {
        let log = self.folder.join(format!("backend-{index}.log"));
        let mut command = Command::new(std::fs::canonicalize(&self.options.gateway)?);
        command
            .args(["loadgen", "backend", "--tool-count", FILLER_TOOLS])
            .arg("--address")
            .arg(address.to_string());
        let mut process = Process::start(command, Some(self.options.load_cpu), &log, None)?;
        wait_for(&mut process, address, &log).map_err(io::Error::other)?;
        Ok(process)
    }

    /// CPU of one round, us: one list of each endpoint.
    fn round_us(&self, endpoints: &[Endpoint], cpu: impl Fn() -> CpuTime) -> io::Result<f64> {
        let (rounds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let duration = Duration::from_secs_f64(self.options.seconds);
        let load_cpu = self.options.load_cpu;
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..ASKERS)
                .map(|_| scope.spawn(|| ask(endpoints, load_cpu, &rounds, &is_over)))
                .collect();
            std::thread::sleep(duration / 4);
            let (before, first) = (cpu(), rounds.load(Ordering::Relaxed));
            std::thread::sleep(duration);
            let (after, last) = (cpu(), rounds.load(Ordering::Relaxed));
            is_over.store(true, Ordering::Relaxed);
            for asker in asking {
                asker
                    .join()
                    .map_err(|_| io::Error::other("an asker died"))??;
            }
            if last == first {
                return Err(io::Error::other("no list was answered"));
            }
            Ok(after.since(before).total_ns as f64 / (last - first) as f64 / 1000.0)
        })
    }
}

/// One asker: a session at each endpoint, then rounds until it is over.
fn ask(
    endpoints: &[Endpoint],
    cpu: usize,
    rounds: &AtomicU64,
    is_over: &AtomicBool,
) -> io::Result<()> {
    if !shards::topology::pin(cpu) {
        return Err(io::Error::other("cannot pin an asker"));
    }
    let mut held = Vec::new();
    for endpoint in endpoints {
        held.push((endpoint, endpoint.initialize()?));
    }
    while !is_over.load(Ordering::Relaxed) {
        for (endpoint, (stream, session)) in &mut held {
            endpoint.ask(stream, session, "tools/list")?;
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn sum<'a>(processes: impl Iterator<Item = &'a Process>) -> CpuTime {
    processes.fold(CpuTime::default(), |sum, process| {
        let time = process.cpu_time();
        CpuTime {
            total_ns: sum.total_ns + time.total_ns,
            user_ticks: sum.user_ticks + time.user_ticks,
            system_ticks: sum.system_ticks + time.system_ticks,
        }
    })
}

/// V15: CPU of a session from its connection to its first answer, us.
fn opening_us(gateway: &Contestant) -> io::Result<f64> {
    let endpoint = gateway
        .endpoint(Case::Pair)
        .ok_or(io::ErrorKind::NotFound)?;
    let process = gateway.process.as_ref().ok_or(io::ErrorKind::NotFound)?;
    let open = |count: usize| -> io::Result<Vec<(TcpStream, String)>> {
        (0..count).map(|_| endpoint.initialize()).collect()
    };
    // Held to the end: closing is not what is measured.
    let first = open(SESSIONS_FIRST)?;
    let before = process.cpu_time();
    let held = open(SESSIONS)?;
    let used = process.cpu_time().since(before);
    drop((first, held));
    Ok(used.total_ns as f64 / SESSIONS as f64 / 1000.0)
}
