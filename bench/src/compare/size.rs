//! What the gateway holds and how fast it is there: memory of idle connections, sessions and
//! streams, each apart from the others, and of an idle process; the time from its start to its
//! first answer; its binary.

use std::{
    fs, io,
    net::TcpStream,
    time::{Duration, Instant},
};

use super::Bench;
use crate::{
    contestant::{Case, Contestant},
    sample::median,
};

/// How many are held of what is weighed: the kernel may give memory by 2 MiB pages.
const HELD: usize = 8000;
/// How many are held before the first reading, so that pools and tables have their first pages.
const HELD_FIRST: usize = 64;
/// Rest before memory is read.
const REST: Duration = Duration::from_millis(500);
/// Time for the first answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

impl Bench {
    /// S1 to S6; each cycle starts the gateway anew.
    pub(super) fn size(&mut self) {
        if self.wants(&["S5"]) {
            let binary = fs::metadata(&self.options.gateway);
            let bytes = binary.map(|found| found.len() as f64 / 1e6);
            self.outcome.reach("S5", bytes.ok());
        }
        for (id, label, weigh) in [
            ("S1", "shardgate sessions", weigh_sessions as Weigh),
            ("S3", "shardgate streams", weigh_streams),
        ] {
            if self.wants(&[id]) {
                let bytes = (0..self.options.cycles).filter_map(|_| self.pair(id, label, weigh));
                let bytes = median(bytes.collect::<Vec<_>>());
                self.outcome.reach(id, bytes);
            }
        }
        if !self.wants(&["S2", "S4", "S6"]) {
            return;
        }
        let (test, load) = (self.options.test_cpu, self.options.load_cpu);
        let (mut starts, mut idle, mut connection) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.options.cycles {
            if self.wants(&["S2", "S4"]) {
                let start = Instant::now();
                let Some(gateway) = self.gateway("shardgate size", "io-uring", &[test]) else {
                    return;
                };
                match first_answer(&gateway) {
                    Ok(session) => {
                        starts.push(start.elapsed().as_secs_f64() * 1000.0);
                        if self.wants(&["S2"]) {
                            match weigh_connections(&gateway, &session) {
                                Ok(bytes) => connection.push(bytes),
                                Err(fault) => self.outcome.skip(format!("S2: {fault}")),
                            }
                        }
                    }
                    Err(fault) => self.outcome.skip(format!("S4: {fault}")),
                }
            }
            if self.wants(&["S6"]) {
                let Some(gateway) = self.gateway("shardgate idle", "io-uring", &[test, load])
                else {
                    return;
                };
                match first_answer(&gateway) {
                    Ok(_) => {
                        std::thread::sleep(REST);
                        let bytes = gateway
                            .process
                            .as_ref()
                            .map_or(0, |process| process.memory("VmRSS"));
                        idle.push(bytes as f64 / 1e6);
                    }
                    Err(fault) => self.outcome.skip(format!("S6: {fault}")),
                }
            }
        }
        self.outcome.reach("S2", median(connection));
        self.outcome.reach("S4", median(starts));
        self.outcome.reach("S6", median(idle));
    }

    /// Weighs something of a gateway with two backends behind its endpoint.
    fn pair(&mut self, id: &str, label: &'static str, weigh: Weigh) -> Option<f64> {
        let pair = self.backends.pair();
        let cpu = self.options.test_cpu;
        let gateway = self.gateway_before(label, "io-uring", &[cpu], &pair)?;
        match weigh(&gateway) {
            Ok(bytes) => Some(bytes),
            Err(fault) => {
                self.outcome.skip(format!("{id}: {fault}"));
                None
            }
        }
    }
}

/// Bytes of one more of something.
type Weigh = fn(&Contestant) -> io::Result<f64>;

/// Asks until there is an answer; the session it opened.
fn first_answer(gateway: &Contestant) -> io::Result<String> {
    let endpoint = gateway
        .endpoint(Case::Small)
        .ok_or(io::ErrorKind::NotFound)?;
    let start = Instant::now();
    loop {
        match endpoint.initialize() {
            Ok((_connection, session)) => return Ok(session),
            Err(fault) if start.elapsed() > ANSWER_LIMIT => return Err(fault),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Memory that one more of what `open` gives takes, over `HELD` of them.
fn weigh<T>(gateway: &Contestant, open: impl Fn() -> io::Result<T>) -> io::Result<f64> {
    let process = gateway.process.as_ref().ok_or(io::ErrorKind::NotFound)?;
    let hold = |count: usize| (0..count).map(|_| open()).collect::<io::Result<Vec<T>>>();
    let first = hold(HELD_FIRST)?;
    std::thread::sleep(REST);
    let before = process.memory("RssAnon");
    let held = hold(HELD)?;
    std::thread::sleep(REST);
    let after = process.memory("RssAnon");
    drop((first, held));
    Ok(after.saturating_sub(before) as f64 / HELD as f64)
}

/// An idle connection after one request. All carry one session, so that sessions are not counted.
fn weigh_connections(gateway: &Contestant, session: &str) -> io::Result<f64> {
    let endpoint = gateway
        .endpoint(Case::Small)
        .ok_or(io::ErrorKind::NotFound)?;
    weigh(gateway, || endpoint.connect_and_ping(session))
}

/// An idle session whose connection has been closed.
fn weigh_sessions(gateway: &Contestant) -> io::Result<f64> {
    let endpoint = gateway
        .endpoint(Case::Pair)
        .ok_or(io::ErrorKind::NotFound)?;
    weigh(gateway, || endpoint.initialize().map(drop))
}

/// A session with its GET stream open, over a connection of its own.
fn weigh_streams(gateway: &Contestant) -> io::Result<f64> {
    let endpoint = gateway
        .endpoint(Case::Pair)
        .ok_or(io::ErrorKind::NotFound)?;
    weigh(gateway, || -> io::Result<TcpStream> {
        let (mut stream, session) = endpoint.initialize()?;
        endpoint.open_stream(&mut stream, &session)?;
        Ok(stream)
    })
}
