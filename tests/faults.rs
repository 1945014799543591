//! Backends and networks that fail in every way a proxy between the gateway and its backends can
//! make up (reliability contract, sections 7 and 8: promises 8, 9 and 19).

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/support.rs"]
mod support;

#[path = "faults/backend_death.rs"]
mod backend_death;
#[path = "faults/once.rs"]
mod once;
#[path = "faults/time_limits.rs"]
mod time_limits;

/// The promises' own figures are for the long form.
fn is_long() -> bool {
    std::env::var_os("SHARDGATE_TEST_LONG").is_some()
}

/// The text of the first content block of a call's result, or nothing when the call failed the way
/// calls fail: with a JSON-RPC error for its id.
fn outcome_of(response: &support::Response, id: &str) -> Option<String> {
    assert_eq!(response.status, 200, "{}", response.text());
    let message = response.message();
    assert_eq!(message["id"].to_string(), id);
    if message["error"].is_object() {
        assert_eq!(message["error"]["code"], -32603, "{message}");
        return None;
    }
    let text = message["result"]["content"][0]["text"].as_str();
    Some(text.unwrap().to_owned())
}
