//! Requests without a session: what their heads and their `_meta` must say (mcp.md 2.1 to 2.5).
//!
//! As strict as the rest, so that a gateway that lets header and body differ is found out.

use serde_json::{json, value::RawValue};

use super::{
    BackendOptions,
    answer::{Asked, write_json, write_plain},
    dispatch::{
        Dispatcher, INVALID_PARAMS, METHOD_NOT_FOUND, Message, Outcome, Params, server_info,
    },
    extras::Extras,
    request::{Method, Request},
};
use crate::era::{Era, STATELESS_REVISION, is_name};

const HEADER_MISMATCH: i32 = -32020;
const UNSUPPORTED_VERSION: i32 = -32022;

/// Why a request is refused: status, code, words.
type Refusal = (&'static str, i32, &'static str);

/// The members of a `server/discover` result, beside those of every result.
pub(super) fn discovered(options: &BackendOptions, extras: &Extras) -> Vec<u8> {
    let mut capabilities = json!({"tools": {"listChanged": false}});
    extras.declare(&mut capabilities);
    let info = server_info(options);
    format!(
        concat!(
            r#""supportedVersions":["{}"],"capabilities":{},"#,
            r#""_meta":{{"io.modelcontextprotocol/serverInfo":{}}}"#
        ),
        STATELESS_REVISION, capabilities, info
    )
    .into_bytes()
}

/// Appends the reply to a request that names the revision.
pub(super) fn answer(server: &Dispatcher, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    if request.method != Method::Post {
        write_plain(out, "405 Method Not Allowed\r\nallow: POST", true);
        return Outcome::Answered;
    }
    let message = match Message::read(request.body) {
        Ok(message) => message,
        Err((code, text)) => {
            refuse(out, None, ("400 Bad Request", code, text));
            return Outcome::Answered;
        }
    };
    let Some(id) = message.id.map(RawValue::get) else {
        // A notification: nobody keeps anything it could be about.
        write_plain(out, "202 Accepted", true);
        return Outcome::Answered;
    };
    let asked = Asked {
        id,
        era: Era::Stateless,
    };
    let method = message.method.as_deref().unwrap_or_default();
    let outcome = admit(request, method, message.params).and_then(|params| {
        server
            .perform(asked, method, message.params, Some(params), None, out)
            .ok_or(("404 Not Found", METHOD_NOT_FOUND, "Method not found"))
    });
    outcome.unwrap_or_else(|refusal| {
        refuse(out, Some(id), refusal);
        Outcome::Answered
    })
}

/// Checks what the request says of itself, in body and head.
fn admit<'a>(
    request: &Request<'_>,
    method: &str,
    params: Option<&'a RawValue>,
) -> Result<Params<'a>, Refusal> {
    let mismatch = |what| ("400 Bad Request", HEADER_MISMATCH, what);
    let invalid = |what| ("400 Bad Request", INVALID_PARAMS, what);
    let params: Params<'_> = params
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .ok_or(invalid("Invalid params"))?;
    let meta = params.meta.as_ref().ok_or(invalid("_meta is missing"))?;
    let version = meta.version.map(RawValue::get);
    let version = version.ok_or(invalid("protocolVersion is missing"))?;
    if version.trim_matches('"') != STATELESS_REVISION {
        return Err(mismatch("MCP-Protocol-Version is not the body's"));
    }
    let capabilities = meta.capabilities.map(RawValue::get);
    if !capabilities.is_some_and(|raw| raw.starts_with('{')) {
        return Err(invalid("clientCapabilities is no object"));
    }
    if request.mcp_method != Some(method.as_bytes()) {
        return Err(mismatch("Mcp-Method is not the body's"));
    }
    let named = match method {
        "tools/call" | "prompts/get" => Some(params.name.as_deref()),
        "resources/read" => Some(params.uri.as_deref()),
        _ => None,
    };
    if let Some(named) = named {
        let named = named.ok_or(invalid("name or uri is missing"))?;
        if !request.mcp_name.is_some_and(|sent| is_name(sent, named)) {
            return Err(mismatch("Mcp-Name is not the body's"));
        }
    }
    Ok(params)
}

/// Refuses a request of an era that is switched off, as a server that has only the other does.
pub(super) fn refuse_era(server: &Dispatcher, request: &Request<'_>, out: &mut Vec<u8>) {
    if server.options.era == Some(Era::Legacy) || request.method != Method::Post {
        write_plain(out, "400 Bad Request", true);
        return;
    }
    let words = "Unsupported protocol version";
    let error = json!({
        "code": UNSUPPORTED_VERSION,
        "message": words,
        "data": {"supported": [STATELESS_REVISION], "requested": ""},
    });
    let id = Message::read(request.body).ok();
    let id = id.and_then(|message| message.id).map(RawValue::get);
    write_json(out, "400 Bad Request", error_body(id, &error).as_bytes());
}

fn refuse(out: &mut Vec<u8>, id: Option<&str>, (status, code, text): Refusal) {
    let error = json!({"code": code, "message": text});
    write_json(out, status, error_body(id, &error).as_bytes());
}

/// An error; without an id that could be read it has none.
fn error_body(id: Option<&str>, error: &serde_json::Value) -> String {
    let id = id.map_or_else(String::new, |id| format!(r#""id":{id},"#));
    format!(r#"{{"jsonrpc":"2.0",{id}"error":{error}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendKind, ReplyKind, session::SharedSessions};
    use serde_json::Value;
    use std::{sync::Arc, time::Instant};

    /// A good call; each test changes one thing.
    const CALL: &str = concat!(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"#,
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{}},"#,
        r#""name":"echo","arguments":{"text":"x"}}}"#
    );

    struct Sent<'a> {
        method: Method,
        is_stateless: bool,
        mcp_method: Option<&'a str>,
        mcp_name: Option<&'a str>,
        body: &'a str,
    }

    const GOOD: Sent<'_> = Sent {
        method: Method::Post,
        is_stateless: true,
        mcp_method: Some("tools/call"),
        mcp_name: Some("echo"),
        body: CALL,
    };

    fn server(options: BackendOptions) -> Dispatcher {
        Dispatcher::new(
            &Arc::new(options),
            SharedSessions::default(),
            Instant::now(),
            0,
        )
    }

    fn ask(server: &Dispatcher, sent: &Sent<'_>) -> (String, String) {
        let request = Request {
            method: sent.method,
            session: None,
            is_stateless: sent.is_stateless,
            mcp_method: sent.mcp_method.map(str::as_bytes),
            mcp_name: sent.mcp_name.map(str::as_bytes),
            body: sent.body.as_bytes(),
            is_kept: true,
            used: 0,
        };
        let mut out = Vec::new();
        server.answer(&request, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn other(name: &str) -> String {
        let message = CALL.replace("tools/call", name);
        message.replace(
            r#""name":"echo""#,
            r#""name":"prompt_001","uri":"sample:///resource/1""#,
        )
    }

    #[test]
    fn every_result_says_what_it_is_and_lists_how_long_they_hold() {
        let server = server(BackendOptions {
            kind: BackendKind::All,
            resource_count: 1,
            prompt_count: 1,
            ..BackendOptions::default()
        });
        for (method, name, member, is_kept) in [
            ("server/discover", None, "supportedVersions", true),
            ("tools/list", None, "tools", true),
            ("resources/list", None, "resources", true),
            (
                "resources/read",
                Some("sample:///resource/1"),
                "contents",
                true,
            ),
            ("prompts/list", None, "prompts", true),
            ("prompts/get", Some("prompt_001"), "messages", false),
        ] {
            let body = other(method);
            let sent = Sent {
                mcp_method: Some(method),
                mcp_name: name,
                body: &body,
                ..GOOD
            };
            let (head, reply) = ask(&server, &sent);
            assert!(head.starts_with("HTTP/1.1 200 "), "{method} {head}");
            assert!(!head.contains("mcp-session-id"), "{head}");
            let reply: Value = serde_json::from_str(&reply).unwrap();
            let result = &reply["result"];
            assert_eq!(result["resultType"], "complete", "{method}");
            assert!(!result[member].is_null(), "{reply}");
            assert_eq!(result["ttlMs"].is_u64(), is_kept, "{reply}");
            assert_eq!(result["cacheScope"] == "public", is_kept, "{reply}");
        }
        let sent = Sent {
            mcp_method: Some("tools/list"),
            mcp_name: None,
            body: &other("tools/list"),
            ..GOOD
        };
        // A number that a session has would be nobody's.
        assert!(!ask(&server, &sent).1.contains("increment"));
    }

    #[test]
    fn a_call_is_as_large_as_it_was_asked_to_be() {
        for reply in [ReplyKind::Json, ReplyKind::Sse] {
            let server = server(BackendOptions {
                payload_bytes: Some(200),
                reply,
                ..BackendOptions::default()
            });
            let (_, body) = ask(&server, &GOOD);
            let start = body.find('{').unwrap();
            let message = &body[start..start + 200];
            let message: Value = serde_json::from_str(message).unwrap();
            assert_eq!(message["result"]["resultType"], "complete");
            assert_eq!(message["id"], 7);
        }
    }

    #[test]
    fn what_head_and_body_must_say_is_demanded() {
        let server = server(BackendOptions::default());
        let without_meta = CALL.replace("_meta", "_other");
        let legacy = CALL.replace("2026-07-28", "2025-11-25");
        let no_capabilities = CALL.replace(r#"Capabilities":{}"#, r#"Capabilities":7"#);
        let unknown = CALL.replace("tools/call", "ping");
        let unnamed = CALL.replace(r#""name":"echo","#, "");
        let damaged = &CALL[..CALL.len() - 1];
        for (sent, status, code) in [
            (
                Sent {
                    mcp_method: None,
                    ..GOOD
                },
                "400",
                -32020,
            ),
            (
                Sent {
                    mcp_method: Some("Tools/call"),
                    ..GOOD
                },
                "400",
                -32020,
            ),
            (
                Sent {
                    mcp_name: None,
                    ..GOOD
                },
                "400",
                -32020,
            ),
            (
                Sent {
                    mcp_name: Some("ech"),
                    ..GOOD
                },
                "400",
                -32020,
            ),
            (
                Sent {
                    body: &legacy,
                    ..GOOD
                },
                "400",
                -32020,
            ),
            (
                Sent {
                    body: &without_meta,
                    ..GOOD
                },
                "400",
                -32602,
            ),
            (
                Sent {
                    body: &no_capabilities,
                    ..GOOD
                },
                "400",
                -32602,
            ),
            (
                Sent {
                    body: &unnamed,
                    ..GOOD
                },
                "400",
                -32602,
            ),
            (
                Sent {
                    body: damaged,
                    ..GOOD
                },
                "400",
                -32700,
            ),
            (Sent { body: "[]", ..GOOD }, "400", -32600),
            (
                Sent {
                    mcp_method: Some("ping"),
                    body: &unknown,
                    ..GOOD
                },
                "404",
                -32601,
            ),
        ] {
            let (head, reply) = ask(&server, &sent);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
            let reply: Value = serde_json::from_str(&reply).unwrap();
            assert_eq!(reply["error"]["code"], code, "{reply}");
        }
        let encoded = Sent {
            mcp_name: Some("=?base64?ZWNobw==?="),
            ..GOOD
        };
        assert!(ask(&server, &encoded).0.starts_with("HTTP/1.1 200 "));
        let note = CALL.replace(r#""id":7,"#, "");
        let noted = Sent {
            body: &note,
            ..GOOD
        };
        assert!(ask(&server, &noted).0.starts_with("HTTP/1.1 202 "));
        for method in [Method::Get, Method::Delete] {
            let (head, _) = ask(&server, &Sent { method, ..GOOD });
            assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
        }
    }

    #[test]
    fn a_server_of_one_era_knows_no_other() {
        let of = |era| {
            server(BackendOptions {
                era: Some(era),
                ..BackendOptions::default()
            })
        };
        let (legacy, stateless) = (of(Era::Legacy), of(Era::Stateless));
        let initialize = concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"#,
            r#""protocolVersion":"2025-11-25","capabilities":{}}}"#
        );
        let opening = Sent {
            is_stateless: false,
            body: initialize,
            ..GOOD
        };
        assert!(ask(&legacy, &opening).0.contains("mcp-session-id: "));
        assert_eq!(ask(&legacy, &GOOD).0.split(' ').nth(1), Some("400"));
        assert!(ask(&stateless, &GOOD).0.starts_with("HTTP/1.1 200 "));
        let (head, reply) = ask(&stateless, &opening);
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(reply["error"]["code"], -32022);
        assert_eq!(reply["error"]["data"]["supported"][0], "2026-07-28");
    }
}
