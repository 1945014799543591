//! What operators watch and deploy: pages about the shards, `top`, the service manager's words, and
//! the ready-made files of `tuning/files`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod process;
#[path = "support/support.rs"]
mod support;

#[path = "observe/cores.rs"]
mod cores;
#[path = "observe/files.rs"]
mod files;
#[path = "observe/front_doors.rs"]
mod front_doors;
#[path = "observe/pages.rs"]
mod pages;
#[path = "observe/supervisor.rs"]
mod supervisor;

/// A ready-made file.
fn file(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tuning/files");
    std::fs::read_to_string(format!("{folder}/{name}")).unwrap()
}
