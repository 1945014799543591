//! Sessions that only listen: as many as there may be, for a long time, with every heartbeat.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use crate::{
    house::House,
    support::{Backend, Connection, McpClient, PATIENCE, eventually},
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

/// What a gateway has open without a client: listeners, rings, pipes, connections of tests.
const OWN_DESCRIPTORS: usize = 100;

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

/// Opens the sessions, holds their streams, and looks at the gateway meanwhile. Gives the number of
/// descriptors it had open in the end with it.
fn hold(run: &Run, what: &str, backend: Backend) -> (House, usize) {
    let interval = format!("{}ms", run.interval.as_millis());
    let limit = (run.sessions + 10).max(1000).to_string();
    let house = House::start(
        backend,
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
    let mut streams: Vec<Idle> = (0..run.sessions)
        .map(|_| Idle::open(&house, &house.open()))
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
    let descriptors = house.descriptor_count();
    println!(
        "{what}: {} streams for {} s: {} KiB each, {grown_kib} KiB more in the end, \
         {} heartbeats each, {descriptors} descriptors",
        streams.len(),
        spent.as_secs(),
        opened_kib.saturating_sub(before_kib) / streams.len(),
        run.heartbeats,
    );
    assert!(grown_kib <= 4 * 1024, "{grown_kib} KiB");
    // And the one that was there before them, which listens to nothing.
    assert_eq!(house.metric("shardgate_sessions"), run.sessions as u64 + 1);
    let mut first = first.again_over(Connection::open(house.address));
    assert_eq!(text_of(&first.call("1", "one", "{}")), "a one {}");
    assert_eq!(house.metric("shardgate_panics_total"), 0);
    (house, descriptors)
}

/// How many streams the backend was asked for, once it was asked for one by each session.
fn asked_streams(house: &House, run: &Run) -> usize {
    eventually("each session has asked its backend", || {
        let mut seen = house.backend.seen();
        seen.retain(|asked| asked.method == "GET");
        Some(seen.len()).filter(|count| *count >= run.sessions)
    })
}

#[test]
fn idle_streams_are_kept_alive_and_cost_no_more_with_time() {
    let run = Run::of_environment();
    let backend = Backend::start("a", &["one"]);
    let (house, descriptors) = hold(&run, "a backend that has no streams", backend);
    // It has refused one to each session, and that has not cost a connection each.
    assert_eq!(asked_streams(&house, &run), run.sessions);
    let connections = house.backend.connection_count();
    assert!(
        connections <= run.sessions / 4,
        "{connections} to the backend"
    );
    assert!(
        descriptors <= run.sessions * 5 / 4 + OWN_DESCRIPTORS,
        "{descriptors}"
    );
}

#[test]
fn idle_streams_to_the_backend_are_kept_as_well() {
    let mut run = Run::of_environment();
    // Another descriptor for each in the gateway, and three in this process.
    run.sessions = run.sessions.min(2000);
    let backend = Backend::scripted("a", &["one"], |asked, wire| {
        (asked.method == "GET").then(|| {
            wire.stream_head();
            wire.await_end();
        })
    });
    let (house, descriptors) = hold(&run, "a backend with streams", backend);
    // None has ended, and so none was asked for again.
    assert_eq!(asked_streams(&house, &run), run.sessions);
    assert!(
        (2 * run.sessions..2 * run.sessions + OWN_DESCRIPTORS).contains(&descriptors),
        "{descriptors}"
    );
}
