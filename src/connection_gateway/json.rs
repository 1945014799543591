//! The little JSON that the connection gateway reads: members of an object by name, each as its own
//! bytes; texts; whole numbers as JavaScript has them.
//!
//! What is only passed on is never taken apart: its bytes stay as they came.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The largest whole number that JavaScript has exactly.
pub(super) const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The members of these names, as they stand; `None` when `text` is not one whole JSON object. Of a
/// name that stands twice the last one counts, as everywhere in JavaScript; others pass unread.
pub(super) fn members<'a, const N: usize>(
    text: &'a str,
    names: [&'static str; N],
) -> Option<[Option<&'a str>; N]> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(Members { names }).ok()?;
    reader.end().ok()?;
    Some(found)
}

struct Members<const N: usize> {
    names: [&'static str; N],
}

impl<'a, const N: usize> Visitor<'a> for Members<N> {
    type Value = [Option<&'a str>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(index) = map.next_key_seed(Name(&self.names))? {
            match index.and_then(|index| found.get_mut(index)) {
                Some(place) => *place = Some(map.next_value::<&'a RawValue>()?.get()),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Which of the names a key is.
struct Name<'n>(&'n [&'static str]);

impl<'a> DeserializeSeed<'a> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == text))
    }
}

/// What a text says; `None` when the value is none, or holds half of a surrogate pair.
pub(super) fn text(raw: &str) -> Option<Cow<'_, str>> {
    crate::mcp::json::unescape(raw.as_bytes())
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
    crate::mcp::json::quote(out, text);
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

    proptest! {
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
