//! What must hold of a stateless request before it is looked into: its `_meta`, and the headers
//! that mirror the body (mcp.md 2.1, 2.2). Pure: bytes in, verdict out.

use crate::{
    http::{RequestHead, Span},
    mcp::{envelope::Envelope, json, mirror},
    stateless::StatelessFault,
    upstream::log_level::level_of,
};

/// Longest name or version of a client.
const CLIENT_TEXT_BYTES_MAX: usize = 1024;

/// Checks `_meta` and `Mcp-Method`.
pub fn admit(
    head: &RequestHead,
    head_bytes: &[u8],
    message: &Envelope,
    body: &[u8],
) -> Result<(), StatelessFault> {
    let raw = |span: Option<Span>| span.map(|span| span.slice(body));
    let Some(capabilities) = raw(message.meta_capabilities) else {
        return Err(StatelessFault::MetaMissing(
            "io.modelcontextprotocol/clientCapabilities",
        ));
    };
    if !capabilities.starts_with(b"{") {
        return Err(StatelessFault::Params(
            "clientCapabilities is not an object",
        ));
    }
    let is_named = [message.client_name, message.client_version]
        .into_iter()
        .all(|said| raw(said).is_some_and(is_client_text));
    if message.meta_client_info.is_some() && !is_named {
        return Err(StatelessFault::Params("clientInfo has no name and version"));
    }
    if let Some(level) = raw(message.meta_log_level)
        && json::unescape(level)
            .and_then(|level| level_of(&level))
            .is_none()
    {
        return Err(StatelessFault::Params("logLevel is not a level"));
    }
    let method = raw(message.method).unwrap_or_default();
    match head.mcp_method {
        Some(sent) if !head.repeated_mcp_method && sent.slice(head_bytes) == method => Ok(()),
        _ => Err(StatelessFault::Header("Mcp-Method")),
    }
}

/// Whether a member of `clientInfo` is a text that says something.
fn is_client_text(raw: &[u8]) -> bool {
    let length = match json::verbatim(raw) {
        Some(text) => text.len(),
        None => json::unescape(raw).map_or(0, |text| text.len()),
    };
    (1..=CLIENT_TEXT_BYTES_MAX).contains(&length)
}

/// Checks `Mcp-Name` against what the body names.
pub fn check_name(
    head: &RequestHead,
    head_bytes: &[u8],
    named: &str,
) -> Result<(), StatelessFault> {
    let sent = head.mcp_name.filter(|_| !head.repeated_mcp_name);
    sent.and_then(|sent| mirror::check_name(sent.slice(head_bytes), named).ok())
        .ok_or(StatelessFault::Header("Mcp-Name"))
}
