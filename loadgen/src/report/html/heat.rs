//! Latency over time: how many calls took how long in each interval.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::{
    plot::{self, Plot},
    words::{count, time},
};
use crate::record::{Recording, Series, add, histogram};

/// Columns at the most; more intervals share them.
const COLUMNS_MAX: u32 = 120;
/// Rows of each factor of ten.
const ROWS_PER_DECADE: f64 = 12.0;
/// Shades from few calls to many.
const SHADES: f64 = 8.0;

/// One column: its times, from when and for how long.
struct Column {
    from_s: f64,
    until_s: f64,
    times: Histogram<u64>,
}

/// The columns of a run, each the exact sum of its intervals, and the length of a full one.
fn columns(recording: &Recording) -> (Vec<Column>, f64) {
    let intervals = u32::try_from(recording.flow.len()).unwrap_or(u32::MAX);
    let per_column = intervals.div_ceil(COLUMNS_MAX).max(1);
    let length = f64::from(per_column) * f64::from(recording.interval_s);
    let series: Vec<&Series> = recording
        .operations
        .values()
        .map(|one| &one.response)
        .collect();
    let columns = (0..intervals.div_ceil(per_column)).map(|column| {
        let mut times = histogram();
        let range = column * per_column..(column + 1) * per_column;
        for series in &series {
            for (_, packed) in series.intervals().range(range.clone()) {
                add(&mut times, &packed.unpack());
            }
        }
        let from_s = f64::from(column) * length;
        Column {
            from_s,
            until_s: (from_s + length).min(recording.measured_s.max(from_s)),
            times,
        }
    });
    (columns.collect(), length)
}

/// The chart, or why there is none.
pub(crate) fn chart(recording: &Recording) -> String {
    let whole = recording.response();
    if whole.is_empty() {
        return "<p>No call succeeded.</p>".to_owned();
    }
    let (y, y_ticks) = plot::log_times(whole.min() as f64, whole.max() as f64);
    let (x, x_ticks, x_name) = plot::seconds(recording.measured_s);
    let plot = Plot {
        height: 380.0,
        x,
        y,
    };
    let (columns, length) = columns(recording);
    let cells: Vec<_> = columns.iter().map(|column| cells(&column.times)).collect();
    let most = cells.iter().flatten().map(|cell| cell.1).max().unwrap_or(1);
    let mut svg = plot.axes((&x_ticks, x_name), (&y_ticks, "response time"));
    for (column, cells) in columns.iter().zip(&cells) {
        let (left, right) = (plot.across(column.from_s), plot.across(column.until_s));
        for (row, calls) in cells {
            let (low, high) = bounds(*row);
            let (top, bottom) = (plot.down(high), plot.down(low));
            // A gap of the ground's colour between cells, as long as there is room.
            let gap = if right - left > 6.0 { 1.0 } else { 0.0 };
            let _ = write!(
                svg,
                "<rect class=\"q{}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{} calls, {} to {}, from {:.0} s</title></rect>",
                shade(*calls, most),
                (right - left - gap).max(0.5),
                (bottom - top - gap).max(0.5),
                count(*calls),
                time(low),
                time(high),
                column.from_s
            );
        }
    }
    // A short rest at the end has too few calls for percentiles.
    let is_told = |column: &&Column| {
        let lasted = column.until_s - column.from_s;
        !column.times.is_empty() && (lasted >= length / 4.0 || column.from_s == 0.0)
    };
    for (quantile, class) in [(0.5, "p50"), (0.99, "p99")] {
        let points: Vec<_> = columns
            .iter()
            .filter(is_told)
            .map(|column| {
                let middle = f64::midpoint(column.from_s, column.until_s);
                (middle, column.times.value_at_quantile(quantile) as f64)
            })
            .collect();
        svg.push_str(&plot.line(&points, "halo"));
        svg.push_str(&plot.line(&points, class));
    }
    let legend = plot::legend(&[("p99", "99th percentile"), ("p50", "median")]);
    let label = "Response times over time: number of calls by time taken, for each interval";
    format!("{legend}{}{}", plot.svg(label, &svg), shades(most))
}

/// Rows in which there are calls, and how many.
fn cells(times: &Histogram<u64>) -> Vec<(i32, u64)> {
    let mut cells: Vec<(i32, u64)> = Vec::new();
    for step in times.iter_recorded() {
        let value = times.median_equivalent(step.value_iterated_to()).max(1) as f64;
        let row = (value.log10() * ROWS_PER_DECADE).floor() as i32;
        match cells.last_mut() {
            Some((last, calls)) if *last == row => *calls += step.count_since_last_iteration(),
            _ => cells.push((row, step.count_since_last_iteration())),
        }
    }
    cells
}

/// The times a row holds, nanoseconds.
fn bounds(row: i32) -> (f64, f64) {
    let at = |row: i32| 10_f64.powf(f64::from(row) / ROWS_PER_DECADE);
    (at(row), at(row + 1))
}

/// A shade from 1 to 8: by the logarithm, so that single slow calls are seen beside thousands.
fn shade(calls: u64, most: u64) -> u32 {
    if most <= 1 {
        return SHADES as u32;
    }
    let part = (calls as f64).ln() / (most as f64).ln();
    1 + (part * (SHADES - 1.0)).round() as u32
}

/// What the shades mean.
fn shades(most: u64) -> String {
    let mut html = String::from("<p class=\"legend\"><span>1 call <span class=\"ramp\">");
    for shade in 1..=SHADES as u32 {
        let _ = write!(
            html,
            "<svg viewBox=\"0 0 18 10\" width=\"18\" height=\"10\" aria-hidden=\"true\">\
             <rect class=\"q{shade}\" width=\"18\" height=\"10\"/></svg>"
        );
    }
    let _ = write!(
        html,
        "</span> {} calls in a cell, logarithmic</span></p>",
        count(most)
    );
    html
}
