//! 200 sessions whose counter never skips and never repeats, wherever their connections land.

use loadgen::backend::{BackendKind, ReplyKind};

use crate::{
    peers::{Client, drive_well},
    stage::{Stage, Totals, sample},
};

const SESSIONS: u64 = 200;
const CALLS: u64 = 3;

/// What a run with one client did.
fn run(client: Client, through_nginx: bool) -> Totals {
    let backend = sample(BackendKind::Counter, ReplyKind::Json);
    let stage = Stage::open(&[("counter", &backend.url())]);
    let stage = if through_nginx {
        stage.behind_nginx(4)
    } else {
        stage
    };
    let (sessions, calls) = (SESSIONS.to_string(), CALLS.to_string());
    let mut options = vec!["--sessions", &sessions, "--calls", &calls];
    options.extend(["--concurrency", "8"]);
    if !through_nginx {
        // nginx has connections of its own to the gateway, whatever the client does.
        options.push("--fresh-connections");
    }
    let report = drive_well(client, &stage.url(), None, &options);
    assert_eq!(report.number("session_ids"), SESSIONS as f64);
    assert_eq!(report.number("stream_errors"), 0.0, "{}", report.0);
    let totals = stage.totals();
    assert_eq!(totals.calls, SESSIONS * CALLS);
    assert_eq!(backend.calls(), SESSIONS * CALLS, "one call is one request");
    assert_eq!(totals.failures, []);
    stage.end();
    assert_eq!(backend.stop(), 0);
    totals
}

fn over_fresh_connections(client: Client) {
    let totals = run(client, false);
    assert!(totals.handed_over > 0, "{totals:?}");
    assert!(totals.forwarded > 0, "{totals:?}");
}

fn through_nginx(client: Client) {
    let totals = run(client, true);
    assert!(totals.forwarded > 0, "{totals:?}");
}

#[test]
fn sdk1_counts_over_fresh_connections() {
    over_fresh_connections(Client::Sdk1);
}

#[test]
fn client2_counts_over_fresh_connections() {
    over_fresh_connections(Client::Client2);
}

#[test]
fn python_counts_over_fresh_connections() {
    over_fresh_connections(Client::Python);
}

/// In the long form as many as of the other clients.
fn inspector_sessions() -> u64 {
    match std::env::var_os("SHARDGATE_TEST_LONG") {
        Some(_) => SESSIONS,
        None => 4,
    }
}

fn drive_inspector(stage: &Stage, sessions: u64) {
    let sessions = sessions.to_string();
    let options = [
        "--sessions",
        &sessions,
        "--calls",
        "1",
        "--concurrency",
        "2",
    ];
    drive_well(Client::Inspector, &stage.url(), None, &options);
}

/// Each of its processes is one session of one call and takes seconds: a few must do. They keep
/// their connections between their few requests, so nothing is asked of the steering here.
#[test]
fn the_inspector_counts_with_a_process_for_each_session() {
    let backend = sample(BackendKind::Counter, ReplyKind::Json);
    let stage = Stage::open(&[("counter", &backend.url())]);
    let sessions = inspector_sessions();
    drive_inspector(&stage, sessions);
    let totals = stage.totals();
    assert_eq!((totals.calls, backend.calls()), (sessions, sessions));
    stage.end();
    assert_eq!(backend.stop(), 0);
}

#[test]
fn sdk1_counts_through_an_nginx_that_mixes_sessions() {
    through_nginx(Client::Sdk1);
}

#[test]
fn client2_counts_through_an_nginx_that_mixes_sessions() {
    through_nginx(Client::Client2);
}

#[test]
fn python_counts_through_an_nginx_that_mixes_sessions() {
    through_nginx(Client::Python);
}

#[test]
fn the_inspector_counts_through_an_nginx_that_mixes_sessions() {
    let backend = sample(BackendKind::Counter, ReplyKind::Json);
    let stage = Stage::open(&[("counter", &backend.url())]).behind_nginx(4);
    let sessions = inspector_sessions();
    drive_inspector(&stage, sessions);
    assert_eq!(stage.totals().calls, sessions);
    stage.end();
    assert_eq!(backend.stop(), 0);
}
