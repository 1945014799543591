//! What a request asks for, and its reply: the JSON-RPC half of the backend.

use std::{
    borrow::Cow,
    cell::RefCell,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    BackendOptions, ErrorKind, ReplyKind,
    answer::{Asked, progress, write_error, write_json, write_plain, write_reply},
    conduct::Conduct,
    extras::Extras,
    request::{Method, REVISIONS, Request},
    session::{Session, Sessions, SharedSessions},
    stateless, stream,
    tools::Tools,
};
use crate::era::Era;

pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
/// The code that TypeScript servers use for a request they cannot place (mcp.md 1.2).
const BAD_REQUEST: i32 = -32000;
/// The same for an unknown session.
const UNKNOWN_SESSION: i32 = -32001;

/// A message as far as the backend reads it.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    /// Reads one; else the code and the words of what is wrong with it.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, (i32, &'static str)> {
        const INVALID: (i32, &str) = (INVALID_REQUEST, "Invalid Request");
        let message: Self =
            serde_json::from_slice(body).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => INVALID,
                _ => (PARSE_ERROR, "Parse error"),
            })?;
        let is_id = |raw: &RawValue| {
            raw.get()
                .starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
        };
        if message.jsonrpc.as_deref() != Some("2.0") || !message.id.is_none_or(is_id) {
            return Err(INVALID);
        }
        Ok(message)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeParams<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
}

/// Parameters as far as the backend reads them before it knows the method.
#[derive(Deserialize)]
pub(super) struct Params<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) uri: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub(super) meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    pub(super) version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(super) capabilities: Option<&'a RawValue>,
}

/// How a request was dealt with; its reply is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    /// It was a `tools/call`.
    Called,
    /// It was a `tools/call` whose reply must wait that long.
    CalledAfter(Duration),
    /// It was a GET, whose reply goes on as a stream.
    Streams,
}

/// One shard's answers.
pub(super) struct Dispatcher {
    pub(super) options: Arc<BackendOptions>,
    sessions: Sessions,
    tools: Tools,
    extras: Extras,
    conduct: Conduct,
    /// Where reply bodies are composed before their length is known.
    body: RefCell<Vec<u8>>,
    /// What `server/discover` gives, all but what every result says.
    discovered: Vec<u8>,
}

impl Dispatcher {
    pub(super) fn new(
        options: &Arc<BackendOptions>,
        shared: SharedSessions,
        started_at: Instant,
        shard: u16,
    ) -> Self {
        let extras = Extras::new(options.resource_count, options.prompt_count);
        Self {
            discovered: stateless::discovered(options, &extras),
            tools: Tools::new(options.kind, options.tool_count, options.payload_bytes)
                .with_fault(options.counter_fault),
            extras,
            conduct: Conduct::new(started_at, options.seed, shard),
            options: options.clone(),
            sessions: Sessions::new(shared),
            body: RefCell::default(),
        }
    }

    /// How long nothing may be sent just now.
    pub(super) fn stall_left(&self) -> Duration {
        self.conduct.stall_left(&self.options)
    }

    /// Time between the events of a GET stream.
    pub(super) fn stream_interval(&self) -> Duration {
        self.options.stream_interval.unwrap_or_default()
    }

    /// Appends the reply to `request` to `out`.
    pub(super) fn answer(&self, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
        if request.is_stateless && self.options.era != Some(Era::Legacy) {
            return stateless::answer(self, request, out);
        }
        if request.is_stateless || self.options.era == Some(Era::Stateless) {
            // Each in the words of a server that knows the other era not at all.
            stateless::refuse_era(self, request, out);
            return Outcome::Answered;
        }
        match request.method {
            Method::Post => return self.post(request, out),
            Method::Get if self.options.stream_interval.is_none() => {
                write_plain(out, "405 Method Not Allowed\r\nallow: POST, DELETE", true);
            }
            Method::Get => match request.session {
                None => self.refuse(out, "400 Bad Request", "null", BAD_REQUEST, NO_SESSION),
                Some(id) if self.sessions.find(id).is_some() => {
                    stream::write_head(out);
                    return Outcome::Streams;
                }
                Some(_) => self.refuse(out, "404 Not Found", "null", UNKNOWN_SESSION, NOT_FOUND),
            },
            Method::Delete => match request.session {
                None => self.refuse(out, "400 Bad Request", "null", BAD_REQUEST, NO_SESSION),
                Some(id) if self.sessions.end(id) => write_plain(out, "200 OK", true),
                Some(_) => self.refuse(out, "404 Not Found", "null", UNKNOWN_SESSION, NOT_FOUND),
            },
        }
        Outcome::Answered
    }

    fn post(&self, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
        let message = match Message::read(request.body) {
            Ok(message) => message,
            Err((code, text)) => {
                self.refuse(out, "400 Bad Request", "null", code, text);
                return Outcome::Answered;
            }
        };
        let id = message.id.map(RawValue::get);
        let method = message.method.as_deref();
        if let (Some(id), Some("initialize")) = (id, method) {
            self.initialize(id, message.params, out);
            return Outcome::Answered;
        }
        let Some(session_id) = request.session else {
            self.refuse(
                out,
                "400 Bad Request",
                id.unwrap_or("null"),
                BAD_REQUEST,
                NO_SESSION,
            );
            return Outcome::Answered;
        };
        let Some(session) = self.sessions.find(session_id) else {
            self.refuse(
                out,
                "404 Not Found",
                id.unwrap_or("null"),
                UNKNOWN_SESSION,
                NOT_FOUND,
            );
            return Outcome::Answered;
        };
        let (Some(id), Some(method)) = (id, method) else {
            // A notification, or a client's answer to a request.
            write_plain(out, "202 Accepted", true);
            return Outcome::Answered;
        };
        let asked = Asked {
            id,
            era: Era::Legacy,
        };
        let params = match method {
            "tools/call" => message
                .params
                .and_then(|raw| serde_json::from_str(raw.get()).ok()),
            _ => None,
        };
        self.perform(asked, method, message.params, params, Some(&session), out)
            .unwrap_or_else(|| {
                self.fail(asked, METHOD_NOT_FOUND, "Method not found", out);
                Outcome::Answered
            })
    }

    /// Appends the reply to a method; `None`, and nothing, when there is no such method. `read` is
    /// what `params` hold, for `tools/call` at least.
    pub(super) fn perform(
        &self,
        asked: Asked<'_>,
        method: &str,
        params: Option<&RawValue>,
        read: Option<Params<'_>>,
        session: Option<&Session>,
        out: &mut Vec<u8>,
    ) -> Option<Outcome> {
        let body = &mut *self.body.borrow_mut();
        body.clear();
        let mut outcome = Outcome::Answered;
        let mut notes = Vec::new();
        match (method, asked.era) {
            ("tools/call", _) => {
                if let Some(Params {
                    name: Some(name),
                    arguments,
                    meta,
                    ..
                }) = read
                {
                    if let Some(token) = meta.and_then(|meta| meta.progress_token) {
                        let total = self.options.progress_count;
                        notes.extend((1..=total).map(|step| progress(token.get(), step, total)));
                    }
                    let mut delay = self.conduct.latency(&self.options);
                    match self.conduct.error(&self.options) {
                        None => delay += self.tools.call(asked, &name, arguments, session, body),
                        Some(ErrorKind::Rpc) => {
                            write_error(body, asked.id, INTERNAL_ERROR, "Told to fail");
                        }
                        Some(ErrorKind::Tool) => Tools::fail(asked, body),
                        Some(ErrorKind::Status) => {
                            write_plain(out, "500 Internal Server Error", true);
                            return Some(called(delay));
                        }
                    }
                    outcome = called(delay);
                } else {
                    write_error(body, asked.id, INVALID_PARAMS, "Invalid params");
                }
            }
            ("tools/list", _) => self.tools.list(asked, body),
            ("ping", Era::Legacy) => {
                asked.open_result(body);
                body.extend_from_slice(b"}}");
            }
            ("server/discover", Era::Stateless) => {
                asked.open_kept_result(body);
                body.extend_from_slice(&self.discovered);
                body.extend_from_slice(b"}}");
            }
            _ if self.extras.answer(asked, method, params, body) => {}
            _ => return None,
        }
        write_reply(out, self.reply(), "", &notes, body);
        body.shrink_to(super::KEPT_BYTES_MAX);
        Some(outcome)
    }

    /// Appends a JSON-RPC error with status 200.
    fn fail(&self, asked: Asked<'_>, code: i32, text: &str, out: &mut Vec<u8>) {
        let body = &mut *self.body.borrow_mut();
        body.clear();
        write_error(body, asked.id, code, text);
        write_reply(out, self.reply(), "", &[], body);
    }

    /// The version asked for when it is one of ours, else our newest (mcp.md 1.2).
    fn initialize(&self, id: &str, params: Option<&RawValue>, out: &mut Vec<u8>) {
        let params = params.map(|raw| serde_json::from_str::<InitializeParams<'_>>(raw.get()));
        let body = &mut *self.body.borrow_mut();
        body.clear();
        let Some(Ok(params)) = params else {
            write_error(body, id, INVALID_PARAMS, "Invalid params");
            write_reply(out, self.reply(), "", &[], body);
            return;
        };
        let newest = REVISIONS[REVISIONS.len() - 1];
        let version = REVISIONS
            .into_iter()
            .find(|known| *known == params.protocol_version);
        let result = serde_json::json!({
            "protocolVersion": version.unwrap_or(newest),
            "capabilities": self.capabilities(),
            "serverInfo": server_info(&self.options),
        });
        // Writing to a vector cannot fail.
        let _ = std::io::Write::write_fmt(
            body,
            format_args!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        );
        let header = format!("mcp-session-id: {}\r\n", self.sessions.open());
        write_reply(out, self.reply(), &header, &[], body);
    }

    fn capabilities(&self) -> serde_json::Value {
        let mut capabilities = serde_json::json!({"tools": {"listChanged": false}});
        self.extras.declare(&mut capabilities);
        if self.options.stream_interval.is_some() {
            capabilities["logging"] = serde_json::json!({});
        }
        capabilities
    }

    fn reply(&self) -> ReplyKind {
        self.conduct.reply(&self.options)
    }

    fn refuse(&self, out: &mut Vec<u8>, status: &str, id: &str, code: i32, text: &str) {
        let body = &mut *self.body.borrow_mut();
        body.clear();
        write_error(body, id, code, text);
        write_json(out, status, body);
    }
}

/// Who the server says it is.
pub(super) fn server_info(options: &BackendOptions) -> serde_json::Value {
    serde_json::json!({"name": options.name, "version": env!("CARGO_PKG_VERSION")})
}

fn called(delay: Duration) -> Outcome {
    if delay.is_zero() {
        Outcome::Called
    } else {
        Outcome::CalledAfter(delay)
    }
}

const NO_SESSION: &str = "Bad Request: Mcp-Session-Id header is required";
const NOT_FOUND: &str = "Session not found";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ReplyKind;

    struct Probe(Dispatcher);

    impl Probe {
        fn new(options: BackendOptions) -> Self {
            Self(Dispatcher::new(
                &Arc::new(options),
                SharedSessions::default(),
                Instant::now(),
                0,
            ))
        }

        fn ask(&self, method: Method, session: Option<&str>, body: &str) -> (String, String) {
            let request = Request {
                method,
                session: session.map(str::as_bytes),
                is_stateless: false,
                mcp_method: None,
                mcp_name: None,
                body: body.as_bytes(),
                is_kept: true,
                used: 0,
            };
            let mut out = Vec::new();
            self.0.answer(&request, &mut out);
            let text = String::from_utf8(out).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            (head.to_owned(), body.to_owned())
        }

        fn open(&self) -> String {
            let (head, _) = self.ask(Method::Post, None, &initialize("2025-06-18"));
            head.split("mcp-session-id: ").nth(1).unwrap()[..32].to_owned()
        }
    }

    fn initialize(version: &str) -> String {
        format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"#,
                r#""protocolVersion":"{version}","capabilities":{{}},"#,
                r#""clientInfo":{{"name":"t","version":"1"}}}}}}"#
            ),
            version = version
        )
    }

    #[test]
    fn a_known_revision_is_echoed_and_any_other_gets_the_newest() {
        let probe = Probe::new(BackendOptions::default());
        for (asked, given) in REVISIONS
            .into_iter()
            .map(|r| (r, r))
            .chain([("2026-07-28", "2025-11-25")])
        {
            let (head, body) = probe.ask(Method::Post, None, &initialize(asked));
            assert!(
                head.starts_with("HTTP/1.1 200 OK\r\nmcp-session-id: "),
                "{head}"
            );
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(body["result"]["protocolVersion"], given);
            assert_eq!(body["id"], 0);
        }
    }

    #[test]
    fn the_life_of_a_session() {
        let probe = Probe::new(BackendOptions::default());
        let ping = r#"{"jsonrpc":"2.0","id":"","method":"ping"}"#;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let id = probe.open();
        let id = id.as_str();
        for (method, session, body, status, part) in [
            (
                Method::Post,
                None,
                ping,
                "400",
                r#""id":"","error":{"code":-32000"#,
            ),
            (
                Method::Post,
                Some("nope"),
                ping,
                "404",
                r#""id":"","error":{"code":-32001"#,
            ),
            (
                Method::Post,
                Some(id),
                ping,
                "200",
                r#"{"jsonrpc":"2.0","id":"","result":{}}"#,
            ),
            (Method::Post, Some(id), note, "202", ""),
            (Method::Post, None, note, "400", "-32000"),
            (
                Method::Post,
                Some(id),
                r#"{"jsonrpc":"2.0","id":4,"result":{}}"#,
                "202",
                "",
            ),
            (Method::Get, Some(id), "", "405", ""),
            (Method::Delete, None, "", "400", "-32000"),
            (Method::Delete, Some(id), "", "200", ""),
            (Method::Delete, Some(id), "", "404", "-32001"),
            (Method::Post, Some(id), ping, "404", "-32001"),
        ] {
            let (head, answer) = probe.ask(method, session, body);
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status} ")),
                "{body} {head}"
            );
            assert!(answer.contains(part), "{body} {answer}");
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        let probe = Probe::new(BackendOptions::default());
        let id = probe.open();
        for (body, code) in [
            ("{", PARSE_ERROR),
            ("[]", INVALID_REQUEST),
            (r#"{"id":1,"method":"ping"}"#, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#,
                METHOD_NOT_FOUND,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
                INVALID_PARAMS,
            ),
        ] {
            let (_, answer) = probe.ask(Method::Post, Some(&id), body);
            let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["error"]["code"], code, "{body}");
        }
    }

    #[test]
    fn progress_goes_ahead_where_it_is_asked_for() {
        let probe = Probe::new(BackendOptions {
            reply: ReplyKind::Sse,
            progress_count: 2,
            ..BackendOptions::default()
        });
        let id = probe.open();
        let call = |meta: &str| {
            let body = format!(
                concat!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{meta}"#,
                    r#""name":"echo","arguments":{{"text":"x"}}}}}}"#
                ),
                meta = meta
            );
            probe.ask(Method::Post, Some(&id), &body).1
        };
        let body = call(r#""_meta":{"progressToken":"p"},"#);
        let at = |part: &str| body.find(part).unwrap();
        let steps = [
            r#""progressToken":"p","progress":1,"total":2}"#,
            r#""progress":2,"#,
        ];
        assert!(at(steps[0]) < at(steps[1]) && at(steps[1]) < at(r#""id":1,"result":"#));
        for meta in ["", r#""_meta":{},"#] {
            assert!(!call(meta).contains("progress"), "{meta}");
        }
    }

    #[test]
    fn a_stream_carries_the_same_json() {
        let probe = Probe::new(BackendOptions {
            reply: ReplyKind::Sse,
            ..BackendOptions::default()
        });
        let id = probe.open();
        let ping = r#"{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}"#;
        let (head, body) = probe.ask(Method::Post, Some(&id), ping);
        assert!(head.contains("content-type: text/event-stream"));
        assert!(
            body.contains(
                "data: {\"jsonrpc\":\"2.0\",\"id\":12345678901234567890,\"result\":{}}\n"
            )
        );
    }
}
