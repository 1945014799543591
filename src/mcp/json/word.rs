//! Eight or thirty-two bytes at a time: which of them matter inside a string.
//!
//! Owns: the bit tricks, so that the grammar reads as a grammar.
//! Never: knows what a found byte means.

/// A word as it lies in memory, first byte lowest.
#[inline]
fn first_word(bytes: &[u8]) -> Option<u64> {
    bytes
        .first_chunk::<8>()
        .map(|chunk| u64::from_le_bytes(*chunk))
}

/// The bytes from the first quote, backslash or control character on; empty when there is none.
#[inline]
pub(super) fn plain_tail(bytes: &[u8]) -> &[u8] {
    // Most strings of an envelope end within a word; only longer ones pay for the loops.
    match first_word(bytes).map(stop_bytes) {
        Some(stops) if stops != 0 => tail_at(bytes, stops),
        _ => plain_tail_long(bytes),
    }
}

/// `plain_tail` for long strings, and close to the end of the document.
#[inline(never)]
fn plain_tail_long(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    for _ in 0..2 {
        match first_word(rest).map(stop_bytes) {
            Some(0) => rest = rest.get(8..).unwrap_or_default(),
            Some(stops) => return tail_at(rest, stops),
            None => break,
        }
    }
    while let Some((block, tail)) = rest.split_first_chunk::<32>() {
        // No early exit and no branch: the compiler turns this into vector compares.
        if block.iter().fold(false, |any, &byte| any | is_stop(byte)) {
            break;
        }
        rest = tail;
    }
    while let Some(word) = first_word(rest) {
        let stops = stop_bytes(word);
        if stops != 0 {
            return tail_at(rest, stops);
        }
        rest = rest.get(8..).unwrap_or_default();
    }
    while let [byte, tail @ ..] = rest
        && !is_stop(*byte)
    {
        rest = tail;
    }
    rest
}

/// The bytes from the lowest mark on.
#[inline]
fn tail_at(bytes: &[u8], marks: u64) -> &[u8] {
    bytes
        .get(marks.trailing_zeros() as usize / 8..)
        .unwrap_or_default()
}

/// Whether a byte cannot stand for itself inside a string.
#[inline]
fn is_stop(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// The byte in all eight places of a word.
#[inline]
const fn repeat(byte: u8) -> u64 {
    0x0101_0101_0101_0101 * byte as u64
}

/// Marks the bytes of `word` that end a plain run of a string; the lowest mark is exact.
///
/// A borrow can only set marks above a true one, so places past the first must not be used.
#[inline]
fn stop_bytes(word: u64) -> u64 {
    let quotes = (word ^ repeat(b'"')).wrapping_sub(repeat(1));
    let slashes = (word ^ repeat(b'\\')).wrapping_sub(repeat(1));
    let controls = word.wrapping_sub(repeat(0x20));
    (quotes | slashes | controls) & !word & repeat(0x80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_value_is_told_apart_at_each_place() {
        for byte in 0..=u8::MAX {
            for len in [8, 9, 16, 31, 32, 33, 70] {
                for place in 0..len {
                    let mut bytes = vec![b'~'; len];
                    bytes[place] = byte;
                    let expected = if is_stop(byte) { place } else { len };
                    let tail = plain_tail(&bytes);
                    assert_eq!(len - tail.len(), expected, "{byte:#x} at {place} of {len}");
                }
            }
        }
    }

    #[test]
    fn the_first_of_several_stops_counts() {
        assert_eq!(plain_tail(b"ab\x01!\"\\\"c"), b"\x01!\"\\\"c");
        assert_eq!(plain_tail(b"abcde\"#[]"), b"\"#[]");
        assert_eq!(plain_tail(b"abc"), b"");
        assert_eq!(plain_tail(b""), b"");
    }
}
