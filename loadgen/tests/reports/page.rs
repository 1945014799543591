//! `report.html`: whole, self-contained, and with the figures of the run.

use loadgen::{
    record::{Mode, Recording, Verdict},
    report::html,
};

use crate::{
    markup,
    sample::{Shape, recording, search},
};

#[test]
fn pages_are_well_formed_and_need_nothing_else() {
    let mut closed = recording(&Shape::default());
    closed.asked.mode = Mode::Closed;
    closed.slip = loadgen::record::Series::default();
    let short = recording(&Shape {
        seconds: 0,
        rate: 10.0,
        ..Shape::default()
    });
    for (name, run) in [
        ("plain", recording(&Shape::default())),
        ("search", search()),
        ("closed", closed),
        ("short", short),
        ("empty", Recording::default()),
    ] {
        let page = html::page(&run);
        markup::check(&page);
        assert!(page.contains("<h2>Outcome</h2>"), "{name}");
    }
}

#[test]
fn the_page_shows_the_run() {
    let run = search();
    let page = html::page(&run);
    for expected in [
        "Load test of http://127.0.0.1:8900/mcp",
        "open loop at 400 calls/s, measured for 8 s from 2026-11-30T12:00:00Z",
        "<h2>Latency by percentile</h2>",
        "<h2>Latency over time</h2>",
        "<h2>Throughput</h2>",
        "<h2>Errors</h2>",
        "status (first: HTTP status 503)",
        "<h2>Search for the highest rate</h2>",
        "are of the trial at 400 calls/s.",
        "objective: p99 5 ms</text>",
        "Highest rate with p99=5ms,errors=0.1%: 13,000 calls/s",
        "<h2>Shards of the target</h2>",
        "shard 3",
        "<h2>Generator</h2>",
        "With a caller free, 99 % were sent within ",
        "✗ missed</span> p99 &lt;= 5 ms: 480 ms",
        "✓ met</span> errors &lt;= 1 %: 0.4 %",
        "A processor &lt;with&gt; 2 &amp; more",
        "--token *** -r 400",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    let cells = page.matches("<rect class=\"q").count();
    assert!(cells > 100, "only {cells} cells");
}

#[test]
fn steps_are_shown_with_their_remarks_right_behind_the_outcome() {
    let mut run = search();
    run.found_max = None;
    run.steps[4].remark = "p99 <= 5 ms: 104 ms".to_owned();
    let page = html::page(&run);
    markup::check(&page);
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part}"));
    assert!(at("<h2>Outcome</h2>") < at("<h2>Load steps</h2>"));
    assert!(at("<h2>Load steps</h2>") < at("<h2>Latency by percentile</h2>"));
    assert!(page.contains("<span class=\"missed\">✗ p99 &lt;= 5 ms: 104 ms</span>"));
    assert!(!page.contains("objective: p99"), "{page}");
}

#[test]
fn names_of_others_stay_text() {
    let mut run = recording(&Shape::default());
    let evil = "\"><script>alert('x')</script>&";
    run.asked.target = format!("http://h/{evil}");
    run.asked.settings.insert(evil.to_owned(), evil.to_owned());
    run.machines[0].host = evil.to_owned();
    run.machines[0].command = evil.to_owned();
    run.generators[0].host = evil.to_owned();
    run.verdicts = vec![Verdict {
        wanted: evil.to_owned(),
        measured: evil.to_owned(),
        is_met: true,
    }];
    for operation in run.operations.values_mut() {
        for error in operation.errors.values_mut() {
            error.first = evil.to_owned();
        }
    }
    markup::check(&html::page(&run));
}

#[test]
fn a_generator_that_fell_behind_is_told_first() {
    let mut run = recording(&Shape::default());
    for operation in run.operations.values_mut() {
        operation.unsent = operation.sent;
    }
    let page = html::page(&run);
    let told = page
        .find("The generator could not keep its schedule")
        .unwrap();
    assert!(told < page.find("<h2>Latency by percentile</h2>").unwrap());
}
