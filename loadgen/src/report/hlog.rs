//! Interval logs, HdrHistogram's format 1.3: one line an interval and tag.
//!
//! Values are nanoseconds; the column of maxima is milliseconds, as the reference tools expect.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::ZlibEncoder};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::utc::utc;
use crate::record::{COUNT_MAX, INTERVALS_MAX, Packed, PackedFault, Series};

/// First four bytes of a compressed histogram.
const COMPRESSED_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];
/// Nanoseconds in the unit of the maxima.
const MAX_DIVISOR: f64 = 1_000_000.0;

/// When intervals are.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Start of the first one, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Length of one, seconds.
    pub interval_s: u32,
    /// End of the last one, seconds after the start.
    pub measured_s: f64,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    /// A line is neither a comment nor an interval.
    #[error("line {0} is no line of an interval log")]
    Line(usize),
    /// A histogram is not one of ours.
    #[error("line {line}: {fault}")]
    Histogram {
        /// Number of the line.
        line: usize,
        /// What is wrong with it.
        fault: PackedFault,
    },
    /// More intervals than a recording holds.
    #[error("line {0} is past the end of any recording")]
    Late(usize),
}

/// Writes series with their tags, ordered by time.
pub fn write(out: &mut impl Write, clock: &Clock, series: &[(&str, &Series)]) -> io::Result<()> {
    let start = clock.started_unix_ms as f64 / 1000.0;
    writeln!(
        out,
        "#[Logged with shardgate loadgen {}]",
        env!("CARGO_PKG_VERSION")
    )?;
    writeln!(out, "#[Histogram log format version 1.3]")?;
    writeln!(
        out,
        "#[StartTime: {start:.3} (seconds since epoch), {}]",
        utc(clock.started_unix_ms)
    )?;
    writeln!(out, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
    writeln!(
        out,
        r#""StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram""#
    )?;
    let mut lines: BTreeMap<(u32, usize), &Packed> = BTreeMap::new();
    for (place, (_, series)) in series.iter().enumerate() {
        let intervals = series.intervals().iter();
        lines.extend(intervals.map(|(index, packed)| ((*index, place), packed)));
    }
    for ((index, place), packed) in lines {
        let from = f64::from(index) * f64::from(clock.interval_s);
        // The last interval ends with the run.
        let length = f64::from(clock.interval_s).min(clock.measured_s - from);
        let max = packed.unpack().max() as f64 / MAX_DIVISOR;
        writeln!(
            out,
            "Tag={},{from:.3},{:.3},{max:.3},{}",
            series[place].0,
            length.max(0.001),
            encoded(packed)?
        )?;
    }
    Ok(())
}

/// Compressed and in base64, as it stands in a log.
fn encoded(packed: &Packed) -> io::Result<String> {
    let mut bytes = COMPRESSED_COOKIE.to_vec();
    bytes.extend([0; 4]);
    let mut deflate = ZlibEncoder::new(bytes, Compression::default());
    deflate.write_all(packed.as_bytes())?;
    let mut bytes = deflate.finish()?;
    let length = u32::try_from(bytes.len() - 8).map_err(io::Error::other)?;
    bytes[4..8].copy_from_slice(&length.to_be_bytes());
    Ok(STANDARD.encode(bytes))
}

/// Reads a log whose intervals are `interval_s` long, by tag; without a tag the name is empty.
pub fn read(text: &[u8], interval_s: u32) -> Result<BTreeMap<String, Series>, LogFault> {
    let mut found: BTreeMap<String, Series> = BTreeMap::new();
    let mut line = 0;
    for raw in text.split_inclusive(|byte| *byte == b'\n') {
        line += 1;
        // Another writer leaves a line empty after its start.
        if raw.trim_ascii().is_empty() {
            continue;
        }
        // One line at a time, so that a fault has a number.
        for entry in IntervalLogIterator::new(raw) {
            let LogEntry::Interval(interval) = entry.map_err(|_| LogFault::Line(line))? else {
                continue;
            };
            let histogram = STANDARD
                .decode(interval.encoded_histogram())
                .map_err(|_| PackedFault::Encoding)
                .and_then(|bytes| Packed::from_log(&bytes))
                .map_err(|fault| LogFault::Histogram { line, fault })?;
            let tag = interval.tag().map_or("", |tag| tag.as_str());
            let middle = interval.start_timestamp().as_secs_f64() + f64::from(interval_s) / 2.0;
            let index = (middle / f64::from(interval_s)) as u64;
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            if index >= INTERVALS_MAX {
                return Err(LogFault::Late(line));
            }
            let series = found.entry(tag.to_owned()).or_default();
            let times = histogram.unpack();
            if series.whole().len() + times.len() > COUNT_MAX {
                let fault = PackedFault::Encoding;
                return Err(LogFault::Histogram { line, fault });
            }
            series.add(index, &times);
        }
    }
    Ok(found)
}

/// A log as text, for those who serve it.
pub fn to_text(clock: &Clock, series: &[(&str, &Series)]) -> String {
    let mut bytes = Vec::new();
    let mut text = String::new();
    match write(&mut bytes, clock, series) {
        Ok(()) => text.push_str(&String::from_utf8_lossy(&bytes)),
        // Memory takes all that is written; the format has room for a reason all the same.
        Err(fault) => {
            let _ = writeln!(text, "# {fault}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{TIME_NS_MAX, histogram};
    use proptest::{collection, prelude::*};

    const CLOCK: Clock = Clock {
        started_unix_ms: 1_798_761_599_250,
        interval_s: 2,
        measured_s: 7.5,
    };

    fn series(of: &[(u32, u64)]) -> Series {
        let mut series = Series::default();
        for (index, time) in of {
            let mut times = histogram();
            times.saturating_record_n(*time, u64::from(index + 1));
            series.add(*index, &times);
        }
        series
    }

    #[test]
    fn what_was_written_is_read() {
        let (calls, lists) = (
            series(&[(0, 1_500_000), (3, 9_000_000_000)]),
            series(&[(0, 3)]),
        );
        let log = to_text(&CLOCK, &[("tools_call", &calls), ("tools_list", &lists)]);
        let lines: Vec<_> = log.lines().collect();
        assert_eq!(lines.len(), 8);
        assert_eq!(lines[1], "#[Histogram log format version 1.3]");
        assert_eq!(
            lines[2],
            "#[StartTime: 1798761599.250 (seconds since epoch), 2026-12-31T23:59:59Z]"
        );
        assert!(
            lines[5].starts_with("Tag=tools_call,0.000,2.000,1.500,HISTFAAA"),
            "{log}"
        );
        assert!(lines[6].starts_with("Tag=tools_list,0.000,2.000,0.000,HISTFAAA"));
        assert!(
            lines[7].starts_with("Tag=tools_call,6.000,1.500,9000.976,HISTFAAA"),
            "{log}"
        );
        let read = read(log.as_bytes(), 2).unwrap();
        assert_eq!((&read["tools_call"], &read["tools_list"]), (&calls, &lists));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_series_is_read_as_it_was_written(
            recorded in collection::vec((0_u32..4, 0_u64..TIME_NS_MAX), 0..12),
        ) {
            let written = series(&recorded);
            let read = read(to_text(&CLOCK, &[("a", &written)]).as_bytes(), 2).unwrap();
            match read.get("a") {
                Some(read) => prop_assert_eq!(read, &written),
                None => prop_assert!(recorded.is_empty()),
            }
        }

        #[test]
        fn damaged_logs_are_faults_and_nothing_else(
            place in 0_usize..1200,
            damage in collection::vec(any::<u8>(), 1..6),
        ) {
            let mut log = to_text(&CLOCK, &[("a", &series(&[(0, 5), (1, 70_000), (3, 9)]))]).into_bytes();
            let place = place % log.len();
            let end = (place + damage.len()).min(log.len());
            log.splice(place..end, damage);
            // It may still be a log, when the damage is in a comment.
            let _ = read(&log, 2);
        }

        #[test]
        fn damaged_histograms_are_faults_and_nothing_else(
            place in 0_usize..200,
            damage in collection::vec(any::<u8>(), 1..12),
        ) {
            let mut times = histogram();
            (0..40).for_each(|time| times.saturating_record(time * 77_777));
            let mut bytes = Packed::of(&times).as_bytes().to_vec();
            let place = place % bytes.len();
            let end = (place + damage.len()).min(bytes.len());
            bytes.splice(place..end, damage);
            if let Ok(packed) = Packed::from_log(&bytes) {
                let read = packed.unpack();
                prop_assert!(read.value_at_quantile(0.5) <= read.max());
            }
        }
    }

    #[test]
    fn faults_have_a_line() {
        let good = to_text(&CLOCK, &[("a", &series(&[(0, 5)]))]);
        let fault = |text: &str| read(text.as_bytes(), 2).unwrap_err().to_string();
        assert_eq!(
            fault(&format!("{good}nonsense\n")),
            "line 7 is no line of an interval log"
        );
        let damaged = good.replace("HISTFAAA", "HISTFBBB");
        assert_eq!(
            fault(&damaged[..damaged.len() - 9]),
            "line 6 is no line of an interval log"
        );
        let short = good.trim_end();
        let short = format!("{}\n", &short[..short.len() - 8]);
        assert_eq!(fault(&short), "line 6: not a readable V2 histogram");
        let late = good.replace("Tag=a,0.000", "Tag=a,99999999.000");
        assert_eq!(fault(&late), "line 6 is past the end of any recording");
    }
}
