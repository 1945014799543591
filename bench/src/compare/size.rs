//! What the gateway holds and how fast it is there: memory of idle connections and of an idle
//! process, and the time from its start to its first answer.

use std::{
    io,
    time::{Duration, Instant},
};

use super::Bench;
use crate::{
    contestant::{Case, Contestant},
    sample::median,
};

/// Idle connections that are held.
const CONNECTIONS: usize = 2000;
/// Connections opened before the first reading, so that pools and tables have their first pages.
const CONNECTIONS_FIRST: usize = 64;
/// Rest before memory is read.
const REST: Duration = Duration::from_millis(500);
/// Time for the first answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

impl Bench {
    /// S2, S4, S6; each cycle starts the gateway anew.
    pub(super) fn size(&mut self) {
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
                            match bytes_per_connection(&gateway, &session) {
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
}

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

/// Memory that one more idle connection takes, after one request each. All carry one session, so
/// that sessions are not what is counted.
fn bytes_per_connection(gateway: &Contestant, session: &str) -> io::Result<f64> {
    let endpoint = gateway
        .endpoint(Case::Small)
        .ok_or(io::ErrorKind::NotFound)?;
    let process = gateway.process.as_ref().ok_or(io::ErrorKind::NotFound)?;
    let open = |count: usize| -> io::Result<Vec<_>> {
        (0..count)
            .map(|_| endpoint.connect_and_ping(session))
            .collect()
    };
    let first = open(CONNECTIONS_FIRST)?;
    std::thread::sleep(REST);
    let before = process.memory("RssAnon");
    let held = open(CONNECTIONS)?;
    std::thread::sleep(REST);
    let after = process.memory("RssAnon");
    drop((first, held));
    Ok(after.saturating_sub(before) as f64 / CONNECTIONS as f64)
}
