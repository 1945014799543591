//! JSON strings and what they say: decoding, quoting, and the check that decoding would work.
//!
//! Owns: escapes in both directions (RFC 8259 section 7).
//! Never: changes a string that is only relayed.

use std::borrow::Cow;

use memchr::memchr;

use super::grammar::string_tail;
use super::word::plain_tail;

/// What stands between the quotes of a string lexeme; empty when there are none.
#[inline]
#[must_use]
pub fn content(quoted: &[u8]) -> &[u8] {
    match quoted {
        [b'"', content @ .., b'"'] => content,
        _ => &[],
    }
}

/// Decodes a string lexeme, quotes included; borrows when it holds no escape.
///
/// `None` for anything that is not one whole JSON string, and for a lone surrogate escape,
/// which no Rust string can hold.
#[must_use]
pub fn unescape(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let rest = quoted.strip_prefix(b"\"")?;
    // What most strings are: it ends where the first byte is that does not stand for itself.
    if let [b'"'] = plain_tail(rest) {
        return std::str::from_utf8(content(quoted)).ok().map(Cow::Borrowed);
    }
    let tail = string_tail(rest).ok()?;
    if !tail.is_empty() {
        return None;
    }
    let content = std::str::from_utf8(content(quoted)).ok()?;
    let Some(mut slash) = memchr(b'\\', content.as_bytes()) else {
        return Some(Cow::Borrowed(content));
    };
    let mut text = String::with_capacity(content.len());
    let mut rest = content;
    loop {
        text.push_str(rest.get(..slash)?);
        let (decoded, len) = decode_escape(rest.as_bytes().get(slash..)?)?;
        text.push(decoded);
        rest = rest.get(slash + len..)?;
        match memchr(b'\\', rest.as_bytes()) {
            Some(next) => slash = next,
            None => break,
        }
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

/// Whether every escape of an already checked string stands for a character: no lone surrogate.
#[must_use]
pub fn decodes(quoted: &[u8]) -> bool {
    let mut rest = content(quoted);
    while let Some(slash) = memchr(b'\\', rest) {
        let Some((_, len)) = rest.get(slash..).and_then(decode_escape) else {
            return false;
        };
        rest = rest.get(slash + len..).unwrap_or_default();
    }
    true
}

/// What a string lexeme says, when that is what it looks like: no escape in it.
#[must_use]
pub fn verbatim(quoted: &[u8]) -> Option<&[u8]> {
    match quoted {
        [b'"', content @ .., b'"'] if memchr(b'\\', content).is_none() => Some(content),
        _ => None,
    }
}

/// Appends `text` to `out` as a JSON string.
pub fn quote(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let stop = plain_tail(rest);
        let plain = rest.len() - stop.len();
        out.extend_from_slice(rest.get(..plain).unwrap_or_default());
        let Some((&byte, tail)) = stop.split_first() else {
            break;
        };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let low = byte & 15;
                let digit = if low < 10 {
                    b'0' + low
                } else {
                    b'a' - 10 + low
                };
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), digit]);
            }
        }
        rest = tail;
    }
    out.push(b'"');
}

/// The character an escape sequence at the start of `bytes` stands for, and its length.
fn decode_escape(bytes: &[u8]) -> Option<(char, usize)> {
    let plain = match bytes.get(1)? {
        b'u' => {
            let first = hex_unit(bytes)?;
            if let Some(decoded) = char::from_u32(first) {
                return Some((decoded, 6));
            }
            // RFC 8259 section 7: beyond the BMP, a pair of escapes, high surrogate first.
            let second = hex_unit(bytes.get(6..)?)?;
            if first >= 0xdc00 || !(0xdc00..0xe000).contains(&second) {
                return None;
            }
            let scalar = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return Some((char::from_u32(scalar)?, 12));
        }
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        &byte => char::from(byte),
    };
    Some((plain, 2))
}

/// The code unit of the `\uXXXX` escape that `bytes` starts with.
fn hex_unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, &digit| {
        Some(unit * 16 + char::from(digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_without_escapes_are_borrowed() {
        assert!(matches!(
            unescape(b"\"plain\""),
            Some(Cow::Borrowed("plain"))
        ));
        assert!(matches!(unescape(b"\"\""), Some(Cow::Borrowed(""))));
    }

    #[test]
    fn escapes_decode_to_their_characters() {
        let all = br#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000z""#;
        let expected = "a\"\\/\u{8}\u{c}\n\r\t\u{e9}\u{1f600}\0z";
        assert_eq!(unescape(all).as_deref(), Some(expected));
    }

    #[test]
    fn what_is_not_one_string_does_not_decode() {
        for lexeme in [
            &b""[..],
            b"\"",
            b"a",
            b"1",
            b"null",
            b"\"a",
            b"a\"",
            b"\"a\"b\"",
            b"\"a\\\"",
            b"\"\\x\"",
            b"\"\\u00g0\"",
            b"\"\n\"",
            b"\"\xff\"",
            b" \"a\"",
            b"\"a\" ",
        ] {
            assert_eq!(unescape(lexeme), None, "{lexeme:?}");
        }
    }

    #[test]
    fn lone_surrogates_do_not_decode() {
        for lexeme in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800\ud800""#,
            r#""\ud800x""#,
            r#""\ud800\n""#,
            r#""\udc00\ud800""#,
        ] {
            assert_eq!(unescape(lexeme.as_bytes()), None, "{lexeme}");
            assert!(!decodes(lexeme.as_bytes()), "{lexeme}");
        }
        assert!(decodes(br#""\ud83d\ude00""#));
        assert!(decodes(b"12"));
    }

    #[test]
    fn quoting_escapes_only_what_must_be() {
        let mut out = Vec::new();
        quote(&mut out, "a/\u{e9}\"\\\n\r\t\u{1}\u{1f}\u{7f}");
        assert_eq!(
            out,
            "\"a/\u{e9}\\\"\\\\\\n\\r\\t\\u0001\\u001f\u{7f}\"".as_bytes()
        );
    }
}
