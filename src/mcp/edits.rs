//! Edits to one document, collected in any order by whoever has something to change in it.
//!
//! Owns: their order, and which of two that overlap counts.
//! Never: reads the document.

use smallvec::SmallVec;

use crate::{http::Span, mcp::json};

/// An id or a token fits without an allocation.
type Bytes = SmallVec<[u8; 24]>;

/// Replacements of spans of one document.
#[derive(Debug, Default)]
pub struct Edits {
    list: SmallVec<[(Span, Bytes); 4]>,
}

impl Edits {
    /// Replaces `span` by `bytes`; an empty span inserts.
    pub fn put(&mut self, span: Span, bytes: Vec<u8>) {
        self.list.push((span, Bytes::from_vec(bytes)));
    }

    /// Replaces `span` by a copy of `bytes`; an empty span inserts.
    pub fn put_copy(&mut self, span: Span, bytes: &[u8]) {
        self.list.push((span, Bytes::from_slice(bytes)));
    }

    /// Replaces the value at `span` by the JSON string that says `text`.
    pub fn put_text(&mut self, span: Span, text: &str) {
        let mut quoted = Vec::new();
        json::quote(&mut quoted, text);
        self.put(span, quoted);
    }

    /// Inserts `bytes` before the byte at `position`.
    pub fn insert(&mut self, position: u32, bytes: Vec<u8>) {
        let (start, end) = (position, position);
        self.put(Span { start, end }, bytes);
    }

    /// Takes the members of the object at `object` out whose keys `is_dropped` names, with the
    /// commas that would be left over. Nothing happens to a malformed object.
    pub fn drop_members(
        &mut self,
        document: &[u8],
        object: Span,
        is_dropped: impl Fn(&str) -> bool,
    ) {
        let bytes = object.slice(document);
        // Where a run of members to drop began, and where the last one that stays ended.
        let (mut run, mut kept_end) = (None, None);
        let mut list = Vec::new();
        for item in json::members(bytes) {
            let Ok((key, value)) = item else { return };
            let name = json::unescape(key.slice(bytes));
            if name.is_some_and(|name| is_dropped(&name)) {
                let begin = kept_end.unwrap_or(key.start);
                run = Some((run.map_or(begin, |(begin, _)| begin), value.end));
                continue;
            }
            if let Some((begin, end)) = run.take() {
                // The comma before the run goes with it; at the front the one behind it.
                let end = if kept_end.is_some() { end } else { key.start };
                list.push((begin, end));
            }
            kept_end = Some(value.end);
        }
        list.extend(run);
        for (start, end) in list {
            self.put_copy(json::within(object, Span { start, end }), b"");
        }
    }

    /// Whether the document stays as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets all edits.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// The edits as they stand in the document; those that `apply` leaves out are in it too.
    #[must_use]
    pub fn sorted(&self) -> SmallVec<[(Span, &[u8]); 4]> {
        let mut list: SmallVec<[(Span, &[u8]); 4]> = self
            .list
            .iter()
            .map(|(span, bytes)| (*span, &**bytes))
            .collect();
        // Insertions first, then the longest span: what encloses another comes before it.
        list.sort_by_key(|(span, _)| {
            let is_replacing = span.end > span.start;
            (span.start, is_replacing, std::cmp::Reverse(span.end))
        });
        list
    }

    /// Length of a document of `src_len` bytes with all edits, which do not overlap and lie within.
    #[must_use]
    pub fn applied_len(&self, src_len: usize) -> usize {
        let added = |sum: usize, (_, bytes): &(Span, Bytes)| sum + bytes.len();
        let removed: usize = self.list.iter().map(|(span, _)| span.len()).sum();
        self.list.iter().fold(src_len, added) - removed
    }

    /// Appends `src` with all edits to `out`.
    ///
    /// Of two edits that overlap the one that begins first counts, of two that begin together the
    /// longer one, of two of the same span the one collected first. Insertions at one place all
    /// count, in the order they were collected. An edit outside of `src` does not count.
    pub fn apply(&self, out: &mut Vec<u8>, src: &[u8]) {
        let mut list = self.sorted();
        let mut free_from = 0;
        list.retain(|(span, _)| {
            let fits = span.start <= span.end && span.end as usize <= src.len();
            let counts = fits && span.start >= free_from;
            if counts {
                free_from = span.end;
            }
            counts
        });
        json::splice(out, src, &list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(start: u32, end: u32) -> Span {
        Span { start, end }
    }

    fn applied(src: &str, list: &[(u32, u32, &str)]) -> String {
        let mut edits = Edits::default();
        for (start, end, text) in list {
            edits.put(span(*start, *end), text.as_bytes().to_vec());
        }
        let mut out = Vec::new();
        edits.apply(&mut out, src.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn any_order_does() {
        assert_eq!(applied("abc", &[]), "abc");
        assert_eq!(applied("abcd", &[(3, 4, "Z"), (0, 1, "X")]), "XbcZ");
        assert_eq!(applied("ab", &[(1, 1, "+"), (0, 1, "X"), (1, 2, "")]), "X+");
        assert_eq!(applied("ab", &[(1, 1, "1"), (1, 1, "2")]), "a12b");
    }

    #[test]
    fn overlaps_have_one_outcome() {
        // What encloses wins, whoever came first.
        assert_eq!(applied("abcd", &[(1, 2, "x"), (0, 3, "Y")]), "Yd");
        assert_eq!(applied("abcd", &[(0, 3, "Y"), (1, 2, "x")]), "Yd");
        assert_eq!(applied("abcd", &[(1, 3, "x"), (0, 2, "Y")]), "Ycd");
        assert_eq!(applied("abcd", &[(0, 2, "1"), (0, 2, "2")]), "1cd");
        assert_eq!(applied("abcd", &[(0, 2, "1"), (1, 1, "2")]), "1cd");
        assert_eq!(applied("ab", &[(1, 9, "x"), (2, 1, "y")]), "ab");
    }

    #[test]
    fn texts_are_quoted() {
        let mut edits = Edits::default();
        edits.put_text(span(5, 6), "a\"b");
        edits.insert(0, b" ".to_vec());
        assert!(!edits.is_empty());
        let mut out = Vec::new();
        edits.apply(&mut out, br#"{"k":1}"#);
        assert_eq!(out, br#" {"k":"a\"b"}"#);
        edits.clear();
        assert!(edits.is_empty());
    }

    #[test]
    fn members_leave_with_their_commas() {
        for (object, left) in [
            (r#"{"a":1,"x":2,"b":3}"#, r#"{"a":1,"b":3}"#),
            (r#"{"x":1, "b":3}"#, r#"{"b":3}"#),
            (r#"{"a":1 , "x":2 }"#, r#"{"a":1 }"#),
            (r#"{"x":1,"y":[2]}"#, r#"{}"#),
            (
                r#"{"x":1,"a":2,"y":3,"x":4,"b":5,"y":6}"#,
                r#"{"a":2,"b":5}"#,
            ),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            ("{}", "{}"),
            (r#"{"\u0078":1,"a":[{"x":1}]}"#, r#"{"a":[{"x":1}]}"#),
        ] {
            let document = format!("[{object}]");
            let mut edits = Edits::default();
            let at = span(1, 1 + object.len() as u32);
            edits.drop_members(document.as_bytes(), at, |key| matches!(key, "x" | "y"));
            let mut out = Vec::new();
            edits.apply(&mut out, document.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), format!("[{left}]"));
        }
    }

    proptest! {
        /// Whatever overlaps: bytes outside of all spans stay, and the order of collecting
        /// different edits does not matter.
        #[test]
        fn bytes_outside_of_edits_stay(
            list in prop::collection::vec((0u32..40, 0u32..8), 0..12),
        ) {
            let src: Vec<u8> = (0..40).map(|at| b'a' + at % 26).collect();
            let mut there = Edits::default();
            let mut back = Edits::default();
            let mut list: Vec<Span> =
                list.into_iter().map(|(start, len)| span(start, start + len)).collect();
            list.sort_by_key(|span| (span.start, span.end));
            list.dedup();
            for span in &list {
                there.put(*span, vec![b'#']);
            }
            for span in list.iter().rev() {
                back.put(*span, vec![b'#']);
            }
            let (mut out, mut again) = (Vec::new(), Vec::new());
            there.apply(&mut out, &src);
            back.apply(&mut again, &src);
            prop_assert_eq!(&out, &again);
            let kept: Vec<u8> = out.into_iter().filter(|byte| *byte != b'#').collect();
            let mut rest = &src[..];
            for byte in &kept {
                let at = rest.iter().position(|there| there == byte);
                prop_assert!(at.is_some());
                rest = &rest[at.unwrap() + 1..];
            }
            let is_free = |at: u32| {
                !list.iter().any(|span| span.start <= at && at < span.end && span.end <= 40)
            };
            prop_assert!(kept.len() >= (0..40).filter(|at| is_free(*at)).count());
        }
    }
}
