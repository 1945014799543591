//! The gateway in operation: started, configured from a file and from a real Redis, asked with and
//! without rights, walked through with curl, and stopped, mostly as the process operators run.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/mutate.rs"]
mod mutate;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod redis;

#[path = "support/support.rs"]
mod support;

#[path = "operations/auth.rs"]
mod auth;
#[path = "operations/caller.rs"]
mod caller;
#[path = "operations/drain.rs"]
mod drain;
#[path = "operations/file_config.rs"]
mod file_config;
#[path = "operations/poison.rs"]
mod poison;
#[path = "operations/redis_config.rs"]
mod redis_config;
#[path = "operations/redis_flaps.rs"]
mod redis_flaps;
#[path = "operations/redis_outage.rs"]
mod redis_outage;
#[path = "operations/startup.rs"]
mod startup;
#[path = "operations/walkthrough.rs"]
mod walkthrough;

/// The promises' own figures are for the long form.
fn is_long() -> bool {
    std::env::var_os("SHARDGATE_TEST_LONG").is_some()
}
