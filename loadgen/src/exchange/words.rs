//! The messages of a WebSocket and the envelopes in them (connection-gateway.md 2.3 to 2.5, 7).

use std::{borrow::Cow, io::Write};

use serde::Deserialize;
use serde_json::Value;

use super::token::CONSUMER;

/// Appends `bind`.
pub(super) fn put_bind(out: &mut Vec<u8>, request_id: &str, token: &str) {
    put(
        out,
        format_args!(
            concat!(
                r#"{{"protocol":"connection-gateway.ws.v1","type":"bind","requestId":{},"#,
                r#""token":{},"metadata":{{"client":"loadgen"}}}}"#
            ),
            Value::from(request_id),
            Value::from(token)
        ),
    );
}

/// Appends `heartbeat`.
pub(super) fn put_heartbeat(out: &mut Vec<u8>, now_ms: u64) {
    put(
        out,
        format_args!(
            r#"{{"protocol":"connection-gateway.ws.v1","type":"heartbeat","ts":{now_ms}}}"#
        ),
    );
}

/// What an envelope says of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) session: &'a str,
    pub(super) generation: u64,
    pub(super) request_id: &'a str,
    pub(super) kind: &'a str,
    pub(super) now_ms: u64,
}

impl Envelope<'_> {
    /// Appends it; `put_payload` appends its payload.
    pub(super) fn put(self, out: &mut Vec<u8>, put_payload: impl FnOnce(&mut Vec<u8>)) {
        put(
            out,
            format_args!(
                concat!(
                    r#"{{"protocol":"connection-gateway.v1","sessionId":"{}","generation":{},"#,
                    r#""requestId":"{}","type":"{}","consumerType":"{}","#,
                    r#""capability":"invoke","payload":"#
                ),
                self.session, self.generation, self.request_id, self.kind, CONSUMER
            ),
        );
        put_payload(out);
        put(out, format_args!(r#","createdAt":{}}}"#, self.now_ms));
    }
}

/// Appends text to bytes, which cannot fail.
pub(super) fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// A message of the gateway.
#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) session: Option<Session<'a>>,
    #[serde(borrow)]
    pub(super) envelope: Option<Heard<'a>>,
    #[serde(borrow)]
    pub(super) code: Option<Cow<'a, str>>,
}

/// The session of a `bound`, as far as it is needed.
#[derive(Debug, Deserialize)]
pub(super) struct Session<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    pub(super) generation: u64,
}

/// An envelope that came, as far as it is needed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Heard<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) request_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) payload: Option<Payload<'a>>,
}

/// Its payload, as far as it is needed.
#[derive(Debug, Deserialize)]
pub(super) struct Payload<'a> {
    #[serde(borrow)]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) event: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) data: Option<Part<'a>>,
}

/// A part of an answer.
#[derive(Debug, Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) data: Option<Content<'a>>,
}

/// Its text.
#[derive(Debug, Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Cow<'a, str>>,
}
