//! One call: what reaches the backend, what comes back beside the result, and how it ends early
//! (CAL-1, CAL-3, NTF-1).

use std::sync::Arc;

use serde_json::json;

use crate::{
    assert_no_session, assert_refused,
    support::{
        Ask, Backend, Connection, EventStream, Gate, LAYOUTS, Layout, ModernClient, Plan, event,
        eventually, request,
    },
    text_of, whole_result,
};

/// Headers a caller may send and no backend may get.
const PRIVATE: [(&str, &str); 9] = [
    ("authorization", "Bearer canary"),
    ("cookie", "canary=1"),
    ("x-csrf-token", "canary"),
    ("mcp-session-id", "canary"),
    ("last-event-id", "canary"),
    ("forwarded", "for=canary"),
    ("x-forwarded-for", "canary"),
    ("origin", "http://localhost"),
    ("x-own", "canary"),
];

/// The whole request, byte for byte.
#[test]
fn a_backend_gets_exactly_what_belongs_to_the_call() {
    for layout in LAYOUTS {
        let backend = Backend::modern("a", &["one", "tést"]);
        let document = json!({"virtual_hosts": {"main": {"backends": {
            "a": {"name": "a", "url": backend.url(), "passthrough_headers": ["traceparent"]},
            "b": {"name": "b", "url": backend.url()},
        }}}});
        let gateway = Plan::document(document).layout(layout).start();
        let mut client = ModernClient::new(&gateway);
        let meta = r#""io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","progressToken":"mine","x/y":[1.0]"#;
        let body = crate::support::modern_body(
            "\"id\"",
            "tools/call",
            r#""name":"a-tést","arguments":{"n": 1.50, "é":"ü"},"other":null"#,
            meta,
        );
        let ask = PRIVATE
            .iter()
            .fold(client.request_of(&body), |ask, (name, value)| {
                ask.header(name, value)
            });
        text_of(
            &client
                .connection
                .ask(&ask.header("traceparent", "00-trace")),
        );
        let seen = backend.seen_rpc("tools/call").remove(0);
        assert_eq!((&*seen.method, &*seen.target), ("POST", "/mcp"));
        let id = seen.id();
        let expected = body
            .replace("\"id\":\"id\"", &format!("\"id\":{id}"))
            .replace("\"mine\"", &id)
            .replace("a-tést", "tést");
        assert_eq!(seen.text(), expected);
        let headers: Vec<(&str, String)> = vec![
            ("host", backend.address().to_string()),
            ("accept-encoding", "identity".into()),
            ("user-agent", "shardgate".into()),
            ("mcp-protocol-version", "2026-07-28".into()),
            ("content-type", "application/json".into()),
            ("accept", "application/json, text/event-stream".into()),
            ("content-length", expected.len().to_string()),
            ("mcp-method", "tools/call".into()),
            ("mcp-name", "=?base64?dMOpc3Q=?=".into()),
            ("traceparent", "00-trace".into()),
        ];
        let told: Vec<(&str, String)> = seen
            .headers
            .iter()
            .map(|(name, value)| (&**name, value.clone()))
            .collect();
        assert_eq!(told, headers);
        // What the gateway asks for itself says that it is the gateway, and nothing of a caller.
        for asked in backend.seen() {
            assert!(!format!("{:?}{}", asked.headers, asked.text()).contains("canary"));
            if !asked.is("tools/call") {
                let meta = &asked.json()["params"]["_meta"];
                assert_eq!(
                    meta["io.modelcontextprotocol/clientInfo"]["name"],
                    "shardgate"
                );
            }
        }
    }
}

#[test]
fn a_result_passes_as_it_is_but_for_who_gave_it() {
    let body = r#""content":[{"type":"text","text":"a é"}], "structuredContent":[1.0,{"b":null}],"x":{"resultType":"y"}"#;
    let backend = Backend::modern_scripted("a", &["one"], move |asked, wire| {
        asked.tool().map(|_| wire.complete(asked, body))
    });
    let gateway = Plan::one(&backend).start();
    let response = ModernClient::new(&gateway).call("\"q\"", "one", "{}");
    whole_result(&response);
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":"q","result":{{"resultType":"complete",{body},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"shardgate","version":"{}"}}}}}}}}"#,
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(response.text(), expected);
}

#[test]
fn a_thousand_calls_leave_nothing_behind() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).layout(Layout::Two).start();
    let mut clients = [ModernClient::new(&gateway), ModernClient::new(&gateway)];
    for number in 0..1000 {
        let client = &mut clients[number % 2];
        let response = client.call(&number.to_string(), "one", "{}");
        assert_eq!(response.message()["id"], number);
        text_of(&response);
    }
    assert_eq!(backend.seen_rpc("tools/call").len(), 1000);
    assert_no_session(&gateway);
    assert_eq!(gateway.metric("shardgate_stateless_requests_total"), 1000);
    assert!(backend.seen().iter().all(|asked| asked.method == "POST"));
}

/// A tool may do something: it is asked once, whatever comes of it.
#[test]
fn a_call_that_fails_is_not_made_again() {
    for (status, close) in [
        (500, false),
        (503, false),
        (429, false),
        (408, false),
        (502, false),
        (200, true),
    ] {
        let backend = Backend::modern_scripted("a", &["one"], move |asked, wire| {
            asked.tool()?;
            match close {
                true => wire.close(),
                false => wire.answer(status, "", "no"),
            }
            Some(())
        });
        let gateway = Plan::one(&backend).layout(Layout::One).start();
        let response = ModernClient::new(&gateway).call("1", "one", "{}");
        assert_refused(&response, 200, Some("1"), -32603);
        assert_eq!(backend.seen_rpc("tools/call").len(), 1, "{status}");
    }
}

const LOG: &str = r#"{"level":"warning","data":"canary"}"#;

fn logging(asked: &crate::support::Asked, wire: &mut crate::support::Wire<'_>) -> Option<()> {
    let tool = asked.tool()?;
    let id = asked.id();
    let result = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[{{"type":"text","text":"{tool}"}}],"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"a","version":"1"}}}}}}}}"#
    );
    let progress = |token: &str| {
        request(
            None,
            "notifications/progress",
            &format!(r#"{{"progressToken":{token},"progress":1}}"#),
        )
    };
    let stream = [
        event(None, &request(None, "notifications/message", LOG)),
        event(None, &progress(&id)),
        event(None, &progress("\"foreign\"")),
        event(
            None,
            &request(None, "notifications/tools/list_changed", "{}"),
        ),
        event(None, &request(Some("0"), "sampling/createMessage", "{}")),
        event(None, &result),
    ];
    wire.answer(200, "content-type: text/event-stream\r\n", stream.concat());
    Some(())
}

#[test]
fn log_messages_come_only_to_the_request_that_asked_for_them() {
    for layout in LAYOUTS {
        let backend = Backend::modern_scripted("a", &["one"], logging);
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = ModernClient::new(&gateway);
        let params = r#""name":"one""#;
        let level = |name: &str| format!(r#""io.modelcontextprotocol/logLevel":"{name}""#);
        for _ in 0..3 {
            // Nobody asked: the answer is one JSON document.
            let response = client.ask_with("", "tools/call", params);
            assert_eq!(response.header("content-type"), Some("application/json"));
            assert_eq!(text_of(&response), "one");
            for (name, hears) in [("debug", true), ("warning", true), ("error", false)] {
                let response = client.ask_with(&level(name), "tools/call", params);
                let messages = response.messages();
                let expected = request(None, "notifications/message", LOG);
                assert_eq!(messages.contains(&expected), hears, "{name} {messages:?}");
                assert_eq!(messages.len(), 1 + usize::from(hears), "{messages:?}");
                text_of(&response);
            }
        }
        let levels = backend.seen_rpc("tools/call");
        let levels = levels
            .iter()
            .filter(|call| call.text().contains("logLevel"));
        assert_eq!(levels.count(), 9);
    }
}

#[test]
fn progress_comes_only_to_the_request_that_asked_for_it() {
    let backend = Backend::modern_scripted("a", &["one"], logging);
    let gateway = Plan::one(&backend).start();
    let mut client = ModernClient::new(&gateway);
    for token in ["0", "\"t\"", "\"\""] {
        let meta = format!(r#""progressToken":{token}"#);
        let response = client.ask_with(&meta, "tools/call", r#""name":"one""#);
        let messages = response.messages();
        let expected = request(
            None,
            "notifications/progress",
            &format!(r#"{{"progressToken":{token},"progress":1}}"#),
        );
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert_eq!(messages[0], expected);
        text_of(&response);
    }
}

/// Leaving is cancelling: the one backend that works on it sees its connection end.
#[test]
fn a_client_that_leaves_cancels_its_call() {
    for layout in LAYOUTS {
        for is_stream in [false, true] {
            let (started, left) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
            let working = Backend::modern_scripted("a", &["slow"], {
                let (started, left) = (started.clone(), left.clone());
                move |asked, wire| {
                    asked.tool()?;
                    if is_stream {
                        wire.stream_head();
                        let meta = asked.json()["params"]["_meta"]["progressToken"].to_string();
                        wire.send(event(
                            None,
                            &request(
                                None,
                                "notifications/progress",
                                &format!(r#"{{"progressToken":{meta},"progress":0}}"#),
                            ),
                        ));
                    }
                    started.arrive();
                    wire.await_end();
                    left.arrive();
                    wire.close();
                    Some(())
                }
            });
            let other = Backend::modern("b", &["fast"]);
            let gateway = Plan::of(&[("a", &working.url()), ("b", &other.url())])
                .layout(layout)
                .start();
            let mut client = ModernClient::new(&gateway);
            text_of(&client.call("0", "b-fast", "{}"));
            let body = crate::support::modern_body(
                "1",
                "tools/call",
                r#""name":"a-slow""#,
                r#""progressToken":1"#,
            );
            client.connection.send(client.request_of(&body).bytes());
            if is_stream {
                let connection =
                    std::mem::replace(&mut client.connection, Connection::open(gateway.address));
                let mut stream = EventStream::begun(connection);
                assert_eq!(stream.next_message()["params"]["progressToken"], 1);
                started.await_arrivals(1);
                drop(stream);
            } else {
                started.await_arrivals(1);
                client.connection = Connection::open(gateway.address);
            }
            left.await_arrivals(1);
            eventually("it is counted", || {
                (gateway.metric("shardgate_calls_cancelled_total") == 1).then_some(())
            });
            text_of(&client.call("2", "b-fast", "{}"));
            assert_eq!(other.seen_rpc("tools/call").len(), 2);
            for backend in [&working, &other] {
                assert!(backend.seen_rpc("notifications/cancelled").is_empty());
            }
        }
    }
}

/// Posted instead, a cancellation belongs to nobody: the call goes on.
#[test]
fn a_posted_cancellation_changes_nothing() {
    let gate = Arc::new(Gate::default());
    let backend = Backend::modern_scripted("a", &["slow"], {
        let gate = gate.clone();
        move |asked, _| {
            asked.tool()?;
            gate.wait();
            None
        }
    });
    let gateway = Plan::one(&backend).start();
    let mut client = ModernClient::new(&gateway);
    client
        .connection
        .send(client.call_request("1", "slow", "{}").bytes());
    gate.await_arrivals(1);
    let note = request(None, "notifications/cancelled", r#"{"requestId":1}"#);
    let ask = Ask::post(&client.target, note).header("mcp-protocol-version", "2026-07-28");
    assert_eq!(gateway.connect().ask(&ask).status, 202);
    gate.open();
    text_of(&client.connection.read_response());
    assert!(backend.seen_rpc("notifications/cancelled").is_empty());
}
