//! Which web pages and which host names may reach us (mcp.md 7: DNS rebinding).
//!
//! A request without `Origin` comes from no browser and passes. Pages served from this machine's
//! loopback pass; others must be listed. Host names are checked when they are listed or when every
//! listener is on loopback, where nobody else's name can be meant.

use std::cell::RefCell;

use crate::refusal::Refusal;

/// Origin and Host rules.
#[derive(Debug, Clone, Default)]
pub struct AccessRules {
    origins: Vec<Box<str>>,
    hosts: Vec<Box<str>>,
    is_loopback_only: bool,
    /// The last host name that passed: most connections use one.
    passed: RefCell<Box<[u8]>>,
}

impl AccessRules {
    /// Rules from the lists (origins serialized as browsers do; hosts with or without port).
    pub fn new(origins: &[String], hosts: &[String], is_loopback_only: bool) -> Self {
        let lower = |list: &[String]| {
            list.iter()
                .map(|entry| entry.to_ascii_lowercase().into())
                .collect()
        };
        Self {
            origins: lower(origins),
            hosts: lower(hosts),
            is_loopback_only,
            passed: RefCell::default(),
        }
    }

    /// Whether a page of this origin may call.
    pub fn check_origin(&self, origin: Option<&[u8]>) -> Result<(), Refusal> {
        let Some(origin) = origin else { return Ok(()) };
        let text = std::str::from_utf8(origin).map_err(|_| Refusal::Origin)?;
        let text = text.to_ascii_lowercase();
        let authority = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"));
        let is_local = authority.is_some_and(|authority| {
            !authority.contains(['/', '?', '#', '@']) && is_loopback_authority(authority)
        });
        if is_local || self.origins.iter().any(|known| **known == *text) {
            return Ok(());
        }
        Err(Refusal::Origin)
    }

    /// Whether a request for this host is meant for us.
    pub fn check_host(&self, host: Option<&[u8]>) -> Result<(), Refusal> {
        if self.hosts.is_empty() && !self.is_loopback_only {
            return Ok(());
        }
        let raw = host.unwrap_or_default();
        if !raw.is_empty() && *raw == **self.passed.borrow() {
            return Ok(());
        }
        let host = std::str::from_utf8(raw).unwrap_or_default();
        let host = host.to_ascii_lowercase();
        let is_local = self.is_loopback_only && is_loopback_authority(&host);
        let is_listed = self
            .hosts
            .iter()
            .any(|known| **known == *host || **known == *without_port(&host));
        if !is_local && !is_listed {
            return Err(Refusal::Host);
        }
        *self.passed.borrow_mut() = raw.into();
        Ok(())
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rfind(':') {
        Some(colon) if !authority.ends_with(']') => &authority[..colon],
        _ => authority,
    }
}

fn is_loopback_authority(authority: &str) -> bool {
    let port_is_number = match authority.rfind(':') {
        Some(colon) if !authority.ends_with(']') => authority[colon + 1..]
            .bytes()
            .all(|byte| byte.is_ascii_digit()),
        _ => true,
    };
    let host = without_port(authority);
    port_is_number
        && (host == "localhost"
            || host == "[::1]"
            || host
                .parse::<std::net::Ipv4Addr>()
                .is_ok_and(|address| address.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        let rules = AccessRules::new(&["https://App.example".to_owned()], &[], false);
        for good in [
            None,
            Some("http://localhost:6274"),
            Some("https://localhost"),
            Some("http://127.0.0.1:80"),
            Some("http://[::1]:3"),
            Some("https://app.example"),
        ] {
            assert!(
                rules.check_origin(good.map(str::as_bytes)).is_ok(),
                "{good:?}"
            );
        }
        for bad in [
            "https://evil.example",
            "http://evil.example",
            "https://app.example.evil",
            "https://app.example:444",
            "null",
            "",
            "http://localhost.evil",
            "http://localhost:80@evil",
            "http://localhost/path",
            "file://localhost",
            "http://127.0.0.1.evil",
        ] {
            assert_eq!(
                rules.check_origin(Some(bad.as_bytes())),
                Err(Refusal::Origin),
                "{bad}"
            );
        }
    }

    #[test]
    fn hosts() {
        let open = AccessRules::new(&[], &[], false);
        assert!(open.check_host(Some(b"anything")).is_ok());
        let local = AccessRules::new(&[], &[], true);
        for good in [
            "localhost",
            "localhost:80",
            "127.0.0.1:9",
            "[::1]",
            "LOCALHOST:1",
        ] {
            assert!(local.check_host(Some(good.as_bytes())).is_ok(), "{good}");
        }
        for bad in ["evil.example.com", "localhost.evil", "", "10.0.0.1"] {
            assert_eq!(
                local.check_host(Some(bad.as_bytes())),
                Err(Refusal::Host),
                "{bad}"
            );
        }
        let hosts = ["a.example".to_owned(), "b.example:81".to_owned()];
        let listed = AccessRules::new(&[], &hosts, false);
        assert!(listed.check_host(Some(b"a.example:5")).is_ok());
        assert!(listed.check_host(Some(b"b.example:81")).is_ok());
        assert!(listed.check_host(Some(b"b.example")).is_err());
        assert!(listed.check_host(None).is_err());
    }
}
