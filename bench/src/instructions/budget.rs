//! The budget: what a call may cost, in a file that is kept with the code.

use std::{collections::BTreeMap, fmt::Write};

use serde::Deserialize;

use super::Input;

/// The file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// How much more than recorded a call may take, percent.
    pub margin_percent: f64,
    /// Compiler and valgrind the figures were recorded with: others count differently.
    pub recorded_with: String,
    /// Instructions by input.
    pub instructions: BTreeMap<String, u64>,
}

/// Why a budget cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BudgetFault {
    /// It is no such file.
    #[error("the budget cannot be read: {0}")]
    Format(#[from] toml::de::Error),
    /// It names an input there is not, or its margin is none.
    #[error("the budget names no input `{0}`, or has a margin that is not 0 to 50 %")]
    Content(String),
}

/// How a count stands to the budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    /// Within it.
    Within,
    /// Above what was recorded and the margin, by so many percent of what was recorded.
    Above(f64),
    /// Below what was recorded by more than the margin: the budget has become loose.
    Loose(f64),
    /// The budget does not name the input.
    Unknown,
}

impl Budget {
    /// Reads a budget.
    pub fn parse(text: &str) -> Result<Self, BudgetFault> {
        let budget: Self = toml::from_str(text)?;
        if !(0.0..=50.0).contains(&budget.margin_percent) {
            return Err(BudgetFault::Content("margin".to_owned()));
        }
        let mut names = budget.instructions.keys();
        match names.find(|name| Input::named(name).is_none()) {
            Some(name) => Err(BudgetFault::Content(name.clone())),
            None => Ok(budget),
        }
    }

    /// As it is written to a file.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "# Instructions of the gateway, outside the kernel, for one `tools/call` or one exchange.\n\
             # Written by `bench instructions --record`, compared by `bench instructions --check`.\n\
             margin_percent = {:.1}\nrecorded_with = \"{}\"\n\n[instructions]\n",
            self.margin_percent,
            self.recorded_with.replace(['"', '\\'], ""),
        );
        for (name, count) in &self.instructions {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} = {count}");
        }
        text
    }

    /// The most a call of the input may take.
    pub fn limit(&self, input: Input) -> Option<f64> {
        let recorded = *self.instructions.get(input.name())? as f64;
        Some(recorded * (1.0 + self.margin_percent / 100.0))
    }

    /// How `count` stands.
    pub fn standing(&self, input: Input, count: f64) -> Standing {
        let Some(recorded) = self.instructions.get(input.name()) else {
            return Standing::Unknown;
        };
        let over = (count / (*recorded as f64).max(1.0) - 1.0) * 100.0;
        if over > self.margin_percent {
            Standing::Above(over)
        } else if over < -self.margin_percent {
            Standing::Loose(-over)
        } else {
            Standing::Within
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget {
            margin_percent: 3.0,
            recorded_with: "a compiler, a \"tool\"".to_owned(),
            instructions: [("json200".to_owned(), 20_000)].into(),
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut wanted = budget();
        let read = Budget::parse(&wanted.to_text()).unwrap();
        wanted.recorded_with = "a compiler, a tool".to_owned();
        assert_eq!(read, wanted);
    }

    #[test]
    fn counts_within_and_beyond_the_margin() {
        let budget = budget();
        assert!((budget.limit(Input::Small).unwrap() - 20_600.0).abs() < 1e-6);
        let standing = |count| budget.standing(Input::Small, count);
        assert_eq!(standing(20_599.0), Standing::Within);
        assert_eq!(standing(19_401.0), Standing::Within);
        assert!(matches!(standing(20_620.0), Standing::Above(over) if (over - 3.1).abs() < 1e-6));
        assert!(
            matches!(standing(18_000.0), Standing::Loose(under) if (under - 10.0).abs() < 1e-6)
        );
        assert_eq!(budget.standing(Input::Large, 1.0), Standing::Unknown);
        assert_eq!(budget.limit(Input::Large), None);
    }

    #[test]
    fn the_budget_of_the_tree_covers_every_input() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.toml");
        let budget = Budget::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        for input in Input::ALL {
            assert!(budget.limit(input).is_some(), "{}", input.name());
        }
        assert!(budget.margin_percent <= 5.0);
    }

    #[test]
    fn damaged_budgets_are_refused() {
        let text = budget().to_text();
        for (part, other) in [
            ("margin_percent = 3.0", "margin_percent = 60.0"),
            ("margin_percent = 3.0", ""),
            ("json200", "json201"),
            ("20000", "\"many\""),
            ("[instructions]", "more = 1\n[instructions]"),
        ] {
            let damaged = text.replace(part, other);
            assert_ne!(damaged, text);
            assert!(Budget::parse(&damaged).is_err(), "{damaged}");
        }
    }
}
