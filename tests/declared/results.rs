//! What becomes of an API's answer (dual-profile.md 3.5 and 4.4), of failures, and when a call is
//! tried again (2.6).

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    McpClient, Plan, api, api_of, call, error_of, merge, plan_of,
    support::{Gate, PATIENCE, Refusing, eventually},
    text_of, tool,
};

#[test]
fn answers_become_results() {
    let api = api(|asked, wire| match asked.target.as_str() {
        "/json" => wire.json(r#"{ "a" : 1.10 }"#),
        "/array" => wire.json("[1,2]"),
        "/scalar" => wire.json("7"),
        "/text" => wire.answer(200, "content-type: text/plain\r\n", "hello"),
        "/none" => wire.answer(204, "", ""),
        "/moved" => wire.answer(302, "location: http://127.0.0.1:1/\r\n", ""),
        "/gone" => wire.answer(404, "", "canary"),
        _ => wire.answer(
            503,
            "content-type: application/json\r\n",
            r#"{"error":"canary"}"#,
        ),
    });
    let names = [
        "json", "array", "scalar", "text", "none", "moved", "gone", "down",
    ];
    let tools: Vec<Value> = names.map(|name| tool(name, &api, json!({}))).into();
    let gateway = plan_of(json!(tools)).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(
        client.tool_names(),
        [
            "array", "down", "gone", "json", "moved", "none", "scalar", "text"
        ]
    );
    let mut result = |name: &str| client.call("1", name, "{}").result();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    for (name, expected) in [
        (
            "json",
            json!({"content": text(r#"{"a":1.10}"#), "structuredContent": {"a": 1.10}}),
        ),
        (
            "array",
            json!({"content": text("[1,2]"), "structuredContent": {"items": [1, 2]}}),
        ),
        ("scalar", json!({"content": text("7")})),
        ("text", json!({"content": text("hello")})),
        ("none", json!({"content": text("success")})),
        (
            "moved",
            json!({"content": text("upstream returned HTTP 302"), "isError": true}),
        ),
        (
            "gone",
            json!({"content": text("upstream returned HTTP 404"), "isError": true}),
        ),
        (
            "down",
            json!({"content": text("upstream returned HTTP 503"), "isError": true}),
        ),
    ] {
        assert_eq!(result(name), expected, "{name}");
    }
}

#[test]
fn bad_arguments_are_a_tool_error_before_any_traffic() {
    let api = api_of("{}");
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"]});
    let gateway = plan_of(json!([tool("t", &api, json!({"inputSchema": schema}))])).start();
    let mut client = McpClient::open(&gateway);
    let prefix = "Tool arguments did not conform to inputSchema: ";
    for (arguments, said) in [
        (r#"{"city":"x"}"#, None),
        (r#"{"city":["canary"]}"#, Some("/city: type")),
        ("{}", Some("/city: required")),
    ] {
        let response = client.call("1", "t", arguments);
        let expected = said.map_or("{}".to_owned(), |said| format!("{prefix}{said}"));
        assert_eq!(text_of(&response, said.is_some()), expected);
    }
    let without = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    assert_eq!(
        text_of(&client.post(without), true),
        format!("{prefix}/city: required")
    );
    for arguments in ["[]", "null", "7", "\"{}\""] {
        let (code, text) = error_of(&client.call("1", "t", arguments));
        let expected = "tools/call params.arguments must be an object";
        assert_eq!((code, &*text), (-32602, expected), "{arguments}");
    }
    assert_eq!(client.call("1", "unknown", "{}").error_code(), -32602);
    assert_eq!(api.seen().len(), 1, "only the sound call made traffic");
    assert_eq!(gateway.metric("shardgate_arguments_invalid_total"), 3);
}

#[test]
fn outputs_are_checked() {
    let answers = ["[1,2]", r#"{"items":[1]}"#, r#"["canary"]"#, "plain", "{}"];
    let next = AtomicUsize::new(0);
    let api = api(move |_, wire| {
        let answer = answers[next.fetch_add(1, Ordering::SeqCst)];
        wire.answer(200, "content-type: text/plain\r\n", answer);
    });
    let numbers = json!({"type": "array", "items": {"type": "integer"}});
    let gateway = plan_of(json!([tool("t", &api, json!({"outputSchema": numbers}))])).start();
    let mut client = McpClient::open(&gateway);
    let mut result = || client.call("1", "t", "{}").result();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let array = json!({"content": text("[1,2]"), "structuredContent": {"items": [1, 2]}});
    assert_eq!(result(), array);
    let inner = json!({"content": text("[1]"), "structuredContent": {"items": [1]}});
    assert_eq!(result(), inner, "the array in the wrapper is what conforms");
    for said in [
        "Tool output did not conform to outputSchema: /0: type",
        "Tool output did not provide required structuredContent",
        "Tool output did not conform to outputSchema: /: type",
    ] {
        assert_eq!(result(), json!({"content": text(said), "isError": true}));
    }
    let listed = McpClient::open(&gateway).list().result();
    let shown = listed["tools"][0].get("outputSchema");
    assert_eq!(shown, None, "older revisions know object schemas only");
}

#[test]
fn replies_over_the_limit_are_not_handed_on_in_part() {
    let api = api(|asked, wire| {
        let body = "x".repeat(if asked.target == "/large" { 5000 } else { 3000 });
        wire.answer(200, "content-type: text/plain\r\n", body);
    });
    let tools = ["large", "small"].map(|name| tool(name, &api, json!({})));
    let gateway = plan_of(json!(tools))
        .settings(|settings| settings.limits.response_bytes_max = 4096)
        .start();
    let expected = "upstream response exceeds maxResponseBodyBytes";
    assert_eq!(
        text_of(&call(&gateway, "large", &json!({})), true),
        expected
    );
    assert_eq!(
        text_of(&call(&gateway, "small", &json!({})), false).len(),
        3000
    );
}

/// A tool whose API says 503 `failures` times and then 200, with this retry policy.
fn attempts(failures: usize, metadata: Value, arguments: Value) -> (usize, bool) {
    let count = AtomicUsize::new(0);
    let api = api(move |_, wire| {
        if count.fetch_add(1, Ordering::SeqCst) < failures {
            wire.answer(503, "", "");
        } else {
            wire.json("{}");
        }
    });
    let mut one = tool("t", &api, json!({"method": "POST"}));
    merge(&mut one["toolMetadata"], metadata);
    let gateway = plan_of(json!([one])).start();
    let result = call(&gateway, "t", &arguments).result();
    (api.seen().len(), result["isError"] == true)
}

#[test]
fn only_declared_calls_are_tried_again() {
    let retry = json!({"enabled": true, "maxAttempts": 3, "retryStatusCodes": [503]});
    let with = |safety: Value| json!({"safety": safety, "runtime": {"retry": retry}});
    let idempotent = with(json!({"idempotent": true}));
    assert_eq!(attempts(2, idempotent.clone(), json!({})), (3, false));
    assert_eq!(attempts(9, idempotent, json!({})), (3, true));
    assert_eq!(attempts(1, with(json!({})), json!({})), (1, true));
    assert_eq!(
        attempts(1, json!({"safety": {"idempotent": true}}), json!({})),
        (1, true)
    );
    let destructive = with(json!({"idempotent": true, "destructive": true}));
    assert_eq!(attempts(1, destructive.clone(), json!({})), (1, true));
    assert_eq!(
        attempts(1, destructive, json!({"idempotencyKey": "k"})),
        (2, false)
    );
}

#[test]
fn connections_that_fail_are_told_and_tried_again_where_declared() {
    let refusing = Refusing::new();
    let members = |retry: Value| {
        json!({
            "name": "t", "path": "/t", "targetHost": refusing.url().trim_end_matches("/mcp"),
            "toolMetadata": {"safety": {"idempotent": true},
                "runtime": {"allowPrivateTargetHost": true, "retry": retry}},
        })
    };
    let retry = json!({"enabled": true, "maxAttempts": 2, "retryOn": ["connect"]});
    for (retry, retries) in [(json!({}), 0), (retry, 1)] {
        let gateway = plan_of(json!([members(retry)])).start();
        let text = text_of(&call(&gateway, "t", &json!({})), true);
        assert_eq!(text, "upstream failed: the backend cannot be connected to");
        assert_eq!(gateway.metric("shardgate_declared_retries_total"), retries);
    }
}

#[test]
fn a_tools_own_time_limit_ends_its_call() {
    let gate = std::sync::Arc::new(Gate::default());
    let api = api({
        let gate = gate.clone();
        move |asked, wire| {
            if asked.target == "/late" {
                gate.wait();
            }
            wire.json("{}");
        }
    });
    let limit = json!({"toolMetadata": {"runtime": {"timeoutMs": 50}}});
    let tools = [tool("late", &api, limit), tool("soon", &api, json!({}))];
    let gateway = plan_of(json!(tools)).start();
    let text = text_of(&call(&gateway, "late", &json!({})), true);
    assert_eq!(text, "upstream failed: the backend did not answer in time");
    assert_eq!(text_of(&call(&gateway, "soon", &json!({})), false), "{}");
    gate.open();
}

#[test]
fn a_cancelled_call_ends_at_the_api() {
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
    let client = McpClient::open(&gateway);
    let mut caller = client.again();
    caller.send_call("5", "t", "{}");
    gate.await_arrivals(1);
    let mut other = client.again();
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
    assert_eq!(other.post(cancel).status, 202);
    gate.await_arrivals(2);
    // The client's answer ends without a response in it.
    let answer = caller.connection.read_response();
    assert_eq!(answer.status, 200);
    assert!(!answer.text().contains("result"), "{}", answer.text());
    eventually("the call is counted as cancelled", || {
        (gateway.metric("shardgate_calls_cancelled_total") == 1).then_some(())
    });
}

#[test]
fn what_is_large_or_contains_itself_is_checked_off_the_shard() {
    let api = api_of("{}");
    let list = json!({"type": "object", "properties": {"l": {"items": {"type": "integer"}}}});
    let tree = json!({"type": "object", "properties": {"below": {"$ref": "#"},
        "leaf": {"type": "string"}}, "additionalProperties": false});
    let gateway = plan_of(json!([
        tool("list", &api, json!({"method": "POST", "inputSchema": list})),
        tool("tree", &api, json!({"method": "POST", "inputSchema": tree})),
    ]))
    .start();
    let mut client = McpClient::open(&gateway);
    let pooled = || gateway.metric("shardgate_schema_validations_pooled_total");
    assert_eq!(
        text_of(&client.call("1", "list", r#"{"l":[1]}"#), false),
        "{}"
    );
    assert_eq!(pooled(), 0, "a small one stays where it is");
    let numbers: Vec<u32> = (0..60_000).collect();
    let large = json!({"l": numbers});
    assert_eq!(
        text_of(&client.call("1", "list", &large.to_string()), false),
        "{}"
    );
    assert_eq!(pooled(), 1);
    assert_eq!(api.seen()[1].json(), large);
    let deep = r#"{"below":{"below":{"leaf":7}}}"#;
    let text = text_of(&client.call("1", "tree", deep), true);
    assert_eq!(
        text,
        "Tool arguments did not conform to inputSchema: /below/below/leaf: type"
    );
    assert_eq!(pooled(), 2);
}

#[test]
fn checks_that_take_long_are_counted() {
    for (watchdog, slow) in [(Duration::from_nanos(1), true), (PATIENCE, false)] {
        let api = api_of("{}");
        let schema = json!({"outputSchema": {"type": "object"}});
        let gateway = plan_of(json!([tool("t", &api, schema)]))
            .settings(move |settings| settings.timeouts.validation_watchdog = watchdog)
            .start();
        let response = McpClient::open(&gateway).call("1", "t", "{}");
        assert_eq!(text_of(&response, false), "{}");
        let counted = gateway.metric("shardgate_schema_validations_slow_total");
        assert_eq!(counted > 0, slow);
    }
}

#[test]
fn a_batch_and_every_layout_call_declared_tools() {
    for layout in crate::support::LAYOUTS {
        let api = api_of(r#"{"ok":true}"#);
        let tools = json!([tool("t", &api, json!({}))]);
        let hosts = json!({crate::HOST: {"backends": {}, "tools": tools}});
        let gateway = Plan::document(json!({"virtual_hosts": hosts}))
            .layout(layout)
            .start();
        let mut client = McpClient::open(&gateway);
        assert_eq!(client.tool_names(), ["t"]);
        assert_eq!(
            text_of(&client.call("1", "t", "{}"), false),
            r#"{"ok":true}"#
        );

        let mut old = McpClient::open_with(&gateway, "2025-03-26", "{}");
        let one = crate::support::call_body("7", "t", "{}");
        let answers = old.post(format!("[{one}]")).json();
        assert_eq!(answers[0]["id"], 7);
        assert_eq!(answers[0]["result"]["content"][0]["text"], r#"{"ok":true}"#);
    }
}
