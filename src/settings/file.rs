//! The settings file: TOML text to the texts of settings, each with its line.
//!
//! Reads tables named after the help's headings, keys spelled as flags with `_` for `-`, and the
//! names of another gateway's file (`contract.rs`). Unknown
//! keys are faults and come with what was probably meant: a typo in a limit must not pass
//! unnoticed. What a value has to look like is decided where all sources meet, not here.

use super::contract::{self, Meaning};
use super::fault::{Fault, Note, Origin, quoted};
use super::nearest::nearest;
use super::table::{SETTINGS, Section, Setting, Shape};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The settings a file says.
#[derive(Debug, Default)]
pub(super) struct Document {
    entries: BTreeMap<&'static str, Entry>,
    notes: Vec<Note>,
}

/// One `key = value` of the file.
struct Entry {
    text: String,
    origin: Origin,
}

/// The text is left out: it may be secret.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.origin.fmt(f)
    }
}

impl Document {
    /// Reads `text`; `path` is only what faults call the file. All faults are found in one pass.
    pub(super) fn parse(path: &str, text: &str) -> (Self, Vec<Fault>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut reading = Reading {
            path,
            text,
            document: Self::default(),
            faults: Vec::new(),
        };
        for error in errors {
            let start = error.span().map_or(0, |span| span.start);
            // The parser's message may have several lines; a fault has one.
            reading.fault(start, "", error.message().replace('\n', "; "));
        }
        // The parser reports by kind; people read from top to bottom.
        reading
            .faults
            .sort_by(|left, right| left.origin.cmp(&right.origin));
        if reading.faults.is_empty() {
            reading.sections(table.get_ref());
        }
        (reading.document, reading.faults)
    }

    /// What is to be said of the file besides faults.
    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// What the file says of a setting.
    pub(super) fn find(&self, setting: &Setting) -> Option<(&Origin, &str)> {
        self.entries
            .get(setting.flag)
            .map(|entry| (&entry.origin, entry.text.as_str()))
    }
}

struct Reading<'a> {
    path: &'a str,
    text: &'a str,
    document: Document,
    faults: Vec<Fault>,
}

impl Reading<'_> {
    fn sections(&mut self, root: &DeTable<'_>) {
        for (name, value) in root {
            let start = name.span().start;
            let name = name.get_ref();
            if let Some(meaning) = contract::meaning(name) {
                self.other_name(start, name, meaning, value, root);
                continue;
            }
            if contract::is_table(name) && Section::ALL.iter().all(|own| own.key() != name) {
                self.other_names(start, name, value);
                continue;
            }
            let Some(section) = Section::ALL
                .into_iter()
                .find(|section| section.key() == name)
            else {
                let known = Section::ALL.iter().map(|section| section.key());
                let meant = did_you_mean(name, known.clone());
                let problem = if let Some(other) = contract::meant("", name) {
                    format!("unknown key; did you mean {other}?")
                } else if meant.is_empty() {
                    let known: Vec<&str> = known.collect();
                    format!("unknown table; the tables are {}", known.join(", "))
                } else {
                    format!("unknown table{meant}")
                };
                self.fault(start, &shown_key(name), problem);
                continue;
            };
            match value.get_ref() {
                DeValue::Table(table) => self.entries(section, table),
                _ => self.fault(start, name, "must be a table of settings".into()),
            }
        }
    }

    fn entries(&mut self, section: Section, table: &DeTable<'_>) {
        for (name, value) in table {
            let start = name.span().start;
            let key = format!("{}.{}", section.key(), shown_key(name.get_ref()));
            if contract::is_table(&key) {
                self.other_names(start, &key, value);
                continue;
            }
            let known = |setting: &&Setting| setting.file_key().as_deref() == Some(key.as_str());
            let Some(setting) = SETTINGS.iter().find(known) else {
                let problem = unknown_key(section, name.get_ref());
                self.fault(start, &key, problem);
                continue;
            };
            match value_text(setting, value) {
                Some(text) => self.enter(start, &key, setting, text),
                None => self.wrong_type(start, &key, wanted(setting), value),
            }
        }
    }

    /// Keeps what was said of a setting, which may be said once.
    fn enter(&mut self, start: usize, key: &str, setting: &Setting, text: String) {
        let origin = self.origin(start, key);
        if let Some(before) = self.document.entries.get(setting.flag) {
            let problem = match &before.origin {
                Origin::File { key, line, .. } => {
                    format!("is said already, by {key} in line {line}")
                }
                _ => "is said already".to_owned(),
            };
            self.faults.push(Fault { origin, problem });
            return;
        }
        let entry = Entry { text, origin };
        self.document.entries.insert(setting.flag, entry);
    }

    fn wrong_type(&mut self, start: usize, key: &str, wanted: &str, value: &Spanned<DeValue<'_>>) {
        let found = value.get_ref().type_str();
        self.fault(start, key, format!("must be {wanted}, not of type {found}"));
    }

    /// A table of the other gateway's names.
    fn other_names(&mut self, start: usize, path: &str, value: &Spanned<DeValue<'_>>) {
        let DeValue::Table(table) = value.get_ref() else {
            self.fault(start, path, "must be a table of settings".into());
            return;
        };
        for (name, value) in table {
            let start = name.span().start;
            let key = format!("{path}.{}", shown_key(name.get_ref()));
            match contract::meaning(&key) {
                Some(meaning) => self.other_name(start, &key, meaning, value, table),
                None => {
                    let meant = contract::meant(path, name.get_ref());
                    let meant = meant.map(|name| format!("; did you mean {name}?"));
                    let problem = format!("unknown key{}", meant.unwrap_or_default());
                    self.fault(start, &key, problem);
                }
            }
        }
    }

    /// One of them, in its table.
    fn other_name(
        &mut self,
        start: usize,
        key: &str,
        meaning: Meaning,
        value: &Spanned<DeValue<'_>>,
        table: &DeTable<'_>,
    ) {
        match meaning {
            Meaning::Setting(flag) | Meaning::AtLeast(flag, _) | Meaning::Alias(_, flag) => {
                let Some(setting) = Setting::find(flag) else {
                    return;
                };
                let Some(text) = value_text(setting, value) else {
                    self.wrong_type(start, key, wanted(setting), value);
                    return;
                };
                if let Meaning::AtLeast(_, least) = meaning
                    && text.parse().is_ok_and(|number: u64| number < least)
                {
                    self.fault(start, key, format!("must be at least {least}"));
                    return;
                }
                self.enter(start, key, setting, text);
            }
            Meaning::Only(only, why) => {
                let said = match value.get_ref() {
                    DeValue::Boolean(on) => on.to_string(),
                    DeValue::String(text) => text.to_string(),
                    _ => String::new(),
                };
                if said != only {
                    self.fault(start, key, format!("must be {only}: {why}"));
                }
            }
            Meaning::StatelessVersions => {
                let texts: Option<Vec<&str>> = value
                    .get_ref()
                    .as_array()
                    .and_then(|items| items.iter().map(|item| item.get_ref().as_str()).collect());
                let Some(texts) = texts else {
                    self.wrong_type(start, key, "a list of texts", value);
                    return;
                };
                let enabled = table.get("enabled").map(Spanned::get_ref);
                let is_on = enabled.and_then(DeValue::as_bool) != Some(false);
                if let Err(problem) = contract::check_stateless_versions(&texts, is_on) {
                    self.fault(start, key, problem);
                }
            }
            Meaning::Idle(why) => {
                if self.above_0(start, key, value).is_some() {
                    self.note(start, key, why.to_owned());
                }
            }
        }
    }

    /// A whole number above 0; anything else is a fault.
    fn above_0(&mut self, start: usize, key: &str, value: &Spanned<DeValue<'_>>) -> Option<u64> {
        match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => {
                let number = number.as_str().parse().ok().filter(|number| *number > 0);
                if number.is_none() {
                    self.fault(start, key, "must be above 0".into());
                }
                number
            }
            _ => {
                self.wrong_type(start, key, "a whole number", value);
                None
            }
        }
    }

    fn note(&mut self, start: usize, key: &str, text: String) {
        let origin = self.origin(start, key);
        self.document.notes.push(Note { origin, text });
    }

    fn fault(&mut self, start: usize, key: &str, problem: String) {
        let origin = self.origin(start, key);
        self.faults.push(Fault { origin, problem });
    }

    fn origin(&self, start: usize, key: &str) -> Origin {
        let before = self.text.as_bytes().iter().take(start);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        Origin::File {
            path: self.path.to_owned(),
            line,
            key: key.to_owned(),
        }
    }
}

/// A key as faults print it: bare when it could be a known one, else quoted onto one line.
fn shown_key(name: &str) -> String {
    if name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    {
        name.to_owned()
    } else {
        quoted(name)
    }
}

fn unknown_key(section: Section, name: &str) -> String {
    let as_flag = name.replace('_', "-");
    // The right key in the wrong table, or a flag's own spelling.
    let elsewhere = Setting::find(&as_flag).and_then(Setting::file_key);
    if let Some(key) = elsewhere {
        return format!("unknown key; did you mean {key}?");
    }
    let keys: Vec<String> = SETTINGS
        .iter()
        .filter(|setting| setting.section == section && setting.file_key().is_some())
        .map(|setting| setting.flag.replace('-', "_"))
        .collect();
    format!(
        "unknown key{}",
        did_you_mean(name, keys.iter().map(String::as_str))
    )
}

fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

/// What a value of a setting must be in the file.
fn wanted(setting: &Setting) -> &'static str {
    match setting.shape {
        Shape::Many(_) => "a text or a list of texts",
        Shape::Switch => "true or false",
        Shape::One(_) | Shape::Secret => "a text or a whole number",
    }
}

/// A TOML value as the text a flag would have; none when the type cannot be meant.
fn value_text(setting: &Setting, value: &Spanned<DeValue<'_>>) -> Option<String> {
    match (setting.shape, value.get_ref()) {
        (Shape::Switch, DeValue::Boolean(on)) => Some(on.to_string()),
        (Shape::Switch, _) => None,
        (_, DeValue::String(text)) => Some(text.to_string()),
        (_, DeValue::Integer(number)) if number.radix() == 10 => Some(number.as_str().to_owned()),
        (Shape::Many(_), DeValue::Array(items)) => {
            let texts: Option<Vec<&str>> =
                items.iter().map(|item| item.get_ref().as_str()).collect();
            texts.map(|texts| texts.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn faults(text: &str) -> Vec<String> {
        Document::parse("s.toml", text)
            .1
            .iter()
            .map(Fault::to_string)
            .collect()
    }

    fn said(text: &str, flag: &str) -> Option<(String, String)> {
        let (document, faults) = Document::parse("s.toml", text);
        assert_eq!(faults, []);
        let (origin, text) = document.find(Setting::find(flag)?)?;
        Some((origin.to_string(), text.to_owned()))
    }

    #[test]
    fn each_type_of_value_becomes_the_text_of_a_flag() {
        let text = "[shards]\nshards = 1_0\nno_pin = true\n\n[limits]\n\
                    body_bytes_max = \"4MiB\"\nhead-bytes-max.x = 1\n";
        let (document, faults) = Document::parse("s.toml", text);
        assert_eq!(faults.len(), 1);
        let text_of = |flag| {
            document
                .find(Setting::find(flag).unwrap())
                .unwrap()
                .1
                .to_owned()
        };
        assert_eq!(text_of("shards"), "10");
        assert_eq!(text_of("no-pin"), "true");
        assert_eq!(text_of("body-bytes-max"), "4MiB");
        let list = "[access]\nmcp_allowed_hosts = [\"a\", \"b:1\"]";
        assert_eq!(said(list, "mcp-allowed-hosts").unwrap().1, "a,b:1");
    }

    #[test]
    fn a_value_knows_its_line_and_key() {
        let text = "# limits\n[limits]\n\nsessions_max = 5\n";
        assert_eq!(
            said(text, "sessions-max").unwrap().0,
            "settings file s.toml line 4, limits.sessions_max"
        );
    }

    #[test]
    fn unknown_names_are_faults_that_say_what_was_meant() {
        for (text, fault) in [
            (
                "[limit]\n",
                "line 1, limit: unknown table; did you mean limits?",
            ),
            (
                "[limits]\nsesions_max = 1",
                "line 2, limits.sesions_max: unknown key; did you mean sessions_max?",
            ),
            (
                "[limits]\nshards = 1",
                "line 2, limits.shards: unknown key; did you mean shards.shards?",
            ),
            (
                "[limits]\nbody-bytes-max = 1",
                "line 2, limits.body-bytes-max: unknown key; did you mean limits.body_bytes_max?",
            ),
            ("[limits]\ncoffee = 1", "line 2, limits.coffee: unknown key"),
            (
                "[limits]\n\"a\\nb\" = 1",
                "line 2, limits.\"a\\nb\": unknown key",
            ),
            ("limits = 1", "line 1, limits: must be a table of settings"),
            (
                "[process]\nsettings = \"x\"",
                "line 2, process.settings: unknown key",
            ),
        ] {
            assert_eq!(
                faults(text),
                [format!("settings file s.toml {fault}")],
                "{text}"
            );
        }
        let all = faults("coffee = 1");
        assert!(
            all[0].contains("the tables are listen, shards, auth"),
            "{all:?}"
        );
    }

    #[test]
    fn a_wrong_type_is_a_fault() {
        for (text, wanted) in [
            (
                "[shards]\nshards = 1.5",
                "a text or a whole number, not of type float",
            ),
            (
                "[shards]\nshards = [1]",
                "a text or a whole number, not of type array",
            ),
            (
                "[shards]\nno_pin = \"yes\"",
                "true or false, not of type string",
            ),
            (
                "[access]\nmcp_allowed_hosts = [1]",
                "a text or a list of texts, not of type array",
            ),
            (
                "[limits]\nsessions_max = 0x10",
                "a text or a whole number, not of type integer",
            ),
        ] {
            let all = faults(text);
            assert!(
                all.len() == 1 && all[0].ends_with(wanted),
                "{text}: {all:?}"
            );
        }
    }

    #[test]
    fn every_syntax_error_is_one_line_with_its_place() {
        let all = faults("[shards]\nshards = \n\n[limits\nsessions_max 3\n");
        assert!(all.len() >= 2, "{all:?}");
        assert!(
            all[0].starts_with("settings file s.toml line 2: "),
            "{all:?}"
        );
        assert!(all.iter().all(|fault| !fault.contains('\n')), "{all:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn no_text_panics(text in "[\\[\\]a-z_=\"0-9.\\n# \\PC]{0,60}") {
            for fault in faults(&text) {
                prop_assert!(!fault.contains('\n'), "{fault}");
            }
        }
    }
}
