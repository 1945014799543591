//! Walks over one container, item by item, each item checked as it is passed.
//!
//! Owns: the commas, colons and brackets of that container.
//! Never: looks below an item or remembers one.

use memchr::memchr;

use super::balance::skip_tail_fast;
use super::grammar::{colon_tail, string_tail, trim, value_tail};
use super::text::{content, unescape};
use super::{DEPTH_MAX, Fault, check_len, span, within};
use crate::http::head::Span;

/// A walk over the members of one object.
///
/// As an iterator it yields the key (quotes included) and the checked value of each member, and
/// ends after the first fault. Spans count from the start of the bytes given.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    walk: Walk<'a>,
}

/// A walk over the elements of one array; spans count from the start of the bytes given.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    walk: Walk<'a>,
}

/// What a walk expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The opening bracket.
    Opening,
    /// The first item or the closing bracket.
    First,
    /// A comma or the closing bracket.
    Next,
    /// Nothing: closed, or broken.
    Nothing,
}

/// Where a walk over one container stands.
#[derive(Clone, Debug)]
struct Walk<'a> {
    /// Length of all the bytes, to count offsets from.
    len: usize,
    rest: &'a [u8],
    depth_left: u16,
    expect: Expect,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (len, rest) = (bytes.len(), bytes);
        Self {
            len,
            rest,
            depth_left: DEPTH_MAX,
            expect: Expect::Opening,
        }
    }

    #[inline]
    fn offset(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Moves to the start of the next item; `false` after the closing bracket.
    #[inline]
    fn advance(&mut self, opening: u8) -> Result<bool, Fault> {
        match self.expect {
            Expect::Opening => {
                check_len(self.rest)?;
                self.rest = match self.rest {
                    [byte, rest @ ..] if *byte == opening => rest,
                    _ => return Err(Fault::Syntax),
                };
                if self.depth_left == 0 {
                    return Err(Fault::TooDeep);
                }
                self.expect = Expect::First;
            }
            Expect::Nothing => return Ok(false),
            Expect::First | Expect::Next => {}
        }
        self.rest = trim(self.rest);
        match self.rest {
            // `}` and `]` are two after their opening bracket in ASCII.
            [byte, rest @ ..] if *byte == opening + 2 => {
                self.rest = rest;
                self.expect = Expect::Nothing;
                return Ok(false);
            }
            _ if self.expect == Expect::First => {}
            [b',', rest @ ..] => self.rest = trim(rest),
            _ => return Err(Fault::Syntax),
        }
        self.expect = Expect::Next;
        Ok(true)
    }

    /// Checks the value here and moves past it.
    #[inline]
    fn value(&mut self) -> Result<Span, Fault> {
        let start = self.offset();
        self.rest = value_tail(self.rest, self.depth_left.saturating_sub(1))?;
        Ok(span(start, self.offset()))
    }

    /// Moves past the value here by balance only.
    #[inline]
    fn value_fast(&mut self) -> Result<Span, Fault> {
        let start = self.offset();
        self.rest = skip_tail_fast(self.rest)?;
        Ok(span(start, self.offset()))
    }

    /// Ends the walk for good when `item` is a fault.
    fn fused<T>(&mut self, item: Result<Option<T>, Fault>) -> Option<Result<T, Fault>> {
        if item.is_err() {
            self.expect = Expect::Nothing;
        }
        item.transpose()
    }
}

impl<'a> Members<'a> {
    /// Starts a walk at the object that opens at `pos`; `depth_left` counts that object too.
    #[inline]
    pub(in crate::mcp) fn at(bytes: &'a [u8], pos: usize, depth_left: u16) -> Self {
        let rest = bytes.get(pos..).unwrap_or_default();
        Self {
            walk: Walk {
                len: bytes.len(),
                rest,
                depth_left,
                expect: Expect::Opening,
            },
        }
    }

    /// The next key, quotes included; the walk then stands at the start of its value.
    #[inline]
    pub(in crate::mcp) fn next_key(&mut self) -> Result<Option<(Span, &'a [u8])>, Fault> {
        if !self.walk.advance(b'{')? {
            return Ok(None);
        }
        let (start, key) = (self.walk.offset(), self.walk.rest);
        let tail = match key {
            [b'"', rest @ ..] => string_tail(rest)?,
            _ => return Err(Fault::Syntax),
        };
        self.walk.rest = colon_tail(tail)?;
        let len = key.len() - tail.len();
        Ok(Some((
            span(start, start + len),
            key.get(..len).unwrap_or_default(),
        )))
    }

    /// Where the walk stands: at a value after `next_key` gave a key, at the end after none.
    #[inline]
    pub(in crate::mcp) fn offset(&self) -> usize {
        self.walk.offset()
    }

    /// A walk over the value here, when that is an object.
    #[inline]
    pub(in crate::mcp) fn inner(&self) -> Option<Self> {
        let is_object = self.walk.rest.first() == Some(&b'{');
        let depth_left = self.walk.depth_left.saturating_sub(1);
        is_object.then_some(Self {
            walk: Walk {
                depth_left,
                expect: Expect::Opening,
                ..self.walk
            },
        })
    }

    /// Checks the value here and moves past it.
    #[inline]
    pub(in crate::mcp) fn value(&mut self) -> Result<Span, Fault> {
        self.walk.value()
    }

    /// Moves past the value here by balance only.
    #[inline]
    pub(in crate::mcp) fn value_fast(&mut self) -> Result<Span, Fault> {
        self.walk.value_fast()
    }

    /// Moves past the object here, which `inner` has been walked over to its end.
    #[inline]
    pub(in crate::mcp) fn value_walked(&mut self, inner: &Self) -> Span {
        debug_assert_eq!(inner.walk.expect, Expect::Nothing, "inner walk unfinished");
        let start = self.offset();
        self.walk.rest = inner.walk.rest;
        span(start, self.offset())
    }
}

impl Iterator for Members<'_> {
    type Item = Result<(Span, Span), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.next_key().and_then(|key| match key {
            Some((key, _)) => self.value().map(|value| Some((key, value))),
            None => Ok(None),
        });
        self.walk.fused(item)
    }
}

impl Iterator for Elements<'_> {
    type Item = Result<Span, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.walk.advance(b'[').and_then(|more| {
            if more {
                self.walk.value().map(Some)
            } else {
                Ok(None)
            }
        });
        self.walk.fused(item)
    }
}

/// Walks the members of the object that `object` starts with.
#[must_use]
pub fn members(object: &[u8]) -> Members<'_> {
    Members {
        walk: Walk::new(object),
    }
}

/// Walks the elements of the array that `array` starts with.
#[must_use]
pub fn elements(array: &[u8]) -> Elements<'_> {
    Elements {
        walk: Walk::new(array),
    }
}

/// The value of the member `key` of `object`; `None` when absent or the object is malformed.
///
/// Of repeated keys the last one counts, as for the parsers of the clients that read the same
/// bytes; keys are compared after decoding.
#[must_use]
pub fn member(object: &[u8], key: &str) -> Option<Span> {
    let mut found = None;
    for item in members(object) {
        let (name, value) = item.ok()?;
        if key_is(name.slice(object), key) {
            found = Some(value);
        }
    }
    found
}

/// These members of the object at `outer`, which travels on: keys and values, the values passed by
/// balance only. Spans count from the start of the document.
///
/// As for [`member`] the last of repeated keys counts; all are `None` when the object is malformed.
#[must_use]
pub fn pick_pairs<const N: usize>(
    document: &[u8],
    outer: Span,
    keys: [&str; N],
) -> [Option<(Span, Span)>; N] {
    let mut found = [None; N];
    let mut walk = members(outer.slice(document));
    loop {
        let (at, key) = match walk.next_key() {
            Ok(Some(key)) => key,
            Ok(None) => return found,
            Err(_) => return [None; N],
        };
        let Ok(value) = walk.value_fast() else {
            return [None; N];
        };
        if let Some(place) = place_of(key, &keys) {
            found[place] = Some((within(outer, at), within(outer, value)));
        }
    }
}

/// The values of [`pick_pairs`].
#[must_use]
pub fn pick<const N: usize>(document: &[u8], outer: Span, keys: [&str; N]) -> [Option<Span>; N] {
    pick_pairs(document, outer, keys).map(|found| found.map(|(_, value)| value))
}

/// The elements of the array at `outer`, which travels on: passed by balance only. Spans count from
/// the start of the document. Ends early where the array is malformed.
pub fn elements_fast(document: &[u8], outer: Span) -> impl Iterator<Item = Span> {
    let mut walk = Walk::new(outer.slice(document));
    std::iter::from_fn(move || {
        let is_there = walk.advance(b'[').ok()?;
        is_there.then(|| walk.value_fast().ok())?
    })
    .fuse()
    .map(move |at| within(outer, at))
}

/// Whether `lexeme` is the string `text`, however it is spelt; `text` holds no backslash.
#[must_use]
pub fn says(lexeme: &[u8], text: &str) -> bool {
    lexeme.first() == Some(&b'"') && key_is(lexeme, text)
}

/// Which of `names` the quoted key decodes to.
fn place_of(quoted: &[u8], names: &[&str]) -> Option<usize> {
    let place = |text: &[u8]| names.iter().position(|name| name.as_bytes() == text);
    let content = content(quoted);
    // Most keys are none of them, and one look tells that no decoding makes them one.
    place(content).or_else(|| {
        memchr(b'\\', content)?;
        place(unescape(quoted)?.as_bytes())
    })
}

/// Whether the quoted key decodes to `name`.
fn key_is(quoted: &[u8], name: &str) -> bool {
    let content = content(quoted);
    content == name.as_bytes()
        || (memchr(b'\\', content).is_some() && unescape(quoted).is_some_and(|key| key == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(object: &str) -> Vec<Result<(&str, &str), Fault>> {
        let text = |span: Span| &object[span.start as usize..span.end as usize];
        let walked = members(object.as_bytes());
        walked
            .map(|item| item.map(|(key, value)| (text(key), text(value))))
            .collect()
    }

    #[test]
    fn members_are_told_in_order_with_their_lexemes() {
        let object = r#"{ "a" : 0.10 ,"a":[1, 2],"b\n":{"c":"}"} } tail"#;
        let expected = [
            (r#""a""#, "0.10"),
            (r#""a""#, "[1, 2]"),
            (r#""b\n""#, r#"{"c":"}"}"#),
        ];
        assert_eq!(items(object), expected.map(Ok));
        assert_eq!(items("{}"), []);
        assert_eq!(items("{ \n}"), []);
    }

    #[test]
    fn a_fault_ends_the_walk() {
        for object in [
            "",
            "[]",
            "1",
            "{",
            "{,}",
            "{1:2}",
            r#"{"a"}"#,
            r#"{"a" 1}"#,
            r#"{"a":}"#,
        ] {
            assert_eq!(items(object), [Err(Fault::Syntax)], "{object}");
        }
        let first = Ok((r#""a""#, "1"));
        for object in [r#"{"a":1"#, r#"{"a":1,}"#, r#"{"a":1 "b":2}"#, r#"{"a":1]"#] {
            assert_eq!(items(object), [first, Err(Fault::Syntax)], "{object}");
        }
    }

    #[test]
    fn elements_are_told_in_order() {
        let walked = |array: &'static str| -> Result<Vec<&str>, Fault> {
            elements(array.as_bytes())
                .map(|item| item.map(|span| &array[span.start as usize..span.end as usize]))
                .collect()
        };
        assert_eq!(
            walked(r#"[ 1,"a" , [2],{} ]"#),
            Ok(vec!["1", r#""a""#, "[2]", "{}"])
        );
        assert_eq!(walked("[ ]"), Ok(vec![]));
        for array in ["{}", "[", "[1", "[1,]", "[,1]", "[1 2]", "[1}"] {
            assert_eq!(walked(array), Err(Fault::Syntax), "{array}");
        }
    }

    #[test]
    fn the_last_of_repeated_members_counts() {
        let value = |object: &'static [u8]| member(object, "a").map(|span| span.slice(object));
        assert_eq!(value(br#"{"a":1,"b":2,"a":3}"#), Some(&b"3"[..]));
        assert_eq!(value(br#"{"a":1,"\u0061":2}"#), Some(&b"2"[..]));
        assert_eq!(value(br#"{"A":1,"aa":2,"b":{"a":3}}"#), None);
        assert_eq!(value(br#"{"a":1,"b":}"#), None);
        assert_eq!(value(b"[]"), None);
    }

    #[test]
    fn members_and_elements_of_relayed_values_are_found_in_the_document() {
        let document = br#"[ {"a":1,"b":[1, {"a":2} 3],"\u0061" : "x"} ]"#;
        let whole = span(0, document.len());
        let object = elements_fast(document, whole).next().unwrap();
        let [a, b, c] = pick(document, object, ["a", "b", "c"]);
        assert_eq!(a.map(|at| at.slice(document)), Some(&br#""x""#[..]));
        let [pair] = pick_pairs(document, object, ["a"]);
        assert_eq!(pair.unwrap().0.slice(document), br#""\u0061""#);
        let parts: Vec<&[u8]> = elements_fast(document, b.unwrap())
            .map(|at| at.slice(document))
            .collect();
        // The fault in it ends the walk.
        assert_eq!(parts, [&b"1"[..], br#"{"a":2}"#]);
        assert_eq!(c, None);
        for broken in [&b"{\"a\":1,}"[..], b"{\"a\":1", b"[1]", b"", b"{\"a\":1]"] {
            assert_eq!(pick(broken, span(0, broken.len()), ["a"]), [None]);
        }
        assert!(says(br#""\u0061""#, "a") && says(b"\"a\"", "a"));
        assert!(!says(b"a", "a") && !says(b"\"A\"", "a"));
    }

    #[test]
    fn a_walk_counts_its_own_level() {
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(127), "]".repeat(127));
        assert!(member(deep.as_bytes(), "a").is_some());
        let deeper = format!(r#"{{"a":{}{}}}"#, "[".repeat(128), "]".repeat(128));
        assert_eq!(items(&deeper), [Err(Fault::TooDeep)]);
    }
}
