//! Durations and sizes as people write them: `250ms`, `5s`, `2m`, `1h`; `4096`, `16KiB`, `4MiB`.
//!
//! Pure text to number and back. A duration always names its unit, because a bare number meant
//! seconds in one product and milliseconds in the next. Sizes are bytes when no unit is named.
//! Never rounds, never wraps: what does not fit is refused.

use std::fmt;
use std::time::Duration;

/// Why a text is not a duration or a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityFault {
    /// Not digits followed by a known duration unit.
    Duration,
    /// Not digits, alone or followed by a known size unit.
    Size,
    /// The number is too large to be held.
    TooLarge,
}

impl fmt::Display for QuantityFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Duration => {
                "not a duration: write a whole number and a unit, as 250ms, 5s, 2m, 1h or 1d"
            }
            Self::Size => {
                "not a size: write a whole number of bytes or a unit, as 4096, 16KiB, 4MiB or 1GiB"
            }
            Self::TooLarge => "the number is too large",
        })
    }
}

impl std::error::Error for QuantityFault {}

/// Milliseconds in each unit a duration can be written in, largest first.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Bytes in each unit a size can be written in, largest first.
const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Reads a duration: a whole number and one of `ms`, `s`, `m`, `h`, `d`.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityFault> {
    let (number, unit) = split(text).ok_or(QuantityFault::Duration)?;
    let (_, unit_ms) = DURATION_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or(QuantityFault::Duration)?;
    let number: u64 = number.parse().map_err(|_| QuantityFault::TooLarge)?;
    let ms = number
        .checked_mul(*unit_ms)
        .ok_or(QuantityFault::TooLarge)?;
    Ok(Duration::from_millis(ms))
}

/// Reads a size in bytes: a whole number, alone or with `B`, `KiB`, `MiB`, `GiB` in any case.
pub fn parse_size(text: &str) -> Result<u64, QuantityFault> {
    let (number, unit) = split(text).ok_or(QuantityFault::Size)?;
    let unit_bytes = if unit.is_empty() {
        1
    } else {
        SIZE_UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, bytes)| *bytes)
            .ok_or(QuantityFault::Size)?
    };
    let number: u64 = number.parse().map_err(|_| QuantityFault::TooLarge)?;
    number
        .checked_mul(unit_bytes)
        .ok_or(QuantityFault::TooLarge)
}

/// Writes a duration in its largest whole unit; [`parse_duration`] reads it back.
///
/// What is finer than a millisecond is not written: no setting is.
pub fn duration_text(duration: Duration) -> String {
    let ms = duration.as_millis();
    DURATION_UNITS
        .iter()
        .find(|(_, unit)| ms > 0 && ms.is_multiple_of(u128::from(*unit)))
        .map_or_else(
            || format!("{ms}ms"),
            |(name, unit)| format!("{}{name}", ms / u128::from(*unit)),
        )
}

/// Writes a size in its largest whole unit; [`parse_size`] reads it back.
pub fn size_text(bytes: u64) -> String {
    SIZE_UNITS
        .iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit) && *unit > 1)
        .map_or_else(
            || bytes.to_string(),
            |(name, unit)| format!("{}{name}", bytes / unit),
        )
}

/// Splits leading ASCII digits from the unit; `None` when there are no digits.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_need_a_unit() {
        for (text, ms) in [
            ("250ms", 250),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0s", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for text in [
            "", "5", "s", "1.5s", "-1s", " 5s", "5 s", "5S", "5min", "1m30s", "+5s",
        ] {
            assert_eq!(parse_duration(text), Err(QuantityFault::Duration), "{text}");
        }
        for text in ["99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(parse_duration(text), Err(QuantityFault::TooLarge), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_unless_a_unit_says_otherwise() {
        for (text, bytes) in [
            ("4096", 4096),
            ("0", 0),
            ("7B", 7),
            ("16KiB", 16 << 10),
            ("4mib", 4 << 20),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        // KB and K are refused: one reader takes them for 1000, the next for 1024.
        for text in [
            "", "KiB", "4KB", "4K", "4 KiB", "-1", "0x10", "1e3", "1_000",
        ] {
            assert_eq!(parse_size(text), Err(QuantityFault::Size), "{text}");
        }
        assert_eq!(
            parse_size("18446744073709551615GiB"),
            Err(QuantityFault::TooLarge)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn what_is_written_is_read_back(ms in 0..u64::from(u32::MAX) * 1000, bytes: u64) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&duration_text(duration)), Ok(duration));
            prop_assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _verdicts = (parse_duration(&text), parse_size(&text));
        }
    }
}
