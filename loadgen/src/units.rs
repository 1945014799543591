//! Times, sizes and shares as people write them: `5ms`, `64k`, `0.1%`.

use std::time::Duration;

/// A time: a number and one of us, ms, s, m, h.
pub fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    // Rounded to a nanosecond: 1.5 ms is not 1499999 ns.
    let ns = (plain_number(number)? * scale * 1e9).round();
    (ns <= u64::MAX as f64).then(|| Duration::from_nanos(ns as u64))
}

/// A time, with seconds when there is no unit; for flags.
pub fn seconds_or_time(text: &str) -> Result<Duration, String> {
    let with_unit = || parse_time(text);
    plain_number(text)
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .or_else(with_unit)
        .ok_or_else(|| format!("`{text}` is no time (write 500us, 5ms, 30s, 10m, 1h, or seconds)"))
}

/// A size in bytes: a number, perhaps with k or m (of 1024).
pub fn parse_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, scale) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 1024),
        b'm' => (&text[..text.len() - 1], 1024 * 1024),
        _ => (text, 1),
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<usize>().ok()?.checked_mul(scale)
}

/// A share between 0 and 1: `0.1%` or `0.001`.
pub fn parse_share(text: &str) -> Option<f64> {
    let text = text.trim();
    let share = match text.strip_suffix('%') {
        Some(percent) => plain_number(percent)? / 100.0,
        None => plain_number(text)?,
    };
    (share <= 1.0).then_some(share)
}

/// The same for flags.
pub fn share(text: &str) -> Result<f64, String> {
    parse_share(text).ok_or_else(|| format!("`{text}` is no share (write 0.1% or 0.001)"))
}

/// Digits with at most one point: no sign, no exponent, no `inf`.
fn plain_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !is_plain {
        return None;
    }
    text.parse().ok()
}

/// A time for people: three digits and a unit.
pub fn show_ns(ns: u64) -> String {
    let value = ns as f64;
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ns) in [
            ("5ms", 5_000_000),
            ("1.5ms", 1_500_000),
            ("250us", 250_000),
            ("2s", 2_000_000_000),
            ("1m", 60_000_000_000),
            ("0.5h", 1_800_000_000_000),
        ] {
            assert_eq!(parse_time(text), Some(Duration::from_nanos(ns)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1e3s", "infs", "1d", "9999999999h"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert_eq!(seconds_or_time("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(seconds_or_time("5ms"), Ok(Duration::from_millis(5)));
        assert!(seconds_or_time("nan").is_err() && seconds_or_time("-1").is_err());
    }

    #[test]
    fn sizes_and_shares() {
        assert_eq!(parse_bytes("64"), Some(64));
        assert_eq!(parse_bytes("64k"), Some(65_536));
        assert_eq!(parse_bytes("2M"), Some(2 * 1024 * 1024));
        for text in ["", "k", "-1", "1.5k", "1g", "99999999999999999999", "é"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        assert_eq!(parse_share("0.1%"), Some(0.001));
        assert_eq!(parse_share("0.25"), Some(0.25));
        for text in ["", "101%", "1.5", "-0.1", "x", "%"] {
            assert_eq!(parse_share(text), None, "{text}");
        }
    }

    #[test]
    fn times_for_people() {
        for (ns, text) in [
            (999, "999 ns"),
            (1_234, "1.23 us"),
            (45_678, "45.7 us"),
            (999_900, "1000 us"),
            (5_000_000, "5.00 ms"),
            (1_500_000_000, "1.50 s"),
        ] {
            assert_eq!(show_ns(ns), text);
        }
    }
}
