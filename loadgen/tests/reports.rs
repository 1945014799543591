//! Folders of runs: what is written is what is read, here and by other readers.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

#[path = "reports/compare.rs"]
mod compare;
#[path = "reports/folder.rs"]
mod folder;
#[path = "reports/markup.rs"]
mod markup;
#[path = "reports/page.rs"]
mod page;
#[path = "reports/peer.rs"]
mod peer;
#[path = "reports/sample.rs"]
mod sample;
#[path = "reports/schema.rs"]
mod schema;

use std::path::PathBuf;

/// An empty folder of one test.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("reports")
        .join(name);
    // It may be there from the last time, or not.
    let _ = std::fs::remove_dir_all(&folder);
    folder
}
