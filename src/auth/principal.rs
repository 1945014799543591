//! The authenticated caller, and the fingerprint that binds sessions to it.
//!
//! The fingerprint is keyed with a secret of this deployment and covers issuer and subject, never
//! the token: a refreshed token keeps its session, and a fingerprint found in a file or a memory
//! dump cannot be matched to a subject without the key.

use std::fmt;

use ring::hmac;

use super::jwt::Verified;
use super::restrictions::Restrictions;

/// The secret under which fingerprints are computed; the same on all shards, and over restarts.
#[derive(Clone)]
pub struct FingerprintKey(hmac::Key);

impl FingerprintKey {
    /// Derives the key from a secret of the state folder, so that it differs from its other uses.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = hmac::sign(&root, b"shardgate principal fingerprint v1");
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FingerprintKey")
    }
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// `sub` of the token (contextforge.md section 2); empty for the anonymous caller.
    pub subject: Box<str>,
    /// `iss` of the token; empty for the anonymous caller.
    pub issuer: Box<str>,
    /// What sessions are bound to: keyed digest of issuer and subject, 128 bits.
    pub fingerprint: [u8; 16],
    /// `exp` of the token that proved this principal; `u64::MAX` for the anonymous caller.
    pub expires_at_unix_s: u64,
    /// True when no token was asked for.
    pub anonymous: bool,
    /// `aud` of the token, every one.
    pub audiences: Box<[Box<str>]>,
    /// One of the audiences must be the address of the endpoint that is asked.
    pub must_name_resource: bool,
    /// What the token is restricted to.
    pub restrictions: Restrictions,
}

impl Principal {
    /// The principal that an accepted token proves.
    #[must_use]
    pub fn from_verified(verified: Verified, key: &FingerprintKey) -> Self {
        let fingerprint = fingerprint(key, KIND_TOKEN, &verified.issuer, &verified.subject);
        Self {
            subject: verified.subject,
            issuer: verified.issuer,
            fingerprint,
            expires_at_unix_s: verified.expires_at_unix_s,
            anonymous: false,
            audiences: verified.audiences,
            must_name_resource: verified.must_name_resource,
            restrictions: verified.restrictions,
        }
    }

    /// The one principal of all callers without a token, where the operator allows them.
    #[must_use]
    pub fn anonymous(key: &FingerprintKey) -> Self {
        Self {
            subject: "".into(),
            issuer: "".into(),
            fingerprint: fingerprint(key, KIND_ANONYMOUS, "", ""),
            expires_at_unix_s: u64::MAX,
            anonymous: true,
            audiences: Box::default(),
            must_name_resource: false,
            restrictions: Restrictions::default(),
        }
    }

    /// Whether the token was made for `resource`, exactly (RFC 8707).
    #[must_use]
    pub fn is_meant_for(&self, resource: &str) -> bool {
        self.audiences
            .iter()
            .any(|audience| **audience == *resource)
    }
}

// A token may have an empty subject, so the anonymous caller is set apart by its own kind.
const KIND_ANONYMOUS: u8 = 0;
const KIND_TOKEN: u8 = 1;

fn fingerprint(key: &FingerprintKey, kind: u8, issuer: &str, subject: &str) -> [u8; 16] {
    let mut context = hmac::Context::with_key(&key.0);
    context.update(&[kind]);
    // Lengths first: ("ab", "c") and ("a", "bc") must not meet.
    for part in [issuer, subject] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let tag = context.sign();
    let mut short = [0; 16];
    for (to, from) in short.iter_mut().zip(tag.as_ref()) {
        *to = *from;
    }
    short
}

/// Takes the token out of an `Authorization` value: the exact bytes `Bearer ` and then the token.
///
/// The scheme is case-sensitive with one space (contextforge.md section 2), which is stricter than
/// RFC 9110 section 11.1; a second space is left in the token and fails there.
#[must_use]
pub fn bearer(header_value: &[u8]) -> Option<&[u8]> {
    header_value.strip_prefix(b"Bearer ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(key: &FingerprintKey, issuer: &str, subject: &str, exp: u64) -> Principal {
        let verified = Verified {
            subject: subject.into(),
            issuer: issuer.into(),
            expires_at_unix_s: exp,
            ..Verified::default()
        };
        Principal::from_verified(verified, key)
    }

    #[test]
    fn a_refreshed_token_keeps_the_fingerprint() {
        let key = FingerprintKey::new(b"secret");
        let first = principal(&key, "mcpgateway", "alice", 10);
        let refreshed = principal(&key, "mcpgateway", "alice", 99);
        assert_eq!(first.fingerprint, refreshed.fingerprint);
        assert_ne!(first.expires_at_unix_s, refreshed.expires_at_unix_s);
    }

    #[test]
    fn fingerprints_differ_where_principals_differ() {
        let key = FingerprintKey::new(b"secret");
        let all = [
            principal(&key, "a", "bc", 1),
            principal(&key, "ab", "c", 1),
            principal(&key, "", "abc", 1),
            principal(&key, "abc", "", 1),
            principal(&key, "", "", 1),
            Principal::anonymous(&key),
            principal(&FingerprintKey::new(b"other"), "a", "bc", 1),
        ];
        for (index, left) in all.iter().enumerate() {
            for right in &all[index + 1..] {
                assert_ne!(left.fingerprint, right.fingerprint, "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn the_scheme_is_exact() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Bearer  abc"), Some(&b" abc"[..]));
        assert_eq!(bearer(b"Bearer "), Some(&b""[..]));
        for refused in [
            &b"bearer abc"[..],
            b"BEARER abc",
            b"Bearer",
            b"Bearer\tabc",
            b"",
            b"Basic a",
        ] {
            assert_eq!(bearer(refused), None);
        }
    }

    #[test]
    fn the_key_prints_nothing() {
        assert_eq!(
            format!("{:?}", FingerprintKey::new(b"secret")),
            "FingerprintKey"
        );
    }
}
