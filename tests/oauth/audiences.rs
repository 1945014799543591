//! Each endpoint is a resource of its own, and says where tokens for it are to be had.

use serde_json::{Value, json};

use crate::{
    issuer::Issuer,
    open_at, session,
    support::{Ask, Backend, Gateway, McpClient, Plan},
};

const PUBLIC: &str = "https://mcp.example";
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
const PATHS: [&str; 4] = [
    "/mcp",
    "/servers/main/mcp",
    "/servers/other/mcp",
    "/contextforge-rs/servers/main/mcp",
];

fn document(backend: &Backend) -> Value {
    let host = json!({"backends": {"a": {"url": backend.url()}}});
    json!({"virtual_hosts": {"main": host, "other": host, "default": host}})
}

/// A gateway whose tokens must name the endpoint.
fn gateway(backend: &Backend, issuer: &Issuer) -> Gateway {
    let rules = issuer.rules(None);
    Plan::document(document(backend))
        .settings(move |settings| {
            settings.access.allow_anonymous = false;
            settings.access.public_url = Some(PUBLIC.to_owned());
            settings.auth.trusted_issuers = vec![rules];
        })
        .start()
}

#[test]
fn a_token_is_for_the_endpoint_it_names_and_for_no_other() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    let status = |path: &str, audience: Value| {
        let token = issuer.token("first", "", json!({"aud": audience}));
        open_at(&gateway, path, &token).status
    };
    for path in PATHS {
        let own = format!("{PUBLIC}{path}");
        for audience in PATHS {
            let expected = if audience == path { 200 } else { 401 };
            // One token is remembered, and is no good elsewhere all the same.
            for _ in 0..3 {
                let audience = format!("{PUBLIC}{audience}");
                assert_eq!(status(path, json!(audience)), expected, "{path} {audience}");
            }
        }
        for (audience, expected) in [
            (json!([own, "other"]), 200),
            (json!(["other"]), 401),
            (json!([]), 401),
            (json!(PUBLIC), 401),
            (json!(format!("{own}/")), 401),
            (json!(format!("{own}?x=1")), 401),
            (json!(own.replace("https", "http")), 401),
            (json!(own.to_uppercase()), 401),
            (json!("mcpgateway-api"), 401),
        ] {
            assert_eq!(
                status(path, audience.clone()),
                expected,
                "{path} {audience}"
            );
        }
        // The slash at a path's end is not a part of it.
        let token = issuer.token("first", &own, json!({}));
        assert_eq!(open_at(&gateway, &format!("{path}/"), &token).status, 200);
    }
    // Nor may it be used in a session that was opened with a good one.
    let good = issuer.token("first", &format!("{PUBLIC}/servers/main/mcp"), json!({}));
    let mut client = session(&gateway, &good);
    assert_eq!(client.tool_names(), ["one"]);
    client.token = Some(issuer.token("first", &format!("{PUBLIC}/mcp"), json!({})));
    assert_eq!(client.list().status, 401);
}

#[test]
fn the_control_planes_tokens_can_be_asked_to_name_the_endpoint_too() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::document(document(&backend))
        .with_tokens()
        .settings(|settings| {
            settings.access.public_url = Some(PUBLIC.to_owned());
            settings.auth.audience_is_resource = true;
        })
        .start();
    let plain = gateway.token("alice");
    for path in PATHS {
        assert_eq!(open_at(&gateway, path, &plain).status, 401, "{path}");
        let own = gateway.token_for("alice", &format!("{PUBLIC}{path}"));
        for other in PATHS {
            let expected = if other == path { 200 } else { 401 };
            assert_eq!(
                open_at(&gateway, other, &own).status,
                expected,
                "{path} {other}"
            );
        }
    }
    // There is no server to send clients to, so there is no document.
    let path = format!("{WELL_KNOWN}/mcp");
    assert_eq!(gateway.connect().ask(&Ask::new("GET", &path)).status, 404);
}

#[test]
fn every_endpoint_has_its_document_and_every_challenge_points_to_it() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    for path in PATHS {
        let own = format!("{PUBLIC}{path}");
        let answer = gateway
            .connect()
            .ask(&Ask::new("GET", &format!("{WELL_KNOWN}{path}")));
        let expected = json!({
            "resource": own,
            "authorization_servers": [issuer.name()],
            "bearer_methods_supported": ["header"],
            "resource_name": "shardgate",
        });
        assert_eq!((answer.status, answer.json()), (200, expected));
        let pointer = format!("resource_metadata=\"{PUBLIC}{WELL_KNOWN}{path}\"");
        let answer = gateway.connect().ask(&McpClient::initialize(path));
        assert_eq!(answer.status, 401);
        assert_eq!(
            answer.header("www-authenticate"),
            Some(&*format!("Bearer {pointer}"))
        );
        // Whatever is wrong with a token, the answer is the same.
        let foreign = issuer.token("first", "other", json!({}));
        let old = issuer.token("first", &own, json!({"exp": 1}));
        for token in ["x.y.z", &foreign, &old] {
            let answer = open_at(&gateway, path, token);
            assert_eq!((answer.status, answer.body.len()), (401, 0));
            let expected = format!("Bearer error=\"invalid_token\", {pointer}");
            assert_eq!(answer.header("www-authenticate"), Some(&*expected));
        }
    }
    let root = gateway.connect().ask(&Ask::new("GET", WELL_KNOWN)).json();
    assert_eq!(root["resource"], PUBLIC);
}

#[test]
fn a_token_is_wanted_with_every_request_and_in_the_header_alone() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    let path = "/servers/main/mcp";
    let good = issuer.token("first", &format!("{PUBLIC}{path}"), json!({}));
    let mut client = session(&gateway, &good);
    let list = client.request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    assert_eq!(client.connection.ask(&list).status, 200);
    // On the same connection and in the same session.
    for ask in [
        list.clone().without("authorization"),
        client.bare("GET").without("authorization"),
        client.bare("DELETE").without("authorization"),
    ] {
        assert_eq!(client.connection.ask(&ask).status, 401, "{}", ask.method);
    }
    for query in ["access_token", "token", "authorization"] {
        let target = format!("{path}?{query}={good}");
        let ask = McpClient::initialize(&target);
        assert_eq!(gateway.connect().ask(&ask).status, 401, "{query}");
    }
    let body = format!(r#"{{"access_token":"{good}"}}"#);
    assert_eq!(gateway.connect().ask(&Ask::post(path, body)).status, 401);
    assert_eq!(client.tool_names(), ["one"], "the session has lost nothing");
}
