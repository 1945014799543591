//! The stateless profile beside sessions changes no byte of theirs (LEG-6).

use crate::support::{
    Ask, Backend, Layout, McpClient, Plan, Response, eventually, initialize_body,
};

const TARGET: &str = "/servers/main/mcp";

/// Everything of an answer, with what is drawn at random named instead.
fn told(response: &Response, session: &str) -> String {
    let mut text = format!("{}\n", response.status);
    for (name, value) in response.headers.iter() {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text.push_str(&String::from_utf8_lossy(&response.body));
    match session {
        "" => text,
        session => text.replace(session, "SESSION"),
    }
}

/// What two backends, one of which streams, and their clients see of a gateway.
fn walk(is_stateless_on: bool, layout: Layout) -> Vec<String> {
    let a = Backend::start("a", &["one", "two"]);
    let b = Backend::scripted("b", &["one"], |asked, wire| {
        asked.tool()?;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let done = crate::support::response(asked, "streamed");
        let stream = format!("data: {note}\n\ndata: {done}\n\n");
        wire.answer(200, "content-type: text/event-stream\r\n", stream);
        Some(())
    });
    let failing = Backend::scripted("c", &["gone"], |asked, wire| {
        asked.tool()?;
        wire.answer(503, "", "");
        Some(())
    });
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url()), ("c", &failing.url())])
        .layout(layout)
        .settings(move |settings| settings.protocols.stateless = is_stateless_on)
        .start();
    let mut seen = Vec::new();
    for version in [
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05",
        "1999-01-01",
    ] {
        let mut connection = gateway.connect();
        let opening = connection.ask(&Ask::post(TARGET, initialize_body("\"open\"", version)));
        let session = opening.header("mcp-session-id").unwrap().to_owned();
        seen.push(told(&opening, &session));
        let agreed = opening.result()["protocolVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        let post = |body: &str| {
            Ask::post(TARGET, body)
                .header("mcp-session-id", &session)
                .header("mcp-protocol-version", &agreed)
        };
        let bodies = [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":""}}"#,
            r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"a-one","arguments":{"n":1.0}}}"#,
            r#"{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"b-one","_meta":{"progressToken":0,"k":1}}}"#,
            r#"{"jsonrpc":"2.0","id":"f","method":"tools/call","params":{"name":"c-gone"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"none"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"prompts/list"}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"a-x:1"}}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"server/discover"}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"subscriptions/listen","params":{"notifications":{}}}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"foo/bar"}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"loud"}}"#,
            r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
            r#"[{"jsonrpc":"2.0","id":6,"method":"ping"}]"#,
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"id":8"#,
            "",
        ];
        for body in bodies {
            seen.push(told(&connection.ask(&post(body)), &session));
            // Streams first.
            let stream = post(body).with("accept", "text/event-stream, application/json");
            seen.push(told(&connection.ask(&stream), &session));
        }
        let ping = bodies[1];
        for ask in [
            post(ping).without("mcp-session-id"),
            post(ping).with("mcp-session-id", "unknown"),
            post(ping).without("mcp-protocol-version"),
            post(ping).with("mcp-protocol-version", "2099-01-01"),
            post(ping).header("mcp-protocol-version", &agreed),
            post(ping)
                .header("mcp-method", "tools/call")
                .header("mcp-name", "x"),
            post(ping).with("accept", "application/json"),
            post(ping).with("content-type", "text/plain"),
            post(ping).header("origin", "https://evil.example"),
            post(ping).header("origin", "http://localhost"),
            Ask::new("OPTIONS", TARGET),
            Ask::new("PUT", TARGET),
            Ask::new("GET", TARGET),
            Ask::new("DELETE", TARGET),
            Ask::new("DELETE", TARGET).header("mcp-session-id", &session),
            Ask::new("DELETE", TARGET).header("mcp-session-id", &session),
            post(ping),
        ] {
            seen.push(told(&gateway.connect().ask(&ask), &session));
        }
    }
    if layout != Layout::One {
        // Which shard has which session is drawn, and with it the numbers that backends see.
        return seen;
    }
    for backend in [&a, &b, &failing] {
        eventually("all sessions end", || {
            (backend.session_count() == 0).then_some(())
        });
        let own = backend.address().to_string();
        let mut asked: Vec<String> = backend
            .seen()
            .iter()
            .filter(|asked| asked.method != "GET")
            .map(|asked| {
                format!("{} {:?} {}", asked.method, asked.headers, asked.text())
                    .replace(&own, "ADDRESS")
            })
            .collect();
        // Farewells come when they come.
        asked.sort();
        seen.extend(asked);
    }
    seen
}

#[test]
fn sessions_are_the_same_byte_for_byte_whether_the_stateless_profile_is_on_or_off() {
    for layout in [Layout::One, Layout::Two] {
        let (on, off) = (walk(true, layout), walk(false, layout));
        assert!(on.len() > 300, "{}", on.len());
        for (on, off) in on.iter().zip(&off) {
            assert_eq!(on, off);
        }
        assert_eq!(on.len(), off.len());
    }
}

/// A backend with sessions is initialized with its client's own words, and nobody asks it for what
/// it does not know.
#[test]
fn a_backend_with_sessions_is_asked_nothing_new() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    client.call("1", "one", "{}").result();
    assert!(backend.seen_rpc("server/discover").is_empty());
    for asked in backend.seen() {
        for new in ["mcp-method", "mcp-name"] {
            assert_eq!(asked.header(new), None);
        }
        assert!(
            !asked.text().contains("io.modelcontextprotocol/"),
            "{}",
            asked.text()
        );
    }
}
