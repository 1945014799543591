//! The connection gateway through sockets: WebSocket clients on one side, callers of the internal
//! HTTP API on the other. Each statement is tested with one shard and with several, because a
//! caller's request then usually crosses a ring.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers of these tests fail the test that calls them"
)]

#[path = "support/process.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod process;
#[path = "support/support.rs"]
mod support;

#[path = "connect/binding.rs"]
mod binding;
#[path = "connect/command.rs"]
mod command;
#[path = "connect/defects.rs"]
mod defects;
#[path = "connect/endings.rs"]
mod endings;
#[path = "connect/flow.rs"]
mod flow;
#[path = "connect/handshakes.rs"]
mod handshakes;
#[path = "connect/hostile.rs"]
mod hostile;
#[path = "connect/http_api.rs"]
mod http_api;
#[path = "connect/life.rs"]
mod life;
#[path = "connect/limits.rs"]
mod limits;
#[path = "connect/load.rs"]
mod load;
#[path = "connect/messages.rs"]
mod messages;
#[path = "connect/recorded.rs"]
mod recorded;
#[path = "connect/stage.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod stage;
#[path = "connect/websocket.rs"]
mod websocket;
