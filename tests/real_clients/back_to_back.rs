//! Calls one after the other on one connection: no reply waits for a delayed acknowledgement, whose
//! signature is 40 ms a call (baseline.md, fault 1).

use loadgen::backend::{BackendKind, ReplyKind};

use crate::{
    peers::{Client, Server, drive_well},
    stage::{Stage, sample},
};

/// Half of the shortest delayed acknowledgement.
const STALL_MS: f64 = 20.0;

fn without_a_stall(client: Client, server: &str, calls: &str) {
    let stage = Stage::open(&[("server", server)]);
    let options = ["--mode", "back-to-back", "--sessions", "1", "--calls", calls];
    let report = drive_well(client, &stage.url(), None, &options);
    assert!(report.number("p50_ms") < STALL_MS, "{}", report.0);
    stage.end();
}

fn with_sample(client: Client, reply: ReplyKind) {
    let backend = sample(BackendKind::Echo, reply);
    without_a_stall(client, &backend.url(), "100");
    assert_eq!(backend.stop(), 0);
}

#[test]
fn sdk1_is_not_stalled() {
    with_sample(Client::Sdk1, ReplyKind::Json);
    with_sample(Client::Sdk1, ReplyKind::Sse);
}

#[test]
fn client2_is_not_stalled() {
    with_sample(Client::Client2, ReplyKind::Json);
    with_sample(Client::Client2, ReplyKind::Sse);
}

#[test]
fn python_is_not_stalled() {
    with_sample(Client::Python, ReplyKind::Json);
    with_sample(Client::Python, ReplyKind::Sse);
}

#[test]
fn the_inspector_is_not_stalled() {
    with_sample(Client::Inspector, ReplyKind::Json);
    with_sample(Client::Inspector, ReplyKind::Sse);
}
