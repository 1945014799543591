//! The table of statuses (market.md C9, contextforge.md 4.3; mcp.md decides where they differ), row
//! by row, as a client reads it from the socket.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/support.rs"]
mod support;

#[path = "support/redis.rs"]
#[allow(dead_code, reason = "only a plain server is needed here")]
mod redis;

#[path = "status_table/bad_input.rs"]
mod bad_input;
#[path = "status_table/batches.rs"]
mod batches;
#[path = "status_table/callers.rs"]
mod callers;
#[path = "status_table/messages.rs"]
mod messages;

use support::{Ask, Response};

const TARGET: &str = "/servers/main/mcp";
const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;

/// Status, type and body, byte for byte.
fn assert_text(response: &Response, status: u16, content_type: Option<&str>, body: &str) {
    assert_eq!(response.status, status, "{}", response.text());
    assert_eq!(response.header("content-type"), content_type);
    assert_eq!(response.text(), body);
}

/// A JSON-RPC error document.
fn assert_rpc(response: &Response, status: u16, id: &str, code: i64, context: &str) {
    assert_eq!(response.status, status, "{context}: {}", response.text());
    assert_eq!(
        response.header("content-type"),
        Some("application/json"),
        "{context}"
    );
    let message = response.message();
    assert_eq!(message["jsonrpc"], "2.0", "{context}");
    assert_eq!(message["id"].to_string(), id, "{context}");
    assert_eq!(message["error"]["code"], code, "{context}: {message}");
    let text = message["error"]["message"].as_str().unwrap();
    assert!(!text.is_empty(), "{context}");
}

fn list() -> Ask {
    Ask::post(TARGET, LIST)
}
