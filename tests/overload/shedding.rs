//! Promise 10: overload sheds, it does not sink.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    assert_refused,
    house::House,
    is_long,
    support::{
        Ask, Backend, Connection, Gate, Gateway, Layout, McpClient, Plan, call_body, eventually,
    },
    text_of,
};

/// Calls that may be under way from one shard to another (docs/architecture.md).
const CALLS_PER_PAIR: usize = 256;
const MORE: usize = 40;

fn gated() -> (Backend, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let backend = Backend::scripted("a", &["slow", "fast"], {
        let gate = gate.clone();
        move |asked, _| {
            if asked.tool()? == "slow" {
                gate.wait();
            }
            None
        }
    });
    (backend, gate)
}

#[test]
fn calls_over_the_rings_share_are_refused_at_once_and_the_others_served() {
    let (backend, gate) = gated();
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    let first = McpClient::open(&gateway);
    let mut taken: Vec<McpClient> = (0..CALLS_PER_PAIR).map(|_| first.again()).collect();
    for client in &mut taken {
        client.send_call("1", "slow", "{}");
    }
    gate.await_arrivals(CALLS_PER_PAIR);
    let mut refused: Vec<McpClient> = (0..MORE).map(|_| first.again()).collect();
    for client in &mut refused {
        let origin = "http://localhost:3000";
        let ask = client.request(call_body("2", "fast", "{}"));
        let response = client.connection.ask(&ask.header("origin", origin));
        assert_refused(&response, 503);
        // A page is to see why.
        let allowed = response.header("access-control-allow-origin");
        assert_eq!(allowed, Some(origin));
    }
    let metrics = shardgate::admin::text(&gateway.inner().view);
    let busy = format!("reason=\"busy\"}} {MORE}");
    assert!(metrics.contains(&busy), "{metrics}");
    assert!(!gate.is_open(), "nobody had to wait");
    // The owner itself has room: it is the way there that is full.
    let mut near = first.again_over(gateway.connect());
    for id in 0..50 {
        let response = near.call(&id.to_string(), "fast", "{}");
        assert_eq!(text_of(&response), "a fast {}");
    }
    assert!(gateway.inner().view.is_ready());
    gate.open();
    for client in &mut taken {
        let response = client.connection.read_response();
        assert_eq!(text_of(&response), "a slow {}");
    }
    for client in &mut refused {
        assert_eq!(text_of(&client.call("3", "fast", "{}")), "a fast {}");
    }
    let calls = backend.seen_rpc("tools/call").len();
    assert_eq!(
        calls,
        CALLS_PER_PAIR + 50 + MORE,
        "no refused call came through"
    );
}

#[test]
fn sessions_over_the_limit_are_refused_and_have_their_turn_when_others_end() {
    const SESSIONS: usize = 8;
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend)
        .layout(Layout::One)
        .settings(|settings| settings.limits.sessions_max = SESSIONS)
        .start();
    let mut clients: Vec<McpClient> = (0..SESSIONS).map(|_| McpClient::open(&gateway)).collect();
    let before = backend.seen().len();
    let initialize = McpClient::initialize(&clients[0].target);
    for _ in 0..5 * SESSIONS {
        assert_refused(&gateway.connect().ask(&initialize), 503);
    }
    assert_eq!(
        backend.seen().len(),
        before,
        "a refusal costs no backend anything"
    );
    for client in &mut clients {
        assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
    }
    assert_eq!(clients[0].delete().status, 200);
    assert_eq!(
        text_of(&McpClient::open(&gateway).call("1", "one", "{}")),
        "a one {}"
    );
    assert_refused(&gateway.connect().ask(&initialize), 503);
    assert!(gateway.inner().view.is_ready());
}

#[test]
fn connections_over_the_limit_are_closed_and_have_their_turn_when_others_end() {
    const CONNECTIONS: usize = 16;
    let backend = Backend::start("a", &["one"]);
    let limit = CONNECTIONS.to_string();
    let house = House::start(
        backend,
        None,
        &["--shards", "1", "--connections-max", &limit],
    );
    let first = house.open();
    let mut others: Vec<McpClient> = (1..CONNECTIONS)
        .map(|_| first.again_over(Connection::open(house.address)))
        .collect();
    for client in &mut others {
        assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
    }
    for _ in 0..5 * CONNECTIONS {
        let mut more = Connection::open(house.address);
        more.try_send(Ask::new("GET", "/nowhere").bytes());
        assert!(more.is_closed(), "without a word");
    }
    for client in &mut others {
        assert_eq!(text_of(&client.call("2", "one", "{}")), "a one {}");
    }
    assert!(house.is_ready());
    others.pop();
    eventually("another one is served", || {
        let mut more = Connection::open(house.address);
        more.try_send(Ask::new("GET", "/nowhere").bytes());
        more.fill().then_some(())
    });
}

/// What is done in a time by so many callers, each as fast as it can; every call is answered, or
/// refused in words.
fn goodput(gateway: &Gateway, callers: usize, time: Duration) -> usize {
    let clients: Vec<McpClient> = (0..callers).map(|_| McpClient::open(gateway)).collect();
    let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for mut client in clients {
            let (is_over, done) = (&is_over, &done);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let response = client.call("1", "fast", "{}");
                    if response.status == 200 {
                        assert_eq!(text_of(&response), "a fast {}");
                        done.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert_refused(&response, 503);
                    }
                }
                assert_eq!(client.delete().status, 200);
            });
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            thread::park_timeout(end.saturating_duration_since(Instant::now()));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    done.into_inner()
}

#[test]
fn more_callers_than_it_can_serve_get_no_less_done() {
    let time = Duration::from_millis(if is_long() { 10_000 } else { 200 });
    let (backend, _gate) = gated();
    let gateway = Plan::one(&backend).layout(Layout::Two).start();
    let full: Vec<usize> = [1, 2, 4, 8]
        .map(|callers| goodput(&gateway, callers, time))
        .into();
    let peak = *full.iter().max().unwrap();
    for factor in [2, 5] {
        let done = goodput(&gateway, 8 * factor, time);
        let share = 100 * done / peak.max(1);
        println!("goodput with {factor} times the callers: {share} % of the peak");
        if is_long() {
            assert!(share >= 90, "{share} %");
        }
    }
    assert_eq!(gateway.metric("shardgate_calls_failed_total"), 0);
    assert_eq!(gateway.metric("shardgate_sessions"), 0);
}
