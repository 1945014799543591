//! The page: the curve of scaling, the curves of latency, the answers. One file, nothing fetched,
//! no script; light or dark as the reader's system is.

mod chart;

use chart::{Axis, Chart, Mark, Scale};

use super::{
    Advice,
    table::{HEADS, cells, fitted, ms, rate, remarks},
};
use crate::model::{EXTRAPOLATION_MAX, Point};

const STYLE: &str = "\
:root{color-scheme:light dark;--page:#fff;--ink:#1c2430;--soft:#5b6675;--line:#d9dee5;\
--c0:#1f66c1;--c1:#c2510c;--c2:#137a56;--c3:#8a3ea8;--c4:#a6761d;--c5:#66717f}\
@media(prefers-color-scheme:dark){:root{--page:#12161c;--ink:#e6eaf0;--soft:#98a3b2;\
--line:#2c3440;--c0:#6aa9f7;--c1:#f19a5a;--c2:#57c79b;--c3:#c892e0;--c4:#d9b45f;--c5:#98a3b2}}\
body{margin:0 auto;max-width:70rem;padding:2rem 1.5rem 4rem;background:var(--page);color:var(--ink);\
font:15px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;margin:0 0 .2rem}h2{font-size:1.1rem;\
margin:2rem 0 .4rem}p{color:var(--soft);margin:.2rem 0 .8rem;max-width:48rem}table{border-collapse:\
collapse;font-variant-numeric:tabular-nums;width:100%}th,td{text-align:right;padding:.3rem .6rem;\
border-bottom:1px solid var(--line);white-space:nowrap}th{color:var(--soft);font-weight:600}\
td.wide{white-space:normal;text-align:left;color:var(--soft)}.facts td{text-align:left;white-space:normal}\
.facts td:first-child{color:var(--soft);width:7rem}svg{width:100%;height:auto;display:block}\
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg .name{fill:var(--ink)}\
svg .grid{stroke:var(--line)}svg .axis{stroke:var(--soft)}.charts{display:grid;gap:1.5rem;\
grid-template-columns:repeat(auto-fit,minmax(28rem,1fr))}.low{color:var(--c1)}.scroll{overflow-x:auto}\
@media(max-width:32rem){.charts{grid-template-columns:1fr}}";

/// Renders the page.
pub(super) fn render(advice: &Advice) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>shardgate: shards and rates</title><style>{STYLE}</style></head><body>\n\
         <h1>Shards and rates</h1>\n<p>{}</p>\n",
        escaped(&introduction(advice))
    );
    page += "<h2>What a rate takes</h2>\n<div class=\"scroll\">";
    page += &answers(advice);
    page += "</div>\n<div class=\"charts\">\n<section><h2>Capacity by shards</h2>\n\
             <p>The highest rate that kept the objective. The line is the fitted law, dashed where \
             nothing was measured; the thin line is what perfect scaling would give.</p>\n";
    page += &capacity(advice);
    page += "</section>\n<section><h2>99th percentile by rate</h2>\n<p>All tries. The horizontal \
             line is the objective; a hollow mark did not keep it.</p>\n";
    page += &latency(advice);
    page += "</section>\n</div>\n<h2>Measured and fitted</h2>\n<table class=\"facts\">";
    for (label, text) in fitted(advice) {
        page += &format!("<tr><td>{label}</td><td>{}</td></tr>\n", escaped(&text));
    }
    for remark in remarks(advice) {
        page += &format!("<tr><td>note</td><td>{}</td></tr>\n", escaped(&remark));
    }
    page += "</table>\n<h2>All tries</h2>\n<div class=\"scroll\">";
    page += &points(&advice.measured.points);
    page += "</div>\n</body></html>\n";
    page
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
    let mut text = String::from("<table><tr>");
    for head in HEADS {
        text += &format!("<th>{head}</th>");
    }
    text += "</tr>\n";
    for (question, answer) in &advice.answers {
        text += &format!("<tr><td>{}</td>", rate(question.rate));
        match answer {
            Ok(answer) => {
                for cell in cells(answer) {
                    let class = if cell == "low" { " class=\"low\"" } else { "" };
                    text += &format!("<td{class}>{}</td>", escaped(&cell));
                }
            }
            Err(reason) => {
                text += &format!(
                    "<td class=\"wide\" colspan=\"{}\">no answer: {}</td>",
                    HEADS.len() - 1,
                    escaped(&reason.to_string())
                );
            }
        }
        text += "</tr>\n";
    }
    text + "</table>"
}

fn points(points: &[Point]) -> String {
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
        "kept",
    ];
    let mut text = String::from("<table><tr>");
    for head in heads {
        text += &format!("<th>{head}</th>");
    }
    text += "</tr>\n";
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
    };
    for point in points {
        let cells = [
            point.shards.to_string(),
            rate(point.rate),
            rate(point.good_per_s),
            ms(point.p50_us),
            ms(point.p99_us),
            ms(point.p999_us),
            format!("{:.2} %", point.error_share * 100.0),
            format!("{:.1} %", point.sent_share * 100.0),
            percent(point.busy),
            percent(point.busiest),
            percent(point.forwarded),
            if point.is_met { "yes" } else { "no" }.to_owned(),
        ];
        text += "<tr>";
        for cell in cells {
            text += &format!("<td>{cell}</td>");
        }
        text += "</tr>\n";
    }
    text + "</table>"
}

fn capacity(advice: &Advice) -> String {
    let models = &advice.models;
    let measured = models.curve.capacities();
    let shards_max = f64::from(models.curve.shards_max()) * EXTRAPOLATION_MAX;
    let law = |from: f64, to: f64| -> Vec<(f64, f64)> {
        models.usl.map_or_else(Vec::new, |usl| {
            (0..=40)
                .map(|step| from + (to - from) * f64::from(step) / 40.0)
                .map(|shards| (shards, usl.throughput(shards)))
                .collect()
        })
    };
    let most = f64::from(models.curve.shards_max()).max(1.0);
    let lambda = models.usl.map_or(0.0, |usl| usl.lambda);
    let top = measured.iter().map(|(_, rate)| *rate);
    let beyond = law(most, shards_max);
    let top = top
        .chain(beyond.iter().map(|(_, rate)| *rate))
        .chain([lambda * most])
        .fold(1.0, f64::max);
    let mut chart = Chart::new(
        Axis::new("shards", Scale::Linear, 0.0, shards_max.max(2.0)),
        Axis::new("calls/s", Scale::Linear, 0.0, top * 1.05),
    );
    chart.line(&[(0.0, 0.0), (most, lambda * most)], "var(--soft)", "1", "");
    chart.line(&law(1.0, most), "var(--c0)", "2", "");
    chart.line(&beyond, "var(--c0)", "2", "5 5");
    for (shards, rate) in measured {
        chart.mark(shards, rate, "var(--c0)", Mark::Full);
    }
    chart.render("Capacity by number of shards")
}

fn latency(advice: &Advice) -> String {
    let points = &advice.measured.points;
    let objective = advice.models.objective;
    let rates = points.iter().map(|point| point.rate);
    let times = points.iter().map(|point| point.p99_us / 1000.0);
    let least = times.clone().fold(objective.p99_us / 1000.0, f64::min);
    let most = times.fold(objective.p99_us / 1000.0, f64::max);
    let mut chart = Chart::new(
        Axis::new(
            "calls/s",
            Scale::Linear,
            0.0,
            rates.fold(1.0, f64::max) * 1.05,
        ),
        Axis::new("p99, ms", Scale::Log, least.max(0.01) / 1.5, most * 1.5),
    );
    let limit = objective.p99_us / 1000.0;
    chart.line(&[(0.0, limit), (f64::MAX, limit)], "var(--c1)", "1", "3 3");
    let mut shards: Vec<u16> = points.iter().map(|point| point.shards).collect();
    shards.sort_unstable();
    shards.dedup();
    // Six colours can be told apart; with more lines some stay without.
    let step = shards.len().div_ceil(6).max(1);
    for (index, count) in shards
        .iter()
        .enumerate()
        .filter(|(index, _)| index % step == 0)
    {
        let color = format!("var(--c{})", index / step % 6);
        let mut own: Vec<&Point> = points
            .iter()
            .filter(|point| point.shards == *count)
            .collect();
        own.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        // A rate that was tried twice is passed at its better try.
        let mut way: Vec<(f64, f64)> = Vec::new();
        for point in &own {
            let ms = point.p99_us / 1000.0;
            match way.last_mut() {
                Some((rate, best)) if *rate == point.rate => *best = best.min(ms),
                _ => way.push((point.rate, ms)),
            }
        }
        chart.line(&way, &color, "1.5", "");
        for point in &own {
            let is_met = objective.is_met(point);
            let mark = if is_met { Mark::Full } else { Mark::Hollow };
            chart.mark(point.rate, point.p99_us / 1000.0, &color, mark);
        }
        let name = if *count == 1 {
            "1 shard".to_owned()
        } else {
            format!("{count} shards")
        };
        chart.legend(&name, &color);
    }
    chart.render("99th percentile by rate")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
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
        assert!(page.contains("no answer: too far"));
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
        assert_eq!(page.matches("<svg").count(), 2);
        let text = advice.to_text();
        assert!(
            text.contains("no answer for 1 000 000 000 calls/s"),
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
