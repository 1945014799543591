//! Sessions that only listen: as many as there may be, for a long time, with every heartbeat.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use crate::{
    house::House,
    support::{Backend, Connection, McpClient, PATIENCE},
    text_of,
};

/// How many, how long and how often.
struct Run {
    sessions: usize,
    heartbeats: usize,
    interval: Duration,
}

impl Run {
    /// `SHARDGATE_IDLE_STREAMS` is `SESSIONS:SECONDS` (scripts/idle-streams).
    fn of_environment() -> Self {
        let Ok(text) = std::env::var("SHARDGATE_IDLE_STREAMS") else {
            return Self {
                sessions: 200,
                heartbeats: 5,
                interval: Duration::from_millis(300),
            };
        };
        let (sessions, seconds) = text.split_once(':').unwrap();
        let seconds: usize = seconds.parse().unwrap();
        Self {
            sessions: sessions.parse().unwrap(),
            heartbeats: (seconds / 15).max(1),
            interval: Duration::from_secs(15),
        }
    }
}

/// A stream that is looked at now and then, without a thread of its own.
struct Idle {
    socket: TcpStream,
    /// Comments that have come.
    heartbeats: usize,
    last: [u8; 2],
}

impl Idle {
    fn open(house: &House, client: &McpClient) -> Self {
        let mut socket = TcpStream::connect(house.address).unwrap();
        socket.write_all(&client.bare("GET").bytes()).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            heartbeats: 0,
            last: *b"  ",
        }
    }

    /// Takes what has come; a stream that has ended is a failure.
    fn look(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => panic!("a stream has ended after {} heartbeats", self.heartbeats),
                Ok(count) => {
                    for byte in &bytes[..count] {
                        // Comments are all that begins a line with a colon.
                        self.heartbeats += usize::from(self.last[1] == b'\n' && *byte == b':');
                        self.last = [self.last[1], *byte];
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error} after {} heartbeats", self.heartbeats),
            }
        }
    }
}

#[test]
fn idle_streams_are_kept_alive_and_cost_no_more_with_time() {
    let run = Run::of_environment();
    let interval = format!("{}ms", run.interval.as_millis());
    let limit = (run.sessions + 10).max(1000).to_string();
    let house = House::start(
        Backend::start("a", &["one"]),
        None,
        &[
            "--heartbeat-interval",
            &interval,
            "--sessions-max",
            &limit,
            "--sessions-per-principal-max",
            &limit,
        ],
    );
    let first = house.open();
    let before_kib = house.resident_kib();
    let mut streams: Vec<Idle> = (1..run.sessions)
        .map(|_| {
            let connection = Connection::open(house.address);
            let client =
                McpClient::open_over(connection, house.address, crate::support::HOST, None);
            Idle::open(&house, &client)
        })
        .collect();
    let wait_for = |streams: &mut [Idle], heartbeats: usize| {
        let started = Instant::now();
        let end = started + 2 * run.interval * u32::try_from(heartbeats).unwrap() + PATIENCE;
        loop {
            streams.iter_mut().for_each(Idle::look);
            if streams.iter().all(|stream| stream.heartbeats >= heartbeats) {
                return started.elapsed();
            }
            assert!(Instant::now() < end, "heartbeats are missing");
            thread::park_timeout(run.interval / 10);
        }
    };
    wait_for(&mut streams, 1);
    let opened_kib = house.resident_kib();
    let spent = wait_for(&mut streams, 1 + run.heartbeats);
    let grown_kib = house.resident_kib().saturating_sub(opened_kib);
    println!(
        "{} streams for {} s: {} KiB each, {grown_kib} KiB more in the end, {} heartbeats each",
        streams.len(),
        spent.as_secs(),
        opened_kib.saturating_sub(before_kib) / streams.len(),
        run.heartbeats,
    );
    assert!(grown_kib <= 4 * 1024, "{grown_kib} KiB");
    assert_eq!(house.metric("shardgate_sessions"), run.sessions as u64);
    let mut first = first.again_over(Connection::open(house.address));
    assert_eq!(text_of(&first.call("1", "one", "{}")), "a one {}");
    assert_eq!(house.metric("shardgate_panics_total"), 0);
}
