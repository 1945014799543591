//! Declared tools through real sockets: HTTP APIs and backends' tools under a virtual host's own
//! names, with their access rules, masks, limits and retries.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "only a plain server is needed here")]
mod redis;
#[path = "support/support.rs"]
mod support;

#[path = "declared/access.rs"]
mod access;
#[path = "declared/backends.rs"]
mod backends;
#[path = "declared/redis.rs"]
mod from_redis;
#[path = "declared/guard.rs"]
mod guard;
#[path = "declared/load.rs"]
mod load;
#[path = "declared/meanwhile.rs"]
mod meanwhile;
#[path = "declared/openapi.rs"]
mod openapi;
#[path = "declared/requests.rs"]
mod requests;
#[path = "declared/results.rs"]
mod results;
#[path = "declared/stateless.rs"]
mod stateless;

use serde_json::{Value, json};
use support::{Asked, Backend, HOST, McpClient, Plan, Response, Wire};

/// An HTTP API that records what it is asked and answers with a JSON document.
fn api(answer: impl Fn(&Asked, &mut Wire<'_>) + Send + Sync + 'static) -> Backend {
    Backend::scripted("api", &[], move |asked, wire| {
        answer(asked, wire);
        Some(())
    })
}

/// One that always answers so.
fn api_of(document: &'static str) -> Backend {
    api(move |_, wire| wire.json(document))
}

/// The declaration of a tool of an API of this machine.
fn tool(name: &str, api: &Backend, members: Value) -> Value {
    let mut tool = json!({
        "name": name,
        "targetHost": format!("http://{}", api.address()),
        "path": format!("/{name}"),
        "toolMetadata": {"runtime": {"allowPrivateTargetHost": true}},
    });
    merge(&mut tool, members);
    tool
}

/// Sets members, in objects that are there already too.
fn merge(into: &mut Value, members: Value) {
    match (into, members) {
        (Value::Object(into), Value::Object(members)) => {
            for (name, value) in members {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value,
    }
}

/// A virtual host of these tools alone.
fn plan_of(tools: Value) -> Plan {
    Plan::document(json!({"virtual_hosts": {HOST: {"backends": {}, "tools": tools}}}))
}

/// The text of the only block of a call's result, which is one of an error or not.
fn text_of(response: &Response, is_error: bool) -> String {
    let result = response.result();
    assert_eq!(result["isError"] == true, is_error, "{result}");
    let content = result["content"].as_array().unwrap();
    assert_eq!(content.len(), 1, "{result}");
    content[0]["text"].as_str().unwrap().to_owned()
}

/// The code and text of a JSON-RPC error.
fn error_of(response: &Response) -> (i64, String) {
    let message = response.message();
    let text = message["error"]["message"].as_str().unwrap().to_owned();
    (response.error_code(), text)
}

/// Calls a tool of a session of its own.
fn call(gateway: &support::Gateway, name: &str, arguments: &Value) -> Response {
    McpClient::open(gateway).call("1", name, &arguments.to_string())
}
