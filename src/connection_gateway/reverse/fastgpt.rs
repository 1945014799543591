//! MCP in envelopes (connection-gateway.md 10): one message, one envelope. Pure.
//!
//! To the server each message is a `request` with an id of the gateway's own; from it a message is
//! the payload of a `response` or an `event`, or the data of a `stream`.

use super::MCP;
use crate::connection_gateway::{
    envelope::{Envelope, Kind},
    json,
    session::Session,
};

/// Appends an envelope with a message for the session's server; `number` makes its request id one
/// of a kind.
pub(in crate::connection_gateway) fn write(
    out: &mut Vec<u8>,
    session: &Session,
    number: u64,
    message: &[u8],
    now_ms: u64,
) {
    let mut payload = br#"{"kind":"mcp.message","message":"#.to_vec();
    payload.extend_from_slice(message);
    payload.push(b'}');
    // A message that is no text would be no JSON either.
    let payload = String::from_utf8(payload).unwrap_or_default();
    let request_id = format!("mcp-{}-{number}", session.id.as_str());
    Envelope {
        session_id: session.id.as_str().into(),
        generation: session.generation,
        request_id: Some(request_id.into()),
        kind: Kind::Request,
        consumer_type: (&*session.claims.consumer_type).into(),
        capability: Some(MCP.into()),
        trace_id: None,
        payload: Some(&payload),
        created_at: now_ms,
    }
    .write(out);
}

/// The message in an envelope: `message` of the payload, or `data` of a stream, which is the
/// message itself or has one.
pub fn message_of<'a>(envelope: &Envelope<'a>) -> Option<&'a str> {
    let object = |raw: Option<&'a str>| raw.filter(|raw| json::is_object(raw));
    let [message, data] = json::members(envelope.payload?, ["message", "data"])?;
    if let Some(message) = object(message) {
        return Some(message);
    }
    let data = object(data)?;
    let [version, message] = json::members(data, ["jsonrpc", "message"])?;
    match version {
        Some(_) => Some(data),
        None => object(message),
    }
}

/// Whether an envelope only says that a stream is over.
pub fn is_empty_end(envelope: &Envelope<'_>) -> bool {
    envelope.kind == Kind::Stream && envelope.is_terminal()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn envelope(kind: Kind, payload: Option<&str>) -> Envelope<'_> {
        Envelope {
            session_id: "s".into(),
            generation: 0,
            request_id: Some("r".into()),
            kind,
            consumer_type: "mcp".into(),
            capability: None,
            trace_id: None,
            payload,
            created_at: 1,
        }
    }

    #[test]
    fn a_message_is_found_in_every_shape_of_payload() {
        let message = r#"{"jsonrpc":"2.0","id":1.0,"result":{}}"#;
        for (kind, payload) in [
            (Kind::Response, r#"{"kind":"mcp.message","message":M}"#),
            (Kind::Event, r#"{"message":M}"#),
            (Kind::Stream, r#"{"event":"chunk","data":M}"#),
            (
                Kind::Stream,
                r#"{"event":"end","data":{"kind":"mcp.message","message":M}}"#,
            ),
        ] {
            let payload = payload.replace('M', message);
            let found = message_of(&envelope(kind, Some(&payload)));
            assert_eq!(found, Some(message), "{payload}");
        }
        for payload in [
            None,
            Some("null"),
            Some(r#"{"message":"x"}"#),
            Some(r#"{"data":[]}"#),
            Some(r#"{"data":{"x":1}}"#),
        ] {
            assert_eq!(
                message_of(&envelope(Kind::Response, payload)),
                None,
                "{payload:?}"
            );
        }
        assert!(is_empty_end(&envelope(
            Kind::Stream,
            Some(r#"{"event":"end"}"#)
        )));
        assert!(!is_empty_end(&envelope(Kind::Response, Some("{}"))));
    }

    proptest! {
        #[test]
        fn no_payload_is_too_strange(payload in ".{0,80}") {
            message_of(&envelope(Kind::Stream, Some(&payload)));
        }
    }
}
