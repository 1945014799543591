//! What a backend's address must look like, before anything is resolved or dialled.
//!
//! Shape only: which hosts may be reached is the decision of the upstream address policy.

use std::net::Ipv6Addr;

/// Why a backend's address cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// No `scheme://`.
    #[error("the URL is not absolute; write http://... or https://...")]
    NotAbsolute,
    /// A scheme other than `http` and `https`.
    #[error("the URL's scheme is neither http nor https")]
    Scheme,
    /// Nothing or nonsense where the host belongs.
    #[error("the URL has no valid host")]
    Host,
    /// Not a number from 1 to 65535.
    #[error("the URL's port is not a number from 1 to 65535")]
    Port,
    /// Credentials in the address, which would end up in logs.
    #[error("the URL holds a user name or password; use add_headers instead")]
    UserInfo,
    /// `reverse:` and nothing behind it.
    #[error("the URL names no source; write reverse:SOURCE")]
    Source,
    /// Spaces, controls or bytes that must be percent-encoded.
    #[error("the URL has characters that must be percent-encoded")]
    Character,
}

/// What the address of a server that connects to the gateway itself begins with.
const REVERSE: &str = "reverse:";

/// The source under which a server connects itself, where the address is `reverse:SOURCE`. It is
/// taken as it stands: no encoding, no normalisation.
pub fn reverse_source(url: &str) -> Option<&str> {
    url.strip_prefix(REVERSE)
}

/// Checks an absolute `http` or `https` address (RFC 3986, RFC 9110 section 4.2), or the source of
/// a server that connects itself.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check_url(url: &str) -> Result<(), UrlFault> {
    if let Some(source) = reverse_source(url) {
        return match source.is_empty() {
            true => Err(UrlFault::Source),
            false => Ok(()),
        };
    }
    let (scheme, rest) = url.split_once("://").ok_or(UrlFault::NotAbsolute)?;
    // RFC 3986 section 3.1.
    let is_scheme_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    if !scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        || !scheme.bytes().all(is_scheme_byte)
    {
        return Err(UrlFault::NotAbsolute);
    }
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(UrlFault::Scheme);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if authority.contains('@') {
        return Err(UrlFault::UserInfo);
    }
    // Other scripts in host names would need the mapping of RFC 5891; the operator can write it.
    if !authority.is_ascii() {
        return Err(UrlFault::Character);
    }
    let (host, port) = split_port(authority)?;
    if !is_host(host) {
        return Err(UrlFault::Host);
    }
    if let Some(port) = port
        && (!port.bytes().all(|byte| byte.is_ascii_digit())
            || port.parse::<u16>().is_ok_and(|number| number == 0)
            || (!port.is_empty() && port.parse::<u16>().is_err()))
    {
        return Err(UrlFault::Port);
    }
    if !tail
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte))
    {
        return Err(UrlFault::Character);
    }
    Ok(())
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlFault> {
    let after_host = match authority.strip_prefix('[') {
        Some(rest) => 1 + rest.find(']').ok_or(UrlFault::Host)? + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(after_host);
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(UrlFault::Host),
    }
}

fn is_host(host: &str) -> bool {
    match host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        // Host names as they are resolved; `_` occurs in container networks.
        None => {
            !host.is_empty()
                && host.len() <= 253
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_judged() {
        for good in [
            "http://127.0.0.1:5555/mcp",
            "HTTPS://example.com",
            "https://example.com:443?x=1",
            "http://[::1]:80/",
            "http://my_service:8080/a%20b",
            "http://h:/",
            "reverse:mcp:alice:files",
            "reverse:mcp:Änne Müller:{x}",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for (bad, fault) in [
            ("", UrlFault::NotAbsolute),
            ("reverse:", UrlFault::Source),
            ("reverse", UrlFault::NotAbsolute),
            ("/mcp", UrlFault::NotAbsolute),
            ("localhost:5555/mcp", UrlFault::NotAbsolute),
            ("127.0.0.1://x", UrlFault::NotAbsolute),
            ("ftp://h/", UrlFault::Scheme),
            ("ws://h/", UrlFault::Scheme),
            ("http://", UrlFault::Host),
            ("http:///path", UrlFault::Host),
            ("http://:80/", UrlFault::Host),
            ("http://[::1/", UrlFault::Host),
            ("http://[::g]/", UrlFault::Host),
            ("http://[::1]x/", UrlFault::Host),
            ("http://a b/", UrlFault::Host),
            ("http://h:0/", UrlFault::Port),
            ("http://h:65536/", UrlFault::Port),
            ("http://h:+80/", UrlFault::Port),
            ("http://h:80:80/", UrlFault::Port),
            ("http://user:secret@h/", UrlFault::UserInfo),
            ("http://h/a b", UrlFault::Character),
            ("http://h/a\r\nx: y", UrlFault::Character),
            ("http://h/é", UrlFault::Character),
            ("http://é/", UrlFault::Character),
        ] {
            assert_eq!(check_url(bad), Err(fault), "{bad}");
        }
    }
}
