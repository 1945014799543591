//! Issuers whose tokens are taken besides the control plane's: the rules of each, and its keys as
//! they are known at one time.

use std::sync::Arc;

use super::algorithm::SignatureAlgorithm;
use super::jwks::KeySet;

/// What `aud` of an issuer's tokens must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// This.
    Exact(Box<str>),
    /// The address of the endpoint asked (RFC 8707).
    Resource,
}

/// One issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerRules {
    /// The exact `iss` of its tokens.
    pub issuer: Box<str>,
    /// Where its keys are: `https`, or `http` on loopback.
    pub jwks_url: url::Url,
    /// Whom its tokens must be for.
    pub audience: Audience,
    /// What its tokens may be signed with; never a shared secret.
    pub algorithms: Box<[SignatureAlgorithm]>,
    /// Put before the subjects of its tokens: two issuers may name different people alike.
    pub subject_prefix: Box<str>,
}

/// All trusted issuers with the keys of each, at one time. Immutable.
#[derive(Debug, Clone, Default)]
pub struct IssuerKeys {
    rules: Arc<[IssuerRules]>,
    /// By index of the rules; `None`: not known, or too old to be believed.
    sets: Vec<Option<Arc<KeySet>>>,
}

impl IssuerKeys {
    /// Of these issuers no key is known yet.
    #[must_use]
    pub fn unknown(rules: Arc<[IssuerRules]>) -> Self {
        let sets = vec![None; rules.len()];
        Self { rules, sets }
    }

    /// The same with other keys of one issuer.
    #[must_use]
    pub fn with(&self, index: usize, set: Option<Arc<KeySet>>) -> Self {
        let mut changed = self.clone();
        if let Some(place) = changed.sets.get_mut(index) {
            *place = set;
        }
        changed
    }

    /// Whether there is no issuer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Number of issuers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// The rules and the keys of an issuer.
    #[must_use]
    pub fn of(&self, index: usize) -> Option<(&IssuerRules, Option<&KeySet>)> {
        let rules = self.rules.get(index)?;
        Some((rules, self.sets.get(index)?.as_deref()))
    }

    /// The issuer with this name.
    pub(super) fn find(&self, issuer: &str) -> Option<usize> {
        self.rules.iter().position(|rules| *rules.issuer == *issuer)
    }
}
