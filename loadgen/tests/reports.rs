//! Folders of runs: what is written is what is read, here and by other readers.

#[path = "reports/folder.rs"]
mod folder;
#[path = "reports/sample.rs"]
mod sample;

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
