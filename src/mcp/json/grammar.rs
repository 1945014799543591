//! The grammar of RFC 8259, checked over the bytes that are left to read.
//!
//! Owns: what a value, a string, a number and whitespace look like, and the bound on nesting.
//! Each `..._tail` function takes the bytes from some token on and returns those after it.
//! Never: allocates, recurses, or tells what it read.

use super::word::plain_tail;
use super::{DEPTH_MAX, Fault};

/// Checks the value that starts at `pos` and returns the position after it.
///
/// `depth_left` is how many levels of containers the value may have: 0 allows scalars only.
/// Strings are checked for raw control characters and escape syntax; a lone surrogate escape
/// passes, because the value is not read. UTF-8 is the caller's check, once per document.
///
/// # Errors
/// `Syntax` where the grammar breaks, `TooDeep` past `depth_left` (or `DEPTH_MAX`) levels.
pub fn skip_value(bytes: &[u8], pos: usize, depth_left: u16) -> Result<usize, Fault> {
    let tail = value_tail(bytes.get(pos..).unwrap_or_default(), depth_left)?;
    Ok(bytes.len() - tail.len())
}

/// The first position at or after `pos` that is not JSON whitespace (RFC 8259 section 2).
#[must_use]
pub fn skip_whitespace(bytes: &[u8], pos: usize) -> usize {
    bytes.len() - trim(bytes.get(pos..).unwrap_or_default()).len()
}

/// The bytes after the whitespace that `bytes` starts with.
#[inline(always)]
pub(super) fn trim(bytes: &[u8]) -> &[u8] {
    match bytes {
        [byte, ..] if *byte > b' ' => bytes,
        _ => trim_some(bytes),
    }
}

/// `trim` where there is something to trim.
#[inline(never)]
fn trim_some(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [b' ' | b'\t' | b'\n' | b'\r', tail @ ..] = rest {
        rest = tail;
    }
    rest
}

/// The bytes after the value that `bytes` starts with; see `skip_value`.
pub(super) fn value_tail(bytes: &[u8], depth_left: u16) -> Result<&[u8], Fault> {
    let level_max = u32::from(depth_left.min(DEPTH_MAX));
    let mut level = 0_u32;
    // Innermost container in bit 0: 1 is an object, 0 an array.
    let mut open = 0_u128;
    let mut rest = bytes;
    loop {
        rest = match rest {
            [b'"', tail @ ..] => string_tail(tail)?,
            [bracket @ (b'{' | b'['), tail @ ..] => {
                if level == level_max {
                    return Err(Fault::TooDeep);
                }
                let tail = trim(tail);
                match tail {
                    // `}` and `]` are two after their opening bracket in ASCII.
                    [closing, tail @ ..] if *closing == bracket + 2 => tail,
                    _ => {
                        let is_object = *bracket == b'{';
                        level += 1;
                        open = (open << 1) | u128::from(is_object);
                        rest = if is_object { key_tail(tail)? } else { tail };
                        continue;
                    }
                }
            }
            [b'-' | b'0'..=b'9', ..] => number_tail(rest)?,
            _ => literal_tail(rest)?,
        };
        loop {
            if level == 0 {
                return Ok(rest);
            }
            rest = trim(rest);
            let in_object = open & 1 == 1;
            match rest {
                [b',', tail @ ..] => {
                    rest = trim(tail);
                    if in_object {
                        rest = key_tail(rest)?;
                    }
                    break;
                }
                [closing, tail @ ..] if *closing == if in_object { b'}' } else { b']' } => {
                    rest = tail;
                    level -= 1;
                    open >>= 1;
                }
                _ => return Err(Fault::Syntax),
            }
        }
    }
}

/// The value behind the key that `bytes` starts with.
#[inline(always)]
fn key_tail(bytes: &[u8]) -> Result<&[u8], Fault> {
    match bytes {
        [b'"', tail @ ..] => colon_tail(string_tail(tail)?),
        _ => Err(Fault::Syntax),
    }
}

/// The value behind the colon that follows a key.
#[inline(always)]
pub(super) fn colon_tail(bytes: &[u8]) -> Result<&[u8], Fault> {
    match trim(bytes) {
        [b':', tail @ ..] => Ok(trim(tail)),
        _ => Err(Fault::Syntax),
    }
}

/// The bytes after the string whose content `bytes` starts with.
#[inline(always)]
pub(super) fn string_tail(bytes: &[u8]) -> Result<&[u8], Fault> {
    match plain_tail(bytes) {
        [b'"', tail @ ..] => Ok(tail),
        stop => escaped_tail(stop),
    }
}

/// `string_tail` from the first byte on that does not stand for itself.
#[inline(never)]
fn escaped_tail(stop: &[u8]) -> Result<&[u8], Fault> {
    let mut stop = stop;
    loop {
        stop = plain_tail(match stop {
            [b'"', tail @ ..] => return Ok(tail),
            // RFC 8259 section 7.
            [
                b'\\',
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
                tail @ ..,
            ] => tail,
            [b'\\', b'u', a, b, c, d, tail @ ..]
                if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) =>
            {
                tail
            }
            _ => return Err(Fault::Syntax),
        });
    }
}

/// The bytes after the literal that `bytes` starts with (RFC 8259 section 3).
#[inline]
pub(super) fn literal_tail(bytes: &[u8]) -> Result<&[u8], Fault> {
    match bytes {
        [b't', b'r', b'u', b'e', tail @ ..]
        | [b'n', b'u', b'l', b'l', tail @ ..]
        | [b'f', b'a', b'l', b's', b'e', tail @ ..] => Ok(tail),
        _ => Err(Fault::Syntax),
    }
}

/// The bytes after the number that `bytes` starts with; any magnitude, any number of digits.
#[inline]
pub(super) fn number_tail(bytes: &[u8]) -> Result<&[u8], Fault> {
    let unsigned = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let mut rest = match unsigned {
        // RFC 8259 section 6: no leading zeros.
        [b'0', tail @ ..] => tail,
        _ => digits_tail(unsigned)?,
    };
    if let [b'.', tail @ ..] = rest {
        rest = digits_tail(tail)?;
    }
    if let [b'e' | b'E', tail @ ..] = rest {
        rest = digits_tail(match tail {
            [b'+' | b'-', digits @ ..] => digits,
            digits => digits,
        })?;
    }
    Ok(rest)
}

/// The bytes after the digits that `bytes` starts with, of which there must be one.
#[inline]
fn digits_tail(bytes: &[u8]) -> Result<&[u8], Fault> {
    let [b'0'..=b'9', rest @ ..] = bytes else {
        return Err(Fault::Syntax);
    };
    let mut rest = rest;
    while let [b'0'..=b'9', tail @ ..] = rest {
        rest = tail;
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(bytes: &str) -> Result<usize, Fault> {
        skip_value(bytes.as_bytes(), 0, DEPTH_MAX)
    }

    #[test]
    fn every_kind_of_value_ends_where_it_should() {
        for value in [
            "0",
            "-0",
            "12",
            "-3.25",
            "1e400",
            "1E-2",
            "0e+0",
            "true",
            "false",
            "null",
            r#""""#,
            r#""a\"\\\u12aF""#,
            "[]",
            "[ ]",
            "{}",
            "{ }",
            "[1,[2],{}]",
            r#"{"a":1,"b":[{"c":null}]}"#,
            r#"[ 1 , { "a" : [ ] } ]"#,
            r#""\ud800""#,
        ] {
            assert_eq!(end_of(value), Ok(value.len()), "{value}");
            let followed = format!("{value} ,");
            assert_eq!(end_of(&followed), Ok(value.len()), "{followed}");
            let shifted = format!("##{value}");
            assert_eq!(
                skip_value(shifted.as_bytes(), 2, DEPTH_MAX),
                Ok(shifted.len())
            );
        }
    }

    #[test]
    fn what_breaks_the_grammar_is_refused() {
        for value in [
            "",
            " 1",
            "-",
            "+1",
            ".5",
            "1.",
            "1e",
            "1e+",
            "1.e1",
            "tru",
            "nulL",
            "'a'",
            "\"",
            "\"a",
            "\"\n\"",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u123\"",
            "[",
            "[1",
            "[1,]",
            "[,]",
            "[1 2]",
            "[1}",
            "{",
            "{1:1}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1]",
            "{,}",
            "{\"a\" \"b\"}",
            "]",
            "}",
            ",",
            ":",
        ] {
            assert_eq!(end_of(value), Err(Fault::Syntax), "{value}");
        }
        // A number ends at its leading zero; what follows is the next token's business.
        assert_eq!(end_of("01"), Ok(1));
    }

    #[test]
    fn stops_are_found_at_every_place_of_long_strings() {
        for len in 0..100 {
            let plain = "\u{e9}".repeat(len / 2) + &"x".repeat(len % 2);
            let closed = format!("\"{plain}\" and more text after it");
            assert_eq!(end_of(&closed), Ok(len + 2));
            let escaped = format!("\"{plain}\\\"\"");
            assert_eq!(end_of(&escaped), Ok(len + 4));
            let control = format!("\"{plain}\u{1f}\" and more text after it");
            assert_eq!(end_of(&control), Err(Fault::Syntax));
            assert_eq!(end_of(&format!("\"{plain}")), Err(Fault::Syntax));
        }
    }

    #[test]
    fn levels_are_counted_for_either_bracket() {
        assert_eq!(skip_value(b"1", 0, 0), Ok(1));
        assert_eq!(skip_value(b"[]", 0, 0), Err(Fault::TooDeep));
        assert_eq!(skip_value(br#"{"a":[{}]}"#, 0, 3), Ok(10));
        assert_eq!(skip_value(br#"{"a":[{}]}"#, 0, 2), Err(Fault::TooDeep));
        assert_eq!(skip_value(b"[[],[],[[]]]", 0, 3), Ok(12));
        let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
        assert_eq!(
            skip_value(deep.as_bytes(), 0, u16::MAX),
            Err(Fault::TooDeep)
        );
    }

    #[test]
    fn only_four_bytes_are_whitespace() {
        assert_eq!(skip_whitespace(b" \t\r\n1", 0), 4);
        assert_eq!(skip_whitespace(b"ab  c", 2), 4);
        assert_eq!(skip_whitespace(b"\x0b1", 0), 0);
        assert_eq!(skip_whitespace("\u{a0}".as_bytes(), 0), 0);
        assert_eq!(skip_whitespace(b"  ", 9), 2);
    }
}
