//! Header lines, strictly: `name ":" OWS value OWS CRLF`, one step at a time.
//!
//! Owns the byte classes of RFC 9110 section 5.6.2 (token) and 5.5 (field value). Bare CR, bare LF,
//! obs-fold, NUL and other controls, space before the colon and nameless lines are faults here,
//! and a fault depends only on the bytes up to it, so it is the same however the bytes arrive.
//! Never decides what a header means.

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
    let name_len = front_len(rest, is_token);
    match rest.get(name_len) {
        None => return Ok(Line::Partial),
        Some(b':') if name_len > 0 => {}
        Some(_) => return Err(LineFault::Name),
    }
    let value_at = name_len + 1;
    let tail = &rest[value_at..];
    let raw_len = text_len(tail);
    match tail.get(raw_len) {
        None => return Ok(Line::Partial),
        Some(b'\r') => {}
        Some(_) => return Err(LineFault::Value),
    }
    match tail.get(raw_len + 1) {
        None => return Ok(Line::Partial),
        Some(b'\n') => {}
        Some(_) => return Err(LineFault::End),
    }
    let (mut value, mut front) = (&tail[..raw_len], 0);
    while let [first, rest @ ..] = value
        && is_ows(*first)
    {
        (value, front) = (rest, front + 1);
    }
    let value = trim_ows(value);
    let value_start = at + value_at + front;
    Ok(Line::Field {
        name: Span::new(at, at + name_len),
        value: Span::new(value_start, value_start + value.len()),
        next: at + value_at + raw_len + 2,
    })
}

/// How many bytes from the front are of a class, looked at eight at a time.
#[inline]
pub(super) fn front_len(bytes: &[u8], is_in: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    for word in bytes.as_chunks::<8>().0 {
        if !word.iter().fold(true, |fine, &byte| fine & is_in(byte)) {
            break;
        }
        at += word.len();
    }
    while bytes.get(at).is_some_and(|&byte| is_in(byte)) {
        at += 1;
    }
    at
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

/// How many bytes from the front may stand in a field value: HTAB, SP, visible and obs-text
/// (RFC 9110 section 5.5). What ends them is a control byte, a CR if all is well.
fn text_len(bytes: &[u8]) -> usize {
    let mut at = plain_len(bytes);
    while bytes.get(at) == Some(&b'\t') {
        at += 1 + plain_len(&bytes[at + 1..]);
    }
    at
}

/// The same without HTAB: long values by blocks, for which the compiler has wide instructions.
fn plain_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let is_control = |byte: u8| (byte < b' ') | (byte == 0x7f);
    let mut at = 0;
    for block in bytes.as_chunks::<16>().0 {
        // Without a branch.
        if block
            .iter()
            .fold(false, |bad, &byte| bad | is_control(byte))
        {
            break;
        }
        at += block.len();
    }
    for word in bytes[at..].as_chunks().0.iter().take(2) {
        let word = u64::from_le_bytes(*word);
        // A byte's high bit tells a hit. A borrow spoils only what is behind the first one.
        let delete = word ^ (ONES * 0x7f);
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let hits = (control | (delete.wrapping_sub(ONES) & !delete)) & HIGHS;
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&byte| !is_control(byte)) {
        at += 1;
    }
    at
}

/// Equal but for case. What is written as we write it, which is nearly all, costs one comparison.
#[inline]
pub(super) fn is_word(written: &[u8], wanted: &[u8]) -> bool {
    written == wanted || written.eq_ignore_ascii_case(wanted)
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
