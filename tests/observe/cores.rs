//! `tune cores` and `plan` from end to end: real processes, real calls, files that are read back.

use serde_json::Value;

use crate::process::{Folder, run};

/// Held even by a machine that is busy with other tests.
const SLO: &str = "p99=4s,errors=50%";

#[test]
fn a_measurement_is_made_kept_and_planned_with() {
    let home = Folder::new();
    let folder = home.path().join("cores");
    let output = folder.to_str().unwrap();
    let seen = run(
        &home,
        &[
            "tune",
            "cores",
            "--max-shards",
            "1",
            "--probe",
            "800ms",
            "--warm-up",
            "100ms",
            "--tries",
            "2",
            "--first-rate",
            "40",
            "--load-connections",
            "4",
            "--slo",
            SLO,
            "--output",
            output,
        ],
        "",
    );
    assert_eq!(seen.code, 0, "{seen:?}");
    assert!(seen.stdout.contains("1 shard: at least"), "{seen:?}");
    assert!(seen.stdout.contains("confidence"), "{seen:?}");
    // Two tries of the search, and the curve below.
    let tries = seen
        .complaints()
        .iter()
        .filter(|line| line.contains("calls/s"))
        .count();
    assert!(tries >= 4, "{seen:?}");
    let text = std::fs::read_to_string(folder.join("cores.json")).unwrap();
    let measured: Value = serde_json::from_str(&text).unwrap();
    for point in measured["points"].as_array().unwrap() {
        assert!(point["busy"].as_f64().unwrap() > 0.0, "{point}");
        assert!(point["resident"].as_u64().unwrap() > 1 << 20, "{point}");
        assert_eq!(point["forwarded"], 0.0);
        // Those of earlier tries may still be there.
        assert!(point["sessions"].as_u64().unwrap() >= 4, "{point}");
    }
    let page = std::fs::read_to_string(folder.join("cores.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg"));

    let plan = |rate: &str, more: &[&str]| {
        let arguments = [
            &["plan", "--rate", rate, "--p99", "4s", "--errors", "50"],
            more,
        ]
        .concat();
        run(&home, &[&arguments[..], &["--from", output]].concat(), "")
    };
    let seen = plan("30", &["--json"]);
    assert_eq!(seen.code, 0, "{seen:?}");
    let document: Value = serde_json::from_str(&seen.stdout).unwrap();
    assert_eq!(document["answers"][0]["answer"]["shards"], 1);
    assert_eq!(plan("1000000", &[]).code, 1);
    let nothing = run(
        &home,
        &["plan", "--rate", "1", "--from", "/no/such/run"],
        "",
    );
    assert_eq!(nothing.code, 3, "{nothing:?}");
}
