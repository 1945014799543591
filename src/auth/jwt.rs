//! Token verification: compact JWS in, subject and issuer out (contextforge.md section 2).
//!
//! Order of checks: length, UTF-8, header, algorithm and its key, signature, claims. The claims are
//! read only after the signature holds. Time is an argument. `kid`, `nbf`, `jti`, teams and scopes
//! decide nothing here, but their types are checked because the control plane's reader does so and
//! a token refused there must not pass here.

mod claims;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use super::AuthFault;
use super::keys::VerificationKeys;
use claims::Claims;

/// What a token must say to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRules {
    /// The exact `iss` value; the control plane writes `mcpgateway`.
    pub issuer: Box<str>,
    /// The exact `aud` value; the control plane writes `mcpgateway-api`.
    pub audience: Box<str>,
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
            leeway_s: 60,
            token_bytes_max: 16 * 1024,
        }
    }
}

/// The signature algorithms of the contract; everything else is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
}

impl SignatureAlgorithm {
    /// Reads the `alg` value of a token header (RFC 7518 section 3.1; case-sensitive).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "HS256" => Self::Hs256,
            "HS384" => Self::Hs384,
            "HS512" => Self::Hs512,
            _ => return None,
        })
    }

    /// Says whether this is one of the HMAC algorithms, which use the shared secret.
    #[must_use]
    pub const fn is_hmac(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }

    pub(super) const fn to_library(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Rs384 => Algorithm::RS384,
            Self::Rs512 => Algorithm::RS512,
            Self::Hs256 => Algorithm::HS256,
            Self::Hs384 => Algorithm::HS384,
            Self::Hs512 => Algorithm::HS512,
        }
    }
}

/// What the gateway takes from an accepted token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// `sub`: key of the user configuration and of session ownership.
    pub subject: Box<str>,
    /// `iss`.
    pub issuer: Box<str>,
    /// `exp`, without the leeway.
    pub expires_at_unix_s: u64,
}

/// Checks a token completely and returns what the gateway needs of it.
///
/// # Errors
/// The first check that fails; the client's answer is the same for all of them.
pub fn verify(
    keys: &VerificationKeys,
    token: &[u8],
    now_unix_s: u64,
    rules: &TokenRules,
) -> Result<Verified, AuthFault> {
    if token.len() > rules.token_bytes_max {
        return Err(AuthFault::TooLong);
    }
    let token = std::str::from_utf8(token).map_err(|_| AuthFault::Malformed)?;
    let (message, signature) = token.rsplit_once('.').ok_or(AuthFault::Malformed)?;
    let (header, payload) = message.split_once('.').ok_or(AuthFault::Malformed)?;
    // RFC 7516: five parts are an encrypted token, which has no meaning here.
    if payload.contains('.') {
        return Err(AuthFault::Malformed);
    }
    let algorithm = read_algorithm(header)?;
    let key = keys.for_algorithm(algorithm).ok_or(AuthFault::NoKey)?;
    let is_genuine =
        jsonwebtoken::crypto::verify(signature, message.as_bytes(), key, algorithm.to_library());
    if !is_genuine.is_ok_and(|genuine| genuine) {
        return Err(AuthFault::BadSignature);
    }
    let payload = URL_SAFE_NO_PAD
        .decode(payload)
        .map_err(|_| AuthFault::ClaimsShape)?;
    let claims = Claims::read(&payload).ok_or(AuthFault::ClaimsShape)?;
    if *claims.iss != *rules.issuer {
        return Err(AuthFault::WrongIssuer);
    }
    if *claims.aud != *rules.audience {
        return Err(AuthFault::WrongAudience);
    }
    if claims.exp.saturating_add(rules.leeway_s) < now_unix_s {
        return Err(AuthFault::Expired);
    }
    Ok(Verified {
        subject: claims.sub.into(),
        issuer: claims.iss.into(),
        expires_at_unix_s: claims.exp,
    })
}

/// RFC 7515 section 4.1; only the two members that decide something.
#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    alg: std::borrow::Cow<'a, str>,
    #[serde(default, deserialize_with = "is_present")]
    crit: bool,
}

fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

fn read_algorithm(header: &str) -> Result<SignatureAlgorithm, AuthFault> {
    let json = URL_SAFE_NO_PAD
        .decode(header)
        .map_err(|_| AuthFault::Malformed)?;
    let header: Header<'_> = serde_json::from_slice(&json).map_err(|_| AuthFault::Malformed)?;
    if header.crit {
        return Err(AuthFault::CriticalExtension);
    }
    let algorithm =
        SignatureAlgorithm::from_name(&header.alg).ok_or(AuthFault::AlgorithmNotAllowed)?;
    // The control plane's reader gives every registered member its type (`kid` a string, ...).
    serde_json::from_slice::<jsonwebtoken::Header>(&json).map_err(|_| AuthFault::Malformed)?;
    Ok(algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(json: &str) -> Result<SignatureAlgorithm, AuthFault> {
        read_algorithm(&URL_SAFE_NO_PAD.encode(json))
    }

    #[test]
    fn only_the_six_algorithms_of_the_contract_have_a_name() {
        for name in ["RS256", "RS384", "RS512", "HS256", "HS384", "HS512"] {
            let algorithm = SignatureAlgorithm::from_name(name).unwrap();
            assert_eq!(algorithm.is_hmac(), name.starts_with("HS"));
            assert_eq!(format!("{:?}", algorithm.to_library()), name);
        }
        for name in [
            "none", "None", "", "hs256", "HS256 ", "PS256", "ES256", "ES384", "EdDSA",
        ] {
            assert_eq!(SignatureAlgorithm::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn header_faults_are_told_apart() {
        assert_eq!(
            header(r#"{"alg":"HS256","kid":"7","other":7}"#),
            Ok(SignatureAlgorithm::Hs256)
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
        assert_eq!(read_algorithm("not base64url!"), Err(AuthFault::Malformed));
    }
}
