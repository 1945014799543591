//! The opening handshake (RFC 6455 section 4), as bytes.
//!
//! A server judges a parsed request head; a client writes its request and judges the reply.
//! Subprotocols and extensions that are offered are not taken, and never echoed.

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::http::{Method, RequestHead, header_values};

/// Section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What a server makes of a request on a WebSocket's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// It asks for no upgrade at all.
    Plain,
    /// It asks for one and must not have it: 400.
    Bad,
    /// It may have it, with this `Sec-WebSocket-Accept`.
    Accepted(String),
}

/// The value of `Sec-WebSocket-Accept` for a key.
pub fn accept_for(key: &[u8]) -> String {
    let text = [key, GUID].concat();
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text))
}

/// The one value of a header, if there is exactly one.
fn only<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut values = header_values(head, name);
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// Judges a request for an upgrade (section 4.2.1): `head` was parsed from `bytes`.
pub fn open(head: &RequestHead, bytes: &[u8]) -> Opening {
    let bytes = &bytes[..head.len];
    let names_upgrade = |value: &[u8]| {
        let mut options = value.split(|byte| *byte == b',');
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
    };
    if !head.upgrade || !header_values(bytes, "connection").any(names_upgrade) {
        return Opening::Plain;
    }
    let is_websocket =
        only(bytes, "upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
    let is_version_13 = only(bytes, "sec-websocket-version") == Some(b"13");
    let key = only(bytes, "sec-websocket-key");
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16));
    match key {
        Some(key)
            if is_websocket && is_version_13 && head.method == Method::Get && head.minor == 1 =>
        {
            Opening::Accepted(accept_for(key))
        }
        _ => Opening::Bad,
    }
}

/// The reply that opens, and nothing else.
pub fn accepted(accept: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
    .into_bytes()
}

/// A client's request (section 4.1). `key` is 16 random bytes; `extra` are whole header lines.
pub fn request(host: &str, target: &str, key: [u8; 16], extra: &str) -> Vec<u8> {
    let key = STANDARD.encode(key);
    format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{extra}\r\n"
    )
    .into_bytes()
}

/// Whether a server's whole reply head opens the connection for the client that sent `key`
/// (section 4.1, the second list): nothing was asked for, so nothing may have been granted.
pub fn is_opened(reply: &[u8], key: [u8; 16]) -> bool {
    let has_word = |name: &str, word: &[u8]| {
        only(reply, name).is_some_and(|value| value.eq_ignore_ascii_case(word))
    };
    let accept = accept_for(STANDARD.encode(key).as_bytes());
    reply.starts_with(b"HTTP/1.1 101 ")
        && has_word("upgrade", b"websocket")
        && has_word("connection", b"upgrade")
        && only(reply, "sec-websocket-accept") == Some(accept.as_bytes())
        && header_values(reply, "sec-websocket-extensions")
            .next()
            .is_none()
        && header_values(reply, "sec-websocket-protocol")
            .next()
            .is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{HeadLimits, Parsed, parse_request};

    fn opening(request: &[u8]) -> Opening {
        match parse_request(request, &HeadLimits::default()) {
            Ok(Parsed::Complete(head)) => open(&head, request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_key_of_the_standard_has_its_answer() {
        assert_eq!(
            accept_for(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn a_client_s_request_is_accepted_and_the_answer_is_known_again() {
        let key = *b"0123456789abcdef";
        let Opening::Accepted(accept) = opening(&request("a.example", "/x?y", key, "")) else {
            panic!("not accepted");
        };
        assert!(is_opened(&accepted(&accept), key));
        assert!(!is_opened(&accepted(&accept), *b"0123456789abcdeF"));
        let reply = String::from_utf8(accepted(&accept)).unwrap();
        for (from, to) in [
            ("101", "200"),
            ("websocket", "h2c"),
            ("Connection: Upgrade", "Connection: close"),
            ("\r\n\r\n", "\r\nSec-WebSocket-Extensions: x\r\n\r\n"),
            ("\r\n\r\n", "\r\nSec-WebSocket-Protocol: x\r\n\r\n"),
        ] {
            assert!(
                !is_opened(reply.replacen(from, to, 1).as_bytes(), key),
                "{to}"
            );
        }
    }

    #[test]
    fn what_is_missing_is_refused_and_what_asks_for_nothing_is_plain() {
        let whole = String::from_utf8(request("a", "/", *b"0123456789abcdef", "")).unwrap();
        for (from, to, wanted) in [
            ("Connection: Upgrade\r\n", "", Opening::Plain),
            ("Upgrade: websocket\r\n", "", Opening::Plain),
            (
                "Upgrade: websocket",
                "Upgrade: h2c, websocket",
                Opening::Bad,
            ),
            ("Version: 13", "Version: 8", Opening::Bad),
            ("Sec-WebSocket-Version: 13\r\n", "", Opening::Bad),
            ("Sec-WebSocket-Key: ", "X-Key: ", Opening::Bad),
            (
                "Sec-WebSocket-Key: ",
                "Sec-WebSocket-Key: AAAA",
                Opening::Bad,
            ),
            ("GET /", "HEAD /", Opening::Bad),
            ("HTTP/1.1", "HTTP/1.0", Opening::Bad),
        ] {
            assert_eq!(
                opening(whole.replacen(from, to, 1).as_bytes()),
                wanted,
                "{to}"
            );
        }
        let in_other_words = whole
            .replace("Upgrade: websocket", "upgrade: WebSocket")
            .replace("Connection: Upgrade", "connection: keep-alive, upgrade");
        assert!(matches!(
            opening(in_other_words.as_bytes()),
            Opening::Accepted(_)
        ));
    }
}
