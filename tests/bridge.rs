//! Backends behind the bridge: child processes (stdio) and HTTP+SSE servers of revision 2024-11-05,
//! through the whole gateway, and the bridge's own door.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/old.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod old;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod redis;
#[path = "support/support.rs"]
mod support;

#[path = "bridge/asks.rs"]
mod asks;
#[path = "bridge/child.rs"]
mod child;
#[path = "bridge/door.rs"]
mod door;
#[path = "bridge/limits.rs"]
mod limits;
#[path = "bridge/refused.rs"]
mod refused;
#[path = "bridge/shared.rs"]
mod shared;
#[path = "bridge/sse.rs"]
mod sse;
#[path = "bridge/stdio.rs"]
mod stdio;
