//! The same for requests without a session (revision 2026-07-28).

use serde_json::{Value, json};

use crate::{
    AUDIENCE, HOST, TARGET,
    issuer::Issuer,
    support::{Ask, Asked, Backend, Gateway, Plan, Response, Wire, eventually},
    trusting,
};

const RESOURCE: &str = "https://backend.example/mcp";

/// A backend without sessions.
fn backend(name: &str) -> Backend {
    Backend::scripted(name, &["t"], |asked: &Asked, wire: &mut Wire<'_>| {
        let result = match asked.rpc_method()?.as_str() {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}, "resources": {"subscribe": true}},
                "ttlMs": 60_000, "cacheScope": "private",
            }),
            "tools/list" => json!({
                "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private",
                "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
            }),
            "tools/call" => json!({
                "resultType": "complete", "content": [{"type": "text", "text": "done"}],
            }),
            _ => return None,
        };
        wire.result(asked, &result.to_string());
        Some(())
    })
}

/// A gateway with these backends that trusts this issuer.
fn gateway(issuer: &Issuer, backends: &Value, enforce: bool) -> Gateway {
    Plan::document(json!({"virtual_hosts": {HOST: {"backends": backends}}}))
        .shards(1)
        .settings(trusting(&[issuer]))
        .settings(move |settings| settings.auth.enforce_scopes = enforce)
        .start()
}

/// A request as its clients send it.
fn ask(method: &str, name: Option<&str>, params: Value, token: &str) -> Ask {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let ask = Ask::post(TARGET, body.to_string())
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("authorization", &format!("Bearer {token}"));
    match name {
        Some(name) => ask.header("mcp-name", name),
        None => ask,
    }
}

fn call(gateway: &Gateway, name: &str, token: &str) -> Response {
    let params = json!({"name": name, "arguments": {}});
    gateway
        .connect()
        .ask(&ask("tools/call", Some(name), params, token))
}

fn list(gateway: &Gateway, token: &str) -> Response {
    gateway
        .connect()
        .ask(&ask("tools/list", None, json!({}), token))
}

fn names(answer: &Response) -> Vec<String> {
    let result = answer.result();
    let tools = result["tools"].as_array().unwrap();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

#[test]
fn each_operation_needs_its_own_scope() {
    let (backend, issuer) = (backend("a"), Issuer::start());
    let backends = json!({"a": {"url": backend.url(), "protocol": "stateless"}});
    let gateway = gateway(&issuer, &backends, true);
    let token = |scope: &str| issuer.token("first", AUDIENCE, json!({"scope": scope}));
    let uris = json!({"notifications": {"resourceSubscriptions": ["a:1"]}});
    for (method, name, params, scope) in [
        ("tools/list", None, json!({}), "tools.read"),
        (
            "tools/call",
            Some("t"),
            json!({"name": "t", "arguments": {}}),
            "tools.execute",
        ),
        (
            "resources/read",
            Some("a:1"),
            json!({"uri": "a:1"}),
            "resources.read",
        ),
        ("prompts/list", None, json!({}), "prompts.read"),
        ("subscriptions/listen", None, uris, "resources.read"),
    ] {
        let others = [
            "tools.read",
            "tools.execute",
            "resources.read",
            "prompts.read",
        ];
        let others: Vec<&str> = others.into_iter().filter(|other| *other != scope).collect();
        let lacking = ask(method, name, params, &token(&others.join(" ")));
        let answer = gateway.connect().ask(&lacking);
        assert_eq!(answer.status, 403, "{method}: {}", answer.text());
        let expected =
            format!("Bearer error=\"insufficient_scope\", scope=\"servers.use {scope}\"");
        assert_eq!(answer.header("www-authenticate"), Some(&*expected));
    }
    assert_eq!(backend.seen().len(), 0, "nothing was asked of the backend");
    let discover = ask("server/discover", None, json!({}), &token("servers.use"));
    assert_eq!(gateway.connect().ask(&discover).status, 200);
    assert_eq!(names(&list(&gateway, &token("tools.read"))), ["t"]);
    assert_eq!(call(&gateway, "t", &token("tools.execute")).status, 200);
    let nothing = ask("server/discover", None, json!({}), &token("openid"));
    assert_eq!(gateway.connect().ask(&nothing).status, 403);
}

#[test]
fn a_callers_token_reaches_the_backend_it_is_meant_for_and_no_other() {
    let [one, two, plain] = ["one", "two", "plain"].map(backend);
    let issuer = Issuer::start();
    let caller = |backend: &Backend, resource: &str| {
        json!({
            "url": backend.url(), "protocol": "stateless",
            "backendCredentialMode": "caller", "backendResource": resource,
        })
    };
    let gateway = gateway(
        &issuer,
        &json!({
            "one": caller(&one, RESOURCE),
            "two": caller(&two, "https://two.example"),
            "plain": {"url": plain.url(), "protocol": "stateless"},
        }),
        false,
    );
    let token = |others: &[&str]| {
        let all: Vec<&str> = [AUDIENCE]
            .into_iter()
            .chain(others.iter().copied())
            .collect();
        issuer.token("first", "", json!({"aud": all}))
    };
    let (meant, other) = (token(&[RESOURCE]), token(&["https://other.example"]));
    // The same user by two tokens: what one may see is not remembered for the other.
    for _ in 0..2 {
        assert_eq!(names(&list(&gateway, &meant)), ["one-t", "plain-t"]);
        assert_eq!(names(&list(&gateway, &other)), ["plain-t"]);
    }
    assert_eq!(call(&gateway, "one-t", &meant).status, 200);
    for (name, token) in [("two-t", &meant), ("one-t", &other), ("two-t", &other)] {
        let answer = call(&gateway, name, token);
        assert_eq!(
            (answer.status, answer.error_code()),
            (403, -31002),
            "{name}"
        );
        assert_eq!(
            answer.message()["error"]["data"],
            json!({"reason": "audience"})
        );
        assert_eq!(answer.header("www-authenticate"), None);
    }
    assert_eq!(call(&gateway, "plain-t", &other).status, 200);
    assert_eq!(two.connection_count(), 0);
    for asked in one.seen() {
        let value = asked.header("authorization");
        assert_eq!(
            value,
            Some(&*format!("Bearer {meant}")),
            "{:?}",
            asked.rpc_method()
        );
    }
    assert!(
        plain
            .seen()
            .iter()
            .all(|asked| asked.header("authorization").is_none())
    );
    // A newer token of the same kind takes the place of the older one.
    let newer = issuer.token(
        "first",
        "",
        json!({"aud": [AUDIENCE, RESOURCE], "jti": "newer"}),
    );
    let before = one.seen().len();
    assert_eq!(call(&gateway, "one-t", &newer).status, 200);
    let seen = eventually("it was asked", || {
        Some(one.seen().split_off(before)).filter(|seen| !seen.is_empty())
    });
    for asked in seen {
        assert_eq!(
            asked.header("authorization"),
            Some(&*format!("Bearer {newer}"))
        );
    }
}

#[test]
fn a_token_is_for_the_endpoint_it_names() {
    let (backend, issuer) = (backend("a"), Issuer::start());
    let backends = json!({"a": {"url": backend.url(), "protocol": "stateless"}});
    let rules = issuer.rules(None);
    let gateway = Plan::document(json!({"virtual_hosts": {HOST: {"backends": backends}}}))
        .settings(move |settings| {
            settings.access.allow_anonymous = false;
            settings.access.public_url = Some("https://mcp.example".to_owned());
            settings.auth.trusted_issuers = vec![rules];
        })
        .start();
    let good = issuer.token("first", &format!("https://mcp.example{TARGET}"), json!({}));
    let other = issuer.token("first", "https://mcp.example/mcp", json!({}));
    assert_eq!(names(&list(&gateway, &good)), ["t"]);
    let answer = list(&gateway, &other);
    assert_eq!((answer.status, answer.body.len()), (401, 0));
    let url = format!("https://mcp.example/.well-known/oauth-protected-resource{TARGET}");
    let expected = format!("Bearer error=\"invalid_token\", resource_metadata=\"{url}\"");
    assert_eq!(answer.header("www-authenticate"), Some(&*expected));
}
