//! The four messages of a client and the four of the gateway, as JSON texts of a WebSocket.
//!
//! The real client ends at a `type` it does not know, so nothing else is ever sent but to those who
//! said that they understand it.

use std::borrow::Cow;

use super::{
    envelope::{Envelope, write_number},
    fault::Fault,
    json,
};

/// `protocol` of every message.
pub const PROTOCOL: &str = "connection-gateway.ws.v1";

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// Wants a session.
    Bind {
        /// Comes back with the answer.
        request_id: Cow<'a, str>,
        /// Says who may.
        token: Cow<'a, str>,
        /// JSON object for whoever asks about the session.
        metadata: Option<&'a str>,
    },
    /// Something for a caller.
    Envelope(Envelope<'a>),
    /// Is still there.
    Heartbeat,
    /// Other metadata, in the place of the old.
    Metadata {
        /// Comes back with an error.
        request_id: Option<Cow<'a, str>>,
        /// JSON object.
        metadata: &'a str,
    },
}

/// A text that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoMessage {
    /// The request id in it, if one can be read.
    pub request_id: Option<String>,
    /// What is wrong.
    pub reason: &'static str,
}

impl<'a> ClientMessage<'a> {
    /// Reads a message.
    pub fn parse(text: &'a str) -> Result<Self, NoMessage> {
        let names = [
            "protocol",
            "type",
            "requestId",
            "token",
            "metadata",
            "envelope",
            "ts",
        ];
        let wrong = |reason| NoMessage {
            request_id: None,
            reason,
        };
        let Some(found) = json::members(text, names) else {
            return Err(wrong("not a JSON object"));
        };
        let [protocol, kind, request_id, token, metadata, envelope, ts] = found;
        let filled =
            |raw: Option<&'a str>| raw.and_then(json::text).filter(|text| !text.is_empty());
        let wrong = |reason| NoMessage {
            request_id: filled(request_id)
                .or_else(|| {
                    let [inner] = json::members(envelope?, ["requestId"])?;
                    filled(inner)
                })
                .map(Cow::into_owned),
            reason,
        };
        if !protocol.is_some_and(|raw| json::is_text(raw, PROTOCOL)) {
            return Err(wrong("unknown protocol"));
        }
        let object = metadata.filter(|raw| json::is_object(raw));
        match kind.and_then(json::text).as_deref() {
            Some("bind") => match (filled(request_id), filled(token)) {
                (Some(request_id), Some(token)) if metadata.is_none() == object.is_none() => {
                    Ok(Self::Bind {
                        request_id,
                        token,
                        metadata: object,
                    })
                }
                _ => Err(wrong("not a bind message")),
            },
            Some("envelope") => envelope
                .and_then(Envelope::parse)
                .map(Self::Envelope)
                .ok_or_else(|| wrong("not an envelope")),
            Some("heartbeat") => ts
                .and_then(|raw| json::integer(raw, 1))
                .map(|_| Self::Heartbeat)
                .ok_or_else(|| wrong("not a heartbeat")),
            Some("metadata") => match (object, request_id, filled(request_id)) {
                (Some(metadata), None, request_id) | (Some(metadata), _, request_id @ Some(_)) => {
                    Ok(Self::Metadata {
                        request_id,
                        metadata,
                    })
                }
                _ => Err(wrong("not a metadata message")),
            },
            _ => Err(wrong("unknown type")),
        }
    }
}

/// Whether metadata says that its client understands a message that others do not know:
/// `{"gateway":{"features":["cancel"]}}`.
pub fn has_feature(metadata: Option<&str>, feature: &str) -> bool {
    let features = metadata
        .and_then(|raw| json::members(raw, ["gateway"]))
        .and_then(|[gateway]| json::members(gateway?, ["features"]))
        .and_then(|[features]| serde_json::from_str::<Vec<String>>(features?).ok());
    features.is_some_and(|features| features.iter().any(|known| known == feature))
}

fn begin(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(br#"{"protocol":"connection-gateway.ws.v1","type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
}

fn write_request_id(out: &mut Vec<u8>, request_id: Option<&str>) {
    if let Some(request_id) = request_id {
        out.extend_from_slice(br#","requestId":"#);
        json::write_text(out, request_id);
    }
}

/// Appends `bound`; `session` appends the session.
pub(super) fn write_bound(out: &mut Vec<u8>, request_id: &str, session: impl FnOnce(&mut Vec<u8>)) {
    begin(out, "bound");
    write_request_id(out, Some(request_id));
    out.extend_from_slice(br#","session":"#);
    session(out);
    out.push(b'}');
}

/// Appends `envelope`, whose envelope is written already.
pub(super) fn write_envelope(out: &mut Vec<u8>, envelope: &[u8]) {
    begin(out, "envelope");
    out.extend_from_slice(br#","envelope":"#);
    out.extend_from_slice(envelope);
    out.push(b'}');
}

/// Appends `heartbeat`.
pub(super) fn write_heartbeat(out: &mut Vec<u8>, now_ms: u64) {
    begin(out, "heartbeat");
    out.extend_from_slice(br#","ts":"#);
    write_number(out, now_ms);
    out.push(b'}');
}

/// Appends `error`.
pub(super) fn write_error(out: &mut Vec<u8>, request_id: Option<&str>, fault: &Fault) {
    begin(out, "error");
    write_request_id(out, request_id);
    out.extend_from_slice(br#","code":"#);
    json::write_text(out, fault.code());
    out.extend_from_slice(br#","message":"#);
    json::write_text(out, &fault.message());
    out.push(b'}');
}

/// Appends `cancel`, for clients with that feature alone: nobody waits for the answer any more.
pub(super) fn write_cancel(out: &mut Vec<u8>, request_id: &str) {
    begin(out, "cancel");
    write_request_id(out, Some(request_id));
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(rest: &str) -> String {
        format!(r#"{{"protocol":"connection-gateway.ws.v1",{rest}}}"#)
    }

    fn verdict(rest: &str) -> Result<(), NoMessage> {
        ClientMessage::parse(&message(rest)).map(drop)
    }

    #[test]
    fn each_message_is_understood_and_keys_nobody_knows_are_let_be() {
        let text =
            message(r#""type":"bind","requestId":"b","token":"t","metadata":{"a":1.50},"x":1"#);
        let wanted = ClientMessage::Bind {
            request_id: "b".into(),
            token: "t".into(),
            metadata: Some(r#"{"a":1.50}"#),
        };
        assert_eq!(ClientMessage::parse(&text), Ok(wanted));
        assert_eq!(
            verdict(r#""type":"bind","requestId":"b","token":"t""#),
            Ok(())
        );
        // Members of other messages are unknown keys here.
        assert_eq!(
            verdict(r#""type":"heartbeat","ts":1,"envelope":5,"metadata":[]"#),
            Ok(())
        );
        let text = message(r#""type":"metadata","metadata":{}"#);
        assert!(matches!(
            ClientMessage::parse(&text),
            Ok(ClientMessage::Metadata {
                request_id: None,
                metadata: "{}"
            })
        ));
    }

    #[test]
    fn what_breaks_its_schema_is_no_message_and_its_request_id_is_told() {
        for (rest, request_id) in [
            (r#""type":"bind","requestId":"b","token":"""#, Some("b")),
            (r#""type":"bind","token":"t""#, None),
            (r#""type":"bind","requestId":"","token":"t""#, None),
            (
                r#""type":"bind","requestId":"b","token":"t","metadata":[]"#,
                Some("b"),
            ),
            (r#""type":"heartbeat","ts":0"#, None),
            (r#""type":"heartbeat","ts":1.5"#, None),
            (
                r#""type":"metadata","requestId":"m","metadata":1"#,
                Some("m"),
            ),
            (r#""type":"metadata","requestId":1,"metadata":{}"#, None),
            (
                r#""type":"envelope","envelope":{"requestId":"r"}"#,
                Some("r"),
            ),
            (r#""type":"nothing""#, None),
        ] {
            let fault = verdict(rest).unwrap_err();
            assert_eq!(fault.request_id.as_deref(), request_id, "{rest}");
        }
        let other = r#"{"protocol":"connection-gateway.ws.v2","type":"heartbeat","ts":1}"#;
        assert!(ClientMessage::parse(other).is_err());
        for text in ["", "[]", "x", "{}"] {
            assert!(ClientMessage::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn features_are_named_in_the_metadata() {
        let metadata = r#"{"gateway":{"features":["x","cancel"]}}"#;
        assert!(has_feature(Some(metadata), "cancel"));
        for without in [
            None,
            Some("{}"),
            Some(r#"{"gateway":{"features":"cancel"}}"#),
        ] {
            assert!(!has_feature(without, "cancel"));
        }
    }

    #[test]
    fn messages_of_the_gateway_are_byte_for_byte_those_of_the_contract() {
        let mut out = Vec::new();
        write_error(&mut out, Some("b"), &Fault::InvalidToken);
        out.push(b'\n');
        write_error(&mut out, None, &Fault::Unbound);
        out.push(b'\n');
        write_heartbeat(&mut out, 1_796_012_822_367);
        let wanted = r#"{"protocol":"connection-gateway.ws.v1","type":"error","requestId":"b","code":"connection_gateway.invalid_token","message":"Invalid connection token"}
{"protocol":"connection-gateway.ws.v1","type":"error","code":"connection_gateway.unbound","message":"Gateway WebSocket connection is not bound"}
{"protocol":"connection-gateway.ws.v1","type":"heartbeat","ts":1796012822367}"#;
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
