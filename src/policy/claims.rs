//! The claims of a caller's token, as rules ask for them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::words::{split, words};

/// Claims that hold the values of a dimension, by its plural.
const DIMENSIONS: [(&str, &str, &[&str]); 5] = [
    ("roles", "role", &["role", "roles"]),
    ("groups", "group", &["scp", "grp", "group", "groups"]),
    ("positions", "position", &["pos", "position", "positions"]),
    (
        "attributes",
        "attribute",
        &["att", "attribute", "attributes"],
    ),
    ("users", "user", &["uid", "user_id", "sub"]),
];

/// More claims for a dimension, by its plural (`claimMappings`).
pub(super) type Mappings = BTreeMap<String, Vec<String>>;

/// The verified claims of a caller. `Debug` shows none.
#[derive(Clone, Default)]
pub struct Claims(Map<String, Value>);

impl std::fmt::Debug for Claims {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Claims({} of them)", self.0.len())
    }
}

/// Whether rules may speak of a dimension of this name.
pub(super) fn is_dimension(name: &str, mappings: &Mappings) -> bool {
    DIMENSIONS.iter().any(|(plural, ..)| *plural == name) || mappings.contains_key(name)
}

impl Claims {
    /// The claims in a token's payload, which was verified; what is no object has none.
    #[must_use]
    pub fn read(payload: &[u8]) -> Self {
        Self(serde_json::from_slice(payload).unwrap_or_default())
    }

    /// The claims of a compact JWS whose signature was verified.
    #[must_use]
    pub fn of_token(token: &[u8]) -> Self {
        use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

        let payload = token.split(|byte| *byte == b'.').nth(1);
        let payload = payload.and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
        payload
            .map(|payload| Self::read(&payload))
            .unwrap_or_default()
    }

    /// The values of one claim, as text.
    fn of(&self, name: &str, is_list: bool) -> Vec<String> {
        match self.0.get(name) {
            // `scp` and its like are words in one string (RFC 9068 section 2.2.3). A name is whole:
            // the user `admin assistant` is no `admin`.
            Some(Value::String(text)) if is_list => split(text),
            Some(Value::String(text)) => vec![text.clone()],
            Some(value) => words(value).unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// The one value of a claim that `@name` in a filter stands for.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// The values of a dimension, by its plural or singular name, or that of a mapped claim.
    pub(super) fn dimension(&self, mappings: &Mappings, name: &str) -> Vec<String> {
        let known = DIMENSIONS
            .iter()
            .find(|(plural, singular, _)| *plural == name || *singular == name);
        let plural = known.map_or(name, |(plural, ..)| plural);
        let own = known.map_or(&[][..], |(.., claims)| claims);
        let mapped = mappings.get(plural).into_iter().flatten();
        own.iter()
            .copied()
            .chain(mapped.map(String::as_str))
            .flat_map(|claim| self.of(claim, plural != "users"))
            .collect()
    }

    /// Whether the caller has one of these in a dimension.
    pub(super) fn holds_one_of(&self, mappings: &Mappings, name: &str, wanted: &[String]) -> bool {
        let held = self.dimension(mappings, name);
        held.iter().any(|value| wanted.contains(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_find_their_claims() {
        let claims = Claims::read(
            br#"{"role":"a b","scp":["r","w"],"grp":"g","sub":"me too","custom_roles":["c"],"pos":7}"#,
        );
        let mappings: Mappings = [("roles".to_owned(), vec!["custom_roles".to_owned()])].into();
        assert_eq!(claims.dimension(&mappings, "roles"), ["a", "b", "c"]);
        assert_eq!(claims.dimension(&mappings, "role"), ["a", "b", "c"]);
        assert_eq!(
            claims.dimension(&Mappings::new(), "groups"),
            ["r", "w", "g"]
        );
        assert_eq!(claims.dimension(&Mappings::new(), "users"), ["me too"]);
        assert_eq!(claims.dimension(&Mappings::new(), "positions"), ["7"]);
        assert_eq!(claims.dimension(&Mappings::new(), "attributes"), [""; 0]);
        assert!(!format!("{claims:?}").contains("me"));
        assert!(Claims::read(b"[]").dimension(&mappings, "roles").is_empty());
    }
}
