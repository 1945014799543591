//! Paths: which endpoint a request is for (contextforge.md 4.1).

use crate::refusal::Refusal;

/// An endpoint.
#[derive(Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// MCP; with the virtual host's id as it stands in the path, or the default one.
    Mcp(Option<&'a str>),
    /// A helper of the walk-through.
    Bootstrap(BootstrapRoute<'a>),
}

/// The helpers' routes.
#[derive(Debug, PartialEq, Eq)]
pub enum BootstrapRoute<'a> {
    /// `GET .../admin/tokens/{user}`.
    Token(&'a str),
    /// `POST .../admin/userconfigs/{user}`.
    UserConfig(&'a str),
    /// `GET .../health`.
    Health,
}

const PREFIX: &str = "/contextforge-rs";

impl<'a> Endpoint<'a> {
    /// The endpoint of a path, which has no query.
    pub fn of(path: &'a [u8]) -> Result<Self, Refusal> {
        let path = std::str::from_utf8(path).map_err(|_| Refusal::Path)?;
        if matches!(path, "/mcp" | "/mcp/") {
            return Ok(Self::Mcp(None));
        }
        let inner = path.strip_prefix(PREFIX).unwrap_or(path);
        if let Some(rest) = inner.strip_prefix("/servers/") {
            let (host, rest) = rest.split_once('/').ok_or(Refusal::Path)?;
            return match rest {
                "mcp" | "mcp/" if !host.is_empty() => Ok(Self::Mcp(Some(host))),
                // Clients look for authorization servers there (mcp.md 5).
                rest if rest.starts_with("mcp/.well-known/") => Err(Refusal::Path),
                // Below an endpoint, but not one: the status front doors know.
                rest if rest.starts_with("mcp/") => Err(Refusal::EndpointPath),
                _ => Err(Refusal::Path),
            };
        }
        if inner.len() == path.len() {
            return Err(Refusal::Path);
        }
        let user = |prefix| {
            inner
                .strip_prefix(prefix)
                .filter(|user: &&str| !user.is_empty() && !user.contains('/'))
        };
        if inner == "/health" {
            Ok(Self::Bootstrap(BootstrapRoute::Health))
        } else if let Some(user) = user("/admin/tokens/") {
            Ok(Self::Bootstrap(BootstrapRoute::Token(user)))
        } else if let Some(user) = user("/admin/userconfigs/") {
            Ok(Self::Bootstrap(BootstrapRoute::UserConfig(user)))
        } else {
            Err(Refusal::Path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let of = |path: &'static str| Endpoint::of(path.as_bytes());
        assert_eq!(of("/mcp"), Ok(Endpoint::Mcp(None)));
        assert_eq!(of("/servers/a%20b/mcp"), Ok(Endpoint::Mcp(Some("a%20b"))));
        assert_eq!(
            of("/contextforge-rs/servers/x/mcp"),
            Ok(Endpoint::Mcp(Some("x")))
        );
        assert_eq!(
            of("/contextforge-rs/servers/x/mcp/"),
            Ok(Endpoint::Mcp(Some("x")))
        );
        assert_eq!(of("/servers/x/mcp/any"), Err(Refusal::EndpointPath));
        for none in [
            "/",
            "/servers/a/b/mcp",
            "/servers//mcp",
            "/contextforge-rs/foo",
            "/health",
            "/contextforge-rs",
            "/mcpx",
            "/admin/tokens/x",
            "/contextforge-rs/admin/tokens/",
        ] {
            assert_eq!(of(none), Err(Refusal::Path), "{none}");
        }
        assert_eq!(
            of("/contextforge-rs/admin/tokens/a@b"),
            Ok(Endpoint::Bootstrap(BootstrapRoute::Token("a@b")))
        );
        assert_eq!(
            of("/contextforge-rs/health"),
            Ok(Endpoint::Bootstrap(BootstrapRoute::Health))
        );
    }
}
