//! Revision 2026-07-28 beside the revisions with sessions: what requests without a session are,
//! get and cost. `docs/conformance.md` says which row of the contract each test stands for.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod process;
#[path = "support/support.rs"]
mod support;

#[path = "stateless/bridged.rs"]
mod bridged;
#[path = "stateless/calls.rs"]
mod calls;
#[path = "stateless/canaries.rs"]
mod canaries;
#[path = "stateless/classified.rs"]
mod classified;
#[path = "stateless/discovered.rs"]
mod discovered;
#[path = "stateless/downgrades.rs"]
mod downgrades;
#[path = "stateless/hosts.rs"]
mod hosts;
#[path = "stateless/legacy.rs"]
mod legacy;
#[path = "stateless/limits.rs"]
mod limits;
#[path = "stateless/listening.rs"]
mod listening;
#[path = "stateless/lists.rs"]
mod lists;
#[path = "stateless/mirrored.rs"]
mod mirrored;
#[path = "stateless/reload.rs"]
mod reload;
#[path = "stateless/results.rs"]
mod results;
#[path = "stateless/scale.rs"]
mod scale;
#[path = "stateless/stopping.rs"]
mod stopping;
#[path = "stateless/transport.rs"]
mod transport;

use serde_json::Value;
use support::{Backend, Gateway, Response};

/// The endpoint of the virtual host of most tests.
const TARGET: &str = "/servers/main/mcp";
/// Who answers, in the `_meta` of results.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// A refusal in the words of the stateless revision: a JSON body with the request's raw id, or
/// with no `id` at all. Gives `error.data`.
#[track_caller]
fn assert_refused(response: &Response, status: u16, id: Option<&str>, code: i64) -> Value {
    let text = response.text();
    assert_eq!(response.status, status, "{text}");
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("mcp-session-id"), None);
    let mut message = response.json();
    assert_eq!(message["error"]["code"], code, "{text}");
    assert!(message["error"]["message"].is_string(), "{text}");
    let said = message.as_object().unwrap().get("id").map(Value::to_string);
    assert_eq!(said.as_deref(), id, "{text}");
    message["error"]["data"].take()
}

/// The result of an answer, which must be a whole one that says who gave it.
#[track_caller]
fn whole_result(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("mcp-session-id"), None);
    let result = response.result();
    assert_eq!(result["resultType"], "complete", "{result}");
    assert_eq!(
        result["_meta"][SERVER_INFO]["name"], "shardgate",
        "{result}"
    );
    result
}

/// The text of the first content block of a call's whole result.
#[track_caller]
fn text_of(response: &Response) -> String {
    let result = whole_result(response);
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Nothing has reached the backend.
#[track_caller]
fn assert_untouched(backend: &Backend) {
    let seen = backend.seen();
    assert!(seen.is_empty(), "{seen:?}");
}

/// No session was opened, looked for at another shard, or is there.
#[track_caller]
fn assert_no_session(gateway: &Gateway) {
    for name in [
        "shardgate_sessions",
        "shardgate_sessions_opened_total",
        "shardgate_backend_sessions_opened_total",
        "shardgate_handed_over_total",
        "shardgate_forwarded_total",
    ] {
        assert_eq!(gateway.metric(name), 0, "{name}");
    }
}
