//! HTTP around a stateless request: content headers, origins, methods, what is no request, sizes
//! (HTTP-1 to HTTP-6).

use crate::{
    TARGET, assert_no_session, assert_refused, assert_untouched,
    support::{
        Ask, Backend, Gateway, LAYOUTS, McpClient, ModernClient, Plan, STATELESS, modern_body,
        modern_request,
    },
    whole_result,
};

const BODY_BYTES_MAX: usize = 8192;

fn list() -> Ask {
    modern_request(TARGET, &modern_body("1", "tools/list", "", ""))
}

#[test]
fn only_json_is_taken() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut connection = gateway.connect();
    for bad in ["text/plain", "application/jsonx", "application/x-json", ""] {
        let response = connection.ask(&list().with("content-type", bad));
        assert_eq!(response.status, 415, "{bad}");
    }
    assert_eq!(connection.ask(&list().without("content-type")).status, 415);
    assert_untouched(&backend);
    for good in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
    ] {
        whole_result(&connection.ask(&list().with("content-type", good)));
    }
}

#[test]
fn clients_must_accept_both_forms_of_an_answer() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut connection = gateway.connect();
    for bad in [
        "application/json",
        "text/event-stream",
        "text/html",
        "application/*",
    ] {
        let response = connection.ask(&list().with("accept", bad));
        assert_eq!(response.status, 406, "{bad}");
    }
    assert_eq!(connection.ask(&list().without("accept")).status, 406);
    assert_untouched(&backend);
    for good in [
        "application/json, text/event-stream",
        "application/json;q=0.9,text/event-stream;q=0.1",
        "*/*",
    ] {
        whole_result(&connection.ask(&list().with("accept", good)));
    }
    let two_lines = list()
        .with("accept", "application/json")
        .header("accept", "text/event-stream");
    whole_result(&connection.ask(&two_lines));
    // Who names streams first gets one, with the same message.
    let stream = connection.ask(&list().with("accept", "text/event-stream, application/json"));
    assert_eq!(stream.events().len(), 1);
    whole_result(&stream);
}

fn with_origins(backend: &Backend) -> Gateway {
    Plan::one(backend)
        .settings(|settings| settings.access.origins = vec!["https://a.example".to_owned()])
        .start()
}

#[test]
fn an_origin_that_is_not_allowed_is_refused_whatever_the_body_is() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = with_origins(&backend);
    for origin in [
        "https://evil.example",
        "https://a.example.evil.com",
        "https://evil-a.example",
        "http://a.example",
        "https://a.example:444",
        "https://a.example/",
        "https://user@a.example",
        "null",
        "",
    ] {
        for body in [list().body.unwrap(), b"no JSON".to_vec(), Vec::new()] {
            let ask = Ask {
                body: Some(body),
                ..list().header("origin", origin)
            };
            let response = gateway.connect().ask(&ask);
            assert_eq!(response.status, 403, "{origin}");
            assert!(!response.text().contains("\"id\""), "{}", response.text());
        }
    }
    for [first, second] in [
        ["https://a.example", "https://evil.example"],
        ["https://evil.example", "https://a.example"],
    ] {
        let twice = list().header("origin", first).header("origin", second);
        let status = gateway.connect().ask(&twice).status;
        assert!(matches!(status, 400 | 403), "{status}");
    }
    assert_untouched(&backend);
    for good in [
        "https://a.example",
        "HTTPS://A.example",
        "http://localhost:6274",
    ] {
        whole_result(&gateway.connect().ask(&list().header("origin", good)));
    }
    whole_result(&gateway.connect().ask(&list()));
}

#[test]
fn post_is_the_only_method() {
    for layout in LAYOUTS {
        let backend = Backend::modern("a", &["one"]);
        let gateway = Plan::one(&backend).layout(layout).start();
        let client = McpClient::open(&gateway);
        let opened = gateway.metric("shardgate_sessions");
        let seen = backend.seen().len();
        for method in ["GET", "HEAD", "PUT", "PATCH", "OPTIONS", "DELETE"] {
            let bare = |version: Option<&str>| {
                let ask = Ask::new(method, TARGET).header("accept", "text/event-stream");
                match version {
                    Some(version) => ask.header("mcp-protocol-version", version),
                    None => ask,
                }
            };
            let status = |ask: &Ask| {
                let response = gateway.connect().ask(ask);
                (response.status, response.header("allow").map(str::to_owned))
            };
            let only_post = (405, Some("POST".to_owned()));
            let of_sessions = (405, Some("GET, POST, DELETE, OPTIONS".to_owned()));
            let is_of_sessions = matches!(method, "GET" | "DELETE");
            // A live session rides along in vain.
            let stateless = bare(Some(STATELESS));
            for ask in [
                stateless.clone(),
                stateless.header("mcp-session-id", &client.session),
            ] {
                assert_eq!(status(&ask), only_post, "{method}");
            }
            for version in [None, Some("2025-11-25")] {
                let expected = if is_of_sessions {
                    (400, None)
                } else {
                    of_sessions.clone()
                };
                assert_eq!(status(&bare(version)), expected, "{method} {version:?}");
            }
            let unknown = status(&bare(Some("2099-01-01")));
            let expected = if is_of_sessions {
                (400, None)
            } else {
                of_sessions
            };
            assert_eq!(unknown, expected, "{method}");
            let twice = bare(Some(STATELESS)).header("mcp-protocol-version", STATELESS);
            let expected = if is_of_sessions { 400 } else { 405 };
            assert_eq!(status(&twice).0, expected, "{method}");
        }
        assert_eq!(backend.seen().len(), seen);
        assert_eq!(gateway.metric("shardgate_sessions"), opened);
    }
}

#[test]
fn without_sessions_post_is_all_there_is() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend)
        .settings(|settings| settings.protocols.legacy = false)
        .start();
    for method in ["GET", "DELETE", "PUT", "HEAD"] {
        for version in [None, Some("2025-11-25"), Some(STATELESS)] {
            let mut ask = Ask::new(method, TARGET).header("accept", "text/event-stream");
            if let Some(version) = version {
                ask = ask.header("mcp-protocol-version", version);
            }
            let response = gateway.connect().ask(&ask);
            assert_eq!(response.status, 405, "{method} {version:?}");
            assert_eq!(
                response.header("allow"),
                Some("POST"),
                "{method} {version:?}"
            );
        }
    }
}

#[test]
fn what_is_no_request_is_refused_or_dropped() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut connection = gateway.connect();
    let post = |body: &str| Ask::post(TARGET, body).header("mcp-protocol-version", STATELESS);
    for answer in [
        r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"m"}}"#,
    ] {
        assert_refused(&connection.ask(&post(answer)), 400, Some("5"), -32600);
    }
    // Real clients say this; servers take it and do nothing (mcp.md 0.10).
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{STATELESS}"}}"#);
    for (method, params) in [
        (
            "notifications/cancelled",
            format!(r#"{{"requestId":"listen:0",{meta}}}"#),
        ),
        ("notifications/cancelled", r#"{"requestId":1}"#.to_owned()),
        ("notifications/initialized", "{}".to_owned()),
        ("tools/call", r#"{"name":"one"}"#.to_owned()),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
        let response = connection.ask(&post(&body));
        assert_eq!((response.status, response.body.len()), (202, 0), "{body}");
    }
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("nonsense", -32700),
        ("7", -32600),
        ("\"text\"", -32600),
        ("[]", -32600),
        ("{}", -32600),
    ] {
        assert_refused(&connection.ask(&post(body)), 400, None, code);
    }
    let batch = format!("[{}]", modern_body("1", "tools/list", "", ""));
    assert_refused(&connection.ask(&post(&batch)), 400, None, -32600);
    let wrong = modern_body("1", "tools/list", "", "").replace("\"2.0\"", "\"1.0\"");
    assert_refused(&connection.ask(&post(&wrong)), 400, Some("1"), -32600);
    assert_untouched(&backend);
    assert_no_session(&gateway);
}

/// What two readers could read differently is refused: headers and body are compared with one
/// reading, and that one is executed.
#[test]
fn keys_that_stand_twice_are_refused() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let body = modern_body("1", "tools/call", r#""name":"one""#, "");
    for (from, to) in [
        (r#""method":"#, r#""method":"tools/list","method":"#),
        (r#""name":"#, r#""name":"two","name":"#),
        (r#""_meta":"#, r#""_meta":{},"_meta":"#),
        (
            r#""io.modelcontextprotocol/protocolVersion":"#,
            r#""io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/protocolVersion":"#,
        ),
        (r#""jsonrpc":"#, r#""jsonrpc":"2.0","jsonrpc":"#),
    ] {
        let ask = Ask {
            body: Some(body.replacen(from, to, 1).into_bytes()),
            ..modern_request(TARGET, &body)
        };
        let response = gateway.connect().ask(&ask);
        assert_eq!(
            (response.status, response.error_code()),
            (400, -32600),
            "{to}"
        );
    }
    assert_untouched(&backend);
}

#[test]
fn depth_is_limited() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let deep = |depth: usize| {
        let value = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let body = modern_body(
            "1",
            "tools/call",
            &format!(r#""name":"one","arguments":{{"x":{value}}}"#),
            "",
        );
        let ask = Ask::post(TARGET, &body)
            .header("mcp-protocol-version", STATELESS)
            .header("mcp-method", "tools/call")
            .header("mcp-name", "one");
        gateway.connect().ask(&ask)
    };
    whole_result(&deep(100));
    for depth in [200, 5000] {
        let response = deep(depth);
        assert_eq!(response.status, 400);
        assert!(matches!(response.error_code(), -32600 | -32700));
    }
    assert_eq!(backend.seen_rpc("tools/call").len(), 1);
}

#[test]
fn depth_is_limited_to_what_is_set() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend)
        .settings(|settings| settings.limits.json_depth_max = 4)
        .start();
    let mut client = ModernClient::new(&gateway);
    // The message, its parameters and the arguments are three.
    whole_result(&client.call("1", "one", r#"{"x":[1]}"#));
    let response = client.call("2", "one", r#"{"x":[[1]]}"#);
    assert_eq!((response.status, response.error_code()), (400, -32600));
    let mut session = McpClient::open(&gateway);
    let deep = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"one","arguments":{"x":[[1]]}}}"#;
    assert_eq!(session.post(deep).status, 400);
    assert_eq!(backend.seen_rpc("tools/call").len(), 1);
}

#[test]
fn methods_that_are_not_served_are_404() {
    for layout in LAYOUTS {
        let one = Backend::modern("a", &["one"]);
        let two = Backend::modern("b", &["two"]);
        let single = Plan::one(&one).layout(layout).start();
        let merged = Plan::of(&[("a", &one.url()), ("b", &two.url())])
            .layout(layout)
            .start();
        for gateway in [&single, &merged] {
            let mut client = ModernClient::new(gateway);
            for method in [
                "initialize",
                "ping",
                "logging/setLevel",
                "resources/subscribe",
                "resources/unsubscribe",
                "roots/list",
                "tasks/list",
                "tasks/result",
                "notifications/initialized",
                "foo/bar",
                "Tools/List",
                "tools/list ",
                "",
            ] {
                let id = format!("\"{method}\"");
                let response = client.connection.ask(
                    &client
                        .request(&id, method, "")
                        .with("mcp-method", method.trim()),
                );
                match method.trim() == method {
                    true => assert_refused(&response, 404, Some(&id), -32601),
                    // A header cannot say this.
                    false => assert_refused(&response, 400, Some(&id), -32020),
                };
            }
            // What nobody behind us has, we do not have.
            for (method, params) in [
                ("prompts/list", ""),
                ("resources/list", ""),
                ("resources/templates/list", ""),
            ] {
                let response = client.ask("1", method, params);
                assert_refused(&response, 404, Some("1"), -32601);
            }
            assert_no_session(gateway);
        }
        for backend in [&one, &two] {
            let asked = backend
                .seen()
                .into_iter()
                .filter_map(|asked| asked.rpc_method());
            let asked: Vec<String> = asked.filter(|method| method != "server/discover").collect();
            assert_eq!(asked, [""; 0]);
        }
    }
}

#[test]
fn a_body_over_the_limit_changes_nothing() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend)
        .settings(|settings| settings.limits.body_bytes_max = BODY_BYTES_MAX)
        .start();
    let body = modern_body("1", "tools/call", r#""name":"one""#, "");
    let pad = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
    let ask = |body: &str| Ask {
        body: Some(body.as_bytes().to_vec()),
        ..modern_request(
            TARGET,
            &modern_body("1", "tools/call", r#""name":"one""#, ""),
        )
    };
    let chunked = |body: &str| {
        let framed = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        ask(&framed).header("transfer-encoding", "chunked")
    };
    let too_long = pad(BODY_BYTES_MAX + 1);
    for over in [ask(&too_long), chunked(&too_long)] {
        let mut connection = gateway.connect();
        connection.send(over.bytes());
        assert_eq!(connection.read_response().status, 413);
        assert!(connection.is_closed());
    }
    // A length that is not the body's: what is declared counts, and the rest is no request.
    let mut connection = gateway.connect();
    let short = ask(&body).header("content-length", "10");
    connection.send(short.bytes());
    let response = connection.read_response();
    assert_eq!((response.status, response.error_code()), (400, -32700));
    assert_eq!(connection.read_response().status, 400);
    // None at all.
    let mut connection = gateway.connect();
    let without = String::from_utf8(ask("").bytes())
        .unwrap()
        .replace("content-length: 0\r\n", "");
    connection.send(without);
    assert_eq!(connection.read_response().status, 411);
    assert_untouched(&backend);
    assert_eq!(gateway.metric("shardgate_stateless_requests_total"), 0);
    assert_no_session(&gateway);
    let exact = pad(BODY_BYTES_MAX);
    for fits in [ask(&exact), chunked(&exact)] {
        whole_result(&gateway.connect().ask(&fits));
    }
    assert_eq!(backend.seen_rpc("tools/call").len(), 2);
}
