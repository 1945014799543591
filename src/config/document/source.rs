//! The text of a document with its name, and JSON objects whose values keep their place in it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A document's text and the name it has in messages.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) label: &'a str,
}

impl Source<'_> {
    /// The message with file, line and column of a part of the text before it.
    pub(super) fn placed(&self, part: &str, message: &str) -> String {
        let (line, column) = self.start_of(part);
        format!("{}:{line}:{column}: {message}", self.label)
    }

    /// A reader's fault with its place, counted from the start of the document and not of the part.
    pub(super) fn fault(&self, part: &str, error: &serde_json::Error) -> String {
        let (start_line, start_column) = self.start_of(part);
        let line = start_line + error.line().max(1) - 1;
        let column = match error.line() {
            0 | 1 => start_column + error.column().max(1) - 1,
            _ => error.column(),
        };
        let text = error.to_string();
        let own_place = format!(" at line {} column {}", error.line(), error.column());
        let message = text.strip_suffix(&own_place).unwrap_or(&text);
        format!("{}:{line}:{column}: {message}", self.label)
    }

    /// Line and column, from 1, of a part that was borrowed from the text.
    fn start_of(&self, part: &str) -> (usize, usize) {
        let offset = part
            .as_ptr()
            .addr()
            .saturating_sub(self.text.as_ptr().addr());
        let before = self.text.get(..offset).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, offset - line_start + 1)
    }
}

/// One key and value of an object.
pub(super) struct Member<'a> {
    pub(super) name: String,
    /// The value's own JSON text, within the document's.
    pub(super) value: &'a str,
}

/// The members of an object in order; a key given twice is a fault.
pub(super) struct Members<'a>(pub(super) Vec<Member<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Members)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        let mut names = std::collections::HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(Error::custom(format!("the key `{name}` is given twice")));
            }
            let value = map.next_value::<&'de RawValue>()?.get();
            members.push(Member { name, value });
        }
        Ok(members)
    }
}

/// The known word that an unknown one was probably meant to be.
pub(super) fn did_you_mean<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = |text: &str| -> Vec<u8> {
        text.bytes()
            .filter(|byte| !matches!(byte, b'_' | b'-'))
            .map(|byte| byte.to_ascii_lowercase())
            .collect()
    };
    let word = plain(word);
    known
        .iter()
        .map(|known| (distance(&word, &plain(known)), *known))
        .filter(|(distance, known)| *distance <= 2 && *distance < known.len() / 2)
        .min()
        .map(|(_, known)| known)
}

/// Fewest insertions, deletions and replacements that turn `left` into `right`.
fn distance(left: &[u8], right: &[u8]) -> usize {
    // A long unknown key is like no known one, and must not cost its square.
    if left.len().abs_diff(right.len()) > 2 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (left_index, left_byte) in left.iter().enumerate() {
        let mut diagonal = left_index;
        let mut before = left_index + 1;
        for (cell, right_byte) in row.iter_mut().skip(1).zip(right) {
            let replaced = diagonal + usize::from(left_byte != right_byte);
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(before + 1);
            before = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = left_index + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_not() {
        let known = ["virtual_hosts", "users", "mcpServers"];
        for (word, expected) in [
            ("virtualHosts", Some("virtual_hosts")),
            ("virtual-host", Some("virtual_hosts")),
            ("user", Some("users")),
            ("usres", None),
            ("mcpserver", Some("mcpServers")),
            ("mcp_servers", Some("mcpServers")),
            ("backends", None),
            ("", None),
        ] {
            assert_eq!(did_you_mean(word, &known), expected, "{word}");
        }
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (left, right, expected) in [
            ("kitten", "sitten", 1),
            ("ab", "ba", 2),
            ("", "ab", 2),
            ("abc", "abc", 0),
            ("a", "", 1),
        ] {
            assert_eq!(
                distance(left.as_bytes(), right.as_bytes()),
                expected,
                "{left} {right}"
            );
        }
    }
}
