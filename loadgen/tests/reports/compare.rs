//! `loadgen compare`: what it prints, and how it ends.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use loadgen::{record::Recording, report::compare::Condition};

use crate::{
    markup,
    sample::{Shape, recording},
    scratch,
};

fn compare(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .arg("compare")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let (out, errors) = (&output.stdout, &output.stderr);
    String::from_utf8([out.as_slice(), errors.as_slice()].concat()).unwrap()
}

/// A run in its folder; `change` makes it another one.
fn saved(name: &str, shape: &Shape, change: impl FnOnce(&mut Recording)) -> PathBuf {
    let folder = scratch(name);
    let mut run = recording(shape);
    change(&mut run);
    run.save(&folder).unwrap();
    folder
}

fn base(name: &str) -> PathBuf {
    saved(name, &Shape::default(), |_| {})
}

fn path(folder: &Path) -> &str {
    folder.to_str().unwrap()
}

#[test]
fn conditions_decide() {
    let (a, b) = (
        recording(&Shape::default()),
        recording(&Shape {
            slower: 1.5,
            ..Shape::default()
        }),
    );
    // Half as slow again, but for the stall and the lateness, which are the same.
    for (condition, is_failure) in [
        ("p50>+70%", false),
        ("p50>+10%", true),
        ("p50<-1%", false),
        ("p50>+10us", true),
        ("p50>+1s", false),
        ("p50>10us", true),
        ("p50>10s", false),
        ("service.max<1us", false),
        ("slip.p50>1s", false),
        ("tools_call:p50>+10%", true),
        ("tools_list:service.p90>+10%", true),
        ("rate<-5%", false),
        ("rate>100", true),
        ("errors>1%", false),
        ("errors>0.01%", true),
        ("sent<99%", false),
        ("prompts_get:p50>1s", true),
    ] {
        let condition: Condition = condition.parse().unwrap();
        let finding = condition.judge(&a, &b);
        assert_eq!(finding.is_failure, is_failure, "{}", finding.text);
        // A run is no worse than itself, as far as changes go.
        if condition.to_string().contains('+') {
            assert!(!condition.judge(&a, &a).is_failure, "{condition}");
        }
    }
}

#[test]
fn one_condition_that_holds_is_enough() {
    let a = base("compare-a");
    let b = saved(
        "compare-b",
        &Shape {
            slower: 1.5,
            ..Shape::default()
        },
        |_| {},
    );
    let conditions = ["--fail-if", "p50>+70%", "--fail-if", "p50>+10%"];
    for (sides, conditions, code) in [
        ([&a, &b], &conditions[..], 1),
        ([&a, &b], &conditions[..2], 0),
        ([&a, &b], &[], 0),
        // The other way round it is a gain.
        ([&b, &a], &conditions, 0),
    ] {
        let output = compare(&[&sides.map(|side| path(side)), conditions].concat());
        let told = text(&output);
        assert_eq!(output.status.code(), Some(code), "{conditions:?}\n{told}");
        assert_eq!(told.contains("FAILED  p50>+10%: "), code == 1, "{told}");
    }
}

#[test]
fn a_run_is_like_itself() {
    let a = base("compare-same");
    let told = text(&compare(&[path(&a), path(&a), "--fail-if", "p99>+0%"]));
    assert!(told.contains("passed  p99>+0%: "), "{told}");
    assert!(!told.contains("note: "), "{told}");
    let changes = told.lines().filter(|line| line.starts_with("  "));
    for line in changes {
        assert!(line.trim_end().ends_with("0 %"), "{line}");
    }
}

#[test]
fn the_noise_of_another_seed_is_told_as_noise() {
    let a = base("compare-noise-a");
    let b = saved(
        "compare-noise-b",
        &Shape {
            seed: 99,
            ..Shape::default()
        },
        |_| {},
    );
    let told = text(&compare(&[path(&a), path(&b)]));
    let p50 = told.lines().find(|line| line.starts_with("  p50")).unwrap();
    assert!(p50.ends_with('~'), "{told}");
    let slow = saved(
        "compare-noise-c",
        &Shape {
            slower: 2.0,
            ..Shape::default()
        },
        |_| {},
    );
    let told = text(&compare(&[path(&a), path(&slow)]));
    let p50 = told.lines().find(|line| line.starts_with("  p50")).unwrap();
    assert!(!p50.ends_with('~'), "{told}");
}

#[test]
fn what_is_not_alike_is_said() {
    let a = base("compare-alike");
    let b = saved("compare-unlike", &Shape::default(), |run| {
        run.asked.rate = Some(500.0);
        run.machines[0].kernel = Some("5.4.0".to_owned());
        run.asked.settings.insert("seed".to_owned(), "8".to_owned());
    });
    let told = text(&compare(&[path(&a), path(&b)]));
    for expected in [
        "note: the rates asked for differ",
        "note: the kernels differ",
        "note: seed is 7 in A, 8 in B",
    ] {
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_run_that_did_not_keep_its_schedule_is_no_evidence() {
    let a = base("compare-honest");
    let b = saved("compare-late", &Shape::default(), |run| {
        for operation in run.operations.values_mut() {
            operation.unsent = operation.sent;
        }
    });
    let output = compare(&[path(&a), path(&b), "--fail-if", "p99>+10%"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("sent only 50 % of its schedule"));
    let worse = compare(&[path(&a), path(&b), "--fail-if", "p99>1us"]);
    assert_eq!(worse.status.code(), Some(1));
}

#[test]
fn what_cannot_be_compared_ends_otherwise() {
    let a = base("compare-there");
    let output = compare(&[path(&a), "/nowhere/at/all"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("/nowhere/at/all/report.json"));
    let output = compare(&[path(&a), path(&a), "--fail-if", "p99~5ms"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("as p99>+10%"), "{}", text(&output));
}

#[test]
fn the_page_says_the_same() {
    let a = base("compare-page-a");
    let b = saved(
        "compare-page-b",
        &Shape {
            slower: 1.5,
            ..Shape::default()
        },
        |_| {},
    );
    let page = scratch("compare-page.html");
    let conditions = ["--fail-if", "p50>+10%", "--fail-if", "p50>+90%"];
    let arguments = [
        &[path(&a), path(&b), "--html", path(&page)],
        &conditions[..],
    ]
    .concat();
    assert_eq!(compare(&arguments).status.code(), Some(1));
    let html = fs::read_to_string(&page).unwrap();
    markup::check(&html);
    assert!(html.contains("✗ failed</span> p50&gt;+10%: "), "{html}");
    assert!(html.contains("✓ passed</span> p50&gt;+90%: "), "{html}");
    for operation in ["tools_call, response", "tools_list, service"] {
        assert!(html.contains(operation));
    }
}
