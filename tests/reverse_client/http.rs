//! A local server over Streamable HTTP: its session, its streams, its refusals, its absence.

use std::{net::TcpListener, sync::Arc};

use serde_json::json;

use crate::{
    stage::{Client, Door, Heard, Socket, code_of, text_of},
    support::{Asked, Backend, Gate, Limit, eventually},
};

fn client(door: &Door, backend: &Backend) -> Client {
    Client::start(&door.url(), &["--http", &backend.url()])
}

/// A client that is connected and initialized.
fn started(backend: &Backend) -> (Door, Client, Socket) {
    let door = Door::open();
    let client = client(&door, backend);
    let mut socket = door.enter();
    socket.initialize();
    (door, client, socket)
}

fn is_tool(asked: &Asked, name: &str) -> bool {
    asked.tool().as_deref() == Some(name)
}

/// An event with the answer to a request.
fn answer_event(asked: &Asked, text: &str) -> String {
    let id = asked.id();
    format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\
         {{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}}}\n\n"
    )
}

#[test]
fn a_session_is_kept_and_ended() {
    let backend = Backend::start("local", &["tool"]);
    let door = Door::open();
    let url = backend.url();
    let more = ["--http", &url, "--server-header", "X-Key: k"];
    let mut client = Client::start(&door.url(), &more);
    let mut socket = door.enter();
    assert_eq!(socket.initialize()["serverInfo"]["name"], "local");
    let tools = socket.request("tools/list", json!({}));
    assert!(tools["result"]["tools"].is_array(), "{tools}");
    for _ in 0..5 {
        assert!(socket.call("tool", json!({"a": 1})).contains("local"));
    }
    client.process.signal("TERM");
    socket.ends_with(Some(1001));
    assert_eq!(client.process.exit_code(), 0);
    assert_eq!(backend.session_count(), 0);
    let seen = backend.seen();
    assert!(seen[0].is("initialize"));
    assert_eq!(seen[0].header("mcp-session-id"), None);
    assert_eq!(seen[0].header("mcp-protocol-version"), None);
    assert_eq!(seen.last().unwrap().method, "DELETE");
    for asked in &seen {
        assert_eq!(asked.header("x-key"), Some("k"));
        assert_eq!(asked.header("authorization"), None);
        let accepted = match asked.method.as_str() {
            "POST" => Some("application/json, text/event-stream"),
            "GET" => Some("text/event-stream"),
            _ => None,
        };
        assert_eq!(asked.header("accept"), accepted);
    }
    for asked in &seen[1..] {
        assert_eq!(asked.header("mcp-session-id"), Some("local-session-1"));
        assert_eq!(asked.header("mcp-protocol-version"), Some("2025-11-25"));
    }
    // Over kept connections, and the one of the GET that was refused.
    assert!(
        backend.connection_count() <= 4,
        "{}",
        backend.connection_count()
    );
}

#[test]
fn a_reply_in_a_stream_is_heard_message_by_message() {
    let backend = Backend::scripted("local", &["streamed"], |asked, wire| {
        is_tool(asked, "streamed").then(|| {
            wire.stream_head();
            wire.send(": hello\n\nevent: ping\ndata: {}\n\n");
            wire.send("data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/x\"}\n\n");
            wire.send(answer_event(asked, "done"));
            wire.send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/late\"}\n\n");
        })
    });
    let (_door, _client, mut socket) = started(&backend);
    let id = socket.ask_tool("streamed", json!({}));
    assert_eq!(socket.message()["method"], "notifications/x");
    let answer = socket.message();
    assert_eq!(
        (&answer["id"], text_of(&answer)),
        (&json!(id), "done".into())
    );
    assert_eq!(socket.message()["method"], "notifications/late");
}

#[test]
fn a_stream_that_ends_before_its_answer_is_asked_for_again() {
    let backend = Backend::scripted("local", &["polled"], |asked, wire| {
        if is_tool(asked, "polled") {
            wire.stream_head();
            wire.send("id: p/1\nretry: 10\ndata:\n\n");
            return Some(());
        }
        let last = asked.header("last-event-id")?.to_owned();
        wire.stream_head();
        wire.send(match last.as_str() {
            "p/1" => "id: p/2\ndata: {\"method\":\"notifications/x\"}\n\n".to_owned(),
            // The second request of the connection.
            _ => "id: p/3\ndata: {\"id\":2,\"result\":{}}\n\n".to_owned(),
        });
        Some(())
    });
    let (_door, _client, mut socket) = started(&backend);
    let id = socket.ask_tool("polled", json!({}));
    assert_eq!(socket.message()["method"], "notifications/x");
    assert_eq!(socket.message()["id"], id);
    let seen = backend.seen();
    let resumed = seen
        .iter()
        .filter_map(|asked| asked.header("last-event-id"));
    assert_eq!(resumed.collect::<Vec<_>>(), ["p/1", "p/2"]);
}

#[test]
fn a_stream_without_ids_that_ends_early_fails_its_call_alone() {
    let backend = Backend::scripted("local", &["cut", "refused", "other"], |asked, wire| {
        if is_tool(asked, "cut") {
            wire.stream_head();
            wire.send("data: {\"method\":\"notifications/x\"}\n\n");
        } else if is_tool(asked, "refused") {
            wire.answer(500, "", "sorry");
        } else if is_tool(asked, "other") {
            wire.answer(200, "content-type: text/html\r\n", "<p>");
        } else if is_tool(asked, "error") {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-7,"message":"own"}}}}"#,
                asked.id()
            );
            wire.answer(400, "content-type: application/json\r\n", body);
        } else {
            return None;
        }
        Some(())
    });
    let (_door, _client, mut socket) = started(&backend);
    socket.ask_tool("cut", json!({}));
    assert_eq!(socket.message()["method"], "notifications/x");
    assert_eq!(code_of(&socket.message()), -32603);
    for (tool, code) in [("refused", -32603), ("other", -32603), ("error", -7)] {
        let params = json!({"name": tool, "arguments": {}});
        assert_eq!(
            code_of(&socket.request("tools/call", params)),
            code,
            "{tool}"
        );
    }
    socket.call("echo", json!({}));
}

#[test]
fn the_get_stream_is_read_and_read_on() {
    let backend = Backend::scripted("local", &[], |asked, wire| {
        (asked.method == "GET").then(|| {
            wire.stream_head();
            match asked.header("last-event-id") {
                None => wire.send(
                    "retry: 10\nid: 7\ndata: {\"method\":\"notifications/tools/list_changed\"}\n\n",
                ),
                Some("7") => {
                    wire.send("id: 8\ndata: {\"id\":\"s\",\"method\":\"roots/list\"}\n\n");
                    wire.await_end();
                }
                Some(other) => panic!("{other}"),
            }
        })
    });
    let (_door, _client, mut socket) = started(&backend);
    let changed = "notifications/tools/list_changed";
    assert_eq!(socket.message()["method"], changed);
    assert_eq!(socket.message()["method"], "roots/list");
    socket.say(&json!({"jsonrpc": "2.0", "id": "s", "result": {"roots": []}}));
    let answers = backend.await_answers(1);
    assert_eq!(answers[0].id(), "\"s\"");
}

#[test]
fn a_lost_session_fails_the_call_and_begins_anew() {
    let errors = [
        (
            404,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#,
        ),
        (
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"No valid session ID"}}"#,
        ),
    ];
    for (status, body) in errors {
        let backend = Backend::scripted("local", &["lost"], move |asked, wire| {
            is_tool(asked, "lost")
                .then(|| wire.answer(status, "content-type: application/json\r\n", body))
        });
        let (door, client, mut socket) = started(&backend);
        let id = socket.ask_tool("lost", json!({}));
        let error = socket.message();
        assert_eq!((&error["id"], code_of(&error)), (&json!(id), -32603));
        socket.ends_with(Some(1011));
        client.process.logged("has lost the session");
        let mut socket = door.enter();
        socket.initialize();
        socket.call("echo", json!({}));
        let sessions = backend.seen_rpc("tools/call");
        let last = sessions.last().unwrap().header("mcp-session-id");
        assert_eq!(last, Some("local-session-2"));
    }
}

#[test]
fn a_server_that_is_away_is_no_source_until_it_is_back() {
    let backend = Backend::start("local", &[]);
    let (address, url) = (backend.address(), backend.url());
    let door = Door::open();
    let client = Client::start(&door.url(), &["--http", &url]);
    let mut socket = door.enter();
    socket.initialize();
    drop(backend);
    // The first call may find a connection that ends, and only the next that there is no other.
    let limit = Limit::begin();
    let ended = loop {
        limit.check("an end");
        socket.ask_tool("echo", json!({}));
        match socket.hear() {
            Heard::Message(error) => assert_eq!(code_of(&error), -32603),
            other => break other,
        }
    };
    assert_eq!(ended, Heard::Close(Some(1011)));
    drop(socket);
    client
        .process
        .logged("the local server cannot be connected to");
    assert!(door.is_quiet());
    let listener = eventually("the port again", || TcpListener::bind(address).ok());
    let _backend = Backend::scripted_on(listener, "local", &[], |_, _| None);
    let mut socket = door.enter();
    socket.initialize();
    socket.call("echo", json!({}));
}

#[test]
fn calls_run_beside_each_other_and_a_cancelled_one_is_given_up() {
    let gate = Arc::new(Gate::default());
    let backend = Backend::scripted("local", &["hold", "never"], {
        let gate = gate.clone();
        move |asked, wire| {
            if is_tool(asked, "hold") {
                gate.wait();
                wire.text(asked, "released");
            } else if is_tool(asked, "never") {
                wire.await_end();
                wire.close();
            } else {
                return None;
            }
            Some(())
        }
    });
    let (_door, _client, mut socket) = started(&backend);
    let held = socket.ask_tool("hold", json!({}));
    gate.await_arrivals(1);
    let never = socket.ask_tool("never", json!({}));
    backend.await_rpc("tools/call", 2);
    socket.call("echo", json!({}));
    socket.notify("notifications/cancelled", json!({"requestId": never}));
    backend.await_rpc("notifications/cancelled", 1);
    gate.open();
    let answer = socket.message();
    assert_eq!(
        (&answer["id"], text_of(&answer)),
        (&json!(held), "released".into())
    );
    socket.call("echo", json!({}));
}

/// A server whose tools `json` and `event` answer with so many bytes, each in its way.
fn wordy(bytes: usize) -> Backend {
    Backend::scripted("local", &["json", "event"], move |asked, wire| {
        let text = "x".repeat(bytes);
        if is_tool(asked, "json") {
            wire.text(asked, &text);
        } else if is_tool(asked, "event") {
            wire.stream_head();
            wire.send(answer_event(asked, &text));
        } else {
            return None;
        }
        Some(())
    })
}

#[test]
fn five_megabytes_pass_as_json_and_as_an_event() {
    let backend = wordy(5 << 20);
    let (_door, _client, mut socket) = started(&backend);
    for tool in ["json", "event", "json"] {
        assert_eq!(
            socket.call(tool, json!({"in": "x".repeat(5 << 20)})).len(),
            5 << 20
        );
    }
}

#[test]
fn more_than_is_taken_fails_the_call_alone() {
    let backend = wordy(17 << 20);
    let (_door, _client, mut socket) = started(&backend);
    for tool in ["json", "event"] {
        let params = json!({"name": tool, "arguments": {}});
        assert_eq!(code_of(&socket.request("tools/call", params)), -32603);
    }
    socket.call("echo", json!({}));
}

#[test]
fn a_server_nobody_here_wrote_is_walked_through() {
    let server = fixture::Running::start().unwrap();
    let door = Door::open();
    let mut client = Client::start(&door.url(), &["--http", &server.url]);
    let mut socket = door.enter();
    socket.initialize();
    let tools = socket.request("tools/list", json!({}));
    assert!(tools["result"]["tools"].as_array().unwrap().len() > 5);
    let resources = socket.request("resources/list", json!({}));
    assert!(resources["result"]["resources"].is_array(), "{resources}");
    let prompts = socket.request("prompts/list", json!({}));
    assert!(prompts["result"]["prompts"].is_array(), "{prompts}");
    let text = socket.call("test_simple_text", json!({}));
    assert!(!text.is_empty());
    client.process.signal("TERM");
    socket.ends_with(Some(1001));
    assert_eq!(client.process.exit_code(), 0);
}
