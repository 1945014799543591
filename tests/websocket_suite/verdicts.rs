//! What the suite found, and what it was to find.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

/// The suite's two words for a case: for what was said, and for how it ended.
type Verdict = (String, String);

/// By case, in the order of the reports.
pub(crate) type Verdicts = BTreeMap<String, Verdict>;

/// Reads `index.json` of the reports in a folder; `complaint` is what the suite said besides.
pub(crate) fn read(folder: &Path, complaint: &[u8]) -> Verdicts {
    let text = fs::read_to_string(folder.join("index.json")).unwrap_or_else(|error| {
        panic!(
            "no reports ({error}): {}",
            String::from_utf8_lossy(complaint)
        )
    });
    let index: Value = serde_json::from_str(&text).unwrap();
    let [agent] = index.as_object().unwrap().values().collect::<Vec<_>>()[..] else {
        panic!("reports of one agent: {index}");
    };
    let word = |case: &Value, name: &str| case[name].as_str().unwrap().to_owned();
    let cases = agent.as_object().unwrap().iter();
    cases
        .map(|(id, case)| {
            let verdict = (word(case, "behavior"), word(case, "behaviorClose"));
            (id.clone(), verdict)
        })
        .collect()
}

/// A row of `expected.toml`.
#[derive(Debug)]
struct Exception {
    cases: String,
    verdict: Verdict,
}

impl Exception {
    /// Whether the row is about the case: it is named, or what stands before a `*` is its front.
    fn is_about(&self, id: &str) -> bool {
        match self.cases.strip_suffix('*') {
            Some(front) => id.starts_with(front),
            None => id == self.cases,
        }
    }
}

/// What one role's cases are to end with.
#[derive(Debug)]
pub(crate) struct Expectations {
    case_count: usize,
    exceptions: Vec<Exception>,
}

impl Expectations {
    /// Those of `server` or `client`.
    pub(crate) fn of(role: &str) -> Self {
        let text = include_str!("expected.toml");
        let whole: toml::Table = text.parse().unwrap();
        let table = whole[role].as_table().unwrap();
        let rows = table["except"].as_array().unwrap();
        let exceptions = rows.iter().map(|row| {
            let word = |name: &str| row[name].as_str().unwrap().to_owned();
            assert!(word("reason").len() > 20, "{row:?}");
            Exception {
                cases: word("cases"),
                verdict: (word("behavior"), word("close")),
            }
        });
        Self {
            case_count: usize::try_from(table["cases"].as_integer().unwrap()).unwrap(),
            exceptions: exceptions.collect(),
        }
    }

    /// Each case must have ended as expected, and each exception must be about one that ran.
    pub(crate) fn judge(&self, verdicts: &Verdicts) {
        let ok = || ("OK".to_owned(), "OK".to_owned());
        let mut wrong = Vec::new();
        for (id, verdict) in verdicts {
            let exception = self.exceptions.iter().find(|row| row.is_about(id));
            let wanted = exception.map_or_else(ok, |row| row.verdict.clone());
            if *verdict != wanted {
                wrong.push(format!("{id}: {verdict:?}, expected {wanted:?}"));
            }
        }
        for row in &self.exceptions {
            if !verdicts.keys().any(|id| row.is_about(id)) {
                wrong.push(format!("{}: no such case", row.cases));
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
        assert_eq!(verdicts.len(), self.case_count, "cases");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(behavior: &str, close: &str) -> Verdict {
        (behavior.to_owned(), close.to_owned())
    }

    fn is_passed(id: &str, verdict: Verdict) -> bool {
        let expectations = Expectations {
            case_count: 1,
            exceptions: vec![Exception {
                cases: "12.*".to_owned(),
                verdict: ("UNIMPLEMENTED".to_owned(), "OK".to_owned()),
            }],
        };
        let all = Verdicts::from([(id.to_owned(), verdict)]);
        std::panic::catch_unwind(|| expectations.judge(&all)).is_ok()
    }

    #[test]
    fn what_is_not_as_expected_fails() {
        assert!(is_passed("12.1.1", verdict("UNIMPLEMENTED", "OK")));
        assert!(!is_passed("12.1.1", verdict("OK", "OK")));
        assert!(!is_passed("1.1.1", verdict("OK", "OK")), "12.* did not run");
        assert!(!is_passed("12.1.1", verdict("UNIMPLEMENTED", "UNCLEAN")));
        assert!(Expectations::of("server").case_count > 200);
    }
}
