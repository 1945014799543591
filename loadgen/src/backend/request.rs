//! One HTTP request out of the bytes read so far, or why it is refused.
//!
//! Strict where a real server is (Host, Content-Type, Accept, protocol version), so that a client
//! or a gateway that forgets something is found out here.

use std::ops::Range;

use super::answer::write_plain;
use crate::era::STATELESS_REVISION;

/// Largest request head taken.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Largest body taken.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Headers of a request, at the most.
const HEADER_COUNT_MAX: usize = 64;

/// Protocol revisions with the legacy handshake, oldest first (mcp.md 1.1).
pub(super) const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The methods of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Post,
    Get,
    Delete,
}

/// A complete request.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) session: Option<&'a [u8]>,
    /// Whether its head names the revision without sessions.
    pub(super) is_stateless: bool,
    /// What the head says of the body (mcp.md 2.2).
    pub(super) mcp_method: Option<&'a [u8]>,
    pub(super) mcp_name: Option<&'a [u8]>,
    pub(super) body: &'a [u8],
    /// Whether the connection stays open after the reply.
    pub(super) is_kept: bool,
    /// Bytes of the connection this request took.
    pub(super) used: usize,
}

/// Why a request is refused; the connection ends with the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Not HTTP/1.1, no or two hosts, no length that can be trusted, an unknown protocol version.
    Malformed,
    /// The path is not the endpoint.
    NotFound,
    /// A method the endpoint does not have.
    Method,
    /// The client does not take both kinds of reply.
    NotAcceptable,
    /// No `Content-Length` (chunked requests are not taken).
    LengthRequired,
    /// The body is too large.
    TooLarge,
    /// The body is not declared as JSON.
    MediaType,
    /// The head is too large.
    HeadTooLarge,
}

impl Refused {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let status = match self {
            Self::Malformed => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::Method => "405 Method Not Allowed\r\nallow: GET, POST, DELETE",
            Self::NotAcceptable => "406 Not Acceptable",
            Self::LengthRequired => "411 Length Required",
            Self::TooLarge => "413 Content Too Large",
            Self::MediaType => "415 Unsupported Media Type",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
        };
        write_plain(out, status, false);
    }
}

/// What the bytes hold.
#[derive(Debug)]
pub(super) enum Parsed<'a> {
    Partial,
    Request(Request<'a>),
    Refused(Refused),
}

/// What the headers say, each at most once.
#[derive(Default)]
struct Headers<'a> {
    host_count: u32,
    length: Option<usize>,
    session: Option<&'a [u8]>,
    version: Option<&'a [u8]>,
    mcp_method: Option<&'a [u8]>,
    mcp_name: Option<&'a [u8]>,
    is_json: bool,
    takes_json: bool,
    takes_stream: bool,
    is_closing: bool,
}

/// Looks for one request at the start of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut storage = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut head = httparse::Request::new(&mut storage);
    let head_bytes = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_BYTES_MAX => {
            return Parsed::Refused(Refused::HeadTooLarge);
        }
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(Refused::HeadTooLarge),
        Err(_) => return Parsed::Refused(Refused::Malformed),
    };
    let verdict = read_headers(head.headers)
        .and_then(|headers| check(&head, &headers).map(|method| (headers, method)));
    let (headers, method) = match verdict {
        Ok(verdict) => verdict,
        Err(refused) => return Parsed::Refused(refused),
    };
    let Range { start, end } = head_bytes..head_bytes + headers.length.unwrap_or(0);
    let Some(body) = bytes.get(start..end) else {
        return Parsed::Partial;
    };
    let is_kept = !headers.is_closing;
    Parsed::Request(Request {
        method,
        session: headers.session,
        is_stateless: headers.version == Some(STATELESS_REVISION.as_bytes()),
        mcp_method: headers.mcp_method,
        mcp_name: headers.mcp_name,
        body,
        is_kept,
        used: end,
    })
}

fn read_headers<'a>(list: &[httparse::Header<'a>]) -> Result<Headers<'a>, Refused> {
    let mut headers = Headers::default();
    for header in list {
        let (name, value) = (header.name, header.value);
        // Dispatch on the length first: most headers are none of ours.
        match name.len() {
            8 if name.eq_ignore_ascii_case("mcp-name") => once(&mut headers.mcp_name, value)?,
            10 if name.eq_ignore_ascii_case("mcp-method") => {
                once(&mut headers.mcp_method, value)?;
            }
            4 if name.eq_ignore_ascii_case("host") => headers.host_count += 1,
            6 if name.eq_ignore_ascii_case("accept") => {
                let any = has_word(value, b"*/*");
                headers.takes_json |= any || has_word(value, b"application/json");
                headers.takes_stream |= any || has_word(value, b"text/event-stream");
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                headers.is_closing |= has_word(value, b"close");
            }
            12 if name.eq_ignore_ascii_case("content-type") => {
                headers.is_json |= has_word(value, b"application/json");
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                let length = decimal(value).ok_or(Refused::Malformed)?;
                if headers.length.replace(length).is_some() {
                    return Err(Refused::Malformed);
                }
            }
            14 if name.eq_ignore_ascii_case("mcp-session-id") => {
                once(&mut headers.session, value)?;
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                return Err(Refused::LengthRequired);
            }
            20 if name.eq_ignore_ascii_case("mcp-protocol-version") => {
                let mut known = REVISIONS.iter().chain([&STATELESS_REVISION]);
                if !known.any(|known| known.as_bytes() == value) {
                    return Err(Refused::Malformed);
                }
                once(&mut headers.version, value)?;
            }
            _ => {}
        }
    }
    Ok(headers)
}

fn once<'a>(place: &mut Option<&'a [u8]>, value: &'a [u8]) -> Result<(), Refused> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refused::Malformed),
    }
}

fn check(head: &httparse::Request<'_, '_>, headers: &Headers<'_>) -> Result<Method, Refused> {
    if head.version != Some(1) || headers.host_count != 1 {
        return Err(Refused::Malformed);
    }
    if head.path.and_then(|path| path.split('?').next()) != Some("/mcp") {
        return Err(Refused::NotFound);
    }
    if headers.length.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(Refused::TooLarge);
    }
    match head.method {
        Some("GET") => Ok(Method::Get),
        Some("DELETE") => Ok(Method::Delete),
        Some("POST") if headers.length.is_none() => Err(Refused::LengthRequired),
        Some("POST") if !headers.is_json => Err(Refused::MediaType),
        Some("POST") if !(headers.takes_json && headers.takes_stream) => {
            Err(Refused::NotAcceptable)
        }
        Some("POST") => Ok(Method::Post),
        _ => Err(Refused::Method),
    }
}

/// Whether a comma-separated list names `word`, parameters aside.
fn has_word(value: &[u8], word: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|item| {
        let name = item.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(word)
    })
}

fn decimal(value: &[u8]) -> Option<usize> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Type: application/json; \
        charset=utf-8\r\nAccept: application/json, text/event-stream\r\nContent-Length: 2\r\n\
        Mcp-Session-Id: s1\r\n\r\n{}";

    fn refused(text: &str) -> Refused {
        match parse(text.as_bytes()) {
            Parsed::Refused(refused) => refused,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_request_is_found_at_every_split_and_not_before() {
        let twice = [GOOD, GOOD].concat();
        for length in 0..GOOD.len() {
            assert!(
                matches!(parse(&twice.as_bytes()[..length]), Parsed::Partial),
                "{length}"
            );
        }
        let Parsed::Request(request) = parse(twice.as_bytes()) else {
            panic!()
        };
        assert_eq!(request.used, GOOD.len());
        assert_eq!(request.session, Some(&b"s1"[..]));
        assert_eq!(request.body, b"{}");
        assert!(request.is_kept && !request.is_stateless);
    }

    #[test]
    fn what_a_head_says_of_its_body_is_kept() {
        let lines =
            "mcp-protocol-version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: a\r\n\r\n";
        let text = GOOD.replacen("\r\n\r\n", &format!("\r\n{lines}"), 1);
        let Parsed::Request(request) = parse(text.as_bytes()) else {
            panic!("{text}")
        };
        assert!(request.is_stateless);
        assert_eq!(request.mcp_method, Some(&b"tools/call"[..]));
        assert_eq!(request.mcp_name, Some(&b"a"[..]));
    }

    #[test]
    fn what_a_client_must_send_is_demanded() {
        use Refused::*;
        for (from, to, verdict) in [
            ("Host: a\r\n", "", Malformed),
            ("Host: a\r\n", "Host: a\r\nhost: b\r\n", Malformed),
            ("HTTP/1.1", "HTTP/1.0", Malformed),
            ("Content-Length: 2", "Content-Length: +2", Malformed),
            (
                "Content-Length: 2",
                "Content-Length: 2\r\ncontent-length: 2",
                Malformed,
            ),
            (
                "Content-Length: 2",
                "MCP-Protocol-Version: 2020-01-01\r\ncontent-length: 2",
                Malformed,
            ),
            (
                "Content-Length: 2",
                "Mcp-Session-Id: x\r\ncontent-length: 2",
                Malformed,
            ),
            (
                "Content-Length: 2",
                "Mcp-Name: x\r\nmcp-name: x\r\ncontent-length: 2",
                Malformed,
            ),
            ("Content-Length: 2\r\n", "", LengthRequired),
            (
                "Content-Length: 2",
                "Transfer-Encoding: chunked",
                LengthRequired,
            ),
            ("Content-Length: 2", "Content-Length: 99999999", TooLarge),
            (
                "application/json; charset",
                "text/plain; charset",
                MediaType,
            ),
            (", text/event-stream", "", NotAcceptable),
            ("application/json, text", "text/html, text", NotAcceptable),
            ("/mcp", "/other", NotFound),
            ("POST", "PATCH", Method),
        ] {
            assert_eq!(
                refused(&GOOD.replacen(from, to, 1)),
                verdict,
                "{from:?} -> {to:?}"
            );
        }
        assert_eq!(
            refused(&format!("GET /mcp HTTP/1.1\r\nx: {}", "a".repeat(40_000))),
            HeadTooLarge
        );
    }

    #[test]
    fn other_spellings_of_the_same_are_taken() {
        for (from, to) in [
            ("application/json, text/event-stream", "*/*"),
            ("Host", "hOsT"),
            ("/mcp", "/mcp?x=1"),
            (
                "Content-Length: 2",
                "MCP-Protocol-Version: 2025-06-18\r\nContent-Length: 2",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert!(
                matches!(parse(text.as_bytes()), Parsed::Request(_)),
                "{from:?} -> {to:?}"
            );
        }
        let text = GOOD.replacen("Host: a", "Host: a\r\nConnection: close", 1);
        assert!(matches!(
            parse(text.as_bytes()),
            Parsed::Request(Request { is_kept: false, .. })
        ));
        assert!(matches!(
            parse(b"DELETE /mcp HTTP/1.1\r\nhost: a\r\n\r\n"),
            Parsed::Request(Request {
                method: Method::Delete,
                session: None,
                ..
            })
        ));
    }
}
