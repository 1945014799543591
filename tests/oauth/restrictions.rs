//! What the control plane restricts its tokens to: a server, addresses, hours, teams, permissions.

use serde_json::{Value, json};

use crate::{
    issuer::now_unix_s,
    open_at,
    support::{Backend, Gateway, McpClient, Plan, Response, call_body},
};

const SERVERS: [&str; 2] = ["/servers/main/mcp", "/servers/team/mcp"];

/// A gateway with a virtual host of everyone's and one of the team `blue`.
fn gateway(backend: &Backend, enforce: bool) -> Gateway {
    let backends = json!({"a": {"url": backend.url()}});
    let hosts = json!({
        "main": {"backends": backends},
        "team": {"backends": backends, "teams": ["blue", "green"]},
    });
    Plan::document(json!({"users": {"*": {"virtual_hosts": hosts}}}))
        .with_tokens()
        .settings(move |settings| settings.auth.enforce_scopes = enforce)
        .start()
}

/// A token as the control plane makes them, with other `scopes` members and `teams`.
fn token(gateway: &Gateway, scopes: &Value, teams: Option<Value>, is_admin: bool) -> String {
    let mut all = json!({
        "permissions": [], "ip_restrictions": [], "server_id": null, "time_restrictions": {},
    });
    for (name, value) in scopes.as_object().unwrap() {
        all[name] = value.clone();
    }
    let mut claims = json!({
        "sub": "alice", "jti": "j", "iss": "mcpgateway", "aud": "mcpgateway-api",
        "exp": now_unix_s() + 600, "scopes": all,
        "user": {"email": "a@b", "is_admin": is_admin, "auth_provider": "api_token"},
    });
    if let Some(teams) = teams {
        claims["teams"] = teams;
    }
    gateway.token_with(&claims)
}

fn assert_denied(answer: &Response, why: &str) {
    assert_eq!(answer.status, 403, "{}", answer.text());
    // Not for want of a scope: another token of the same kind would not help.
    assert_eq!(answer.header("www-authenticate"), None);
    assert_eq!(
        answer.json(),
        json!({"error": "access_denied", "error_description": why})
    );
}

#[test]
fn each_restriction_is_kept() {
    let backend = Backend::start("a", &["one"]);
    let gateway = gateway(&backend, true);
    let (address, time, server) = (
        Some("the token may not be used from this address"),
        Some("the token may not be used at this time"),
        Some("the token is not for this server"),
    );
    for (scopes, denied) in [
        (json!({}), None),
        (json!({"server_id": "main"}), None),
        (json!({"server_id": ""}), None),
        (json!({"server_id": "team"}), server),
        (json!({"server_id": "Main"}), server),
        (json!({"ip_restrictions": ["127.0.0.1"]}), None),
        (
            json!({"ip_restrictions": ["10.0.0.0/8", "127.0.0.0/8"]}),
            None,
        ),
        (
            json!({"ip_restrictions": ["nonsense", "::ffff:127.0.0.1"]}),
            None,
        ),
        (json!({"ip_restrictions": ["127.0.0.2"]}), address),
        (json!({"ip_restrictions": ["10.0.0.0/8", "::1"]}), address),
        (json!({"ip_restrictions": ["nonsense"]}), address),
        (json!({"time_restrictions": null}), None),
        (json!({"time_restrictions": {"weekdays_only": false}}), None),
        (json!({"time_restrictions": {"unknown": true}}), None),
        (json!({"time_restrictions": "never"}), time),
        (json!({"time_restrictions": [1]}), time),
        (json!({"permissions": ["tools.read"]}), None),
    ] {
        let token = token(&gateway, &scopes, None, false);
        let answer = open_at(&gateway, SERVERS[0], &token);
        match denied {
            None => assert_eq!(answer.status, 200, "{scopes}"),
            Some(why) => assert_denied(&answer, why),
        }
    }
    // What a proxy says of the address is not believed.
    let elsewhere = token(
        &gateway,
        &json!({"ip_restrictions": ["192.0.2.1"]}),
        None,
        false,
    );
    for header in ["x-forwarded-for", "x-real-ip", "forwarded"] {
        let ask = McpClient::initialize(SERVERS[0])
            .header("authorization", &format!("Bearer {elsewhere}"))
            .header(header, "192.0.2.1");
        assert_denied(&gateway.connect().ask(&ask), address.unwrap());
    }
}

#[test]
fn a_server_is_one_by_every_path_to_it() {
    let backend = Backend::start("a", &["one"]);
    let host = json!({"backends": {"a": {"url": backend.url()}}});
    let gateway = Plan::document(json!({"virtual_hosts": {"default": host, "other": host}}))
        .with_tokens()
        .settings(|settings| settings.auth.enforce_scopes = true)
        .start();
    for (server, path, status) in [
        ("default", "/mcp", 200),
        ("default", "/servers/default/mcp", 200),
        ("default", "/contextforge-rs/servers/default/mcp", 200),
        ("default", "/servers/other/mcp", 403),
        ("other", "/mcp", 403),
        ("other", "/servers/default/mcp", 403),
        ("other", "/servers/other/mcp", 200),
    ] {
        let token = token(&gateway, &json!({"server_id": server}), None, false);
        assert_eq!(
            open_at(&gateway, path, &token).status,
            status,
            "{server} {path}"
        );
    }
}

#[test]
fn a_virtual_host_of_a_team_is_reached_by_its_tokens() {
    let backend = Backend::start("a", &["one"]);
    let gateway = gateway(&backend, true);
    for (teams, is_admin, may) in [
        (Some(json!(["blue"])), false, true),
        (Some(json!(["red", "green"])), false, true),
        (Some(json!(null)), true, true),
        (Some(json!(["red"])), false, false),
        (Some(json!(["red"])), true, false),
        (Some(json!(["Blue"])), false, false),
        (Some(json!([])), true, false),
        (Some(json!(null)), false, false),
        (None, true, false),
    ] {
        let token = token(&gateway, &json!({}), teams.clone(), is_admin);
        assert_eq!(
            open_at(&gateway, SERVERS[0], &token).status,
            200,
            "{teams:?}"
        );
        let answer = open_at(&gateway, SERVERS[1], &token);
        match may {
            true => assert_eq!(answer.status, 200, "{teams:?}"),
            false => assert_denied(&answer, "the server belongs to none of the token's teams"),
        }
    }
}

#[test]
fn permissions_of_the_control_plane_narrow_what_it_lets_do() {
    let backend = Backend::start("a", &["one"]);
    let gateway = gateway(&backend, true);
    for (permissions, lists, calls) in [
        (json!([]), 200, 200),
        (json!(["*"]), 200, 200),
        (json!(["tools.read"]), 200, 403),
        (json!(["tools.execute"]), 403, 200),
        (json!(["servers.use"]), 403, 403),
    ] {
        let token = token(&gateway, &json!({"permissions": permissions}), None, false);
        let mut client = McpClient::open_on(&gateway, "main", Some(&token));
        assert_eq!(client.list().status, lists, "{permissions}");
        let call = client.post(call_body("1", "one", "{}"));
        assert_eq!(call.status, calls, "{permissions}");
    }
}

#[test]
fn nothing_of_it_counts_by_default() {
    let backend = Backend::start("a", &["one"]);
    let gateway = gateway(&backend, false);
    let scopes = json!({
        "server_id": "z", "permissions": ["x"], "ip_restrictions": ["192.0.2.1"],
        "time_restrictions": "never",
    });
    let token = token(&gateway, &scopes, None, false);
    for path in SERVERS {
        assert_eq!(open_at(&gateway, path, &token).status, 200);
    }
}
