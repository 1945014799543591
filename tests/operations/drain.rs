//! A stop: what runs is finished, what waits is told, what hangs is cut, and the process ends.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    caller::{Caller, INITIALIZE, call, curl, metric},
    is_long,
    process::{Folder, Process, until},
    support::{Backend, Connection, Gate},
};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// A gateway whose backend answers a call only when its gate opens.
struct House {
    process: Process,
    backend: Backend,
    gate: Arc<Gate>,
    _home: Folder,
}

impl House {
    fn new(more: &[&str]) -> Self {
        let gate: Arc<Gate> = Arc::default();
        let at_the_gate = gate.clone();
        let backend = Backend::scripted("slow", &["wait", "count"], move |asked, _| {
            if asked.tool().as_deref() == Some("wait") {
                at_the_gate.wait();
            }
            None
        });
        let home = Folder::new();
        let document = format!(
            r#"{{"mcpServers":{{"slow":{{"url":"{}"}}}}}}"#,
            backend.url()
        );
        let document = home.write("mcp.json", &document);
        let mut arguments = vec!["--config-file", &document, "--allow-anonymous"];
        arguments.extend(["--upstream-connection-mode", "plain-text-or-tls"]);
        arguments.extend(more);
        let process = Process::serve(&home, &arguments);
        Self {
            process,
            backend,
            gate,
            _home: home,
        }
    }

    fn open(&self) -> Caller {
        let mut caller = Caller::new(self.process.address(), "/mcp", None);
        caller.open();
        caller
    }

    /// A connection that has served a ping of `first` and then waits for a call of `second`.
    fn waiting(&self, first: &Caller, second: &Caller) -> Connection {
        let mut connection = Connection::open(self.process.address());
        connection.send(first.post_bytes(PING));
        assert_eq!(connection.read_response().status, 200);
        connection.send(second.post_bytes(&call("wait", "{}")));
        connection
    }
}

#[test]
fn a_stop_finishes_what_runs_tells_who_waits_and_ends_with_0() {
    let mut house = House::new(&[]);
    let (address, admin) = (house.process.address(), house.process.admin_address());
    let callers: Vec<Caller> = (0..4).map(|_| house.open()).collect();
    // Calls of each session on connections of each session: half of them cross the ring.
    let mut calls = Vec::new();
    for first in &callers {
        for second in &callers {
            calls.push(house.waiting(first, second));
        }
    }
    house.gate.await_arrivals(calls.len());
    assert!(metric(admin, "shardgate_forwarded_total") > 0);

    let mut idle = Connection::open(address);
    idle.send(callers[0].post_bytes(PING));
    assert_eq!(idle.read_response().status, 200);
    let mut silent = Connection::open(address);
    let mut streams: Vec<Connection> = callers
        .iter()
        .map(|caller| {
            let mut stream = Connection::open(address);
            stream.send(format!("{}\r\n", caller.head("GET")));
            assert_eq!(stream.read_head().status, 200);
            stream
        })
        .collect();
    assert_eq!(house.backend.session_count(), 4);

    house.process.signal("TERM");
    house.process.logged("SIGTERM: draining");
    assert!(idle.is_closed());
    assert!(silent.is_closed());
    for stream in &mut streams {
        while stream.read_chunk().is_some() {}
        assert!(stream.is_closed());
    }
    until("new connections are refused", || {
        TcpStream::connect(address).is_err().then_some(())
    });
    let ready = curl(&[&format!("http://{admin}/readyz")]);
    assert_eq!(ready.status, 503);

    // The calls are what keeps it alive.
    assert_eq!(house.process.has_ended(), None);
    assert_eq!(house.backend.session_count(), 4);
    house.gate.open();
    for connection in &mut calls {
        let response = connection.read_response();
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(response.result()["content"][0]["text"], "slow wait {}");
        assert!(connection.is_closed());
    }
    assert_eq!(house.process.exit_code(), 0, "{}", house.process.stderr());
    assert_eq!(house.backend.session_count(), 0);
}

#[test]
fn a_shard_waits_for_what_another_one_answers_on_its_connections() {
    let mut house = House::new(&[]);
    let (address, admin) = (house.process.address(), house.process.admin_address());
    let forwarded = || metric(admin, "shardgate_forwarded_total");
    let first = house.open();
    // A session of the other shard, and a connection of the first one's.
    let (second, mut crossing) = until("a session on the other shard", || {
        let second = house.open();
        let mut connection = Connection::open(address);
        let before = forwarded();
        for caller in [&first, &second] {
            connection.send(caller.post_bytes(PING));
            assert_eq!(connection.read_response().status, 200);
        }
        (forwarded() > before).then_some((second, connection))
    });
    crossing.send(second.post_bytes(&call("wait", "{}")));
    house.gate.await_arrivals(1);
    house.process.signal("TERM");
    until("new connections are refused", || {
        TcpStream::connect(address).is_err().then_some(())
    });
    for _ in 0..10 {
        let metrics = curl(&[&format!("http://{admin}/metrics")]);
        let lines = metrics.body.matches("\nshardgate_sessions{").count();
        assert_eq!(lines, 2, "both shards are there");
    }
    house.gate.open();
    let response = crossing.read_response();
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(house.process.exit_code(), 0);
    assert_eq!(house.backend.session_count(), 0);
}

#[test]
fn an_interrupt_stops_it_the_same_way() {
    let mut house = House::new(&[]);
    let caller = house.open();
    let mut running = house.waiting(&caller, &caller);
    house.gate.await_arrivals(1);
    house.process.signal("INT");
    house.process.logged("SIGINT: draining");
    house.gate.open();
    assert_eq!(running.read_response().status, 200);
    assert_eq!(house.process.exit_code(), 0);
    assert_eq!(house.backend.session_count(), 0);
}

#[test]
fn what_comes_during_a_stop_is_told_to_go_elsewhere() {
    let mut house = House::new(&[]);
    let caller = house.open();
    // Not idle: the head of its next request has begun.
    let mut late = Connection::open(house.process.address());
    let request = Caller::new(house.process.address(), "/mcp", None).post_bytes(INITIALIZE);
    let (begun, rest) = request.split_at(20);
    late.send(caller.post_bytes(PING));
    assert_eq!(late.read_response().status, 200);
    late.send(begun);
    let mut running = house.waiting(&caller, &caller);
    house.gate.await_arrivals(1);
    house.process.signal("TERM");
    until("new connections are refused", || {
        TcpStream::connect(house.process.address())
            .is_err()
            .then_some(())
    });
    if late.try_send(rest) {
        let response = late.read_response();
        assert_eq!(response.status, 503, "{}", response.text());
        assert!(response.header("retry-after").is_some());
        assert_eq!(response.header("connection"), Some("close"));
        assert!(late.is_closed());
    }
    house.gate.open();
    assert_eq!(running.read_response().status, 200);
    assert_eq!(house.process.exit_code(), 0);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut house = House::new(&["--drain-timeout", "1h"]);
    let caller = house.open();
    let mut running = house.waiting(&caller, &caller);
    house.gate.await_arrivals(1);
    house.process.signal("TERM");
    house.process.logged("SIGTERM: draining");
    assert_eq!(house.process.has_ended(), None);
    house.process.signal("TERM");
    assert_eq!(house.process.exit_code(), 1);
    house.process.logged("second signal: ending now");
    assert!(running.is_closed());
    house.gate.open();
}

#[test]
fn what_hangs_is_cut_after_the_drain_timeout() {
    let mut house = House::new(&["--drain-timeout", "1s"]);
    let caller = house.open();
    let mut running = house.waiting(&caller, &caller);
    house.gate.await_arrivals(1);
    let started = Instant::now();
    house.process.signal("TERM");
    assert!(running.is_closed());
    house.process.exit_code();
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert!(!house.gate.is_open());
    // Its backend session is ended all the same.
    until("the backend was told", || {
        (house.backend.session_count() == 0).then_some(())
    });
    house.gate.open();
}

/// Calls with numbers of their own, one after the other, until the gateway takes no more; those
/// that were answered. A connection may end instead of taking a request, but not after that.
fn call_until_it_ends(caller: Caller, first_number: u64) -> Vec<u64> {
    let mut answered = Vec::new();
    let address = caller.address;
    let mut connection = Connection::open(address);
    for number in first_number.. {
        let body = call("count", &format!(r#"{{"number":{number}}}"#));
        let has_answer = connection.try_send(caller.post_bytes(&body)) && connection.fill();
        if has_answer {
            let response = connection.read_response();
            if response.status == 503 {
                assert!(response.header("retry-after").is_some());
                break;
            }
            assert_eq!(response.status, 200, "{}", response.text());
            let expected = format!(r#"slow count {{"number":{number}}}"#);
            assert_eq!(response.result()["content"][0]["text"], expected);
            answered.push(number);
            if response.header("connection") != Some("close") {
                continue;
            }
        }
        // It has said so, or has closed while nothing was under way.
        match TcpStream::connect(address) {
            Ok(stream) => connection = Connection::over(stream),
            Err(_) => break,
        }
    }
    answered
}

/// What a tool did, its caller has been told: nothing is lost between the two, in the middle of
/// load, with streams open.
#[test]
fn a_stop_under_load_loses_nothing() {
    const CALLERS: u64 = 6;
    let (rounds, streams_each) = if is_long() { (20, 8) } else { (2, 4) };
    for _ in 0..rounds {
        let mut house = House::new(&[]);
        let callers: Vec<Caller> = (0..CALLERS).map(|_| house.open()).collect();
        let mut streams: Vec<Connection> = callers
            .iter()
            .flat_map(|caller| std::iter::repeat_n(caller, streams_each))
            .map(|caller| {
                let mut stream = Connection::open(house.process.address());
                stream.send(format!("{}\r\n", caller.head("GET")));
                assert_eq!(stream.read_head().status, 200);
                stream
            })
            .collect();
        let load: Vec<_> = callers
            .into_iter()
            .zip(0..)
            .map(|(caller, number)| {
                thread::spawn(move || call_until_it_ends(caller, number * 1_000_000))
            })
            .collect();
        house
            .backend
            .await_rpc("tools/call", 100 * usize::try_from(CALLERS).unwrap());
        house.process.signal("TERM");
        for stream in &mut streams {
            while stream.read_chunk().is_some() {}
            assert!(stream.is_closed(), "told, and then closed");
        }
        let answered = load.into_iter().flat_map(|load| load.join().unwrap());
        let mut answered: Vec<u64> = answered.collect();
        answered.sort_unstable();
        assert_eq!(house.process.exit_code(), 0, "{}", house.process.stderr());
        let mut done: BTreeMap<u64, usize> = BTreeMap::new();
        for call in house.backend.seen_rpc("tools/call") {
            let number = call.json()["params"]["arguments"]["number"].as_u64();
            *done.entry(number.unwrap()).or_default() += 1;
        }
        assert!(
            done.values().all(|times| *times == 1),
            "nothing was done twice"
        );
        done.retain(|number, _| answered.binary_search(number).is_err());
        assert!(done.is_empty(), "done and not answered: {done:?}");
        assert_eq!(house.backend.session_count(), 0);
    }
}

/// One client during a restart: sessions and calls on connections of all kinds until it is over;
/// the numbers of the calls that were answered. No connection may be refused.
fn call_through_a_restart(
    address: SocketAddr,
    first_number: u64,
    is_over: &AtomicBool,
) -> Vec<u64> {
    let mut answered = Vec::new();
    let connect = || Connection::over(TcpStream::connect(address).expect("nobody listens"));
    let (mut connection, mut caller) = (connect(), None);
    let mut number = first_number;
    while !is_over.load(Ordering::SeqCst) {
        let Some(session) = &caller else {
            let mut fresh = Caller::new(address, "/mcp", None);
            connection = connect();
            if connection.try_send(fresh.post_bytes(INITIALIZE)) && connection.fill() {
                let response = connection.read_response();
                if response.status == 200 {
                    fresh.session = response.header("mcp-session-id").map(str::to_owned);
                    caller = Some(fresh);
                }
            }
            continue;
        };
        number += 1;
        let body = call("count", &format!(r#"{{"number":{number}}}"#));
        if !(connection.try_send(session.post_bytes(&body)) && connection.fill()) {
            // Closed while nothing was under way, or not taken by the one that ends.
            connection = connect();
            continue;
        }
        let response = connection.read_response();
        match response.status {
            200 => answered.push(number),
            // The other process has no such session; or this one ends.
            404 | 503 => caller = None,
            other => panic!("{other}: {}", response.text()),
        }
        if response.header("connection") == Some("close") || number.is_multiple_of(7) {
            connection = connect();
        }
    }
    answered
}

/// The next process takes over the address before this one stops: nobody is refused, and nothing is
/// lost.
#[test]
fn a_restart_under_load_refuses_nobody() {
    const CALLERS: u64 = 4;
    let rounds = if is_long() { 20 } else { 2 };
    let backend = Backend::start("slow", &["count"]);
    let home = Folder::new();
    let document = format!(
        r#"{{"mcpServers":{{"slow":{{"url":"{}"}}}}}}"#,
        backend.url()
    );
    let document = home.write("mcp.json", &document);
    let start = |more: &[&str]| {
        let mut arguments = vec!["--config-file", &*document, "--allow-anonymous"];
        arguments.extend(["--upstream-connection-mode", "plain-text-or-tls"]);
        arguments.extend(more);
        let process = Process::serve(&home, &arguments);
        let address = process.address();
        (process, address)
    };
    let (mut process, address) = start(&[]);
    let is_over = AtomicBool::new(false);
    let answered: Vec<u64> = thread::scope(|scope| {
        let is_over = &is_over;
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                scope.spawn(move || call_through_a_restart(address, number * 1_000_000, is_over))
            })
            .collect();
        let text = address.to_string();
        for _ in 0..rounds {
            let calls = backend.seen_rpc("tools/call").len();
            backend.await_rpc("tools/call", calls + 100);
            let (next, _) = start(&["--address", &text, "--take-over"]);
            process.signal("TERM");
            assert_eq!(process.exit_code(), 0, "{}", process.stderr());
            process = next;
        }
        let calls = backend.seen_rpc("tools/call").len();
        backend.await_rpc("tools/call", calls + 100);
        is_over.store(true, Ordering::SeqCst);
        callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap())
            .collect()
    });
    let mut done: BTreeMap<u64, usize> = BTreeMap::new();
    for call in backend.seen_rpc("tools/call") {
        let number = call.json()["params"]["arguments"]["number"].as_u64();
        *done.entry(number.unwrap()).or_default() += 1;
    }
    assert!(
        done.values().all(|times| *times == 1),
        "nothing was done twice"
    );
    for number in &answered {
        assert!(
            done.remove(number).is_some(),
            "{number} was answered and not done"
        );
    }
    assert!(done.is_empty(), "done and not answered: {done:?}");
}
