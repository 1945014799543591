//! The generator against servers that stall, are slow, fail or mix up their sessions: what it has
//! to show, and the exit codes it has to end with.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

#[path = "verdicts/affinity.rs"]
mod affinity;
#[path = "verdicts/commands.rs"]
mod commands;
#[path = "verdicts/loads.rs"]
mod loads;
#[path = "verdicts/stall.rs"]
mod stall;

use std::time::Duration;

use loadgen::{
    backend::{Backend, BackendOptions},
    run::RunOptions,
};

fn backend(options: BackendOptions) -> Backend {
    Backend::start(options).unwrap()
}

fn options(backend: &Backend) -> RunOptions {
    RunOptions {
        url: backend.url(),
        ..RunOptions::default()
    }
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
