//! The page: the answers, the curve of scaling, the curves of latency, every try. It looks like the
//! load generator's reports, whose parts it is made of.

use std::fmt::Write;

use loadgen::report::html::{
    document, facts,
    plot::{self, Plot, legend},
    section,
    words::{count, escaped, percent, table},
};

use super::{
    Advice,
    table::{HEADS, cells, fitted, ms, rate, remarks},
};
use crate::model::{EXTRAPOLATION_MAX, Point};

/// How the lines of numbers of shards look; more of them could not be told apart.
const LOOKS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

/// Renders the page.
pub(super) fn render(advice: &Advice) -> String {
    let title = "Shards and rates";
    let mut body = format!(
        "<header><h1>{title}</h1><p>{}</p></header>",
        escaped(&introduction(advice))
    );
    for (name, note, inside) in [
        ("What a rate takes", "", answers(advice)),
        (
            "Capacity by shards",
            "The highest rate that kept the objective. The line is the fitted law, dashed where \
             nothing was measured.",
            capacity(advice),
        ),
        (
            "99th percentile by rate",
            "All tries. A hollow mark did not keep the objective.",
            latency(advice),
        ),
        ("Measured and fitted", "", measured(advice)),
        ("All tries", "", tries(&advice.measured.points)),
    ] {
        body.push_str(&section(name, note, &inside));
    }
    document(title, &body)
}

fn introduction(advice: &Advice) -> String {
    let measured = &advice.measured;
    let objective = &advice.models.objective;
    let pattern = measured
        .pattern
        .as_ref()
        .map_or_else(String::new, |pattern| format!(", connections {pattern}"));
    format!(
        "{} tries on {}{pattern}. Objective: 99 of 100 replies within {}, at most {} % failed, at \
         least 99 % of the offered calls sent.",
        measured.points.len(),
        if measured.machines.is_empty() {
            "an unnamed machine".to_owned()
        } else {
            measured.machines.join(", ")
        },
        ms(objective.p99_us),
        objective.error_share * 100.0
    )
}

fn answers(advice: &Advice) -> String {
    let (mut rows, mut refused) = (Vec::new(), String::new());
    for (question, answer) in &advice.answers {
        match answer {
            Ok(answer) => {
                let mut row = vec![rate(question.rate)];
                row.extend(cells(answer).iter().map(|cell| match cell.as_str() {
                    "low" => "<span class=\"missed\">low</span>".to_owned(),
                    cell => escaped(cell),
                }));
                rows.push(row);
            }
            Err(reason) => {
                // Writing to a string cannot fail.
                let _ = write!(
                    refused,
                    "<p class=\"note\">No answer for {} calls/s: {}.</p>",
                    rate(question.rate),
                    escaped(&reason.to_string())
                );
            }
        }
    }
    if rows.is_empty() {
        return refused;
    }
    table(&HEADS, &rows) + &refused
}

fn measured(advice: &Advice) -> String {
    let notes = remarks(advice).into_iter().map(|remark| ("note", remark));
    let rows: Vec<(String, String)> = fitted(advice)
        .into_iter()
        .chain(notes)
        .map(|(label, text)| (label.to_owned(), text))
        .collect();
    facts(&rows)
}

fn tries(points: &[Point]) -> String {
    let heads = [
        "shards",
        "offered/s",
        "good/s",
        "p50",
        "p99",
        "p99.9",
        "errors",
        "sent",
        "busy",
        "busiest",
        "forwarded",
        "objective",
    ];
    let busy = |share: Option<f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
    };
    let row = |point: &Point| {
        let (class, said) = if point.is_met {
            ("met", "✓ kept")
        } else {
            ("missed", "✗ not kept")
        };
        vec![
            point.shards.to_string(),
            rate(point.rate),
            rate(point.good_per_s),
            ms(point.p50_us),
            ms(point.p99_us),
            ms(point.p999_us),
            escaped(&percent(point.error_share)),
            escaped(&percent(point.sent_share)),
            busy(point.busy),
            busy(point.busiest),
            busy(point.forwarded),
            format!("<span class=\"{class}\">{said}</span>"),
        ]
    };
    table(&heads, &points.iter().map(row).collect::<Vec<_>>())
}

fn capacity(advice: &Advice) -> String {
    let models = &advice.models;
    let measured = models.curve.capacities();
    let most = f64::from(models.curve.shards_max()).max(1.0);
    let (x, x_ticks) = plot::whole(most * EXTRAPOLATION_MAX);
    let law = |from: f64, to: f64| -> Vec<(f64, f64)> {
        models.usl.map_or_else(Vec::new, |usl| {
            (0..=40)
                .map(|step| from + (to - from) * f64::from(step) / 40.0)
                .map(|shards| (shards, usl.throughput(shards)))
                .collect()
        })
    };
    let (fitted, beyond) = (law(1.0, most), law(most, most * EXTRAPOLATION_MAX));
    let lambda = models.usl.map_or(0.0, |usl| usl.lambda);
    let perfect = [(0.0, 0.0), (most, lambda * most)];
    let shown = measured.iter().chain(&beyond).chain(&perfect);
    let (y, y_ticks) = plot::linear(shown.map(|(_, rate)| *rate).fold(0.0, f64::max));
    let plot = Plot {
        height: 320.0,
        x,
        y,
    };
    let mut svg = plot.axes((&x_ticks, "shards"), (&y_ticks, "calls per second"));
    svg.push_str(&plot.line(&perfect, "quiet"));
    svg.push_str(&plot.line(&fitted, "one"));
    svg.push_str(&plot.line(&beyond, "one dashed"));
    for (shards, capacity) in measured {
        let told = format!("{}: {} calls/s", shards_of(shards), rate(capacity));
        svg.push_str(&plot.dot((shards, capacity), "one", &told));
    }
    let legend = legend(&[("one", "kept the objective"), ("quiet", "perfect scaling")]);
    legend + &plot.svg("Capacity by number of shards", &svg)
}

fn latency(advice: &Advice) -> String {
    let points = &advice.measured.points;
    let objective = advice.models.objective;
    let limit = objective.p99_us * 1000.0;
    let times = points.iter().map(|point| point.p99_us * 1000.0);
    let (y, y_ticks) = plot::log_times(
        times.clone().filter(|ns| *ns > 0.0).fold(limit, f64::min),
        times.fold(limit, f64::max),
    );
    let (x, x_ticks) = plot::linear(points.iter().map(|point| point.rate).fold(0.0, f64::max));
    let plot = Plot {
        height: 360.0,
        x,
        y,
    };
    let mut svg = plot.axes(
        (&x_ticks, "calls per second offered"),
        (&y_ticks, "99th percentile"),
    );
    svg.push_str(&plot.limit(limit, &format!("objective: {}", ms(objective.p99_us))));
    let mut shards: Vec<u16> = points.iter().map(|point| point.shards).collect();
    shards.sort_unstable();
    shards.dedup();
    // With more numbers of shards than looks some stay without a line.
    let step = shards.len().div_ceil(LOOKS.len()).max(1);
    let mut names: Vec<(&str, String)> = Vec::new();
    for (shards, look) in shards.iter().step_by(step).zip(LOOKS) {
        let mut own: Vec<&Point> = points
            .iter()
            .filter(|point| point.shards == *shards)
            .collect();
        own.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        // A rate that was tried twice is passed at its better try.
        let mut way: Vec<(f64, f64)> = Vec::new();
        for point in &own {
            let ns = point.p99_us * 1000.0;
            match way.last_mut() {
                Some((rate, best)) if *rate == point.rate => *best = best.min(ns),
                _ => way.push((point.rate, ns)),
            }
        }
        svg.push_str(&plot.line(&way, look));
        let name = shards_of(f64::from(*shards));
        for point in own {
            let hollow = if objective.is_met(point) {
                ""
            } else {
                " hollow"
            };
            let told = format!(
                "{name}, {} calls/s: p99 {}",
                rate(point.rate),
                ms(point.p99_us)
            );
            let at = (point.rate, point.p99_us * 1000.0);
            svg.push_str(&plot.dot(at, &format!("{look}{hollow}"), &told));
        }
        names.push((look, name));
    }
    let names: Vec<(&str, &str)> = names
        .iter()
        .map(|(look, name)| (*look, name.as_str()))
        .collect();
    legend(&names) + &plot.svg("99th percentile by rate", &svg)
}

fn shards_of(shards: f64) -> String {
    let unit = if shards == 1.0 { "shard" } else { "shards" };
    format!("{} {unit}", count(shards as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measured::Measured,
        model::{answer::Question, curve::Objective},
    };

    #[test]
    fn the_page_needs_nothing_else_and_closes_what_it_opens() {
        let mut measured = Measured {
            machines: vec!["<host> & co".to_owned()],
            ..Measured::begin()
        };
        measured.machines.truncate(1);
        for shards in [1_u16, 2, 4] {
            for share in [0.5, 0.8, 1.0, 1.3] {
                measured.points.push(Point {
                    shards,
                    rate: 9_000.0 * f64::from(shards) * share,
                    good_per_s: 9_000.0 * f64::from(shards) * share,
                    p99_us: if share > 1.0 { 90_000.0 } else { 800.0 },
                    sent_share: 1.0,
                    ..Point::default()
                });
            }
        }
        let question = Question {
            rate: 0.0,
            objective: Objective {
                p99_us: 5_000.0,
                error_share: 0.001,
            },
            sessions: 1_000,
            connections: 1_000,
            host_cores: None,
            host_bytes: None,
            host_descriptors: None,
            spare_hosts: 0,
        };
        let advice = Advice::new(measured, &question, &[5_000.0, 1e9]);
        let page = advice.to_html();
        for part in ["http://", "https://", "<script", "src=", "url(", "<host>"] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(page.contains("&lt;host&gt; &amp; co"));
        assert!(page.contains("No answer for 1,000,000,000 calls/s: too far"));
        assert!(!page.contains("NaN") && !page.contains("inf"));
        for name in [
            "table", "tr", "td", "svg", "section", "div", "p", "h2", "text",
        ] {
            let opened = page.matches(&format!("<{name}>")).count()
                + page.matches(&format!("<{name} ")).count();
            assert_eq!(
                opened,
                page.matches(&format!("</{name}>")).count(),
                "{name}"
            );
        }
        assert_eq!(page.matches("role=\"img\"").count(), 2);
        let text = advice.to_text();
        assert!(
            text.contains("no answer for 1,000,000,000 calls/s"),
            "{text}"
        );
        assert!(!advice.is_complete());
        let json = advice.to_json();
        assert_eq!(json["answers"][0]["answer"]["shards"], 1);
        assert_eq!(
            json["answers"][1]["text"]
                .as_str()
                .unwrap()
                .split(':')
                .next(),
            Some("too far from what was measured")
        );
    }
}
