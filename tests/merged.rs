//! Servers nobody here wrote, merged into one: what a list shows belongs to one of them and reaches
//! that one, what a result names can be read back, and two that ask at once each get their answer.
//!
//! The servers are installed by `scripts/peers`, which `scripts/test` runs first.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail where it stands"
)]

#[path = "support/between.rs"]
mod between;
#[path = "support/conversation.rs"]
mod conversation;
#[path = "support/peers.rs"]
mod peers;
#[path = "support/support.rs"]
mod support;

#[path = "merged/at_once.rs"]
mod at_once;
#[path = "merged/questions.rs"]
mod questions;
#[path = "merged/reached.rs"]
mod reached;
#[path = "merged/stage.rs"]
mod stage;
