//! Access rules (dual-profile.md 3.6): who sees a tool, who may call it, and what of a result they
//! get; a denial leaks nothing (CAL-2).

use serde_json::{Value, json};

use crate::{
    McpClient, Plan, api_of, error_of, merge,
    support::{Backend, Gateway, HOST},
    text_of, tool,
};

const ROLES: &str = "com.networknt.rule.RoleBasedAccessControlAction";
const ROWS: &str = "ResponseRowFilterAction";
const COLUMNS: &str = "ResponseColumnFilterAction";

fn body(class: &str) -> Value {
    json!({"ruleType": "req-acc", "common": "Y", "actions": [{"actionClassName": class}]})
}

/// A gateway with these tools and endpoint rules, whose callers need tokens.
fn gateway(tools: Value, access: Value, endpoints: Value) -> Gateway {
    let mut host = json!({
        "backends": {}, "tools": tools, "access_control": {},
        "rules": {"endpointRules": endpoints,
            "ruleBodies": {"roles": body(ROLES), "rows": body(ROWS), "cols": body(COLUMNS)}},
    });
    merge(&mut host["access_control"], access);
    Plan::document(json!({"virtual_hosts": {HOST: host}}))
        .with_tokens()
        .start()
}

fn client(gateway: &Gateway, claims: Value) -> McpClient {
    let token = gateway.token_of("me", &claims);
    McpClient::open_on(gateway, HOST, Some(&token))
}

#[test]
fn who_may_call_is_asked_before_a_word_about_the_arguments() {
    let api = api_of("{}");
    let schema = json!({"type": "object", "required": ["secret_name"]});
    let tools = json!([
        tool("ruled", &api, json!({"inputSchema": schema})),
        tool("unruled", &api, json!({"inputSchema": schema})),
        tool("free", &api, json!({})),
    ]);
    let gateway = gateway(
        tools,
        json!({"skipPathPrefixes": ["fre"]}),
        json!({"/ruled@get": {"req-acc": "roles", "permission": {"roles": "admin manager"}}}),
    );
    let mut stranger = client(&gateway, json!({"role": "guest"}));
    for (name, expected) in [
        (
            "ruled",
            "Access denied by access control rule for /ruled@get",
        ),
        (
            "unruled",
            "Access denied: no access control rule defined for /unruled@get",
        ),
    ] {
        for arguments in ["{}", r#"{"secret_name":1}"#] {
            let (code, text) = error_of(&stranger.call("1", name, arguments));
            assert_eq!((code, &*text), (-32001, expected));
        }
    }
    assert_eq!(text_of(&stranger.call("1", "free", "{}"), false), "{}");
    assert_eq!(api.seen().len(), 1);
    let mut manager = client(&gateway, json!({"roles": ["x", "manager"]}));
    let text = text_of(&manager.call("1", "ruled", "{}"), true);
    assert_eq!(
        text,
        "Tool arguments did not conform to inputSchema: /secret_name: required"
    );
    let sound = manager.call("1", "ruled", r#"{"secret_name":1}"#);
    assert_eq!(text_of(&sound, false), "{}");
    assert_eq!(manager.call("1", "unruled", "{}").error_code(), -32001);
    assert_eq!(gateway.metric("shardgate_declared_denied_total"), 5);
}

#[test]
fn lists_show_what_the_caller_may_see() {
    let api = api_of("{}");
    let tools = json!(["a", "b", "c", "d"].map(|name| tool(name, &api, json!({}))));
    let endpoints = json!({
        "/a@get": {"req-acc": ["roles"], "permission": {"roles": ["one"]}},
        "/b@get": {"req-acc": ["roles"], "permission": {"roles": ["two"]},
            "visibility": {"groups": "g h", "users": "me"}},
        "/c@get": {"visibility": {"roles": "one"}},
    });
    let permission = json!({"toolsListAccessControl": {"mode": "permission"}});
    let hiding = gateway(tools.clone(), permission.clone(), endpoints.clone());
    let names = |gateway: &Gateway, claims: Value| client(gateway, claims).tool_names();
    assert_eq!(names(&hiding, json!({"role": "one"})), ["a", "c"]);
    assert_eq!(names(&hiding, json!({"scp": "x h"})), ["b"]);
    assert_eq!(names(&hiding, json!({})), [""; 0]);

    let mut open = permission;
    merge(&mut open, json!({"defaultDeny": false}));
    let open = gateway(tools.clone(), open, endpoints.clone());
    assert_eq!(names(&open, json!({})), ["d"]);
    let mut caller = client(&open, json!({"role": "one"}));
    for (name, is_allowed) in [("a", true), ("b", false), ("c", true), ("d", true)] {
        let response = caller.call("1", name, "{}");
        assert_eq!(
            response.message().get("result").is_some(),
            is_allowed,
            "{name}"
        );
    }
    let showing = gateway(tools, json!({}), endpoints);
    assert_eq!(names(&showing, json!({})), ["a", "b", "c", "d"]);
}

#[test]
fn rules_are_found_for_endpoints_below_and_for_placeholders() {
    let api = api_of("{}");
    let at = |name: &str, endpoint: &str| tool(name, &api, json!({"endpoint": endpoint}));
    let tools = json!([
        at("exact", "/a/b@get"),
        at("below", "/a/x/y@get"),
        at("filled", "/u/7/p@get"),
        at("other", "/a/b@post"),
        at("near", "/ab@get"),
    ]);
    let rule = |role: &str| json!({"req-acc": "roles", "permission": {"roles": role}});
    let endpoints = json!({"/a/b@get": rule("exact"), "/a@get": rule("below"),
        "/u/{id}/p@get": rule("filled")});
    let gateway = gateway(
        tools,
        json!({"claimMappings": {"roles": ["job"]}}),
        endpoints,
    );
    for role in ["exact", "below", "filled", "other", "near"] {
        let mut caller = client(&gateway, json!({"job": role}));
        for name in ["exact", "below", "filled", "other", "near"] {
            let response = caller.call("1", name, "{}");
            let is_allowed = response.message().get("result").is_some();
            let expected = role == name && !["other", "near"].contains(&name);
            assert_eq!(is_allowed, expected, "{role} {name}");
        }
    }
}

const OFFERS: &str = r#"{"items":[
    {"id":1,"owner":"me","priority":10,"ssn":"canary"},
    {"id":2,"owner":"you","priority":10,"ssn":"canary"},
    {"id":3,"owner":"me","priority":90,"ssn":"canary"},
    {"id":4,"owner":"me","ssn":"canary"}]}"#;

#[test]
fn rows_and_columns_are_filtered_wherever_they_show() {
    let api = api_of(OFFERS);
    let tools = json!([tool("offers", &api, json!({}))]);
    let endpoints = json!({"/offers@get": {
        "req-acc": ["roles"], "res-fil": "cols,rows",
        "permission": {
            "roles": "viewer teller admin none",
            "row": {"role": {
                "viewer": [{"colName": "priority", "operator": "<", "colValue": 50},
                    {"colName": "owner", "colValue": "@sub"}],
                "teller": [{"colName": "id", "operator": "in", "colValue": "2 3"}],
                "admin": [],
            }},
            "col": {"role": {"viewer": "!ssn", "teller": "id,owner"}},
        },
    }});
    let gateway = gateway(tools, json!({}), endpoints);
    let ids = |claims: Value| {
        let response = client(&gateway, claims).call("1", "offers", "{}");
        let result = response.result();
        let text: Value = serde_json::from_str(&text_of(&response, false)).unwrap();
        assert_eq!(
            text, result["structuredContent"],
            "both copies are filtered"
        );
        let rows = text["items"].as_array().unwrap().clone();
        let ids: Vec<i64> = rows.iter().map(|row| row["id"].as_i64().unwrap()).collect();
        (ids, response.text().to_owned())
    };
    let (viewer, text) = ids(json!({"role": "viewer"}));
    assert_eq!(viewer, [1]);
    assert!(!text.contains("canary"));
    let (teller, text) = ids(json!({"role": "teller"}));
    assert_eq!(teller, [2, 3]);
    assert!(!text.contains("canary") && !text.contains("priority"));
    assert_eq!(ids(json!({"role": "admin"})).0, [1, 2, 3, 4]);
    assert_eq!(ids(json!({"role": "none"})).0, [0; 0], "no entry, no rows");
    let both = ids(json!({"role": "viewer teller"})).0;
    assert_eq!(both, [0; 0], "all matching entries count together");
}

#[test]
fn one_object_is_denied_whole_and_what_cannot_be_filtered_fails() {
    let object = api_of(r#"{"id":1,"owner":"you","note":"canary"}"#);
    let text = crate::api(|_, wire| wire.answer(200, "content-type: text/plain\r\n", "canary"));
    let broken = crate::api(|_, wire| wire.answer(500, "", "canary"));
    let tools = json!([
        tool("object", &object, json!({})),
        tool("text", &text, json!({})),
        tool("broken", &broken, json!({})),
    ]);
    let rule = json!({"req-acc": "roles", "res-fil": [{"ruleId": "rows"}], "permission": {
        "roles": "r", "row": {"user": {"me": [{"colName": "owner", "operator": "!=",
            "colValue": "you"}]}}}});
    let endpoints = json!({"/object@get": rule, "/text@get": rule, "/broken@get": rule});
    let gateway = gateway(tools, json!({}), endpoints);
    let mut caller = client(&gateway, json!({"role": "r"}));
    for (name, expected) in [
        ("object", "Access denied by response filter"),
        ("text", "Access control response filter failed"),
        ("broken", "upstream returned HTTP 500"),
    ] {
        assert_eq!(text_of(&caller.call("1", name, "{}"), true), expected);
    }
}

#[test]
fn a_filter_that_breaks_the_output_schema_is_a_tool_error() {
    let api = api_of(r#"{"id":1,"ssn":"canary"}"#);
    let output = json!({"type": "object", "required": ["id", "ssn"]});
    let tools = json!([tool("t", &api, json!({"outputSchema": output}))]);
    let endpoints = json!({"/t@get": {"req-acc": "roles", "res-fil": "cols", "permission": {
        "roles": "r admin", "col": {"role": {"r": "!ssn"}}}}});
    let gateway = gateway(tools, json!({}), endpoints);
    let mut caller = client(&gateway, json!({"role": "r"}));
    let text = text_of(&caller.call("1", "t", "{}"), true);
    assert_eq!(
        text,
        "Tool output did not conform to outputSchema: /ssn: required"
    );
    let mut admin = client(&gateway, json!({"role": "admin"}));
    assert!(text_of(&admin.call("1", "t", "{}"), false).contains("canary"));
}

#[test]
fn filters_reach_a_backends_results_too() {
    let backend = Backend::scripted("b", &["get"], |asked, wire| {
        (asked.tool().as_deref() == Some("get")).then(|| {
            wire.result(
                asked,
                r#"{"content":[{"type":"text","text":"canary"},{"type":"text","text":"canary"}],
                    "structuredContent":{"id":1,"ssn":"canary"},"_meta":{"x":"canary"}}"#,
            );
        })
    });
    let host = json!({
        "backends": {"b": {"url": backend.url()}},
        "tools": [{"name": "t", "apiType": "mcp", "serviceId": "b", "endpointName": "get"}],
        "access_control": {},
        "rules": {"ruleBodies": {"cols": body(COLUMNS), "roles": body(ROLES)},
            "endpointRules": {"/t@call": {"req-acc": "roles", "res-fil": "cols",
                "permission": {"roles": "r", "col": {"role": {"r": "id"}}}}}},
    });
    let gateway = Plan::document(json!({"virtual_hosts": {HOST: host}}))
        .with_tokens()
        .start();
    let response = client(&gateway, json!({"role": "r"})).call("1", "t", "{}");
    assert_eq!(text_of(&response, false), r#"{"id":1}"#);
    assert!(!response.text().contains("canary"), "{}", response.text());
    let denied = client(&gateway, json!({})).call("1", "t", "{}");
    assert_eq!(denied.error_code(), -32001);
    assert_eq!(backend.seen_rpc("tools/call").len(), 1);
}

#[test]
fn tools_that_only_a_backend_knows_are_governed_too() {
    for second in [false, true] {
        let backends: Vec<Backend> = ["a", "b"]
            .into_iter()
            .take(1 + usize::from(second))
            .map(|name| Backend::start(name, &["echo", "free", "other", "ruled"]))
            .collect();
        let (prefix, mut urls) = (if second { "a-" } else { "" }, json!({}));
        for (key, backend) in ["a", "b"].into_iter().zip(&backends) {
            urls[key] = json!({"url": backend.url()});
        }
        let rule = |filters: &str| json!({"req-acc": "roles", "res-fil": filters, "permission": {"roles": "r"}});
        let host = json!({
            "backends": urls,
            "access_control": {"skipPathPrefixes": [format!("{prefix}free")],
                "toolsListAccessControl": {"mode": "permission"}},
            "rules": {"ruleBodies": {"cols": body(COLUMNS), "roles": body(ROLES)},
                "endpointRules": {format!("/{prefix}ruled@call"): rule(""),
                    format!("/{prefix}other@call"): rule("cols")}},
        });
        let gateway = Plan::document(json!({"virtual_hosts": {HOST: host}}))
            .with_tokens()
            .start();
        let named = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{prefix}{name}")).collect()
        };
        let mut stranger = client(&gateway, json!({}));
        assert_eq!(stranger.tool_names(), named(&["free"]));
        let mut caller = client(&gateway, json!({"role": "r"}));
        assert_eq!(caller.tool_names(), named(&["free", "other", "ruled"]));
        for (name, is_allowed) in [
            ("free", true),
            ("ruled", true),
            ("other", false),
            ("echo", false),
        ] {
            let response = caller.call("1", &format!("{prefix}{name}"), "{}");
            let expected = if is_allowed { None } else { Some(-32001) };
            let code = response.message()["error"]["code"].as_i64();
            assert_eq!(code, expected, "{name}");
        }
        assert_eq!(
            stranger
                .call("1", &format!("{prefix}ruled"), "{}")
                .error_code(),
            -32001
        );
        assert_eq!(backends[0].seen_rpc("tools/call").len(), 2);
    }
}
