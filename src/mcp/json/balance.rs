//! Skipping what is relayed unread: brackets balanced outside strings, nothing more.
//!
//! Owns: finding the end of a value sixty-four bytes at a time, as one bit per byte.
//! Never: checks the grammar inside; callers relay the bytes as they are.

use std::array;

use memchr::memchr;

use super::Fault;
use super::grammar::{literal_tail, number_tail};

/// Bytes looked at in one step: a bit of a `u64` for each.
const BLOCK: usize = 64;

/// Skips the object or array that starts at `pos` by balancing brackets outside strings.
///
/// It finds where the container ends in every valid document and refuses what never closes, but
/// lets malformed content inside pass: brackets are counted without telling `[` from `{`.
///
/// # Errors
/// `Syntax` when no container starts at `pos`, a string stays open or a bracket unclosed.
pub fn skip_container_fast(bytes: &[u8], pos: usize) -> Result<usize, Fault> {
    match bytes.get(pos) {
        Some(b'{' | b'[') => container_end(bytes, pos),
        _ => Err(Fault::Syntax),
    }
}

/// The bytes after the value that `bytes` starts with; scalars are checked by the grammar.
pub(super) fn skip_tail_fast(bytes: &[u8]) -> Result<&[u8], Fault> {
    match bytes {
        [b'{' | b'[', ..] => Ok(bytes.get(container_end(bytes, 0)?..).unwrap_or_default()),
        [b'"', ..] => Ok(bytes.get(string_end(bytes, 1)?..).unwrap_or_default()),
        [b'-' | b'0'..=b'9', ..] => number_tail(bytes),
        _ => literal_tail(bytes),
    }
}

/// The position after the container that opens at `pos`.
fn container_end(bytes: &[u8], pos: usize) -> Result<usize, Fault> {
    let mut at = pos;
    let mut depth = 0_usize;
    // All ones while a string is open at the start of a block.
    let mut in_string = 0_u64;
    // 1 when the first byte of a block is escaped by the last of the block before.
    let mut escape_carry = 0_u64;
    let mut padded = [b' '; BLOCK];
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let block = match rest.first_chunk::<BLOCK>() {
            Some(block) => block,
            None => {
                for (to, from) in padded.iter_mut().zip(rest) {
                    *to = *from;
                }
                &padded
            }
        };
        let mut quotes = marks(block, |byte| byte == b'"');
        if quotes == 0 && in_string != 0 {
            // Deep inside a long string: look for its end with longer strides.
            at = string_end(bytes, at + escape_carry as usize)?;
            (in_string, escape_carry) = (0, 0);
            continue;
        }
        if escape_carry != 0 || block.iter().fold(false, |any, &byte| any | (byte == b'\\')) {
            let slashes = marks(block, |byte| byte == b'\\');
            let escaped = escaped_marks(slashes, &mut escape_carry);
            quotes &= !escaped;
        }
        let inside = in_string ^ prefix_xor(quotes);
        in_string = 0_u64.wrapping_sub(inside >> 63);
        // Setting bit 5 maps `[` onto `{` and `]` onto `}`, and nothing else onto either.
        let closes = marks(block, |byte| byte | 0x20 == b'}') & !inside;
        let opens = marks(block, |byte| byte | 0x20 == b'{') & !inside;
        let close_count = closes.count_ones() as usize;
        if close_count < depth {
            depth = depth + opens.count_ones() as usize - close_count;
        } else {
            let mut brackets = opens | closes;
            while brackets != 0 {
                let lowest = brackets & brackets.wrapping_neg();
                if opens & lowest != 0 {
                    depth += 1;
                } else {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(at + lowest.trailing_zeros() as usize + 1);
                    }
                }
                brackets ^= lowest;
            }
        }
        at += BLOCK;
    }
    Err(Fault::Syntax)
}

/// The position after the string whose content goes on at `from`, not inside an escape.
fn string_end(bytes: &[u8], from: usize) -> Result<usize, Fault> {
    let mut from = from;
    loop {
        let rest = bytes.get(from..).ok_or(Fault::Syntax)?;
        let at = memchr(b'"', rest).ok_or(Fault::Syntax)?;
        let before = rest.get(..at).unwrap_or_default();
        let slashes = before
            .iter()
            .rev()
            .take_while(|&&byte| byte == b'\\')
            .count();
        from += at + 1;
        if slashes % 2 == 0 {
            return Ok(from);
        }
    }
}

/// One bit for each byte of the block, set where `is_marked`.
///
/// Written so that the compiler compares in vector registers: the place of a byte within its
/// group of eight is the weight of its bit, and the multiplication gathers the eight bits.
#[inline(always)]
fn marks(block: &[u8; BLOCK], is_marked: impl Fn(u8) -> bool) -> u64 {
    let weights: [u8; BLOCK] = array::from_fn(|place| {
        if is_marked(block[place]) {
            1 << (place & 7)
        } else {
            0
        }
    });
    let (groups, _) = weights.as_chunks::<8>();
    groups.iter().enumerate().fold(0, |bits, (index, group)| {
        let gathered = u64::from_le_bytes(*group).wrapping_mul(0x0101_0101_0101_0101) >> 56;
        bits | (gathered << (index * 8))
    })
}

/// Which bytes are escaped, given where backslashes stand; `carry` runs from block to block.
#[inline]
fn escaped_marks(slashes: u64, carry: &mut u64) -> u64 {
    if *carry == 0 && slashes & (slashes << 1) == 0 {
        // No two in a row: each escapes the byte after it.
        *carry = slashes >> 63;
        return slashes << 1;
    }
    let mut escaped = *carry;
    // A backslash that is itself escaped escapes nothing.
    let mut escaping = slashes & !escaped;
    *carry = 0;
    while escaping != 0 {
        let lowest = escaping & escaping.wrapping_neg();
        let next = lowest << 1;
        if next == 0 {
            *carry = 1;
        }
        escaped |= next;
        escaping &= !(lowest | next);
    }
    escaped
}

/// For each bit, the parity of the bits up to and including it.
#[inline]
fn prefix_xor(bits: u64) -> u64 {
    let mut parity = bits;
    for shift in [1, 2, 4, 8, 16, 32] {
        parity ^= parity << shift;
    }
    parity
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same walk, one byte at a time.
    fn slow_end(bytes: &[u8]) -> Result<usize, Fault> {
        let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b'{' | b'[' if !in_string => depth += 1,
                b'}' | b']' if !in_string => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(at + 1);
                    }
                }
                _ => {}
            }
        }
        Err(Fault::Syntax)
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        let body = br#"{"a]}":"[{\"}]","b":[{}]} ]"#;
        assert_eq!(skip_container_fast(body, 0), Ok(body.len() - 2));
        assert_eq!(skip_container_fast(b"xx[[]]]", 2), Ok(6));
        for open in [
            &b"["[..],
            b"[\"]",
            b"[\"a\\\"]",
            b"{\"a\":[1,2}",
            b"\"a\"",
            b"1",
            b"",
        ] {
            assert_eq!(skip_container_fast(open, 0), Err(Fault::Syntax), "{open:?}");
        }
    }

    #[test]
    fn block_borders_change_nothing() {
        let tails = [
            r#"\"]"]"#,
            r#"\\"]"#,
            r#"\\\"]"]"#,
            r#"\\\\"]"#,
            r#"",[{"]":"}"}]]"#,
            r#""]"#,
            r#"\n"],"#,
            r#"\\\\\"]}\u005d\"","]"]"#,
        ];
        for filler in 0..200 {
            for tail in tails {
                let body = format!("[\"{}{tail} more {{ of [ it", "x".repeat(filler));
                let fast = skip_container_fast(body.as_bytes(), 0);
                assert_eq!(fast, slow_end(body.as_bytes()), "{body}");
                let spaced = format!("[{}\"{tail} more {{ of [ it", " ".repeat(filler));
                let fast = skip_container_fast(spaced.as_bytes(), 0);
                assert_eq!(fast, slow_end(spaced.as_bytes()), "{spaced}");
            }
        }
    }

    #[test]
    fn runs_of_backslashes_may_be_of_any_length() {
        for run in 0..300 {
            for filler in [0, 1, 61, 62, 63, 64] {
                let escapes = "\\".repeat(run);
                let body = format!("[\"{}{escapes}\",\"]\"]]\"]", "y".repeat(filler));
                let fast = skip_container_fast(body.as_bytes(), 0);
                assert_eq!(fast, slow_end(body.as_bytes()), "{run} after {filler}");
            }
        }
    }

    #[test]
    fn depth_is_not_bounded() {
        let body = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(skip_container_fast(body.as_bytes(), 0), Ok(200_000));
        assert_eq!(
            skip_container_fast(&body.as_bytes()[..199_999], 0),
            Err(Fault::Syntax)
        );
    }

    #[test]
    fn any_value_is_skipped() {
        for value in [r#""a\"b""#, "-1.5e3", "true", "null", "[1]", r#"{"a":"}"}"#] {
            let body = format!("{value},");
            assert_eq!(skip_tail_fast(body.as_bytes()), Ok(&b","[..]), "{value}");
        }
        for broken in ["", "\"", "\"\\\"", "nul", "-", "]", "{"] {
            assert_eq!(
                skip_tail_fast(broken.as_bytes()),
                Err(Fault::Syntax),
                "{broken}"
            );
        }
    }
}
