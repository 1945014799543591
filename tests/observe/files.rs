//! The ready-made files against the programs and pages they are for.

use std::{collections::BTreeSet, path::Path, process::Command};

use serde_json::Value;
use shardgate::settings::Invocation;

use crate::{
    file,
    support::{Ask, Backend, Connection, McpClient, Plan},
};

/// All expressions of a dashboard's panels.
fn expressions(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .collect()
}

/// Names of metrics in an expression, with the labels it groups by or reads.
fn names(expression: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    expression
        .split(|c| !is_name(c))
        .filter(|word| word.starts_with("shardgate_"))
        .collect()
}

fn labels(target: &Value) -> BTreeSet<String> {
    let expression = target["expr"].as_str().unwrap();
    let grouped = expression
        .split("by (")
        .skip(1)
        .flat_map(|rest| rest.split(')').next().unwrap().split(", "));
    let legend = target["legendFormat"].as_str().unwrap();
    let shown = legend
        .split("{{")
        .skip(1)
        .map(|rest| rest.split("}}").next().unwrap());
    grouped.chain(shown).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_asks_for_metrics_and_labels_that_are_there() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    McpClient::open(&gateway).call("1", "one", "{}");
    // Only reasons that came up have a series.
    let nowhere = Ask::post("/nowhere", "{}");
    assert_eq!(gateway.connect().ask(&nowhere).status, 404);
    let answer = Connection::open(gateway.admin_address.unwrap()).ask(&Ask::new("GET", "/metrics"));
    let text = String::from_utf8(answer.body).unwrap();
    let dashboard: Value = serde_json::from_str(&file("grafana.json")).unwrap();
    let mut count = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let names = names(target["expr"].as_str().unwrap());
            assert!(!names.is_empty(), "{target}");
            for name in names {
                count += 1;
                let is_sample = |line: &&str| {
                    line.strip_prefix(name)
                        .is_some_and(|rest| rest.starts_with(['{', ' ']))
                };
                let sample = text.lines().find(is_sample);
                let sample = sample.unwrap_or_else(|| panic!("no {name} in the metrics"));
                for label in labels(target) {
                    // Prometheus itself adds this one.
                    let is_there = label == "instance" || sample.contains(&format!("{label}=\""));
                    assert!(is_there, "{sample} has no {label}");
                }
            }
        }
    }
    assert!(count >= 25, "only {count} metrics are asked for");
}

#[test]
fn the_dashboard_does_not_rate_gauges_nor_show_bare_counters() {
    let dashboard: Value = serde_json::from_str(&file("grafana.json")).unwrap();
    for expression in expressions(&dashboard) {
        for name in names(expression) {
            let before = expression.split(name).next().unwrap();
            let is_rated = before.ends_with("rate(") || before.ends_with("increase(");
            assert_eq!(is_rated, name.ends_with("_total"), "{expression}");
        }
    }
}

#[test]
fn the_unit_starts_the_gateway_with_a_command_line_it_understands() {
    let unit = file("shardgate.service");
    let value = |name: &str| {
        let start = format!("{name}=");
        unit.lines()
            .find_map(|line| line.strip_prefix(&start))
            .unwrap()
    };
    let words: Vec<&str> = value("ExecStart").split(' ').collect();
    assert!(Invocation::parse(words).is_ok());
    assert_eq!(value("Type"), "notify");
    // A drain of 30 seconds and five more must fit.
    assert!(value("TimeoutStopSec").parse::<u32>().unwrap() >= 35);
}

/// Where Debian has it; what has no systemd has no use for the unit either.
const SYSTEMD: &str = "/usr/bin/systemd-analyze";

#[test]
fn systemd_finds_no_fault_with_the_unit() {
    if !Path::new(SYSTEMD).exists() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("shardgate-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("shardgate.service");
    // It looks for the program as well.
    let unit =
        file("shardgate.service").replace("/usr/bin/shardgate", env!("CARGO_BIN_EXE_shardgate"));
    std::fs::write(&path, unit).unwrap();
    let output = Command::new(SYSTEMD)
        .arg("verify")
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{said}");
    // What it says of other units of this machine is not ours.
    let ours: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("shardgate.service"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn the_kernel_settings_are_ones_the_kernel_has_and_the_checks_want() {
    for line in file("60-shardgate.conf").lines() {
        let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let path = format!("/proc/sys/{}", name.trim().replace('.', "/"));
        assert!(Path::new(&path).exists(), "{path}");
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        assert!(value.split_whitespace().all(is_number), "{line}");
    }
}
