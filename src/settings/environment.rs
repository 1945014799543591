//! The environment as a source of settings, taken as a value so that tests set no variable.
//!
//! Owns a copy of the variables and the order of prefixes: `SHARDGATE_` first, then the two of
//! the ContextForge data plane (contract contextforge 1: HEAD, then SEED). An empty variable
//! counts as unset, as compose files write them. Never prints a value.

use super::fault::{Note, Origin};
use super::nearest::nearest;
use super::reverse::REVERSE_TOKEN_VARIABLE;
use super::table::{SETTINGS, Setting};
use std::collections::BTreeMap;
use std::fmt;

/// Prefixes of our variables, strongest first.
pub const PREFIXES: [&str; 3] = [
    "SHARDGATE_",
    "CONTEXTFORGE_DATA_PLANE_",
    "CONTEXTFORGE_GATEWAY_RS_",
];

/// Our own prefix: only under it is an unknown name worth a note.
const OWN_PREFIX: &str = PREFIXES[0];

/// Beginnings of variables that belong to scripts and tests of this project, or to `reverse`.
const NOT_SETTINGS: [&str; 4] = [
    "SHARDGATE_CACHE",
    "SHARDGATE_TEST_",
    "SHARDGATE_BENCH_",
    REVERSE_TOKEN_VARIABLE,
];

/// A copy of a process environment.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    unreadable: Vec<String>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let mut environment = Self::default();
        for (name, value) in std::env::vars_os() {
            // A name that is not UTF-8 cannot be one of ours.
            let Ok(name) = name.into_string() else {
                continue;
            };
            match value.into_string() {
                Ok(value) => {
                    environment.variables.insert(name, value);
                }
                Err(_) => environment.unreadable.push(name),
            }
        }
        environment
    }

    /// An environment of these variables and no others.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = pairs
            .into_iter()
            .map(|(n, v)| (n.into(), v.into()))
            .collect();
        Self {
            variables,
            unreadable: Vec::new(),
        }
    }

    /// A variable by its full name; none when unset or empty.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The strongest variable that says this setting: its name and value.
    pub(super) fn find(&self, setting: &Setting) -> Option<(String, &str)> {
        names(setting).find_map(|name| self.value(&name).map(|value| (name.clone(), value)))
    }

    /// Variables of settings whose value is not UTF-8, and so cannot be read at all.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable
            .iter()
            .map(String::as_str)
            .filter(|name| is_known(name))
    }

    /// A note for each variable under our own prefix that says nothing.
    pub(super) fn unknown(&self) -> Vec<Note> {
        self.variables
            .keys()
            .filter_map(|name| Some((name, name.strip_prefix(OWN_PREFIX)?)))
            .filter(|(name, _)| !is_known(name))
            .filter(|(name, _)| !NOT_SETTINGS.iter().any(|other| name.starts_with(other)))
            .map(|(name, suffix)| {
                let text = match meant(suffix) {
                    Some(suffix) => {
                        format!("not a setting, ignored; did you mean {OWN_PREFIX}{suffix}?")
                    }
                    None => "not a setting, ignored".into(),
                };
                Note {
                    origin: Origin::Environment(name.clone()),
                    text,
                }
            })
            .collect()
    }
}

/// Names only: values may be secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// Every variable that can say this setting, strongest first.
fn names(setting: &Setting) -> impl Iterator<Item = String> {
    let suffixes = setting.suffixes();
    let prefixed = PREFIXES.iter().flat_map(move |prefix| {
        suffixes
            .iter()
            .map(|suffix| format!("{prefix}{suffix}"))
            .collect::<Vec<_>>()
    });
    prefixed.chain(setting.bare_names.iter().map(|&name| name.to_owned()))
}

fn is_known(name: &str) -> bool {
    SETTINGS
        .iter()
        .any(|setting| names(setting).any(|known| known == name))
}

/// The suffix an unknown one probably meant.
fn meant(suffix: &str) -> Option<String> {
    // Some settings keep an old variable name that is not their flag's: the flag's is a good guess.
    if let Some(setting) = SETTINGS
        .iter()
        .find(|setting| setting.upper_flag() == suffix)
    {
        return setting.suffixes().into_iter().next();
    }
    let known: Vec<String> = SETTINGS.iter().flat_map(Setting::suffixes).collect();
    nearest(suffix, known.iter().map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_prefix_wins_over_the_upstream_ones() {
        let setting = Setting::find("redis-address").unwrap();
        let mut pairs = vec![
            ("CONTEXTFORGE_GATEWAY_RS_REDIS_HOSTNAME", "seed"),
            ("CONTEXTFORGE_DATA_PLANE_REDIS_HOSTNAME", "head"),
            ("SHARDGATE_REDIS_HOSTNAME", "ours"),
        ];
        while let Some((name, value)) = pairs.last().copied() {
            let environment = Environment::from_pairs(pairs.clone());
            assert_eq!(environment.find(setting), Some((name.to_owned(), value)));
            pairs.pop();
        }
        assert_eq!(Environment::default().find(setting), None);
    }

    #[test]
    fn an_empty_variable_is_unset() {
        let setting = Setting::find("shards").unwrap();
        let environment = Environment::from_pairs([
            ("SHARDGATE_SHARDS", ""),
            ("CONTEXTFORGE_GATEWAY_RS_GATEWAY_CPUS", "3"),
        ]);
        let found = environment.find(setting);
        assert_eq!(
            found,
            Some(("CONTEXTFORGE_GATEWAY_RS_GATEWAY_CPUS".to_owned(), "3"))
        );
    }

    #[test]
    fn an_unknown_variable_of_ours_is_noted_with_what_was_meant() {
        let environment = Environment::from_pairs([
            ("SHARDGATE_SHARDS", "2"),
            ("SHARDGATE_SHRADS", "2"),
            ("SHARDGATE_REDIS_ADDRESS", "x"),
            ("SHARDGATE_COFFEE", "x"),
            ("SHARDGATE_CACHE", "x"),
            ("SHARDGATE_REVERSE_TOKEN", "x"),
            ("SHARDGATE_TEST_REDIS", "x"),
            ("CONTEXTFORGE_DATA_PLANE_COFFEE", "x"),
        ]);
        let notes: Vec<String> = environment.unknown().iter().map(Note::to_string).collect();
        assert_eq!(
            notes,
            [
                "environment variable SHARDGATE_COFFEE: not a setting, ignored",
                "environment variable SHARDGATE_REDIS_ADDRESS: not a setting, ignored; \
                 did you mean SHARDGATE_REDIS_HOSTNAME?",
                "environment variable SHARDGATE_SHRADS: not a setting, ignored; \
                 did you mean SHARDGATE_SHARDS?",
            ]
        );
    }

    #[test]
    fn values_are_not_printed() {
        let environment = Environment::from_pairs([("SHARDGATE_TOKEN_SECRET", "hunter2")]);
        assert_eq!(format!("{environment:?}"), r#"{"SHARDGATE_TOKEN_SECRET"}"#);
    }
}
