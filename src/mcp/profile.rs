//! What differs between the two profiles in one message, and how each becomes the other
//! (dual-profile.md 2.2, 2.3; mcp.md 2.1, 2.5).
//!
//! A stateless request says in `_meta` who its client is and what it can do, which a session has
//! said once; a stateless result says what it is and how long it may be kept. All of it are members
//! beside the payload, which stays as it came.

use crate::{
    http::Span,
    mcp::{
        edits::Edits,
        envelope::Envelope,
        json::{self, pick, within},
        reply_scan::{Marks, ReplyScan},
    },
};

/// What keys of the protocol's own in `_meta` begin with.
pub const META_PREFIX: &str = "io.modelcontextprotocol/";
/// The key in `_meta` under which a server says who it is.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Our name, as `clientInfo` and as `serverInfo`.
pub const OWN_INFO: &str = concat!(
    r#"{"name":"shardgate","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}"#
);
/// What older servers say of a resource they do not have, which the stateless revision must not.
const RESOURCE_NOT_FOUND: i64 = -32002;
/// The same for "the client must be sent to a URL first".
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Who asks, in the words of a stateless request.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// `clientInfo`, raw.
    pub info: Option<&'a [u8]>,
    /// Its capabilities, raw.
    pub capabilities: &'a [u8],
    /// The log level it wants to hear.
    pub log_level: Option<&'a str>,
}

/// What the gateway says it can do when it asks for itself: whatever a client may turn out to be
/// able to do. What it learns so is for all clients, and a call names its own client's.
const OWN_CAPABILITIES: &[u8] = br#"{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{}}"#;

/// Appends a member `_meta` by which the gateway itself asks.
pub fn own_meta(out: &mut Vec<u8>) {
    let asker = Asker {
        info: None,
        capabilities: OWN_CAPABILITIES,
        log_level: None,
    };
    out.extend_from_slice(b"\"_meta\":{");
    asker.write(out);
    out.push(b'}');
}

impl Asker<'_> {
    /// Appends the members of `_meta` that say it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
              \"io.modelcontextprotocol/clientInfo\":",
        );
        out.extend_from_slice(self.info.unwrap_or(OWN_INFO.as_bytes()));
        out.extend_from_slice(b",\"io.modelcontextprotocol/clientCapabilities\":");
        out.extend_from_slice(self.capabilities);
        if let Some(level) = self.log_level {
            out.extend_from_slice(b",\"io.modelcontextprotocol/logLevel\":\"");
            out.extend_from_slice(level.as_bytes());
            out.push(b'"');
        }
    }

    /// Says it in a request of a session that goes to a stateless backend.
    pub fn introduce(&self, body: &[u8], message: &Envelope, edits: &mut Edits) {
        let mut meta = Vec::with_capacity(320);
        let place = match (message.meta, message.params) {
            (Some(meta_at), _) => Some((meta_at, false)),
            (None, Some(params)) => Some((params, true)),
            (None, None) => None,
        };
        match place {
            Some((object, is_params)) => {
                if is_params {
                    meta.extend_from_slice(b"\"_meta\":{");
                }
                self.write(&mut meta);
                if is_params {
                    meta.push(b'}');
                } else {
                    // A session says these once; what a request says besides counts for nothing.
                    edits.drop_members(body, object, is_said);
                }
                let others = json::members(object.slice(body));
                let mut others = others.map_while(Result::ok);
                let stays = others.any(|(key, _)| {
                    let name = json::unescape(key.slice(object.slice(body)));
                    is_params || name.is_none_or(|name| !is_said(&name))
                });
                if stays {
                    meta.push(b',');
                }
                edits.insert(object.start + 1, meta);
            }
            None => {
                meta.extend_from_slice(b",\"params\":{\"_meta\":{");
                self.write(&mut meta);
                meta.extend_from_slice(b"}}");
                let end = body.iter().rposition(|byte| *byte == b'}').unwrap_or(0);
                // A message is shorter than 4 GiB.
                edits.insert(end as u32, meta);
            }
        }
    }
}

/// Whether a key of `_meta` says who asks.
fn is_said(key: &str) -> bool {
    matches!(
        key.strip_prefix(META_PREFIX),
        Some("protocolVersion" | "clientInfo" | "clientCapabilities" | "logLevel")
    )
}

/// Takes what only the stateless revision knows out of a request that goes to a backend with
/// sessions.
pub fn anonymise(body: &[u8], message: &Envelope, edits: &mut Edits) {
    if let Some(meta) = message.meta {
        edits.drop_members(body, meta, |key| key.starts_with(META_PREFIX));
    }
    if let Some(params) = message.params {
        let is_retry = |key: &str| matches!(key, "inputResponses" | "requestState");
        edits.drop_members(body, params, is_retry);
    }
}

/// What a stateless result says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultType {
    /// The whole result.
    Complete,
    /// The client is to answer first (SEP-2322).
    InputRequired,
    /// A task, of the extension that has them.
    Task,
    /// Something of another extension.
    Extension,
    /// Nothing: it is no result of that revision.
    Missing,
}

/// What a stateless result says beside its payload, found in one walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultMarks {
    /// What it is.
    pub kind: ResultType,
    /// `_meta`.
    meta: Option<Span>,
    /// `cacheScope`.
    scope: Option<Span>,
}

/// What the result of a reply says of itself, looked at again where the scan did not.
pub fn result_marks(document: &[u8], scan: &ReplyScan) -> ResultMarks {
    let marks = scan.marks.unwrap_or_else(|| {
        let keys = ["resultType", "_meta", "cacheScope"];
        let found = scan.result.map(|result| pick(document, result, keys));
        let [result_type, meta, cache_scope] = found.unwrap_or_default();
        Marks {
            result_type,
            meta,
            cache_scope,
        }
    });
    ResultMarks {
        kind: result_type(document, marks.result_type),
        meta: marks.meta,
        scope: marks.cache_scope,
    }
}

fn result_type(document: &[u8], kind: Option<Span>) -> ResultType {
    match kind.map(|span| span.slice(document)) {
        Some(kind) if json::says(kind, "complete") => ResultType::Complete,
        Some(kind) if json::says(kind, "input_required") => ResultType::InputRequired,
        Some(kind) if json::says(kind, "task") => ResultType::Task,
        Some(kind) if kind.starts_with(b"\"") => ResultType::Extension,
        _ => ResultType::Missing,
    }
}

/// Takes what only the stateless revision knows out of a result for a client with a session.
pub fn result_to_session(document: &[u8], result: Span, edits: &mut Edits) {
    let [meta] = pick(document, result, ["_meta"]);
    let is_new = |key: &str| matches!(key, "resultType" | "ttlMs" | "cacheScope");
    edits.drop_members(document, result, is_new);
    if let Some(meta) = meta.filter(|meta| meta.slice(document).starts_with(b"{")) {
        edits.drop_members(document, meta, |key| {
            key.starts_with(META_PREFIX) && !key.ends_with("/related-task")
        });
    }
}

/// Adds what the stateless revision wants to a result of a session; `is_kept`: the kind that says
/// how long it may be kept, and by whom (mcp.md 2.5).
pub fn result_to_stateless(document: &[u8], result: Span, is_kept: bool, edits: &mut Edits) {
    if !result.slice(document).starts_with(b"{") {
        return;
    }
    let mut added = b"\"resultType\":\"complete\"".to_vec();
    if is_kept {
        added.extend_from_slice(b",\"ttlMs\":0,\"cacheScope\":\"private\"");
    }
    let [meta] = pick(document, result, ["_meta"]);
    match meta.filter(|meta| meta.slice(document).starts_with(b"{")) {
        Some(meta) => {
            let mut own = format!("\"{SERVER_INFO}\":{OWN_INFO}").into_bytes();
            if !is_empty(document, meta) {
                own.push(b',');
            }
            edits.insert(meta.start + 1, own);
        }
        None => added
            .extend_from_slice(format!(",\"_meta\":{{\"{SERVER_INFO}\":{OWN_INFO}}}").as_bytes()),
    }
    if !is_empty(document, result) {
        added.push(b',');
    }
    edits.insert(result.start + 1, added);
}

/// Puts our name in place of a backend's in a stateless result that goes to a stateless client,
/// and keeps what was for everybody from being kept for more than its caller, when callers are
/// told apart.
pub fn result_between_stateless(
    document: &[u8],
    marks: &ResultMarks,
    is_private: bool,
    edits: &mut Edits,
) {
    if let Some(meta) = marks.meta
        && let Some(info) = json::member(meta.slice(document), SERVER_INFO)
    {
        edits.put_copy(within(meta, info), OWN_INFO.as_bytes());
    }
    if let Some(scope) = marks.scope.filter(|_| is_private)
        && json::says(scope.slice(document), "public")
    {
        edits.put_copy(scope, b"\"private\"");
    }
}

/// Exchanges the codes that only sessions know in an error for a stateless client.
pub fn error_to_stateless(document: &[u8], scan: &ReplyScan, edits: &mut Edits) {
    let Some(error) = scan.error else { return };
    let [code] = pick(document, error, ["code"]);
    let Some(code) = code else { return };
    match code_at(document, code) {
        Some(RESOURCE_NOT_FOUND) => edits.put_copy(code, b"-32602"),
        Some(URL_ELICITATION_REQUIRED) => edits.put_copy(code, b"-32603"),
        _ => {}
    }
}

/// The HTTP status of an error for a stateless client (mcp.md 2.3), when its code settles it.
pub fn status_of_error(document: &[u8], scan: &ReplyScan) -> Option<u16> {
    let [code] = pick(document, scan.error?, ["code"]);
    match code_at(document, code?)? {
        -32601 => Some(404),
        -32022..=-32020 => Some(400),
        _ => None,
    }
}

fn code_at(document: &[u8], code: Span) -> Option<i64> {
    std::str::from_utf8(code.slice(document)).ok()?.parse().ok()
}

fn is_empty(document: &[u8], object: Span) -> bool {
    let inner = object.slice(document).get(1..).unwrap_or_default();
    inner.trim_ascii_start().first() == Some(&b'}')
}

/// The members that a list or `server/discover` has beside its own: how long it may be kept, by
/// whom, and who says it.
pub fn own_result_members(ttl_ms: u64, is_private: bool) -> String {
    let scope = if is_private { "private" } else { "public" };
    format!(r#""resultType":"complete","ttlMs":{ttl_ms},"cacheScope":"{scope}","#)
}

/// The member of `_meta` that says who answers.
pub fn own_server_info() -> String {
    format!("\"{SERVER_INFO}\":{OWN_INFO}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{
        envelope,
        json::DEPTH_MAX,
        reply_scan::{scan_marked, scan_reply},
        version::STATELESS,
    };

    fn requested(body: &str, edit: impl Fn(&[u8], &Envelope, &mut Edits)) -> serde_json::Value {
        let message = envelope::scan(body.as_bytes(), DEPTH_MAX).unwrap();
        let mut edits = Edits::default();
        edit(body.as_bytes(), &message, &mut edits);
        let mut out = Vec::new();
        edits.apply(&mut out, body.as_bytes());
        serde_json::from_slice(&out).unwrap()
    }

    fn answered(document: &str, edit: impl Fn(&[u8], Span, &mut Edits)) -> String {
        let scan = scan_reply(document.as_bytes()).unwrap();
        let mut edits = Edits::default();
        edit(document.as_bytes(), scan.result.unwrap(), &mut edits);
        let mut out = Vec::new();
        edits.apply(&mut out, document.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_session_is_introduced_wherever_its_request_has_room() {
        let asker = Asker {
            info: Some(br#"{"name":"c","version":"1"}"#),
            capabilities: br#"{"roots":{}}"#,
            log_level: Some("error"),
        };
        for (body, token) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#, None),
            (
                r#"{"jsonrpc":"2.0","id":1,"params":{"name":"t"},"method":"m"} "#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{ }}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":7}}}"#,
                Some(7),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/logLevel":"x"}}}"#,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":7,"io.modelcontextprotocol/logLevel":"x"}}}"#,
                Some(7),
            ),
        ] {
            let value = requested(body, |body, message, edits| {
                asker.introduce(body, message, edits);
            });
            let meta = &value["params"]["_meta"];
            assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], STATELESS);
            assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "c");
            assert!(meta["io.modelcontextprotocol/clientCapabilities"]["roots"].is_object());
            assert_eq!(meta["io.modelcontextprotocol/logLevel"], "error");
            assert_eq!(meta["progressToken"].as_i64(), token);
        }
        let mut own = b"{".to_vec();
        own_meta(&mut own);
        own.push(b'}');
        let own: serde_json::Value = serde_json::from_slice(&own).unwrap();
        let info = &own["_meta"]["io.modelcontextprotocol/clientInfo"];
        assert_eq!(info["name"], "shardgate");
        let able = &own["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert!(
            ["elicitation", "roots", "sampling"]
                .iter()
                .all(|kind| able[kind].is_object())
        );
    }

    #[test]
    fn a_session_is_told_nothing_of_the_stateless_revision() {
        let value = requested(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"requestState":"s","name":"t","_meta":{
                "io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1,
                "traceparent":"00","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
            anonymise,
        );
        assert_eq!(
            value["params"],
            serde_json::json!({"name": "t", "_meta": {"progressToken": 1, "traceparent": "00"}})
        );
    }

    #[test]
    fn results_cross_the_profiles() {
        let stateless = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[],"ttlMs":5,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"b"},"k":1},"cacheScope":"public"}}"#;
        assert_eq!(
            answered(stateless, result_to_session),
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"k":1}}}"#
        );
        assert_eq!(
            answered(stateless, |document, result, edits| {
                let scan = scan_reply(document).unwrap();
                assert_eq!(scan.result, Some(result));
                let marks = result_marks(document, &scan);
                result_between_stateless(document, &marks, true, edits);
            }),
            stateless
                .replace(r#"{"name":"b"}"#, OWN_INFO)
                .replace("public", "private")
        );
        for (old, is_kept) in [
            (r#"{"result":{},"id":1}"#, true),
            (r#"{"result":{"content":[]},"id":1}"#, false),
            (r#"{"result":{"content":[],"_meta":{"k":1}},"id":1}"#, true),
            (r#"{"result":{"_meta":{}},"id":1}"#, true),
        ] {
            let new = answered(old, |document, result, edits| {
                result_to_stateless(document, result, is_kept, edits);
            });
            let new: serde_json::Value = serde_json::from_str(&new).unwrap();
            let result = &new["result"];
            assert_eq!(result["resultType"], "complete");
            assert_eq!(result["ttlMs"].as_i64(), is_kept.then_some(0));
            assert_eq!(result["_meta"][SERVER_INFO]["name"], "shardgate");
        }
    }

    #[test]
    fn what_a_result_is() {
        let of = |member: &str| {
            let document = format!(r#"{{"id":1,"result":{{{member}}}}}"#);
            let document = document.as_bytes();
            let marks = result_marks(document, &scan_reply(document).unwrap());
            assert_eq!(
                marks,
                result_marks(document, &scan_marked(document).unwrap())
            );
            marks.kind
        };
        assert_eq!(of(r#""resultType":"complete""#), ResultType::Complete);
        assert_eq!(
            of(r#""resultType":"input_required""#),
            ResultType::InputRequired
        );
        assert_eq!(of(r#""resultType":"task""#), ResultType::Task);
        assert_eq!(of(r#""resultType":"x/task""#), ResultType::Extension);
        assert_eq!(of(r#""resultType":7"#), ResultType::Missing);
        assert_eq!(of(""), ResultType::Missing);
    }

    #[test]
    fn codes_of_sessions_are_exchanged() {
        for (old, new) in [(-32002, -32602), (-32042, -32603), (-32000, -32000)] {
            let document = format!(r#"{{"id":1,"error":{{"code":{old},"message":"m"}}}}"#);
            let scan = scan_reply(document.as_bytes()).unwrap();
            let mut edits = Edits::default();
            error_to_stateless(document.as_bytes(), &scan, &mut edits);
            let mut out = Vec::new();
            edits.apply(&mut out, document.as_bytes());
            let out = String::from_utf8(out).unwrap();
            assert!(out.contains(&format!("\"code\":{new},")), "{out}");
        }
        for (code, status) in [(-32601, Some(404)), (-32021, Some(400)), (-32602, None)] {
            let document = format!(r#"{{"id":1,"error":{{"code":{code}}}}}"#);
            let scan = scan_reply(document.as_bytes()).unwrap();
            assert_eq!(status_of_error(document.as_bytes(), &scan), status);
        }
    }
}
