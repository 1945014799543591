//! Where clients get their tokens: the challenge of a 401, and the document it points to (RFC 9728,
//! mcp.md 6). Served to everyone, pages of any origin included; says nothing that is not public.

use std::rc::Rc;

use serde_json::json;

use crate::{
    endpoint::Endpoint,
    http::Method,
    refusal::{Answer, Refusal},
    reply::Reply,
    request::{Request, gone_is_fine},
    settings::Access,
    shard_state::ShardState,
};

/// Where the documents are: this and the path of the endpoint (RFC 9728 section 3.1).
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What the documents say.
#[derive(Debug)]
pub struct ResourceMetadata {
    /// Scheme and authority clients know us by.
    origin: Box<str>,
    /// Issuers of tokens.
    authorization_servers: Vec<String>,
}

impl ResourceMetadata {
    /// What the settings say, if they do.
    pub fn of(access: &Access) -> Option<Self> {
        let origin = access.public_url.as_deref()?;
        (!access.authorization_servers.is_empty()).then(|| Self {
            origin: origin.into(),
            authorization_servers: access.authorization_servers.clone(),
        })
    }

    /// The header line of a 401 for this request path.
    pub fn challenge(&self, path: &[u8], had_token: bool) -> String {
        let error = if had_token {
            "error=\"invalid_token\", "
        } else {
            ""
        };
        let path = resource_path(path).unwrap_or_default();
        format!(
            "www-authenticate: Bearer {error}resource_metadata=\"{}{WELL_KNOWN}{path}\"\r\n",
            self.origin
        )
    }

    fn document(&self, path: &str) -> Vec<u8> {
        let document = json!({
            "resource": format!("{}{path}", self.origin),
            "authorization_servers": self.authorization_servers,
            "bearer_methods_supported": ["header"],
            "resource_name": "shardgate",
        });
        document.to_string().into_bytes()
    }
}

/// The path of an MCP endpoint as a resource has it: without a slash at its end. Whether the
/// virtual host exists is not looked at: that is told to authenticated callers only.
fn resource_path(path: &[u8]) -> Option<&str> {
    let is_endpoint = matches!(Endpoint::of(path), Ok(Endpoint::Mcp(_)));
    let text = std::str::from_utf8(path).ok().filter(|_| is_endpoint)?;
    let is_quotable = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    text.bytes()
        .all(is_quotable)
        .then(|| text.trim_end_matches('/'))
}

/// The document a request asks for, if it asks for one that there is.
pub fn document_of(shard: &ShardState, request: &Request) -> Option<Vec<u8>> {
    let metadata = shard.metadata.as_ref()?;
    let path = request.head.path.slice(&request.bytes);
    let inner = path.strip_prefix(WELL_KNOWN.as_bytes())?;
    let path = match inner {
        b"" | b"/" => "",
        inner => resource_path(inner)?,
    };
    Some(metadata.document(path))
}

/// Answers with a document.
pub async fn serve(
    request: &Request,
    document: Vec<u8>,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    reply.allow_origin(b"*");
    let answer = match request.head.method {
        Method::Get | Method::Head => Answer {
            status: 200,
            content_type: "application/json",
            body: document,
            headers: "cache-control: max-age=300\r\n",
            must_close: false,
        },
        Method::Options => Answer {
            status: 204,
            content_type: "",
            body: Vec::new(),
            headers: "access-control-allow-methods: GET\r\n\
                      access-control-allow-headers: mcp-protocol-version\r\n\
                      access-control-max-age: 600\r\n",
            must_close: false,
        },
        Method::Post | Method::Delete | Method::Other => Answer {
            headers: "allow: GET, HEAD, OPTIONS\r\n",
            ..Refusal::Method.answer()
        },
    };
    gone_is_fine(reply.answer(answer).await)
}

/// Has a 401 say where tokens are to be had.
pub fn point_to(
    shard: &Rc<ShardState>,
    request: &Request,
    refusal: &Refusal,
    reply: &mut Reply<'_>,
) {
    if let (Some(metadata), Refusal::Unauthorized(had_token)) = (&shard.metadata, refusal) {
        let path = request.head.path.slice(&request.bytes);
        reply.challenge(metadata.challenge(path, *had_token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_endpoint_has_its_document_and_nothing_else_has() {
        for (path, resource) in [
            ("/mcp", Some("/mcp")),
            ("/mcp/", Some("/mcp")),
            ("/servers/a/mcp", Some("/servers/a/mcp")),
            (
                "/contextforge-rs/servers/a/mcp/",
                Some("/contextforge-rs/servers/a/mcp"),
            ),
            ("/servers/a\"b/mcp", None),
            ("/servers/a/mcp/x", None),
            ("/contextforge-rs/health", None),
            ("/nowhere", None),
            ("", None),
        ] {
            assert_eq!(resource_path(path.as_bytes()), resource, "{path}");
        }
    }
}
