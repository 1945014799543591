//! Makes the lines of `tests/cases/http` live: requests that would reach a backend if only their
//! framing were taken.
//!
//! The bodies become `tools/call`s of a fixed length, whose digits take the place of the old
//! length's wherever it is spelt, however oddly; heads get the headers of MCP. What a line is about
//! stays as it is.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use memchr::memmem::{find, find_iter};

/// Bytes of every call body, and its digits as the case files' lengths and sizes are spelt.
const BODY_BYTES: usize = 555;
const DECIMAL: &str = "555";
const HEXADECIMAL: &str = "22b";
const PLAIN_GET: &[u8] = b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n";
const PLAIN_POST: &[u8] = b"POST /mcp HTTP/1.1\r\nHost: a\r\n";

/// A stream of bytes and what stands in it.
pub struct Live {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// How many calls stand in it, marked `0`, `1`, ... in this order.
    pub call_count: usize,
}

/// Makes streams for one session.
pub struct Maker<'a> {
    /// The session's id.
    pub session: &'a str,
    /// Names the stream in the marks of its calls.
    pub stream: &'a str,
    count: usize,
}

impl<'a> Maker<'a> {
    /// A maker for this stream.
    pub fn new(session: &'a str, stream: &'a str) -> Self {
        Self {
            session,
            stream,
            count: 0,
        }
    }

    /// The header lines of an MCP POST beside its framing.
    pub fn headers(&self) -> String {
        format!(
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Mcp-Session-Id: {}\r\n",
            self.session
        )
    }

    /// The next call's body.
    pub fn body(&mut self) -> Vec<u8> {
        let mark = self.count.to_string();
        self.count += 1;
        call_body(self.stream, &mark)
    }

    /// A whole request with the next call.
    pub fn request(&mut self) -> Vec<u8> {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: a\r\n{}Content-Length: {BODY_BYTES}\r\n\r\n",
            self.headers()
        );
        [head.into_bytes(), self.body()].concat()
    }

    /// Makes a line of a case file live.
    pub fn case(mut self, bytes: &[u8]) -> Live {
        let bytes = if find(bytes, PLAIN_POST).is_some() && find(bytes, b"hi").is_some() {
            self.pipelined(bytes)
        } else if find(bytes, b"hello").is_some() {
            self.with_hello(bytes)
        } else if find_iter(bytes, PLAIN_GET).count() > 1 {
            self.replaced(bytes, PLAIN_GET, Self::request)
        } else {
            self.bare(bytes)
        };
        Live {
            bytes,
            call_count: self.count,
        }
    }

    /// Several requests, each of a plain form.
    fn pipelined(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = bytes;
        // The forms a piece of the stream may have; what has none stays.
        let headers = self.headers();
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix(PLAIN_GET) {
                out.extend(self.request());
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix(PLAIN_POST) {
                out.extend_from_slice(PLAIN_POST);
                out.extend_from_slice(headers.as_bytes());
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix(b"Content-Length: 2\r\n") {
                out.extend_from_slice(format!("Content-Length: {DECIMAL}\r\n").as_bytes());
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix(b"2\r\nhi") {
                out.extend_from_slice(HEXADECIMAL.as_bytes());
                out.extend_from_slice(b"\r\n");
                out.extend(self.body());
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix(b"\r\nhi") {
                out.extend_from_slice(b"\r\n");
                out.extend(self.body());
                rest = tail;
            } else {
                out.push(rest[0]);
                rest = &rest[1..];
            }
        }
        out
    }

    /// A request whose body is `hello`, in whatever framing.
    fn with_hello(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (Some(at), Some(blank)) = (find(bytes, b"hello"), find(bytes, b"\r\n\r\n")) else {
            return bytes.to_vec();
        };
        if at < blank {
            return bytes.to_vec();
        }
        let mut out = Vec::new();
        for (index, line) in bytes[..blank + 2]
            .split_inclusive(|byte| *byte == b'\n')
            .enumerate()
        {
            let lower = line.to_ascii_lowercase();
            let is_length = index > 0 && find(&lower, b"content").is_some();
            out.extend(if is_length {
                respelt(line, DECIMAL)
            } else {
                line.to_vec()
            });
        }
        out.extend_from_slice(self.headers().as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend(respelt(&bytes[blank + 4..at], HEXADECIMAL));
        out.extend(self.body());
        // A second chunk may only add white space to a document.
        let tail = &bytes[at + 5..];
        match find(tail, b" world") {
            Some(at) => {
                out.extend_from_slice(&tail[..at]);
                out.extend_from_slice(b"      ");
                out.extend_from_slice(&tail[at + 6..]);
            }
            None => out.extend_from_slice(tail),
        }
        let hidden = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        self.replaced(&out, hidden, Self::request)
    }

    /// One head without a body and nothing else: a GET becomes a POST with a call.
    fn bare(&mut self, bytes: &[u8]) -> Vec<u8> {
        let hidden = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        let bytes = &self.replaced(bytes, hidden, Self::request)[..];
        let is_one = find_iter(bytes, b"\r\n\r\n").count() == 1 && bytes.ends_with(b"\r\n\r\n");
        let lower = bytes.to_ascii_lowercase();
        let is_framed = ["content", "transfer"]
            .iter()
            .any(|word| find(&lower, word.as_bytes()).is_some());
        if !is_one || is_framed || !bytes.starts_with(b"GET ") {
            return bytes.to_vec();
        }
        let lines = format!("{}Content-Length: {BODY_BYTES}\r\n\r\n", self.headers());
        let inner = &bytes[4..bytes.len() - 2];
        [b"POST ", inner, lines.as_bytes(), &self.body()].concat()
    }

    fn replaced(
        &mut self,
        bytes: &[u8],
        pattern: &[u8],
        with: impl Fn(&mut Self) -> Vec<u8>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = bytes;
        while let Some(at) = find(rest, pattern) {
            out.extend_from_slice(&rest[..at]);
            out.extend(with(self));
            rest = &rest[at + pattern.len()..];
        }
        out.extend_from_slice(rest);
        out
    }
}

/// A call whose one argument names it, filled with white space to the fixed length.
pub fn call_body(stream: &str, mark: &str) -> Vec<u8> {
    let mut body = format!(
        r#"{{"jsonrpc":"2.0","id":"{stream}/{mark}","method":"tools/call","params":{{"name":"echo","arguments":{{"mark":"{stream}/{mark}"}}}}}}"#
    );
    assert!(body.len() <= BODY_BYTES, "a long name");
    while body.len() < BODY_BYTES {
        body.push(' ');
    }
    body.into_bytes()
}

/// The piece with every number that means five meaning the body's length instead.
fn respelt(piece: &[u8], digits: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = piece;
    while !rest.is_empty() {
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, tail) = rest.split_at(length.max(1));
        rest = tail;
        match number {
            // 2^64 + 5, for readers whose numbers wrap.
            b"18446744073709551621" => out.extend_from_slice(b"18446744073709552171"),
            // As many digits as before: their number is what some lines are about.
            [front @ .., b'0', b'0', b'5'] => {
                out.extend_from_slice(front);
                out.extend_from_slice(digits.as_bytes());
            }
            [front @ .., b'5'] if front.iter().all(|byte| *byte == b'0') => {
                out.extend_from_slice(front);
                out.extend_from_slice(digits.as_bytes());
            }
            other => out.extend_from_slice(other),
        }
    }
    out
}
