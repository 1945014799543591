//! The URL of an endpoint, as far as the load generator needs it.

use std::net::{SocketAddr, ToSocketAddrs};

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetFault {
    /// Not `scheme://host[:port]/path`.
    #[error("the URL must be {0}://HOST[:PORT]/PATH (TLS is not supported)")]
    Form(&'static str),
    /// The host has no address.
    #[error("the host of the URL cannot be resolved: {0}")]
    Resolve(#[from] std::io::Error),
    /// The host resolved to nothing.
    #[error("the host of the URL has no address")]
    NoAddress,
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The `Host` header.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Target {
    /// Takes the URL apart and resolves its host; blocks.
    pub(crate) fn parse(url: &str) -> Result<Self, TargetFault> {
        Self::parse_as("http", url)
    }

    /// The same of a URL with another scheme.
    pub(crate) fn parse_as(scheme: &'static str, url: &str) -> Result<Self, TargetFault> {
        let rest = url.strip_prefix(scheme);
        let rest = rest.and_then(|rest| rest.strip_prefix("://"));
        let rest = rest.ok_or(TargetFault::Form(scheme))?;
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty()
            || authority.contains('@')
            || path.contains('#')
            || !path.starts_with('/')
            || !is_plain(rest)
        {
            return Err(TargetFault::Form(scheme));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| {
            !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
        });
        let address = if has_port {
            authority.to_socket_addrs()?.next()
        } else {
            format!("{authority}:80").to_socket_addrs()?.next()
        };
        Ok(Self {
            address: address.ok_or(TargetFault::NoAddress)?,
            authority: authority.to_owned(),
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, address, authority, path) in [
            (
                "http://127.0.0.1:81/mcp",
                "127.0.0.1:81",
                "127.0.0.1:81",
                "/mcp",
            ),
            ("http://127.0.0.1", "127.0.0.1:80", "127.0.0.1", "/"),
            ("http://[::1]:9/a/b?c=d", "[::1]:9", "[::1]:9", "/a/b?c=d"),
            ("http://[::1]/a", "[::1]:80", "[::1]", "/a"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.address, address.parse().unwrap(), "{url}");
            assert_eq!(
                (target.authority.as_str(), target.path.as_str()),
                (authority, path)
            );
        }
        for url in [
            "",
            "https://a/",
            "127.0.0.1:1/x",
            "http:///x",
            "http://u@127.0.0.1/",
            "http://1.1.1.1/a b",
        ] {
            assert!(
                matches!(Target::parse(url), Err(TargetFault::Form("http"))),
                "{url}"
            );
        }
    }
}
