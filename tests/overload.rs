//! More than the gateway can take, and clients that take their time (reliability contract, section
//! 8: promises 10 to 15): what is refused is refused at once and in words, what was taken is
//! served, what it costs is bounded, and nothing is left of it.

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

#[path = "overload/house.rs"]
mod house;

#[path = "overload/descriptors.rs"]
mod descriptors;
#[path = "overload/idle_streams.rs"]
mod idle_streams;
#[path = "overload/leaks.rs"]
mod leaks;
#[path = "overload/memory.rs"]
mod memory;
#[path = "overload/noisy.rs"]
mod noisy;
#[path = "overload/shedding.rs"]
mod shedding;
#[path = "overload/slow_clients.rs"]
mod slow_clients;

use support::Response;

/// The promises' own figures are for the long form.
fn is_long() -> bool {
    std::env::var_os("SHARDGATE_TEST_LONG").is_some()
}

/// The text of the first content block of a call's result.
fn text_of(response: &Response) -> String {
    let result = response.result();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Refused the way callers know what to do: come again.
fn assert_refused(response: &Response, status: u16) {
    assert_eq!(response.status, status, "{}", response.text());
    assert!(response.header("retry-after").is_some());
    assert_eq!(response.error_code(), -32000);
}
