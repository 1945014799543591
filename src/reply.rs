//! Replies to clients: heads, bodies, streams, over the client's own connection or over the ring to
//! the shard that has it.

pub mod flow;
pub mod heard;
pub mod relay;
pub mod stream;

use std::time::Duration;

use shards::{ReplySink, gate::Gate};

use crate::{
    http::{Decimal, LAST_CHUNK, encode_chunk, sse},
    link::Link,
    refusal::{Answer, Refusal},
    request::Forwarded,
};

/// Ends the connection; the first line after the status line.
const CLOSE: &[u8] = b"connection: close\r\n";

/// Between two looks at a connection whose client has sent its next request already.
const HUNG_UP_PAUSE: Duration = Duration::from_millis(250);

/// The client has left, or reads too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientGone;

/// Where the bytes go.
#[derive(Debug)]
pub enum Sink<'a> {
    /// The client's connection, with the time one write may take.
    Link(&'a mut Link, Duration),
    /// The shard that has the client's connection.
    Ring(ReplySink<Forwarded>),
    /// Memory: it is a part of another reply.
    Memory(Vec<u8>),
    /// Nowhere any more.
    Closed,
}

/// The reply to one request, as far as it has been written.
#[derive(Debug)]
pub struct Reply<'a> {
    sink: Sink<'a>,
    /// Closed: the shard drains, and connections end with their present reply.
    gate: Gate,
    /// The connection stays open after it.
    keep_alive: bool,
    /// HTTP/1.x of the request.
    minor: u8,
    /// `Origin` of the request, raw, when it is allowed: the reply carries CORS headers.
    origin: Option<Box<[u8]>>,
    /// The `WWW-Authenticate` line of a 401 or 403, when there is more to say than the refusal has.
    challenge: Option<String>,
    is_bodiless: bool,
    /// The client would rather have an event stream (RFC 9110 section 12.5.1 leaves the order of
    /// equal weights to us).
    prefers_stream: bool,
    has_started: bool,
    is_complete: bool,
    status: u16,
}

impl<'a> Reply<'a> {
    /// A reply that has not begun.
    pub fn new(sink: Sink<'a>, gate: Gate, keep_alive: bool, minor: u8) -> Self {
        Self {
            sink,
            gate,
            keep_alive: keep_alive && minor >= 1,
            minor,
            origin: None,
            challenge: None,
            is_bodiless: false,
            prefers_stream: false,
            has_started: false,
            is_complete: false,
            status: 0,
        }
    }

    /// Lets the reply carry CORS headers for this origin.
    pub fn allow_origin(&mut self, origin: &[u8]) {
        self.origin = Some(origin.into());
    }

    /// Has a 401 or 403 carry this header line.
    pub fn challenge(&mut self, line: String) {
        self.challenge = Some(line);
    }

    /// The request was HEAD: the answer has no body (RFC 9110 section 9.3.2).
    pub fn leave_out_body(&mut self) {
        self.is_bodiless = true;
    }

    /// Whether the reply was written to its end and the connection may go on.
    pub fn is_reusable(&self) -> bool {
        self.is_complete && self.keep_alive
    }

    /// Whether something was written.
    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// Whether it was written to its end.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Status of the head that was made; 0: none.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Writes a part of the reply and gives the buffer back (over a ring: an empty one).
    pub async fn part(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, ClientGone> {
        self.has_started = true;
        match &mut self.sink {
            Sink::Link(link, limit) => {
                let (result, bytes) = link.write_all_within(bytes, *limit).await;
                result.map(|()| bytes).map_err(|_| ClientGone)
            }
            Sink::Ring(sink) => sink
                .send(bytes)
                .await
                .map(|()| Vec::new())
                .map_err(|_| ClientGone),
            Sink::Memory(kept) => {
                kept.extend_from_slice(&bytes);
                Ok(bytes)
            }
            Sink::Closed => Err(ClientGone),
        }
    }

    /// Says that the client named event streams before JSON.
    pub fn prefer_stream(&mut self) {
        self.prefers_stream = true;
    }

    /// Whether a response that could be either is to be an event stream.
    pub fn prefers_stream(&self) -> bool {
        self.prefers_stream && self.can_stream()
    }

    /// Whether it can be an event stream.
    pub fn can_stream(&self) -> bool {
        !matches!(self.sink, Sink::Memory(_))
    }

    /// The body of a reply that was kept in memory; empty when it has none.
    pub fn into_body(self) -> Vec<u8> {
        let Sink::Memory(mut kept) = self.sink else {
            return Vec::new();
        };
        let body_at = memchr::memmem::find(&kept, b"\r\n\r\n").map_or(kept.len(), |at| at + 4);
        kept.drain(..body_at);
        kept
    }

    /// Writes the last part.
    pub async fn last(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, ClientGone> {
        let result = match std::mem::replace(&mut self.sink, Sink::Closed) {
            Sink::Ring(sink) => {
                self.has_started = true;
                sink.end(bytes)
                    .await
                    .map(|()| Vec::new())
                    .map_err(|_| ClientGone)
            }
            sink => {
                self.sink = sink;
                self.part(bytes).await
            }
        };
        self.is_complete = result.is_ok();
        result
    }

    /// Closes the client's connection after what was written: nothing else may wait for it.
    pub fn hang_up(&mut self) {
        if let Sink::Link(link, _) = &self.sink {
            self.keep_alive = false;
            link.deadline().shut_down();
        }
    }

    /// Waits until the client has left, as far as that can be seen without reading.
    pub async fn client_left(&mut self) {
        match &mut self.sink {
            Sink::Link(link, _) => link.readable().await,
            Sink::Ring(sink) => sink.cancelled().await,
            Sink::Memory(_) => std::future::pending().await,
            Sink::Closed => {}
        }
    }

    /// Waits until the client has closed its connection; what it sends ahead does not count.
    pub async fn client_hung_up(&mut self) {
        match &mut self.sink {
            Sink::Link(link, _) => hung_up(link).await,
            Sink::Ring(sink) => sink.cancelled().await,
            Sink::Memory(_) => std::future::pending().await,
            Sink::Closed => {}
        }
    }

    /// Starts a head: status line, connection, CORS.
    pub fn head(&mut self, out: &mut Vec<u8>, status: u16) {
        self.status = status;
        self.keep_alive &= !self.gate.is_closed();
        out.extend_from_slice(status_line(status));
        if !self.keep_alive {
            out.extend_from_slice(CLOSE);
        }
        if let Some(origin) = &self.origin {
            out.extend_from_slice(b"access-control-allow-origin: ");
            out.extend_from_slice(origin);
            out.extend_from_slice(
                b"\r\nvary: Origin\r\naccess-control-expose-headers: Mcp-Session-Id, \
                  WWW-Authenticate, MCP-Protocol-Version, Retry-After\r\n",
            );
        }
    }

    /// Ends a head whose body is `length` bytes.
    pub fn length(&self, out: &mut Vec<u8>, length: usize) {
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(Decimal::new(length as u64).as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// A whole head for a JSON body of `length` bytes, status 200.
    pub fn json_head(&mut self, out: &mut Vec<u8>, length: usize) {
        self.json_head_with(out, 200, length);
    }

    /// The same with another status.
    pub fn json_head_with(&mut self, out: &mut Vec<u8>, status: u16, length: usize) {
        self.head(out, status);
        out.extend_from_slice(b"content-type: application/json\r\n");
        self.length(out, length);
    }

    /// A whole head for an event stream (mcp.md 1.2; `X-Accel-Buffering` keeps proxies from
    /// holding events back).
    pub fn stream_head(&mut self, out: &mut Vec<u8>) {
        self.head(out, 200);
        out.extend_from_slice(
            b"content-type: text/event-stream\r\ncache-control: no-cache\r\n\
              x-accel-buffering: no\r\n",
        );
        if self.minor >= 1 {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
        } else {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Whether a stream's parts are chunks; otherwise the connection's end is the stream's.
    pub fn is_chunked(&self) -> bool {
        self.minor >= 1
    }

    /// Answers 202 with nothing (mcp.md 1.2: a notification or a response was taken).
    pub async fn accepted(&mut self) -> Result<(), ClientGone> {
        let mut out = Vec::with_capacity(128);
        self.head(&mut out, 202);
        self.length(&mut out, 0);
        self.last(out).await.map(drop)
    }

    /// Ends without a response: its caller has cancelled the request and waits for none.
    pub async fn nothing(&mut self) -> Result<(), ClientGone> {
        let mut out = Vec::with_capacity(256);
        if self.can_stream() {
            self.stream_head(&mut out);
            if self.is_chunked() {
                out.extend_from_slice(LAST_CHUNK);
            }
        }
        self.last(out).await.map(drop)
    }

    /// Answers with a response, in the form the client prefers.
    pub async fn response(&mut self, body: &[u8]) -> Result<(), ClientGone> {
        if !self.prefers_stream() {
            return self.json(body).await;
        }
        let mut event = Vec::with_capacity(32 + body.len());
        sse::write_event(&mut event, None, None, body);
        let mut out = Vec::with_capacity(256 + event.len());
        self.stream_head(&mut out);
        if self.is_chunked() {
            encode_chunk(&mut out, &event);
            out.extend_from_slice(LAST_CHUNK);
        } else {
            out.extend_from_slice(&event);
        }
        self.last(out).await.map(drop)
    }

    /// Answers with a JSON document.
    pub async fn json(&mut self, body: &[u8]) -> Result<(), ClientGone> {
        let mut out = Vec::with_capacity(256 + body.len());
        self.json_head(&mut out, body.len());
        out.extend_from_slice(body);
        self.last(out).await.map(drop)
    }

    /// Answers with a refusal, unless the reply has begun: then the connection just ends.
    pub async fn refuse(&mut self, refusal: &Refusal) -> Result<(), ClientGone> {
        if self.has_started {
            self.keep_alive = false;
            return Err(ClientGone);
        }
        let mut answer = refusal.answer();
        if matches!(refusal, Refusal::Unauthorized(_)) && self.challenge.is_some() {
            answer.headers = "";
        }
        self.answer(answer).await
    }

    /// Writes an answer.
    pub async fn answer(&mut self, answer: Answer) -> Result<(), ClientGone> {
        if answer.must_close {
            self.keep_alive = false;
        }
        let mut out = Vec::with_capacity(256 + answer.body.len());
        self.head(&mut out, answer.status);
        if !answer.content_type.is_empty() {
            out.extend_from_slice(b"content-type: ");
            out.extend_from_slice(answer.content_type.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(answer.headers.as_bytes());
        // A 403 has one when another token of the same user could do more (RFC 6750 section 3.1).
        if matches!(answer.status, 401 | 403) {
            out.extend_from_slice(self.challenge.take().unwrap_or_default().as_bytes());
        }
        if answer.status == 204 {
            // RFC 9110 section 8.6: no Content-Length in a 204.
            out.extend_from_slice(b"\r\n");
        } else {
            self.length(&mut out, answer.body.len());
            if !self.is_bodiless {
                out.extend_from_slice(&answer.body);
            }
        }
        self.last(out).await.map(drop)
    }
}

/// Waits until the other side has closed its connection; what it sends ahead does not count. Safe
/// to drop: no byte is lost.
pub async fn hung_up(link: &mut Link) {
    while !link.stream().has_hung_up() {
        if link.has_input() {
            shards::sleep(HUNG_UP_PAUSE).await;
        } else {
            link.readable().await;
        }
    }
}

/// Whether a reply that begins so, as [`Reply::head`] made it, ends its connection.
pub fn says_close(first_part: &[u8]) -> bool {
    let rest = memchr::memmem::find(first_part, b"\r\n").map(|at| &first_part[at + 2..]);
    rest.is_some_and(|rest| rest.starts_with(CLOSE))
}

fn status_line(status: u16) -> &'static [u8] {
    match status {
        200 => b"HTTP/1.1 200 OK\r\n",
        202 => b"HTTP/1.1 202 Accepted\r\n",
        204 => b"HTTP/1.1 204 No Content\r\n",
        400 => b"HTTP/1.1 400 Bad Request\r\n",
        401 => b"HTTP/1.1 401 Unauthorized\r\n",
        403 => b"HTTP/1.1 403 Forbidden\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        405 => b"HTTP/1.1 405 Method Not Allowed\r\n",
        406 => b"HTTP/1.1 406 Not Acceptable\r\n",
        408 => b"HTTP/1.1 408 Request Timeout\r\n",
        409 => b"HTTP/1.1 409 Conflict\r\n",
        411 => b"HTTP/1.1 411 Length Required\r\n",
        413 => b"HTTP/1.1 413 Content Too Large\r\n",
        414 => b"HTTP/1.1 414 URI Too Long\r\n",
        415 => b"HTTP/1.1 415 Unsupported Media Type\r\n",
        417 => b"HTTP/1.1 417 Expectation Failed\r\n",
        422 => b"HTTP/1.1 422 Unprocessable Content\r\n",
        429 => b"HTTP/1.1 429 Too Many Requests\r\n",
        431 => b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
        501 => b"HTTP/1.1 501 Not Implemented\r\n",
        503 => b"HTTP/1.1 503 Service Unavailable\r\n",
        505 => b"HTTP/1.1 505 HTTP Version Not Supported\r\n",
        _ => b"HTTP/1.1 500 Internal Server Error\r\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_ends_its_connection_is_known_by_its_first_part() {
        for keep_alive in [false, true] {
            let gate = Gate::default();
            let mut reply = Reply::new(Sink::Memory(Vec::new()), gate.clone(), keep_alive, 1);
            reply.allow_origin(b"http://localhost");
            let mut part = Vec::new();
            reply.head(&mut part, 200);
            assert_eq!(says_close(&part), !keep_alive);
            // A drain of the owner's.
            gate.close();
            part.clear();
            reply.head(&mut part, 200);
            assert!(says_close(&part));
        }
        assert!(!says_close(b"") && !says_close(b"connection: close\r\n"));
        assert!(!says_close(
            b"HTTP/1.1 200 OK\r\nx: y\r\nconnection: close\r\n"
        ));
    }
}
