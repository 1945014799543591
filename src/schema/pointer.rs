//! JSON pointers (RFC 6901) and the local references made of them.

use std::borrow::Cow;

use serde_json::Value;

/// Appends one reference token.
pub(crate) fn push(pointer: &mut String, token: &str) {
    pointer.push('/');
    for character in token.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// `pointer` and one token more.
pub(crate) fn join(pointer: &str, token: &str) -> String {
    let mut joined = String::with_capacity(pointer.len() + token.len() + 1);
    joined.push_str(pointer);
    push(&mut joined, token);
    joined
}

/// What a `$ref` means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reference<'a> {
    /// The place with this JSON pointer.
    Pointer(Cow<'a, str>),
    /// The schema with this `$anchor`.
    Anchor(&'a str),
    /// Another document.
    External,
    /// Local, and not well formed.
    Malformed,
}

impl<'a> Reference<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let Some(fragment) = text.strip_prefix('#') else {
            return Self::External;
        };
        if fragment.is_empty() || fragment.starts_with('/') {
            return match percent_decoded(fragment) {
                Some(pointer) => Self::Pointer(pointer),
                None => Self::Malformed,
            };
        }
        Self::Anchor(fragment)
    }
}

/// A text without its percent-encoding; RFC 6901 section 6: a pointer in a fragment has one.
pub(crate) fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

/// The value at a pointer.
pub(crate) fn resolve<'a>(document: &'a Value, pointer: &str) -> Option<&'a Value> {
    document.pointer(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_apart() {
        for (text, expected) in [
            ("#", Reference::Pointer("".into())),
            ("#/$defs/a", Reference::Pointer("/$defs/a".into())),
            ("#/$defs/a%20b", Reference::Pointer("/$defs/a b".into())),
            ("#/a~1b", Reference::Pointer("/a~1b".into())),
            ("#name", Reference::Anchor("name")),
            ("#/%zz", Reference::Malformed),
            ("#/%ff", Reference::Malformed),
            ("https://example.com/s", Reference::External),
            ("other.json#/a", Reference::External),
            ("", Reference::External),
        ] {
            assert_eq!(Reference::of(text), expected, "{text}");
        }
    }

    #[test]
    fn tokens_are_escaped_and_found_again() {
        let document = serde_json::json!({"a/b": {"c~d": 1}});
        let pointer = join(&join("", "a/b"), "c~d");
        assert_eq!(pointer, "/a~1b/c~0d");
        assert_eq!(resolve(&document, &pointer), Some(&1.into()));
    }
}
