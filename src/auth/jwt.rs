//! Token verification: compact JWS in, what the gateway needs of it out.
//!
//! Two kinds of issuers. The control plane's tokens (contextforge.md section 2) are checked with
//! the keys of the settings, and their claims have the types its own reader gives them. Those of a
//! trusted issuer are checked with its published keys, and their claims are those of RFC 9068. Its
//! `iss` decides which kind a token is, read before anything is believed: it only chooses the keys.
//!
//! Order of checks: length, UTF-8, header, algorithm and its key, signature, claims. The claims are
//! read only after the signature holds. Time is an argument.

mod claims;
mod standard;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use super::AuthFault;
use super::algorithm::SignatureAlgorithm;
use super::issuer::{Audience, IssuerKeys, IssuerRules};
use super::keys::VerificationKeys;
use super::restrictions::Restrictions;
use claims::Claims;

/// What a token of the control plane must say to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRules {
    /// The exact `iss` value; the control plane writes `mcpgateway`.
    pub issuer: Box<str>,
    /// The exact `aud` value; the control plane writes `mcpgateway-api`.
    pub audience: Box<str>,
    /// `aud` is instead to be the address of the endpoint asked, which who has the request checks.
    pub audience_is_resource: bool,
    /// Seconds after `exp` during which a token is still accepted.
    pub leeway_s: u64,
    /// Longest accepted token.
    pub token_bytes_max: usize,
}

impl Default for TokenRules {
    fn default() -> Self {
        Self {
            issuer: "mcpgateway".into(),
            audience: "mcpgateway-api".into(),
            audience_is_resource: false,
            leeway_s: 60,
            token_bytes_max: 16 * 1024,
        }
    }
}

/// What the gateway takes from an accepted token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// `sub`: key of the user configuration and of session ownership.
    pub subject: Box<str>,
    /// `iss`.
    pub issuer: Box<str>,
    /// `exp`, without the leeway.
    pub expires_at_unix_s: u64,
    /// `jti`, by which it can be revoked.
    pub id: Option<Box<str>>,
    /// `aud`, every one.
    pub audiences: Box<[Box<str>]>,
    /// One of the audiences must be the address of the endpoint asked; not checked yet.
    pub must_name_resource: bool,
    /// What it is restricted to.
    pub restrictions: Restrictions,
}

/// Whose tokens are accepted, and how they are checked.
#[derive(Debug, Clone, Copy)]
pub struct Trust<'a> {
    /// Keys of the control plane.
    pub keys: &'a VerificationKeys,
    /// What its tokens must say; leeway and length hold for all tokens.
    pub rules: &'a TokenRules,
    /// The trusted issuers and their keys.
    pub issuers: &'a IssuerKeys,
}

/// Checks a token of the control plane completely and returns what the gateway needs of it.
///
/// # Errors
/// The first check that fails; the client's answer is the same for all of them.
pub fn verify(
    keys: &VerificationKeys,
    token: &[u8],
    now_unix_s: u64,
    rules: &TokenRules,
) -> Result<Verified, AuthFault> {
    let issuers = &IssuerKeys::default();
    let trust = Trust {
        keys,
        rules,
        issuers,
    };
    trust.verify(token, now_unix_s)
}

impl Trust<'_> {
    /// Checks a token completely and returns what the gateway needs of it, except that the endpoint
    /// asked is not known here ([`Verified::must_name_resource`]).
    ///
    /// # Errors
    /// The first check that fails.
    pub fn verify(&self, token: &[u8], now_unix_s: u64) -> Result<Verified, AuthFault> {
        if token.len() > self.rules.token_bytes_max {
            return Err(AuthFault::TooLong);
        }
        let token = std::str::from_utf8(token).map_err(|_| AuthFault::Malformed)?;
        let (message, signature) = token.rsplit_once('.').ok_or(AuthFault::Malformed)?;
        let (header, payload) = message.split_once('.').ok_or(AuthFault::Malformed)?;
        // RFC 7516: five parts are an encrypted token, which has no meaning here.
        if payload.contains('.') {
            return Err(AuthFault::Malformed);
        }
        let header = Header::read(header)?;
        let parts = Parts {
            header,
            message,
            payload,
            signature,
        };
        let verified = match self.issuer_of(payload) {
            Some(index) => self.of_issuer(index, &parts, now_unix_s),
            None => self.of_control_plane(&parts),
        }?;
        if verified
            .expires_at_unix_s
            .saturating_add(self.rules.leeway_s)
            < now_unix_s
        {
            return Err(AuthFault::Expired);
        }
        Ok(verified)
    }

    /// The trusted issuer a payload names. Nothing is believed by it: it chooses the keys.
    fn issuer_of(&self, payload: &str) -> Option<usize> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            iss: std::borrow::Cow<'a, str>,
        }
        if self.issuers.is_empty() {
            return None;
        }
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let named: Named<'_> = serde_json::from_slice(&payload).ok()?;
        self.issuers.find(&named.iss)
    }

    fn of_control_plane(&self, parts: &Parts<'_>) -> Result<Verified, AuthFault> {
        let rules = self.rules;
        let genuine = self
            .keys
            .has_signed(parts.header.algorithm, parts.message, parts.signature);
        if !genuine.ok_or(AuthFault::NoKey)? {
            return Err(AuthFault::BadSignature);
        }
        let payload = parts.payload()?;
        let claims = Claims::read(&payload).ok_or(AuthFault::ClaimsShape)?;
        if *claims.iss != *rules.issuer {
            return Err(AuthFault::WrongIssuer);
        }
        if !rules.audience_is_resource && *claims.aud != *rules.audience {
            return Err(AuthFault::WrongAudience);
        }
        Ok(Verified {
            must_name_resource: rules.audience_is_resource,
            ..claims.into_verified()
        })
    }

    fn of_issuer(
        &self,
        index: usize,
        parts: &Parts<'_>,
        now_unix_s: u64,
    ) -> Result<Verified, AuthFault> {
        let (rules, keys) = self.issuers.of(index).ok_or(AuthFault::NoKey)?;
        let algorithm = parts.header.algorithm;
        if !rules.algorithms.contains(&algorithm) {
            return Err(AuthFault::AlgorithmNotAllowed);
        }
        let keys = keys.ok_or(AuthFault::KeysMissing(index))?;
        let id = parts.header.key_id.as_deref();
        let genuine = keys.has_signed(id, algorithm, parts.message, parts.signature);
        if !genuine.ok_or(AuthFault::UnknownKey(index))? {
            return Err(AuthFault::BadSignature);
        }
        let payload = parts.payload()?;
        let claims = standard::Claims::read(&payload).ok_or(AuthFault::ClaimsShape)?;
        self.accept(rules, claims, now_unix_s)
    }

    fn accept(
        &self,
        rules: &IssuerRules,
        claims: standard::Claims,
        now_unix_s: u64,
    ) -> Result<Verified, AuthFault> {
        // The reader that chose the keys and the one that read the claims must have seen the same.
        if claims.issuer != rules.issuer {
            return Err(AuthFault::WrongIssuer);
        }
        if let Audience::Exact(wanted) = &rules.audience
            && !claims.audiences.contains(wanted)
        {
            return Err(AuthFault::WrongAudience);
        }
        // RFC 7519 section 4.1.5.
        let latest_start = now_unix_s.saturating_add(self.rules.leeway_s);
        if claims
            .not_before_unix_s
            .is_some_and(|start| start > latest_start)
        {
            return Err(AuthFault::NotYetValid);
        }
        Ok(Verified {
            subject: format!("{}{}", rules.subject_prefix, claims.subject).into(),
            issuer: claims.issuer,
            expires_at_unix_s: claims.expires_at_unix_s,
            id: claims.id,
            audiences: claims.audiences,
            must_name_resource: rules.audience == Audience::Resource,
            restrictions: claims.restrictions,
        })
    }
}

/// A token, taken apart.
struct Parts<'a> {
    header: Header,
    /// Header and payload, what is signed.
    message: &'a str,
    payload: &'a str,
    signature: &'a str,
}

impl Parts<'_> {
    fn payload(&self) -> Result<Vec<u8>, AuthFault> {
        let decoded = URL_SAFE_NO_PAD.decode(self.payload);
        decoded.map_err(|_| AuthFault::ClaimsShape)
    }
}

/// What decides something of a header.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    algorithm: SignatureAlgorithm,
    key_id: Option<String>,
}

/// RFC 7515 section 4.1; only the members that decide something.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    alg: std::borrow::Cow<'a, str>,
    #[serde(default, deserialize_with = "is_present")]
    crit: bool,
}

fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl Header {
    fn read(header: &str) -> Result<Self, AuthFault> {
        let json = URL_SAFE_NO_PAD
            .decode(header)
            .map_err(|_| AuthFault::Malformed)?;
        let written: Written<'_> =
            serde_json::from_slice(&json).map_err(|_| AuthFault::Malformed)?;
        if written.crit {
            return Err(AuthFault::CriticalExtension);
        }
        let algorithm =
            SignatureAlgorithm::from_name(&written.alg).ok_or(AuthFault::AlgorithmNotAllowed)?;
        // The control plane's reader gives every registered member its type (`kid` a string, ...).
        let typed: jsonwebtoken::Header =
            serde_json::from_slice(&json).map_err(|_| AuthFault::Malformed)?;
        Ok(Self {
            algorithm,
            key_id: typed.kid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(json: &str) -> Result<Header, AuthFault> {
        Header::read(&URL_SAFE_NO_PAD.encode(json))
    }

    #[test]
    fn header_faults_are_told_apart() {
        assert_eq!(
            header(r#"{"alg":"HS256","kid":"7","other":7}"#),
            Ok(Header {
                algorithm: SignatureAlgorithm::Hs256,
                key_id: Some("7".to_owned()),
            })
        );
        assert_eq!(
            header(r#"{"alg":"none"}"#),
            Err(AuthFault::AlgorithmNotAllowed)
        );
        let critical = r#"{"alg":"HS256","crit":["b64"],"b64":false}"#;
        assert_eq!(header(critical), Err(AuthFault::CriticalExtension));
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"alg":1}"#,
            r#"{"alg":"HS256","kid":7}"#,
            r#"{"alg":"HS256","alg":"HS256"}"#,
            "{} {}",
        ] {
            assert_eq!(header(bad), Err(AuthFault::Malformed), "{bad}");
        }
        assert_eq!(Header::read("not base64url!"), Err(AuthFault::Malformed));
    }
}
