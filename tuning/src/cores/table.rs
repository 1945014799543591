//! The answers as text: what was measured, what was fitted, and the table.

use loadgen::report::html::words::count;

use super::Advice;
use crate::model::{EXTRAPOLATION_MAX, answer::Answer, curve::Origin, usl::POINTS_WANTED};

/// Renders everything.
pub(super) fn render(advice: &Advice) -> String {
    let mut text = facts(advice);
    text.push('\n');
    text += &answers(advice);
    let remarks = remarks(advice);
    if !remarks.is_empty() {
        text.push('\n');
    }
    for remark in remarks {
        text += &format!("note: {remark}\n");
    }
    text
}

/// Milliseconds as people read them.
pub(super) fn ms(us: f64) -> String {
    let ms = us / 1000.0;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

/// A rate with its thousands apart.
pub(super) fn rate(value: f64) -> String {
    count(value.round() as u64)
}

pub(super) fn bytes(bytes: u64) -> String {
    match bytes >> 20 {
        mib @ 0..4096 => format!("{mib} MiB"),
        mib => format!("{:.1} GiB", mib as f64 / 1024.0),
    }
}

/// The lines about what was measured and fitted: a label and its text.
pub(super) fn fitted(advice: &Advice) -> Vec<(&'static str, String)> {
    let models = &advice.models;
    let mut lines = vec![(
        "objective",
        format!(
            "p99 {}, errors {} %",
            ms(models.objective.p99_us),
            models.objective.error_share * 100.0
        ),
    )];
    for (shards, line) in &models.curve.0 {
        let at_least = if line.is_bounded { "" } else { "at least " };
        let busy = line.last_good.busy.map_or_else(String::new, |busy| {
            format!(", shards busy {:.0} %", busy * 100.0)
        });
        lines.push((
            "measured",
            format!(
                "{shards} {}: {at_least}{} calls/s at p99 {}{busy}",
                if *shards == 1 { "shard" } else { "shards" },
                rate(line.capacity),
                ms(line.last_good.p99_us),
            ),
        ));
    }
    if let Some(demand) = models.demand {
        let cost = if demand.forward_is_measured {
            "measured"
        } else {
            "assumed"
        };
        lines.push((
            "demand",
            format!(
                "{:.1} us of a shard for each call, {:.0} % more when forwarded ({cost}); residual \
                 {:.1} %",
                demand.local_us,
                demand.forward_cost * 100.0,
                demand.residual * 100.0
            ),
        ));
    }
    if let Some(usl) = models.usl {
        let peak = usl
            .peak()
            .map_or_else(|| "none".to_owned(), |peak| format!("{peak:.0} shards"));
        lines.push((
            "scaling",
            format!(
                "lambda {} calls/s, sigma {:.4}, kappa {:.6}, peak {peak}; residual {:.1} % of {} \
                 numbers of shards",
                rate(usl.lambda),
                usl.sigma,
                usl.kappa,
                usl.residual * 100.0,
                usl.points
            ),
        ));
    }
    lines
}

fn facts(advice: &Advice) -> String {
    let mut text = String::new();
    let mut last = "";
    for (label, line) in fitted(advice) {
        let shown = if label == last { "" } else { label };
        last = label;
        text += &format!("{shown:<10} {line}\n");
    }
    text
}

/// Heads of the columns.
pub(super) const HEADS: [&str; 12] = [
    "calls/s",
    "shards",
    "hosts",
    "p50",
    "p99",
    "p99.9",
    "busy",
    "skew",
    "memory",
    "files",
    "limit",
    "confidence",
];

/// Cells of an answer, without its rate.
pub(super) fn cells(answer: &Answer) -> Vec<String> {
    let at_most = if answer.origin == Origin::UpperBound {
        "<= "
    } else {
        ""
    };
    vec![
        answer.shards.to_string(),
        answer.hosts.to_string(),
        format!("{at_most}{}", ms(answer.latency.p50_us)),
        format!("{at_most}{}", ms(answer.latency.p99_us)),
        format!("{at_most}{}", ms(answer.latency.p999_us)),
        answer
            .busy
            .map_or_else(|| "-".to_owned(), |busy| format!("{:.0} %", busy * 100.0)),
        format!("{:.2}", answer.skew.placed),
        bytes(answer.bytes),
        count(answer.descriptors),
        answer.limit.name().to_owned(),
        answer.confidence.name().to_owned(),
    ]
}

fn answers(advice: &Advice) -> String {
    let mut rows: Vec<Vec<String>> = vec![HEADS.map(str::to_owned).to_vec()];
    let mut refused = Vec::new();
    for (question, answer) in &advice.answers {
        match answer {
            Ok(answer) => {
                let mut row = vec![rate(question.rate)];
                row.extend(cells(answer));
                rows.push(row);
            }
            Err(reason) => refused.push(format!("{} calls/s: {reason}", rate(question.rate))),
        }
    }
    let mut text = String::new();
    if rows.len() > 1 {
        let widths: Vec<usize> = (0..HEADS.len())
            .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        for row in &rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:>width$}"))
                .collect();
            text += &format!("{}\n", cells.join("  "));
        }
    }
    for line in refused {
        text += &format!("no answer for {line}\n");
    }
    text
}

/// What limits the worth of all this.
pub(super) fn remarks(advice: &Advice) -> Vec<String> {
    let mut remarks = advice.measured.remarks.clone();
    let models = &advice.models;
    if let Some(usl) = models.usl
        && usl.points < POINTS_WANTED
    {
        remarks.push(format!(
            "the law of scaling rests on {} of the {POINTS_WANTED} numbers of shards it should \
             have; beyond {} shards it is a guess, beyond {:.0} nothing is answered",
            usl.points,
            usl.shards_max,
            usl.shards_max * EXTRAPOLATION_MAX
        ));
    }
    for (_, answer) in &advice.answers {
        let Ok(answer) = answer else { continue };
        if answer.skew.is_thin {
            remarks.push(format!(
                "at {} calls/s there are less than 200 sessions a shard: the fullest may have {:.2} \
                 times the mean, {:.2} when sessions are very uneven",
                rate(answer.rate),
                answer.skew.placed,
                answer.skew.by_chance
            ));
            break;
        }
    }
    if advice
        .answers
        .iter()
        .any(|(question, answer)| question.spare_hosts > 0 && answer.is_ok())
    {
        remarks.push(
            "hosts include the spare ones; latencies are those with the spare ones away".to_owned(),
        );
    }
    if models.curve.0.values().any(|line| line.is_noisy) {
        remarks.push(
            "lower rates missed the objective where higher ones kept it: something else was at work \
             on this machine; measure again when it is quiet"
                .to_owned(),
        );
    }
    if models.sizes.is_measured {
        remarks.push(format!(
            "a session takes {:.0} bytes, measured",
            models.sizes.session
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(ms(420.0), "0.42 ms");
        assert_eq!(ms(42_000.0), "42.0 ms");
        assert_eq!(ms(420_000.0), "420 ms");
        assert_eq!(rate(1_234_567.4), "1,234,567");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(8 << 30), "8.0 GiB");
    }
}
