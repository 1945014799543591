//! S11: pages of allowed origins may call and read every answer; others may not.

use crate::support::{Ask, Backend, Gateway, LAYOUTS, Layout, McpClient, Plan, Response};

const ORIGIN: &str = "http://localhost:6274";
const LISTED: &str = "https://app.example";
const EVIL: &str = "https://evil.example";
const REQUESTED: &str = "content-type,authorization,mcp-session-id,mcp-protocol-version,last-event-id,mcp-method,mcp-name";
const BODY_BYTES_MAX: usize = 4096;

fn started(backend: &Backend, layout: Layout) -> Gateway {
    let config = serde_json::json!({"virtual_hosts": {"main": {"backends": {
        "a": {"name": "a", "url": backend.url()}
    }}}});
    Plan::document(serde_json::json!({"users": {"known": config}}))
        .layout(layout)
        .with_tokens()
        .settings(|settings| {
            settings.access.origins = vec![LISTED.to_owned()];
            settings.limits.body_bytes_max = BODY_BYTES_MAX;
        })
        .start()
}

fn preflight(target: &str, method: &str, origin: &str) -> Ask {
    Ask::new("OPTIONS", target)
        .header("origin", origin)
        .header("access-control-request-method", method)
        .header("access-control-request-headers", REQUESTED)
}

fn words(value: &str) -> Vec<String> {
    value
        .split(',')
        .map(|word| word.trim().to_ascii_lowercase())
        .collect()
}

/// What a page needs to read an answer at all, and the headers in it.
fn assert_readable(response: &Response, origin: &str, context: &str) {
    assert_eq!(
        response.header("access-control-allow-origin"),
        Some(origin),
        "{context}"
    );
    let vary = response.header("vary").unwrap_or_default();
    assert!(
        words(vary).contains(&"origin".to_owned()),
        "{context}: {vary}"
    );
    let exposed = response
        .header("access-control-expose-headers")
        .unwrap_or_default();
    for name in ["mcp-session-id", "www-authenticate"] {
        assert!(
            words(exposed).contains(&name.to_owned()),
            "{context}: {exposed}"
        );
    }
}

fn assert_closed_to_pages(response: &Response, context: &str) {
    let is_cors = |(name, _): &&(String, String)| name.starts_with("access-control-");
    assert_eq!(response.headers.iter().find(is_cors), None, "{context}");
}

#[test]
fn s11_a_preflight_is_answered_without_authentication() {
    let backend = Backend::start("a", &["one"]);
    let gateway = started(&backend, Layout::Spread);
    let mut connection = gateway.connect();
    for target in [
        "/mcp",
        "/servers/main/mcp",
        "/contextforge-rs/servers/main/mcp",
    ] {
        for method in ["POST", "GET", "DELETE"] {
            for origin in [ORIGIN, LISTED] {
                let response = connection.ask(&preflight(target, method, origin));
                assert_eq!((response.status, response.body.len()), (204, 0), "{target}");
                assert_eq!(
                    response.header("content-length"),
                    None,
                    "RFC 9110 section 8.6"
                );
                assert_readable(&response, origin, target);
                let methods = words(response.header("access-control-allow-methods").unwrap());
                for method in ["get", "post", "delete", "options"] {
                    assert!(methods.contains(&method.to_owned()), "{methods:?}");
                }
                let headers = words(response.header("access-control-allow-headers").unwrap());
                for name in words(REQUESTED) {
                    assert!(headers.contains(&name), "{name} is not in {headers:?}");
                }
                assert_eq!(response.header("www-authenticate"), None);
            }
        }
    }
    assert_eq!(backend.seen().len(), 0);
}

/// Pages may send what their tools have mirrored, whatever it is called, and nothing else more.
#[test]
fn s11_headers_of_arguments_are_allowed_by_the_names_that_are_asked_for() {
    let backend = Backend::start("a", &["one"]);
    let gateway = started(&backend, Layout::One);
    let asked = "mcp-param-region, x-other,MCP-Param-N,mcp-param,cookie";
    let ask = preflight("/mcp", "POST", LISTED).with("access-control-request-headers", asked);
    let response = gateway.connect().ask(&ask);
    assert_eq!(response.status, 204);
    let allowed = words(response.header("access-control-allow-headers").unwrap());
    for (name, is_allowed) in [
        ("mcp-param-region", true),
        ("mcp-param-n", true),
        ("mcp-name", true),
        ("x-other", false),
        ("mcp-param", false),
        ("cookie", false),
    ] {
        assert_eq!(allowed.contains(&name.to_owned()), is_allowed, "{name}");
    }
    let ask = ask.with("origin", EVIL);
    assert_eq!(gateway.connect().ask(&ask).status, 403);
}

#[test]
fn s11_every_answer_can_be_read_by_an_allowed_page() {
    for layout in LAYOUTS {
        let backend = Backend::start("a", &["one"]);
        let gateway = started(&backend, layout);
        let token = gateway.token("known");
        let client = McpClient::open_on(&gateway, "main", Some(&token));
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
        let nope = format!("/servers/{}/mcp", "nope");
        let mut elsewhere = client.again();
        elsewhere.target = nope;
        let long = "x".repeat(BODY_BYTES_MAX + 1);
        let chunked = Ask {
            body: Some(format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len()).into_bytes()),
            ..client.request("").header("transfer-encoding", "chunked")
        };
        let asks: Vec<(u16, Ask)> = vec![
            (200, client.request(list)),
            (
                200,
                client.request(crate::support::call_body("1", "one", "{}")),
            ),
            (
                200,
                client.request(crate::support::call_body("1", "b-none", "{}")),
            ),
            (202, client.request(note)),
            (400, client.request("{")),
            (400, client.request(list).without("mcp-session-id")),
            (401, client.request(list).without("authorization")),
            (
                401,
                client.request(list).with("authorization", "Bearer x.y.z"),
            ),
            (
                400,
                client
                    .request(list)
                    .with("authorization", &format!("Bearer {}", gateway.token("x"))),
            ),
            (404, client.request(list).with("mcp-session-id", "nope")),
            (404, elsewhere.request(list)),
            (
                405,
                Ask {
                    method: "PUT".to_owned(),
                    ..client.request(list)
                },
            ),
            (406, client.request(list).with("accept", "text/html")),
            (413, client.request(&long)),
            (413, chunked),
            (415, client.request(list).with("content-type", "text/plain")),
            (200, client.authorize(McpClient::initialize(&client.target))),
            (200, client.bare("DELETE")),
        ];
        for (status, ask) in asks {
            let context = format!("{status} of {layout:?}");
            for origin in [ORIGIN, LISTED] {
                // The DELETE of the second origin finds the session gone.
                let response = gateway.connect().ask(&ask.clone().header("origin", origin));
                let is_second_delete = ask.method == "DELETE" && origin == LISTED;
                assert_eq!(
                    response.status,
                    if is_second_delete { 404 } else { status },
                    "{context}"
                );
                assert_readable(&response, origin, &context);
                if status == 401 {
                    let challenge = response.header("www-authenticate").unwrap();
                    assert!(challenge.starts_with("Bearer"), "{challenge}");
                }
            }
        }
    }
}

#[test]
fn s11_streams_can_be_read_too() {
    let backend = Backend::scripted("a", &["one"], |asked, wire| {
        asked.tool()?;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let id = asked.id();
        let stream = format!(
            "data: {note}\n\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[]}}}}\n\n"
        );
        wire.answer(200, "content-type: text/event-stream\r\n", stream);
        Some(())
    });
    let gateway = started(&backend, Layout::Spread);
    let token = gateway.token("known");
    let mut client = McpClient::open_on(&gateway, "main", Some(&token));
    let ask = client.request(crate::support::call_body("1", "one", "{}"));
    let response = client.connection.ask(&ask.header("origin", ORIGIN));
    assert_eq!(response.messages().len(), 2);
    assert_readable(&response, ORIGIN, "a call's stream");
    let mut connection = gateway.connect();
    connection.send(client.bare("GET").header("origin", ORIGIN).bytes());
    let head = connection.read_head();
    assert_eq!(head.status, 200);
    assert_readable(&head, ORIGIN, "a GET stream");
}

#[test]
fn s11_a_page_of_another_origin_is_refused() {
    let backend = Backend::start("a", &["one"]);
    let gateway = started(&backend, Layout::Spread);
    let token = gateway.token("known");
    let client = McpClient::open_on(&gateway, "main", Some(&token));
    let seen = backend.await_rpc("notifications/initialized", 1).len() + 1;
    for origin in [
        EVIL,
        "null",
        "http://localhost.evil.example",
        "https://app.example.evil",
        "",
    ] {
        for ask in [
            client.request(crate::support::call_body("1", "one", "{}")),
            client.authorize(McpClient::initialize(&client.target)),
            client.bare("GET"),
            client.bare("DELETE"),
            client.request("x".repeat(BODY_BYTES_MAX + 1)),
            preflight("/servers/main/mcp", "POST", EVIL).without("origin"),
        ] {
            let is_too_large = ask
                .body
                .as_ref()
                .is_some_and(|body| body.len() > BODY_BYTES_MAX);
            let response = gateway.connect().ask(&ask.header("origin", origin));
            let status = if is_too_large { 413 } else { 403 };
            assert_eq!(response.status, status, "{origin}");
            assert_closed_to_pages(&response, origin);
        }
    }
    assert_eq!(backend.seen().len(), seen, "nothing reached the backend");
}

#[test]
fn s11_a_client_that_is_no_page_sees_no_cors() {
    let backend = Backend::start("a", &["one"]);
    let gateway = started(&backend, Layout::One);
    let token = gateway.token("known");
    let mut client = McpClient::open_on(&gateway, "main", Some(&token));
    assert_closed_to_pages(&client.list(), "a list");
}
