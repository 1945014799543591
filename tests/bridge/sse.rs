//! HTTP+SSE backends (mcp.md 1.3): their dialects, their headers, and what is refused of them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use shardgate::bridge::URL_HEADER;

use crate::{
    door::Alone,
    old::{Dialect, Old, USUAL},
    stdio::{open, text},
    support::{
        Asked, Backend, Gateway, McpClient, Plan, VERSION, call_body, eventually, initialize_body,
    },
};

fn gateway(old: &Old) -> Gateway {
    plan(old).start()
}

fn plan(old: &Old) -> Plan {
    let entry = json!({"type": "sse", "url": old.url()});
    Plan::document(json!({"mcpServers": {"old": entry}}))
}

fn echo(client: &mut McpClient, id: &str) -> String {
    text(&client.call(id, "echo", r#"{"text":"hi"}"#))
}

#[test]
fn dialects_are_understood() {
    let dialects = [
        USUAL,
        Dialect {
            endpoint: "event: endpoint\r\ndata: {origin}/message?sessionId={session}\r\n\r\n",
            message: "id: 7\r\nevent: message\r\ndata: {data}\r\n\r\n",
            ..USUAL
        },
        Dialect {
            endpoint: ": hello\n\nretry: 3000\n\nevent:endpoint\ndata:message?sessionId={session}\n\n",
            message: "data:{data}\n\n: ping\n\nevent: ping\ndata: {}\n\n",
            ..USUAL
        },
        Dialect {
            is_hasty: true,
            ..USUAL
        },
    ];
    for dialect in dialects {
        let old = Old::start(dialect);
        let gateway = gateway(&old);
        let mut client = open(&gateway);
        assert_eq!(client.tool_names(), ["echo"]);
        for id in ["1", "\"two\""] {
            assert_eq!(echo(&mut client, id), "hi");
        }
        let response = client.post(
            r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},"_meta":{"progressToken":"p"}}}"#,
        );
        assert_eq!(response.messages().len(), 2);
        assert_eq!(text(&response), "x");
        assert!(gateway.stop());
    }
}

#[test]
fn one_stream_for_a_session_and_it_ends_with_it() {
    let old = Old::start(USUAL);
    let gateway = gateway(&old);
    let (mut one, mut two) = (open(&gateway), open(&gateway));
    for _ in 0..5 {
        assert_eq!(echo(&mut one, "1"), "hi");
    }
    assert_eq!(echo(&mut two, "1"), "hi");
    let streams: Vec<_> = old.backend.seen();
    let streams = streams.iter().filter(|asked| asked.method == "GET").count();
    assert_eq!(streams, 2);
    // Seven calls and more, over kept connections.
    assert!(
        old.backend.connection_count() <= 6,
        "{}",
        old.backend.connection_count()
    );
    assert_eq!(one.delete().status, 200);
    assert_eq!(echo(&mut two, "2"), "hi");
}

#[test]
fn headers_go_with_the_stream_and_with_every_message() {
    let old = Old::start(USUAL);
    let url = old.url();
    let backend = json!({"url": url, "transport": "SSE", "add_headers": {"X-Key": "k"},
        "passthrough_headers": ["x-trace", "shardgate-bridge-url"]});
    let document = json!({"virtual_hosts": {"default": {"backends": {"old": backend}}}});
    let gateway = Plan::document(document).start();
    let mut client = open(&gateway);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}"#;
    let ask = client
        .request(body)
        .header("x-trace", "t")
        .header("shardgate-bridge-url", "http://127.0.0.1:1/");
    assert_eq!(text(&client.connection.ask(&ask)), "x");
    for asked in old.backend.seen() {
        assert_eq!(asked.header("x-key"), Some("k"), "{asked:?}");
        assert!(
            !asked
                .headers
                .iter()
                .any(|(name, _)| name.starts_with("shardgate-") || name == "mcp-session-id"),
            "{asked:?}"
        );
        let is_call = asked.is("tools/call");
        assert_eq!(asked.header("x-trace"), is_call.then_some("t"));
        if asked.method == "GET" {
            assert_eq!(asked.target, "/sse?key=1");
            assert_eq!(asked.header("accept"), Some("text/event-stream"));
        } else {
            assert_eq!(asked.header("content-type"), Some("application/json"));
        }
    }
}

#[test]
fn an_endpoint_of_another_origin_is_not_spoken_to() {
    let other = Backend::start("other", &[]);
    let origin: &'static str =
        Box::leak(format!("event: endpoint\ndata: {}\n\n", other.url()).into_boxed_str());
    let old = Old::start(Dialect {
        endpoint: origin,
        ..USUAL
    });
    let gateway = gateway(&old);
    let mut client = open(&gateway);
    assert_eq!(client.tool_names(), Vec::<String>::new());
    assert!(other.seen().is_empty() && old.posts().is_empty());
}

#[test]
fn a_stream_that_ends_is_opened_again_for_the_next_call() {
    let old = Old::start(USUAL);
    let gateway = gateway(&old);
    let mut client = open(&gateway);
    assert_eq!(echo(&mut client, "1"), "hi");
    // A call under way when it ends is not repeated.
    client.send_call("2", "silent", "{}");
    eventually("the call is there", || {
        let is_there = |asked: &Asked| asked.tool().as_deref() == Some("silent");
        old.posts().iter().any(is_there).then_some(())
    });
    old.cut();
    assert_eq!(client.connection.read_response().error_code(), -32603);
    assert_eq!(echo(&mut client, "3"), "hi");
    let silent = old.posts();
    let silent = silent
        .iter()
        .filter(|asked| asked.tool().as_deref() == Some("silent"));
    assert_eq!(silent.count(), 1);
}

#[test]
fn a_server_that_forgot_the_session_is_opened_again() {
    let forgetful = Arc::new(Mutex::new(0));
    let old = Old::scripted(USUAL, {
        let forgetful = forgetful.clone();
        move |asked, wire| {
            let mut left = forgetful.lock().unwrap();
            if asked.is("tools/call") && *left > 0 {
                *left -= 1;
                wire.answer(404, "", "");
                return Some(());
            }
            None
        }
    });
    let gateway = gateway(&old);
    let mut client = open(&gateway);
    *forgetful.lock().unwrap() = 1;
    assert_eq!(echo(&mut client, "1"), "hi");
    assert_eq!(old.backend.seen_rpc("initialize").len(), 2);
}

#[test]
fn silence_has_a_limit() {
    let limit = Duration::from_millis(300);
    // No endpoint; and a POST that is never answered, as with a session that is not known.
    let mute = Old::start(Dialect {
        endpoint: ": nothing\n\n",
        ..USUAL
    });
    let gateway = plan(&mute)
        .settings(move |settings| settings.timeouts.upstream_first_byte = limit)
        .start();
    let mut client = open(&gateway);
    assert_eq!(client.tool_names(), Vec::<String>::new());

    let hung = Old::scripted(USUAL, |asked, wire| {
        asked.is("tools/call").then(|| wire.await_end())
    });
    let gateway = plan(&hung)
        .settings(move |settings| settings.timeouts.upstream_first_byte = limit)
        .start();
    let mut client = open(&gateway);
    assert_eq!(client.call("1", "echo", "{}").error_code(), -32603);
}

#[test]
fn refusals_are_failures_of_the_backend() {
    let closed = Old::scripted(USUAL, |asked, wire| {
        (asked.method == "GET").then(|| wire.answer(401, "", ""))
    });
    let gateway = gateway(&closed);
    let mut client = open(&gateway);
    assert_eq!(client.tool_names(), Vec::<String>::new());
    let response = client.call("1", "echo", "{}");
    assert!(
        response.text().contains("HTTP status 401"),
        "{}",
        response.text()
    );
}

#[test]
fn the_connection_mode_counts_behind_the_bridge_too() {
    let old = Old::start(USUAL);
    let gateway = plan(&old)
        .settings(|settings| settings.upstream.mode = shardgate::settings::UpstreamMode::TlsOnly)
        .start();
    let mut client = open(&gateway);
    let response = client.call("1", "echo", "{}");
    assert!(
        response
            .text()
            .contains("plain-text backends are not allowed"),
        "{}",
        response.text()
    );
    assert!(old.backend.seen().is_empty());
}

/// Established connections of this machine to a port.
fn connection_count_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let peer = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[2].ends_with(&peer) && words[3] == "01"
    };
    table.lines().skip(1).filter(is_one).count()
}

#[test]
fn a_stream_that_nobody_uses_is_closed() {
    let old = Old::start(USUAL);
    let alone = Alone::start(&json!({"mcpServers": {}}), |settings| {
        settings.timeouts.session_idle = Duration::from_millis(400);
    });
    let post = |session: Option<&str>, body: String| {
        let mut ask = alone.ask("POST", "/sse", session);
        ask = ask.header(URL_HEADER, &old.url());
        ask.body = Some(body.into());
        alone.connect().ask(&ask)
    };
    let response = post(None, initialize_body("0", VERSION));
    let session = response.header("mcp-session-id").unwrap();
    eventually("its connections are closed", || {
        (connection_count_to(old.port()) == 0).then_some(())
    });
    let response = post(Some(session), call_body("1", "echo", "{}"));
    assert_eq!((response.status, response.error_code()), (404, -32001));
    assert_eq!(post(None, initialize_body("0", VERSION)).status, 200);
}
