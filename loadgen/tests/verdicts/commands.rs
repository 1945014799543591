//! The command from its command line to its exit code and its folder.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use loadgen::{
    backend::{Backend, BackendKind, BackendOptions, CounterFault},
    record::Recording,
};

use super::{backend, ms};

/// Runs the command; its exit code and what it printed.
fn loadgen(line: &[&str]) -> (i32, String, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(line)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn run(backend: &Backend, line: &[&str]) -> (i32, String) {
    let url = backend.url();
    let (code, out, err) = loadgen(&[&["run", &url], line].concat());
    (code, out + &err)
}

/// An empty folder of one test.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("commands")
        .join(name);
    // It may be there from the last time, or not.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn exit_codes_say_how_it_ended() {
    let fast = backend(BackendOptions {
        kind: BackendKind::All,
        ..BackendOptions::default()
    });
    let slow = backend(BackendOptions {
        delay: Some(ms(300)),
        ..BackendOptions::default()
    });
    let broken = backend(BackendOptions {
        kind: BackendKind::Counter,
        counter_fault: Some(CounterFault::Resets),
        ..BackendOptions::default()
    });
    for (target, line, code, part) in [
        (&fast, "--calls 50", 0, "ok     errors <= 0 %"),
        (&fast, "--calls 50 --slo p99=30s", 0, "ok     p99 <= 30.0 s"),
        (
            &fast,
            "--calls 200 --check-affinity --target-shards 4 -c 3",
            0,
            "no violation",
        ),
        (
            &slow,
            "--calls 3 --slo p50=100ms",
            1,
            "BROKEN p50 <= 100 ms",
        ),
        (&fast, "--calls 5 --tool nope", 1, "error rpc_error: 5"),
        (&fast, "--calls 5 --expect 5000", 1, "error wrong_size: 5"),
        (
            &fast,
            "--calls 5 --expect 5000 --slo errors=100%",
            1,
            "BROKEN every reply",
        ),
        (
            &broken,
            "--calls 300 --check-affinity",
            1,
            "affinity: reset: session",
        ),
        // One caller can make three calls a second, and has 2 s for a hundred.
        (&slow, "--rate 100 -c 1 -d 1", 2, "BROKEN at least 99 %"),
        (
            &slow,
            "--rate 100 -c 1 -d 1 --slo p50=1ms",
            2,
            "BROKEN p50 <= 1.00 ms",
        ),
        (&fast, "--rate 0", 3, "rate must be above 0"),
        (&fast, "--slo p99", 3, "slo:"),
        (&fast, "--nonsense", 3, "--nonsense"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let (found, text) = run(target, &words);
        assert_eq!(found, code, "{line}\n{text}");
        assert!(text.contains(part), "{line}\n{text}");
    }
    let (code, _, err) = loadgen(&["run", "http://127.0.0.1:1/mcp"]);
    assert_eq!(
        (code, err.as_str()),
        (3, "loadgen: cannot open a session: cannot connect\n")
    );
}

#[test]
fn a_scenario_file_is_run_and_its_faults_name_it() {
    let backend = backend(BackendOptions::default());
    let folder = scratch("scenario");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let url = format!("url = \"{}\"\n", backend.url());
    let good = file(
        "good.toml",
        &format!(
            "{url}calls = 60\n[[operation]]\nmethod = \"tools/list\"\nweight = 2\n\
             [[operation]]\nmethod = \"tools/call\"\nname = \"hello\"\nexpect = \"echo\"\n"
        ),
    );
    let (code, out, err) = loadgen(&["run", "--scenario", &good, "--json"]);
    assert_eq!(code, 0, "{out}{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["exit_code"], 0);
    assert_eq!(report["sent"], 60);
    assert!(report["operations"]["hello"]["sent"].as_u64().unwrap() > 5);
    let bad = file("bad.toml", &format!("{url}calls = 5\nrat = 1\n"));
    let (code, _, err) = loadgen(&["run", "--scenario", &bad]);
    assert_eq!(code, 3);
    assert!(
        err.contains("bad.toml: line 3, column 1: unknown field `rat`"),
        "{err}"
    );
    let (code, _, err) = loadgen(&["run", "--scenario", "nowhere.toml"]);
    assert_eq!(code, 3);
    assert!(err.contains("nowhere.toml"), "{err}");
}

#[test]
fn joined_folders_are_the_sum_of_their_runs() {
    let backend = backend(BackendOptions::default());
    let folder = scratch("join");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for (name, calls) in [("a", "40"), ("b", "60")] {
        let (code, text) = run(&backend, &["--calls", calls, "--out", &path(name)]);
        assert_eq!(code, 0, "{text}");
    }
    // A folder that holds a run is not written over.
    let (code, text) = run(&backend, &["--calls", "1", "--out", &path("a")]);
    assert_eq!(code, 3, "{text}");
    let (a, b, sum) = (path("a"), path("b"), path("sum"));
    let (code, out, err) = loadgen(&["join", &a, &b, "--out", &sum]);
    assert_eq!(code, 0, "{out}{err}");
    let load = |path: &str| Recording::load(Path::new(path)).unwrap();
    let (one, other, sum) = (load(&a), load(&b), load(&sum));
    let mut times = one.response();
    times.add(other.response()).unwrap();
    assert_eq!((sum.sent(), sum.response()), (100, times));
    let (code, _, _) = loadgen(&["join", &a, &b, "--out", &path("sum-2"), "--slo", "p50=1us"]);
    assert_eq!(code, 1);
}

#[test]
fn a_folder_has_what_only_some_runs_measure() {
    let backend = backend(BackendOptions {
        kind: BackendKind::Counter,
        counter_fault: Some(CounterFault::Mixed),
        sse_share: Some(1.0),
        ..BackendOptions::default()
    });
    let folder = scratch("extras").join("run");
    let line = "--calls 100 -c 4 --check-affinity --target-shards 2 --out";
    let line: Vec<&str> = line.split(' ').collect();
    let (code, text) = run(&backend, &[&line, &[folder.to_str().unwrap()][..]].concat());
    assert_eq!(code, 1, "{text}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("violations.txt").starts_with("gap: session "));
    assert!(read("first_byte.hgrm").contains("Percentile"));
    assert!(!folder.join("stream_gap.hgrm").exists());
}

#[test]
fn the_command_explains_itself() {
    let (code, help, _) = loadgen(&["run", "--help"]);
    assert_eq!(code, 0);
    for part in [
        "Open loop",
        "Closed loop",
        "--find-max",
        "--check-affinity",
        "Exit codes: 0",
    ] {
        assert!(help.contains(part), "{part}");
    }
    let (code, scenario, _) = loadgen(&["scenario"]);
    assert_eq!(
        (code, scenario.trim_end()),
        (0, loadgen::scenario::EXAMPLE.trim_end())
    );
}
