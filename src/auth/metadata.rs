//! Where clients get their tokens: the challenge of a 401 or 403, and the document it points to
//! (RFC 9728, mcp.md 6). Served to everyone, pages of any origin included; says nothing that is not
//! public.

use serde_json::json;

use crate::{
    auth::scope,
    endpoint::Endpoint,
    http::Method,
    refusal::{Answer, Refusal},
    reply::Reply,
    request::{Request, gone_is_fine},
    settings::{Access, Auth},
    shard_state::ShardState,
};

/// Where the documents are: this and the path of the endpoint (RFC 9728 section 3.1).
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The address clients know us by, and what the documents say.
#[derive(Debug)]
pub struct ResourceMetadata {
    /// Scheme and authority clients know us by.
    origin: Box<str>,
    /// Issuers of tokens; none: there are no documents.
    authorization_servers: Vec<String>,
    /// Scopes count, so clients are told which to ask for.
    has_scopes: bool,
}

impl ResourceMetadata {
    /// What the settings say, if they do. Unless they name where tokens are to be had, that is the
    /// trusted issuers.
    pub fn of(access: &Access, auth: &Auth) -> Option<Self> {
        let origin = access.public_url.as_deref()?;
        let issuers = auth.trusted_issuers.iter().map(|rules| &*rules.issuer);
        // RFC 8414 section 2: an issuer is an address. Others know only our tokens' readers.
        let issuers = issuers
            .filter(|issuer| issuer.starts_with("https://") || issuer.starts_with("http://"));
        let authorization_servers = match access.authorization_servers.is_empty() {
            true => issuers.map(str::to_owned).collect(),
            false => access.authorization_servers.clone(),
        };
        Some(Self {
            origin: origin.into(),
            authorization_servers,
            has_scopes: auth.enforce_scopes,
        })
    }

    /// Whether `audience` is, exactly, the address of the endpoint with this path.
    pub fn is_resource(&self, path: &[u8], audience: &str) -> bool {
        let path = resource_path(path);
        path.is_some() && audience.strip_prefix(&*self.origin) == path
    }

    fn document(&self, path: &str) -> Vec<u8> {
        let mut document = json!({
            "resource": format!("{}{path}", self.origin),
            "authorization_servers": self.authorization_servers,
            "bearer_methods_supported": ["header"],
            "resource_name": "shardgate",
        });
        if self.has_scopes {
            document["scopes_supported"] = scope::ORDINARY.split(' ').collect();
        }
        document.to_string().into_bytes()
    }

    /// Where the document of the endpoint with this path is, as a parameter of a challenge.
    fn pointer(&self, path: &[u8]) -> Option<String> {
        if self.authorization_servers.is_empty() {
            return None;
        }
        let path = resource_path(path).unwrap_or_default();
        Some(format!(
            "resource_metadata=\"{}{WELL_KNOWN}{path}\"",
            self.origin
        ))
    }
}

/// The `WWW-Authenticate` line of a refusal that has more to say than its own (RFC 6750 section 3,
/// RFC 9728 section 5.1).
fn challenge(
    metadata: Option<&ResourceMetadata>,
    refusal: &Refusal,
    path: &[u8],
) -> Option<String> {
    let (error, scopes) = match refusal {
        Refusal::Unauthorized(had_token) => {
            let scopes = metadata.is_some_and(|metadata| metadata.has_scopes);
            (
                had_token.then_some("invalid_token"),
                scopes.then_some(scope::ORDINARY),
            )
        }
        Refusal::Scope(scopes) => (Some("insufficient_scope"), Some(*scopes)),
        _ => return None,
    };
    let parameters = [
        error.map(|error| format!("error=\"{error}\"")),
        scopes.map(|scopes| format!("scope=\"{scopes}\"")),
        metadata.and_then(|metadata| metadata.pointer(path)),
    ];
    let parameters: Vec<String> = parameters.into_iter().flatten().collect();
    match parameters.is_empty() {
        true => None,
        false => Some(format!(
            "www-authenticate: Bearer {}\r\n",
            parameters.join(", ")
        )),
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
    if metadata.authorization_servers.is_empty() {
        return None;
    }
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
        Method::Post | Method::Delete | Method::Patch | Method::Other => Answer {
            headers: "allow: GET, HEAD, OPTIONS\r\n",
            ..Refusal::Method.answer()
        },
    };
    gone_is_fine(reply.answer(answer).await)
}

/// Has a 401, or a 403 for want of scopes, say where tokens are to be had and which.
pub fn point_to(shard: &ShardState, request: &Request, refusal: &Refusal, reply: &mut Reply<'_>) {
    let path = request.head.path.slice(&request.bytes);
    if let Some(line) = challenge(shard.metadata.as_ref(), refusal, path) {
        reply.challenge(line);
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

    #[test]
    fn an_audience_is_the_exact_address_of_the_endpoint() {
        let metadata = ResourceMetadata {
            origin: "https://mcp.example".into(),
            authorization_servers: Vec::new(),
            has_scopes: false,
        };
        for (path, audience, is) in [
            ("/mcp", "https://mcp.example/mcp", true),
            ("/mcp/", "https://mcp.example/mcp", true),
            ("/servers/a/mcp", "https://mcp.example/servers/a/mcp", true),
            ("/servers/a/mcp", "https://mcp.example/servers/b/mcp", false),
            (
                "/servers/a/mcp",
                "https://mcp.example/contextforge-rs/servers/a/mcp",
                false,
            ),
            ("/mcp", "https://mcp.example/mcp/", false),
            ("/mcp", "https://mcp.example", false),
            ("/mcp", "https://mcp.example.evil/mcp", false),
            ("/mcp", "/mcp", false),
            ("/mcp", "HTTPS://mcp.example/mcp", false),
            ("/nowhere", "https://mcp.example", false),
            ("/nowhere", "https://mcp.example/nowhere", false),
        ] {
            assert_eq!(
                metadata.is_resource(path.as_bytes(), audience),
                is,
                "{path} {audience}"
            );
        }
    }

    #[test]
    fn challenges_name_the_error_the_scopes_and_the_document() {
        let mut metadata = ResourceMetadata {
            origin: "https://mcp.example".into(),
            authorization_servers: vec!["https://idp.example".into()],
            has_scopes: true,
        };
        let of =
            |metadata: Option<&ResourceMetadata>, refusal| challenge(metadata, &refusal, b"/mcp");
        let pointer =
            "resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource/mcp\"";
        let all = scope::ORDINARY;
        assert_eq!(
            of(Some(&metadata), Refusal::Unauthorized(false)).unwrap(),
            format!("www-authenticate: Bearer scope=\"{all}\", {pointer}\r\n")
        );
        let scopes = "servers.use tools.execute";
        let lacking = format!("error=\"insufficient_scope\", scope=\"{scopes}\"");
        assert_eq!(
            of(Some(&metadata), Refusal::Scope(scopes)).unwrap(),
            format!("www-authenticate: Bearer {lacking}, {pointer}\r\n")
        );
        metadata.authorization_servers.clear();
        assert_eq!(
            of(Some(&metadata), Refusal::Scope(scopes)).unwrap(),
            format!("www-authenticate: Bearer {lacking}\r\n")
        );
        assert_eq!(
            of(None, Refusal::Scope(scopes)).unwrap(),
            format!("www-authenticate: Bearer {lacking}\r\n")
        );
        // The refusal's own lines say the same.
        assert_eq!(of(None, Refusal::Unauthorized(false)), None);
        assert_eq!(of(Some(&metadata), Refusal::Restricted("x")), None);
    }
}
