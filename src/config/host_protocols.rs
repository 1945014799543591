//! What one virtual host says of the protocol profiles, in light-gateway's words (dual-profile.md
//! section 7).
//!
//! A host narrows what the process serves and never widens it: what is off in the settings stays
//! off, and times and bounds of a host count where they are the smaller ones.

use serde::{Deserialize, Serialize};

use crate::{
    mcp::version::{STATELESS, VersionSet},
    settings::Protocols,
};

/// The `protocols` object of a virtual host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Said", into = "Said")]
pub struct HostProtocols {
    /// As it was written, absent members left out.
    said: Said,
    /// The revisions with sessions that it may serve.
    versions: VersionSet,
}

/// The words themselves, before they are judged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Said {
    #[serde(skip_serializing_if = "Option::is_none")]
    legacy: Option<Legacy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stateless: Option<Stateless>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Legacy {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    versions: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Stateless {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    versions: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discover_ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools_list_ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discover_cache_scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools_list_cache_scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tools_list_items: Option<u64>,
}

impl Said {
    fn serves_legacy(&self) -> bool {
        let legacy = self.legacy.as_ref();
        legacy.and_then(|legacy| legacy.enabled).unwrap_or(true)
    }

    fn serves_stateless(&self) -> bool {
        let stateless = self.stateless.as_ref();
        stateless.and_then(|one| one.enabled).unwrap_or(true)
    }
}

impl TryFrom<Said> for HostProtocols {
    type Error = String;

    fn try_from(said: Said) -> Result<Self, String> {
        let mut versions = VersionSet::ALL;
        if let Some(names) = said.legacy.as_ref().and_then(|one| one.versions.as_deref()) {
            versions = with_sessions(names)?;
        }
        if let Some(stateless) = &said.stateless {
            check_stateless(stateless)?;
        }
        if !said.serves_legacy() && !said.serves_stateless() {
            return Err("neither legacy nor stateless is enabled: nothing is served".to_owned());
        }
        Ok(Self { said, versions })
    }
}

impl From<HostProtocols> for Said {
    fn from(host: HostProtocols) -> Self {
        host.said
    }
}

/// Revisions with sessions, at least one.
fn with_sessions(names: &[String]) -> Result<VersionSet, String> {
    let all = VersionSet::of_names(names.iter().map(String::as_str))
        .map_err(|fault| format!("legacy.versions {fault}"))?;
    match all.is_empty() {
        true => Err("legacy.versions names no revision: say enabled = false".to_owned()),
        false => Ok(all),
    }
}

fn check_stateless(stateless: &Stateless) -> Result<(), String> {
    if let Some(names) = &stateless.versions {
        let is_off = stateless.enabled == Some(false);
        let is_sound = match names.as_slice() {
            [] => is_off,
            [only] => only == STATELESS,
            _ => false,
        };
        if !is_sound {
            return Err(format!(
                "stateless.versions must be [\"{STATELESS}\"], the only one there is"
            ));
        }
    }
    for (name, number) in [
        ("discoverTtlMs", stateless.discover_ttl_ms),
        ("toolsListTtlMs", stateless.tools_list_ttl_ms),
        ("maxToolsListItems", stateless.max_tools_list_items),
    ] {
        if number == Some(0) {
            return Err(format!("stateless.{name} must be above 0"));
        }
    }
    for (name, scope) in [
        ("discoverCacheScope", &stateless.discover_cache_scope),
        ("toolsListCacheScope", &stateless.tools_list_cache_scope),
    ] {
        if scope.as_deref().is_some_and(|scope| scope != "private") {
            return Err(format!(
                "stateless.{name} must be private: what one caller may see is not for another"
            ));
        }
    }
    Ok(())
}

impl HostProtocols {
    /// What is served where the process serves `all`.
    pub fn narrow(&self, all: &Protocols) -> Protocols {
        let stateless = self.said.stateless.as_ref();
        let least = |said: Option<u64>, all: u64| said.map_or(all, |said| said.min(all));
        let items = stateless.and_then(|one| one.max_tools_list_items);
        let legacy_versions = all.legacy_versions.and(self.versions);
        Protocols {
            stateless: all.stateless && self.said.serves_stateless(),
            // None in common: none is served.
            legacy: all.legacy && self.said.serves_legacy() && !legacy_versions.is_empty(),
            legacy_versions,
            discover_ttl_ms: least(
                stateless.and_then(|one| one.discover_ttl_ms),
                all.discover_ttl_ms,
            ),
            list_ttl_ms: least(
                stateless.and_then(|one| one.tools_list_ttl_ms),
                all.list_ttl_ms,
            ),
            list_items_max: items
                .and_then(|items| usize::try_from(items).ok())
                .map_or(all.list_items_max, |items| items.min(all.list_items_max)),
            ..all.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::version::Version;
    use serde_json::json;

    fn read(value: serde_json::Value) -> Result<HostProtocols, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_unsound_is_named() {
        for (value, word) in [
            (json!({"legacy": {"versions": []}}), "names no revision"),
            (
                json!({"legacy": {"versions": ["2026-07-28"]}}),
                "out of 2025-11-25",
            ),
            (
                json!({"legacy": {"versions": ["1999-01-01"]}}),
                "out of 2025-11-25",
            ),
            (
                json!({"legacy": {"versions": ["2025-11-25", "2025-11-25"]}}),
                "twice",
            ),
            (
                json!({"legacy": {"version": []}}),
                "unknown field `version`",
            ),
            (
                json!({"stateless": {"versions": []}}),
                "the only one there is",
            ),
            (
                json!({"stateless": {"versions": ["2025-11-25"]}}),
                "the only one there is",
            ),
            (
                json!({"stateless": {"discoverTtlMs": 0}}),
                "discoverTtlMs must be above 0",
            ),
            (
                json!({"stateless": {"toolsListTtlMs": 0}}),
                "toolsListTtlMs must be above 0",
            ),
            (
                json!({"stateless": {"maxToolsListItems": 0}}),
                "maxToolsListItems must be",
            ),
            (
                json!({"stateless": {"toolsListCacheScope": "public"}}),
                "must be private",
            ),
            (json!({"stateful": {}}), "unknown field `stateful`"),
            (
                json!({"legacy": {"enabled": false}, "stateless": {"enabled": false}}),
                "nothing is served",
            ),
        ] {
            let fault = read(value.clone()).expect_err("it is unsound");
            assert!(fault.contains(word), "{value}: {fault}");
        }
    }

    #[test]
    fn a_host_narrows_and_never_widens() {
        let all = Protocols {
            stateless: true,
            legacy: true,
            legacy_versions: VersionSet::NONE
                .with(Version::V2025_11_25)
                .with(Version::V2025_06_18),
            discover_ttl_ms: 1000,
            list_ttl_ms: 1000,
            list_items_max: 100,
            ..crate::settings::Settings::testing().protocols
        };
        assert_eq!(
            read(json!({})).map(|host| host.narrow(&all)),
            Ok(all.clone())
        );
        let host = read(json!({
            "legacy": {"versions": ["2025-06-18", "2025-03-26"]},
            "stateless": {
                "versions": ["2026-07-28"], "discoverTtlMs": 5, "toolsListTtlMs": 5000,
                "toolsListCacheScope": "private", "maxToolsListItems": 7,
            },
        }));
        let host = host.expect("it is sound");
        let narrowed = host.narrow(&all);
        let only = VersionSet::NONE.with(Version::V2025_06_18);
        assert_eq!(narrowed.with_sessions(), only);
        assert_eq!((narrowed.discover_ttl_ms, narrowed.list_ttl_ms), (5, 1000));
        assert_eq!(narrowed.list_items_max, 7);
        let off = Protocols {
            stateless: false,
            ..all
        };
        assert!(!host.narrow(&off).stateless);
        let apart = read(json!({"legacy": {"versions": ["2024-11-05"]}}));
        let apart = apart.expect("it is sound").narrow(&all);
        assert!(!apart.legacy && apart.with_sessions().is_empty() && apart.stateless);
    }

    #[test]
    fn it_is_written_as_it_was_read() {
        let value = json!({"legacy": {"enabled": false}, "stateless": {"toolsListTtlMs": 9}});
        let host = read(value.clone()).expect("it is sound");
        assert_eq!(serde_json::to_value(&host).ok(), Some(value));
    }
}
