//! Servers that connect to the gateway themselves, through real WebSockets in all three framings,
//! and clients of both profiles that use them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers of these tests fail the test that calls them"
)]

#[path = "support/support.rs"]
mod support;

#[path = "reverse/calls.rs"]
mod calls;
#[path = "reverse/comings.rs"]
mod comings;
#[path = "reverse/endings.rs"]
mod endings;
#[path = "reverse/proxies.rs"]
mod proxies;
#[path = "reverse/questions.rs"]
mod questions;
#[path = "reverse/refused.rs"]
mod refused;
#[path = "reverse/stage.rs"]
mod stage;
