//! Calls one after the other on one connection: no reply waits for a delayed acknowledgement, whose
//! signature is 40 ms a call (baseline.md, fault 1). JSON replies, event streams that the gateway
//! answers as JSON, and event streams that reach the client as such, in several small writes.

use std::time::Duration;

use loadgen::backend::{BackendKind, ReplyKind};

use crate::{
    peers::{Client, drive_well},
    stage::{Stage, sample},
    support::{Asked, Backend, McpClient, Wire},
};

/// Half of the shortest delayed acknowledgement.
const STALL_MS: f64 = 20.0;
const TRIES_MAX: usize = 5;
/// Sets a backend's two writes apart, so that the gateway makes two as well.
const APART: Duration = Duration::from_millis(2);

const TOOLS: &str = r#"{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}]}"#;
const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"working"}}"#;

/// A stall is there every time; a busy machine may be slow once.
fn without_a_stall(client: Client, server: &str) {
    let stage = Stage::open_alone(&[("server", server)]);
    let mut options = vec!["--mode", "back-to-back", "--sessions", "1"];
    options.extend(["--calls", "50"]);
    let mut medians = Vec::new();
    let is_quick = (0..TRIES_MAX).any(|_| {
        let report = drive_well(client, &stage.url(), None, &options);
        medians.push(report.number("p50_ms"));
        report.number("p50_ms") < STALL_MS
    });
    assert!(is_quick, "{client:?} is stalled: medians of {medians:?} ms");
    stage.end();
}

/// A backend that answers a call with a notification first and the response a little later.
fn chatty(asked: &Asked, wire: &mut Wire<'_>) -> Option<()> {
    if asked.is("tools/list") {
        wire.result(asked, TOOLS);
        return Some(());
    }
    asked.tool()?;
    let chunk = |message: &str| {
        let event = format!("data: {message}\n\n");
        format!("{:x}\r\n{event}\r\n", event.len())
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    wire.send(format!("{head}{}", chunk(NOTE)));
    std::thread::sleep(APART);
    let text = asked.json()["params"]["arguments"]["text"].to_string();
    let id = asked.id();
    let response = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#
    );
    wire.send(format!("{}0\r\n\r\n", chunk(&response)));
    Some(())
}

fn with_all_kinds_of_replies(client: Client) {
    for reply in [ReplyKind::Json, ReplyKind::Sse] {
        let backend = sample(BackendKind::Echo, reply);
        without_a_stall(client, &backend.url());
        assert_eq!(backend.stop(), 0);
    }
    let backend = Backend::scripted("chatty", &["echo"], chatty);
    let stage = Stage::open(&[("chatty", &backend.url())]);
    let response = McpClient::open(&stage.gateway).call("1", "echo", r#"{"text":"x"}"#);
    assert_eq!(response.messages().len(), 2, "it comes as a stream");
    stage.end();
    without_a_stall(client, &backend.url());
}

#[test]
fn sdk1_is_not_stalled() {
    with_all_kinds_of_replies(Client::Sdk1);
}

#[test]
fn client2_is_not_stalled() {
    with_all_kinds_of_replies(Client::Client2);
}

#[test]
fn python_is_not_stalled() {
    with_all_kinds_of_replies(Client::Python);
}

#[test]
fn the_inspector_is_not_stalled() {
    with_all_kinds_of_replies(Client::Inspector);
}
