//! Reading and editing JSON as bytes: the gateway relays documents, it does not rebuild them.
//!
//! Owns: the RFC 8259 grammar check, the walk over the members of one object or the elements of
//! one array, string decoding and quoting, and `splice`, the only way a relayed body changes.
//! Two skippers: `skip_value` checks every byte of the grammar and bounds the nesting, for what
//! clients send; `skip_container_fast` only balances brackets, for replies of a backend that
//! travel on untouched.
//! Never: builds a tree, recurses, re-encodes a value, or knows a word of JSON-RPC.

mod balance;
mod grammar;
mod text;
mod walk;
mod word;

use crate::http::head::Span;

pub use balance::skip_container_fast;
pub use grammar::{skip_value, skip_whitespace};
pub use text::{content, decodes, quote, unescape, verbatim};
pub use walk::{
    Elements, Members, elements, elements_fast, member, members, pick, pick_pairs, says,
};

/// Deepest nesting any walk accepts; the top-level value of a document is level 1.
///
/// One bit of a `u128` per open container keeps the walk free of recursion and of allocation.
pub const DEPTH_MAX: u16 = 128;

/// Why bytes are not the JSON that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes break the grammar of RFC 8259, or end too early.
    Syntax,
    /// Containers nest deeper than the bound.
    TooDeep,
    /// Longer than a `Span` can address.
    TooLong,
}

/// The span between two positions of a document whose length `check_len` accepted.
#[inline]
fn span(start: usize, end: usize) -> Span {
    Span {
        start: start as u32,
        end: end as u32,
    }
}

/// Refuses documents whose positions do not fit a `Span`.
#[inline]
pub(super) fn check_len(bytes: &[u8]) -> Result<(), Fault> {
    if bytes.len() > u32::MAX as usize {
        Err(Fault::TooLong)
    } else {
        Ok(())
    }
}

/// The position of `inner`, found inside the bytes of `outer`, in the document around `outer`.
#[must_use]
pub fn within(outer: Span, inner: Span) -> Span {
    Span {
        start: outer.start.saturating_add(inner.start),
        end: outer.start.saturating_add(inner.end),
    }
}

/// Appends `src` to `out` with each span of `edits` replaced; an empty span inserts.
///
/// Edits stand in ascending order and do not overlap.
pub fn splice(out: &mut Vec<u8>, src: &[u8], edits: &[(Span, &[u8])]) {
    let added: usize = edits.iter().map(|(_, bytes)| bytes.len()).sum();
    out.reserve(src.len() + added);
    let mut copied = 0;
    for (span, replacement) in edits {
        let (start, end) = (span.start as usize, span.end as usize);
        debug_assert!(
            copied <= start && start <= end && end <= src.len(),
            "edits out of order"
        );
        out.extend_from_slice(src.get(copied..start).unwrap_or_default());
        out.extend_from_slice(replacement);
        copied = end;
    }
    out.extend_from_slice(src.get(copied..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spliced(src: &str, edits: &[(Span, &[u8])]) -> String {
        let mut out = b"<".to_vec();
        splice(&mut out, src.as_bytes(), edits);
        String::from_utf8(out).expect("utf-8")
    }

    #[test]
    fn splice_replaces_inserts_and_removes() {
        assert_eq!(spliced("abcdef", &[]), "<abcdef");
        assert_eq!(
            spliced("abcdef", &[(span(0, 1), b"XY"), (span(5, 6), b"")]),
            "<XYbcde"
        );
        assert_eq!(
            spliced("abc", &[(span(1, 1), b"+"), (span(3, 3), b"!")]),
            "<a+bc!"
        );
        assert_eq!(
            spliced("abc", &[(span(0, 1), b"1"), (span(1, 2), b"2")]),
            "<12c"
        );
    }

    #[test]
    #[should_panic(expected = "edits out of order")]
    fn splice_refuses_overlapping_edits() {
        spliced("abc", &[(span(0, 2), b""), (span(1, 3), b"")]);
    }

    #[test]
    fn within_counts_from_the_outer_document() {
        let body = br#"{"a":{"b":[1]}}"#;
        let outer = member(body, "a").expect("a");
        let inner = member(outer.slice(body), "b").expect("b");
        assert_eq!(within(outer, inner).slice(body), b"[1]");
    }
}
