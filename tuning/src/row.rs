//! One line of the report, and how a check fills it.
//!
//! A row may look at several things: it is as bad as the worst of them, and what could not be seen
//! is kept beside what was. A row of which nothing was seen is [`Severity::Unseen`] itself.

use serde::Serialize;
use std::fmt::Display;

use crate::place::Place;

/// How much a row matters, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It could not be seen; nothing is claimed.
    Unseen,
    /// As it should be.
    Ok,
    /// Worth knowing.
    Info,
    /// Costs latency or capacity.
    Warn,
    /// The planned load cannot be served like this.
    Fatal,
}

impl Severity {
    /// All of them, worst first.
    pub const ALL: [Self; 5] = [Self::Fatal, Self::Warn, Self::Info, Self::Ok, Self::Unseen];

    /// The word in the table and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unseen => "unseen",
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Fatal => "fatal",
        }
    }
}

/// The answer to one question about the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Number of the check, the same in every version.
    pub number: u8,
    /// What is looked at.
    pub name: &'static str,
    /// What was found; empty when nothing could be seen.
    pub current: String,
    /// What it should be.
    pub wanted: &'static str,
    /// How much the difference matters.
    pub severity: Severity,
    /// Why anyone should care.
    pub why: &'static str,
    /// What to do about it; empty when nothing has to be done.
    pub fix: String,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
}

/// Who can change what a check looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Whoever starts the process or its container.
    Process,
    /// Whoever owns the network namespace.
    Network,
    /// Whoever owns the kernel; never a container.
    Host,
}

/// What never changes about a check.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) number: u8,
    pub(crate) name: &'static str,
    pub(crate) wanted: &'static str,
    pub(crate) why: &'static str,
    pub(crate) scope: Scope,
}

/// A row being filled.
#[derive(Debug)]
pub(crate) struct Draft {
    subject: &'static Subject,
    severity: Severity,
    current: Vec<String>,
    fixes: Vec<String>,
    unseen: Vec<String>,
}

impl Draft {
    pub(crate) fn new(subject: &'static Subject) -> Self {
        Self {
            subject,
            severity: Severity::Unseen,
            current: Vec::new(),
            fixes: Vec::new(),
            unseen: Vec::new(),
        }
    }

    /// Found, and as it should be.
    pub(crate) fn ok(&mut self, current: impl Into<String>) {
        self.found(Severity::Ok, current.into());
    }

    /// Found, and worth knowing.
    pub(crate) fn info(&mut self, current: impl Into<String>) {
        self.found(Severity::Info, current.into());
    }

    /// Found, and to be changed.
    pub(crate) fn warn(&mut self, current: impl Into<String>, fix: impl Into<String>) {
        self.found(Severity::Warn, current.into());
        self.advise(fix);
    }

    /// Found, and in the way of the planned load.
    pub(crate) fn fatal(&mut self, current: impl Into<String>, fix: impl Into<String>) {
        self.found(Severity::Fatal, current.into());
        self.advise(fix);
    }

    /// Advice without a judgement.
    pub(crate) fn advise(&mut self, fix: impl Into<String>) {
        let fix = fix.into();
        if !self.fixes.contains(&fix) {
            self.fixes.push(fix);
        }
    }

    /// Not found.
    pub(crate) fn unseen(&mut self, reason: impl Display) {
        self.unseen.push(reason.to_string());
    }

    /// The row. In a container the advice says who has to follow it.
    pub(crate) fn finish(self, place: &Place) -> Row {
        let subject = self.subject;
        let mut fix = self.fixes.join("; ");
        if place.container.is_some() && !fix.is_empty() {
            fix = match subject.scope {
                Scope::Process => fix,
                Scope::Network => format!("{fix} (when the container is started, or on the host)"),
                Scope::Host => format!("{fix} (on the host: a container cannot)"),
            };
        }
        Row {
            number: subject.number,
            name: subject.name,
            current: self.current.join("; "),
            wanted: subject.wanted,
            severity: self.severity,
            why: subject.why,
            fix,
            unseen: self.unseen,
        }
    }

    fn found(&mut self, severity: Severity, current: String) {
        self.severity = self.severity.max(severity);
        self.current.push(current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SUBJECT: Subject = Subject {
        number: 99,
        name: "a check",
        wanted: "peace",
        why: "because",
        scope: Scope::Host,
    };

    #[test]
    fn a_row_is_as_bad_as_its_worst_part_and_keeps_what_was_not_seen() {
        let mut draft = Draft::new(&SUBJECT);
        draft.ok("a is 1");
        draft.unseen("b is missing");
        draft.warn("c is 2", "set c");
        draft.warn("d is 2", "set c");
        draft.info("e is 3");
        let row = draft.finish(&Place::default());
        assert_eq!(row.severity, Severity::Warn);
        assert_eq!(row.current, "a is 1; c is 2; d is 2; e is 3");
        assert_eq!(row.fix, "set c");
        assert_eq!(row.unseen, ["b is missing"]);
    }

    #[test]
    fn nothing_seen_is_its_own_answer() {
        let mut draft = Draft::new(&SUBJECT);
        draft.unseen("all of it");
        let row = draft.finish(&Place::default());
        assert_eq!(row.severity, Severity::Unseen);
        assert!(row.current.is_empty() && row.fix.is_empty());
    }

    #[test]
    fn advice_in_a_container_says_whose_it_is() {
        let place = Place {
            container: Some("docker".to_owned()),
            ..Place::default()
        };
        let mut draft = Draft::new(&SUBJECT);
        draft.warn("c is 2", "set c");
        assert_eq!(
            draft.finish(&place).fix,
            "set c (on the host: a container cannot)"
        );
    }

    #[test]
    fn worse_is_greater() {
        assert!(Severity::ALL.windows(2).all(|pair| pair[0] > pair[1]));
    }
}
