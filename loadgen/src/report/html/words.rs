//! Numbers as people read them, and text that is safe in a page.

use std::fmt::Write;

/// Text for between tags and inside quoted attributes.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Characters that no document may hold.
            '\t' | '\n' | '\r' => safe.push(' '),
            one if one.is_control() => safe.push('\u{fffd}'),
            one => safe.push(one),
        }
    }
    safe
}

/// A time in the unit that suits it, three digits: `1.23 ms`.
pub fn time(ns: f64) -> String {
    let (factor, unit) = if ns < 1e3 {
        (1.0, "ns")
    } else if ns < 999_500.0 {
        (1e3, "µs")
    } else if ns < 999_500_000.0 {
        (1e6, "ms")
    } else {
        (1e9, "s")
    };
    format!("{} {unit}", digits(ns / factor))
}

/// Three digits, but never less than the whole part.
pub fn digits(value: f64) -> String {
    let places = match value.abs() {
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text.as_str()
    };
    if places == 0 {
        grouped(text)
    } else {
        text.to_owned()
    }
}

/// A count with its thousands apart: `12,345`.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(number: &str) -> String {
    let (sign, plain) = match number.strip_prefix('-') {
        Some(plain) => ("-", plain),
        None => ("", number),
    };
    let mut text = sign.to_owned();
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share as a percentage that tells small shares from none.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.01 {
        return "< 0.01 %".to_owned();
    }
    // Nearly all is not all.
    if percent < 100.0 && percent > 99.99 {
        return "> 99.99 %".to_owned();
    }
    let text = format!("{percent:.2}");
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Seconds as `8 s`, `2 min 5 s` or `3 h 10 min`.
pub fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        return format!("{} s", digits(seconds));
    }
    let whole = seconds.round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{hours} h {minutes} min")
    } else {
        format!("{minutes} min {seconds} s")
    }
}

/// A table: the head's cells, then rows of cells that are HTML already. The first column is text,
/// the others are numbers.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><thead><tr>");
    for cell in head {
        // Writing to a string cannot fail, here and below.
        let _ = write!(html, "<th>{}</th>", escaped(cell));
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for (place, cell) in row.iter().enumerate() {
            let name = if place == 0 { "th scope=\"row\"" } else { "td" };
            let end = if place == 0 { "th" } else { "td" };
            let _ = write!(html, "<{name}>{cell}</{end}>");
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (ns, expected) in [
            (0.0, "0 ns"),
            (950.0, "950 ns"),
            (1000.0, "1 µs"),
            (12_340.0, "12.3 µs"),
            (999_499.0, "999 µs"),
            (999_600.0, "1 ms"),
            (1_234_567.0, "1.23 ms"),
            (59_990_000_000.0, "60 s"),
        ] {
            assert_eq!(time(ns), expected);
        }
        assert_eq!([digits(12_345.6), digits(100.04)], ["12,346", "100"]);
        assert_eq!(
            [count(0), count(999), count(1_234_567)],
            ["0", "999", "1,234,567"]
        );
        for (share, expected) in [
            (0.0, "0 %"),
            (0.000_01, "< 0.01 %"),
            (0.004, "0.4 %"),
            (0.999_95, "> 99.99 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(share), expected);
        }
        assert_eq!(
            [duration(8.0), duration(125.4), duration(11_400.0)],
            ["8 s", "2 min 5 s", "3 h 10 min"]
        );
    }

    #[test]
    fn nothing_gets_out_of_its_place() {
        assert_eq!(
            escaped("<a href=\"x\">'&'\u{0}\n"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\u{fffd} "
        );
    }
}
