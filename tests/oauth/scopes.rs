//! What a token may do: the scopes of each operation, asked for all at once when one is missing.

use serde_json::{Value, json};

use crate::{
    AUDIENCE, TARGET, gateway,
    issuer::Issuer,
    open_at, session,
    support::{Ask, Backend, Gateway, McpClient, Plan, Response},
    trusting,
};

/// A gateway that holds tokens to their scopes.
fn strict(backend: &Backend, issuer: &Issuer) -> Gateway {
    let plan = Plan::one(backend).settings(trusting(&[issuer]));
    plan.settings(|settings| settings.auth.enforce_scopes = true)
        .start()
}

fn with_scope(issuer: &Issuer, scope: &str) -> String {
    issuer.token("first", AUDIENCE, json!({"scope": scope}))
}

/// Methods, and the scope each needs besides the one to use a server.
const METHODS: [(&str, &str); 11] = [
    ("tools/list", "tools.read"),
    ("tools/call", "tools.execute"),
    ("completion/complete", "tools.read"),
    ("resources/list", "resources.read"),
    ("resources/templates/list", "resources.read"),
    ("resources/read", "resources.read"),
    ("resources/subscribe", "resources.read"),
    ("prompts/list", "prompts.read"),
    ("prompts/get", "prompts.read"),
    ("logging/setLevel", "admin.system_config"),
    ("vendor/anything", "tools.execute"),
];

fn body(method: &str) -> String {
    let params = json!({"name": "one", "uri": "u", "level": "info", "arguments": {}});
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

fn assert_lacking(answer: &Response, scopes: &str, pointer: &str) {
    assert_eq!(answer.status, 403, "{}", answer.text());
    let expected = format!("Bearer error=\"insufficient_scope\", scope=\"{scopes}\"{pointer}");
    assert_eq!(answer.header("www-authenticate"), Some(&*expected));
    let body =
        json!({"error": "insufficient_scope", "error_description": "the token lacks a scope"});
    assert_eq!(answer.json(), body);
}

#[test]
fn each_operation_needs_its_own_scope_and_names_all_it_needs() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = strict(&backend, &issuer);
    for (method, scope) in METHODS {
        // All but the one that is needed.
        let others = METHODS.map(|(_, other)| other);
        let others: Vec<&str> = others.into_iter().filter(|other| *other != scope).collect();
        let mut client = session(&gateway, &with_scope(&issuer, &others.join(" ")));
        let sent = backend.seen().len();
        assert_lacking(
            &client.post(body(method)),
            &format!("servers.use {scope}"),
            "",
        );
        assert_eq!(backend.seen().len(), sent, "{method} reached the backend");
        // The session goes on, and with the scope the method does.
        let kind = scope.split('.').next().unwrap();
        for more in [scope.to_owned(), format!("{kind}.*"), "*".to_owned()] {
            client.token = Some(with_scope(&issuer, &format!("servers.use {more}")));
            assert_eq!(
                client.post(body(method)).status,
                200,
                "{method} with {more}"
            );
        }
        for less in ["", "servers.use", "openid profile", "Tools.Read", "tools"] {
            client.token = Some(with_scope(&issuer, &format!("servers.use {less}")));
            assert_eq!(
                client.post(body(method)).status,
                403,
                "{method} with {less}"
            );
        }
    }
}

#[test]
fn to_use_a_server_at_all_is_a_scope_too() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = strict(&backend, &issuer);
    for (scope, may) in [
        ("servers.use", true),
        ("tools.read", true),
        ("prompts.read", true),
        ("*", true),
        ("a2a.read", false),
        ("openid", false),
        ("", false),
    ] {
        let token = with_scope(&issuer, scope);
        let answer = open_at(&gateway, TARGET, &token);
        if may {
            assert_eq!(answer.status, 200, "{scope}");
            let mut client = session(&gateway, &token);
            let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
            assert_eq!(client.post(ping).status, 200);
            assert_eq!(client.delete().status, 200);
        } else {
            assert_lacking(&answer, "servers.use", "");
        }
    }
    // A token that says nothing of scopes may do nothing.
    let silent = issuer.token("first", AUDIENCE, json!({"scope": null}));
    assert_lacking(&open_at(&gateway, TARGET, &silent), "servers.use", "");
    for members in [
        json!({"scope": null, "scp": ["servers.use"]}),
        json!({"scope": null, "scp": "openid servers.use"}),
        json!({"scope": null, "scopes": ["servers.use"]}),
    ] {
        let token = issuer.token("first", AUDIENCE, members.clone());
        assert_eq!(open_at(&gateway, TARGET, &token).status, 200, "{members}");
    }
}

#[test]
fn a_batch_is_done_whole_or_not_at_all() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = strict(&backend, &issuer);
    let token = with_scope(&issuer, "tools.read");
    let initialize = crate::support::initialize_body("0", "2025-03-26");
    let ask = Ask::post(TARGET, initialize).header("authorization", &format!("Bearer {token}"));
    let mut connection = gateway.connect();
    let opened = connection.ask(&ask);
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let mut batch = |bodies: &[String]| {
        let ask = Ask::post(TARGET, format!("[{}]", bodies.join(",")))
            .header("authorization", &format!("Bearer {token}"))
            .header("mcp-session-id", &session);
        connection.ask(&ask)
    };
    assert_eq!(batch(&[body("tools/list")]).status, 200);
    let listed = backend.seen_rpc("tools/list").len();
    let answer = batch(&[body("tools/list"), body("tools/call")]);
    assert_lacking(&answer, "servers.use tools.execute", "");
    assert_eq!(backend.seen_rpc("tools/list").len(), listed);
    assert_eq!(backend.seen_rpc("tools/call").len(), 0);
}

#[test]
fn clients_are_told_which_scopes_there_are() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let plan = Plan::one(&backend).settings(trusting(&[&issuer]));
    let gateway = plan
        .settings(|settings| {
            settings.auth.enforce_scopes = true;
            settings.access.public_url = Some("https://mcp.example".to_owned());
        })
        .start();
    let ordinary = "servers.use tools.read tools.execute resources.read prompts.read";
    let url = format!("https://mcp.example/.well-known/oauth-protected-resource{TARGET}");
    let pointer = format!(", resource_metadata=\"{url}\"");
    let path = url.strip_prefix("https://mcp.example").unwrap();
    let document = gateway.connect().ask(&Ask::new("GET", path)).json();
    let scopes: Vec<&str> = ordinary.split(' ').collect();
    assert_eq!(document["scopes_supported"], json!(scopes));
    let answer = gateway.connect().ask(&McpClient::initialize(TARGET));
    let expected = format!("Bearer scope=\"{ordinary}\"{pointer}");
    assert_eq!(answer.header("www-authenticate"), Some(&*expected));
    let answer = open_at(&gateway, TARGET, "x.y.z");
    let expected = format!("Bearer error=\"invalid_token\", scope=\"{ordinary}\"{pointer}");
    assert_eq!(answer.header("www-authenticate"), Some(&*expected));
    let mut client = session(&gateway, &with_scope(&issuer, "tools.read"));
    let answer = client.post(body("tools/call"));
    assert_lacking(&answer, "servers.use tools.execute", &pointer);
    // What is asked for is what is needed.
    client.token = Some(with_scope(&issuer, ordinary));
    assert_eq!(client.tool_names(), ["one"]);
    assert_eq!(client.post(body("tools/call")).status, 200);
    assert!(gateway.metric("shardgate_refused_total") > 0);
}

#[test]
fn scopes_say_nothing_unless_they_are_to() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    let members: [Value; 3] = [
        json!({"scope": ""}),
        json!({"scope": "openid"}),
        json!({"scopes": {"permissions": ["x"], "ip_restrictions": ["192.0.2.1"], "server_id": "z"}}),
    ];
    for members in members {
        let token = issuer.token("first", AUDIENCE, members);
        let mut client = session(&gateway, &token);
        assert_eq!(client.tool_names(), ["one"]);
        assert_eq!(client.post(body("tools/call")).status, 200);
    }
}
