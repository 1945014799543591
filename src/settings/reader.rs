//! One question for all sources: what was said of a setting, by whom, and does it make sense.
//!
//! Owns the precedence flag > environment > file > default and the growing lists of faults and
//! notes. A faulty value is reported and its default taken instead, so that one mistake does not
//! raise a second fault in a later check; the settings so read are thrown away at the end.

use super::checks::readable;
use super::environment::Environment;
use super::fault::{Fault, Note, Origin, quoted};
use super::file::Document;
use super::flags::Flags;
use super::secret::Secret;
use super::table::{SETTINGS, SETTINGS_FILE, Setting, Shape};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::duration::{duration_text, parse_duration, parse_size, size_text};
use super::values::{path, switch, whole};

/// The sources, and what was found wrong with them so far.
pub(super) struct Reader<'a> {
    flags: &'a Flags,
    /// The environment, for what is looked up besides settings.
    pub(super) environment: &'a Environment,
    file: Document,
    faults: Vec<Fault>,
    notes: Vec<Note>,
    asked: BTreeSet<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(flags: &'a Flags, environment: &'a Environment) -> Self {
        let faults = environment
            .unreadable()
            .map(|name| Fault {
                origin: Origin::Environment(name.to_owned()),
                problem: "the value is not valid UTF-8".into(),
            })
            .collect();
        let notes = environment.unknown();
        let file = Document::default();
        Self {
            flags,
            environment,
            file,
            faults,
            notes,
            asked: BTreeSet::new(),
        }
    }

    /// Adds the settings file's text as the weakest source.
    pub(super) fn with_file(mut self, text: &str) -> Self {
        let path = self
            .said(SETTINGS_FILE)
            .map_or_else(|| "(text)".to_owned(), |(_, path)| path);
        let (mut file, faults) = Document::parse(&path, text);
        self.notes.extend(file.take_notes());
        self.file = file;
        self.faults.extend(faults);
        self
    }

    /// Ends the reading: every fault found, or the notes.
    pub(super) fn finish(self) -> Result<Vec<Note>, Vec<Fault>> {
        debug_assert!(
            SETTINGS
                .iter()
                .all(|s| s.flag == SETTINGS_FILE || self.asked.contains(s.flag)),
            "a setting of the table is never read"
        );
        if self.faults.is_empty() {
            Ok(self.notes)
        } else {
            Err(self.faults)
        }
    }

    /// The strongest source's text and where it stands.
    pub(super) fn said(&self, flag: &str) -> Option<(Origin, String)> {
        let setting = Setting::find(flag)?;
        if let Some(text) = self.flags.said(flag) {
            return Some((Origin::Flag(flag.to_owned()), text.to_owned()));
        }
        if let Some((name, text)) = self.environment.find(setting) {
            return Some((Origin::Environment(name), text.to_owned()));
        }
        let (origin, text) = self.file.find(setting)?;
        Some((origin.clone(), text.to_owned()))
    }

    /// Whether anybody said it.
    pub(super) fn is_said(&self, flag: &str) -> bool {
        self.said(flag).is_some()
    }

    /// Reports a fault about what was said, or not said, of a setting.
    pub(super) fn fault(&mut self, flag: &str, problem: impl Into<String>) {
        let origin = self.origin(flag);
        self.faults.push(Fault {
            origin,
            problem: problem.into(),
        });
    }

    /// Notes something about what was said, or not said, of a setting.
    pub(super) fn note(&mut self, flag: &str, text: impl Into<String>) {
        let origin = self.origin(flag);
        self.notes.push(Note {
            origin,
            text: text.into(),
        });
    }

    /// Notes something about a variable that is no setting.
    pub(super) fn note_variable(&mut self, name: &str, text: impl Into<String>) {
        let origin = Origin::Environment(name.to_owned());
        self.notes.push(Note {
            origin,
            text: text.into(),
        });
    }

    fn origin(&self, flag: &str) -> Origin {
        self.said(flag)
            .map_or_else(|| Origin::Unsaid(flag.to_owned()), |(origin, _)| origin)
    }

    /// The value when somebody said it and it makes sense.
    pub(super) fn optional<T>(
        &mut self,
        flag: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        debug_assert!(Setting::find(flag).is_some(), "{flag} is not in the table");
        self.asked.insert(flag);
        let (_, text) = self.said(flag)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(problem) => {
                let secret = Setting::find(flag).is_none_or(|s| s.shape == Shape::Secret);
                let problem = if secret {
                    problem
                } else {
                    format!("{} {problem}", quoted(&text))
                };
                self.fault(flag, problem);
                None
            }
        }
    }

    /// The value, else the default of the table.
    pub(super) fn value<T: Default>(
        &mut self,
        flag: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let said = self.optional(flag, &parse);
        said.unwrap_or_else(|| {
            let default = Setting::find(flag).and_then(|setting| setting.default);
            let value = default.map(parse);
            debug_assert!(matches!(value, Some(Ok(_))), "{flag} has no sound default");
            value.and_then(Result::ok).unwrap_or_default()
        })
    }

    pub(super) fn switch(&mut self, flag: &'static str) -> bool {
        self.value(flag, switch)
    }

    /// A whole number within bounds.
    pub(super) fn count(&mut self, flag: &'static str, bounds: RangeInclusive<u64>) -> usize {
        let value = self.value(flag, |text| whole(text, bounds.clone()));
        usize::try_from(value).unwrap_or(usize::MAX)
    }

    /// A size in bytes within bounds.
    pub(super) fn size(&mut self, flag: &'static str, bounds: RangeInclusive<u64>) -> usize {
        let (low, high) = (size_text(*bounds.start()), size_text(*bounds.end()));
        let value = self.value(flag, |text| match parse_size(text) {
            Ok(bytes) if bounds.contains(&bytes) => Ok(bytes),
            Ok(_) => Err(format!("must be between {low} and {high}")),
            Err(fault) => Err(format!("is {fault}")),
        });
        usize::try_from(value).unwrap_or(usize::MAX)
    }

    /// A duration within bounds.
    pub(super) fn time(
        &mut self,
        flag: &'static str,
        bounds: RangeInclusive<Duration>,
    ) -> Duration {
        let (low, high) = (duration_text(*bounds.start()), duration_text(*bounds.end()));
        self.value(flag, |text| match parse_duration(text) {
            Ok(time) if bounds.contains(&time) => Ok(time),
            Ok(_) => Err(format!("must be between {low} and {high}")),
            Err(fault) => Err(format!("is {fault}")),
        })
    }

    /// A file that exists and can be read; what is in it is its owner's to judge.
    pub(super) fn file(&mut self, flag: &'static str) -> Option<PathBuf> {
        self.optional(flag, |text| {
            let path = path(text)?;
            readable(&path).map(|()| path)
        })
    }

    /// A secret, said directly or by reference.
    pub(super) fn secret(&mut self, flag: &'static str) -> Option<Secret> {
        let environment = self.environment;
        let secret = self.optional(flag, |text| Secret::parse(text, environment))?;
        let open = matches!(self.said(flag), Some((Origin::Flag(_), text))
            if !text.starts_with("file:") && !text.starts_with("env:"));
        if open {
            self.note(
                flag,
                "a secret on the command line can be read by other users of this \
                 host; file:PATH or env:NAME keeps it private",
            );
        }
        Some(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
        let mut flags = Flags::none();
        let environment = Environment::from_pairs([("SHARDGATE_SESSIONS_MAX", "20")]);
        let nothing = Environment::default();
        let file = "[limits]\nsessions_max = 30";
        let read = |reader: Reader<'_>| {
            let mut reader = reader;
            reader.count("sessions-max", 1..=1_000_000)
        };
        assert_eq!(read(Reader::new(&flags, &nothing)), 10_000);
        assert_eq!(read(Reader::new(&flags, &nothing).with_file(file)), 30);
        assert_eq!(read(Reader::new(&flags, &environment).with_file(file)), 20);
        flags.set("sessions-max", "10");
        assert_eq!(read(Reader::new(&flags, &environment).with_file(file)), 10);
    }

    #[test]
    fn a_faulty_value_is_reported_once_and_the_default_stands_in() {
        let mut flags = Flags::none();
        flags.set("head-timeout", "10");
        flags.set("sessions-max", "0");
        let environment = Environment::default();
        let mut reader = Reader::new(&flags, &environment);
        let bounds = Duration::from_millis(1)..=Duration::from_secs(60);
        assert_eq!(reader.time("head-timeout", bounds), Duration::from_secs(10));
        assert_eq!(reader.count("sessions-max", 1..=5_000_000), 10_000);
        let faults: Vec<String> = reader.faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            faults,
            [
                "flag --head-timeout: \"10\" is not a duration: write a whole number and a unit, \
                 as 250ms, 5s, 2m, 1h or 1d",
                "flag --sessions-max: \"0\" must be between 1 and 5000000",
            ]
        );
    }

    #[test]
    fn a_secret_is_never_part_of_a_fault_and_is_noted_when_open() {
        let mut flags = Flags::none();
        flags.set("redis-password", "hunter2");
        flags.set("token-verification-secret", "env:NOWHERE");
        let environment = Environment::default();
        let mut reader = Reader::new(&flags, &environment);
        assert_eq!(
            reader.secret("redis-password"),
            Some(Secret::new("hunter2"))
        );
        assert_eq!(reader.secret("token-verification-secret"), None);
        assert_eq!(reader.notes.len(), 1);
        assert!(!reader.notes[0].to_string().contains("hunter2"));
        assert_eq!(
            reader.faults[0].to_string(),
            "flag --token-verification-secret: the variable NOWHERE is not set"
        );
    }
}
