//! Another implementation of HdrHistogram reads our logs, and we read its: equal percentiles.
//!
//! It is the JavaScript one, installed by `scripts/peers`, which `scripts/test` runs first.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use hdrhistogram::Histogram;
use loadgen::{
    record::Series,
    report::{hgrm, hlog},
};
use serde_json::Value;

use crate::{
    sample::{Shape, recording},
    scratch,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `tests/peers/hdr.mjs`; what it tells, by tag.
fn peer(arguments: &[&str]) -> Value {
    let path = Command::new(root().join("scripts/peers"))
        .arg("--path")
        .output()
        .unwrap();
    let prefix = String::from_utf8(path.stdout).unwrap();
    let node = Path::new(prefix.trim().split(':').next().unwrap()).join("node");
    assert!(
        node.exists(),
        "the peers are not installed: run scripts/peers first"
    );
    let told = Command::new(node)
        .arg(root().join("tests/peers/hdr.mjs"))
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{errors}");
    serde_json::from_slice(&told.stdout).unwrap()
}

/// Counts, percentiles and tables of both have to be the same.
#[track_caller]
fn assert_same(told: &Value, times: &Histogram<u64>) {
    assert_eq!(told["count"], times.len());
    let percentiles = told["percentiles"].as_array().unwrap();
    assert!(percentiles.len() > 10);
    for pair in percentiles {
        let percentile = pair[0].as_f64().unwrap();
        assert_eq!(
            pair[1],
            times.value_at_percentile(percentile),
            "p{percentile}"
        );
    }
    // Every row, and the trailer but our remark on the unit.
    let theirs: Vec<&str> = told["table"].as_str().unwrap().lines().collect();
    let ours = hgrm::to_text(times);
    let ours: Vec<&str> = ours.lines().collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len() - 1, theirs.len());
}

#[test]
fn another_implementation_reads_our_logs() {
    let folder = scratch("peer");
    let run = recording(&Shape::default());
    run.save(&folder).unwrap();
    type Pick = fn(&loadgen::record::Operation) -> &Series;
    let kinds: [(&str, Pick); 2] = [
        ("response.hlog", |operation| &operation.response),
        ("service.hlog", |operation| &operation.service),
    ];
    for (file, pick) in kinds {
        let told = peer(&["read", folder.join(file).to_str().unwrap()]);
        assert_eq!(told.as_object().unwrap().len(), 2);
        for (name, operation) in &run.operations {
            assert_same(&told[name], pick(operation).whole());
        }
    }
    let told = peer(&["read", folder.join("slip.hlog").to_str().unwrap()]);
    assert_same(&told["slip"], run.slip.whole());
}

#[test]
fn we_read_the_logs_of_another_implementation() {
    let folder = scratch("peer-writes");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("other.hlog");
    let told = peer(&["write", path.to_str().unwrap(), "11"]);
    let read = hlog::read(&fs::read(&path).unwrap(), 1).unwrap();
    assert_eq!(read.len(), 2);
    for (tag, series) in &read {
        assert_eq!(series.intervals().len(), 3);
        assert_same(&told[tag], series.whole());
    }
}
