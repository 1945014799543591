//! Request targets and the Host header: syntax only.
//!
//! Owns the choice of forms (RFC 9112 section 3.2): origin-form, absolute-form, and `*` for
//! OPTIONS. A path that two readers could understand differently (dot segments, empty segments,
//! encoded slashes, `%00`) is refused, so that no later step needs to normalise one.
//! Never rebuilds a path from Host and never decides whether a host is allowed.

use std::net::Ipv6Addr;

use memchr::memchr;

use super::head::{HttpRefusal, Method, Span};
use super::line::byte_table;

/// A request target taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// The path without its query; `*` for OPTIONS `*`.
    pub(super) path: Span,
    /// The authority of an absolute-form, which must equal Host.
    pub(super) authority: Option<Span>,
}

/// What a path may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathRule {
    /// Nothing that two readers could understand differently.
    Plain,
    /// Whatever is well-formed: for services whose paths carry names of any kind, percent-encoded,
    /// which split a path at its slashes first and decode the pieces once.
    Opaque,
}

/// RFC 3986 section 2, without `#` which never reaches a server; brackets only in an authority.
#[inline]
pub(super) fn is_target_byte(byte: u8) -> bool {
    const TABLE: [bool; 256] = byte_table(
        b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@/?%[]",
    );
    TABLE[usize::from(byte)]
}

/// Takes a complete target apart; every byte of it satisfies [`is_target_byte`].
pub(super) fn split(
    buf: &[u8],
    target: Span,
    method: Method,
    rule: PathRule,
) -> Result<Target, HttpRefusal> {
    let bytes = target.slice(buf);
    if is_simple(bytes) {
        return Ok(Target {
            path: target,
            authority: None,
        });
    }
    if bytes == b"*" {
        return match method {
            Method::Options => Ok(Target {
                path: target,
                authority: None,
            }),
            _ => Err(HttpRefusal::bad("asterisk-form is for OPTIONS only")),
        };
    }
    let start = target.start as usize;
    let (authority, path_at) = if bytes.first() == Some(&b'/') {
        (None, 0)
    } else {
        let authority_at = scheme_len(bytes).ok_or(HttpRefusal::bad(
            "request target is neither a path nor an http address",
        ))?;
        let authority_len = bytes[authority_at..]
            .iter()
            .position(|&byte| byte == b'/' || byte == b'?')
            .ok_or(HttpRefusal::bad("absolute request target without a path"))?;
        let path_at = authority_at + authority_len;
        (
            Some(Span::new(start + authority_at, start + path_at)),
            path_at,
        )
    };
    let query_at = bytes[path_at..]
        .iter()
        .position(|&byte| byte == b'?')
        .map_or(bytes.len(), |offset| path_at + offset);
    match rule {
        PathRule::Plain => check_path(&bytes[path_at..query_at])?,
        PathRule::Opaque => check_opaque_path(&bytes[path_at..query_at])?,
    }
    check_query(bytes.get(query_at + 1..).unwrap_or_default())?;
    Ok(Target {
        path: Span::new(start + path_at, start + query_at),
        authority,
    })
}

/// Length of `http://` or `https://` at the start, in any case.
fn scheme_len(bytes: &[u8]) -> Option<usize> {
    [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| {
            bytes
                .get(..scheme.len())
                .is_some_and(|front| front.eq_ignore_ascii_case(scheme))
        })
        .map(<[u8]>::len)
}

/// Whether a target is a path that nothing below could object to: segments that are not empty, of
/// letters, digits, `-`, `_` and `~`. That is nearly all of them, and it takes one look.
fn is_simple(target: &[u8]) -> bool {
    const TABLE: [bool; 256] =
        byte_table(b"-_~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    let mut is_segment = true;
    for &byte in target {
        if TABLE[usize::from(byte)] {
            is_segment = true;
        } else if byte == b'/' && is_segment {
            is_segment = false;
        } else {
            return false;
        }
    }
    target.first() == Some(&b'/') && is_segment
}

fn check_path(path: &[u8]) -> Result<(), HttpRefusal> {
    let Some((b'/', rest)) = path.split_first() else {
        return Err(HttpRefusal::bad("request target without a path"));
    };
    if path.iter().any(|&byte| byte == b'[' || byte == b']') {
        return Err(HttpRefusal::bad("bracket in the request path"));
    }
    let mut segments = rest.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err(HttpRefusal::bad("empty segment in the request path"));
        }
        check_segment(segment)?;
    }
    Ok(())
}

/// Begins with a slash, holds no bracket, and every percent sign begins a whole encoding.
fn check_opaque_path(path: &[u8]) -> Result<(), HttpRefusal> {
    if path.first() != Some(&b'/') {
        return Err(HttpRefusal::bad("request target without a path"));
    }
    let mut rest = path;
    while let Some((_, tail)) = next_decoded(rest)? {
        if matches!(rest[0], b'[' | b']') {
            return Err(HttpRefusal::bad("bracket in the request path"));
        }
        rest = tail;
    }
    Ok(())
}

fn check_segment(segment: &[u8]) -> Result<(), HttpRefusal> {
    if segment.first() != Some(&b'.') && memchr(b'%', segment).is_none() {
        return Ok(());
    }
    let mut rest = segment;
    let mut decoded_len = 0_usize;
    let mut only_dots = true;
    while let Some((byte, tail)) = next_decoded(rest)? {
        let encoded = rest[0] == b'%';
        if encoded && (byte < b' ' || matches!(byte, 0x7f | b'/' | b'\\')) {
            return Err(HttpRefusal::bad(
                "encoded control byte or slash in the request path",
            ));
        }
        only_dots &= byte == b'.';
        decoded_len += 1;
        rest = tail;
    }
    if only_dots && matches!(decoded_len, 1 | 2) {
        return Err(HttpRefusal::bad("dot segment in the request path"));
    }
    Ok(())
}

fn check_query(query: &[u8]) -> Result<(), HttpRefusal> {
    let mut rest = query;
    while let Some((byte, tail)) = next_decoded(rest)? {
        if byte == 0 || matches!(rest[0], b'[' | b']') {
            return Err(HttpRefusal::bad("NUL or bracket in the query"));
        }
        rest = tail;
    }
    Ok(())
}

/// The first byte, percent-decoded, and what follows it.
fn next_decoded(bytes: &[u8]) -> Result<Option<(u8, &[u8])>, HttpRefusal> {
    match bytes {
        [] => Ok(None),
        [b'%', high, low, rest @ ..] => match (hex_digit(*high), hex_digit(*low)) {
            (Some(high), Some(low)) => Ok(Some((high << 4 | low, rest))),
            _ => Err(HttpRefusal::bad(
                "broken percent-encoding in the request target",
            )),
        },
        [b'%', ..] => Err(HttpRefusal::bad(
            "broken percent-encoding in the request target",
        )),
        [byte, rest @ ..] => Ok(Some((*byte, rest))),
    }
}

/// The value of one hexadecimal digit.
#[inline]
pub(super) fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Checks `host [":" port]` of a Host header or an authority (RFC 9110 section 7.2).
///
/// Narrower than the grammar: no user part, no percent-encoding, no sub-delims, no zone, no empty
/// port. What is left has one reading only.
pub(super) fn check_host(value: &[u8]) -> Result<(), HttpRefusal> {
    let (name_is_fine, port) = if let Some(literal) = value.strip_prefix(b"[") {
        let Some(end) = literal.iter().position(|&byte| byte == b']') else {
            return Err(HttpRefusal::bad("malformed Host"));
        };
        let address = std::str::from_utf8(&literal[..end]).unwrap_or_default();
        (address.parse::<Ipv6Addr>().is_ok(), &literal[end + 1..])
    } else {
        let name_len = value
            .iter()
            .position(|&byte| byte == b':')
            .unwrap_or(value.len());
        let (name, port) = value.split_at(name_len);
        let fine = !name.is_empty()
            && name
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        (fine, port)
    };
    let port_is_fine = match port.split_first() {
        None => true,
        Some((b':', digits)) => is_port(digits),
        Some(_) => false,
    };
    if name_is_fine && port_is_fine {
        Ok(())
    } else {
        Err(HttpRefusal::bad("malformed Host"))
    }
}

fn is_port(digits: &[u8]) -> bool {
    if digits.is_empty() || digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let port = digits
        .iter()
        .fold(0_u32, |port, digit| port * 10 + u32::from(digit - b'0'));
    (1..=65535).contains(&port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(target: &str, method: Method) -> Option<String> {
        let bytes = target.as_bytes();
        let split = split(bytes, Span::new(0, bytes.len()), method, PathRule::Plain).ok()?;
        Some(String::from_utf8_lossy(split.path.slice(bytes)).into_owned())
    }

    #[test]
    fn a_path_has_one_reading() {
        for (target, path) in [
            ("/mcp", Some("/mcp")),
            ("/", Some("/")),
            ("/mcp/", Some("/mcp/")),
            (
                "/servers/a%20b/mcp?x=%2f&y=//..",
                Some("/servers/a%20b/mcp"),
            ),
            ("/...", Some("/...")),
            ("/caf%c3%a9", Some("/caf%c3%a9")),
            ("/%61", Some("/%61")),
            ("/.%61/%2e..", Some("/.%61/%2e..")),
            ("http://a:80/mcp?q", Some("/mcp")),
            ("HTTPS://[::1]:8443/mcp", Some("/mcp")),
            ("//mcp", None),
            ("/a//b", None),
            ("/a/../b", None),
            ("/a/.", None),
            ("/a/%2e%2E/b", None),
            ("/a/.%2e", None),
            ("/a%2fb", None),
            ("/a%5cb", None),
            ("/a%00", None),
            ("/a%7f", None),
            ("/a%", None),
            ("/a%4", None),
            ("/a%zz", None),
            ("/a?%00", None),
            ("/a?[", None),
            ("/[a]", None),
            ("a", None),
            ("!", None),
            ("a:443", None),
            ("http://a", None),
            ("http://a?x", None),
            ("ftp://a/", None),
            ("*", None),
        ] {
            assert_eq!(path_of(target, Method::Post).as_deref(), path, "{target}");
        }
        assert_eq!(path_of("*", Method::Options).as_deref(), Some("*"));
    }

    #[test]
    fn a_host_has_one_reading() {
        for (host, fine) in [
            ("a", true),
            ("a.example:8080", true),
            ("my_service:1", true),
            ("127.0.0.1:65535", true),
            ("[::1]", true),
            ("[::ffff:1.2.3.4]:80", true),
            ("", false),
            (":80", false),
            ("a:", false),
            ("a:0", false),
            ("a:65536", false),
            ("a:70000", false),
            ("a:+80", false),
            ("a:080080", false),
            ("a:000080", false),
            ("a,b", false),
            ("a/b", false),
            ("a?b", false),
            ("a#b", false),
            ("u@a", false),
            ("a b", false),
            ("::1", false),
            ("[::1", false),
            ("[::1]a", false),
            ("[::1%25eth0]", false),
            ("[v1.a]", false),
            ("[]", false),
        ] {
            assert_eq!(check_host(host.as_bytes()).is_ok(), fine, "{host}");
        }
    }
}
