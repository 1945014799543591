//! The keys the gateway reads, and when a key is one of them.
//!
//! Owns: comparing keys after decoding, and refusing those that a lax parser takes for one.
//! Never: reads a value.

use memchr::memchr;

use super::EnvelopeFault;
use crate::mcp::json;

/// Names whose folded twins are refused at the top level.
pub(super) const TOP_FOLDED: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error"];
/// Names whose folded twins are refused inside `params`: what routing and authorisation rest on.
pub(super) const PARAMS_FOLDED: &[&str] = &["name", "uri", "_meta", "arguments", "ref", "taskid"];
/// Names whose folded twins are refused inside `params.ref`.
pub(super) const REFERENCE_FOLDED: &[&str] = &["type", "name", "uri"];
/// The key that marks a stateless request (MCP 2026-07-28).
const META_VERSION_KEY: &[u8] = b"io.modelcontextprotocol/protocolVersion";
/// Keys of a stateless request beside it (mcp.md 2.1).
const META_CAPABILITIES_KEY: &[u8] = b"io.modelcontextprotocol/clientCapabilities";
const META_CLIENT_INFO_KEY: &[u8] = b"io.modelcontextprotocol/clientInfo";
const META_LOG_LEVEL_KEY: &[u8] = b"io.modelcontextprotocol/logLevel";
/// The key that ties a message to a task (mcp.md 3.4).
const META_TASK_KEY: &[u8] = b"io.modelcontextprotocol/related-task";

/// A key the gateway reads at the top level of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mcp) enum TopKey {
    /// `jsonrpc`
    JsonRpc,
    /// `id`
    Id,
    /// `method`
    Method,
    /// `params`
    Params,
    /// `result`
    Result,
    /// `error`
    Error,
}

/// The top-level key of exactly this spelling.
#[inline]
pub(in crate::mcp) fn top_key(name: &[u8]) -> Option<TopKey> {
    Some(match name {
        b"jsonrpc" => TopKey::JsonRpc,
        b"id" => TopKey::Id,
        b"method" => TopKey::Method,
        b"params" => TopKey::Params,
        b"result" => TopKey::Result,
        b"error" => TopKey::Error,
        _ => return None,
    })
}

/// A key the gateway reads inside `params`.
#[derive(Clone, Copy)]
pub(super) enum ParamsKey {
    Name,
    Uri,
    Cursor,
    Arguments,
    Meta,
    RequestId,
    ProtocolVersion,
    Capabilities,
    ClientInfo,
    Reference,
    TaskId,
    RequestState,
}

/// The `params` key of exactly this spelling.
#[inline]
pub(super) fn params_key(name: &[u8]) -> Option<ParamsKey> {
    Some(match name {
        b"name" => ParamsKey::Name,
        b"uri" => ParamsKey::Uri,
        b"cursor" => ParamsKey::Cursor,
        b"arguments" => ParamsKey::Arguments,
        b"_meta" => ParamsKey::Meta,
        b"requestId" => ParamsKey::RequestId,
        b"protocolVersion" => ParamsKey::ProtocolVersion,
        b"capabilities" => ParamsKey::Capabilities,
        b"clientInfo" => ParamsKey::ClientInfo,
        b"ref" => ParamsKey::Reference,
        b"taskId" => ParamsKey::TaskId,
        b"requestState" => ParamsKey::RequestState,
        _ => return None,
    })
}

/// A key the gateway reads inside `params._meta`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MetaKey {
    ProgressToken,
    ProtocolVersion,
    RelatedTask,
    Capabilities,
    ClientInfo,
    LogLevel,
}

/// The `_meta` key of exactly this spelling.
#[inline]
pub(super) fn meta_key(name: &[u8]) -> Option<MetaKey> {
    match name {
        b"progressToken" => Some(MetaKey::ProgressToken),
        META_VERSION_KEY => Some(MetaKey::ProtocolVersion),
        META_TASK_KEY => Some(MetaKey::RelatedTask),
        META_CAPABILITIES_KEY => Some(MetaKey::Capabilities),
        META_CLIENT_INFO_KEY => Some(MetaKey::ClientInfo),
        META_LOG_LEVEL_KEY => Some(MetaKey::LogLevel),
        _ => None,
    }
}

/// A key the gateway reads inside `clientInfo` of `params._meta`.
#[derive(Clone, Copy)]
pub(super) enum ClientKey {
    Name,
    Version,
}

/// The `clientInfo` key of exactly this spelling.
#[inline]
pub(super) fn client_key(name: &[u8]) -> Option<ClientKey> {
    match name {
        b"name" => Some(ClientKey::Name),
        b"version" => Some(ClientKey::Version),
        _ => None,
    }
}

/// A key the gateway reads inside `params.ref`.
#[derive(Clone, Copy)]
pub(super) enum ReferenceKey {
    Type,
    Name,
    Uri,
}

/// The `ref` key of exactly this spelling.
#[inline]
pub(super) fn reference_key(name: &[u8]) -> Option<ReferenceKey> {
    match name {
        b"type" => Some(ReferenceKey::Type),
        b"name" => Some(ReferenceKey::Name),
        b"uri" => Some(ReferenceKey::Uri),
        _ => None,
    }
}

/// Which known key a quoted key is, after decoding; a folded twin of `folded` is refused.
#[inline]
pub(super) fn resolve<K>(
    quoted: &[u8],
    exact: fn(&[u8]) -> Option<K>,
    folded: &[&str],
) -> Result<Option<K>, EnvelopeFault> {
    // No known key holds a backslash, so equal raw bytes are equal decoded ones.
    match exact(json::content(quoted)) {
        Some(key) => Ok(Some(key)),
        None => resolve_rare(quoted, exact, folded),
    }
}

/// `resolve` for keys whose raw bytes match none: unknown, escaped or folded ones.
fn resolve_rare<K>(
    quoted: &[u8],
    exact: fn(&[u8]) -> Option<K>,
    folded: &[&str],
) -> Result<Option<K>, EnvelopeFault> {
    let raw = json::content(quoted);
    let decoded = match memchr(b'\\', raw) {
        Some(_) => Some(json::unescape(quoted).ok_or(EnvelopeFault::LoneSurrogate)?),
        None => None,
    };
    let name = decoded.as_ref().map_or(raw, |text| text.as_bytes());
    if let Some(key) = exact(name) {
        return Ok(Some(key));
    }
    if folded.iter().any(|known| folds_to(name, known)) {
        return Err(EnvelopeFault::FoldedKey);
    }
    Ok(None)
}

/// Whether a key equals a lower-case ASCII name under simple Unicode case folding.
///
/// Beside the ASCII letters only two characters fold into ASCII: U+017F to `s`, U+212A to `k`.
fn folds_to(key: &[u8], name: &str) -> bool {
    let mut rest = key;
    for expected in name.bytes() {
        let (folded, tail) = match rest {
            [0xc5, 0xbf, tail @ ..] => (b's', tail),
            [0xe2, 0x84, 0xaa, tail @ ..] => (b'k', tail),
            [byte, tail @ ..] => (byte.to_ascii_lowercase(), tail),
            [] => return false,
        };
        if folded != expected {
            return false;
        }
        rest = tail;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_knows_ascii_and_the_two_others() {
        assert!(folds_to(b"METHOD", "method"));
        assert!(folds_to("param\u{17f}".as_bytes(), "params"));
        assert!(folds_to("\u{212a}ey".as_bytes(), "key"));
        assert!(!folds_to(b"methods", "method"));
        assert!(!folds_to(b"metho", "method"));
        assert!(!folds_to("\u{131}d".as_bytes(), "id"));
        assert!(!folds_to(b"\xc5", "s"));
    }

    #[test]
    fn the_folded_names_are_lower_case_ascii() {
        let all = TOP_FOLDED.iter().chain(PARAMS_FOLDED);
        for name in all.chain(REFERENCE_FOLDED) {
            assert!(
                name.bytes()
                    .all(|byte| byte == b'_' || byte.is_ascii_lowercase()),
                "{name}"
            );
        }
        assert!(
            TOP_FOLDED
                .iter()
                .all(|name| top_key(name.as_bytes()).is_some())
        );
        // The one key that is not lower-case itself.
        let spelt = |name: &str| name.replace("taskid", "taskId");
        assert!(
            PARAMS_FOLDED
                .iter()
                .all(|name| params_key(spelt(name).as_bytes()).is_some())
        );
        assert!(
            REFERENCE_FOLDED
                .iter()
                .all(|name| reference_key(name.as_bytes()).is_some())
        );
    }

    #[test]
    fn a_key_is_what_it_decodes_to() {
        let top = |quoted: &str| resolve(quoted.as_bytes(), top_key, TOP_FOLDED);
        assert_eq!(top(r#""id""#), Ok(Some(TopKey::Id)));
        assert_eq!(top(r#""\u0069d""#), Ok(Some(TopKey::Id)));
        assert_eq!(top(r#""\u0049d""#), Err(EnvelopeFault::FoldedKey));
        assert_eq!(top(r#""i\\d""#), Ok(None));
        assert_eq!(top(r#""\ud800""#), Err(EnvelopeFault::LoneSurrogate));
        assert_eq!(top(r#""""#), Ok(None));
    }
}
