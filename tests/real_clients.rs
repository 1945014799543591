//! Clients and servers nobody here wrote, through four shards, with and without nginx in front; and
//! the faults of other gateways, which this one must not have.
//!
//! The clients and servers are installed by `scripts/peers`, which `scripts/test` runs first.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail where it stands"
)]

#[path = "support/nginx.rs"]
mod nginx;
#[path = "support/peers.rs"]
mod peers;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "one test here uses a part of it")]
mod process;
#[path = "support/support.rs"]
mod support;

#[path = "real_clients/back_to_back.rs"]
mod back_to_back;
#[path = "real_clients/canaries.rs"]
mod canaries;
#[path = "real_clients/counters.rs"]
mod counters;
#[path = "real_clients/eras.rs"]
mod eras;
#[path = "real_clients/faults.rs"]
mod faults;
#[path = "real_clients/reverse.rs"]
mod reverse;
#[path = "real_clients/rmcp_client.rs"]
mod rmcp_client;
#[path = "real_clients/servers.rs"]
mod servers;
#[path = "real_clients/stage.rs"]
mod stage;
#[path = "real_clients/transports.rs"]
mod transports;
