//! Who asks and where: origin, host, path, method, token, configuration, limits of sessions.

use std::time::Duration;

use serde_json::json;
use shardgate::{
    config::redis_key::user_key,
    settings::{Redis, RedisConnection, StoreSource},
};

use crate::{
    LIST, TARGET, assert_rpc, assert_text, list,
    redis::Server,
    support::{Ask, Backend, McpClient, Plan, eventually},
};

const PROBLEM: &str = "Problem occurred retrieving the configuration";

fn config(backend: &Backend) -> serde_json::Value {
    json!({"virtual_hosts": {"main": {"backends": {"a": {"name": "a", "url": backend.url()}}}}})
}

#[test]
fn an_origin_that_is_not_allowed_is_403() {
    let gateway = Plan::of(&[]).start();
    let response = gateway
        .connect()
        .ask(&list().header("origin", "https://evil.example"));
    let body = "Forbidden: Origin header is not allowed";
    assert_text(&response, 403, Some("text/plain"), body);
}

#[test]
fn a_host_that_is_not_ours_is_403() {
    let gateway = Plan::of(&[]).start();
    for host in ["evil.example", "evil.example:80", "10.0.0.1"] {
        let response = gateway.connect().ask(&list().with("host", host));
        let body = "Forbidden: Host header is not allowed";
        assert_text(&response, 403, Some("text/plain"), body);
    }
}

#[test]
fn header_budgets_are_431() {
    let gateway = Plan::of(&[])
        .settings(|settings| {
            settings.limits.standard_header_count_max = 4;
            settings.limits.standard_header_value_bytes_max = 100;
            settings.limits.standard_header_total_bytes_max = 300;
        })
        .start();
    let method = || list().header("mcp-method", "tools/list");
    let many = (0..4).fold(method(), |ask, n| {
        ask.header(&format!("mcp-param-{n}"), "x")
    });
    let long = method().header("mcp-name", &"x".repeat(101));
    let total = (0..3).fold(method(), |ask, n| {
        ask.header(&format!("Mcp-Param-{n}"), &"x".repeat(90))
    });
    for ask in [many, long, total] {
        let body = "MCP standard header limits exceeded";
        assert_text(&gateway.connect().ask(&ask), 431, Some("text/plain"), body);
    }
    let within = method().header("mcp-name", &"x".repeat(100));
    assert_eq!(gateway.connect().ask(&within).status, 400, "no session");
}

#[test]
fn paths_that_are_not_ours_are_404_without_a_body() {
    let gateway = Plan::of(&[]).start();
    for path in [
        "/",
        "/foo",
        "/contextforge-rs/foo",
        "/servers/a/b/mcp",
        "/mcpx",
    ] {
        for method in ["POST", "GET", "DELETE"] {
            let mut ask = Ask::post(path, if method == "POST" { LIST } else { "" });
            ask.method = method.to_owned();
            let response = gateway.connect().ask(&ask);
            assert_text(&response, 404, None, "");
        }
    }
}

#[test]
fn a_path_below_an_endpoint_is_400() {
    let gateway = Plan::of(&[]).start();
    for path in [
        "/servers/main/mcp/any",
        "/contextforge-rs/servers/main/mcp/any/thing",
    ] {
        let response = gateway.connect().ask(&Ask::post(path, LIST));
        // Sic: one r. Front doors match these bytes.
        let body = "Problem occured retrieving the configuration";
        assert_text(&response, 400, Some("text/plain"), body);
    }
}

#[test]
fn other_methods_are_405_with_allow() {
    let gateway = Plan::of(&[]).start();
    let mut documents = Vec::new();
    for method in [
        "PUT", "PATCH", "TRACE", "QUERY", "PROPFIND", "post", "OPTIONS", "HEAD", "CONNECT",
    ] {
        let target = if method == "CONNECT" {
            "localhost:80"
        } else {
            TARGET
        };
        let mut connection = gateway.connect();
        // `main` is there: it is the method alone that is wrong.
        let response = connection.ask(&Ask::new(method, target));
        assert_eq!(response.status, 405, "{method}");
        let allow = response.header("allow").unwrap().to_owned();
        for allowed in ["GET", "POST", "DELETE"] {
            assert!(
                allow.split(", ").any(|word| word == allowed),
                "{method}: {allow}"
            );
        }
        if method == "HEAD" {
            assert_eq!(response.body.len(), 0);
            // A body after a HEAD's answer would be read as the next answer.
            assert_rpc(&connection.ask(&list()), 400, "null", -32000, "after HEAD");
        } else {
            documents.push(response.text().to_owned());
        }
    }
    documents.pop();
    assert!(
        documents.iter().all(|text| text == "Method Not Allowed"),
        "{documents:?}"
    );
}

#[test]
fn no_valid_token_is_401_with_a_challenge_and_no_body() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::document(json!({"users": {"*": config(&backend)}}))
        .with_tokens()
        .start();
    let good = gateway.token("somebody");
    let (front, signature) = good.rsplit_once('.').unwrap();
    let forged: String = signature.chars().rev().collect();
    let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.";
    for value in [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some("Basic dTpw".to_owned()),
        Some(good.clone()),
        Some(format!("bearer {good}")),
        Some(format!("Bearer  {good}")),
        Some(format!("Bearer {front}.{forged}")),
        Some(format!("Bearer {front}.")),
        Some(format!("Bearer {none}")),
        Some("Bearer x".to_owned()),
    ] {
        for ask in [
            McpClient::initialize(TARGET),
            list(),
            Ask::new("DELETE", TARGET),
        ] {
            let ask = match &value {
                Some(value) => ask.header("authorization", value),
                None => ask,
            };
            let response = gateway.connect().ask(&ask);
            assert_text(&response, 401, Some("text/plain"), "");
            let challenge = response.header("www-authenticate").unwrap();
            assert!(challenge.starts_with("Bearer"), "{challenge}");
            assert!(!challenge.contains(&good));
        }
    }
    let ask = McpClient::initialize(TARGET).header("authorization", &format!("Bearer {good}"));
    assert_eq!(gateway.connect().ask(&ask).status, 200);
    assert_eq!(backend.seen_rpc("initialize").len(), 1);
}

#[test]
fn a_caller_without_a_configuration_is_400() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::document(json!({"users": {"known": config(&backend)}}))
        .with_tokens()
        .start();
    let token = format!("Bearer {}", gateway.token("stranger"));
    for ask in [
        list(),
        Ask::new("DELETE", TARGET),
        McpClient::initialize("/servers/nope/mcp"),
    ] {
        let response = gateway.connect().ask(&ask.header("authorization", &token));
        assert_text(&response, 400, Some("text/plain"), PROBLEM);
    }
}

#[test]
fn a_configuration_that_cannot_be_read_is_500() {
    let redis = Server::start(&[]);
    let port = redis.port;
    let mut admin = redis.admin();
    for (subject, value) in [
        ("text", &b"not MessagePack"[..]),
        ("cut", b"\x81\xad"),
        ("empty", b""),
    ] {
        admin.order(&[b"SET", &user_key(subject), value]);
    }
    let gateway = Plan::without_document()
        .with_tokens()
        .settings(move |settings| {
            settings.store.source = StoreSource::Redis(Redis {
                host: "127.0.0.1".to_owned(),
                port,
                connection: RedisConnection::PlainText,
                username: None,
                password: None,
                database: 0,
            });
        })
        .start();
    for subject in ["text", "cut", "empty"] {
        let token = format!("Bearer {}", gateway.token(subject));
        let response = gateway
            .connect()
            .ask(&list().header("authorization", &token));
        assert_text(&response, 500, Some("text/plain"), PROBLEM);
    }
    let token = format!("Bearer {}", gateway.token("nobody"));
    let response = gateway
        .connect()
        .ask(&list().header("authorization", &token));
    assert_text(&response, 400, Some("text/plain"), PROBLEM);
}

#[test]
fn an_unknown_virtual_host_is_404() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let body = r#"{"detail":"Server not found"}"#;
    for target in [
        "/servers/nope/mcp",
        "/contextforge-rs/servers/MAIN/mcp",
        "/servers/m%61in/mcp",
    ] {
        for ask in [
            Ask::post(target, LIST),
            McpClient::initialize(target),
            Ask::new("GET", target),
        ] {
            let response = gateway.connect().ask(&ask);
            assert_text(&response, 404, Some("application/json"), body);
        }
    }
}

#[test]
fn session_limits_are_503_and_429_with_retry_after() {
    let backend = Backend::start("a", &["one"]);
    for (total, each, status) in [(1, 1, 503), (9, 1, 429)] {
        let gateway = Plan::one(&backend)
            .shards(1)
            .settings(move |settings| {
                settings.limits.sessions_max = total;
                settings.limits.sessions_per_principal_max = each;
            })
            .start();
        let mut client = McpClient::open(&gateway);
        let response = gateway.connect().ask(&McpClient::initialize(TARGET));
        assert_rpc(&response, status, "null", -32000, "one session too many");
        let seconds: u32 = response.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds));
        assert_eq!(client.tool_names(), ["one"], "the first one lives on");
        assert_eq!(client.delete().status, 200);
        assert_eq!(
            gateway.connect().ask(&McpClient::initialize(TARGET)).status,
            200
        );
    }
}

/// Nobody has to wait for the place of a session that nobody uses.
#[test]
fn a_session_that_expired_makes_room_and_is_404() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend)
        .shards(1)
        .settings(|settings| {
            settings.limits.sessions_max = 1;
            settings.timeouts.session_idle = Duration::from_millis(200);
        })
        .start();
    let mut first = McpClient::open(&gateway);
    eventually("there is room", || {
        let response = gateway.connect().ask(&McpClient::initialize(TARGET));
        match response.status {
            200 => Some(()),
            status => {
                assert_eq!(status, 503);
                None
            }
        }
    });
    let response = first.list();
    assert_rpc(&response, 404, "null", -32001, "it is gone");
    eventually("its backend session is ended", || {
        let seen = backend.seen();
        let mut ends = seen.iter().filter(|asked| asked.method == "DELETE");
        ends.next().map(drop)
    });
}
