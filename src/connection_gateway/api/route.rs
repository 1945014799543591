//! Which request it is: method and path, taken apart at its slashes, each piece decoded once.

use std::borrow::Cow;

use crate::{connection_gateway::session_id::SessionId, http::Method, request::Request};

/// What is asked for. An id that has not the form of one is nobody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Health,
    Metrics,
    Status(Option<SessionId>),
    /// `None`: the source is not UTF-8.
    BySource(Option<String>),
    Publish(Option<SessionId>),
    Stream(Option<SessionId>),
    Metadata(Option<SessionId>),
    Delete(Option<SessionId>),
    Unknown,
}

/// Whether the path is one that only callers with the bearer token may ask for.
pub(super) fn is_guarded(request: &Request) -> bool {
    let path = request.head.path.slice(&request.bytes);
    path == b"/metrics" || path == b"/internal" || path.starts_with(b"/internal/")
}

impl Route {
    /// The route of a request.
    pub(super) fn of(request: &Request) -> Self {
        let path = request.head.path.slice(&request.bytes);
        let is = |method| request.head.method == method;
        let reads = is(Method::Get) || is(Method::Head);
        let Some(rest) = path.strip_prefix(b"/internal/sessions/") else {
            return match path {
                b"/health" if reads => Self::Health,
                b"/metrics" if reads => Self::Metrics,
                _ => Self::Unknown,
            };
        };
        let mut pieces = rest.split(|byte| *byte == b'/');
        let pieces = (pieces.next(), pieces.next(), pieces.next(), pieces.next());
        let id = |text: &[u8]| SessionId::parse(&decode(text));
        match pieces {
            (Some(b"by-source"), Some(source), Some(b"status"), None) if reads => {
                Self::BySource(String::from_utf8(decode(source).into_owned()).ok())
            }
            (Some(text), None, None, None) if is(Method::Delete) => Self::Delete(id(text)),
            (Some(text), Some(b"status"), None, None) if reads => Self::Status(id(text)),
            (Some(text), Some(b"requests"), None, None) if is(Method::Post) => {
                Self::Publish(id(text))
            }
            (Some(text), Some(b"requests:stream"), None, None) if is(Method::Post) => {
                Self::Stream(id(text))
            }
            (Some(text), Some(b"metadata"), None, None) if is(Method::Patch) => {
                Self::Metadata(id(text))
            }
            _ => Self::Unknown,
        }
    }
}

/// Decodes a piece of a path once; the parser has refused broken encodings.
fn decode(piece: &[u8]) -> Cow<'_, [u8]> {
    if !piece.contains(&b'%') {
        return Cow::Borrowed(piece);
    }
    let mut decoded = Vec::with_capacity(piece.len());
    let mut rest = piece;
    while let Some((byte, tail)) = rest.split_first() {
        let digits = tail
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) if *byte == b'%' => {
                decoded.push(value);
                rest = &tail[2..];
            }
            _ => {
                decoded.push(*byte);
                rest = tail;
            }
        }
    }
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_decoded_once() {
        for (piece, wanted) in [
            ("debug:tmbId:a", "debug:tmbId:a"),
            ("debug%3AtmbId%3aa", "debug:tmbId:a"),
            ("100%25", "100%"),
            ("a%253Ab", "a%3Ab"),
            ("a%2Fb", "a/b"),
            ("%E4%BD%A0", "你"),
            ("a+b", "a+b"),
        ] {
            assert_eq!(&*decode(piece.as_bytes()), wanted.as_bytes(), "{piece}");
        }
    }
}
