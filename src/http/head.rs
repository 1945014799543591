//! Request heads: from bytes to the few facts the gateway routes by, without an allocation.
//!
//! Owns the request line, the headers we read and the limits of a head. A head that is not
//! complete is `Partial`; a refusal depends only on the bytes up to the fault, so it is the same
//! whether they came at once or one at a time. Line grammar: `line.rs`; targets: `target.rs`;
//! framing: `framing.rs`. Never copies a value: a head is spans of the buffer it was read from.

use std::fmt;

use memchr::memchr;

use super::framing::Framing;
use super::line::{self, Line, front_len, is_token};
pub use super::target::PathRule;
use super::target::{self, is_target_byte};
pub use known::KnownHead;
use section::Section;

mod known;
mod section;

/// A piece of the buffer a head was parsed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// First byte after it.
    pub end: u32,
}

impl Span {
    /// A span of a head; heads are bounded far below 4 GiB.
    pub(super) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && u32::try_from(end).is_ok());
        Self {
            start: start as u32,
            end: end as u32,
        }
    }

    /// The bytes, when `buf` starts where the parsed buffer started; nothing when `buf` is shorter.
    pub fn slice(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// True for an empty value.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Bounds of one request (`contracts/reliability.md` Appendix F).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of a head with its blank line; more is 431.
    pub head_bytes_max: usize,
    /// Header lines; more is 431.
    pub header_count_max: usize,
    /// Bytes of a request target; more is 414.
    pub target_bytes_max: usize,
    /// Bytes of a body; more is 413.
    pub body_bytes_max: u64,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            head_bytes_max: 16 << 10,
            header_count_max: 64,
            target_bytes_max: 4 << 10,
            body_bytes_max: 4 << 20,
        }
    }
}

/// Request methods, as far as the gateway tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `HEAD`.
    Head,
    /// `PATCH`.
    Patch,
    /// Any other token, which the caller answers with 405. `CONNECT` never gets this far.
    Other,
}

/// A request we do not take. The connection closes after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpRefusal {
    /// HTTP status of the answer.
    pub status: u16,
    /// Hand-written text; never holds input.
    pub reason: &'static str,
}

impl HttpRefusal {
    /// 400 with this reason.
    pub(super) const fn bad(reason: &'static str) -> Self {
        Self {
            status: 400,
            reason,
        }
    }
}

impl fmt::Display for HttpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for HttpRefusal {}

/// What parsing a growing buffer gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<T> {
    /// Nothing is wrong yet and more bytes are needed.
    Partial,
    /// All of it was there.
    Complete(T),
}

/// A complete request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// Bytes of the head with its blank line; the body starts here.
    pub len: usize,
    /// Header lines.
    pub header_count: usize,
    /// The method.
    pub method: Method,
    /// The request target as written.
    pub target: Span,
    /// The path without its query; `*` for OPTIONS `*`.
    pub path: Span,
    /// Minor version of HTTP/1: 0 or 1.
    pub minor: u8,
    /// Where the body ends.
    pub framing: Framing,
    /// The client lets us reuse the connection (RFC 9112 section 9.3). Never with `upgrade`, nor
    /// after a method we do not know.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1).
    pub expect_continue: bool,
    /// `Upgrade` was sent. Ignored here, and the connection closes after the answer (App. B rule
    /// 8).
    pub upgrade: bool,
    /// `Content-Length`, if it stood there, whatever it came to.
    pub content_length: Option<Span>,
    /// `Host`: present, single and well-formed in every head we take.
    pub host: Option<Span>,
    /// `Authorization`.
    pub authorization: Option<Span>,
    /// `Mcp-Session-Id`.
    pub session_id: Option<Span>,
    /// `MCP-Protocol-Version`, the first one.
    pub protocol_version: Option<Span>,
    /// `MCP-Protocol-Version` came more than once.
    pub repeated_protocol_version: bool,
    /// `Accept`, the first line.
    pub accept: Option<Span>,
    /// `Accept` came on several lines: read them with [`header_values`].
    pub accept_repeated: bool,
    /// `Content-Type`.
    pub content_type: Option<Span>,
    /// `Origin`.
    pub origin: Option<Span>,
    /// `Last-Event-ID`.
    pub last_event_id: Option<Span>,
    /// `Access-Control-Request-Method`.
    pub access_control_request_method: Option<Span>,
    /// `Access-Control-Request-Headers`.
    pub access_control_request_headers: Option<Span>,
    /// `Mcp-Method` (SEP-2243), the first one.
    pub mcp_method: Option<Span>,
    /// `Mcp-Method` came more than once.
    pub repeated_mcp_method: bool,
    /// `Mcp-Name` (SEP-2243), the first one.
    pub mcp_name: Option<Span>,
    /// `Mcp-Name` came more than once.
    pub repeated_mcp_name: bool,
}

/// A longer method than any we know is not worth reading to its end (RFC 9112 section 3).
const METHOD_BYTES_MAX: usize = 32;

/// Parses the request head at the start of `buf`, which may hold more than the head.
pub fn parse_request(buf: &[u8], limits: &HeadLimits) -> Result<Parsed<RequestHead>, HttpRefusal> {
    parse_request_under(buf, limits, PathRule::Plain)
}

/// The same under another rule for paths.
pub fn parse_request_under(
    buf: &[u8],
    limits: &HeadLimits,
    rule: PathRule,
) -> Result<Parsed<RequestHead>, HttpRefusal> {
    // What lies past the limit has no say, or the verdict would depend on how much has arrived.
    let bytes_max = limits.head_bytes_max.min(u32::MAX as usize);
    let view = &buf[..buf.len().min(bytes_max)];
    let is_full = buf.len() >= bytes_max;
    let first = match request_line(view, limits.target_bytes_max)? {
        Parsed::Complete(first) => first,
        Parsed::Partial if is_full => return Err(TARGET_TOO_LONG),
        Parsed::Partial => return Ok(Parsed::Partial),
    };
    let target = target::split(view, first.target, first.method, rule)?;
    let mut section = Section::new(&first, target.path);
    let mut at = first.next;
    let mut header_count = 0;
    loop {
        match line::read(view, at).map_err(|fault| HttpRefusal::bad(fault.reason()))? {
            Line::Partial if is_full => {
                return Err(HttpRefusal {
                    status: 431,
                    reason: "request head over the limit",
                });
            }
            Line::Partial => return Ok(Parsed::Partial),
            Line::Field { name, value, next } => {
                header_count += 1;
                if header_count > limits.header_count_max {
                    return Err(HttpRefusal {
                        status: 431,
                        reason: "too many header lines",
                    });
                }
                section.read(view, name, value)?;
                at = next;
            }
            Line::End { next } => {
                let authority = target.authority.map(|span| span.slice(view));
                let mut head = section.finish(view, next, authority, limits.body_bytes_max)?;
                head.header_count = header_count;
                return Ok(Parsed::Complete(head));
            }
        }
    }
}

const TARGET_TOO_LONG: HttpRefusal = HttpRefusal {
    status: 414,
    reason: "request target over the limit",
};

/// The facts of a request line.
struct RequestLine {
    method: Method,
    target: Span,
    minor: u8,
    next: usize,
}

/// RFC 9112 section 3: `method SP target SP HTTP/1.x CRLF`, with exactly one space each.
fn request_line(view: &[u8], target_bytes_max: usize) -> Result<Parsed<RequestLine>, HttpRefusal> {
    let method_len = front_len(&view[..view.len().min(METHOD_BYTES_MAX + 1)], is_token);
    match view.get(method_len) {
        _ if method_len > METHOD_BYTES_MAX => {
            return Err(HttpRefusal {
                status: 501,
                reason: "unknown request method",
            });
        }
        Some(b' ') if method_len > 0 => {}
        Some(_) => return Err(HttpRefusal::bad("malformed request method")),
        None => return Ok(Parsed::Partial),
    }
    let method = match &view[..method_len] {
        b"POST" => Method::Post,
        b"GET" => Method::Get,
        b"DELETE" => Method::Delete,
        b"OPTIONS" => Method::Options,
        b"HEAD" => Method::Head,
        b"PATCH" => Method::Patch,
        b"CONNECT" => {
            return Err(HttpRefusal {
                status: 405,
                reason: "CONNECT is not allowed",
            });
        }
        _ => Method::Other,
    };
    let target_at = method_len + 1;
    let rest = &view[target_at..];
    let target_len = front_len(rest, is_target_byte);
    match rest.get(target_len) {
        _ if target_len > target_bytes_max => return Err(TARGET_TOO_LONG),
        Some(b' ') if target_len > 0 => {}
        Some(_) => return Err(HttpRefusal::bad("malformed request target")),
        None => return Ok(Parsed::Partial),
    }
    let version_at = target_at + target_len + 1;
    let Parsed::Complete(minor) = version(&view[version_at..])? else {
        return Ok(Parsed::Partial);
    };
    Ok(Parsed::Complete(RequestLine {
        method,
        target: Span::new(target_at, version_at - 1),
        minor,
        next: version_at + VERSION_LINE_LEN,
    }))
}

const VERSION_LINE_LEN: usize = b"HTTP/1.1\r\n".len();

/// The version and the line end after it. A version is refused only once its line is well-formed,
/// so that half of it never gets another verdict than the whole.
fn version(rest: &[u8]) -> Result<Parsed<u8>, HttpRefusal> {
    if rest.starts_with(b"HTTP/1.1\r\n") {
        return Ok(Parsed::Complete(1));
    }
    let shape = b"HTTP/d.d\r\n";
    let front = &rest[..rest.len().min(VERSION_LINE_LEN)];
    for (&byte, &expected) in front.iter().zip(shape) {
        let fine = if expected == b'd' {
            byte.is_ascii_digit()
        } else {
            byte == expected
        };
        if !fine {
            return Err(HttpRefusal::bad(
                "malformed HTTP version or request line end",
            ));
        }
    }
    match front {
        [.., b'1', b'.', minor @ (b'0' | b'1'), b'\r', b'\n'] => Ok(Parsed::Complete(minor - b'0')),
        _ if front.len() == VERSION_LINE_LEN => Err(HttpRefusal {
            status: 505,
            reason: "only HTTP/1.0 and HTTP/1.1 are spoken here",
        }),
        _ => Ok(Parsed::Partial),
    }
}

/// Every header of a complete head, in order: name as written, value without space around it.
pub fn headers(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = memchr(b'\n', head).map_or(head.len(), |line_end| line_end + 1);
    std::iter::from_fn(move || match line::read(head, at) {
        Ok(Line::Field { name, value, next }) => {
            at = next;
            Some((name.slice(head), value.slice(head)))
        }
        Ok(Line::Partial | Line::End { .. }) | Err(_) => None,
    })
}

/// Every value of the header `name` in a complete head, in order.
///
/// Walks the lines again, so it is for headers that are rarely read.
pub fn header_values<'a>(head: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    headers(head)
        .filter(move |(written, _)| written.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests;
