//! The two eras of MCP: the revisions with sessions, and the one without (mcp.md 2).

use std::{borrow::Cow, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};

/// The revision without sessions.
pub const STATELESS_REVISION: &str = "2026-07-28";

/// How a base64 header value begins and ends (mcp.md 2.2).
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// Which way a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// `initialize` and a session.
    #[default]
    Legacy,
    /// Every request says everything, and headers say it again.
    Stateless,
}

impl Era {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Legacy, Self::Stateless];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Stateless => "stateless",
        }
    }
}

impl FromStr for Era {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|era| era.name() == text);
        found.ok_or_else(|| format!("`{text}` is neither legacy nor stateless"))
    }
}

/// A name as the value of a header: as it is where it can be, else in base64.
pub(crate) fn header_value(name: &str) -> Cow<'_, str> {
    let is_plain = name.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && name.trim().len() == name.len()
        && encoded_in(name).is_none();
    if is_plain {
        Cow::Borrowed(name)
    } else {
        let (start, end) = ENCODED;
        Cow::Owned(format!("{start}{}{end}", STANDARD.encode(name)))
    }
}

/// Whether the value of a header is this name.
pub(crate) fn is_name(value: &[u8], name: &str) -> bool {
    let value = value.trim_ascii();
    match std::str::from_utf8(value).ok().and_then(encoded_in) {
        Some(encoded) => STANDARD
            .decode(encoded)
            .is_ok_and(|bytes| bytes == name.as_bytes()),
        None => value == name.as_bytes(),
    }
}

fn encoded_in(value: &str) -> Option<&str> {
    let (start, end) = ENCODED;
    value.strip_prefix(start)?.strip_suffix(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_header() {
        for (name, plain) in [
            ("echo", true),
            ("file:///a b", true),
            ("", true),
            ("=?base64?SGVsbG8=", true),
            ("é", false),
            (" a", false),
            ("a\n", false),
            ("=?base64?YQ==?=", false),
        ] {
            let value = header_value(name);
            assert_eq!(matches!(value, Cow::Borrowed(_)), plain, "{name}");
            assert!(value.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            assert!(is_name(value.as_bytes(), name), "{name}");
            assert!(!is_name(value.as_bytes(), "other"), "{name}");
        }
        assert!(is_name(b"\techo ", "echo"));
        for damaged in ["=?base64?YQ?=", "=?base64?*?=", "=?BASE64?YQ==?="] {
            assert!(!is_name(damaged.as_bytes(), "a"), "{damaged}");
        }
    }

    #[test]
    fn eras_are_found_by_their_names() {
        for era in Era::ALL {
            assert_eq!(era.name().parse(), Ok(era));
        }
        assert!("modern".parse::<Era>().is_err());
    }
}
