//! The envelope: what travels between a caller and a client, and all that is read of it.
//!
//! It is written anew in the contract's order, without members nobody knows; the payload keeps its
//! bytes.

use std::borrow::Cow;

use super::{json, session_id::SessionId, token::is_word};

/// `protocol` of every envelope.
pub const PROTOCOL: &str = "connection-gateway.v1";

/// The names of an envelope's members, in the order they are written.
pub(super) const MEMBERS: [&str; 10] = [
    "protocol",
    "sessionId",
    "generation",
    "requestId",
    "type",
    "consumerType",
    "capability",
    "traceId",
    "payload",
    "createdAt",
];

/// What an envelope is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Asks the client.
    Request,
    /// Answers.
    Response,
    /// Tells.
    Event,
    /// A part of an answer.
    Stream,
}

impl Kind {
    /// Its word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Event => "event",
            Self::Stream => "stream",
        }
    }

    /// The kind with this word.
    pub(super) fn of(word: &str) -> Option<Self> {
        [Self::Request, Self::Response, Self::Event, Self::Stream]
            .into_iter()
            .find(|kind| kind.word() == word)
    }
}

/// One envelope, as spans of the text it was read from where that can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The session it belongs to.
    pub session_id: Cow<'a, str>,
    /// The session's generation.
    pub generation: u64,
    /// Which request it is, or answers.
    pub request_id: Option<Cow<'a, str>>,
    /// What it is.
    pub kind: Kind,
    /// The session's kind of consumer.
    pub consumer_type: Cow<'a, str>,
    /// The capability it makes use of.
    pub capability: Option<Cow<'a, str>>,
    /// For tracing; may be empty.
    pub trace_id: Option<Cow<'a, str>>,
    /// JSON, as it came.
    pub payload: Option<&'a str>,
    /// When it was made, ms since 1970.
    pub created_at: u64,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope; `None` when it breaks its schema.
    pub fn parse(text: &'a str) -> Option<Self> {
        Self::of(json::members(text, MEMBERS)?)
    }

    /// Puts one together from the members of [`MEMBERS`].
    pub(super) fn of(found: [Option<&'a str>; MEMBERS.len()]) -> Option<Self> {
        let [
            protocol,
            session_id,
            generation,
            request_id,
            kind,
            consumer_type,
            capability,
            trace_id,
            payload,
            created_at,
        ] = found;
        if !json::is_text(protocol?, PROTOCOL) {
            return None;
        }
        // Absent is fine, present must be right.
        let optional = |raw: Option<&'a str>, is_right: fn(&str) -> bool| match raw {
            None => Some(None),
            Some(raw) => json::text(raw).filter(|text| is_right(text)).map(Some),
        };
        Some(Self {
            session_id: json::text(session_id?).filter(|text| !text.is_empty())?,
            generation: json::integer(generation?, 0)?,
            request_id: optional(request_id, |text| !text.is_empty())?,
            kind: Kind::of(&json::text(kind?)?)?,
            consumer_type: json::text(consumer_type?).filter(|text| is_word(text))?,
            capability: optional(capability, is_word)?,
            trace_id: optional(trace_id, |_| true)?,
            payload,
            created_at: json::integer(created_at?, 1)?,
        })
    }

    /// Appends it on one line.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"protocol":"connection-gateway.v1","sessionId":"#);
        json::write_text(out, &self.session_id);
        out.extend_from_slice(br#","generation":"#);
        write_number(out, self.generation);
        if let Some(request_id) = &self.request_id {
            out.extend_from_slice(br#","requestId":"#);
            json::write_text(out, request_id);
        }
        out.extend_from_slice(br#","type":""#);
        out.extend_from_slice(self.kind.word().as_bytes());
        out.extend_from_slice(br#"","consumerType":"#);
        json::write_text(out, &self.consumer_type);
        for (name, text) in [
            (&br#","capability":"#[..], &self.capability),
            (br#","traceId":"#, &self.trace_id),
        ] {
            if let Some(text) = text {
                out.extend_from_slice(name);
                json::write_text(out, text);
            }
        }
        if let Some(payload) = self.payload {
            out.extend_from_slice(br#","payload":"#);
            json::write_value(out, payload);
        }
        out.extend_from_slice(br#","createdAt":"#);
        write_number(out, self.created_at);
        out.push(b'}');
    }

    /// Whether it is the last one that answers its request.
    pub fn is_terminal(&self) -> bool {
        let member = |name| {
            let payload = self.payload?;
            let [raw] = json::members(payload, [name])?;
            raw
        };
        let is = |raw: Option<&str>, word| raw.is_some_and(|raw| json::is_text(raw, word));
        match self.kind {
            Kind::Response => !is(member("kind"), "plugin-debug.accepted"),
            Kind::Stream => {
                let event = member("event");
                is(event, "end") || is(event, "error")
            }
            Kind::Request | Kind::Event => false,
        }
    }
}

/// The line that ends a request which failed, understood by the plugin server: of a session with
/// its generation and kind of consumer, for a request with its capability.
pub(super) fn failure_line(
    (session, generation, consumer_type): (SessionId, u64, &str),
    (request_id, capability): (&str, Option<&str>),
    reason: &str,
    now_unix_ms: u64,
) -> Vec<u8> {
    let mut payload = br#"{"kind":"plugin-debug.stream","event":"error","message":"#.to_vec();
    json::write_text(&mut payload, reason);
    payload.push(b'}');
    let payload = String::from_utf8(payload).unwrap_or_default();
    let mut line = Vec::with_capacity(256);
    Envelope {
        session_id: Cow::Borrowed(session.as_str()),
        generation,
        request_id: Some(Cow::Borrowed(request_id)),
        kind: Kind::Stream,
        consumer_type: Cow::Borrowed(consumer_type),
        capability: capability.map(Cow::Borrowed),
        trace_id: None,
        payload: Some(&payload),
        created_at: now_unix_ms,
    }
    .write(&mut line);
    line
}

pub(super) fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(crate::http::Decimal::new(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: &str = r#"{"protocol":"connection-gateway.v1","sessionId":"s","generation":0,"requestId":"r","type":"stream","consumerType":"plugin-debug","capability":"invoke","traceId":"","payload":{"n":1.50,"2":1,"1":12345678901234567890,"x":"\ud800"},"createdAt":1796011801930}"#;

    fn rewritten(text: &str) -> Option<String> {
        let mut out = Vec::new();
        Envelope::parse(text)?.write(&mut out);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_payload_keeps_its_bytes_and_the_rest_its_order() {
        assert_eq!(rewritten(WHOLE).as_deref(), Some(WHOLE));
        let mixed = r#" {"createdAt":1.0,"unknown":[{}],"type":"event","generation":3,
            "sessionId":"s","consumerType":"c","protocol":"connection-gateway.v1","payload":null} "#;
        let wanted = r#"{"protocol":"connection-gateway.v1","sessionId":"s","generation":3,"type":"event","consumerType":"c","payload":null,"createdAt":1}"#;
        assert_eq!(rewritten(mixed).as_deref(), Some(wanted));
    }

    #[test]
    fn what_breaks_the_schema_is_no_envelope() {
        for (from, to) in [
            ("connection-gateway.v1", "connection-gateway.v2"),
            ("\"sessionId\":\"s\"", "\"sessionId\":\"\""),
            ("\"generation\":0", "\"generation\":-1"),
            ("\"generation\":0", "\"generation\":\"0\""),
            ("\"requestId\":\"r\"", "\"requestId\":\"\""),
            ("\"requestId\":\"r\"", "\"requestId\":null"),
            ("\"type\":\"stream\"", "\"type\":\"other\""),
            ("\"type\":\"stream\",", ""),
            ("plugin-debug", ""),
            ("\"capability\":\"invoke\"", "\"capability\":\"\""),
            ("\"traceId\":\"\"", "\"traceId\":1"),
            ("1796011801930", "0"),
        ] {
            let text = WHOLE.replacen(from, to, 1);
            assert_eq!(Envelope::parse(&text), None, "{text}");
        }
        assert_eq!(Envelope::parse("[]"), None);
    }

    #[test]
    fn what_ends_an_answer_is_what_the_contract_says() {
        for (kind, payload, wanted) in [
            ("response", None, true),
            ("response", Some("null"), true),
            ("response", Some("[]"), true),
            ("response", Some("\"plugin-debug.accepted\""), true),
            ("response", Some(r#"{"kind":"plugin-debug.error"}"#), true),
            (
                "response",
                Some(r#"{"kind":"plugin-debug.accepted"}"#),
                false,
            ),
            (
                "response",
                Some(r#"{"kind":"plugin-debug\u002eaccepted"}"#),
                false,
            ),
            ("stream", Some(r#"{"kind":"any","event":"end"}"#), true),
            ("stream", Some(r#"{"event":"error"}"#), true),
            ("stream", Some(r#"{"event":"chunk","event":"end"}"#), true),
            ("stream", Some(r#"{"event":"chunk"}"#), false),
            ("stream", Some("\"end\""), false),
            ("stream", None, false),
            ("event", Some(r#"{"event":"end"}"#), false),
            ("request", None, false),
        ] {
            let mut envelope = Envelope::parse(WHOLE).unwrap();
            envelope.kind = Kind::of(kind).unwrap();
            envelope.payload = payload;
            assert_eq!(envelope.is_terminal(), wanted, "{kind} {payload:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(
            texts in proptest::array::uniform4("[^\\x00-\\x08]{1,20}"),
            generation in 0..json::INTEGER_MAX,
            payload in proptest::option::of("[\\x20-\\x7e]*"),
        ) {
            let [session_id, request_id, consumer_type, trace_id] = texts;
            let payload = payload.map(|text| {
                let value = serde_json::json!({"text": text, "list": [1, null, {}]});
                serde_json::to_string_pretty(&value).unwrap()
            });
            let envelope = Envelope {
                session_id: session_id.into(),
                generation,
                request_id: Some(request_id.into()),
                kind: Kind::Event,
                consumer_type: consumer_type.into(),
                capability: None,
                trace_id: Some(trace_id.into()),
                payload: payload.as_deref(),
                created_at: 1,
            };
            let mut out = Vec::new();
            envelope.write(&mut out);
            prop_assert!(!out.contains(&b'\n'));
            let text = String::from_utf8(out).unwrap();
            let again = Envelope::parse(&text).unwrap();
            let value = |raw: Option<&str>| {
                raw.map(|raw| serde_json::from_str::<serde_json::Value>(raw).unwrap())
            };
            prop_assert_eq!(value(again.payload), value(envelope.payload));
            prop_assert_eq!(Envelope { payload: None, ..again }, Envelope { payload: None, ..envelope });
        }
    }
}
