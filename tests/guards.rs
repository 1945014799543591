//! What stands between backends, clients and operators: credentials, limits, fail-fast, health.

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

#[path = "guards/busy.rs"]
mod busy;
#[path = "guards/credentials.rs"]
mod credentials;
#[path = "guards/failure_mode.rs"]
mod failure_mode;
#[path = "guards/farewells.rs"]
mod farewells;
#[path = "guards/health.rs"]
mod health;
#[path = "guards/metadata.rs"]
mod metadata;

/// The text of the first content block of a call's result.
fn text_of(response: &support::Response) -> String {
    let result = response.result();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}
