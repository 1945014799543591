//! Whole reports of hosts that are kept as small copies of /proc and /sys.
//!
//! The expected tables stand beside the copies (WRITE_EXPECTED=1 writes them anew). Row 28
//! describes the test's own binary and is left out of them.

#![expect(clippy::unwrap_used, reason = "a test without its files has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::LazyLock,
};

use proptest::prelude::*;
use tuning::{Options, Report, Severity, check};

const TREES: [&str; 5] = ["healthy", "container", "laptop", "small-vm", "two-sockets"];

fn trees() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trees"))
}

fn report(tree: &str) -> Report {
    check_with(tree, Options::default())
}

fn check_with(tree: &str, options: Options) -> Report {
    check(&Options {
        root: Some(trees().join(tree)),
        may_measure: true,
        ..options
    })
}

fn severity(report: &Report, number: u8) -> Severity {
    let mut rows = report.rows.iter();
    rows.find(|row| row.number == number).unwrap().severity
}

fn fix(report: &Report, number: u8) -> String {
    let mut rows = report.rows.iter();
    rows.find(|row| row.number == number).unwrap().fix.clone()
}

/// The report as lines that a reader of the expected file understands.
fn lines(report: &Report) -> String {
    let mut text = format!("{}\n{:?}\n", report.place, report.plan);
    for row in report.rows.iter().filter(|row| row.number != 28) {
        let unseen = row.unseen.join("; ");
        let severity = row.severity.name();
        text += &format!("\n{} {}: {severity}\n", row.number, row.name);
        for (label, words) in [
            ("found", &row.current),
            ("fix", &row.fix),
            ("unseen", &unseen),
        ] {
            if !words.is_empty() {
                text += &format!("  {label}: {words}\n");
            }
        }
    }
    text
}

fn expect(tree: &str) {
    let expected = fs::read_to_string(trees().join(format!("{tree}.txt"))).unwrap();
    let found = lines(&report(tree));
    if std::env::var_os("WRITE_EXPECTED").is_some() {
        return fs::write(trees().join(format!("{tree}.txt")), &found).unwrap();
    }
    assert_eq!(
        found, expected,
        "the report of {tree} has changed:\n{found}"
    );
}

#[test]
fn the_reports_are_the_expected_ones() {
    for tree in TREES {
        expect(tree);
    }
}

#[test]
fn a_healthy_host_has_nothing_to_change() {
    let report = report("healthy");
    assert_eq!(report.exit_code(), 0);
    assert_eq!(report.plan.cpus, [0, 1, 2, 3, 4, 5, 6, 7]);
    for row in report.rows.iter().filter(|row| row.number != 28) {
        assert!(row.fix.is_empty(), "{row:?}");
    }
    // Only what has to be tried on the machine itself is open.
    let unseen = report
        .rows
        .iter()
        .filter(|row| row.severity == Severity::Unseen);
    assert_eq!(
        unseen.map(|row| row.number).collect::<Vec<_>>(),
        [17, 23, 24, 25, 26, 27]
    );
}

#[test]
fn a_container_says_what_it_cannot_see_and_who_can_change_the_rest() {
    let report = report("container");
    assert_eq!(report.place.container.as_deref(), Some("docker"));
    assert_eq!(
        report.place.virtual_machine.as_deref(),
        Some("Example Cloud")
    );
    // A quota of 1.5 CPUs feeds one shard.
    assert_eq!(
        (report.plan.shards, severity(&report, 2)),
        (1, Severity::Ok)
    );
    assert_eq!(severity(&report, 3), Severity::Warn);
    // The plan's 65,536 connections do not fit into 256 MiB.
    assert_eq!(severity(&report, 20), Severity::Fatal);
    assert_eq!(report.exit_code(), 2);
    assert!(fix(&report, 18).ends_with("(on the host: a container cannot)"));
    for number in [6, 10, 14, 15, 22] {
        let row = report.rows.iter().find(|row| row.number == number).unwrap();
        assert!(!row.unseen.is_empty(), "{row:?}");
    }
}

#[test]
fn more_shards_than_the_quota_or_the_cpus_are_fatal() {
    let shards = |shards| {
        let options = Options {
            shards: Some(shards),
            ..Options::default()
        };
        check_with("container", options)
    };
    let two = shards(2);
    assert_eq!(severity(&two, 1), Severity::Info);
    assert_eq!(severity(&two, 2), Severity::Fatal);
    assert_eq!(severity(&two, 4), Severity::Warn);
    let five = shards(5);
    assert_eq!(severity(&five, 1), Severity::Fatal);
    assert!(five.plan.cpus.is_empty());
    assert_eq!(severity(&five, 4), Severity::Unseen);
}

#[test]
fn a_cpu_list_is_judged_as_given() {
    let list = |cpus: &[usize]| {
        let options = Options {
            cpus: Some(cpus.to_vec()),
            ..Options::default()
        };
        check_with("laptop", options)
    };
    assert_eq!(severity(&list(&[0, 1]), 4), Severity::Ok);
    assert_eq!(severity(&list(&[0, 2]), 4), Severity::Warn);
    assert_eq!(fix(&list(&[0, 2]), 4), "--cpu-list 0-1");
    assert_eq!(severity(&list(&[0, 9]), 1), Severity::Fatal);
}

#[test]
fn a_named_plan_turns_a_warning_about_files_into_a_verdict() {
    let files = |connections| {
        let options = Options {
            connections,
            upstream_connections: Some(0),
            ..Options::default()
        };
        severity(&check_with("laptop", options), 12)
    };
    assert_eq!(files(None), Severity::Warn);
    assert_eq!(files(Some(1)), Severity::Fatal);
    assert_eq!(files(Some(0)), Severity::Ok);
}

#[test]
fn the_command_line_ends_with_the_verdict() {
    let run = |words: &[&str]| {
        let mut arguments: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
        if words.first() == Some(&"check") {
            arguments.push("--no-probe".into());
        }
        tuning::cli::main(
            arguments,
            &tuning::cli::Gateway {
                read_documents: |_| tuning::Documents::default(),
                prepare: |_, _| Err("nothing to start".to_owned()),
            },
        )
    };
    let root = |tree: &str| trees().join(tree).to_str().unwrap().to_owned();
    // ExitCode has no comparison but its text.
    let is = |code: ExitCode, number: u8| {
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(number)));
    };
    is(run(&["check", "--json", "--root", &root("healthy")]), 0);
    is(run(&["check", "--root", &root("laptop")]), 1);
    is(run(&["check", "--root", &root("container")]), 2);
    is(run(&["check", "--no-such-flag"]), 3);
    is(run(&["apply", "--no-such-flag"]), 3);
    is(run(&[]), 3);
}

#[test]
fn this_machine_is_tried_for_real() {
    let report = check(&Options {
        shards: Some(1),
        ..Options::default()
    });
    assert_eq!(severity(&report, 17), Severity::Ok);
    // With or without a ring, the row says which.
    let row = report.rows.iter().find(|row| row.number == 16).unwrap();
    assert!(
        row.current.contains("rings built") || row.current.contains("no ring"),
        "{row:?}"
    );
}

/// A copy of the laptop to be spoiled, and the paths of its files.
static COPY: LazyLock<(PathBuf, Vec<PathBuf>)> = LazyLock::new(|| {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("spoiled");
    let mut paths = Vec::new();
    copy(&trees().join("laptop"), &root, &mut paths);
    paths.sort();
    (root, paths)
});

fn copy(from: &Path, to: &Path, paths: &mut Vec<PathBuf>) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target, paths);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            paths.push(target);
        }
    }
}

fn content() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~\n]{0,60}",
        "(cpu |some |flags |max |18446744073709551615|[0-9 \t-]){0,9}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_file_content_breaks_a_check(text in content(), pick in any::<prop::sample::Index>()) {
        let (root, paths) = &*COPY;
        let path = pick.get(paths);
        let before = fs::read(path).unwrap();
        fs::write(path, &text).unwrap();
        let report = check(&Options { root: Some(root.clone()), ..Options::default() });
        fs::write(path, before).unwrap();
        let numbers: Vec<u8> = report.rows.iter().map(|row| row.number).collect();
        prop_assert!(numbers.is_sorted() && numbers.len() == 28);
        for row in &report.rows {
            prop_assert!(!row.current.is_empty() || !row.unseen.is_empty(), "{:?}", row);
            let is_bad = matches!(row.severity, Severity::Warn | Severity::Fatal);
            prop_assert!(!is_bad || !row.fix.is_empty(), "{:?}", row);
        }
    }
}
