//! A client from its connection to its session: the opening request, `bind`, `bound`.

use super::{
    Plan,
    answer::mask,
    frame::{self, BadFrame},
    token, words,
};
use crate::{client::CallFault, random::Random};

/// The key of the opening request and what a server makes of it (RFC 6455 1.3).
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Headers of the answer, at the most.
const HEADER_COUNT_MAX: usize = 32;
/// Largest head of it.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The session of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) session: String,
    pub(crate) generation: u64,
}

/// What a client is told until it is bound.
#[derive(Debug, Default)]
pub(crate) struct Greeting {
    is_open: bool,
}

impl Greeting {
    /// The opening request and, behind it, the `bind` of client `number`: a gateway that opens the
    /// WebSocket takes it at once.
    pub(crate) fn put(plan: &Plan, number: u64, random: &mut Random, out: &mut Vec<u8>) {
        words::put(
            out,
            format_args!(
                "GET {} HTTP/1.1\r\nhost: {}\r\nuser-agent: loadgen\r\nconnection: Upgrade\r\n\
                 upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n\r\n",
                plan.target.path, plan.target.authority
            ),
        );
        let name = format!("loadgen-{}-{number}", plan.run);
        let source = format!("loadgen:{}:{number}", plan.run);
        let token = token::mint(
            &plan.options.secret.0,
            &name,
            &source,
            shards::clock::unix_ms(),
        );
        let mut message = Vec::new();
        words::put_bind(&mut message, "bind", &token);
        frame::put(out, frame::TEXT, mask(random), &message);
    }

    /// Takes in what came and removes it from `buffer`; the session, when the client is bound.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Bound>, CallFault> {
        if !self.is_open {
            let Some(length) = opened(buffer)? else {
                return Ok(None);
            };
            buffer.drain(..length);
            self.is_open = true;
        }
        while let Some(first) = frame::first(buffer).map_err(|BadFrame| CallFault::Wire)? {
            let bound = if first.opcode == frame::TEXT {
                bound(&buffer[first.payload.clone()])?
            } else if first.opcode == frame::CLOSE {
                return Err(CallFault::Ended);
            } else {
                None
            };
            buffer.drain(..first.payload.end);
            if bound.is_some() {
                return Ok(bound);
            }
        }
        Ok(None)
    }
}

/// Length of the answer's head, when it is whole and opens the WebSocket.
fn opened(buffer: &[u8]) -> Result<Option<usize>, CallFault> {
    let mut storage = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut answer = httparse::Response::new(&mut storage);
    let length = match answer.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if buffer.len() <= HEAD_BYTES_MAX => return Ok(None),
        _ => return Err(CallFault::Wire),
    };
    let status = answer.code.unwrap_or_default();
    if status != 101 {
        return Err(CallFault::Status(status));
    }
    let is_accepted = answer.headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("sec-websocket-accept") && header.value == ACCEPT
    });
    is_accepted.then_some(Some(length)).ok_or(CallFault::Wire)
}

fn bound(text: &[u8]) -> Result<Option<Bound>, CallFault> {
    let message: words::Message<'_> = serde_json::from_slice(text).map_err(|_| CallFault::Wire)?;
    match (&*message.kind, message.session) {
        ("bound", Some(session)) => Ok(Some(Bound {
            session: session.id.into_owned(),
            generation: session.generation,
        })),
        ("error", _) => Err(CallFault::Bind(reason(message.code.as_deref()))),
        _ => Ok(None),
    }
}

/// Why a bind was refused (connection-gateway.md 2.6), in words that say what to look at.
fn reason(code: Option<&str>) -> &'static str {
    let code = code.unwrap_or_default();
    match code.strip_prefix("connection_gateway.").unwrap_or(code) {
        "invalid_token" => "its token is not valid: is the secret the gateway's JWT_SECRET?",
        "token_expired" => "its token is over: do the clocks agree?",
        "capability_denied" => "its token does not allow it",
        "session_already_bound" => "its source is bound already",
        "resource_limit_exceeded" => "a limit of the gateway is reached",
        "draining" => "the gateway ends",
        _ => "the gateway gave another reason",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    fn answer(head: &str, messages: &[&str]) -> Vec<u8> {
        let mut bytes = head.as_bytes().to_vec();
        for message in messages {
            bytes.extend_from_slice(&[0x81, u8::try_from(message.len()).unwrap()]);
            bytes.extend_from_slice(message.as_bytes());
        }
        bytes
    }

    /// Byte by byte, as a slow connection would have it.
    fn greet(bytes: &[u8]) -> Result<Option<Bound>, CallFault> {
        let (mut greeting, mut buffer) = (Greeting::default(), Vec::new());
        for byte in bytes {
            buffer.push(*byte);
            if let Some(bound) = greeting.take(&mut buffer)? {
                return Ok(Some(bound));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_client_is_bound_however_the_bytes_come() {
        let bound = r#"{"type":"bound","session":{"id":"abc","generation":2,"x":[1]}}"#;
        let bytes = answer(HEAD, &[r#"{"type":"heartbeat","ts":1}"#, bound]);
        let bound = greet(&bytes).unwrap().unwrap();
        assert_eq!((&*bound.session, bound.generation), ("abc", 2));
        assert_eq!(greet(&bytes[..bytes.len() - 1]), Ok(None));
    }

    #[test]
    fn a_refusal_says_why() {
        let error = r#"{"type":"error","code":"connection_gateway.token_expired","message":"x"}"#;
        let fault = greet(&answer(HEAD, &[error])).unwrap_err();
        assert!(fault.to_string().contains("clocks"), "{fault}");
        let busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n";
        assert_eq!(greet(busy.as_bytes()), Err(CallFault::Status(503)));
        let strange = HEAD.replace("s3pP", "s3pQ");
        assert_eq!(greet(strange.as_bytes()), Err(CallFault::Wire));
        let mut ended = HEAD.as_bytes().to_vec();
        ended.extend_from_slice(&[0x88, 0]);
        assert_eq!(greet(&ended), Err(CallFault::Ended));
    }
}
