//! Who may see and call a declared tool, and what of its results: access rules in the form of
//! dual-profile.md 3.6, without CEL.
//!
//! Owns: the rules as written in a virtual host, their judgement at load, the decisions, and the
//! filters. Decides from the claims of the caller's token alone; knows nothing of HTTP and does no
//! input or output. What the rules do not allow is denied, unless they say otherwise.

mod claims;
mod filter;
mod rules;
mod words;

use serde_json::Value;

pub use claims::Claims;
pub use filter::FilterFault;
use rules::{EndpointRule, Logic};

use crate::schema::{Reason, SchemaFault};

/// The rules of one virtual host.
#[derive(Debug)]
pub struct Policy {
    logic: Logic,
    default_deny: bool,
    default_include: bool,
    skip_prefixes: Vec<String>,
    mappings: claims::Mappings,
    /// Lists hide what cannot be called.
    hides: bool,
    rules: Vec<EndpointRule>,
}

/// What the policy is about for one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// Nothing is asked: its name or endpoint is excepted.
    Skipped,
    /// The rule at this index.
    Rule(usize),
    /// No rule is about it.
    None,
}

/// Why a call is denied. The text goes to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No rule is about the endpoint, or it lists none for access.
    #[error("Access denied: no access control rule defined for {0}")]
    NoRule(Box<str>),
    /// The rules say no.
    #[error("Access denied by access control rule for {0}")]
    ByRule(Box<str>),
}

impl Policy {
    /// Reads `access_control` and `rules` of a virtual host; `None`: access is not controlled.
    ///
    /// # Errors
    /// Everything that is wrong with them; pointers begin with the name of the field.
    pub fn read(
        access_control: Option<&Value>,
        rules: Option<&Value>,
    ) -> Result<Option<Self>, Vec<SchemaFault>> {
        rules::read(access_control, rules)
    }

    /// What is about the tool with this name and endpoint. Asked once, at load.
    #[must_use]
    pub fn ruling(&self, name: &str, endpoint: &str) -> Ruling {
        let is_skipped = self
            .skip_prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix) || endpoint.starts_with(prefix));
        if is_skipped {
            return Ruling::Skipped;
        }
        rules::about(&self.rules, endpoint).map_or(Ruling::None, Ruling::Rule)
    }

    /// Whether a list shows the tool to this caller: by its visibility, else by whether it may be
    /// called.
    #[must_use]
    pub fn shows(&self, ruling: Ruling, claims: &Claims) -> bool {
        if !self.hides || ruling == Ruling::Skipped {
            return true;
        }
        match self.rule(ruling) {
            None => !self.default_deny,
            Some(rule) if !rule.visibility.is_empty() => self.sees(rule, claims),
            Some(rule) => self.passes(rule, claims).unwrap_or(!self.default_deny),
        }
    }

    /// Whether this caller may call the tool with this endpoint.
    ///
    /// # Errors
    /// When not.
    pub fn allows(&self, ruling: Ruling, endpoint: &str, claims: &Claims) -> Result<(), Denial> {
        if ruling == Ruling::Skipped {
            return Ok(());
        }
        let verdict = match self.rule(ruling) {
            // What may not be seen may not be called.
            Some(rule) if !self.sees(rule, claims) => Some(false),
            Some(rule) => self.passes(rule, claims),
            None => None,
        };
        match verdict {
            Some(true) => Ok(()),
            Some(false) => Err(Denial::ByRule(endpoint.into())),
            None if self.default_deny => Err(Denial::NoRule(endpoint.into())),
            None => Ok(()),
        }
    }

    fn rule(&self, ruling: Ruling) -> Option<&EndpointRule> {
        match ruling {
            Ruling::Rule(index) => self.rules.get(index),
            Ruling::Skipped | Ruling::None => None,
        }
    }

    /// Whether every dimension of the visibility agrees.
    fn sees(&self, rule: &EndpointRule, claims: &Claims) -> bool {
        rule.visibility
            .iter()
            .all(|(dimension, words)| claims.holds_one_of(&self.mappings, dimension, words))
    }

    /// Whether the checks let the caller pass; `None`: there are none.
    fn passes(&self, rule: &EndpointRule, claims: &Claims) -> Option<bool> {
        let checks = rule.access.as_ref()?;
        // Each check is one of roles.
        let has_role = claims.holds_one_of(&self.mappings, "roles", &rule.roles);
        let mut outcomes = checks.iter().map(|_| has_role);
        Some(match self.logic {
            Logic::Any => outcomes.any(|passes| passes),
            Logic::All => outcomes.all(|passes| passes),
        })
    }

    /// Whether results of the tool are filtered.
    #[must_use]
    pub fn filters(&self, ruling: Ruling) -> bool {
        let rule = self.rule(ruling);
        rule.is_some_and(|rule| rule.filters_rows || rule.filters_columns)
    }

    /// Filters a result: rows first, then columns.
    ///
    /// # Errors
    /// When the result is of a kind that cannot be filtered, or is denied whole.
    pub fn filter(
        &self,
        ruling: Ruling,
        claims: &Claims,
        payload: &mut Value,
    ) -> Result<(), FilterFault> {
        let Some(rule) = self.rule(ruling) else {
            return Ok(());
        };
        let caller = filter::Caller {
            claims,
            mappings: &self.mappings,
        };
        if rule.filters_rows {
            filter::rows(&rule.rows, &caller, self.default_include, payload)?;
        }
        if rule.filters_columns {
            filter::columns(&rule.columns, &caller, payload)?;
        }
        Ok(())
    }
}

fn fault(pointer: impl Into<String>, text: impl Into<String>) -> SchemaFault {
    SchemaFault::new(Reason::ConfigInvalid, pointer, text)
}
