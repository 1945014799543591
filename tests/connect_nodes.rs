//! The connection gateway on several nodes that share one Redis: a client's WebSocket at one, its
//! callers at another; nodes that die, a Redis that does, and nodes of the original among ours.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers of these tests fail the test that calls them"
)]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod redis;
#[path = "support/support.rs"]
mod support;

#[path = "connect/stage.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod stage;

#[path = "connect_nodes/across.rs"]
mod across;
#[path = "connect_nodes/cluster.rs"]
mod cluster;
#[path = "connect_nodes/cost.rs"]
mod cost;
#[path = "connect_nodes/death.rs"]
mod death;
#[path = "connect_nodes/faults.rs"]
mod faults;
#[path = "connect_nodes/interleaved.rs"]
mod interleaved;
#[path = "connect_nodes/original.rs"]
mod original;
#[path = "connect_nodes/outage.rs"]
mod outage;
#[path = "connect_nodes/races.rs"]
mod races;
#[path = "connect_nodes/secure.rs"]
mod secure;
#[path = "connect_nodes/slots.rs"]
mod slots;
#[path = "connect_nodes/turnstile.rs"]
mod turnstile;
