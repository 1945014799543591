//! The names that light-gateway's MCP router gives its settings, as far as they mean something here
//! (contract dual-profile 7).
//!
//! Only the settings file has them: at its top, and in the tables `schema`, `protocols.legacy` and
//! `protocols.stateless`. Most are another name of a setting of the table; what has one sound value
//! only is checked; what has no effect here is checked and noted, so that nobody believes in it.

use super::nearest::nearest;
use crate::mcp::version::STATELESS;

/// What a name means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The setting of this flag.
    Setting(&'static str),
    /// The same, a number that must be this at least.
    AtLeast(&'static str, u64),
    /// This value and no other; with the reason.
    Only(&'static str, &'static str),
    /// The revisions without sessions: a list of the only one.
    StatelessVersions,
    /// The setting of this flag, under another name than this one.
    Alias(&'static str, &'static str),
    /// A whole number above 0 that changes nothing; with the reason.
    Idle(&'static str),
}

use Meaning::{Alias, AtLeast, Idle, Only, Setting, StatelessVersions};

/// Every name, with the tables it stands in.
pub(super) const NAMES: &[(&str, Meaning)] = &[
    (
        "enabled",
        Only("true", "the process serves nothing else: do not start it"),
    ),
    (
        "path",
        Only(
            "/mcp",
            "endpoints are /servers/NAME/mcp, and /mcp for the one of --default-virtual-host",
        ),
    ),
    ("maxSessions", Setting("sessions-max")),
    (
        "maxSessionsPerClient",
        Setting("sessions-per-principal-max"),
    ),
    ("maxRequestBodyBytes", Setting("body-bytes-max")),
    ("maxResponseBodyBytes", AtLeast("response-bytes-max", 2048)),
    ("maxJsonDepth", Setting("json-depth-max")),
    ("originAllowlist", Setting("mcp-allowed-origins")),
    (
        "schema.defaultDialect",
        Only(
            "https://json-schema.org/draft/2020-12/schema",
            "no other dialect is known",
        ),
    ),
    (
        "schema.allowExternalRefs",
        Only("false", "nothing is fetched that a schema names"),
    ),
    ("schema.maxSchemaBytes", Setting("max-schema-bytes")),
    ("schema.maxDepth", Setting("max-schema-depth")),
    ("schema.maxSubschemas", Setting("max-subschemas")),
    (
        "schema.maxCompositionBranches",
        Setting("max-composition-branches"),
    ),
    (
        "schema.maxSchemaGraphVisits",
        Setting("max-schema-graph-visits"),
    ),
    (
        "schema.maxConcurrentValidations",
        Setting("max-concurrent-validations"),
    ),
    (
        "schema.validationWatchdogMs",
        Setting("validation-watchdog-ms"),
    ),
    (
        "schema.validationTimeoutMs",
        Alias("schema.validationWatchdogMs", "validation-watchdog-ms"),
    ),
    ("protocols.legacy.enabled", Setting("legacy-enabled")),
    ("protocols.legacy.versions", Setting("legacy-versions")),
    ("protocols.stateless.enabled", Setting("stateless-enabled")),
    ("protocols.stateless.versions", StatelessVersions),
    (
        "protocols.stateless.discoverTtlMs",
        Setting("discover-ttl-ms"),
    ),
    (
        "protocols.stateless.toolsListTtlMs",
        Setting("tools-list-ttl-ms"),
    ),
    (
        "protocols.stateless.discoverCacheScope",
        Only("private", "what one caller may see is not for another"),
    ),
    (
        "protocols.stateless.toolsListCacheScope",
        Only("private", "what one caller may see is not for another"),
    ),
    (
        "protocols.stateless.maxDiscoverCacheEntries",
        Idle(
            "no effect: what backends can do is kept with the lists, see maxToolsListCacheEntries",
        ),
    ),
    (
        "protocols.stateless.maxToolsListCacheEntries",
        Setting("max-tools-list-cache-entries"),
    ),
    (
        "protocols.stateless.maxToolsListItems",
        Setting("max-tools-list-items"),
    ),
    (
        "protocols.stateless.maxConcurrentRequests",
        Setting("max-concurrent-requests"),
    ),
    (
        "protocols.stateless.maxConcurrentRequestsPerPrincipal",
        Setting("max-concurrent-requests-per-principal"),
    ),
    (
        "protocols.stateless.maxConcurrentBackendCallsPerTarget",
        Setting("max-concurrent-backend-calls-per-target"),
    ),
    (
        "protocols.stateless.maxSubscriptions",
        Setting("max-subscriptions"),
    ),
    (
        "protocols.stateless.maxSubscriptionsPerPrincipal",
        Setting("max-subscriptions-per-principal"),
    ),
    (
        "protocols.stateless.maxSubscriptionDurationMs",
        Setting("max-subscription-duration-ms"),
    ),
    (
        "protocols.stateless.statelessToLegacyBridge",
        Only(
            "reject",
            "backends are bridged one by one, by their own `bridge`",
        ),
    ),
];

/// What a name means.
pub(super) fn meaning(path: &str) -> Option<Meaning> {
    let found = NAMES.iter().find(|(name, _)| *name == path);
    found.map(|(_, meaning)| *meaning)
}

/// Whether names stand in a table of this path.
pub(super) fn is_table(path: &str) -> bool {
    NAMES.iter().any(|(name, _)| {
        name.strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// What was probably meant by a name that is none, in the table of this path.
pub(super) fn meant(table: &str, name: &str) -> Option<&'static str> {
    let own = NAMES.iter().filter_map(|(path, _)| {
        let (place, leaf) = path.rsplit_once('.').unwrap_or(("", path));
        (place == table).then_some(leaf)
    });
    nearest(name, own)
}

/// What is wrong with a list of revisions without sessions; `is_on`: they are served.
pub(super) fn check_stateless_versions(texts: &[&str], is_on: bool) -> Result<(), String> {
    match texts {
        [] if is_on => Err(format!(
            "names no revision: it is [\"{STATELESS}\"], or enabled = false"
        )),
        [] => Ok(()),
        [only] if *only == STATELESS => Ok(()),
        [_, ..] if texts.iter().all(|text| *text == STATELESS) => {
            Err(format!("{STATELESS} stands twice"))
        }
        _ => Err(format!("must be [\"{STATELESS}\"], the only one there is")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{self, SETTINGS};
    use super::*;

    const BOOK: &str = include_str!("../../docs/settings.md");

    #[test]
    fn every_name_stands_once_and_means_a_setting_that_there_is() {
        let mut seen = std::collections::BTreeSet::new();
        for (name, meaning) in NAMES {
            assert!(seen.insert(name), "{name}");
            if let Setting(flag) | AtLeast(flag, _) = meaning {
                assert!(table::Setting::find(flag).is_some(), "{flag}");
                let others = NAMES.iter().filter(|(_, other)| other == meaning);
                assert_eq!(others.count(), 1, "{flag}");
            }
            if let Alias(other, flag) = meaning {
                assert_eq!(super::meaning(other), Some(Setting(flag)), "{name}");
            }
        }
        assert!(SETTINGS.len() > NAMES.len());
    }

    #[test]
    fn the_book_has_a_row_for_every_name() {
        for (name, meaning) in NAMES {
            let row = match meaning {
                Setting(flag) | AtLeast(flag, _) => format!("| `{name}` | `--{flag}` |"),
                Only(value, _) => format!("| `{name}` | only `{value}` |"),
                StatelessVersions => format!("| `{name}` | only `[\"{STATELESS}\"]` |"),
                Alias(other, _) => format!("| `{name}` | `{other}` |"),
                Idle(_) => format!("| `{name}` | no effect |"),
            };
            assert!(BOOK.contains(&row), "docs/settings.md lacks {row}");
        }
        let rows = BOOK.lines().filter(|line| {
            let cell = line
                .strip_prefix("| `")
                .and_then(|rest| rest.split_once('`'));
            cell.is_some_and(|(name, _)| meaning(name).is_some())
        });
        assert_eq!(rows.count(), NAMES.len());
    }

    #[test]
    fn a_list_without_sessions_has_one_sound_form() {
        for (texts, is_on, is_sound) in [
            (&[STATELESS][..], true, true),
            (&[], true, false),
            (&[], false, true),
            (&[STATELESS, STATELESS], true, false),
            (&["2025-11-25"], true, false),
            (&[STATELESS, "2025-11-25"], false, false),
        ] {
            let verdict = check_stateless_versions(texts, is_on);
            assert_eq!(verdict.is_ok(), is_sound, "{texts:?}");
        }
    }

    #[test]
    fn what_was_meant_is_found_in_its_own_table() {
        assert_eq!(meant("", "maxSession"), Some("maxSessions"));
        assert_eq!(
            meant("protocols.stateless", "discoverTtl"),
            Some("discoverTtlMs")
        );
        assert_eq!(meant("schema", "maxSessions"), None);
        assert!(is_table("schema") && is_table("protocols.legacy") && is_table("protocols"));
        assert!(!is_table("sche") && !is_table("limits"));
    }
}
