//! Log messages: the level a client asks for reaches every backend that logs, and what backends say
//! on their own streams reaches the client that asked.

#[path = "support/support.rs"]
mod support;

use std::sync::Arc;

use support::{Asked, Backend, Gate, Gateway, McpClient, Plan, Response, Wire};

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"from b"}}"#;

/// A backend that logs: its `initialize` says so, and it takes a level.
fn logs(asked: &Asked, wire: &mut Wire<'_>) -> Option<()> {
    if asked.is("logging/setLevel") {
        wire.result(asked, "{}");
        return Some(());
    }
    asked
        .is("initialize")
        .then(|| wire.initialize_with(asked, r#"{"tools":{},"logging":{}}"#))
}

fn set_level(client: &mut McpClient, level: &str) -> Response {
    client.post(format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
    ))
}

fn merged(a: &Backend, b: &Backend) -> Gateway {
    Plan::of(&[("a", &a.url()), ("b", &b.url())]).start()
}

#[test]
fn the_level_reaches_the_backends_that_log_and_no_other() {
    let (a, b) = (
        Backend::start("a", &["echo"]),
        Backend::scripted("b", &["echo"], logs),
    );
    let gateway = merged(&a, &b);
    let mut client = McpClient::open(&gateway);
    let response = set_level(&mut client, "warning");
    assert_eq!(response.message()["id"], 7);
    assert_eq!(response.result(), serde_json::json!({}));
    let told = b.seen_rpc("logging/setLevel");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].json()["params"]["level"], "warning");
    assert!(a.seen_rpc("logging/setLevel").is_empty());

    assert_eq!(set_level(&mut client, "loud").error_code(), -32602);
    assert_eq!(b.seen_rpc("logging/setLevel").len(), 1);

    // A backend that lost its session is told again when it is opened again.
    b.lose_sessions();
    client.call("8", "b-echo", "{}").result();
    assert_eq!(b.seen_rpc("logging/setLevel").len(), 2);
}

#[test]
fn without_a_backend_that_logs_there_is_no_such_method() {
    let a = Backend::start("a", &["echo"]);
    let gateway = Plan::one(&a).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(set_level(&mut client, "debug").error_code(), -32601);
    assert!(a.seen_rpc("logging/setLevel").is_empty());
}

#[test]
fn what_a_backend_says_outside_calls_reaches_the_client_that_asked() {
    let (may_speak, has_ended) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (speak, end) = (may_speak.clone(), has_ended.clone());
    let b = Backend::scripted("b", &["echo"], move |asked, wire| {
        if asked.method != "GET" {
            return logs(asked, wire);
        }
        wire.stream_head();
        speak.wait();
        wire.send(format!("data: {LOG}\n\ndata: {LOG}\n\n"));
        wire.await_end();
        end.open();
        Some(())
    });
    let is_asked = || b.seen().iter().any(|asked| asked.method == "GET");
    let gateway = Plan::one(&b).start();
    let mut client = McpClient::open(&gateway);
    let mut stream = client.stream();
    assert_eq!(stream.next_block().as_deref(), Some(": ok"));
    set_level(&mut client, "info").result();
    assert!(is_asked(), "the stream is open before the answer is given");
    may_speak.open();
    for _ in 0..2 {
        assert_eq!(stream.next_event().unwrap().data, LOG);
    }
    // With the client's stream the backend's ends.
    drop(stream);
    has_ended.wait();
    assert_eq!(client.delete().status, 200);
    assert!(gateway.stop());
}
