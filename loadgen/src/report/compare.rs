//! Two runs side by side: what changed from A to B, and whether that is too much.
//!
//! Percentiles come from the histograms of the runs. Where the ranges within which each run knows
//! its percentile overlap, the change is marked as within the noise; conditions look at the values.

mod condition;

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::{
    document::Times,
    html::{self, charts, words},
    utc::utc,
};
use crate::record::{Machine, Mode, Recording};
pub use condition::{Condition, ConditionFault, Finding, Kind, Metric};
use condition::{change, shown, signed, times_of, value_of};

/// A condition holds.
const EXIT_FAILED: u8 = 1;
/// A run did not keep its schedule.
const EXIT_NOT_HONEST: u8 = 2;
/// Standard deviations around the rank of a percentile: 95 %.
const DEVIATIONS: f64 = 1.96;
/// Rates that differ by this share are not the same load.
const RATE_TOLERANCE: f64 = 0.01;

/// Something that machines have in common, or not.
type Fact = fn(&Machine) -> String;

/// One run and what to call it.
#[derive(Debug)]
pub struct Side {
    /// Its folder, as given.
    pub name: String,
    /// What it measured.
    pub run: Recording,
}

/// Two runs, and what is to be said of them.
#[derive(Debug)]
pub struct Comparison {
    a: Side,
    b: Side,
    findings: Vec<Finding>,
}

/// One line of the comparison.
struct Line {
    name: String,
    a: String,
    b: String,
    change: String,
    is_noise: bool,
}

impl Comparison {
    /// Compares and judges.
    pub fn new(a: Side, b: Side, conditions: &[Condition]) -> Self {
        let judge = |condition: &Condition| condition.judge(&a.run, &b.run);
        let findings = conditions.iter().map(judge).collect();
        Self { a, b, findings }
    }

    /// What the conditions say, in their order.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How the command ends.
    pub fn exit_code(&self) -> u8 {
        if self.findings.iter().any(|finding| finding.is_failure) {
            EXIT_FAILED
        } else if !self.a.run.is_honest() || !self.b.run.is_honest() {
            EXIT_NOT_HONEST
        } else {
            0
        }
    }

    /// As lines for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (letter, side) in [("A", &self.a), ("B", &self.b)] {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "{letter}  {}: {}", side.name, what(&side.run));
        }
        for remark in self.remarks() {
            let _ = writeln!(text, "note: {remark}");
        }
        for (title, lines) in self.groups() {
            let _ = writeln!(
                text,
                "\n{title:<22} {:>12} {:>12} {:>12}",
                "A", "B", "change"
            );
            for line in lines {
                let noise = if line.is_noise { "  ~" } else { "" };
                let _ = writeln!(
                    text,
                    "  {:<20} {:>12} {:>12} {:>12}{noise}",
                    line.name, line.a, line.b, line.change
                );
            }
        }
        if text.contains("  ~\n") {
            text.push_str("\n~ within the noise: each run knows its value only so well\n");
        }
        if !self.findings.is_empty() {
            text.push('\n');
        }
        for finding in &self.findings {
            let word = if finding.is_failure {
                "FAILED"
            } else {
                "passed"
            };
            let _ = writeln!(text, "{word}  {}", finding.text);
        }
        text
    }

    /// As a page.
    pub fn to_html(&self) -> String {
        let title = "Two load tests compared";
        let mut body = format!("<header><h1>{title}</h1></header>");
        let sides = [("A", &self.a), ("B", &self.b)];
        let about = sides.map(|(letter, side)| {
            (
                letter.to_owned(),
                format!("{}: {}", side.name, what(&side.run)),
            )
        });
        let found: Vec<(bool, String)> = self
            .findings
            .iter()
            .map(|finding| (!finding.is_failure, finding.text.clone()))
            .collect();
        let mut outcome = html::facts(&about);
        for remark in self.remarks() {
            let _ = write!(
                outcome,
                "<p class=\"note\">Note: {}.</p>",
                words::escaped(&remark)
            );
        }
        if !found.is_empty() {
            outcome.push_str(&html::marks(&found, ["passed", "failed"]));
        }
        body.push_str(&html::section("Outcome", "", &outcome));
        let (before, after) = (self.a.run.response(), self.b.run.response());
        let chart = charts::percentiles(&[("two", "A", &before), ("one", "B", &after)]);
        let note = "Response times of all operations; the values are B's.";
        body.push_str(&html::section("Latency by percentile", note, &chart));
        for (title, lines) in self.groups() {
            let rows: Vec<Vec<String>> = lines
                .into_iter()
                .map(|line| {
                    let noise = if line.is_noise {
                        "within the noise"
                    } else {
                        ""
                    };
                    let cells = [line.name, line.a, line.b, line.change, noise.to_owned()];
                    cells.iter().map(|cell| words::escaped(cell)).collect()
                })
                .collect();
            let table = words::table(&["", "A", "B", "change", ""], &rows);
            body.push_str(&html::section(&title, "", &table));
        }
        html::document(title, &body)
    }

    /// Lines in groups: the whole, then each operation that either run has.
    fn groups(&self) -> Vec<(String, Vec<Line>)> {
        let whole = [
            ("good calls", Metric::Rate),
            ("failed", Metric::Errors),
            ("sent", Metric::Sent),
        ];
        let whole = whole.map(|(name, metric)| self.line(name, None, Kind::Response, metric));
        let mut groups = vec![("all operations".to_owned(), whole.into_iter().collect())];
        let mut names: Vec<&String> = self.a.run.operations.keys().collect();
        names.extend(self.b.run.operations.keys());
        names.sort();
        names.dedup();
        for name in names {
            groups.push((
                format!("{name}, response"),
                self.times(name, Kind::Response),
            ));
            if self.is_open() {
                groups.push((format!("{name}, service"), self.times(name, Kind::Service)));
            }
        }
        groups
    }

    fn is_open(&self) -> bool {
        [&self.a, &self.b]
            .iter()
            .any(|side| side.run.asked.mode == Mode::Open)
    }

    fn times(&self, operation: &str, kind: Kind) -> Vec<Line> {
        let metrics = [
            ("p50", Metric::Quantile(0.5)),
            ("p90", Metric::Quantile(0.9)),
            ("p99", Metric::Quantile(0.99)),
            ("p99.9", Metric::Quantile(0.999)),
            ("max", Metric::Max),
        ];
        let line = |(name, metric)| self.line(name, Some(operation), kind, metric);
        metrics.into_iter().map(line).collect()
    }

    fn line(&self, name: &str, operation: Option<&str>, kind: Kind, metric: Metric) -> Line {
        let values = [&self.a, &self.b].map(|side| value_of(&side.run, operation, kind, metric));
        let told = |value: Option<f64>| value.map_or("-".to_owned(), |one| shown(metric, one));
        let change = match values {
            [Some(a), Some(b)] => signed(change(a, b)),
            _ => "-".to_owned(),
        };
        let is_noise = match metric {
            Metric::Quantile(quantile) if change != "0 %" => {
                self.is_noise(operation, kind, quantile)
            }
            _ => false,
        };
        Line {
            name: name.to_owned(),
            a: told(values[0]),
            b: told(values[1]),
            change,
            is_noise,
        }
    }

    fn is_noise(&self, operation: Option<&str>, kind: Kind, quantile: f64) -> bool {
        let ranges = [&self.a, &self.b].map(|side| {
            let times = times_of(&side.run, operation, kind)?;
            (!times.is_empty()).then(|| range(&times, quantile))
        });
        match ranges {
            [Some(a), Some(b)] => a.0 <= b.1 && b.0 <= a.1,
            _ => false,
        }
    }

    /// What makes the runs less comparable.
    fn remarks(&self) -> Vec<String> {
        let (a, b) = (&self.a.run, &self.b.run);
        let mut remarks = Vec::new();
        for side in [&self.a, &self.b] {
            if !side.run.is_honest() {
                remarks.push(format!(
                    "{} sent only {} of its schedule: its figures tell of the generator",
                    side.name,
                    words::percent(side.run.sent_share())
                ));
            }
        }
        if a.asked.mode != b.asked.mode {
            remarks.push("one is an open loop, the other a closed one".to_owned());
        }
        if let (Some(of_a), Some(of_b)) = (a.asked.rate, b.asked.rate)
            && change(of_a, of_b).abs() > RATE_TOLERANCE
        {
            remarks.push("the rates asked for differ".to_owned());
        }
        if a.asked.mode == Mode::Closed && a.asked.callers != b.asked.callers {
            remarks.push("the numbers of callers differ".to_owned());
        }
        let facts = |run: &Recording, fact: Fact| -> Vec<String> {
            run.machines.iter().map(fact).collect()
        };
        let alike: [(&str, Fact); 4] = [
            ("machines", |machine| machine.host.clone()),
            ("processors", |machine| {
                format!("{:?} {}", machine.cpu, machine.cores)
            }),
            ("kernels", |machine| format!("{:?}", machine.kernel)),
            ("generator versions", |machine| machine.version.clone()),
        ];
        for (name, fact) in alike {
            if facts(a, fact) != facts(b, fact) {
                remarks.push(format!("the {name} differ"));
            }
        }
        for (name, value) in &a.asked.settings {
            let other = b.asked.settings.get(name);
            if other != Some(value) {
                let other = other.map_or("nothing", String::as_str);
                remarks.push(format!("{name} is {value} in A, {other} in B"));
            }
        }
        remarks
    }
}

/// Where the percentile of a much longer run would be, as far as this many calls can tell: the
/// values at the ranks that chance alone could have moved it to.
fn range(times: &Histogram<u64>, quantile: f64) -> (u64, u64) {
    let spread = DEVIATIONS * (quantile * (1.0 - quantile) / times.len() as f64).sqrt();
    let at = |quantile: f64| times.value_at_quantile(quantile.clamp(0.0, 1.0));
    (at(quantile - spread), at(quantile + spread))
}

/// A run in a line.
fn what(run: &Recording) -> String {
    let mode = match (run.asked.mode, run.asked.rate) {
        (Mode::Open, Some(rate)) => format!("open loop at {} calls/s", words::digits(rate)),
        (Mode::Open, None) => "open loop".to_owned(),
        (Mode::Closed, _) => format!("closed loop of {} callers", run.asked.callers),
    };
    format!(
        "{mode}, {} calls in {}, {}",
        words::count(Times::of(&run.response()).count),
        words::duration(run.measured_s),
        utc(run.started_unix_ms)
    )
}
