//! What is wrong with the settings, in one line each, and where it was said.
//!
//! A [`Fault`] stops the start, a [`Note`] does not. Both begin with their [`Origin`], so that an
//! operator knows which of flag, variable and file line to edit. Neither ever holds a secret:
//! whoever writes the text of a fault about a secret setting leaves the value out.

use std::fmt;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A command-line flag, named without its dashes.
    Flag(String),
    /// An environment variable, by its full name.
    Environment(String),
    /// A line of the settings file; the key is empty when the file as a whole is meant.
    File {
        /// The file as the operator named it.
        path: String,
        /// The line, counted from one; zero when the file as a whole is meant.
        line: usize,
        /// The dotted key, as `limits.head_bytes_max`.
        key: String,
    },
    /// Nobody said it; the flag that would say it, without its dashes.
    Unsaid(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag --{flag}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::File { path, line: 0, .. } => write!(f, "settings file {path}"),
            Self::File { path, line, key } if key.is_empty() => {
                write!(f, "settings file {path} line {line}")
            }
            Self::File { path, line, key } => {
                write!(f, "settings file {path} line {line}, {key}")
            }
            Self::Unsaid(flag) => write!(f, "--{flag} (not given)"),
        }
    }
}

/// One reason not to start; prints as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where the faulty value came from.
    pub origin: Origin,
    /// What is wrong and what is allowed, without a line break.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.problem)
    }
}

impl std::error::Error for Fault {}

/// One thing an operator should know although the start goes on; prints as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Where the remarkable value came from.
    pub origin: Origin,
    /// What to know, without a line break.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

/// Quotes an operator's text for a fault: escaped, so that it stays on one line, and cut short.
pub(super) fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let mut shown: String = text.chars().take(CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    format!("{shown:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_line_that_begins_with_its_origin() {
        let origins = [
            (Origin::Flag("shards".into()), "flag --shards"),
            (
                Origin::Environment("SHARDGATE_SHARDS".into()),
                "environment variable SHARDGATE_SHARDS",
            ),
            (
                Origin::File {
                    path: "a.toml".into(),
                    line: 3,
                    key: "shards.shards".into(),
                },
                "settings file a.toml line 3, shards.shards",
            ),
            (
                Origin::File {
                    path: "a.toml".into(),
                    line: 3,
                    key: String::new(),
                },
                "settings file a.toml line 3",
            ),
            (
                Origin::File {
                    path: "a.toml".into(),
                    line: 0,
                    key: String::new(),
                },
                "settings file a.toml",
            ),
            (
                Origin::Unsaid("redis-port".into()),
                "--redis-port (not given)",
            ),
        ];
        for (origin, text) in origins {
            let fault = Fault {
                origin,
                problem: "no".into(),
            };
            assert_eq!(fault.to_string(), format!("{text}: no"));
        }
    }

    #[test]
    fn quoted_text_stays_on_one_line_and_short() {
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
        assert_eq!(quoted(&"x".repeat(500)).len(), 80 + 2 + 3);
        assert_eq!(quoted(&"\u{e4}".repeat(81)).chars().count(), 80 + 2 + 3);
    }
}
