//! Trials at several rates: the steps of a run, or the probes of the search for the highest rate.

use super::{
    plot::{self, Plot, legend},
    words::{count, digits, escaped, percent, table, time},
};
use crate::{
    record::{FoundMax, Recording, Step},
    slo::Slo,
};

/// The chart and the table, the lowest rate first; nothing when there are less than two rates with
/// a reply.
pub(crate) fn part(recording: &Recording) -> String {
    let mut steps: Vec<&Step> = recording.steps.iter().collect();
    steps.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let chart = chart(&steps, recording.found_max.as_ref());
    if chart.is_empty() {
        return chart;
    }
    chart + &rows(&steps)
}

/// A figure of a step.
type Pick = fn(&Step) -> f64;

fn chart(steps: &[&Step], found: Option<&FoundMax>) -> String {
    let steps: Vec<&Step> = steps
        .iter()
        .filter(|step| step.p99_us > 0.0)
        .copied()
        .collect();
    if steps.len() < 2 {
        return String::new();
    }
    let limit = found
        .and_then(|found| found.slo.parse::<Slo>().ok())
        .and_then(|slo| slo.percentile_limit(99.0))
        .map(|limit| limit.as_nanos() as f64);
    let least = steps.iter().map(|step| step.p50_us * 1000.0);
    let most = steps.iter().map(|step| step.p99_us * 1000.0);
    let (y, y_ticks) = plot::log_times(
        least.chain(limit).fold(f64::MAX, f64::min),
        most.chain(limit).fold(0.0, f64::max),
    );
    let (x, x_ticks) = plot::linear(steps.last().map_or(1.0, |step| step.rate));
    let plot = Plot {
        height: 320.0,
        x,
        y,
    };
    let mut svg = plot.axes(
        (&x_ticks, "calls per second offered"),
        (&y_ticks, "response time"),
    );
    if let Some(limit) = limit {
        svg.push_str(&plot.limit(limit, &format!("objective: p99 {}", time(limit))));
    }
    let lines: [(&str, &str, Pick); 2] = [
        ("p99", "99th percentile", |step| step.p99_us),
        ("p50", "median", |step| step.p50_us),
    ];
    for (class, name, pick) in lines {
        let points: Vec<_> = steps
            .iter()
            .map(|step| (step.rate, pick(step) * 1000.0))
            .collect();
        svg.push_str(&plot.line(&points, class));
        for (step, point) in steps.iter().zip(&points) {
            let look = if step.is_met { "" } else { " hollow" };
            let told = format!("{} calls/s, {name} {}", digits(point.0), time(point.1));
            svg.push_str(&plot.dot(*point, &format!("{class}{look}"), &told));
        }
    }
    let legend = legend(&lines.map(|(class, name, _)| (class, name)));
    format!(
        "{legend}{}<p class=\"note\">Hollow: the objective was not met.</p>",
        plot.svg("Response time by offered load", &svg)
    )
}

fn rows(steps: &[&Step]) -> String {
    let row = |step: &&Step| {
        let us = |value: f64| time(value * 1000.0);
        let (class, said) = if step.is_met {
            ("met", "✓ met".to_owned())
        } else if step.remark.is_empty() {
            ("missed", "✗ missed".to_owned())
        } else {
            ("missed", format!("✗ {}", step.remark))
        };
        vec![
            digits(step.rate),
            count(step.good_per_s.round() as u64),
            us(step.p50_us),
            us(step.p99_us),
            us(step.p999_us),
            percent(step.error_share),
            percent(step.sent_share),
            format!("<span class=\"{class}\">{}</span>", escaped(&said)),
        ]
    };
    let head = [
        "calls/s",
        "good/s",
        "p50",
        "p99",
        "p99.9",
        "failed",
        "sent",
        "objective",
    ];
    table(&head, &steps.iter().map(row).collect::<Vec<_>>())
}
