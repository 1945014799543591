//! Who reaches whom: clients with sessions and without, backends with sessions and without, the
//! bridge off and on (CMP-1).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    assert_refused,
    support::{
        Backend, Gate, Gateway, LAYOUTS, Layout, McpClient, ModernClient, Plan, STATELESS,
        eventually,
    },
    text_of, whole_result,
};

fn document(backend: &Backend, more: &Value) -> Value {
    let mut config = json!({"name": "a", "url": backend.url()});
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    json!({"virtual_hosts": {"main": {"backends": {"a": config}}}})
}

fn started(backend: &Backend, layout: Layout, more: &Value) -> Gateway {
    Plan::document(document(backend, more))
        .layout(layout)
        .start()
}

fn bridge() -> Value {
    json!({"bridge": "per-request", "session_independent_tools": ["one", "slow"]})
}

/// What a backend is told it is: found out, or written down.
fn protocols(word: &str) -> [Value; 2] {
    [json!({}), json!({"protocol": word})]
}

#[test]
fn sessions_reach_backends_with_sessions() {
    for more in protocols("legacy") {
        let backend = Backend::start("a", &["one"]);
        let gateway = started(&backend, Layout::Two, &more);
        let mut client = McpClient::open(&gateway);
        for _ in 0..3 {
            assert_eq!(
                crate::support::Response::result(&client.call("1", "one", "{}"))["content"][0]["text"],
                "a one {}"
            );
        }
        assert_eq!(client.delete().status, 200);
        eventually("the backend session ends", || {
            (backend.session_count() == 0).then_some(())
        });
        let count = |method: &str| backend.seen_rpc(method).len();
        assert_eq!(
            (
                count("initialize"),
                count("tools/call"),
                count("server/discover")
            ),
            (1, 3, 0)
        );
        let deletes = backend
            .seen()
            .iter()
            .filter(|asked| asked.method == "DELETE")
            .count();
        assert_eq!(deletes, 1);
    }
}

#[test]
fn sessions_reach_backends_without() {
    for layout in LAYOUTS {
        for more in protocols("stateless") {
            let is_told = more.get("protocol").is_some();
            let backend = Backend::modern("a", &["one"]);
            let gateway = started(&backend, layout, &more);
            let mut client = McpClient::open_with(&gateway, "2025-11-25", r#"{"roots":{}}"#);
            let listed = client.list().result();
            assert_eq!(listed["tools"][0]["name"], "one");
            let called = client.post(r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"one","arguments":{"n":1}}}"#);
            let called = called.result();
            assert_eq!(
                called,
                json!({"content": [{"type": "text", "text": "a one {\"n\":1}"}], "_meta": {}})
            );
            for new in ["resultType", "ttlMs", "cacheScope"] {
                assert!(listed.get(new).is_none() && called.get(new).is_none());
            }
            // It is told who asks, each time, and of no session.
            let told = backend.seen_rpc("tools/call").remove(0);
            let meta = told.json()["params"]["_meta"].clone();
            assert_eq!(
                meta,
                json!({
                    "io.modelcontextprotocol/protocolVersion": STATELESS,
                    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
                })
            );
            assert_eq!(told.header("mcp-protocol-version"), Some(STATELESS));
            assert_eq!(told.header("mcp-name"), Some("one"));
            assert_eq!(client.delete().status, 200);
            let seen = backend.seen();
            assert!(
                seen.iter()
                    .all(|asked| asked.header("mcp-session-id").is_none())
            );
            assert!(seen.iter().all(|asked| asked.method == "POST"));
            // One that is written down as stateless is not asked for a session first.
            let tried = seen.iter().filter(|asked| asked.is("initialize")).count();
            assert_eq!(tried > 0, !is_told);
            assert_eq!(gateway.metric("shardgate_backend_sessions_opened_total"), 0);
        }
    }
}

#[test]
fn stateless_clients_reach_backends_without_sessions() {
    for more in protocols("stateless") {
        let backend = Backend::modern("a", &["one"]);
        let gateway = started(&backend, Layout::Two, &more);
        let mut client = ModernClient::new(&gateway);
        assert_eq!(client.tool_names(), ["one"]);
        assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
        assert!(backend.seen_rpc("initialize").is_empty());
    }
}

#[test]
fn stateless_clients_reach_no_backend_with_sessions() {
    for layout in LAYOUTS {
        for more in protocols("legacy") {
            let is_told = more.get("protocol").is_some();
            let backend = Backend::start("a", &["one"]);
            let gateway = started(&backend, layout, &more);
            let mut client = ModernClient::new(&gateway);
            for _ in 0..2 {
                let result = whole_result(&client.call("1", "one", "{}"));
                let text = "Gateway does not support stateless calls to this MCP backend profile";
                assert_eq!(result["isError"], true);
                assert_eq!(result["content"], json!([{"type": "text", "text": text}]));
                assert_refused(&client.list(), 404, Some("\"list\""), -32601);
                assert_refused(
                    &client.ask("1", "server/discover", ""),
                    404,
                    Some("1"),
                    -32601,
                );
                let response = client.ask("1", "resources/read", r#""uri":"x:1""#);
                assert_refused(&response, 200, Some("1"), -32603);
            }
            // All that it was asked is whether it is a stateless one.
            for asked in backend.seen() {
                assert!(!is_told && asked.is("server/discover"), "{asked:?}");
            }
            assert_eq!(gateway.metric("shardgate_stateless_bridged_total"), 0);
        }
    }
}

#[test]
fn a_backend_with_sessions_beside_one_without_is_not_seen() {
    let old = Backend::start("old", &["one"]);
    let new = Backend::modern("new", &["two"]);
    let gateway = Plan::of(&[("old", &old.url()), ("new", &new.url())]).start();
    let mut client = ModernClient::new(&gateway);
    assert_eq!(client.tool_names(), ["new-two"]);
    assert_eq!(text_of(&client.call("1", "new-two", "{}")), "new two {}");
    assert_eq!(
        whole_result(&client.call("1", "old-one", "{}"))["isError"],
        true
    );
    // A session sees both.
    let mut session = McpClient::open(&gateway);
    assert_eq!(session.tool_names(), ["new-two", "old-one"]);
    for (tool, text) in [("new-two", "new two {}"), ("old-one", "old one {}")] {
        assert_eq!(
            session.call("1", tool, "{}").result()["content"][0]["text"],
            text
        );
    }
}

#[test]
fn a_bridged_call_has_a_session_of_its_own_that_ends_with_it() {
    for layout in LAYOUTS {
        let backend = Backend::start("a", &["one", "two"]);
        let gateway = started(&backend, layout, &bridge());
        let mut client = ModernClient::new(&gateway);
        for number in 0..3 {
            let response = client.ask_with(
                r#""progressToken":"p","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"k":1"#,
                "tools/call",
                r#""name":"one","arguments":{"n":1.0}"#,
            );
            assert_eq!(text_of(&response), "a one {\"n\":1.0}");
            eventually("it ends", || (backend.session_count() == 0).then_some(()));
            let ways: Vec<String> = backend
                .seen()
                .iter()
                .filter(|asked| !asked.is("server/discover"))
                .map(|asked| asked.rpc_method().unwrap_or_else(|| asked.method.clone()))
                .collect();
            let way = [
                "initialize",
                "notifications/initialized",
                "tools/call",
                "DELETE",
            ];
            assert_eq!(ways, way.repeat(number + 1));
        }
        // Each in its own, with nothing of the other revision in it.
        let calls = backend.seen_rpc("tools/call");
        let mut sessions: Vec<&str> = calls
            .iter()
            .map(|call| call.header("mcp-session-id").unwrap())
            .collect();
        sessions.dedup();
        assert_eq!(sessions.len(), 3);
        for call in &calls {
            assert!(
                !call.text().contains("io.modelcontextprotocol/"),
                "{}",
                call.text()
            );
            assert_eq!(call.json()["params"]["_meta"]["k"], 1);
            assert_eq!(call.header("mcp-name"), None);
            assert_eq!(call.header("mcp-protocol-version"), Some("2025-11-25"));
        }
        assert_eq!(gateway.metric("shardgate_sessions"), 0);
        assert_eq!(gateway.metric("shardgate_stateless_bridged_total"), 3);
    }
}

#[test]
fn only_tools_that_need_nothing_said_before_are_bridged() {
    let backend = Backend::start("a", &["one", "two"]);
    let gateway = started(&backend, Layout::One, &bridge());
    let mut client = ModernClient::new(&gateway);
    let found = whole_result(&client.ask("1", "server/discover", ""));
    assert_eq!(
        found["capabilities"],
        json!({"tools": {"listChanged": true}})
    );
    assert_eq!(client.tool_names(), ["one"]);
    assert_eq!(
        whole_result(&client.call("1", "two", "{}"))["isError"],
        true
    );
    assert!(backend.seen_rpc("tools/call").is_empty());
    eventually("all sessions end", || {
        (backend.session_count() == 0).then_some(())
    });
}

#[test]
fn a_bridged_session_ends_however_its_call_does() {
    for layout in LAYOUTS {
        let started_gate = Arc::new(Gate::default());
        let backend = Backend::scripted("a", &["one", "slow"], {
            let gate = started_gate.clone();
            move |asked, wire| {
                if asked.tool()? == "slow" {
                    gate.arrive();
                    wire.await_end();
                    wire.close();
                    return Some(());
                }
                match &*asked.param("arguments")? {
                    "{\"fail\":1}" => wire.answer(500, "", ""),
                    "{\"fail\":2}" => wire.close(),
                    "{\"fail\":3}" => wire.error(asked, -32000, "no"),
                    _ => return None,
                }
                Some(())
            }
        });
        let gateway = started(&backend, layout, &bridge());
        let mut client = ModernClient::new(&gateway);
        for (arguments, code) in [
            ("{\"fail\":1}", -32603),
            ("{\"fail\":2}", -32603),
            ("{\"fail\":3}", -32000),
        ] {
            assert_eq!(client.call("1", "one", arguments).error_code(), code);
        }
        // A client that leaves.
        client
            .connection
            .send(client.call_request("2", "slow", "{}").bytes());
        started_gate.await_arrivals(1);
        drop(client);
        eventually("all sessions end", || {
            (backend.session_count() == 0).then_some(())
        });
        let told = backend.seen_rpc("notifications/cancelled");
        assert_eq!(told.len(), 1);
        let call = backend.seen_rpc("tools/call").pop().unwrap();
        assert_eq!(told[0].json()["params"]["requestId"].to_string(), call.id());
    }
}

/// A bridge that cannot open says so; nothing is left at the backend.
#[test]
fn a_bridge_that_does_not_open_is_an_error_of_its_call() {
    let backend = Backend::scripted("a", &["one"], |asked, wire| {
        asked
            .is("initialize")
            .then(|| wire.error(asked, -32603, "no"))
    });
    let gateway = started(&backend, Layout::One, &bridge());
    let mut client = ModernClient::new(&gateway);
    assert_refused(&client.call("1", "one", "{}"), 200, Some("1"), -32603);
    assert!(backend.seen_rpc("tools/call").is_empty());
    assert_eq!(backend.session_count(), 0);
}
