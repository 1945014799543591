//! What is answered on the WebSocket port before a connection is one: the contract's table (2.1),
//! with an HTTP status where the original let its process die.

use std::borrow::Cow;

use crate::{
    http::{Framing, RequestHead},
    websocket::handshake::{Opening, accepted, open},
};

/// The answer to an opening request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is a WebSocket from here on.
    Opened(String),
    /// Anything else, and the end.
    Refused(&'static str),
}

impl Answer {
    /// Not a request that can be understood, or not one for a WebSocket.
    pub(super) const BAD: Self =
        Self::Refused("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    /// No such path.
    const NOT_FOUND: Self = Self::Refused("HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n");
    /// No WebSocket is asked for, and nothing else is here.
    const PLAIN: Self = Self::Refused(
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Length: 9\r\n\
         Connection: close\r\n\r\nNot Found",
    );
    /// As many as may be are open, or the process ends.
    pub(super) const BUSY: Self = Self::Refused(
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n\
         Content-Length: 0\r\n\r\n",
    );

    /// Its bytes.
    pub(super) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Opened(accept) => Cow::Owned(accepted(accept)),
            Self::Refused(text) => Cow::Borrowed(text.as_bytes()),
        }
    }
}

/// Answers an opening request whose head is at the front of `bytes`; WebSockets are at `path`.
pub(super) fn answer(head: &RequestHead, bytes: &[u8], path: &str) -> Answer {
    let opening = open(head, bytes);
    if opening == Opening::Plain {
        return Answer::PLAIN;
    }
    match resolve(head.path.slice(bytes)) {
        None => return Answer::BAD,
        Some(asked) if asked != path.as_bytes() => return Answer::NOT_FOUND,
        Some(_) => {}
    }
    match opening {
        Opening::Accepted(accept) if head.framing == Framing::NoBody => Answer::Opened(accept),
        _ => Answer::BAD,
    }
}

/// A path without its dot segments (RFC 3986 section 5.2.4); `None` for one that begins like an
/// authority, which no resolver takes for a path.
fn resolve(path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"//") {
        return None;
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.get(1..)?.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    kept.pop();
                }
                if is_last {
                    kept.push(b"");
                }
            }
            _ => kept.push(segment),
        }
    }
    let mut resolved = Vec::with_capacity(path.len());
    for segment in kept {
        resolved.push(b'/');
        resolved.extend_from_slice(segment);
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_resolved_and_nothing_else_is() {
        for (path, wanted) in [
            ("/a/b", Some("/a/b")),
            ("/a/./b", Some("/a/b")),
            ("/x/../a/b", Some("/a/b")),
            ("/../../a", Some("/a")),
            ("/a/", Some("/a/")),
            ("/a/..", Some("/")),
            ("/a/.", Some("/a/")),
            ("/%61", Some("/%61")),
            ("/a//b", Some("/a//b")),
            ("/", Some("/")),
            ("//", None),
            ("//a/b", None),
        ] {
            let resolved = resolve(path.as_bytes());
            assert_eq!(resolved.as_deref(), wanted.map(str::as_bytes), "{path}");
        }
    }
}
