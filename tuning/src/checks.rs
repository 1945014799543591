//! The checks, in the order of their numbers. Each looks at the host and gives one row.
//!
//! Numbers follow market.md E2 and are never given twice.

mod around;
mod binary;
pub(crate) mod cards;
mod clock;
mod cores;
mod engine;
mod latency;
mod limits;
mod memory;
mod network;
mod noise;
mod rings;

use crate::{host::Host, row::Row};

/// All checks.
pub(crate) const ALL: [fn(&Host) -> Row; 28] = [
    cores::usable_cpus,
    cores::quota,
    cores::throttling,
    cores::siblings,
    cards::numa_node,
    noise::governor,
    noise::isolated,
    cards::interrupts,
    cards::queues,
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
    rings::ring_latency,
    around::redis,
    around::backends,
    around::configuration,
    binary::build,
];
