//! The JSON-RPC envelope of what clients send: one strict pass, spans out, no tree.
//!
//! Owns: which bytes are one MCP message, what kind it is, and where the members stand that the
//! gateway must know to authorise, route and rewrite it. What is authorised is the very bytes
//! that are forwarded, so whatever two parsers could read differently is refused: repeated keys,
//! keys that differ by case or by folding (GHSA-4gph-2hhr-5mwg, CVE-2026-27896), two documents.
//! Never: judges the method, the profile or a value's meaning, re-serialises, or looks inside
//! `arguments` and other payload beyond the grammar.

mod fault;
mod keys;

use memchr::memchr;

use crate::http::head::Span;
use crate::mcp::json::{self, Members};

pub use fault::EnvelopeFault;
use keys::{
    ClientKey, MetaKey, PARAMS_FOLDED, ParamsKey, REFERENCE_FOLDED, ReferenceKey, TOP_FOLDED,
    client_key, meta_key, params_key, reference_key, resolve,
};
pub(super) use keys::{TopKey, top_key};

/// What a message from a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// `method` and `id`: wants one answer.
    Request,
    /// `method` without `id`: wants none.
    #[default]
    Notification,
    /// `result` or `error`: answers a request the upstream side sent.
    Response,
}

/// Where the members of one accepted message stand.
///
/// Spans count from the start of the body and cover the raw value, quotes included, unless said
/// otherwise. Values other than ids keep whatever JSON type the client gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// What the message is.
    pub kind: Kind,
    /// `id`: a string or integer lexeme (MCP: never null), to be echoed as it stands.
    pub id: Option<Span>,
    /// `method`, between its quotes; free of escapes.
    pub method: Option<Span>,
    /// `params`: an object.
    pub params: Option<Span>,
    /// `params.name` of `tools/call` and `prompts/get`; may hold escapes.
    pub name: Option<Span>,
    /// `params.uri` of the `resources/*` requests; may hold escapes.
    pub uri: Option<Span>,
    /// `params.cursor` of the list requests; the empty string is a cursor.
    pub cursor: Option<Span>,
    /// `params.arguments`, relayed untouched.
    pub arguments: Option<Span>,
    /// `params._meta`: an object.
    pub meta: Option<Span>,
    /// `params.requestId` of `notifications/cancelled`.
    pub request_id: Option<Span>,
    /// `params.protocolVersion` of `initialize`.
    pub protocol_version: Option<Span>,
    /// `params.capabilities` of `initialize`.
    pub capabilities: Option<Span>,
    /// `params.clientInfo` of `initialize`.
    pub client_info: Option<Span>,
    /// `params.taskId` of the `tasks/*` requests; may hold escapes.
    pub task_id: Option<Span>,
    /// `params.requestState` of a request that goes on with another one (MCP 2026-07-28).
    pub request_state: Option<Span>,
    /// `params.ref` of `completion/complete`.
    pub reference: Option<Span>,
    /// `params.ref.type`.
    pub reference_type: Option<Span>,
    /// `params.ref.name` of a reference to a prompt; may hold escapes.
    pub reference_name: Option<Span>,
    /// `params.ref.uri` of a reference to a resource or template; may hold escapes.
    pub reference_uri: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/related-task"]` (MCP 2025-11-25).
    pub related_task: Option<Span>,
    /// `params._meta.progressToken`.
    pub progress_token: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/protocolVersion"]` (MCP 2026-07-28).
    pub meta_protocol_version: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/clientCapabilities"]` (MCP 2026-07-28).
    pub meta_capabilities: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/clientInfo"]` (MCP 2026-07-28).
    pub meta_client_info: Option<Span>,
    /// `name` of that, when it is an object; of several the last.
    pub client_name: Option<Span>,
    /// `version` of that.
    pub client_version: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/logLevel"]` (MCP 2026-07-28).
    pub meta_log_level: Option<Span>,
    /// `result` of a response.
    pub result: Option<Span>,
    /// `error` of a response.
    pub error: Option<Span>,
}

/// Reads one message of a client; nesting deeper than `depth_max` is refused.
///
/// # Errors
/// The first reason why the body must not travel on.
pub fn scan(body: &[u8], depth_max: u16) -> Result<Envelope, EnvelopeFault> {
    let start = document_start(body)?;
    if body.get(start) != Some(&b'{') {
        return Err(not_an_object(body, start, depth_max));
    }
    let mut envelope = Envelope::default();
    let mut version = None;
    let mut members = Members::at(body, start, depth_max);
    while let Some((_, key)) = members.next_key()? {
        match resolve(key, top_key, TOP_FOLDED)? {
            Some(TopKey::JsonRpc) => once(&mut version, members.value()?)?,
            Some(TopKey::Id) => once(&mut envelope.id, members.value()?)?,
            Some(TopKey::Method) => once(&mut envelope.method, members.value()?)?,
            Some(TopKey::Params) => {
                if envelope.params.is_some() {
                    return Err(EnvelopeFault::DuplicateKey);
                }
                let inner = scan_params(inner_object(&mut members)?, &mut envelope)?;
                envelope.params = Some(members.value_walked(&inner));
            }
            Some(TopKey::Result) => once(&mut envelope.result, members.value()?)?,
            Some(TopKey::Error) => once(&mut envelope.error, members.value()?)?,
            None => {
                members.value()?;
            }
        }
    }
    document_end(body, members.offset())?;
    if version.is_none_or(|version: Span| version.slice(body) != b"\"2.0\"") {
        return Err(EnvelopeFault::BadVersion);
    }
    if envelope.id.is_some_and(|id| !is_id(id.slice(body))) {
        return Err(EnvelopeFault::BadId);
    }
    envelope.kind = kind_of(&envelope)?;
    if let Some(quoted) = envelope.method {
        envelope.method = Some(method_name(body, quoted)?);
    }
    check_read_texts(body, &envelope)?;
    Ok(envelope)
}

/// The id an error answer to a refused body may echo.
///
/// `None` unless the body is one well-formed object with exactly one valid `id`, spelt so that
/// every parser finds it.
#[must_use]
pub fn readable_id(body: &[u8], depth_max: u16) -> Option<Span> {
    let start = document_start(body).ok()?;
    let mut members = Members::at(body, start, depth_max);
    let mut id = None;
    while let Some((_, key)) = members.next_key().ok()? {
        let is_id_key = resolve(key, |name| (name == b"id").then_some(()), &["id"]);
        let value = members.value().ok()?;
        if is_id_key.ok()?.is_some() {
            once(&mut id, value).ok()?;
        }
    }
    document_end(body, members.offset()).ok()?;
    id.filter(|id: &Span| is_id(id.slice(body)) && json::decodes(id.slice(body)))
}

/// Whether a value's lexeme may be a request id or a progress token: a string or an integer.
///
/// Integers may have any number of digits; `-0`, fractions and exponents are refused, since
/// parsers disagree on whether they equal another integer.
#[must_use]
pub fn is_id(lexeme: &[u8]) -> bool {
    match lexeme {
        [b'"', ..] => true,
        b"-0" => false,
        [b'-', digits @ ..] | digits => !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
    }
}

/// Checks length and UTF-8 of a document and finds its first byte.
pub(super) fn document_start(body: &[u8]) -> Result<usize, EnvelopeFault> {
    json::check_len(body)?;
    // Most are ASCII, and that is seen in a fraction of the time.
    if !body.is_ascii() && std::str::from_utf8(body).is_err() {
        return Err(EnvelopeFault::NotJson);
    }
    Ok(json::skip_whitespace(body, 0))
}

/// Refuses anything but whitespace after the document.
pub(super) fn document_end(body: &[u8], pos: usize) -> Result<(), EnvelopeFault> {
    if json::skip_whitespace(body, pos) == body.len() {
        Ok(())
    } else {
        Err(EnvelopeFault::NotJson)
    }
}

/// Names the fault of a body that does not start with an object.
pub(super) fn not_an_object(body: &[u8], start: usize, depth_max: u16) -> EnvelopeFault {
    let end = match json::skip_value(body, start, depth_max) {
        Ok(end) => end,
        Err(fault) => return fault.into(),
    };
    match document_end(body, end) {
        Err(fault) => fault,
        Ok(()) if body.get(start) == Some(&b'[') => EnvelopeFault::Batch,
        Ok(()) => EnvelopeFault::NotAnObject,
    }
}

/// Fills a member's slot, which must still be empty.
#[inline]
pub(super) fn once(slot: &mut Option<Span>, value: Span) -> Result<(), EnvelopeFault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(EnvelopeFault::DuplicateKey),
    }
}

/// The span between the quotes of a `method` value.
pub(super) fn method_name(body: &[u8], quoted: Span) -> Result<Span, EnvelopeFault> {
    let lexeme = quoted.slice(body);
    if lexeme.first() != Some(&b'"') {
        return Err(EnvelopeFault::BadMethod);
    }
    if memchr(b'\\', lexeme).is_some() {
        return Err(EnvelopeFault::EscapedMethod);
    }
    Ok(Span {
        start: quoted.start + 1,
        end: quoted.end - 1,
    })
}

/// The walk over the object that is the value at the offset of `outer`.
#[inline]
fn inner_object<'a>(outer: &mut Members<'a>) -> Result<Members<'a>, EnvelopeFault> {
    if let Some(inner) = outer.inner() {
        return Ok(inner);
    }
    outer.value()?;
    Err(EnvelopeFault::BadParams)
}

/// Walks `params` and returns the finished walk.
fn scan_params<'a>(
    mut members: Members<'a>,
    envelope: &mut Envelope,
) -> Result<Members<'a>, EnvelopeFault> {
    while let Some((_, key)) = members.next_key()? {
        let slot = match resolve(key, params_key, PARAMS_FOLDED)? {
            Some(ParamsKey::Meta) => {
                if envelope.meta.is_some() {
                    return Err(EnvelopeFault::DuplicateKey);
                }
                let inner = scan_meta(inner_object(&mut members)?, envelope)?;
                envelope.meta = Some(members.value_walked(&inner));
                continue;
            }
            Some(ParamsKey::Reference) => {
                if envelope.reference.is_some() {
                    return Err(EnvelopeFault::DuplicateKey);
                }
                let span = match members.inner() {
                    Some(inner) => {
                        let inner = scan_reference(inner, envelope)?;
                        members.value_walked(&inner)
                    }
                    None => members.value()?,
                };
                envelope.reference = Some(span);
                continue;
            }
            None => {
                members.value()?;
                continue;
            }
            Some(ParamsKey::Name) => &mut envelope.name,
            Some(ParamsKey::Uri) => &mut envelope.uri,
            Some(ParamsKey::Cursor) => &mut envelope.cursor,
            Some(ParamsKey::Arguments) => &mut envelope.arguments,
            Some(ParamsKey::RequestId) => &mut envelope.request_id,
            Some(ParamsKey::ProtocolVersion) => &mut envelope.protocol_version,
            Some(ParamsKey::Capabilities) => &mut envelope.capabilities,
            Some(ParamsKey::ClientInfo) => &mut envelope.client_info,
            Some(ParamsKey::TaskId) => &mut envelope.task_id,
            Some(ParamsKey::RequestState) => &mut envelope.request_state,
        };
        once(slot, members.value()?)?;
    }
    Ok(members)
}

/// Walks `params.ref` and returns the finished walk.
fn scan_reference<'a>(
    mut members: Members<'a>,
    envelope: &mut Envelope,
) -> Result<Members<'a>, EnvelopeFault> {
    while let Some((_, key)) = members.next_key()? {
        let known = resolve(key, reference_key, REFERENCE_FOLDED)?;
        let value = members.value()?;
        match known {
            Some(ReferenceKey::Type) => once(&mut envelope.reference_type, value)?,
            Some(ReferenceKey::Name) => once(&mut envelope.reference_name, value)?,
            Some(ReferenceKey::Uri) => once(&mut envelope.reference_uri, value)?,
            None => {}
        }
    }
    Ok(members)
}

/// Walks `params._meta` and returns the finished walk.
fn scan_meta<'a>(
    mut members: Members<'a>,
    envelope: &mut Envelope,
) -> Result<Members<'a>, EnvelopeFault> {
    while let Some((_, key)) = members.next_key()? {
        let known = resolve(key, meta_key, &[])?;
        if let (Some(MetaKey::ClientInfo), Some(inner)) = (known, members.inner()) {
            let inner = scan_client_info(inner, envelope)?;
            once(&mut envelope.meta_client_info, members.value_walked(&inner))?;
            continue;
        }
        let value = members.value()?;
        match known {
            Some(MetaKey::ProgressToken) => once(&mut envelope.progress_token, value)?,
            Some(MetaKey::ProtocolVersion) => once(&mut envelope.meta_protocol_version, value)?,
            Some(MetaKey::RelatedTask) => once(&mut envelope.related_task, value)?,
            Some(MetaKey::Capabilities) => once(&mut envelope.meta_capabilities, value)?,
            Some(MetaKey::ClientInfo) => once(&mut envelope.meta_client_info, value)?,
            Some(MetaKey::LogLevel) => once(&mut envelope.meta_log_level, value)?,
            None => {}
        }
    }
    Ok(members)
}

/// Walks `_meta`'s `clientInfo` and returns the finished walk.
fn scan_client_info<'a>(
    mut members: Members<'a>,
    envelope: &mut Envelope,
) -> Result<Members<'a>, EnvelopeFault> {
    while let Some((_, key)) = members.next_key()? {
        let known = resolve(key, client_key, &[])?;
        let value = Some(members.value()?);
        match known {
            Some(ClientKey::Name) => envelope.client_name = value,
            Some(ClientKey::Version) => envelope.client_version = value,
            None => {}
        }
    }
    Ok(members)
}

/// What the members found make of the message.
fn kind_of(envelope: &Envelope) -> Result<Kind, EnvelopeFault> {
    let has_id = envelope.id.is_some();
    match (envelope.method, envelope.result, envelope.error) {
        (Some(_), None, None) if has_id => Ok(Kind::Request),
        (Some(_), None, None) => Ok(Kind::Notification),
        (None, Some(_), None) if !has_id => Err(EnvelopeFault::BadId),
        // MCP 2025-11-25 JSONRPCErrorResponse: an error may lack the id it could not read.
        (None, Some(_), None) | (None, None, Some(_)) => Ok(Kind::Response),
        (None, None, None) => Err(EnvelopeFault::NoMethod),
        _ => Err(EnvelopeFault::Ambiguous),
    }
}

/// Refuses lone surrogate escapes in the values that the gateway itself compares or decodes.
fn check_read_texts(body: &[u8], envelope: &Envelope) -> Result<(), EnvelopeFault> {
    let read = [
        envelope.id,
        envelope.name,
        envelope.uri,
        envelope.cursor,
        envelope.request_id,
        envelope.protocol_version,
        envelope.task_id,
        envelope.reference_type,
        envelope.reference_name,
        envelope.reference_uri,
        envelope.progress_token,
        envelope.meta_protocol_version,
    ];
    if read
        .into_iter()
        .flatten()
        .all(|text| json::decodes(text.slice(body)))
    {
        Ok(())
    } else {
        Err(EnvelopeFault::LoneSurrogate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::json::DEPTH_MAX;

    #[test]
    fn ids_are_strings_and_plain_integers() {
        for lexeme in [
            &b"0"[..],
            b"-1",
            b"18446744073709551616",
            b"\"\"",
            b"\"null\"",
        ] {
            assert!(is_id(lexeme), "{lexeme:?}");
        }
        for lexeme in [
            &b""[..],
            b"-",
            b"-0",
            b"1.0",
            b"1e3",
            b"null",
            b"true",
            b"{}",
            b"[]",
        ] {
            assert!(!is_id(lexeme), "{lexeme:?}");
        }
    }

    #[test]
    fn the_first_fault_in_reading_order_counts() {
        let faults = |body: &str| scan(body.as_bytes(), DEPTH_MAX).err();
        let twice_then_broken = r#"{"id":1,"id":2,"#;
        assert_eq!(faults(twice_then_broken), Some(EnvelopeFault::DuplicateKey));
        let broken_then_twice = r#"{"x":tru,"id":1,"id":2}"#;
        assert_eq!(faults(broken_then_twice), Some(EnvelopeFault::NotJson));
        let no_version_nor_method = r#"{"id":null}"#;
        assert_eq!(
            faults(no_version_nor_method),
            Some(EnvelopeFault::BadVersion)
        );
    }

    #[test]
    fn a_bound_of_no_levels_admits_no_message() {
        let body = br#"{"jsonrpc":"2.0","method":"a"}"#;
        assert_eq!(scan(body, 0), Err(EnvelopeFault::TooDeep));
        assert_eq!(
            scan(body, 1).map(|found| found.kind),
            Ok(Kind::Notification)
        );
        let nested = br#"{"jsonrpc":"2.0","method":"a","params":{"_meta":{}}}"#;
        assert_eq!(scan(nested, 2), Err(EnvelopeFault::TooDeep));
        assert!(scan(nested, 3).is_ok());
    }
}
