//! What is answered on the WebSocket port before a connection is one: the contract's table (2.1),
//! with an HTTP status where the original let its process die.

use std::borrow::Cow;

use super::reverse::Framing;
use crate::{
    http::{Framing as BodyFraming, RequestHead},
    websocket::handshake::{Opening, accepted, open},
};

/// The answer to an opening request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is a WebSocket from here on, whose messages are framed so.
    Opened(String, Framing),
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

    /// No token, or none that is good.
    pub(super) const UNAUTHORIZED: Self = Self::Refused(
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nConnection: close\r\n\
         Content-Length: 0\r\n\r\n",
    );
    /// The token does not allow what is asked for.
    pub(super) const FORBIDDEN: Self =
        Self::Refused("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    /// The source has a live connection.
    pub(super) const CONFLICT: Self =
        Self::Refused("HTTP/1.1 409 Conflict\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");

    /// Its bytes.
    pub(super) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Opened(accept, _) => Cow::Owned(accepted(accept)),
            Self::Refused(text) => Cow::Borrowed(text.as_bytes()),
        }
    }
}

/// Answers an opening request whose head is at the front of `bytes`; `framing_at` says what is at a
/// path.
pub(super) fn answer(
    head: &RequestHead,
    bytes: &[u8],
    framing_at: impl Fn(&[u8]) -> Option<Framing>,
) -> Answer {
    let opening = open(head, bytes);
    if opening == Opening::Plain {
        return Answer::PLAIN;
    }
    let framing = match resolve(head.path.slice(bytes)) {
        None => return Answer::BAD,
        Some(asked) => match framing_at(&asked) {
            None => return Answer::NOT_FOUND,
            Some(framing) => framing,
        },
    };
    match opening {
        Opening::Accepted(accept) if head.framing == BodyFraming::NoBody => {
            Answer::Opened(accept, framing)
        }
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
