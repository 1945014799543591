//! What differs between two walks for reasons of its own: a short list, each with its reason.
//!
//! Two walks that both go straight to the server prove that the list is long enough; each mask
//! must also be needed somewhere in the walks of the newest revision.

use base64::{Engine, engine::general_purpose::STANDARD};
use regex_lite::{Captures, Regex};

/// Why, and the pattern; what its group takes is kept.
const MASKS: [(&str, &str); 7] = [
    (
        "dynamic blobs say when they were read, in base64",
        "\"UmVzb3VyY2Ug[A-Za-z0-9+/=]+\"",
    ),
    (
        "dynamic resources say when they were read",
        "\\d{1,2}:\\d\\d:\\d\\d[ \u{202f}][AP]M",
    ),
    (
        "tasks say when they were made and changed",
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z",
    ),
    (
        "texts name the server's own session, of which it has none over a pipe",
        r"( for session) (?:[0-9a-f-]{36}|undefined)",
    ),
    (
        "and so do these",
        r#"(Received \w+ Resource request[^"]*\S) (?:from session [0-9a-f-]{36})?""#,
    ),
    (
        "simulated logging draws its level, and names the session",
        r#""level":"\w+","data":"\w+[- ]level[- ]message(?: - SessionId [0-9a-f-]{36})?""#,
    ),
    (
        "files of all sessions share one folder of the server, so each walk has its own name",
        r"walk-\d+\.gz",
    ),
];

/// Ids of tasks and elicitations, whatever they look like: drawn, and used again.
const IDS: &str = r#""(?:taskId|elicitationId)":"([^"]+)""#;
/// What is shorter is no drawn id.
const ID_LENGTH_MIN: usize = 16;

/// The masks of one walk.
pub(crate) struct Masks {
    patterns: Vec<Regex>,
    uses: [usize; MASKS.len()],
    ids: Regex,
    /// Ids in the order in which they came: the first stays the first wherever it comes again.
    known: Vec<String>,
}

impl Masks {
    /// Nothing seen yet.
    pub(crate) fn new() -> Self {
        let compile = |(_, pattern): &(_, &str)| Regex::new(pattern).unwrap();
        Self {
            patterns: MASKS.iter().map(compile).collect(),
            uses: [0; MASKS.len()],
            ids: Regex::new(IDS).unwrap(),
            known: Vec::new(),
        }
    }

    /// The text with all that differs put out of sight.
    pub(crate) fn lay(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (pattern, uses) in self.patterns.iter().zip(&mut self.uses) {
            let masked = pattern.replace_all(&text, |found: &Captures<'_>| {
                *uses += 1;
                // What is said in base64 is masked as text by the masks behind.
                match STANDARD.decode(found[0].trim_matches('"')) {
                    Ok(decoded) if found[0].starts_with("\"Um") => {
                        format!("\"base64 of {}\"", String::from_utf8(decoded).unwrap())
                    }
                    _ => {
                        let kept = found.get(1).map_or("", |kept| kept.as_str());
                        format!("{kept}<differs>")
                    }
                }
            });
            text = masked.into_owned();
        }
        for found in self.ids.captures_iter(&text) {
            let id = &found[1];
            if id.len() >= ID_LENGTH_MIN && !self.known.iter().any(|known| known == id) {
                self.known.push(id.to_owned());
            }
        }
        for (number, id) in self.known.iter().enumerate() {
            text = text.replace(id, &format!("<id {number}>"));
        }
        text
    }

    /// Whether each mask was needed, by its reason.
    pub(crate) fn needed(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let uses = self.uses.iter().map(|uses| *uses > 0);
        MASKS.iter().map(|(reason, _)| *reason).zip(uses)
    }
}
