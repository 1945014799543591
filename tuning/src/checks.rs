//! The checks, in the order of their numbers. Each looks at the host and gives one row.
//!
//! Numbers follow market.md E2 and are never given twice. 5, 8, 9 (network cards) and 24 to 27
//! (rings, Redis, backends, configuration) need a running gateway or its settings and are not here.

mod binary;
mod clock;
mod cores;
mod engine;
mod latency;
mod limits;
mod memory;
mod network;
mod noise;

use crate::{host::Host, row::Row};

/// All checks.
pub(crate) const ALL: [fn(&Host) -> Row; 21] = [
    cores::usable_cpus,
    cores::quota,
    cores::throttling,
    cores::siblings,
    noise::governor,
    noise::isolated,
    network::backlog,
    network::drops,
    limits::files,
    limits::ports,
    latency::socket_memory,
    latency::settings,
    engine::io_uring,
    engine::reuse_port,
    memory::huge_pages,
    memory::swap,
    memory::budget,
    clock::clock,
    noise::pressure,
    noise::jitter,
    binary::build,
];
