//! The claims of a trusted issuer's access token (RFC 9068, RFC 7519), as far as they decide
//! something.
//!
//! What a token may do is in `scope` (RFC 9068) or `scp`, which some issuers write instead; one
//! that says neither may do nothing. An issuer may also write the control plane's own `scopes` and
//! `teams`, which then count as they do there.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Number, Value};

use super::claims::Scopes;
use crate::auth::restrictions::{Permissions, Restrictions, Teams};

/// Audiences of a token at the most; real ones have a few.
const AUDIENCES_MAX: usize = 32;

/// The claims that decide something.
#[derive(Debug)]
pub(super) struct Claims {
    /// `sub`, not empty.
    pub(super) subject: Box<str>,
    /// `iss`.
    pub(super) issuer: Box<str>,
    /// `aud`, every one.
    pub(super) audiences: Box<[Box<str>]>,
    /// `exp`.
    pub(super) expires_at_unix_s: u64,
    /// `nbf`.
    pub(super) not_before_unix_s: Option<u64>,
    /// `jti`.
    pub(super) id: Option<Box<str>>,
    /// What it is restricted to.
    pub(super) restrictions: Restrictions,
}

#[derive(Deserialize)]
struct Table<'a> {
    #[serde(borrow)]
    sub: Cow<'a, str>,
    #[serde(borrow)]
    iss: Cow<'a, str>,
    #[serde(borrow)]
    aud: OneOrMany<'a>,
    exp: Number,
    nbf: Option<Number>,
    #[serde(borrow)]
    jti: Option<Cow<'a, str>>,
    #[serde(borrow)]
    scope: Option<OneOrMany<'a>>,
    #[serde(borrow)]
    scp: Option<OneOrMany<'a>>,
    scopes: Option<Value>,
    // Absent and `null` differ.
    #[serde(default, deserialize_with = "present")]
    teams: Option<Value>,
    user: Option<Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A text, or an array of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<'a> {
    One(#[serde(borrow)] Cow<'a, str>),
    Many(#[serde(borrow)] Vec<Cow<'a, str>>),
}

impl OneOrMany<'_> {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let all = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        };
        all.iter().map(|text| &**text)
    }

    /// Scope names; a text holds several (RFC 6749 section 3.3).
    fn names(&self) -> impl Iterator<Item = &str> {
        self.iter()
            .flat_map(|text| text.split(' '))
            .filter(|name| !name.is_empty())
    }
}

impl Claims {
    /// Reads a decoded payload; `None` when a claim is missing or has the wrong type.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let payload = std::str::from_utf8(payload).ok()?;
        if !payload.trim_ascii_start().starts_with('{') {
            return None;
        }
        let table: Table<'_> = serde_json::from_str(payload).ok()?;
        let audiences: Box<[Box<str>]> = table.aud.iter().map(Box::from).collect();
        // An empty subject would be the anonymous caller's.
        if table.sub.is_empty() || audiences.len() > AUDIENCES_MAX {
            return None;
        }
        let not_before = table.nbf.as_ref().map(moment);
        Some(Self {
            restrictions: table.restrictions()?,
            expires_at_unix_s: moment(&table.exp)?,
            not_before_unix_s: match not_before {
                None => None,
                Some(moment) => Some(moment?),
            },
            subject: table.sub.into(),
            issuer: table.iss.into(),
            audiences,
            id: table.jti.map(|id| id.into()),
        })
    }
}

impl Table<'_> {
    fn restrictions(&self) -> Option<Restrictions> {
        let is_admin = self
            .user
            .as_ref()
            .and_then(|user| user.get("is_admin")?.as_bool());
        let teams = Teams::read(self.teams.as_ref(), is_admin.unwrap_or(false));
        let own = [&self.scope, &self.scp].into_iter().flatten();
        let mut names: Vec<&str> = own.flat_map(OneOrMany::names).collect();
        let mut restrictions = match &self.scopes {
            Some(Value::Object(_)) => Scopes::read(self.scopes.as_ref()?, teams)?,
            Some(Value::Array(more)) => {
                names.extend(more.iter().filter_map(Value::as_str));
                Restrictions {
                    teams,
                    permissions: Permissions::listed([]),
                    ..Restrictions::default()
                }
            }
            Some(Value::Null) | None => Restrictions {
                teams,
                permissions: Permissions::listed([]),
                ..Restrictions::default()
            },
            Some(_) => return None,
        };
        if !names.is_empty() {
            restrictions.permissions = Permissions::listed(names);
        }
        Some(restrictions)
    }
}

/// A NumericDate (RFC 7519 section 2), which may have a fraction.
fn moment(number: &Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let seconds = number.as_f64().filter(|seconds| *seconds >= 0.0)?;
        // Rounds down, and stops at the largest.
        Some(seconds as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(change: &Value) -> Option<Claims> {
        let mut claims = json!({"sub": "s", "iss": "i", "aud": "a", "exp": 2000});
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        Claims::read(claims.to_string().as_bytes())
    }

    fn audiences(claims: &Claims) -> Vec<&str> {
        claims
            .audiences
            .iter()
            .map(|audience| &**audience)
            .collect()
    }

    #[test]
    fn audiences_are_one_or_many() {
        assert_eq!(audiences(&read(&json!({})).unwrap()), ["a"]);
        assert_eq!(
            audiences(&read(&json!({"aud": ["b", "c"]})).unwrap()),
            ["b", "c"]
        );
        assert_eq!(
            audiences(&read(&json!({"aud": []})).unwrap()),
            [] as [&str; 0]
        );
        for bad in [
            json!(1),
            json!([1]),
            json!(null),
            json!({"a": "a"}),
            json!(vec!["x"; 33]),
        ] {
            assert!(read(&json!({"aud": bad})).is_none(), "{bad}");
        }
    }

    #[test]
    fn moments_are_numbers() {
        let late = read(&json!({"exp": 2000.9, "nbf": 1999})).unwrap();
        assert_eq!(
            (late.expires_at_unix_s, late.not_before_unix_s),
            (2000, Some(1999))
        );
        assert_eq!(
            read(&json!({"exp": 1e300})).unwrap().expires_at_unix_s,
            u64::MAX
        );
        for bad in [json!("2000"), json!(-1), json!(null), json!([2000])] {
            assert!(read(&json!({"exp": bad})).is_none(), "{bad}");
        }
        assert!(read(&json!({"nbf": "1"})).is_none() && read(&json!({"nbf": -1})).is_none());
    }

    #[test]
    fn what_a_token_may_do_is_in_its_scopes() {
        let may = |change: &Value, wanted: &str| {
            read(change).unwrap().restrictions.permissions.grant(wanted)
        };
        for (change, read, execute) in [
            (json!({}), false, false),
            (json!({"scope": "tools.read openid"}), true, false),
            (json!({"scp": ["tools.execute"]}), false, true),
            (json!({"scp": "tools.read tools.execute"}), true, true),
            (json!({"scope": ""}), false, false),
            (json!({"scopes": ["tools.read"]}), true, false),
            (
                json!({"scopes": {"permissions": [], "ip_restrictions": []}}),
                true,
                true,
            ),
            (
                json!({"scopes": {"permissions": ["tools.read"], "ip_restrictions": []}}),
                true,
                false,
            ),
        ] {
            assert_eq!(may(&change, "tools.read"), read, "{change}");
            assert_eq!(may(&change, "tools.execute"), execute, "{change}");
        }
        for bad in [json!("tools.read"), json!(1), json!({"permissions": []})] {
            assert!(read(&json!({"scopes": bad})).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_subject_is_somebody() {
        assert!(read(&json!({"sub": ""})).is_none());
        assert!(read(&json!({"sub": 7})).is_none());
        for text in ["", "[]", "[\"s\",\"i\",\"a\",1]", "null", "{}"] {
            assert!(Claims::read(text.as_bytes()).is_none(), "{text}");
        }
        let twice = br#"{"sub":"s","sub":"t","iss":"i","aud":"a","exp":1}"#;
        assert!(Claims::read(twice).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Whatever is signed, it is read or refused.
        #[test]
        fn no_payload_panics(text in "[\\[\\]{}:,\"a-z0-9. \\-]{0,60}", number in any::<f64>()) {
            let _ = Claims::read(text.as_bytes());
            for name in ["aud", "scope", "scp", "scopes", "teams", "user", "exp", "nbf"] {
                let _ = read(&json!({name: text}));
                let _ = read(&json!({name: [text, number]}));
                let _ = read(&json!({name: number}));
                let _ = read(&json!({name: {"permissions": [text], "ip_restrictions": [text]}}));
            }
        }
    }
}
