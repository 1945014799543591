//! From one text to one value: switches, numbers, lists of CPUs, addresses, origins, URLs.
//!
//! Pure functions. Each error finishes a sentence that begins with the quoted text, and says what
//! is allowed.

use super::secret::Secret;
use crate::mcp::version::{STATELESS, VersionSet};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Highest CPU number that is taken for one and not for a typing mistake.
const CPU_MAX: usize = 4095;

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

pub(super) fn whole(text: &str, bounds: RangeInclusive<u64>) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && bounds.contains(&number) => Ok(number),
        _ if digits => Err(format!(
            "must be between {} and {}",
            bounds.start(),
            bounds.end()
        )),
        _ => Err("is not a whole number".into()),
    }
}

/// One of a few words.
pub(super) fn word<T: Copy>(words: &[(&'static str, T)]) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        words
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, value)| *value)
            .ok_or_else(|| {
                let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                format!("must be one of {}", all.join(", "))
            })
    }
}

/// A path that can be printed on one line.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains(char::is_control) {
        return Err("is not a path".into());
    }
    Ok(PathBuf::from(text))
}

/// A name that is printed and compared: visible, without blanks.
pub(super) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("must not be empty nor hold blanks".into());
    }
    Ok(text.to_owned())
}

/// A node's name as session ids carry it.
pub(super) fn node_id(text: &str) -> Result<String, String> {
    let sound = (1..=8).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if sound {
        Ok(text.to_owned())
    } else {
        Err("must be 1 to 8 letters and digits".into())
    }
}

pub(super) fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "must be an IP address and a port, as 127.0.0.1:8001 or [::1]:8001; host names are not \
         looked up"
            .into()
    })
}

pub(super) fn socket_or_none(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "none" {
        Ok(None)
    } else {
        socket(text).map(Some)
    }
}

/// CPUs as `0-3,6`, in the order written; each at most once.
pub(super) fn cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || "must list CPUs as 0-3,6, each once".to_owned();
    let number = |text: &str| {
        let cpu = whole(text, 0..=CPU_MAX as u64).map_err(|_| wrong())?;
        usize::try_from(cpu).map_err(|_| wrong())
    };
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    let distinct: BTreeSet<usize> = cpus.iter().copied().collect();
    if distinct.len() == cpus.len() {
        Ok(cpus)
    } else {
        Err(wrong())
    }
}

/// Comma-separated items, each read by `item`; blanks around and empty items are skipped.
pub(super) fn list<T>(
    item: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Vec<T>, String> {
    move |text| {
        text.split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(&item)
            .collect()
    }
}

/// Revisions with sessions, each once, at least one (contract dual-profile 7).
pub(super) fn session_versions(text: &str) -> Result<VersionSet, String> {
    let names = list(|name| Ok(name.to_owned()))(text)?;
    if names.iter().any(|name| name == STATELESS) {
        return Err(format!(
            "holds {STATELESS}, which has no sessions: that is --stateless-enabled"
        ));
    }
    let all = VersionSet::of_names(names.iter().map(String::as_str))?;
    match all.is_empty() {
        true => Err("names no revision: to serve none, say --legacy-enabled=false".to_owned()),
        false => Ok(all),
    }
}

/// A serialized origin (RFC 6454 section 6.1), compared byte for byte with the header's value.
pub(super) fn origin(text: &str) -> Result<String, String> {
    let wrong = || {
        "must list origins as https://app.example or http://localhost:3000: lower case, without \
         a path"
            .to_owned()
    };
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let scheme_sound = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b));
    if !scheme_sound || rest.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(wrong());
    }
    let (_, port) = authority(rest).map_err(|_| wrong())?;
    // Browsers leave the scheme's own port out, so an entry that writes it would never match.
    if matches!((scheme, port), ("http", Some(80)) | ("https", Some(443))) {
        return Err("must not name the scheme's own port: browsers leave it out".into());
    }
    Ok(text.to_owned())
}

/// What clients know this process by: `http` or `https`, and an authority.
pub(super) fn public_url(text: &str) -> Result<String, String> {
    let is_http = text.starts_with("http://") || text.starts_with("https://");
    origin(text).ok().filter(|_| is_http).ok_or_else(|| {
        "must be http:// or https:// and a host in lower case, as https://mcp.example: without a \
         path, without the scheme's own port"
            .to_owned()
    })
}

/// A host with an optional port, in lower case.
pub(super) fn host_pattern(text: &str) -> Result<String, String> {
    authority(text)
        .map_err(|()| "must list hosts as mcp.example or mcp.example:8443".to_owned())?;
    Ok(text.to_ascii_lowercase())
}

/// Host name or IP of a server, its port given apart.
pub(super) fn host(text: &str) -> Result<String, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(bare.to_owned());
    }
    match authority(text) {
        Ok((_, None)) => Ok(text.to_owned()),
        Ok((_, Some(_))) => Err("must not hold a port: that is --redis-port".into()),
        Err(()) => Err("must be a host name or an IP address".into()),
    }
}

/// An absolute http or https URL.
pub(super) fn url(text: &str) -> Result<String, String> {
    let wrong = || "must be an http or https URL, as http://127.0.0.1:4317".to_owned();
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let rest = rest.ok_or_else(wrong)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    authority(&rest[..end]).map_err(|()| wrong())?;
    if text.bytes().any(|byte| !byte.is_ascii_graphic()) {
        Err(wrong())
    } else {
        Ok(text.to_owned())
    }
}

/// Export headers (contract contextforge 1.5): trimmed, empty entries skipped.
pub(super) fn headers(text: &str) -> Result<Vec<(String, Secret)>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let (name, value) = entry
                .split_once('=')
                .ok_or("malformed OTLP header entry (missing '=' separator)")?;
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() {
                return Err("malformed OTLP header entry (empty key)".to_owned());
            }
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if !name.bytes().all(token) || value.chars().any(char::is_control) {
                return Err("malformed OTLP header entry (not a header name and value)".to_owned());
            }
            Ok((name.to_owned(), Secret::new(value)))
        })
        .collect()
}

/// Splits `host[:port]` (RFC 3986 section 3.2, without user information).
fn authority(text: &str) -> Result<(&str, Option<u16>), ()> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(())?;
        address.parse::<std::net::Ipv6Addr>().map_err(|_| ())?;
        match rest {
            "" => (address, None),
            _ => (address, Some(rest.strip_prefix(':').ok_or(())?)),
        }
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let letter = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if host.is_empty() || !host.bytes().all(letter) {
            return Err(());
        }
        (host, port)
    };
    let port = match port {
        Some(digits) => Some(whole(digits, 1..=65535).map_err(|_| ())?),
        None => None,
    };
    Ok((host, port.and_then(|port| u16::try_from(port).ok())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cpu_lists_are_ranges_and_numbers() {
        for (text, cpus) in [
            ("0", vec![0]),
            ("0-3,6", vec![0, 1, 2, 3, 6]),
            ("6, 0-1", vec![6, 0, 1]),
            ("4095", vec![4095]),
        ] {
            assert_eq!(cpu_list(text), Ok(cpus), "{text}");
        }
        for text in [
            "",
            "a",
            "3-1",
            "1-",
            "-1",
            "0,0",
            "0-3,2",
            "0,,1",
            "4096",
            "0-4294967296",
        ] {
            assert!(cpu_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_stay_within_bounds() {
        assert_eq!(whole("7", 1..=9), Ok(7));
        for text in ["0", "10", "99999999999999999999"] {
            assert_eq!(
                whole(text, 1..=9),
                Err("must be between 1 and 9".into()),
                "{text}"
            );
        }
        for text in ["", "+7", "-1", "7 ", "x"] {
            assert_eq!(
                whole(text, 1..=9),
                Err("is not a whole number".into()),
                "{text}"
            );
        }
    }

    #[test]
    fn a_word_is_one_of_the_allowed() {
        let read = word(&[("open", 1), ("closed", 2)]);
        assert_eq!(read("closed"), Ok(2));
        assert_eq!(read("Open"), Err("must be one of open, closed".into()));
    }

    #[test]
    fn origins_are_as_browsers_send_them() {
        for text in [
            "https://app.example",
            "http://localhost:3000",
            "http://[::1]:8080",
            "vscode-webview://abc",
        ] {
            assert_eq!(origin(text), Ok(text.to_owned()), "{text}");
        }
        for text in [
            "app.example",
            "https://app.example/",
            "https://App.example",
            "HTTPS://a",
            "https://",
            "https://a:443",
            "http://a:80",
            "https://a:0",
            "*",
            "null",
            "https://u@a",
        ] {
            assert!(origin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_carry_no_scheme_and_for_redis_no_port() {
        assert_eq!(
            host_pattern("Mcp.Example:8443"),
            Ok("mcp.example:8443".into())
        );
        for text in ["", "http://a", "a/b", "a:b", "a:", "a b", "[::1", "a:70000"] {
            assert!(host_pattern(text).is_err(), "{text}");
        }
        for (text, read) in [
            ("redis", "redis"),
            ("10.0.0.1", "10.0.0.1"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("redis.default.svc", "redis.default.svc"),
        ] {
            assert_eq!(host(text), Ok(read.into()), "{text}");
        }
        assert_eq!(
            host("redis:6379"),
            Err("must not hold a port: that is --redis-port".into())
        );
        assert!(host("redis://redis").is_err());
    }

    #[test]
    fn urls_are_absolute() {
        for text in ["http://127.0.0.1:4317", "https://o.example/v1/traces?x=1"] {
            assert_eq!(url(text), Ok(text.into()), "{text}");
        }
        for text in [
            "",
            "o.example:4317",
            "ftp://o",
            "http://",
            "http:///v1",
            "http://a b/",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn export_headers_follow_the_contract() {
        let read = headers(" a = b ,, c=d=e,").unwrap();
        let names: Vec<(&str, &[u8])> = read
            .iter()
            .map(|(name, value)| (name.as_str(), value.bytes()))
            .collect();
        assert_eq!(names, [("a", &b"b"[..]), ("c", &b"d=e"[..])]);
        for (text, problem) in [
            ("a", "missing '=' separator"),
            ("=b", "empty key"),
            ("a b=c", "not a header name"),
        ] {
            assert!(headers(text).unwrap_err().contains(problem), "{text}");
        }
    }

    #[test]
    fn node_ids_fit_into_session_ids() {
        assert_eq!(node_id("n0"), Ok("n0".into()));
        for text in ["", "n-0", "n_0", "123456789", "\u{e4}"] {
            assert!(node_id(text).is_err(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn no_text_panics(text in "\\PC{0,24}") {
            let _verdicts = (
                (cpu_list(&text), socket(&text), name(&text), node_id(&text)),
                (origin(&text), host_pattern(&text), host(&text)),
                (url(&text), headers(&text).is_ok()),
            );
        }

        #[test]
        fn a_host_that_is_accepted_is_an_authority(text in "[a-z\\[\\]:.0-9/@]{0,12}") {
            if let Ok(host) = host_pattern(&text) {
                prop_assert!(!host.contains(['/', '@']));
            }
        }
    }
}
