//! The same tools for clients of revision 2026-07-28: no session, values of any kind, mirrored
//! arguments, refusals in that revision's words.

use serde_json::{Value, json};

use crate::{
    Plan, api, api_of, merge, plan_of,
    support::{Backend, Gate, Gateway, HOST, LAYOUTS, ModernClient, eventually},
    tool,
};

/// A whole result, without what every result of the revision says.
pub(crate) fn result_of(response: &crate::Response) -> Value {
    let mut result = response.result();
    let members = result.as_object_mut().unwrap();
    assert_eq!(
        members.remove("resultType"),
        Some(json!("complete")),
        "{}",
        response.text()
    );
    let meta = members.remove("_meta").unwrap();
    assert_eq!(
        meta["io.modelcontextprotocol/serverInfo"]["name"],
        "shardgate"
    );
    result
}

/// Status, code and `data.reason` of a refusal.
pub(crate) fn refused(response: &crate::Response) -> (u16, i64, Value) {
    let error = response.message()["error"].clone();
    (
        response.status,
        error["code"].as_i64().unwrap(),
        error["data"]["reason"].clone(),
    )
}

#[test]
fn calls_need_no_session_and_give_values_of_any_kind() {
    let api = api(|asked, wire| match asked.target.as_str() {
        "/array" => wire.json("[1,2]"),
        "/scalar" => wire.json("7.50"),
        _ => wire.answer(503, "", ""),
    });
    let schema = json!({"outputSchema": {"type": "array", "items": {"type": "integer"}}});
    let gateway = plan_of(json!([
        tool("array", &api, schema),
        tool("scalar", &api, json!({})),
        tool(
            "down",
            &api,
            json!({"inputSchema": {"type": "object", "required": ["a"]}})
        ),
    ]))
    .start();
    let mut client = ModernClient::new(&gateway);
    let discovered = client.ask("1", "server/discover", "").result();
    assert!(
        discovered["capabilities"]["tools"].is_object(),
        "{discovered}"
    );
    let list = client.list().result();
    assert_eq!(list["tools"][0]["outputSchema"]["type"], "array");
    let names: Vec<&Value> = list["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(names, ["array", "down", "scalar"]);
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    for (name, arguments, expected) in [
        (
            "array",
            "{}",
            json!({"content": text("[1,2]"), "structuredContent": [1, 2]}),
        ),
        (
            "scalar",
            "{}",
            json!({"content": text("7.50"), "structuredContent": 7.5}),
        ),
        (
            "down",
            r#"{"a":1}"#,
            json!({"content": text("upstream returned HTTP 503"), "isError": true}),
        ),
        (
            "down",
            "{}",
            json!({"content": text(
                "Tool arguments did not conform to inputSchema: /a: required"), "isError": true}),
        ),
    ] {
        let response = client.call("1", name, arguments);
        assert_eq!(
            (response.status, result_of(&response)),
            (200, expected),
            "{name}"
        );
    }
    let bad = client.call("1", "scalar", "[]");
    assert_eq!(refused(&bad), (400, -32602, Value::Null));
    let unknown = client.call("1", "nowhere", "{}");
    assert_eq!(refused(&unknown), (200, -32602, Value::Null));
    assert_eq!(api.seen().len(), 3);
    assert_eq!(gateway.metric("shardgate_sessions_opened_total"), 0);
}

#[test]
fn an_api_sees_no_difference_between_clients_with_sessions_and_without() {
    for layout in LAYOUTS {
        let api = api_of("{}");
        let schema =
            json!({"type": "object", "properties": {"pin": {"type": "string", "x-mask": true}}});
        let declared = json!({"method": "POST", "inputSchema": schema});
        let gateway = plan_of(json!([tool("t", &api, declared)]))
            .layout(layout)
            .start();
        let arguments = r#"{"n": 1.50, "pin": "canary"}"#;
        let mut client = ModernClient::new(&gateway);
        let ask = client
            .call_request("1", "t", arguments)
            .header("cookie", "canary=1");
        assert_eq!(
            result_of(&client.connection.ask(&ask))["structuredContent"],
            json!({})
        );
        let mut session = crate::McpClient::open(&gateway);
        let ask = session.request(crate::support::call_body("1", "t", arguments));
        let response = session.connection.ask(&ask.header("cookie", "canary=1"));
        assert_eq!(response.result()["structuredContent"], json!({}));
        let told: Vec<String> = api
            .seen()
            .iter()
            .map(|asked| {
                format!(
                    "{} {} {:?} {}",
                    asked.method,
                    asked.target,
                    asked.headers,
                    asked.text()
                )
            })
            .collect();
        assert_eq!(told.len(), 2);
        assert_eq!(told[0], told[1]);
        for other in ["canary", "mcp-"] {
            assert!(!told[0].contains(other), "{}", told[0]);
        }
    }
}

#[test]
fn mirrored_arguments_are_compared_after_access_and_before_validation() {
    let api = api_of("{}");
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "maxLength": 2, "x-mcp-header": "Region"}}});
    let declared = json!([tool("t", &api, json!({"inputSchema": schema}))]);
    let gateway = plan_of(declared.clone()).start();
    let mut client = ModernClient::new(&gateway);
    let listed = client.list().result();
    let property = &listed["tools"][0]["inputSchema"]["properties"]["region"];
    assert_eq!(property["x-mcp-header"], "Region");
    let mut ask = |value: Option<&str>, arguments: &str| {
        let request = client.call_request("1", "t", arguments);
        let request = match value {
            Some(value) => request.header("mcp-param-region", value),
            None => request,
        };
        client.connection.ask(&request)
    };
    assert_eq!(
        result_of(&ask(Some("eu"), r#"{"region":"eu"}"#))["structuredContent"],
        json!({})
    );
    assert_eq!(result_of(&ask(None, "{}"))["structuredContent"], json!({}));
    for (value, arguments) in [
        (None, r#"{"region":"eu"}"#),
        (Some("us"), r#"{"region":"eu"}"#),
        (Some("eu"), "{}"),
        (Some("=?base64?!?="), r#"{"region":"eu"}"#),
        (None, r#"{"region":"too long"}"#),
    ] {
        assert_eq!(
            refused(&ask(value, arguments)),
            (400, -32020, Value::Null),
            "{value:?}"
        );
    }
    let long = result_of(&ask(Some("too long"), r#"{"region":"too long"}"#));
    assert_eq!(long["isError"], true);
    assert_eq!(api.seen().len(), 2);

    let host = json!({"backends": {}, "tools": declared, "access_control": {}});
    let closed = Plan::document(json!({"virtual_hosts": {HOST: host}})).start();
    let response = ModernClient::new(&closed).call("1", "t", r#"{"region":"eu"}"#);
    assert_eq!(refused(&response), (403, -31002, json!("access")));
    assert_eq!(api.seen().len(), 2);
}

#[test]
fn lists_are_those_of_the_token_not_of_an_earlier_one() {
    let api = api_of("{}");
    let rule = |role: &str| json!({"req-acc": "roles", "permission": {"roles": role}});
    let tools = ["a", "b"].map(|name| tool(name, &api, json!({})));
    let host = json!({
        "backends": {},
        "tools": tools,
        "access_control": {"toolsListAccessControl": {"mode": "permission"}},
        "rules": {"endpointRules": {"/a@get": rule("one"), "/b@get": rule("two")},
            "ruleBodies": {"roles": {"actions": [
                {"actionClassName": "RoleBasedAccessControlAction"}]}}},
    });
    let gateway = Plan::document(json!({"virtual_hosts": {HOST: host}}))
        .with_tokens()
        .shards(1)
        .start();
    let client = |role: &str| {
        let token = gateway.token_of("me", &json!({"role": role}));
        ModernClient::of(&gateway, HOST, Some(&token))
    };
    for _ in 0..2 {
        assert_eq!(client("one").tool_names(), ["a"]);
        assert_eq!(client("two").tool_names(), ["b"]);
        assert_eq!(client("none").tool_names(), [""; 0]);
    }
    let mut one = client("one");
    assert_eq!(one.call("1", "a", "{}").status, 200);
    assert_eq!(
        refused(&one.call("1", "b", "{}")),
        (403, -31002, json!("access"))
    );
}

/// A gateway with one backend and one declared tool in front of its tool `lookup`.
pub(crate) fn fronted(backend: &Backend, backend_members: Value, members: Value) -> Gateway {
    let schema = json!({"type": "object", "properties": {
        "who": {"type": "string", "x-mcp-header": "Who"},
        "pin": {"type": "string", "x-mask": true}}});
    let mut declared = json!({"name": "find", "apiType": "mcp", "serviceId": "a",
        "endpointName": "lookup", "inputSchema": schema});
    merge(&mut declared, members);
    let mut entry = json!({"url": backend.url()});
    merge(&mut entry, backend_members);
    let host = json!({"backends": {"a": entry}, "tools": [declared]});
    Plan::document(json!({"virtual_hosts": {HOST: host}})).start()
}

fn find(client: &mut ModernClient) -> crate::Response {
    let request = client
        .call_request("1", "find", r#"{"who":"x","pin":"1234"}"#)
        .header("mcp-param-who", "x");
    client.connection.ask(&request)
}

#[test]
fn a_backend_of_either_kind_stands_behind_a_declared_tool() {
    let said = r#"a lookup {"pin":"******","who":"x"}"#;
    let modern = Backend::modern("a", &["lookup"]);
    let gateway = fronted(&modern, json!({}), json!({}));
    let response = find(&mut ModernClient::new(&gateway));
    assert_eq!(result_of(&response)["content"][0]["text"], said);
    let asked = modern.seen_rpc("tools/call").remove(0);
    assert_eq!(asked.header("mcp-name"), Some("lookup"));
    assert_eq!(
        asked.header("mcp-param-who"),
        None,
        "the backend's tool wants none"
    );
    // A client with a session reaches the same.
    let response = crate::McpClient::open(&gateway).call("1", "find", r#"{"who":"y"}"#);
    assert_eq!(crate::text_of(&response, false), r#"a lookup {"who":"y"}"#);

    let old = Backend::start("a", &["lookup"]);
    let gateway = fronted(&old, json!({}), json!({}));
    let text = "Gateway does not support stateless calls to this MCP backend profile";
    let result = result_of(&find(&mut ModernClient::new(&gateway)));
    assert_eq!(
        (&result["isError"], &result["content"][0]["text"]),
        (&json!(true), &json!(text))
    );
    assert_eq!(old.seen_rpc("tools/call").len(), 0);

    let bridge = json!({"bridge": "per-request"});
    for (independent, is_bridged) in [(true, true), (false, false)] {
        let declared = json!({"sessionIndependent": independent});
        let gateway = fronted(&old, bridge.clone(), declared);
        let result = result_of(&find(&mut ModernClient::new(&gateway)));
        let expected = if is_bridged { said } else { text };
        assert_eq!(result["content"][0]["text"], expected, "{independent}");
    }
    eventually("no session is left at the backend", || {
        (old.session_count() == 0).then_some(())
    });
}

#[test]
fn leaving_is_cancelling() {
    let gate = std::sync::Arc::new(Gate::default());
    let api = api({
        let gate = gate.clone();
        move |_, wire| {
            gate.arrive();
            wire.await_end();
            gate.arrive();
        }
    });
    let gateway = plan_of(json!([tool("t", &api, json!({}))])).start();
    let client = ModernClient::new(&gateway);
    let mut leaving = client.again();
    leaving
        .connection
        .send(client.call_request("1", "t", "{}").bytes());
    gate.await_arrivals(1);
    drop(leaving);
    gate.await_arrivals(2);
    eventually("the call is counted as cancelled", || {
        (gateway.metric("shardgate_calls_cancelled_total") == 1).then_some(())
    });
}
