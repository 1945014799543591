//! A head seen before: kept connections send the same one each time, but for the body's length.
//!
//! Comparing bytes costs a twentieth of reading them. A head that is known again gets the verdict
//! its bytes had; whatever differs is read in full. Never decides anything itself.

use super::{Framing, HeadLimits, RequestHead};

/// More digits than a body's length within any sane limit has.
const DIGITS_MAX: usize = 9;

/// The last head of a connection and what it said. It holds a token: no `Debug`.
pub struct KnownHead {
    bytes: Vec<u8>,
    head: RequestHead,
    /// Where the digits of `Content-Length` are; the whole is equal around them.
    digits: std::ops::Range<usize>,
}

impl KnownHead {
    /// Remembers the head at the front of `buf`, in the place of `old`.
    pub fn remember(old: Option<Box<Self>>, buf: &[u8], head: &RequestHead) -> Option<Box<Self>> {
        let digits = match (head.framing, head.content_length) {
            (Framing::Length(1..), Some(span)) => span.start as usize..span.end as usize,
            // Without a body nothing may differ.
            (Framing::NoBody, None) => 0..0,
            _ => return None,
        };
        let mut known = old.unwrap_or_else(|| {
            Box::new(Self {
                bytes: Vec::new(),
                head: head.clone(),
                digits: 0..0,
            })
        });
        known.bytes.clear();
        known.bytes.extend_from_slice(buf.get(..head.len)?);
        known.head.clone_from(head);
        known.digits = digits;
        Some(known)
    }

    /// The head at the front of `buf`, if it is this one: what
    /// [`parse_request`](super::parse_request) says of it under the same limits.
    pub fn recognise(&self, buf: &[u8], limits: &HeadLimits) -> Option<RequestHead> {
        let front = buf.get(..self.bytes.len())?;
        let (start, end) = (self.digits.start, self.digits.end);
        if front[..start] != self.bytes[..start] || front[end..] != self.bytes[end..] {
            return None;
        }
        let mut head = self.head.clone();
        if start < end {
            let length = length(&front[start..end]).filter(|it| *it <= limits.body_bytes_max)?;
            head.framing = Framing::Length(length);
        }
        Some(head)
    }
}

/// A length above 0 in plain digits; other forms are for the parser to judge.
fn length(digits: &[u8]) -> Option<u64> {
    if digits.len() > DIGITS_MAX || digits.first() == Some(&b'0') {
        return None;
    }
    digits.iter().try_fold(0, |length, digit| {
        digit
            .is_ascii_digit()
            .then(|| length * 10 + u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Parsed, parse_request};
    use proptest::prelude::*;

    const HEAD: &[u8] = b"POST /mcp HTTP/1.1\r\nHost: a:1\r\nAuthorization: Bearer t\r\n\
        Content-Length: 120\r\nMcp-Session-Id: s\r\n\r\n";

    fn parsed(buf: &[u8]) -> Option<RequestHead> {
        match parse_request(buf, &HeadLimits::default()) {
            Ok(Parsed::Complete(head)) => Some(head),
            _ => None,
        }
    }

    fn known(buf: &[u8]) -> Option<Box<KnownHead>> {
        KnownHead::remember(None, buf, &parsed(buf).unwrap())
    }

    fn recognised(known: &KnownHead, buf: &[u8]) -> Option<RequestHead> {
        known.recognise(buf, &HeadLimits::default())
    }

    fn with_length(length: &str) -> Vec<u8> {
        let text = std::str::from_utf8(HEAD).unwrap();
        text.replace("120", length).into_bytes()
    }

    #[test]
    fn the_same_head_is_known_again_with_another_length() {
        let known = known(HEAD).unwrap();
        for length in ["120", "999", "100"] {
            let mut buf = with_length(length);
            buf.extend_from_slice(b"{\"body\":1}");
            assert_eq!(recognised(&known, &buf), parsed(&buf), "{length}");
            assert!(recognised(&known, &buf).is_some(), "{length}");
        }
        for length in ["012", "1 0", "+12", "12", "1200", "000", " 12", "12,"] {
            assert_eq!(recognised(&known, &with_length(length)), None, "{length}");
        }
        assert_eq!(recognised(&known, &HEAD[..HEAD.len() - 1]), None);
        let limits = HeadLimits {
            body_bytes_max: 119,
            ..HeadLimits::default()
        };
        assert_eq!(known.recognise(HEAD, &limits), None);
    }

    #[test]
    fn a_head_without_a_body_is_known_and_chunks_are_not() {
        let get = b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(recognised(&known(get).unwrap(), get), parsed(get));
        let chunks = b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(known(chunks).is_none());
        let nothing = b"DELETE /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        assert!(known(nothing).is_none());
    }

    #[test]
    fn the_place_of_an_old_head_is_used_again() {
        let first = known(HEAD);
        let longer = with_length("1234");
        let known = KnownHead::remember(first, &longer, &parsed(&longer).unwrap()).unwrap();
        assert_eq!(recognised(&known, &longer), parsed(&longer));
        assert_eq!(recognised(&known, HEAD), None);
    }

    proptest! {
        /// Whatever is known again, the parser says the same of.
        #[test]
        fn the_parser_agrees(
            changes in prop::collection::vec((0..HEAD.len(), any::<u8>()), 0..3),
            length in prop::option::of("[0-9]{3}"),
            cut in prop::option::of(0..HEAD.len()),
        ) {
            let known = known(HEAD).unwrap();
            let mut buf = length.map_or_else(|| HEAD.to_vec(), |length| with_length(&length));
            for (at, byte) in changes {
                buf[at] = byte;
            }
            if let Some(cut) = cut {
                buf.truncate(cut);
            }
            if let Some(head) = recognised(&known, &buf) {
                prop_assert_eq!(Some(head), parsed(&buf));
            }
        }
    }
}
