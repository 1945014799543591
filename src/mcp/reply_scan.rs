//! The top level of what backends send: one JSON document of a body or of one SSE event.
//!
//! Owns: which kind of message a document is and where its id, method and payload stand, so that
//! ids and tokens are replaced in place and all else is relayed as it came.
//! Lenient where a reader of the result cannot be misled: unknown members, any order of keys, no
//! `jsonrpc`; the payload is skipped by balance only and its UTF-8 is not checked. Strict where
//! the gateway would answer one request with another's result: repeated keys.
//! Never: refuses a payload for its content or copies it.

use crate::http::head::Span;
use crate::mcp::envelope::{
    EnvelopeFault, TopKey, document_end, method_name, not_an_object, once, top_key,
};
use crate::mcp::json::{self, DEPTH_MAX, Members};

/// What a document from a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// Answers a request with `result`.
    Result,
    /// Answers a request with `error`, or tells of one that could not be read.
    Error,
    /// Asks the client something: `method` and `id`.
    Request,
    /// Tells the client something: `method` without `id`.
    Notification,
}

/// Where the top-level members of one document stand; spans cover the raw values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyScan {
    /// What the document is.
    pub kind: ReplyKind,
    /// `id`, quotes included; the lexeme `null` when the backend could not read the id.
    pub id: Option<Span>,
    /// `method`, between its quotes; free of escapes.
    pub method: Option<Span>,
    /// `params` of a request or notification.
    pub params: Option<Span>,
    /// `result`; absent when the kind is `Error`.
    pub result: Option<Span>,
    /// `error`; absent when the kind is `Result`.
    pub error: Option<Span>,
    /// Members of `result` that a stateless backend's have, when they were asked for.
    pub marks: Option<Marks>,
}

/// Where the members of a result stand that say what it is; of repeated ones the last counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `resultType`.
    pub result_type: Option<Span>,
    /// `_meta`.
    pub meta: Option<Span>,
    /// `cacheScope`.
    pub cache_scope: Option<Span>,
}

/// Reads the top level of one document of a backend.
///
/// # Errors
/// Why the document cannot be relayed.
pub fn scan_reply(data: &[u8]) -> Result<ReplyScan, EnvelopeFault> {
    scan(data, false)
}

/// The same for a document of a stateless backend, with the marks of its result.
///
/// # Errors
/// Why the document cannot be relayed; a result whose own members cannot be told apart is one.
pub fn scan_marked(data: &[u8]) -> Result<ReplyScan, EnvelopeFault> {
    scan(data, true)
}

#[inline(always)]
fn scan(data: &[u8], is_marked: bool) -> Result<ReplyScan, EnvelopeFault> {
    json::check_len(data)?;
    let start = json::skip_whitespace(data, 0);
    if data.get(start) != Some(&b'{') {
        return Err(not_an_object(data, start, DEPTH_MAX));
    }
    let (mut id, mut method, mut params) = (None, None, None);
    let (mut result, mut error) = (None, None);
    let mut members = Members::at(data, start, DEPTH_MAX);
    let mut marks = None;
    while let Some((_, key)) = members.next_key()? {
        let key = known_key(key, top_key);
        let value = match (key, members.inner()) {
            (Some(TopKey::Result), Some(inner)) if is_marked => {
                let (found, inner) = scan_result(inner)?;
                marks = Some(found);
                members.value_walked(&inner)
            }
            _ => members.value_fast()?,
        };
        match key {
            Some(TopKey::Id) => once(&mut id, value)?,
            Some(TopKey::Method) => once(&mut method, value)?,
            Some(TopKey::Params) => once(&mut params, value)?,
            Some(TopKey::Result) => once(&mut result, value)?,
            Some(TopKey::Error) => once(&mut error, value)?,
            Some(TopKey::JsonRpc) | None => {}
        }
    }
    document_end(data, members.offset())?;
    let is_null = |value: Option<Span>| value.is_some_and(|value| value.slice(data) == b"null");
    // JSON-RPC 1.0 habits: the member that does not apply is sent as null beside the other.
    if result.is_some() && is_null(error) {
        error = None;
    } else if error.is_some() && is_null(result) {
        result = None;
    }
    let has_id = id.is_some();
    let kind = match (method, result, error) {
        (None, Some(_), None) => ReplyKind::Result,
        (None, None, Some(_)) => ReplyKind::Error,
        (Some(_), None, None) if has_id => ReplyKind::Request,
        (Some(_), None, None) => ReplyKind::Notification,
        (None, None, None) => return Err(EnvelopeFault::NoMethod),
        _ => return Err(EnvelopeFault::Ambiguous),
    };
    if let Some(id) = id {
        let first = id.slice(data).first();
        let is_scalar = matches!(first, Some(b'"' | b'-' | b'0'..=b'9'));
        // Only an error answers a request whose id could not be read (JSON-RPC 2.0 section 5).
        let is_unread = is_null(Some(id)) && kind == ReplyKind::Error;
        if !is_scalar && !is_unread {
            return Err(EnvelopeFault::BadId);
        }
    }
    let method = match method {
        Some(quoted) => Some(method_name(data, quoted)?),
        None => None,
    };
    Ok(ReplyScan {
        kind,
        id,
        method,
        params,
        result,
        error,
        marks,
    })
}

/// Walks a result and returns the finished walk.
fn scan_result(mut members: Members<'_>) -> Result<(Marks, Members<'_>), EnvelopeFault> {
    let mut marks = Marks::default();
    while let Some((_, key)) = members.next_key()? {
        let value = Some(members.value_fast()?);
        match known_key(key, result_key) {
            Some(ResultKey::Type) => marks.result_type = value,
            Some(ResultKey::Meta) => marks.meta = value,
            Some(ResultKey::CacheScope) => marks.cache_scope = value,
            None => {}
        }
    }
    Ok((marks, members))
}

/// The `code` of an error object; of repeated ones the first.
///
/// `None` when there is none or it is not an integer that fits.
#[must_use]
pub fn first_error_code(error: &[u8]) -> Option<i64> {
    for item in json::members(error) {
        let (key, value) = item.ok()?;
        if json::unescape(key.slice(error)).is_some_and(|key| key == "code") {
            return std::str::from_utf8(value.slice(error)).ok()?.parse().ok();
        }
    }
    None
}

/// A key of a result that says what it is.
#[derive(Clone, Copy)]
enum ResultKey {
    Type,
    Meta,
    CacheScope,
}

#[inline]
fn result_key(name: &[u8]) -> Option<ResultKey> {
    match name {
        b"resultType" => Some(ResultKey::Type),
        b"_meta" => Some(ResultKey::Meta),
        b"cacheScope" => Some(ResultKey::CacheScope),
        _ => None,
    }
}

/// The known key a quoted key of a reply decodes to.
#[inline]
fn known_key<K>(quoted: &[u8], exact: fn(&[u8]) -> Option<K>) -> Option<K> {
    let raw = json::content(quoted);
    exact(raw).or_else(|| {
        let is_escaped = raw.contains(&b'\\');
        if is_escaped {
            exact(json::unescape(quoted)?.as_bytes())
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(data: &str) -> Result<ReplyScan, EnvelopeFault> {
        scan_reply(data.as_bytes())
    }

    #[test]
    fn the_kinds_are_told_apart_in_any_order_of_members() {
        let kind = |data: &str| scanned(data).map(|reply| reply.kind);
        assert_eq!(
            kind(r#"{"result":{},"id":1,"jsonrpc":"2.0"}"#),
            Ok(ReplyKind::Result)
        );
        assert_eq!(
            kind(r#"{"x":[1],"id":"a","error":{"code":1}}"#),
            Ok(ReplyKind::Error)
        );
        assert_eq!(kind(r#"{"error":{"code":1}}"#), Ok(ReplyKind::Error));
        assert_eq!(
            kind(r#"{"id":null,"error":{"code":1}}"#),
            Ok(ReplyKind::Error)
        );
        assert_eq!(
            kind(r#"{"id":0,"method":"roots/list"}"#),
            Ok(ReplyKind::Request)
        );
        assert_eq!(
            kind(r#" {"method":"a","params":{}} "#),
            Ok(ReplyKind::Notification)
        );
    }

    #[test]
    fn null_beside_the_member_that_applies_is_no_member() {
        let reply = scanned(r#"{"id":1,"result":{},"error":null}"#).expect("a result");
        assert_eq!((reply.kind, reply.error), (ReplyKind::Result, None));
        let reply = scanned(r#"{"id":1,"result":null,"error":{}}"#).expect("an error");
        assert_eq!((reply.kind, reply.result), (ReplyKind::Error, None));
        let reply = scanned(r#"{"id":1,"result":null}"#).expect("a result");
        assert_eq!(reply.kind, ReplyKind::Result);
    }

    #[test]
    fn repeated_keys_are_refused() {
        for data in [
            r#"{"id":1,"id":2,"result":{}}"#,
            r#"{"id":1,"\u0069d":2,"result":{}}"#,
            r#"{"id":1,"result":{},"result":{}}"#,
            r#"{"id":1,"error":{},"error":{}}"#,
            r#"{"method":"a","method":"b"}"#,
            r#"{"method":"a","params":{},"params":{}}"#,
        ] {
            assert_eq!(scanned(data), Err(EnvelopeFault::DuplicateKey), "{data}");
        }
        assert!(scanned(r#"{"jsonrpc":"1.0","id":1,"x":1,"x":2,"ID":3,"result":{}}"#).is_ok());
    }

    #[test]
    fn documents_that_say_nothing_certain_are_refused() {
        for (data, fault) in [
            ("", EnvelopeFault::NotJson),
            ("{", EnvelopeFault::NotJson),
            (r#"{"id":1,"result":{}"#, EnvelopeFault::NotJson),
            (r#"{"id":1,"result":{}}{}"#, EnvelopeFault::NotJson),
            (r#"{"id":1,"result":{]"#, EnvelopeFault::NotJson),
            (r#"{"id":1,"result":nul}"#, EnvelopeFault::NotJson),
            (r#"[{"id":1,"result":{}}]"#, EnvelopeFault::Batch),
            ("7", EnvelopeFault::NotAnObject),
            ("{}", EnvelopeFault::NoMethod),
            (
                r#"{"id":1,"result":{},"error":{}}"#,
                EnvelopeFault::Ambiguous,
            ),
            (
                r#"{"id":1,"method":"a","result":{}}"#,
                EnvelopeFault::Ambiguous,
            ),
            (r#"{"id":{},"result":{}}"#, EnvelopeFault::BadId),
            (r#"{"id":null,"result":{}}"#, EnvelopeFault::BadId),
            (r#"{"id":null,"method":"a"}"#, EnvelopeFault::BadId),
            (r#"{"id":1,"method":"a\/b"}"#, EnvelopeFault::EscapedMethod),
            (r#"{"id":1,"method":{}}"#, EnvelopeFault::BadMethod),
        ] {
            assert_eq!(scanned(data), Err(fault), "{data}");
        }
    }

    #[test]
    fn large_results_are_spanned_whole() {
        let result = format!("{{\"t\":\"{}\"}}", "text \\\" ] } ".repeat(2_000));
        let data = format!("{{\"jsonrpc\":\"2.0\",\"result\":{result},\"id\":9}}");
        let reply = scanned(&data).expect("a result");
        assert_eq!(
            reply.result.map(|span| span.slice(data.as_bytes())),
            Some(result.as_bytes())
        );
        assert_eq!(
            reply.id.map(|span| span.slice(data.as_bytes())),
            Some(&b"9"[..])
        );
    }

    #[test]
    fn the_first_error_code_counts() {
        assert_eq!(
            first_error_code(br#"{"message":"code","code":-32601}"#),
            Some(-32601)
        );
        assert_eq!(first_error_code(br#"{"\u0063ode":5,"code":6}"#), Some(5));
        assert_eq!(first_error_code(br#"{"data":{"code":1}}"#), None);
        assert_eq!(first_error_code(br#"{"code":"1"}"#), None);
        assert_eq!(first_error_code(br#"{"code":1.5}"#), None);
        assert_eq!(first_error_code(b"null"), None);
    }
}
