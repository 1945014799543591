//! The frames of ContextForge's reverse proxy (connection-gateway.md 10). Pure.
//!
//! A proxy registers its server once and then passes messages on: what has an id as `response`,
//! even what its server asks, all else as `notification`. Whatever the gateway has for the server
//! is a `request`, notifications and answers as well.

use std::borrow::Cow;

use crate::connection_gateway::{envelope::write_number, json};

/// Letters of a server's name, which becomes a part of its source.
const NAME_BYTES_MAX: usize = 256;

/// What a proxy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Its server, by this name.
    Register(Cow<'a, str>),
    /// Its server is no longer to be had.
    Unregister,
    /// Its server is well.
    Heartbeat,
    /// A message of its server.
    Message(&'a str),
}

/// A text that is no frame: why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFrame(pub &'static str);

impl<'a> Frame<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &'a str) -> Result<Self, NoFrame> {
        let found = json::members(text, ["type", "server", "payload"]);
        let [kind, server, payload] = found.ok_or(NoFrame("not a JSON object"))?;
        match kind.and_then(json::text).as_deref() {
            Some("register") => server
                .and_then(|server| json::members(server, ["name"]))
                .and_then(|[name]| json::text(name?))
                .filter(|name| is_name(name))
                .map(Self::Register)
                .ok_or(NoFrame(
                    "the server's name is missing, too long or has a colon",
                )),
            Some("unregister") => Ok(Self::Unregister),
            Some("heartbeat") => Ok(Self::Heartbeat),
            Some("response" | "notification") => payload
                .filter(|raw| json::is_object(raw))
                .map(Self::Message)
                .ok_or(NoFrame("the payload is no object")),
            _ => Err(NoFrame("unknown type")),
        }
    }
}

/// Whether a text can name a server in its source, behind its subject: what is before the last
/// colon is then always the subject, so nobody can speak in the name of somebody else.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name
            .chars()
            .any(|letter| letter.is_control() || letter == ':')
}

fn begin(out: &mut Vec<u8>, kind: &str, session_id: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"sessionId\":");
    json::write_text(out, session_id);
}

/// Appends that a registration has arrived.
pub fn write_ack(out: &mut Vec<u8>, session_id: &str) {
    begin(out, "register_ack", session_id);
    out.extend_from_slice(br#","status":"accepted"}"#);
}

/// Appends how it ended; with a reason when it failed.
pub fn write_complete(out: &mut Vec<u8>, session_id: &str, failure: Option<&str>) {
    begin(out, "register_complete", session_id);
    match failure {
        None => out.extend_from_slice(br#","status":"success"}"#),
        Some(reason) => {
            out.extend_from_slice(br#","status":"error","message":"#);
            json::write_text(out, reason);
            out.push(b'}');
        }
    }
}

/// Appends a message for the server.
pub fn write_request(out: &mut Vec<u8>, session_id: &str, message: &[u8]) {
    begin(out, "request", session_id);
    out.extend_from_slice(b",\"payload\":");
    out.extend_from_slice(message);
    out.push(b'}');
}

/// Appends the answer to a heartbeat.
pub fn write_heartbeat(out: &mut Vec<u8>, session_id: &str, now_ms: u64) {
    begin(out, "heartbeat", session_id);
    out.extend_from_slice(b",\"timestamp\":");
    write_number(out, now_ms);
    out.push(b'}');
}

/// Appends an error.
pub fn write_error(out: &mut Vec<u8>, message: &str) {
    out.extend_from_slice(br#"{"type":"error","message":"#);
    json::write_text(out, message);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_frame_is_understood() {
        for (text, wanted) in [
            (
                r#"{"type":"register","sessionId":"x","server":{"name":"files","protocol":"mcp"}}"#,
                Ok(Frame::Register("files".into())),
            ),
            (
                r#"{"type":"unregister","sessionId":"x"}"#,
                Ok(Frame::Unregister),
            ),
            (
                r#"{"sessionId":"x","type":"heartbeat"}"#,
                Ok(Frame::Heartbeat),
            ),
            (
                r#"{"type":"response","payload":{"id":1.0}}"#,
                Ok(Frame::Message(r#"{"id":1.0}"#)),
            ),
            (
                r#"{"type":"notification","payload":{"method":"x"}}"#,
                Ok(Frame::Message(r#"{"method":"x"}"#)),
            ),
            (
                r#"{"type":"request","payload":{}}"#,
                Err(NoFrame("unknown type")),
            ),
            ("[]", Err(NoFrame("not a JSON object"))),
            (
                r#"{"type":"response","payload":"x"}"#,
                Err(NoFrame("the payload is no object")),
            ),
        ] {
            assert_eq!(Frame::parse(text), wanted, "{text}");
        }
        for name in [
            "\"\"",
            "\"a\\n\"",
            "\"a:b\"",
            "1",
            &format!("\"{}\"", "x".repeat(257)),
        ] {
            let text = format!(r#"{{"type":"register","server":{{"name":{name}}}}}"#);
            assert!(Frame::parse(&text).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_written_is_json() {
        let read = |write: &dyn Fn(&mut Vec<u8>)| -> Value {
            let mut out = Vec::new();
            write(&mut out);
            serde_json::from_slice(&out).unwrap()
        };
        let found = read(&|out| write_request(out, "s", br#"{"a":1}"#));
        let wanted = json!({"type": "request", "sessionId": "s", "payload": {"a": 1}});
        assert_eq!(found, wanted);
        let found = read(&|out| write_complete(out, "s", Some("no\"")));
        assert_eq!(
            (&found["status"], &found["message"]),
            (&json!("error"), &json!("no\""))
        );
        assert_eq!(
            read(&|out| write_complete(out, "s", None))["status"],
            "success"
        );
        assert_eq!(read(&|out| write_ack(out, "s"))["type"], "register_ack");
        assert_eq!(read(&|out| write_heartbeat(out, "s", 5))["timestamp"], 5);
        assert_eq!(read(&|out| write_error(out, "e"))["message"], "e");
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in ".{0,80}") {
            let _ = Frame::parse(&text);
        }
    }
}
