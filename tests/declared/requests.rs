//! CAL-1 and the rows of dual-profile.md 4.3: the exact request that each declaration makes.

use serde_json::{Value, json};

use crate::{api_of, call, error_of, plan_of, support::Asked, text_of, tool};

/// What one call of a tool sends, or its error.
fn sent(members: Value, arguments: Value) -> Result<Asked, (i64, String)> {
    let api = api_of("{}");
    let gateway = plan_of(json!([tool("t", &api, members.clone())])).start();
    let response = call(&gateway, "t", &arguments);
    if response.message().get("error").is_some() {
        assert_eq!(api.seen().len(), 0, "{members} {arguments}");
        return Err(error_of(&response));
    }
    assert_eq!(text_of(&response, false), "{}", "{members} {arguments}");
    let mut seen = api.seen();
    assert_eq!(seen.len(), 1);
    Ok(seen.remove(0))
}

fn mapped(parameters: Value) -> Value {
    json!({"toolMetadata": {"routing": {"parameters": parameters}}})
}

#[test]
fn methods_say_where_arguments_go_when_nothing_else_does() {
    let arguments = json!({"b": [1, "x"], "a": "1 2&", "n": null, "t": true});
    let query = "/t?a=1+2%26&b=%5B1%2C%22x%22%5D&t=true";
    for method in ["GET", "get"] {
        let asked = sent(json!({"method": method}), arguments.clone()).unwrap();
        assert_eq!((&*asked.method, &*asked.target), ("GET", query));
        assert_eq!(asked.header("content-length"), None);
    }
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let asked = sent(json!({"method": method}), arguments.clone()).unwrap();
        assert_eq!((&*asked.method, &*asked.target), (method, "/t"));
        assert_eq!(asked.json(), arguments);
        assert_eq!(asked.header("content-type"), Some("application/json"));
        let empty = sent(json!({"method": method}), json!({})).unwrap();
        assert_eq!(empty.text(), "{}");
    }
    let schema = json!({"type": "object"});
    assert_eq!(
        sent(json!({"method": "CALL"}), json!({})).unwrap().method,
        "GET"
    );
    let with = json!({"method": "CALL", "inputSchema": schema});
    assert_eq!(sent(with, json!({})).unwrap().method, "POST");
}

#[test]
fn the_reply_to_head_has_no_body() {
    let api = crate::api(|_, wire| wire.send("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n"));
    let gateway = plan_of(json!([tool("t", &api, json!({"method": "HEAD"}))])).start();
    for _ in 0..2 {
        assert_eq!(
            text_of(&call(&gateway, "t", &json!({"a": 1})), false),
            "success"
        );
    }
    let asked = &api.seen()[1];
    assert_eq!(
        (&*asked.method, &*asked.target, asked.body.len()),
        ("HEAD", "/t?a=1", 0)
    );
}

#[test]
fn each_argument_goes_where_it_is_mapped() {
    let members = json!({
        "method": "PUT",
        "path": "/users/{id}/posts/{post.id}",
        "toolMetadata": {"routing": {"parameters": {
            "id": "path", "post.id": "path", "q": "query", "X-Trace-Id": "header",
            "session": "cookie", "lang": "cookie", "body": "body", "each": "queryEach",
            "joined": "queryJoined",
        }}},
    });
    let asked = sent(
        members,
        json!({"id": "a/b c", "post.id": 7, "q": "x=1", "X-Trace-Id": "t-1", "session": "s;1",
            "lang": "de", "body": {"k": [1]}, "each": ["a", 2, null], "joined": ["a", "b"]}),
    )
    .unwrap();
    assert_eq!(
        asked.target,
        "/users/a%2Fb%20c/posts/7?each=a&each=2&joined=a%2Cb&q=x%3D1"
    );
    assert_eq!(asked.header("x-trace-id"), Some("t-1"));
    assert_eq!(asked.header("cookie"), Some("lang=de; session=s%3B1"));
    assert_eq!(asked.text(), r#"{"k":[1]}"#);
    let names: Vec<&str> = asked
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "host",
            "accept-encoding",
            "user-agent",
            "accept",
            "x-trace-id",
            "cookie",
            "content-type",
            "content-length",
        ]
    );
}

#[test]
fn bodies_are_whole_or_of_fields() {
    let whole = mapped(json!({"name": "body"}));
    let mut post = json!({"method": "POST"});
    crate::merge(&mut post, whole);
    assert_eq!(
        sent(post.clone(), json!({"name": "x"})).unwrap().text(),
        r#""x""#
    );

    crate::merge(
        &mut post,
        json!({"toolMetadata": {"routing": {"bodyMappingMode": "fields"}}}),
    );
    let asked = sent(post.clone(), json!({"name": "x", "other": 1})).unwrap();
    assert_eq!(asked.json(), json!({"name": "x", "other": 1}));
    let asked = sent(post.clone(), json!({"name": "x", "body": [7]})).unwrap();
    assert_eq!(asked.text(), "[7]", "an argument named body is the body");

    crate::merge(
        &mut post,
        json!({"toolMetadata": {"routing": {"parameters": {"name": "query"},
        "unmappedArguments": "query"}}}),
    );
    let asked = sent(post.clone(), json!({"name": "x", "other": 1})).unwrap();
    assert_eq!((&*asked.target, asked.body.len()), ("/t?name=x&other=1", 0));
    assert_eq!(asked.header("content-length"), Some("0"));
    assert_eq!(asked.header("content-type"), None);

    let delete = json!({"method": "DELETE", "path": "/t/{id}", "toolMetadata": {"routing": {
        "parameters": {"id": "path"}}}});
    let asked = sent(delete, json!({"id": 1})).unwrap();
    assert_eq!(asked.header("content-length"), None);
}

#[test]
fn base_paths_are_not_doubled() {
    let api = api_of("{}");
    let with = |base: &str, path: &str| {
        let mut one = tool(
            "t",
            &api,
            json!({"path": path, "toolMetadata": {"routing": {
            "parameters": {"x": "path"}}}}),
        );
        one["targetHost"] = format!("http://{}{base}", api.address()).into();
        if !path.contains('{') {
            one["toolMetadata"]["routing"] = json!({});
        }
        one
    };
    for (base, path, expected) in [
        ("", "/a", "/a"),
        ("/", "/a", "/a"),
        ("/v1", "/a", "/v1/a"),
        ("/v1/", "/a", "/v1/a"),
        ("/v1", "/v1/a", "/v1/a"),
        ("/v1", "/v1", "/v1"),
        ("/v1", "/v11/a", "/v1/v11/a"),
        ("/v1", "/{x}", "/v1/v1"),
        ("/v1", "/v1/{x}", "/v1/v1"),
    ] {
        let gateway = plan_of(json!([with(base, path)])).start();
        let arguments = if path.contains('{') {
            json!({"x": "v1"})
        } else {
            json!({})
        };
        assert_eq!(text_of(&call(&gateway, "t", &arguments), false), "{}");
        assert_eq!(api.seen().last().unwrap().target, expected, "{base} {path}");
    }
}

#[test]
fn arguments_that_make_no_request_are_refused_before_traffic() {
    let path = json!({"path": "/u/{id}", "toolMetadata": {"routing": {"parameters": {
        "id": "path"}}}});
    for arguments in [json!({}), json!({"id": null}), json!({"id": ""})] {
        let (code, text) = sent(path.clone(), arguments).unwrap_err();
        assert_eq!(
            (code, &*text),
            (-32602, "the argument id is needed for the path")
        );
    }
    for arguments in [json!({"id": "."}), json!({"id": ".."})] {
        assert_eq!(sent(path.clone(), arguments).unwrap_err().0, -32602);
    }
    assert_eq!(sent(path, json!({"id": "..."})).unwrap().target, "/u/...");
    let pair = json!({"path": "/u/{a}{b}", "toolMetadata": {"routing": {"parameters": {
        "a": "path", "b": "path"}}}});
    assert_eq!(
        sent(pair, json!({"a": ".", "b": "."})).unwrap_err().0,
        -32602
    );

    let header = mapped(json!({"x-a": "header"}));
    for value in ["a\r\nx-evil: 1", "\u{e4}", " edge", "a\u{0}"] {
        let (code, text) = sent(header.clone(), json!({"x-a": value})).unwrap_err();
        assert_eq!(
            (code, &*text),
            (-32602, "the argument x-a cannot be a header")
        );
    }
    assert_eq!(
        sent(header.clone(), json!({"x-a": null}))
            .unwrap()
            .header("x-a"),
        None
    );
    assert_eq!(
        sent(header, json!({"x-a": {"k": 1}}))
            .unwrap()
            .header("x-a"),
        Some(r#"{"k":1}"#)
    );

    let closed = json!({
        "inputSchema": {"type": "object", "unevaluatedProperties": false,
            "properties": {"known": {}, "other": {}}},
        "toolMetadata": {"routing": {"parameters": {"known": "query"},
            "unmappedArguments": "reject"}},
    });
    let (code, text) = sent(closed, json!({"other": "canary"})).unwrap_err();
    assert_eq!(
        (code, &*text),
        (-32602, "the argument other has no place in the request")
    );
}

#[test]
fn only_what_is_named_passes_of_the_clients_headers() {
    let api = api_of("{}");
    let gateway = plan_of(json!([
        tool("plain", &api, json!({})),
        tool("traced", &api, mapped(json!({"traceparent": "header"}))),
    ]))
    .start();
    let mut client = crate::McpClient::open(&gateway);
    for (name, arguments) in [
        ("plain", "{}"),
        ("traced", r#"{"traceparent":"of the call"}"#),
    ] {
        let ask = client
            .request(crate::support::call_body("1", name, arguments))
            .header("authorization", "Bearer secret")
            .header("cookie", "secret=1")
            .header("x-forwarded-for", "1.2.3.4")
            .header("accept-language", "de")
            .header("traceparent", "of the client");
        assert_eq!(text_of(&client.connection.ask(&ask), false), "{}");
    }
    let seen = api.seen();
    for asked in &seen {
        assert_eq!(asked.header("accept-language"), Some("de"));
        for absent in [
            "authorization",
            "cookie",
            "x-forwarded-for",
            "mcp-session-id",
            "origin",
        ] {
            assert_eq!(asked.header(absent), None, "{absent}");
        }
    }
    assert_eq!(seen[0].header("traceparent"), Some("of the client"));
    assert_eq!(seen[1].header("traceparent"), Some("of the call"));
}

#[test]
fn what_is_masked_never_reaches_the_server() {
    let members = json!({
        "method": "POST",
        "inputSchema": {"type": "object", "properties": {
            "key": {"type": "string", "minLength": 6, "x-sensitive": true},
            "card": {"type": "string", "x-mask": true, "x-mask-pattern": "[0-9]{4}-"},
            "open": {"type": "string"},
        }},
        "toolMetadata": {"routing": {"parameters": {"key": "header", "card": "query",
            "open": "body"}}},
    });
    let asked = sent(
        members.clone(),
        json!({"key": "canary-1", "card": "1234-5678", "open": "o"}),
    )
    .unwrap();
    assert_eq!(asked.header("key"), Some("******"));
    assert_eq!(
        (&*asked.target, asked.text()),
        ("/t?card=******5678", r#""o""#)
    );

    let api = api_of("{}");
    let gateway = plan_of(json!([tool("t", &api, members)])).start();
    let list = crate::McpClient::open(&gateway).list();
    assert!(!list.text().contains("x-mask") && !list.text().contains("x-sensitive"));
}

#[test]
fn credentials_are_the_gateways_own() {
    let api = api_of("{}");
    let declared = tool(
        "t",
        &api,
        // Set for all tests by cargo.
        json!({"auth": {"type": "bearer", "token": "env:CARGO_PKG_NAME"}}),
    );
    let keyless = tool(
        "keyless",
        &api,
        json!({"auth": {"type": "bearer", "token": "env:SHARDGATE_TEST_NO_SUCH_VARIABLE"}}),
    );
    let gateway = plan_of(json!([declared, keyless])).start();
    let mut client = crate::McpClient::open(&gateway);
    assert_eq!(
        client.tool_names(),
        ["t"],
        "a tool without its credential is not shown"
    );
    assert_eq!(text_of(&client.call("1", "t", "{}"), false), "{}");
    assert_eq!(client.call("2", "keyless", "{}").error_code(), -32602);
    assert_eq!(api.seen().len(), 1);
    assert_eq!(
        api.seen()[0].header("authorization"),
        Some("Bearer shardgate")
    );
}

#[test]
fn integers_keep_their_digits_or_are_refused() {
    let post = json!({"method": "POST"});
    let arguments = json!({"n": u64::MAX, "m": i64::MIN});
    assert_eq!(
        sent(post.clone(), arguments.clone()).unwrap().json(),
        arguments
    );
    let api = api_of("{}");
    let gateway = plan_of(json!([tool("t", &api, post)])).start();
    let mut client = crate::McpClient::open(&gateway);
    let response = client.call("1", "t", r#"{"n":123456789012345678901234567890}"#);
    assert_eq!(response.error_code(), -32602);
    assert_eq!(api.seen().len(), 0);
}
