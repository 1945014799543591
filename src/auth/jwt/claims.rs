//! The claims table of the contract as types: what must be there and what shape it has.
//!
//! Claims that decide nothing are checked for their type and thrown away without an allocation.
//! Unknown members are ignored; a known member given twice is refused.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use super::Verified;
use crate::auth::restrictions::{AddressRange, Hours, Permissions, Restrictions, Teams};

/// The claims that decide something.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    pub(super) sub: Cow<'a, str>,
    pub(super) jti: Cow<'a, str>,
    pub(super) iss: Cow<'a, str>,
    pub(super) aud: Cow<'a, str>,
    pub(super) exp: u64,
    pub(super) restrictions: Restrictions,
}

impl<'a> Claims<'a> {
    /// Reads a decoded payload; `None` when any row of the claims table is broken.
    pub(super) fn read(payload: &'a [u8]) -> Option<Self> {
        // RFC 7519 section 7.2: all of it is UTF-8, ignored members too.
        let payload = std::str::from_utf8(payload).ok()?;
        let Object(table) = serde_json::from_str::<Object<Table<'a>>>(payload).ok()?;
        let teams = match table.teams {
            None => Teams::default(),
            Some(None) => Teams::read(Some(&Value::Null), table.user.0.is_admin),
            Some(Some(ids)) => Teams::Listed(ids.iter().map(|id| Box::from(&**id)).collect()),
        };
        let restrictions = match table.scopes {
            None => Restrictions {
                teams,
                ..Restrictions::default()
            },
            Some(Object(scopes)) => scopes.into_restrictions(teams),
        };
        Some(Self {
            sub: table.sub,
            jti: table.jti,
            iss: table.iss,
            aud: table.aud,
            exp: table.exp,
            restrictions,
        })
    }

    /// What the gateway needs of them.
    pub(super) fn into_verified(self) -> Verified {
        Verified {
            subject: self.sub.into(),
            issuer: self.iss.into(),
            expires_at_unix_s: self.exp,
            id: Some(self.jti.into()),
            audiences: [self.aud.into()].into(),
            must_name_resource: false,
            restrictions: self.restrictions,
        }
    }
}

/// contextforge.md section 2, "Claims schema", row by row.
#[derive(Deserialize)]
struct Table<'a> {
    #[serde(borrow)]
    sub: Cow<'a, str>,
    #[serde(borrow)]
    jti: Cow<'a, str>,
    #[serde(borrow)]
    iss: Cow<'a, str>,
    #[serde(borrow)]
    aud: Cow<'a, str>,
    exp: u64,
    user: Object<User>,
    #[serde(rename = "token_use")]
    _token_use: Option<Text>,
    #[serde(rename = "iat")]
    _iat: Option<u64>,
    /// `null` is not the same as absent.
    #[serde(borrow, default, deserialize_with = "present")]
    teams: Option<Option<Vec<Cow<'a, str>>>>,
    #[serde(borrow)]
    scopes: Option<Object<Scopes<'a>>>,
}

fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct User {
    #[serde(rename = "email")]
    _email: Text,
    is_admin: bool,
    #[serde(rename = "auth_provider")]
    _auth_provider: Text,
    #[serde(rename = "full_name")]
    _full_name: Option<Text>,
}

/// `scopes` of the control plane.
#[derive(Deserialize)]
pub(super) struct Scopes<'a> {
    #[serde(borrow)]
    permissions: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    ip_restrictions: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    server_id: Option<Cow<'a, str>>,
    time_restrictions: Option<Value>,
}

impl Scopes<'_> {
    /// What they restrict a token to; an empty list restricts nothing.
    fn into_restrictions(self, teams: Teams) -> Restrictions {
        let permissions = match self.permissions.is_empty() {
            true => Permissions::All,
            false => Permissions::listed(self.permissions.iter().map(|name| &**name)),
        };
        let ranges = self.ip_restrictions.iter();
        // One that cannot be read lets nobody in, and is one all the same.
        let ranges: Box<[AddressRange]> = ranges
            .filter_map(|text| AddressRange::parse(text))
            .collect();
        Restrictions {
            permissions,
            server_id: self
                .server_id
                .filter(|id| !id.is_empty())
                .map(|id| id.into()),
            addresses: (!self.ip_restrictions.is_empty()).then_some(ranges),
            hours: self
                .time_restrictions
                .as_ref()
                .map_or_else(Hours::default, Hours::read),
            teams,
        }
    }

    /// The same of a token whose claims are no table: `None` when it is not this object.
    pub(super) fn read(claim: &Value, teams: Teams) -> Option<Restrictions> {
        let text = claim.to_string();
        let Object(scopes) = serde_json::from_str::<Object<Scopes<'_>>>(&text).ok()?;
        Some(scopes.into_restrictions(teams))
    }
}

/// A JSON string whose content is not needed. Zero-sized, so a `Vec` of it never allocates.
struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = Text;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }
            fn visit_str<E: Error>(self, _: &str) -> Result<Text, E> {
                Ok(Text)
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Takes `T` from a JSON object only: derived readers would also take it from an array.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_claims_are_unescaped() {
        let payload = br#"{"sub":"a\u0062","jti":"j","iss":"i","aud":"x","exp":1,
            "user":{"email":"e","is_admin":false,"auth_provider":"p"}}"#;
        let claims = Claims::read(payload).unwrap();
        assert_eq!(
            (&*claims.sub, &*claims.iss, &*claims.aud, claims.exp),
            ("ab", "i", "x", 1)
        );
    }

    #[test]
    fn ignored_members_are_utf_8_too() {
        let payload = |ignored: &[u8]| {
            let known = br#"{"sub":"a","jti":"j","iss":"i","aud":"x","exp":1,
                "user":{"email":"e","is_admin":false,"auth_provider":"p"},"other":""#;
            [&known[..], ignored, b"\"}"].concat()
        };
        assert!(Claims::read(&payload(b"x")).is_some());
        assert!(Claims::read(&payload(b"\xff")).is_none());
    }

    #[test]
    fn arrays_are_not_objects() {
        let user = br#"{"sub":"a","jti":"j","iss":"i","aud":"x","exp":1,"user":["e",false,"p"]}"#;
        assert!(Claims::read(user).is_none());
        let whole = br#"["a","j","i","x",1,{"email":"e","is_admin":false,"auth_provider":"p"}]"#;
        assert!(Claims::read(whole).is_none());
    }
}
