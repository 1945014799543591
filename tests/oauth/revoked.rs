//! Tokens that were revoked before their time, by a local file and by the control plane's Redis.

use std::fs;

use serde_json::{Value, json};
use shardgate::{
    config::{encode::encode_map, redis_key::user_key},
    settings::{Redis, RedisConnection, StoreSource},
};

use crate::{
    issuer::now_unix_s,
    open_at,
    redis::Server,
    support::{Backend, Gateway, McpClient, Plan, eventually},
};

const TARGET: &str = "/servers/main/mcp";
const UNKNOWN: &str = "Service Unavailable: the list of revoked tokens cannot be read";

fn config(backend: &Backend) -> Value {
    json!({"virtual_hosts": {"main": {"backends": {"a": {"url": backend.url()}}}}})
}

/// A token of the control plane with this `jti`.
fn token(gateway: &Gateway, id: &str) -> String {
    gateway.token_with(&json!({
        "sub": "alice", "jti": id, "iss": "mcpgateway", "aud": "mcpgateway-api",
        "exp": now_unix_s() + 600,
        "user": {"email": "a@b", "is_admin": false, "auth_provider": "api_token"},
    }))
}

fn status(gateway: &Gateway, token: &str) -> u16 {
    open_at(gateway, TARGET, token).status
}

#[test]
fn a_file_revokes_tokens_while_the_gateway_runs() {
    let backend = Backend::start("a", &["one"]);
    let mut document = config(&backend);
    document["revoked_tokens"] = json!(["old"]);
    let gateway = Plan::document(document.clone()).with_tokens().start();
    let [old, good, other] = ["old", "good", "other"].map(|id| token(&gateway, id));
    assert_eq!(status(&gateway, &old), 401);
    let answer = open_at(&gateway, TARGET, &old);
    let challenge = "Bearer error=\"invalid_token\"";
    assert_eq!(answer.header("www-authenticate"), Some(challenge));
    let mut client = McpClient::open_on(&gateway, "main", Some(&good));
    assert_eq!(client.tool_names(), ["one"]);

    document["revoked_tokens"] = json!(["good"]);
    fs::write(gateway.config_path(), document.to_string()).unwrap();
    eventually("the token is refused in its session", || {
        (client.list().status == 401).then_some(())
    });
    eventually("the other is taken again", || {
        (status(&gateway, &old) == 200).then_some(())
    });
    assert_eq!(status(&gateway, &other), 200);
    assert!(gateway.metric("shardgate_tokens_revoked_total") > 0);
    // The user is not the token.
    client.token = Some(other);
    assert_eq!(client.tool_names(), ["one"]);
}

/// Gives `alice` a configuration.
fn publish(redis: &Server, backend: &Backend) {
    let user = serde_json::from_value(config(backend)).unwrap();
    redis
        .admin()
        .order(&[b"SET", &user_key("alice"), &encode_map(&user)]);
}

/// A gateway on this Redis, in which `alice` has a configuration.
fn on_redis(redis: &Server, backend: &Backend, checks: bool) -> Gateway {
    publish(redis, backend);
    let port = redis.port;
    Plan::without_document()
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
            settings.store.check_revoked_tokens = checks;
        })
        .start()
}

#[test]
fn the_control_plane_revokes_tokens_and_takes_it_back() {
    let (redis, backend) = (Server::start(&[]), Backend::start("a", &["one"]));
    let set = b"mcpgw:auth:revoked_tokens";
    redis.admin().ask(&[b"SADD", set, b"old"]);
    let gateway = on_redis(&redis, &backend, true);
    let [old, good, day] = ["old", "good", "day"].map(|id| token(&gateway, id));
    assert_eq!(status(&gateway, &old), 401);
    let mut client = McpClient::open_on(&gateway, "main", Some(&good));
    assert_eq!(client.tool_names(), ["one"]);
    assert_eq!(status(&gateway, &day), 200);

    // Redis tells of the change: nobody waits for the answer to become old.
    redis.admin().ask(&[b"SADD", set, b"good"]);
    eventually("the token is refused in its session", || {
        (client.list().status == 401).then_some(())
    });
    assert_eq!(status(&gateway, &day), 200);
    redis
        .admin()
        .order(&[b"SETEX", b"mcpgw:auth:revoke:day", b"86400", b"1"]);
    eventually("by its own key too", || {
        (status(&gateway, &day) == 401).then_some(())
    });
    redis.admin().ask(&[b"SREM", set, b"good"]);
    eventually("it is taken again", || {
        (client.list().status == 200).then_some(())
    });
    assert_eq!(status(&gateway, &old), 401);
}

#[test]
fn without_redis_a_token_that_was_good_is_taken_and_a_new_one_is_not() {
    let (redis, backend) = (Server::start(&[]), Backend::start("a", &["one"]));
    let gateway = on_redis(&redis, &backend, true);
    let [known, unknown] = ["known", "unknown"].map(|id| token(&gateway, id));
    // Known to both shards.
    let mut client = McpClient::open_on(&gateway, "main", Some(&known));
    eventually("all shards know it", || {
        assert_eq!(client.tool_names(), ["one"]);
        assert_eq!(status(&gateway, &known), 200);
        let verified = gateway.metric("shardgate_tokens_verified_total");
        (verified >= 2).then_some(())
    });
    redis.kill();
    eventually("Redis is missed", || {
        let answer = open_at(&gateway, TARGET, &unknown);
        (answer.status == 503).then(|| {
            assert_eq!(answer.text(), UNKNOWN);
            assert_eq!(answer.header("retry-after"), Some("1"));
        })
    });
    assert_eq!(client.tool_names(), ["one"]);
    assert_eq!(status(&gateway, &known), 200);
    redis.restart();
    publish(&redis, &backend);
    eventually("it is back", || {
        (status(&gateway, &unknown) == 200).then_some(())
    });
}

#[test]
fn redis_is_not_asked_unless_it_is_to_be() {
    let (redis, backend) = (Server::start(&[]), Backend::start("a", &["one"]));
    redis
        .admin()
        .ask(&[b"SADD", b"mcpgw:auth:revoked_tokens", b"old"]);
    let gateway = on_redis(&redis, &backend, false);
    assert_eq!(status(&gateway, &token(&gateway, "old")), 200);
}
