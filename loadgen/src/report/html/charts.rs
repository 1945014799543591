//! Lines: latency by percentile, throughput, errors and the generator's lag.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::{
    plot::{self, Plot, Scale, Tick, legend},
    words::{digits, time},
};
use crate::{
    record::{Flow, Recording},
    report::hgrm,
};

/// One line of a chart of percentiles: class, name and times.
pub(crate) type Named<'a> = (&'a str, &'a str, &'a Histogram<u64>);

/// Latency by percentile: each mark to the right is ten times rarer.
pub(crate) fn percentiles(lines: &[Named<'_>]) -> String {
    let used: Vec<&Named<'_>> = lines
        .iter()
        .filter(|(.., times)| !times.is_empty())
        .collect();
    let Some(calls) = used.iter().map(|(.., times)| times.len()).max() else {
        return "<p>No call succeeded.</p>".to_owned();
    };
    let rarest = (calls as f64).max(100.0);
    let min = used
        .iter()
        .map(|(.., times)| times.min())
        .min()
        .unwrap_or(1);
    let max = used
        .iter()
        .map(|(.., times)| times.max())
        .max()
        .unwrap_or(1);
    let (y, y_ticks) = plot::log_times(min as f64, max as f64);
    let plot = Plot {
        height: 360.0,
        x: Scale::Log(1.0, rarest),
        y,
    };
    let x_ticks = rarities(rarest);
    let mut svg = plot.axes((&x_ticks, "percentile of calls"), (&y_ticks, "time"));
    for (index, (class, name, times)) in used.iter().enumerate() {
        let rows = hgrm::rows(times);
        let most = times.len() as f64;
        let points: Vec<_> = rows
            .iter()
            .map(|row| {
                // The slowest call is as rare as there are calls.
                let rarity = if row.quantile < 1.0 {
                    1.0 / (1.0 - row.quantile)
                } else {
                    most
                };
                (rarity.min(most), row.value * 1000.0)
            })
            .collect();
        svg.push_str(&plot.line(&points, class));
        for (quantile, label) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")] {
            let rarity = if quantile < 1.0 {
                1.0 / (1.0 - quantile)
            } else {
                most
            };
            if rarity > most {
                continue;
            }
            let value = times.value_at_quantile(quantile) as f64;
            let told = format!("{name}, {label}: {}", time(value));
            svg.push_str(&plot.dot((rarity, value), class, &told));
            // The last line is the one that counts: its values are read without a pointer.
            if index + 1 == used.len() {
                let (anchor, above) = if quantile < 0.6 {
                    ("middle", 20.0)
                } else {
                    ("end", 11.0)
                };
                let _ = write!(
                    svg,
                    "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">\
                     {label} {}</text>",
                    plot.across(rarity),
                    plot.down(value) - above,
                    time(value)
                );
            }
        }
    }
    let names = used.iter().map(|(class, name, _)| (*class, *name));
    let mut names: Vec<_> = names.collect();
    names.sort_by_key(|(_, name)| *name);
    let legend = if names.len() > 1 {
        legend(&names)
    } else {
        String::new()
    };
    format!("{legend}{}", plot.svg("Latency by percentile", &svg))
}

/// Marks of an axis of rarity: 0 %, 50 %, 90 %, 99 %, ...
fn rarities(rarest: f64) -> Vec<Tick> {
    let mut ticks = vec![(1.0, "0 %".to_owned()), (2.0, "50 %".to_owned())];
    let mut rarity = 10.0;
    while rarity <= rarest {
        let nines = rarity.log10().round() as usize;
        let places = nines.saturating_sub(2);
        ticks.push((rarity, format!("{:.places$} %", 100.0 - 100.0 / rarity)));
        rarity *= 10.0;
    }
    ticks
}

/// Calls in and out over time.
pub(crate) fn throughput(recording: &Recording) -> String {
    let (offered, good) = (
        rates(recording, |flow| flow.offered),
        rates(recording, |flow| flow.good),
    );
    let all = offered.iter().chain(&good);
    let max = all.map(|(_, rate)| *rate).fold(0.0, f64::max);
    let (y, y_ticks) = plot::linear(max);
    let (x, x_ticks, x_name) = plot::seconds(recording.measured_s);
    let plot = Plot {
        height: 260.0,
        x,
        y,
    };
    let mut svg = plot.axes((&x_ticks, x_name), (&y_ticks, "calls per second"));
    svg.push_str(&plot.line(&offered, "quiet"));
    svg.push_str(&plot.line(&good, "one"));
    svg.push_str(&dots(&plot, &good, "one", |rate| {
        format!("{} good replies/s", digits(rate))
    }));
    let legend = legend(&[("one", "good replies"), ("quiet", "offered")]);
    format!("{legend}{}", plot.svg("Calls per second over time", &svg))
}

/// Failed calls over time, as bars.
pub(crate) fn errors(recording: &Recording) -> String {
    let rates = rates(recording, |flow| flow.errors);
    let max = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    if max == 0.0 {
        return String::new();
    }
    let (y, y_ticks) = plot::linear(max);
    let (x, x_ticks, x_name) = plot::seconds(recording.measured_s);
    let plot = Plot {
        height: 200.0,
        x,
        y,
    };
    let mut svg = plot.axes((&x_ticks, x_name), (&y_ticks, "failed calls per second"));
    let half = f64::from(recording.interval_s) / 2.0;
    for (at, rate) in rates.iter().filter(|(_, rate)| *rate > 0.0) {
        let (left, right) = (plot.across(at - half), plot.across(at + half));
        let (top, bottom) = (plot.down(*rate), plot.down(0.0));
        // Bars keep apart, and none is wider than needed.
        let width = (right - left - 2.0).clamp(1.0, 24.0);
        let _ = write!(
            svg,
            "<rect class=\"bad\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{:.1}\"><title>{} failed calls/s, from {:.0} s</title></rect>",
            f64::midpoint(left, right) - width / 2.0,
            bottom - top,
            digits(*rate),
            at - half
        );
    }
    plot.svg("Failed calls per second over time", &svg)
}

/// Rates by the middles of the intervals; the last interval may be short.
fn rates(recording: &Recording, pick: fn(&Flow) -> u64) -> Vec<(f64, f64)> {
    let length = f64::from(recording.interval_s);
    let flow = recording.flow.iter().enumerate();
    flow.filter_map(|(index, flow)| {
        let from = index as f64 * length;
        let lasted = told(recording, from)?;
        Some((from + lasted / 2.0, pick(flow) as f64 / lasted))
    })
    .collect()
}

/// How long the interval that starts at `from` lasted. What is left of a run after its last full
/// interval says little when it is short.
fn told(recording: &Recording, from: f64) -> Option<f64> {
    let length = f64::from(recording.interval_s);
    let lasted = length.min(recording.measured_s - from);
    (lasted >= length / 4.0 || from == 0.0).then_some(lasted.max(0.001))
}

fn dots(plot: &Plot, points: &[(f64, f64)], class: &str, told: impl Fn(f64) -> String) -> String {
    // Between many points the line is enough.
    let is_few = points.len() <= 60;
    let shown = points.iter().filter(|_| is_few);
    shown
        .map(|point| plot.dot(*point, class, &told(point.1)))
        .collect()
}

/// How late calls were sent, over time.
pub(crate) fn lag(recording: &Recording) -> String {
    let whole = recording.slip.whole();
    if whole.is_empty() {
        return String::new();
    }
    let lines = [("one", "latest", 1.0), ("p99", "99th percentile", 0.99)];
    let length = f64::from(recording.interval_s);
    let points = |quantile: f64| -> Vec<(f64, f64)> {
        let intervals = recording.slip.intervals().iter();
        intervals
            .filter_map(|(index, packed)| {
                let from = f64::from(*index) * length;
                let lasted = told(recording, from)?;
                // A microsecond is below anything that matters here.
                let late = packed.unpack().value_at_quantile(quantile).max(1000);
                Some((from + lasted / 2.0, late as f64))
            })
            .collect()
    };
    let all = lines.map(|(class, name, quantile)| (class, name, points(quantile)));
    let values = all
        .iter()
        .flat_map(|(.., points)| points)
        .map(|(_, value)| *value);
    let (min, max) = values.fold((f64::MAX, 1000.0_f64), |(min, max), value| {
        (min.min(value), max.max(value))
    });
    let (y, y_ticks) = plot::log_times(min, max);
    let (x, x_ticks, x_name) = plot::seconds(recording.measured_s);
    let plot = Plot {
        height: 240.0,
        x,
        y,
    };
    let mut svg = plot.axes(
        (&x_ticks, x_name),
        (&y_ticks, "sent after the intended start"),
    );
    for (class, name, points) in &all {
        svg.push_str(&plot.line(points, class));
        svg.push_str(&dots(&plot, points, class, |value| {
            format!("{name}: {}", time(value))
        }));
    }
    let legend = legend(&[("one", "latest call"), ("p99", "99th percentile")]);
    format!(
        "{legend}{}",
        plot.svg("How late calls were sent, over time", &svg)
    )
}
