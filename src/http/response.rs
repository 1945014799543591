//! Response heads of backends, read as strictly as requests.
//!
//! Owns what the gateway must know of a backend's reply: where it ends, what it is, whether the
//! connection may serve another request. A reply whose end is in doubt is a fault and its
//! connection is not reused (`contracts/reliability.md` section 3, upstream answers). Never follows
//! a redirect and never decodes a body.

use std::fmt;

use super::framing::{Seen, decimal};
use super::head::{Parsed, Span};
use super::line::{self, Line, LineFault, is_word, list_members, trim_ows};

/// How the end of a response body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFraming {
    /// The head is the whole response (1xx, 204, 304).
    NoBody,
    /// `Content-Length` bytes follow.
    Length(u64),
    /// Chunks follow.
    Chunked,
    /// The body ends with the connection (RFC 9112 section 6.3, last rule).
    UntilClose,
}

/// What `Content-Type` says, as far as the gateway tells types apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKind {
    /// `application/json`.
    Json,
    /// `text/event-stream`.
    EventStream,
    /// Another type.
    Other,
    /// No such header.
    Missing,
}

/// What `Content-Encoding` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// No such header, or `identity`.
    Identity,
    /// `gzip` or `x-gzip`.
    Gzip,
    /// `deflate`.
    Deflate,
    /// `br`.
    Brotli,
    /// Another coding or several of them.
    Unknown,
}

/// A complete response head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Bytes of the head with its blank line; the body starts here.
    pub len: usize,
    /// The status code, 100 to 599. The caller skips 1xx and reads the next head.
    pub status: u16,
    /// Where the body ends.
    pub framing: ResponseFraming,
    /// The connection may be reused once the body has been read and nothing follows it.
    pub keep_alive: bool,
    /// The kind of content.
    pub content: ContentKind,
    /// The coding of the content.
    pub encoding: Encoding,
    /// `Mcp-Session-Id`: visible ASCII, not empty.
    pub session_id: Option<Span>,
    /// `Retry-After`, the first one.
    pub retry_after: Option<Span>,
    /// `WWW-Authenticate`, the first one.
    pub www_authenticate: Option<Span>,
}

/// A response we cannot trust the framing of. Its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFault {
    /// Not `HTTP/1.x SP status SP reason CRLF`.
    StatusLine,
    /// A version that is not 1.0 or 1.1.
    Version,
    /// A malformed header line.
    HeaderLine,
    /// A head longer than the limit.
    HeadTooLong,
    /// More header lines than we read.
    TooManyHeaders,
    /// `Content-Length` malformed or on several lines.
    ContentLength,
    /// `Transfer-Encoding` other than one `chunked`, or in HTTP/1.0.
    TransferEncoding,
    /// `Transfer-Encoding` with `Content-Length`.
    TwoFramings,
    /// `Content-Type` or `Mcp-Session-Id` on several lines.
    RepeatedHeader,
    /// An `Mcp-Session-Id` that is not visible ASCII.
    SessionId,
}

impl fmt::Display for ResponseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StatusLine => "malformed status line",
            Self::Version => "unknown HTTP version",
            Self::HeaderLine => "malformed header line",
            Self::HeadTooLong => "response head over the limit",
            Self::TooManyHeaders => "too many header lines",
            Self::ContentLength => "malformed or repeated Content-Length",
            Self::TransferEncoding => "Transfer-Encoding is not one chunked",
            Self::TwoFramings => "Transfer-Encoding with Content-Length",
            Self::RepeatedHeader => "repeated header",
            Self::SessionId => "malformed Mcp-Session-Id",
        })
    }
}

impl std::error::Error for ResponseFault {}

impl From<LineFault> for ResponseFault {
    fn from(_: LineFault) -> Self {
        Self::HeaderLine
    }
}

/// Backends stand behind balancers that add lines of their own, so more than of a client.
const HEADER_COUNT_MAX: usize = 128;

/// Parses the response head at the start of `buf`, which may hold more than the head.
pub fn parse_response(
    buf: &[u8],
    head_bytes_max: usize,
) -> Result<Parsed<ResponseHead>, ResponseFault> {
    let bytes_max = head_bytes_max.min(u32::MAX as usize);
    let view = &buf[..buf.len().min(bytes_max)];
    let more = || {
        if buf.len() >= bytes_max {
            Err(ResponseFault::HeadTooLong)
        } else {
            Ok(Parsed::Partial)
        }
    };
    let Parsed::Complete(StatusLine {
        minor,
        status,
        next,
    }) = status_line(view)?
    else {
        return more();
    };
    let mut section = Section::new(minor, status);
    let mut at = next;
    let mut header_count = 0;
    loop {
        match line::read(view, at)? {
            Line::Partial => return more(),
            Line::Field { name, value, next } => {
                header_count += 1;
                if header_count > HEADER_COUNT_MAX {
                    return Err(ResponseFault::TooManyHeaders);
                }
                section.read(view, name, value)?;
                at = next;
            }
            Line::End { next } => return section.finish(next).map(Parsed::Complete),
        }
    }
}

struct StatusLine {
    minor: u8,
    status: u16,
    next: usize,
}

/// RFC 9112 section 4. The space before an absent reason may be absent too: servers do that.
fn status_line(view: &[u8]) -> Result<Parsed<StatusLine>, ResponseFault> {
    const SHAPE: &[u8] = b"HTTP/d.d ddd";
    const USUAL: &[u8] = b"HTTP/1.1 200 OK\r\n";
    if view.starts_with(USUAL) {
        return Ok(Parsed::Complete(StatusLine {
            minor: 1,
            status: 200,
            next: USUAL.len(),
        }));
    }
    let front = &view[..view.len().min(SHAPE.len())];
    for (&byte, &expected) in front.iter().zip(SHAPE) {
        let fine = if expected == b'd' {
            byte.is_ascii_digit()
        } else {
            byte == expected
        };
        if !fine {
            return Err(ResponseFault::StatusLine);
        }
    }
    let [
        b'H',
        b'T',
        b'T',
        b'P',
        b'/',
        major,
        b'.',
        minor,
        b' ',
        digits @ ..,
    ] = front
    else {
        return Ok(Parsed::Partial);
    };
    if *major != b'1' || !matches!(minor, b'0' | b'1') {
        return Err(ResponseFault::Version);
    }
    let &[hundreds, tens, units] = digits else {
        return Ok(Parsed::Partial);
    };
    let digit = |byte: u8| u16::from(byte - b'0');
    let status = digit(hundreds) * 100 + digit(tens) * 10 + digit(units);
    if !(100..600).contains(&status) {
        return Err(ResponseFault::StatusLine);
    }
    let rest = &view[SHAPE.len()..];
    let reason_len = rest
        .iter()
        .position(|&byte| (byte < b' ' && byte != b'\t') || byte == 0x7f)
        .unwrap_or(rest.len());
    match (&rest[..reason_len], &rest[reason_len..]) {
        ([first, ..], _) if *first != b' ' => Err(ResponseFault::StatusLine),
        (_, [] | [b'\r']) => Ok(Parsed::Partial),
        (_, [b'\r', b'\n', ..]) => Ok(Parsed::Complete(StatusLine {
            minor: minor - b'0',
            status,
            next: SHAPE.len() + reason_len + 2,
        })),
        _ => Err(ResponseFault::StatusLine),
    }
}

/// A header section while it is read.
struct Section<'a> {
    head: ResponseHead,
    minor: u8,
    content_length: Seen<'a>,
    transfer_encoding: Seen<'a>,
    content_encoding: Seen<'a>,
    close: bool,
    keep_alive: bool,
}

impl<'a> Section<'a> {
    fn new(minor: u8, status: u16) -> Self {
        Self {
            head: ResponseHead {
                len: 0,
                status,
                framing: ResponseFraming::NoBody,
                keep_alive: false,
                content: ContentKind::Missing,
                encoding: Encoding::Identity,
                session_id: None,
                retry_after: None,
                www_authenticate: None,
            },
            minor,
            content_length: Seen::Absent,
            transfer_encoding: Seen::Absent,
            content_encoding: Seen::Absent,
            close: false,
            keep_alive: false,
        }
    }

    fn read(&mut self, view: &'a [u8], name: Span, value: Span) -> Result<(), ResponseFault> {
        let bytes = value.slice(view);
        let written = name.slice(view);
        let is = |wanted: &str| is_word(written, wanted.as_bytes());
        match written.len() {
            10 if is("connection") => {
                for option in list_members(bytes) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            11 if is("retry-after") => {
                self.head.retry_after.get_or_insert(value);
            }
            12 if is("content-type") => {
                if self.head.content != ContentKind::Missing {
                    return Err(ResponseFault::RepeatedHeader);
                }
                self.head.content = content_kind(bytes);
            }
            14 if is("content-length") => self.content_length.add(bytes),
            14 if is("mcp-session-id") => {
                // MCP 2025-11-25, Streamable HTTP, session management.
                if bytes.is_empty() || !bytes.iter().all(u8::is_ascii_graphic) {
                    return Err(ResponseFault::SessionId);
                }
                if self.head.session_id.replace(value).is_some() {
                    return Err(ResponseFault::RepeatedHeader);
                }
            }
            16 if is("content-encoding") => self.content_encoding.add(bytes),
            16 if is("www-authenticate") => {
                self.head.www_authenticate.get_or_insert(value);
            }
            17 if is("transfer-encoding") => self.transfer_encoding.add(bytes),
            _ => {}
        }
        Ok(())
    }

    fn finish(self, len: usize) -> Result<ResponseHead, ResponseFault> {
        let mut head = self.head;
        // Judged for every status: a head that contradicts itself is not to be trusted elsewhere.
        let announced = match (self.transfer_encoding, self.content_length) {
            (Seen::Absent, Seen::Absent) => ResponseFraming::UntilClose,
            (Seen::Absent, Seen::Once(value)) => {
                ResponseFraming::Length(decimal(value).ok_or(ResponseFault::ContentLength)?)
            }
            (Seen::Absent, Seen::Repeated) => return Err(ResponseFault::ContentLength),
            (_, Seen::Once(_) | Seen::Repeated) => return Err(ResponseFault::TwoFramings),
            (Seen::Once(value), Seen::Absent)
                if self.minor == 1 && value.eq_ignore_ascii_case(b"chunked") =>
            {
                ResponseFraming::Chunked
            }
            _ => return Err(ResponseFault::TransferEncoding),
        };
        let is_bodiless = matches!(head.status, 100..200 | 204 | 304);
        head.framing = if is_bodiless {
            ResponseFraming::NoBody
        } else {
            announced
        };
        // RFC 9110 section 8.6: 204 announces nothing; one that does may send it as well. 304 may
        // repeat the length of what it stands for.
        let announces_nothing = matches!(
            (head.status, announced),
            (_, ResponseFraming::UntilClose | ResponseFraming::Length(0))
                | (304, ResponseFraming::Length(_))
        );
        head.keep_alive = (self.minor == 1 || self.keep_alive)
            && !self.close
            && head.framing != ResponseFraming::UntilClose
            && (!is_bodiless || announces_nothing);
        head.encoding = match self.content_encoding {
            Seen::Absent => Encoding::Identity,
            Seen::Once(value) => encoding(value),
            Seen::Repeated => Encoding::Unknown,
        };
        head.len = len;
        Ok(head)
    }
}

/// RFC 9110 section 8.3: the media type without its parameters.
fn content_kind(value: &[u8]) -> ContentKind {
    let media_type = trim_ows(value.split(|&byte| byte == b';').next().unwrap_or_default());
    if is_word(media_type, b"application/json") {
        ContentKind::Json
    } else if is_word(media_type, b"text/event-stream") {
        ContentKind::EventStream
    } else {
        ContentKind::Other
    }
}

/// RFC 9110 section 8.4.1.
fn encoding(value: &[u8]) -> Encoding {
    let is = |wanted: &str| value.eq_ignore_ascii_case(wanted.as_bytes());
    match value.len() {
        0 => Encoding::Identity,
        8 if is("identity") => Encoding::Identity,
        4 if is("gzip") => Encoding::Gzip,
        6 if is("x-gzip") => Encoding::Gzip,
        7 if is("deflate") => Encoding::Deflate,
        2 if is("br") => Encoding::Brotli,
        _ => Encoding::Unknown,
    }
}

#[cfg(test)]
mod tests;
