//! Percentile tables, the format of HdrHistogram's `outputPercentileDistribution`.
//!
//! Values are microseconds with three decimals, so nothing of the nanoseconds is lost.

use std::fmt::Write;

use hdrhistogram::Histogram;

/// Rows for each halving of the distance to 100 %, as the reference tools write.
const TICKS_PER_HALF_DISTANCE: u32 = 5;
/// Nanoseconds in the unit of the values.
const DIVISOR: f64 = 1000.0;
/// Linear parts of each power of two, at 3 digits.
const SUB_BUCKETS: u32 = 2048;

/// A histogram as a table.
pub fn to_text(times: &Histogram<u64>) -> String {
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    for Row {
        value,
        quantile,
        count,
    } in rows(times)
    {
        // Writing to a string cannot fail.
        let _ = write!(text, "{value:12.3} {quantile:2.12} {count:10}");
        if quantile < 1.0 {
            let _ = write!(text, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        text.push('\n');
    }
    let (mean, deviation) = (times.mean() / DIVISOR, times.stdev() / DIVISOR);
    let max = if times.is_empty() {
        0.0
    } else {
        times.max() as f64 / DIVISOR
    };
    let _ = writeln!(
        text,
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]"
    );
    let _ = writeln!(
        text,
        "#[Max     = {max:12.3}, Total count    = {:12}]",
        times.len()
    );
    let _ = writeln!(
        text,
        "#[Buckets = {:12}, SubBuckets     = {SUB_BUCKETS:12}]",
        times.buckets()
    );
    let _ = writeln!(
        text,
        "#[Values in microseconds: nanoseconds divided by {DIVISOR:.1}]"
    );
    text
}

/// The rows of a table, by the reference's own arithmetic: it counts in percent, and its last
/// bucket has one row beside that of 100 %.
pub(crate) fn rows(times: &Histogram<u64>) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut level, mut count) = (0.0, 0);
    for step in times.iter_recorded() {
        count += step.count_since_last_iteration();
        let value = times.highest_equivalent(step.value_iterated_to()) as f64 / DIVISOR;
        let row = |percent: f64| Row {
            value,
            quantile: percent / 100.0,
            count,
        };
        let reached = 100.0 * count as f64 / times.len() as f64;
        while reached >= level {
            rows.push(row(level));
            level += 100.0 / (f64::from(TICKS_PER_HALF_DISTANCE) * halvings(level));
            if count == times.len() {
                rows.push(row(100.0));
                break;
            }
        }
    }
    rows
}

/// Two to the number of times that the distance to 100 % was halved, and once more.
fn halvings(percent: f64) -> f64 {
    ((100.0 / (100.0 - percent)).log2().floor() + 1.0).exp2()
}

/// One row of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// In the table's unit.
    pub value: f64,
    /// 0 to 1.
    pub quantile: f64,
    /// Values up to this one.
    pub count: u64,
}

/// Reads the rows of a table, ours or another tool's; `Err` is the number of a line that is none.
pub fn read(text: &str) -> Result<Vec<Row>, usize> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() || line.starts_with('#') || words[0] == "Value" {
            continue;
        }
        let row = row(&words).ok_or(index + 1)?;
        let is_in_order = rows
            .last()
            .is_none_or(|last| last.quantile <= row.quantile && last.value <= row.value);
        if !is_in_order {
            return Err(index + 1);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn row(words: &[&str]) -> Option<Row> {
    let [value, quantile, count, ..] = words else {
        return None;
    };
    let row = Row {
        value: value.parse().ok()?,
        quantile: quantile.parse().ok()?,
        count: count.parse().ok()?,
    };
    let is_sound = row.value.is_finite() && (0.0..=1.0).contains(&row.quantile);
    is_sound.then_some(row)
}

/// The value at a quantile: that of the first row at or past it.
pub fn value_at(rows: &[Row], quantile: f64) -> Option<f64> {
    let at = rows.partition_point(|row| row.quantile < quantile);
    rows.get(at).or(rows.last()).map(|row| row.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::histogram;

    #[test]
    fn a_table_holds_the_percentiles() {
        let mut times = histogram();
        (1..=10_000_u64).for_each(|time| times.saturating_record(time * 1000));
        let text = to_text(&times);
        let rows = read(&text).unwrap();
        for row in &rows {
            // The reference's way of stepping may go one bucket further than asked.
            let expected = times.value_at_quantile(row.quantile);
            let next = times.highest_equivalent(times.next_non_equivalent(expected));
            let allowed = [expected, next].map(|value| value as f64 / 1000.0);
            assert!(allowed.contains(&row.value), "{row:?} {allowed:?}");
        }
        assert_eq!(
            rows.last().map(|row| (row.quantile, row.count)),
            Some((1.0, 10_000))
        );
        let p99 = value_at(&rows, 0.99).unwrap();
        assert!((p99 - 9900.0).abs() < 50.0, "{p99}");
        assert!(text.contains("Total count    =        10000]"), "{text}");
        assert!(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"));
    }

    #[test]
    fn an_empty_histogram_is_a_table_too() {
        let text = to_text(&histogram());
        assert!(text.contains("#[Max     =        0.000, Total count    =            0]"));
        assert!(read(&text).is_ok());
    }

    #[test]
    fn other_text_is_refused() {
        assert_eq!(read("1.0 0.5 3\n2.0 x 4\n"), Err(2));
        assert_eq!(read("1.0 0.5\n"), Err(1));
        assert_eq!(read("2.0 0.5 3\n1.0 0.6 4\n"), Err(2));
        assert_eq!(read("2.0 1.5 3\n"), Err(1));
    }
}
