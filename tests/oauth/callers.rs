//! A caller's token reaches the backend it is meant for, with every request, and no other backend.

use serde_json::{Value, json};

use crate::{
    AUDIENCE, HOST,
    issuer::Issuer,
    process::{Folder, run},
    session,
    support::{Asked, Backend, Gateway, McpClient, Plan, call_body, eventually},
    trusting,
};

const RESOURCE: &str = "https://backend.example/mcp";

/// A gateway with these backends.
fn gateway(issuer: &Issuer, backends: &Value) -> Gateway {
    Plan::document(json!({"virtual_hosts": {HOST: {"backends": backends}}}))
        .settings(trusting(&[issuer]))
        .start()
}

fn caller(backend: &Backend, resource: &str) -> Value {
    json!({"url": backend.url(), "backend_credential_mode": "caller", "backend_resource": resource})
}

/// A token for the gateway and these others.
fn token(issuer: &Issuer, others: &[&str]) -> String {
    let audiences: Vec<&str> = [AUDIENCE]
        .into_iter()
        .chain(others.iter().copied())
        .collect();
    issuer.token("first", "", json!({"aud": audiences}))
}

/// What all requests to it said in `Authorization`, each value once.
fn said(backend: &Backend) -> Vec<Option<String>> {
    let value = |asked: &Asked| asked.header("authorization").map(str::to_owned);
    let mut all: Vec<_> = backend.seen().iter().map(value).collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn a_token_that_is_meant_for_the_backend_goes_with_every_request() {
    for (resource, audience) in [
        (RESOURCE, RESOURCE),
        ("https://backend.example/mcp/", RESOURCE),
        ("https://backend.example/mcp#part", RESOURCE),
        ("HTTPS://Backend.Example:443/mcp", RESOURCE),
        ("https://backend.example", "https://backend.example"),
    ] {
        let (backend, issuer) = (Backend::start("a", &["t"]), Issuer::start());
        let gateway = gateway(&issuer, &json!({"a": caller(&backend, resource)}));
        let token = token(&issuer, &["x", audience]);
        let mut client = session(&gateway, &token);
        assert_eq!(client.tool_names(), ["t"], "{resource}");
        assert_eq!(client.call("1", "t", "{}").status, 200);
        let stream = client.stream();
        eventually("the backend's own stream is asked for", || {
            backend
                .seen()
                .iter()
                .any(|asked| asked.method == "GET")
                .then_some(())
        });
        drop(stream);
        assert_eq!(client.delete().status, 200);
        eventually("its session is ended", || {
            backend
                .seen()
                .iter()
                .any(|asked| asked.method == "DELETE")
                .then_some(())
        });
        assert_eq!(
            said(&backend),
            [Some(format!("Bearer {token}"))],
            "{resource}"
        );
    }
}

#[test]
fn one_audience_may_be_the_gateways_and_the_backends() {
    let (backend, issuer) = (Backend::start("a", &["t"]), Issuer::start());
    let mut rules = issuer.rules(Some(RESOURCE));
    rules.subject_prefix = "p:".into();
    let document =
        json!({"virtual_hosts": {HOST: {"backends": {"a": caller(&backend, RESOURCE)}}}});
    let gateway = Plan::document(document)
        .settings(move |settings| {
            settings.access.allow_anonymous = false;
            settings.auth.trusted_issuers = vec![rules];
        })
        .start();
    let token = issuer.token("first", RESOURCE, json!({}));
    let mut client = session(&gateway, &token);
    assert_eq!(client.tool_names(), ["t"]);
    assert_eq!(said(&backend), [Some(format!("Bearer {token}"))]);
}

#[test]
fn a_token_for_somebody_else_is_refused_before_any_traffic() {
    let (backend, issuer) = (Backend::start("a", &["t"]), Issuer::start());
    let gateway = gateway(&issuer, &json!({"a": caller(&backend, RESOURCE)}));
    for others in [
        &[][..],
        &["https://other.example/mcp"],
        &["https://backend.example"],
        &["https://backend.example/mcp/"],
        &["https://backend.example/mcp/more"],
        &["https://BACKEND.example/mcp"],
        &["http://backend.example/mcp"],
        &["backend.example/mcp"],
    ] {
        let mut client = session(&gateway, &token(&issuer, others));
        let answer = client.call("1", "t", "{}");
        assert_eq!(
            (answer.status, answer.error_code()),
            (200, -32000),
            "{others:?}"
        );
        let message = &answer.message()["error"]["message"];
        assert_eq!(
            message,
            "Routing problem... the caller's token is not meant for the backend"
        );
        assert_eq!(client.tool_names(), [] as [&str; 0]);
        let level =
            r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}"#;
        assert_eq!(client.post(level).status, 200);
        let said = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
        assert_eq!(client.post(said).status, 202);
        drop(client.stream());
        assert_eq!(client.delete().status, 200);
    }
    assert_eq!(backend.connection_count(), 0);
    assert_eq!(backend.seen().len(), 0);
}

#[test]
fn each_backend_gets_its_own_and_the_others_are_served() {
    let [one, two, plain, none] =
        ["one", "two", "plain", "none"].map(|name| Backend::start(name, &["t"]));
    let issuer = Issuer::start();
    let gateway = gateway(
        &issuer,
        &json!({
            "one": caller(&one, "https://one.example"),
            "two": caller(&two, "https://two.example"),
            "plain": {"url": plain.url()},
            "none": {
                "url": none.url(), "backend_credential_mode": "none",
                "passthrough_headers": ["Authorization"],
                "add_headers": {"authorization": "Bearer own"},
            },
        }),
    );
    let token = token(&issuer, &["https://one.example"]);
    let mut client = session(&gateway, &token);
    assert_eq!(client.tool_names(), ["none-t", "one-t", "plain-t"]);
    for (name, code) in [
        ("one-t", None),
        ("plain-t", None),
        ("none-t", None),
        ("two-t", Some(-32000)),
    ] {
        let answer = client.post(call_body("1", name, "{}"));
        match code {
            None => assert!(answer.result().is_object(), "{name}"),
            Some(code) => assert_eq!(answer.error_code(), code, "{name}"),
        }
    }
    assert_eq!(said(&one), [Some(format!("Bearer {token}"))]);
    assert_eq!(two.connection_count(), 0);
    assert_eq!(said(&plain), [None]);
    assert_eq!(said(&none), [None]);
}

#[test]
fn another_token_of_the_same_user_is_looked_at_by_itself() {
    let (backend, issuer) = (Backend::start("a", &["t"]), Issuer::start());
    let gateway = gateway(&issuer, &json!({"a": caller(&backend, RESOURCE)}));
    let meant = token(&issuer, &[RESOURCE]);
    let mut client = session(&gateway, &meant);
    assert_eq!(client.call("1", "t", "{}").status, 200);
    let before = backend.seen().len();
    // A session that is open already gives nothing away.
    client.token = Some(token(&issuer, &[]));
    assert_eq!(client.call("2", "t", "{}").error_code(), -32000);
    assert_eq!(client.tool_names(), [] as [&str; 0]);
    let said_something = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    assert_eq!(client.post(said_something).status, 202);
    assert_eq!(backend.seen().len(), before);
    // And a newer one is what goes on from then on, in what the gateway sends by itself too.
    let newer = issuer.token(
        "first",
        "",
        json!({"aud": [AUDIENCE, RESOURCE], "jti": "newer"}),
    );
    client.token = Some(newer.clone());
    backend.lose_sessions();
    assert_eq!(client.call("3", "t", "{}").status, 200);
    assert_eq!(client.delete().status, 200);
    let after = eventually("its session is ended", || {
        let seen = backend.seen().split_off(before);
        seen.iter()
            .any(|asked| asked.method == "DELETE")
            .then_some(seen)
    });
    for asked in after {
        let value = asked.header("authorization");
        assert_eq!(value, Some(&*format!("Bearer {newer}")), "{}", asked.method);
    }
    assert_eq!(backend.seen_rpc("initialize").len(), 2);
}

#[test]
fn nobody_without_a_token_is_served_by_such_a_backend() {
    let backend = Backend::start("a", &["t"]);
    let document =
        json!({"virtual_hosts": {HOST: {"backends": {"a": caller(&backend, RESOURCE)}}}});
    let gateway = Plan::document(document).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(client.call("1", "t", "{}").error_code(), -32000);
    assert_eq!(backend.connection_count(), 0);
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let folder = Folder::new();
    for (members, expected) in [
        (
            json!({"backend_credential_mode": "exchange"}),
            "is not supported",
        ),
        (
            json!({"backendCredentialMode": "exchange"}),
            "is not supported",
        ),
        (
            json!({"backend_credential_mode": "service"}),
            "sends what `auth` names",
        ),
        (
            json!({"backend_credential_mode": "caller"}),
            "needs `backend_resource`",
        ),
        (
            json!({"backend_credential_mode": "caller", "backend_resource": "backend"}),
            "needs `backend_resource`",
        ),
        (
            json!({
                "backend_credential_mode": "caller", "backend_resource": "https://a.example",
                "auth": {"type": "bearer", "token": "env:CARGO_PKG_NAME"},
            }),
            "goes with `service` only",
        ),
        (
            json!({
                "backend_credential_mode": "caller", "backend_resource": "https://a.example",
                "transport": "SSE",
            }),
            "needs Streamable HTTP",
        ),
        (
            json!({"backend_credential_mode": "caller-compat"}),
            "unknown variant",
        ),
    ] {
        let mut backend = json!({"url": "https://a.example/mcp"});
        for (name, value) in members.as_object().unwrap() {
            backend[name] = value.clone();
        }
        let document = json!({"virtual_hosts": {"v": {"backends": {"a": backend}}}});
        let file = folder.write("config.json", &document.to_string());
        let output = run(&folder, &["config", "check", &file], "");
        assert_eq!(output.code, 2, "{members}: {}", output.stderr);
        assert!(
            output.stderr.contains(expected),
            "{members}: {}",
            output.stderr
        );
    }
    let sound = json!({
        "url": "https://a.example/mcp", "backendCredentialMode": "caller",
        "backendResource": "https://a.example/mcp",
    });
    let document = json!({"virtual_hosts": {"v": {"backends": {"a": sound}}}});
    let file = folder.write("config.json", &document.to_string());
    let output = run(&folder, &["config", "check", &file], "");
    assert_eq!(output.code, 0, "{}", output.stderr);
}
