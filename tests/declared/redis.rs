//! Declared tools out of a real Redis: schemas are compiled off the shards, a faulty value leaves
//! the last good one in force, and credentials are not taken from there.

use serde_json::{Value, json};
use shardgate::{
    config::{encode::encode_map, redis_key::user_key, user_config::UserConfig},
    settings::{Redis, RedisConnection, StoreSource},
};

use crate::{
    HOST, McpClient, Plan, api_of,
    redis::{Admin, Server},
    support::{Gateway, eventually},
    text_of, tool,
};

fn publish(admin: &mut Admin, tools: &Value) {
    let config = json!({"virtual_hosts": {HOST: {"backends": {}, "tools": tools}}});
    let config: UserConfig = serde_json::from_value(config).unwrap();
    admin.order(&[b"SET", &user_key("me"), &encode_map(&config)]);
}

fn beside(redis: &Server) -> Gateway {
    let port = redis.port;
    Plan::without_document()
        .settings(move |settings| {
            settings.limits.schema.depth_max = 100;
            settings.store.source = StoreSource::Redis(Redis {
                host: "127.0.0.1".to_owned(),
                port,
                connection: RedisConnection::PlainText,
                username: None,
                password: None,
                database: 0,
            });
        })
        .with_tokens()
        .start()
}

#[test]
fn tools_come_from_redis_and_a_faulty_value_changes_nothing() {
    let redis = Server::start(&[]);
    let mut admin = redis.admin();
    let api = api_of("{}");
    let one = |name: &str, schema: Value| json!([tool(name, &api, json!({"inputSchema": schema}))]);
    publish(
        &mut admin,
        // Deeper than is usual.
        &one(
            "first",
            json!({"type": "object", "required": ["a"], "examples": [
                (0..70).fold(json!(1), |below, _| json!([below]))]}),
        ),
    );
    let gateway = beside(&redis);
    let token = gateway.token("me");
    eventually("Redis can be asked", || {
        gateway.inner().view.is_ready().then_some(())
    });
    let mut client = McpClient::open_on(&gateway, HOST, Some(&token));
    assert_eq!(client.tool_names(), ["first"]);
    let bad = text_of(&client.call("1", "first", "{}"), true);
    assert_eq!(
        bad,
        "Tool arguments did not conform to inputSchema: /a: required"
    );
    assert_eq!(
        text_of(&client.call("1", "first", r#"{"a":1}"#), false),
        "{}"
    );

    publish(&mut admin, &one("faulty", json!({"type": "array"})));
    eventually("the faulty value was met", || {
        assert_eq!(client.tool_names(), ["first"]);
        (gateway.metric("shardgate_configs_bad_total") > 0).then_some(())
    });
    assert_eq!(client.tool_names(), ["first"]);

    let mut keyed = one("keyed", json!({"type": "object"}));
    keyed[0]["auth"] = json!({"type": "bearer", "token": "env:CARGO_PKG_NAME"});
    let second = one("second", json!({"type": "object"}))[0].clone();
    keyed.as_array_mut().unwrap().push(second);
    publish(&mut admin, &keyed);
    eventually("the next value", || {
        (client.tool_names() == ["second"]).then_some(())
    });
    assert_eq!(client.call("1", "keyed", "{}").error_code(), -32602);
    assert_eq!(api.seen().len(), 1);
}
