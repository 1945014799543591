//! What a comparison found: a table for people, an object for programs.

use std::{collections::BTreeMap, fmt::Write};

use serde_json::{Map, Value, json};

use crate::{
    sample::{Point, Sample, median},
    targets::TARGETS,
};

/// Drift of nginx between cycles above which its ratios mean little (engine.md 10).
const DRIFT_MAX: f64 = 0.20;
/// Cycles below which there is no verdict.
const CYCLES_MIN: u32 = 3;

/// Points of one contestant in one case, by cycle.
pub(super) type Cycles = Vec<Point>;

/// The samples that count.
pub(super) fn good(cycles: &Cycles) -> impl Iterator<Item = &Sample> {
    cycles.iter().filter_map(Point::good)
}

/// Everything measured.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Value by target.
    pub targets: BTreeMap<&'static str, f64>,
    /// What it was measured on.
    pub machine: Value,
    /// Cycles.
    pub cycles: u32,
    /// Whether the generator, and the bare proxies, are a debug build.
    pub is_debug: bool,
    /// Who or what was skipped, and why.
    pub skipped: Vec<String>,
    /// Which points do not count, and why.
    pub refused: Vec<String>,
    /// What follows for the one who runs a gateway here.
    pub advice: Vec<String>,
    /// Largest spread of nginx's CPU per call between cycles, of its median.
    pub nginx_drift: Option<f64>,
    /// Case, contestant, cycles; in the order they were measured.
    cases: Vec<(String, Vec<(String, Cycles)>)>,
}

impl Outcome {
    /// Whether there is any figure at all.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.cases.is_empty()
    }

    pub(super) fn skip(&mut self, note: String) {
        if !self.skipped.contains(&note) {
            self.skipped.push(note);
        }
    }

    pub(super) fn advise(&mut self, line: String) {
        self.advice.push(line);
    }

    pub(super) fn refuse(&mut self, note: String) {
        self.refused.push(note);
    }

    pub(super) fn reach(&mut self, id: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.targets.insert(id, value);
        }
    }

    /// Keeps the points of a case, those that do not count as well; contestants of which nothing
    /// was asked are left out.
    pub(super) fn keep(&mut self, case: String, rows: Vec<(String, Cycles)>) {
        let was_asked = |point: &Point| point.sample.is_some() || point.refusal.is_some();
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|(_, cycles)| cycles.iter().any(was_asked))
            .collect();
        if let Some((_, cycles)) = rows.iter().find(|(label, _)| label == "nginx") {
            let drift = spread(good(cycles).map(|sample| sample.cpu_us));
            self.nginx_drift = [self.nginx_drift, drift]
                .into_iter()
                .flatten()
                .reduce(f64::max);
        }
        if !rows.is_empty() {
            self.cases.push((case, rows));
        }
    }

    /// As one JSON object.
    pub fn to_json(&self) -> Value {
        let mut cases = Map::new();
        for (case, rows) in &self.cases {
            let rows: Map<String, Value> = rows
                .iter()
                .map(|(label, cycles)| (label.clone(), row(cycles, rows)))
                .collect();
            cases.insert(case.clone(), Value::Object(rows));
        }
        json!({
            "targets": self.targets,
            "machine": self.machine,
            "cycles": self.cycles,
            "cases": cases,
            "nginx_drift": self.nginx_drift,
            "advice": self.advice,
            "no_verdict": self.no_verdict(),
            "skipped": self.skipped,
            "refused": self.refused,
        })
    }

    /// Why the figures decide nothing, if so.
    fn no_verdict(&self) -> Option<String> {
        if self.is_debug {
            return Some("this bench is a debug build: cargo run --release -p bench".to_owned());
        }
        if self.cycles < CYCLES_MIN {
            return Some(format!(
                "fewer than {CYCLES_MIN} cycles: to see that it works, not to quote"
            ));
        }
        let drift = self.nginx_drift.filter(|drift| *drift > DRIFT_MAX)?;
        Some(format!(
            "nginx itself drifts by {:.0} %: too much for a verdict",
            drift * 100.0
        ))
    }

    /// As tables for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (case, rows) in &self.cases {
            let _ = writeln!(
                text,
                "{case:<24} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>7}",
                "CPU us", "user us", "/ nginx", "calls/s", "p50 us", "p99 us", "sent %"
            );
            for (label, cycles) in rows {
                let value = row(cycles, rows);
                let cell = |name: &str| match value[name].as_f64() {
                    Some(number) => format!("{number:.2}"),
                    None => "-".to_owned(),
                };
                let _ = writeln!(
                    text,
                    "  {label:<22} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>7}{}",
                    cell("cpu_us"),
                    cell("user_us"),
                    cell("ratio_to_nginx"),
                    cell("calls_per_s"),
                    cell("p50_us"),
                    cell("p99_us"),
                    cell("sent_percent"),
                    mark(&value),
                );
            }
        }
        for target in TARGETS {
            let Some(value) = self.targets.get(target.id) else {
                continue;
            };
            let _ = writeln!(
                text,
                "{:<5} {:<46} {value:>9.2} {:<6} {:<7} (first {}, goal {})",
                target.id,
                target.what,
                target.unit,
                target.verdict(*value),
                target.first,
                target.goal
            );
        }
        for line in &self.advice {
            let _ = writeln!(text, "{line}");
        }
        for note in &self.refused {
            let _ = writeln!(text, "refused {note}");
        }
        for note in &self.skipped {
            let _ = writeln!(text, "skipped {note}");
        }
        if let Some(drift) = self.nginx_drift {
            let _ = writeln!(text, "nginx drifts by {:.0} %", drift * 100.0);
        }
        if let Some(reason) = self.no_verdict() {
            let _ = writeln!(text, "no verdict: {reason}");
        }
        let _ = writeln!(text, "{}", self.machine);
        text
    }
}

/// What stands behind a row whose samples do not all count.
fn mark(row: &Value) -> String {
    let (accepted, refused) = (row["accepted"].as_u64(), row["refused"].as_u64());
    match (accepted.unwrap_or(0), refused.unwrap_or(0)) {
        (_, 0) => String::new(),
        (0, _) => "  REFUSED".to_owned(),
        (accepted, refused) => format!("  {refused} of {} refused", accepted + refused),
    }
}

/// Medians of a contestant over the samples that count, or over the others when none does; CPU
/// figures only when it has a process.
fn row(cycles: &Cycles, rows: &[(String, Cycles)]) -> Value {
    let accepted = good(cycles).count();
    let refused = cycles.iter().filter(|point| point.refusal.is_some());
    let samples: Vec<&Sample> = if accepted > 0 {
        good(cycles).collect()
    } else {
        cycles
            .iter()
            .filter_map(|point| point.sample.as_ref())
            .collect()
    };
    let middle = |pick: fn(&Sample) -> f64| median(samples.iter().copied().map(pick));
    let cpu = |pick: fn(&Sample) -> f64| middle(pick).filter(|value| *value > 0.0);
    let nginx = rows
        .iter()
        .find(|(label, _)| label == "nginx")
        .map(|(_, cycles)| cycles);
    json!({
        "cpu_us": cpu(|sample| sample.cpu_us),
        "user_us": cpu(|sample| sample.user_us),
        "ratio_to_nginx": nginx.and_then(|nginx| ratio(cycles, nginx, |sample| sample.cpu_us)),
        "calls_per_s": middle(|sample| sample.calls_per_s),
        "p50_us": middle(|sample| sample.p50_us),
        "p99_us": middle(|sample| sample.p99_us),
        "sent_percent": middle(|sample| sample.sent_share * 100.0),
        "error_percent": middle(|sample| sample.error_share * 100.0),
        "accepted": accepted,
        "refused": refused.count(),
    })
}

/// Median over the cycles of ours / theirs in the same cycle.
pub(super) fn ratio(ours: &Cycles, theirs: &Cycles, pick: fn(&Sample) -> f64) -> Option<f64> {
    let pairs = ours.iter().zip(theirs).filter_map(|(one, other)| {
        let (one, other) = (pick(one.good()?), pick(other.good()?));
        (one > 0.0 && other > 0.0).then_some(one / other)
    });
    median(pairs)
}

/// Distance of the extremes, as a share of the median; of at least two values.
fn spread(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    let (low, high) = (
        values.iter().copied().reduce(f64::min)?,
        values.iter().copied().reduce(f64::max)?,
    );
    let middle = median(values.iter().copied()).filter(|middle| *middle > 0.0)?;
    (values.len() > 1).then_some((high - low) / middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(cpu: &[f64]) -> Cycles {
        cpu.iter()
            .map(|cpu_us| {
                if *cpu_us > 0.0 {
                    Point::from(Sample {
                        cpu_us: *cpu_us,
                        p50_us: 5.0,
                        ..Sample::default()
                    })
                } else {
                    Point::default()
                }
            })
            .collect()
    }

    #[test]
    fn ratios_are_of_the_same_cycle() {
        // The third cycle of ours is missing, so it takes no part.
        let ratio = ratio(
            &cycles(&[10.0, 40.0, 0.0]),
            &cycles(&[20.0, 40.0, 1.0]),
            |s| s.cpu_us,
        );
        assert_eq!(ratio, Some(0.75));
        assert_eq!(
            super::ratio(&cycles(&[0.0]), &cycles(&[1.0]), |s| s.cpu_us),
            None
        );
    }

    #[test]
    fn tables_and_objects_tell_the_same() {
        let mut outcome = Outcome {
            cycles: 3,
            ..Outcome::default()
        };
        assert!(outcome.is_empty());
        outcome.keep(
            "json200".to_owned(),
            vec![
                ("direct".to_owned(), cycles(&[0.0])),
                ("nginx".to_owned(), cycles(&[20.0, 30.0])),
                ("ours".to_owned(), cycles(&[10.0, 15.0])),
            ],
        );
        outcome.reach("V1", Some(0.8));
        outcome.reach("V2", Some(f64::NAN));
        outcome.skip("x: gone".to_owned());
        outcome.skip("x: gone".to_owned());
        let json = outcome.to_json();
        assert_eq!(json["cases"]["json200"]["ours"]["ratio_to_nginx"], 0.5);
        assert!(json["cases"]["json200"]["direct"].is_null());
        assert_eq!(json["targets"], json!({"V1": 0.8}));
        assert_eq!(json["skipped"].as_array().unwrap().len(), 1);
        assert!((json["nginx_drift"].as_f64().unwrap() - 0.4).abs() < 1e-9);
        let text = outcome.to_text();
        assert!(text.contains("too much for a verdict"));
        assert!(
            text.lines()
                .any(|line| line.starts_with("V1 ") && line.contains("first"))
        );
    }

    #[test]
    fn what_is_refused_stays_in_the_table_and_out_of_the_figures() {
        let refused = |cpu_us| Point {
            refusal: Some("too few were sent".to_owned()),
            ..cycles(&[cpu_us]).remove(0)
        };
        let mut half = cycles(&[10.0, 10.0]);
        half.push(refused(90.0));
        let mut outcome = Outcome {
            cycles: 3,
            ..Outcome::default()
        };
        outcome.keep(
            "case".to_owned(),
            vec![
                ("nginx".to_owned(), cycles(&[20.0, 20.0, 20.0])),
                ("half".to_owned(), half),
                ("all".to_owned(), vec![refused(50.0), refused(50.0)]),
                (
                    "none".to_owned(),
                    vec![Point {
                        sample: None,
                        refusal: Some("cannot connect".to_owned()),
                    }],
                ),
                ("nobody".to_owned(), vec![Point::default()]),
            ],
        );
        let json = outcome.to_json();
        let case = &json["cases"]["case"];
        assert_eq!(case["half"]["ratio_to_nginx"], 0.5);
        assert_eq!(
            (&case["half"]["accepted"], &case["half"]["refused"]),
            (&2.into(), &1.into())
        );
        assert_eq!(case["all"]["cpu_us"], 50.0);
        assert!(case["all"]["ratio_to_nginx"].is_null());
        assert!(case["nobody"].is_null());
        let text = outcome.to_text();
        let row = |name: &str| {
            let mut lines = text.lines();
            lines
                .find(|line| line.starts_with(&format!("  {name} ")))
                .unwrap()
        };
        assert!(row("half").ends_with("1 of 3 refused"), "{text}");
        assert!(
            row("all").ends_with("REFUSED") && row("none").ends_with("REFUSED"),
            "{text}"
        );
        assert!(row("nginx").trim_end().ends_with("0.00"), "{text}");
        assert!(json["no_verdict"].is_null());
        outcome.cycles = 1;
        assert!(
            outcome
                .to_text()
                .contains("no verdict: fewer than 3 cycles")
        );
    }
}
