//! Header lines, strictly: `name ":" OWS value OWS CRLF`, one step at a time.
//!
//! Owns the byte classes of RFC 9110 section 5.6.2 (token) and 5.5 (field value). Bare CR, bare LF,
//! obs-fold, NUL and other controls, space before the colon and nameless lines are faults here,
//! and a fault depends only on the bytes up to it, so it is the same however the bytes arrive.
//! Never decides what a header means.

use memchr::memchr;

use super::head::Span;

/// What stands at a line start inside a header section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// The line has no end yet.
    Partial,
    /// One header, surrounding white space of the value left out.
    Field {
        /// The name as it was written.
        name: Span,
        /// The value; may be empty.
        value: Span,
        /// Where the following line starts.
        next: usize,
    },
    /// The blank line that ends the section.
    End {
        /// First byte after the section.
        next: usize,
    },
}

/// Why a header line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFault {
    /// Name empty, folded, followed by white space or not a token.
    Name,
    /// A control byte in the value.
    Value,
    /// A CR without its LF.
    End,
}

impl LineFault {
    /// Hand-written text for a refusal.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Name => "malformed header name",
            Self::Value => "control byte in a header value",
            Self::End => "bare CR in the header section",
        }
    }
}

/// Reads the line that starts at `at`.
pub(super) fn read(buf: &[u8], at: usize) -> Result<Line, LineFault> {
    let rest = buf.get(at..).unwrap_or_default();
    match rest {
        [] | [b'\r'] => return Ok(Line::Partial),
        [b'\r', b'\n', ..] => return Ok(Line::End { next: at + 2 }),
        [b'\r', ..] => return Err(LineFault::End),
        _ => {}
    }
    let Some(name_len) = rest.iter().position(|&byte| !is_token(byte)) else {
        return Ok(Line::Partial);
    };
    if name_len == 0 || rest[name_len] != b':' {
        return Err(LineFault::Name);
    }
    let value_at = name_len + 1;
    let tail = &rest[value_at..];
    let end = memchr(b'\r', tail);
    let raw = &tail[..end.unwrap_or(tail.len())];
    if !is_field_text(raw) {
        return Err(LineFault::Value);
    }
    let Some(raw_len) = end else {
        return Ok(Line::Partial);
    };
    match tail.get(raw_len + 1) {
        None => return Ok(Line::Partial),
        Some(b'\n') => {}
        Some(_) => return Err(LineFault::End),
    }
    let front = raw.iter().take_while(|byte| is_ows(**byte)).count();
    let value = trim_ows(raw);
    let value_start = at + value_at + front;
    Ok(Line::Field {
        name: Span::new(at, at + name_len),
        value: Span::new(value_start, value_start + value.len()),
        next: at + value_at + raw_len + 2,
    })
}

/// RFC 9110 section 5.6.2: a byte that may stand in a method or a header name.
#[inline]
pub(super) fn is_token(byte: u8) -> bool {
    const TABLE: [bool; 256] = byte_table(
        b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    );
    TABLE[usize::from(byte)]
}

/// A table that is true for exactly the listed bytes.
pub(super) const fn byte_table(listed: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut index = 0;
    while index < listed.len() {
        table[listed[index] as usize] = true;
        index += 1;
    }
    table
}

/// Bytes a field value may hold: HTAB, SP, visible ASCII, obs-text.
fn is_field_text(value: &[u8]) -> bool {
    // A fold without a branch, so that the compiler can take many bytes at a time.
    !value.iter().fold(false, |bad, &byte| {
        bad | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f)
    })
}

/// RFC 9110 section 5.6.3.
#[inline]
pub(super) fn is_ows(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// The value without optional white space around it.
pub(super) fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = value
        && is_ows(*first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && is_ows(*last)
    {
        value = rest;
    }
    value
}

/// The members of a comma-separated list, empty ones left out (RFC 9110 section 5.6.1).
pub(super) fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(trim_ows)
        .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(line: &[u8]) -> Result<Line, LineFault> {
        read(line, 0)
    }

    #[test]
    fn white_space_around_a_value_is_left_out() {
        for (line, value) in [
            (&b"a: b\r\n"[..], &b"b"[..]),
            (b"a:b\r\n", b"b"),
            (b"a: \t b c\t \r\n", b"b c"),
            (b"a:\r\n", b""),
            (b"a:  \t\r\n", b""),
        ] {
            let Ok(Line::Field {
                name,
                value: span,
                next,
            }) = field(line)
            else {
                panic!("{line:?} is a header line");
            };
            assert_eq!(name.slice(line), b"a");
            assert_eq!(span.slice(line), value);
            assert_eq!(next, line.len());
        }
    }

    #[test]
    fn every_byte_of_a_value_is_judged_wherever_it_stands() {
        for byte in 0..=255_u8 {
            for position in [0, 1, 7, 31, 64] {
                let mut line = b"name:".to_vec();
                line.extend(std::iter::repeat_n(b'v', position));
                line.push(byte);
                line.extend_from_slice(b"v\r\n");
                let allowed = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
                assert_eq!(field(&line).is_ok(), allowed, "byte {byte} at {position}");
            }
        }
    }

    #[test]
    fn only_token_bytes_make_a_name() {
        for byte in 0..=255_u8 {
            let line = [b'a', byte, b'b', b':', b'v', b'\r', b'\n'];
            let token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            assert_eq!(field(&line).is_ok(), token || byte == b':', "byte {byte}");
        }
    }

    #[test]
    fn broken_lines_are_faults_before_they_end() {
        assert_eq!(field(b"a : b"), Err(LineFault::Name));
        assert_eq!(field(b" a: b"), Err(LineFault::Name));
        assert_eq!(field(b": b"), Err(LineFault::Name));
        assert_eq!(field(b"\n"), Err(LineFault::Name));
        assert_eq!(field(b"a: b\n"), Err(LineFault::Value));
        assert_eq!(field(b"a: b\rc"), Err(LineFault::End));
        assert_eq!(field(b"\ra"), Err(LineFault::End));
        assert_eq!(field(b"a: b\r"), Ok(Line::Partial));
        assert_eq!(field(b"\r\n"), Ok(Line::End { next: 2 }));
    }

    #[test]
    fn empty_list_members_do_not_count() {
        let members: Vec<&[u8]> = list_members(b", a,,b ,\tc").collect();
        assert_eq!(members, [b"a", b"b", b"c"]);
    }
}
