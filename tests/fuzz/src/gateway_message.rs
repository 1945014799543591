//! Messages of the connection gateway's clients: whatever is taken is what a reader of the whole
//! document finds, and an envelope that is written anew says the same.

use serde_json::Value;
use shardgate::connection_gateway::{
    envelope::Envelope,
    message::{ClientMessage, has_feature},
};

use super::Verdict;

/// A text of a member, if that is what it is.
fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

fn check_envelope(envelope: &Envelope<'_>, value: &Value) {
    assert_eq!(Some(&*envelope.session_id), text(value, "sessionId"));
    assert_eq!(envelope.request_id.as_deref(), text(value, "requestId"));
    assert_eq!(Some(envelope.kind.word()), text(value, "type"));
    assert_eq!(Some(&*envelope.consumer_type), text(value, "consumerType"));
    assert_eq!(envelope.capability.as_deref(), text(value, "capability"));
    assert_eq!(envelope.trace_id.as_deref(), text(value, "traceId"));
    let number = |name: &str| value[name].as_f64().unwrap();
    assert!(number("generation") >= 0.0 && number("createdAt") >= 1.0);
    assert_eq!(envelope.payload.is_some(), value.get("payload").is_some());
    let mut out = b"before".to_vec();
    envelope.write(&mut out);
    let written = std::str::from_utf8(&out[6..]).unwrap();
    assert!(!written.contains(['\n', '\r']), "not one line");
    let again = Envelope::parse(written).unwrap();
    assert_eq!(again.is_terminal(), envelope.is_terminal());
    // Half of a surrogate pair is passed on, and no reader of ours has it.
    if let (Some(before), Some(after)) = (envelope.payload, again.payload) {
        let value = |raw: &str| serde_json::from_str::<Value>(raw).ok();
        assert_eq!(value(before), value(after));
    }
    let of = |payload| Envelope {
        payload,
        ..again.clone()
    };
    assert_eq!(
        of(None),
        Envelope {
            payload: None,
            ..envelope.clone()
        }
    );
}

/// Reads the bytes as a message.
pub fn check(data: &[u8]) -> Verdict {
    let Ok(document) = std::str::from_utf8(data) else {
        return Verdict::Refused;
    };
    let Ok(message) = ClientMessage::parse(document) else {
        return Verdict::Refused;
    };
    // Deeply nested or with half a surrogate pair: this reader gives up on what only passes.
    let Ok(value) = serde_json::from_str::<Value>(document) else {
        return Verdict::Taken;
    };
    assert_eq!(text(&value, "protocol"), Some("connection-gateway.ws.v1"));
    match message {
        ClientMessage::Bind {
            request_id,
            token,
            metadata,
        } => {
            assert_eq!(text(&value, "type"), Some("bind"));
            assert_eq!(text(&value, "requestId"), Some(&*request_id));
            assert_eq!(text(&value, "token"), Some(&*token));
            assert!(!request_id.is_empty() && !token.is_empty());
            assert_eq!(
                metadata.is_some(),
                value.get("metadata").is_some_and(Value::is_object)
            );
            let _ = has_feature(metadata, "cancel");
        }
        ClientMessage::Envelope(envelope) => check_envelope(&envelope, &value["envelope"]),
        ClientMessage::Heartbeat => {
            assert_eq!(text(&value, "type"), Some("heartbeat"));
            assert!(
                value["ts"]
                    .as_f64()
                    .is_some_and(|ts| ts >= 1.0 && ts.fract() == 0.0)
            );
        }
        ClientMessage::Metadata {
            request_id,
            metadata,
        } => {
            assert_eq!(text(&value, "requestId"), request_id.as_deref());
            assert_eq!(
                serde_json::from_str::<Value>(metadata).ok().as_ref(),
                value.get("metadata")
            );
        }
    }
    Verdict::Taken
}
