//! How a stateless request is refused: codes, data and HTTP status of mcp.md 2.3.
//!
//! An error names its request when the id could be read, and has no `id` otherwise. What limits and
//! access rules of the gateway's own say lies outside the ranges of JSON-RPC and MCP, with a word
//! in `data.reason`.

use crate::{
    declared::call::CallRefusal, mcp::envelope::EnvelopeFault, refusal::Answer, upstream::CallFault,
};

/// Our code for limits.
pub const LIMIT_CODE: i32 = -31_001;
/// Our code for what access rules forbid.
pub const ACCESS_CODE: i32 = -31_002;

/// Why a stateless request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatelessFault {
    /// The body is not an acceptable message.
    Envelope(EnvelopeFault),
    /// An answer was posted.
    Answer,
    /// A header that mirrors the body is missing, repeated, malformed or says something else.
    Header(&'static str),
    /// A member of `_meta` is missing.
    MetaMissing(&'static str),
    /// A parameter is not what it must be.
    Params(&'static str),
    /// A revision that is not served: what was asked for, and what is served.
    Version(Box<str>, Vec<&'static str>),
    /// No such method, or nothing behind us offers it.
    Method,
    /// Nothing by that name.
    Unknown(&'static str),
    /// A limit of the gateway's own: its word, and the HTTP status.
    Limit(&'static str, u16),
    /// An access rule of the gateway's own: its word.
    Access(&'static str),
    /// The process is going down.
    Draining,
    /// A backend gave no answer.
    Backend(CallFault),
    /// A declared tool is not called, or access rules deny one.
    Tool(CallRefusal),
}

const RETRY: &str = "retry-after: 1\r\n";

impl StatelessFault {
    /// The answer to the request with this raw id.
    pub fn answer(&self, id: Option<&[u8]>) -> Answer {
        let (status, code) = self.status_and_code();
        let mut body = b"{\"jsonrpc\":\"2.0\",".to_vec();
        if let Some(id) = id {
            body.extend_from_slice(b"\"id\":");
            body.extend_from_slice(id);
            body.push(b',');
        }
        let mut error = serde_json::json!({"code": code, "message": self.text()});
        if let Some(data) = self.data() {
            error["data"] = data;
        }
        body.extend_from_slice(format!("\"error\":{error}}}").as_bytes());
        Answer {
            status,
            content_type: "application/json",
            body,
            headers: match self {
                Self::Limit(_, 429 | 503) | Self::Draining => RETRY,
                _ => "",
            },
            must_close: *self == Self::Draining,
        }
    }

    fn status_and_code(&self) -> (u16, i32) {
        match self {
            Self::Envelope(fault) => (400, fault.code()),
            Self::Answer => (400, -32600),
            Self::Header(_) => (400, -32020),
            Self::MetaMissing(_) | Self::Params(_) => (400, -32602),
            Self::Version(..) => (400, -32022),
            Self::Method => (404, -32601),
            Self::Unknown(_) => (200, -32602),
            Self::Limit(_, status) => (*status, LIMIT_CODE),
            Self::Access(_) | Self::Backend(CallFault::NotMeant) => (403, ACCESS_CODE),
            Self::Draining => (503, LIMIT_CODE),
            Self::Backend(_) => (200, -32603),
            Self::Tool(CallRefusal::Denied(_)) => (403, ACCESS_CODE),
            Self::Tool(refusal @ (CallRefusal::Backend(_) | CallRefusal::Cancelled)) => {
                (200, refusal.code())
            }
            Self::Tool(refusal) => (400, refusal.code()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Envelope(fault) => fault.message().to_owned(),
            Self::Answer => "Invalid Request: no answer is waited for".to_owned(),
            Self::Header(name) => format!("Header mismatch: {name}"),
            Self::MetaMissing(key) => format!("Invalid params: _meta lacks {key}"),
            Self::Params(text) => format!("Invalid params: {text}"),
            Self::Version(..) => "Unsupported protocol version".to_owned(),
            Self::Method => "Method not found".to_owned(),
            Self::Unknown(text) => (*text).to_owned(),
            Self::Limit(..) => "The request exceeds a limit of the gateway".to_owned(),
            Self::Access(_) => "Access denied".to_owned(),
            Self::Draining => "Going down, try again elsewhere".to_owned(),
            Self::Backend(fault) => format!("Routing problem... {fault}"),
            Self::Tool(refusal) => refusal.to_string(),
        }
    }

    fn data(&self) -> Option<serde_json::Value> {
        match self {
            Self::MetaMissing(key) => Some(serde_json::json!({"missing": [key]})),
            Self::Version(requested, supported) => {
                Some(serde_json::json!({"supported": supported, "requested": requested}))
            }
            Self::Limit(reason, _) | Self::Access(reason) => {
                Some(serde_json::json!({"reason": reason}))
            }
            Self::Backend(CallFault::NotMeant) => Some(serde_json::json!({"reason": "audience"})),
            Self::Draining => Some(serde_json::json!({"reason": "draining"})),
            Self::Tool(CallRefusal::Denied(_)) => Some(serde_json::json!({"reason": "access"})),
            _ => None,
        }
    }

    /// Name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Envelope(_) => "envelope",
            Self::Answer => "stateless_answer",
            Self::Header(_) => "header_mismatch",
            Self::MetaMissing(_) => "meta_missing",
            Self::Params(_) => "params",
            Self::Version(..) => "version",
            Self::Method => "method_not_found",
            Self::Unknown(_) => "unknown_name",
            Self::Limit(reason, _) | Self::Access(reason) => reason,
            Self::Draining => "draining",
            Self::Backend(fault) => fault.label(),
            Self::Tool(refusal) => refusal.label(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_echoed_or_left_out() {
        let body = |fault: &StatelessFault, id: Option<&[u8]>| {
            String::from_utf8(fault.answer(id).body).unwrap()
        };
        assert_eq!(
            body(&StatelessFault::Method, Some(b"\"0\"")),
            r#"{"jsonrpc":"2.0","id":"0","error":{"code":-32601,"message":"Method not found"}}"#
        );
        let version = StatelessFault::Version("v\"9".into(), vec!["2026-07-28"]);
        assert_eq!(
            body(&version, None),
            r#"{"jsonrpc":"2.0","error":{"code":-32022,"data":{"requested":"v\"9","supported":["2026-07-28"]},"message":"Unsupported protocol version"}}"#
        );
        let limit = StatelessFault::Limit("concurrency", 429);
        assert_eq!(limit.answer(None).headers, RETRY);
        assert!(body(&limit, None).contains(r#""reason":"concurrency""#));
        assert!(
            !(-32768..=-32000).contains(&LIMIT_CODE) && !(-32768..=-32000).contains(&ACCESS_CODE)
        );
    }
}
