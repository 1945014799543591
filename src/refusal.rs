//! Every way we say no: one list, one answer each.
//!
//! Texts are written by hand and never hold input, tokens, ids or backends' words. Where the
//! contracts differ, mcp.md decides (JSON-RPC bodies with the TypeScript SDK's codes); statuses and
//! bodies that front doors replay on are contextforge.md 4.3's, byte for byte.

use crate::{
    declared::call::CallRefusal,
    mcp::{
        envelope::EnvelopeFault,
        json,
        version::{self, VersionSet},
    },
    stateless::StatelessFault,
    upstream::CallFault,
};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Framing, limits: the connection closes.
    Http(crate::http::HttpRefusal),
    /// `Origin` is not allowed.
    Origin,
    /// `Host` is not allowed.
    Host,
    /// The MCP headers are over their budget.
    HeaderBudget,
    /// No such path.
    Path,
    /// The path is ours but ends in nothing.
    EndpointPath,
    /// No valid token; true: a token was there.
    Unauthorized(bool),
    /// The token lacks some of these scopes, which are all that the operation needs.
    Scope(&'static str),
    /// The token may not be used so: why.
    Restricted(&'static str),
    /// The keys of the token's issuer are not known.
    TokenKeys,
    /// Whether the token was revoked is not known.
    Revocations,
    /// The caller has no configuration, or the store cannot say.
    NoConfig,
    /// The caller's configuration cannot be read.
    BadConfig,
    /// The virtual host is not in the caller's configuration.
    NoVirtualHost,
    /// Not a method of this path.
    Method,
    /// `Accept` excludes what we answer with.
    Accept,
    /// `Accept` of a GET excludes event streams.
    AcceptStream,
    /// `Content-Type` is not JSON.
    ContentType,
    /// The body is not an acceptable message; with the id, if one could be read.
    Envelope(EnvelopeFault, Option<Box<[u8]>>),
    /// `MCP-Protocol-Version` names no revision with sessions that is served; those that are.
    Version(VersionSet),
    /// `MCP-Protocol-Version` stands twice.
    RepeatedVersion,
    /// The stateless revision is not served; what is.
    Stateless(Option<Box<[u8]>>, VersionSet),
    /// Not a method of the stateless revision.
    StatelessMethod,
    /// A stateless request is refused: with the id, if one could be read.
    Modern(Option<Box<[u8]>>, Box<StatelessFault>),
    /// No `Mcp-Session-Id`.
    NoSession,
    /// No such session: unknown, ended, forged or somebody else's.
    UnknownSession,
    /// The shard has as many sessions as it may.
    SessionCap,
    /// The principal has as many sessions as it may.
    PrincipalSessionCap,
    /// The session has as many open streams as it may.
    StreamCap,
    /// The rings to the owner are full.
    Busy,
    /// The process is going down.
    Draining,
    /// Something broke here.
    Internal,
    /// A JSON-RPC error for a request of a session: id, code, text.
    Rpc(Box<[u8]>, i32, &'static str),
    /// A backend gave no answer: id, why.
    Backend(Box<[u8]>, CallFault),
    /// A declared tool is not called: id, why.
    Tool(Box<[u8]>, CallRefusal),
}

/// An answer, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`; empty: none.
    pub content_type: &'static str,
    /// Body.
    pub body: Vec<u8>,
    /// Whole extra header lines, each with its CRLF.
    pub headers: &'static str,
    /// The connection closes after it.
    pub must_close: bool,
}

const CHALLENGE: &str = "www-authenticate: Bearer\r\n";
const CHALLENGE_INVALID: &str = "www-authenticate: Bearer error=\"invalid_token\"\r\n";
const ALLOW: &str = "allow: GET, POST, DELETE, OPTIONS\r\n";
const ALLOW_POST: &str = "allow: POST\r\n";
const RETRY: &str = "retry-after: 1\r\n";

impl Refusal {
    /// A JSON-RPC error inside a session, for the request with this raw id.
    pub fn rpc(id: &[u8], code: i32, text: &'static str) -> Self {
        Self::Rpc(id.into(), code, text)
    }

    /// A stateless request with this raw id is refused.
    pub fn modern(id: Option<&[u8]>, fault: StatelessFault) -> Self {
        Self::Modern(id.map(Box::from), Box::new(fault))
    }

    /// The answer.
    pub fn answer(&self) -> Answer {
        match self {
            Self::Http(refusal) => Answer {
                must_close: true,
                // RFC 9110 section 15.5.6: a 405 says what is allowed.
                headers: if refusal.status == 405 { ALLOW } else { "" },
                ..text(refusal.status, refusal.reason)
            },
            Self::Origin => text(403, "Forbidden: Origin header is not allowed"),
            Self::Host => text(403, "Forbidden: Host header is not allowed"),
            Self::HeaderBudget => text(431, "MCP standard header limits exceeded"),
            Self::Path => Answer {
                content_type: "",
                ..text(404, "")
            },
            Self::EndpointPath => text(400, "Problem occured retrieving the configuration"),
            Self::Unauthorized(had_token) => Answer {
                headers: if *had_token {
                    CHALLENGE_INVALID
                } else {
                    CHALLENGE
                },
                ..text(401, "")
            },
            // The challenge, which names the scopes, is made where the request is known.
            Self::Scope(_) => oauth(403, "insufficient_scope", "the token lacks a scope"),
            Self::Restricted(why) => oauth(403, "access_denied", why),
            Self::TokenKeys => Answer {
                headers: RETRY,
                ..text(
                    503,
                    "Service Unavailable: the keys of the token's issuer are not known",
                )
            },
            Self::Revocations => Answer {
                headers: RETRY,
                ..text(
                    503,
                    "Service Unavailable: the list of revoked tokens cannot be read",
                )
            },
            Self::NoConfig => text(400, "Problem occurred retrieving the configuration"),
            Self::BadConfig => text(500, "Problem occurred retrieving the configuration"),
            Self::NoVirtualHost => Answer {
                status: 404,
                content_type: "application/json",
                body: br#"{"detail":"Server not found"}"#.to_vec(),
                headers: "",
                must_close: false,
            },
            Self::Method => Answer {
                headers: ALLOW,
                ..text(405, "Method Not Allowed")
            },
            Self::Accept => rpc(
                406,
                None,
                -32000,
                "Not Acceptable: Client must accept both application/json and text/event-stream",
            ),
            Self::AcceptStream => rpc(
                406,
                None,
                -32000,
                "Not Acceptable: Client must accept text/event-stream",
            ),
            Self::ContentType => rpc(
                415,
                None,
                -32000,
                "Unsupported Media Type: Content-Type must be application/json",
            ),
            Self::Envelope(fault, id) => rpc(400, id.as_deref(), fault.code(), fault.message()),
            Self::Version(served) => {
                let mut names = version::names(false, *served);
                names.reverse();
                let text = format!(
                    "Bad Request: Unsupported protocol version (supported versions: {})",
                    names.join(", ")
                );
                rpc(400, None, -32000, &text)
            }
            Self::RepeatedVersion => rpc(
                400,
                None,
                -32600,
                "Bad Request: MCP-Protocol-Version stands more than once",
            ),
            Self::Stateless(id, served) => Answer {
                body: unsupported_version(id.as_deref(), *served),
                ..rpc(400, None, -32022, "")
            },
            Self::Modern(id, fault) => fault.answer(id.as_deref()),
            Self::StatelessMethod => Answer {
                headers: ALLOW_POST,
                ..text(405, "Method Not Allowed")
            },
            Self::NoSession => rpc(
                400,
                None,
                -32000,
                "Bad Request: Mcp-Session-Id header is required",
            ),
            Self::UnknownSession => rpc(404, None, -32001, "Not Found: Session not found"),
            Self::SessionCap => Answer {
                headers: RETRY,
                ..rpc(
                    503,
                    None,
                    -32000,
                    "Service Unavailable: the session limit is reached",
                )
            },
            Self::PrincipalSessionCap => Answer {
                headers: RETRY,
                ..rpc(
                    429,
                    None,
                    -32000,
                    "Too Many Requests: the caller's session limit is reached",
                )
            },
            Self::StreamCap => rpc(
                409,
                None,
                -32000,
                "Conflict: the session has its streams open already",
            ),
            Self::Busy => Answer {
                headers: RETRY,
                ..rpc(503, None, -32000, "Service Unavailable: busy, try again")
            },
            Self::Draining => Answer {
                headers: RETRY,
                must_close: true,
                ..rpc(
                    503,
                    None,
                    -32000,
                    "Service Unavailable: going down, try again elsewhere",
                )
            },
            Self::Internal => Answer {
                must_close: true,
                ..rpc(500, None, -32603, "Internal error")
            },
            Self::Rpc(id, code, message) => rpc(200, Some(id), *code, message),
            Self::Backend(id, fault) => rpc(200, Some(id), fault.code(), &backend_text(*fault)),
            Self::Tool(id, refusal) => rpc(200, Some(id), refusal.code(), &refusal.to_string()),
        }
    }

    /// Name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Origin => "origin",
            Self::Host => "host",
            Self::HeaderBudget => "header_budget",
            Self::Path | Self::EndpointPath => "path",
            Self::Unauthorized(_) => "unauthorized",
            Self::Scope(_) => "insufficient_scope",
            Self::Restricted(_) => "restricted",
            Self::TokenKeys => "token_keys",
            Self::Revocations => "revocations",
            Self::NoConfig => "no_config",
            Self::BadConfig => "bad_config",
            Self::NoVirtualHost => "no_virtual_host",
            Self::Method | Self::StatelessMethod => "method",
            Self::Modern(_, fault) => fault.label(),
            Self::Accept | Self::AcceptStream => "accept",
            Self::ContentType => "content_type",
            Self::Envelope(..) => "envelope",
            Self::Version(_) | Self::RepeatedVersion | Self::Stateless(..) => "version",
            Self::NoSession => "no_session",
            Self::UnknownSession => "unknown_session",
            Self::SessionCap => "session_cap",
            Self::PrincipalSessionCap => "principal_session_cap",
            Self::StreamCap => "stream_cap",
            Self::Busy => "busy",
            Self::Draining => "draining",
            Self::Internal => "internal",
            Self::Rpc(..) => "rpc",
            Self::Tool(_, refusal) => refusal.label(),
            Self::Backend(_, fault) => fault.label(),
        }
    }
}

fn backend_text(fault: CallFault) -> String {
    format!("Routing problem... {fault}")
}

fn text(status: u16, body: &str) -> Answer {
    Answer {
        status,
        content_type: "text/plain",
        body: body.as_bytes().to_vec(),
        headers: "",
        must_close: false,
    }
}

/// An answer of the resource server, not of JSON-RPC: it may come before the message was read.
fn oauth(status: u16, error: &str, description: &str) -> Answer {
    let body = serde_json::json!({"error": error, "error_description": description});
    Answer {
        status,
        content_type: "application/json",
        body: body.to_string().into_bytes(),
        headers: "",
        must_close: false,
    }
}

fn rpc(status: u16, id: Option<&[u8]>, code: i32, message: &str) -> Answer {
    Answer {
        status,
        content_type: "application/json",
        body: rpc_error(id, code, message),
        headers: "",
        must_close: false,
    }
}

/// A JSON-RPC error document; without an id its `id` is null (mcp.md 1.2).
pub fn rpc_error(id: Option<&[u8]>, code: i32, message: &str) -> Vec<u8> {
    let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    body.extend_from_slice(id.unwrap_or(b"null"));
    body.extend_from_slice(format!(",\"error\":{{\"code\":{code},\"message\":").as_bytes());
    json::quote(&mut body, message);
    body.extend_from_slice(b"}}");
    body
}

/// mcp.md 2.3: -32022 with what we support and what was asked for.
fn unsupported_version(id: Option<&[u8]>, served: VersionSet) -> Vec<u8> {
    let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    body.extend_from_slice(id.unwrap_or(b"null"));
    let supported = serde_json::json!(version::names(false, served));
    body.extend_from_slice(
        format!(
            concat!(
                r#","error":{{"code":-32022,"message":"Unsupported protocol version","#,
                r#""data":{{"supported":{},"requested":"{}"}}}}}}"#
            ),
            supported,
            version::STATELESS
        )
        .as_bytes(),
    );
    body
}

impl From<crate::http::HttpRefusal> for Refusal {
    fn from(refusal: crate::http::HttpRefusal) -> Self {
        Self::Http(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_and_ids_are_echoed() {
        let refusals = [
            Refusal::Accept,
            Refusal::Version(VersionSet::ALL),
            Refusal::Stateless(Some(b"\"x\"".as_slice().into()), VersionSet::ALL),
            Refusal::UnknownSession,
            Refusal::rpc(b"7", -32602, "no"),
            Refusal::Backend(b"\"\"".as_slice().into(), CallFault::Status(500)),
        ];
        for refusal in refusals {
            let answer = refusal.answer();
            assert_eq!(answer.content_type, "application/json");
            let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(json["jsonrpc"], "2.0");
            assert!(json["error"]["code"].is_i64());
        }
        let answer = Refusal::rpc(b"7", -32602, "no").answer();
        assert_eq!(
            String::from_utf8(answer.body).unwrap(),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no"}}"#
        );
    }
}
