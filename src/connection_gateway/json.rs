//! The little JSON that the connection gateway reads: members of an object by name, each as its own
//! bytes; texts; whole numbers as JavaScript has them.
//!
//! What is only passed on is never taken apart: its bytes stay as they came.

use std::borrow::Cow;

use crate::mcp::{self, json::says};

/// What may stand between the words of JSON (RFC 8259 section 2).
const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];
/// The largest whole number that JavaScript has exactly.
pub(super) const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The members of these names, as they stand; `None` when `text` is not one whole JSON object. Of a
/// name that stands twice the last one counts, as everywhere in JavaScript; others pass unread.
pub(super) fn members<'a, const N: usize>(
    text: &'a str,
    names: [&'static str; N],
) -> Option<[Option<&'a str>; N]> {
    let object = text.trim_start_matches(BLANKS);
    let mut found = [None; N];
    // Behind the brace that opens it, or behind the last value so far.
    let mut end = 1;
    for item in mcp::json::members(object.as_bytes()) {
        let (key, value) = item.ok()?;
        end = value.end as usize;
        let key = key.slice(object.as_bytes());
        if let Some(place) = names.iter().position(|name| says(key, name)) {
            found[place] = Some(object.get(value.start as usize..end)?);
        }
    }
    let rest = object.get(end..)?.trim_start_matches(BLANKS);
    let rest = rest.strip_prefix('}')?.trim_start_matches(BLANKS);
    rest.is_empty().then_some(found)
}

/// What a text says; `None` when the value is none, or holds half of a surrogate pair. `raw` is a
/// value as [`members`] gives it.
pub(super) fn text(raw: &str) -> Option<Cow<'_, str>> {
    let content = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    match content {
        // Nothing that stands for something else.
        Some(content) if memchr::memchr2(b'\\', b'"', content.as_bytes()).is_none() => {
            Some(Cow::Borrowed(content))
        }
        _ => mcp::json::unescape(raw.as_bytes()),
    }
}

/// Whether the value is the text `word`, however it is spelt.
pub(super) fn is_text(raw: &str, word: &str) -> bool {
    says(raw.as_bytes(), word)
}

/// A whole number from `min` up to the largest exact one.
pub(super) fn integer(raw: &str, min: u64) -> Option<u64> {
    let number = match raw.parse::<u64>() {
        Ok(number) => number,
        Err(_) if raw.starts_with('"') => return None,
        Err(_) => {
            let number: f64 = raw.parse().ok()?;
            if number.fract() != 0.0 || !(0.0..=INTEGER_MAX as f64).contains(&number) {
                return None;
            }
            // Whole, and within the range that both hold exactly.
            number as u64
        }
    };
    (min..=INTEGER_MAX).contains(&number).then_some(number)
}

/// Whether the value is an object.
pub(super) fn is_object(raw: &str) -> bool {
    raw.starts_with('{')
}

/// Appends a text in quotes.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    mcp::json::quote(out, text);
}

/// Appends a value on one line: between its words a line break is a blank, inside texts there is
/// none.
pub(super) fn write_value(out: &mut Vec<u8>, raw: &str) {
    let start = out.len();
    out.extend_from_slice(raw.as_bytes());
    if memchr::memchr2(b'\n', b'\r', raw.as_bytes()).is_some() {
        for byte in &mut out[start..] {
            if matches!(*byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}

/// Length of a value without the blanks between its words.
pub(super) fn compact_length(raw: &[u8]) -> usize {
    let (mut length, mut is_inside, mut is_escaped) = (0, false, false);
    for byte in raw {
        if is_inside {
            length += 1;
            is_inside = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
        } else if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            length += 1;
            is_inside = *byte == b'"';
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn members_are_found_as_they_stand_and_the_last_of_a_name_counts() {
        let text = r#" {"a":1,"x":[{"a":2}],"b" : {"c":"\ud800"} ,"a":3.50,"\u0064":null} "#;
        let found = members(text, ["a", "b", "c", "d"]).unwrap();
        assert_eq!(
            found,
            [Some("3.50"), Some(r#"{"c":"\ud800"}"#), None, Some("null")]
        );
        for wrong in ["", "[]", "1", "{", r#"{"a":1}x"#, r#"{"a":01}"#, "null"] {
            assert_eq!(members(wrong, ["a"]), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_are_whole_and_exact() {
        for (raw, wanted) in [
            ("0", Some(0)),
            ("1.0", Some(1)),
            ("1e3", Some(1000)),
            ("-0", Some(0)),
            ("9007199254740991", Some(INTEGER_MAX)),
            ("9007199254740992", None),
            ("1.5", None),
            ("-1", None),
            ("true", None),
            ("\"1\"", None),
        ] {
            assert_eq!(integer(raw, 0), wanted, "{raw}");
        }
        assert_eq!(integer("0", 1), None);
    }

    #[test]
    fn a_value_over_several_lines_becomes_one_line() {
        let mut out = b"x".to_vec();
        write_value(&mut out, "{\r\n\"a\":\n\"b\\n\"}");
        assert_eq!(out, b"x{  \"a\": \"b\\n\"}");
        assert_eq!(compact_length(b"{ \"a b\\\" \" : [1 ,\n2] }"), 16);
    }

    #[test]
    fn an_object_ends_with_its_text_and_is_not_too_deep() {
        for text in ["{}", " {} ", "{ \n}\r\n", "\t{\"a\" : 1 }\t"] {
            assert!(members(text, ["a"]).is_some(), "{text:?}");
        }
        for text in [
            "{}{}",
            "{} x",
            "{\"a\":1}}",
            "{\"a\":1,}",
            "\u{a0}{}",
            "{\"a\":1]",
        ] {
            assert_eq!(members(text, ["a"]), None, "{text:?}");
        }
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!("{{\"a\":{open}{close}}}")
        };
        assert!(members(&nested(127), ["a"]).is_some());
        assert_eq!(members(&nested(128), ["a"]), None);
    }

    /// What an object holds, by a parser that is not ours.
    fn by_serde(text: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
        serde_json::from_str(text).ok()
    }

    proptest! {
        #[test]
        fn members_are_those_that_serde_finds(
            keys in proptest::collection::vec("[ab\\\\\"]{0,2}", 0..4),
            values in proptest::array::uniform4(
                "(null|true|-?[0-9]{1,3}(\\.5)?|\"[a\\\\\\\\\\n]*\"|\\[1, ?\\{\\}\\])"
            ),
            blank in "[ \\t\\n]{0,2}",
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let members: Vec<String> = keys
                .iter()
                .zip(&values)
                .map(|(key, value)| format!("\"{key}\"{blank}:{blank}{value}"))
                .collect();
            let mut text = format!("{blank}{{{}}}{blank}", members.join(","));
            if let Some(cut) = cut {
                text.truncate(cut.index(text.len() + 1));
            }
            let found = super::members(&text, ["a", "b"]);
            let wanted = by_serde(&text);
            prop_assert_eq!(found.is_some(), wanted.is_some(), "{}", text);
            let found = found.unwrap_or_default();
            for (raw, name) in found.into_iter().zip(["a", "b"]) {
                let raw = raw.map(|raw| serde_json::from_str::<serde_json::Value>(raw).unwrap());
                let member = wanted.as_ref().and_then(|wanted| wanted.get(name));
                prop_assert_eq!(raw.as_ref(), member, "{}", text);
            }
        }

        #[test]
        fn reading_and_writing_agree_with_serde(text in ".*") {
            let mut out = Vec::new();
            write_text(&mut out, &text);
            let written = std::str::from_utf8(&out).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(written).unwrap(), text.clone());
            prop_assert_eq!(super::text(written).unwrap(), text);
        }
    }
}
