//! Who is calling: bearer token in, [`Principal`] out.
//!
//! Owns the token contract of the ContextForge control plane (contextforge.md section 2) and that
//! of an OAuth resource server beside it (mcp.md 6): which algorithms, which keys, which claims,
//! which clock leeway. Verification takes the time as an argument and touches no socket. Nearly
//! every fault is one and the same answer to the client (401, empty body); the variants below exist
//! for metrics and logs. Tokens and keys never reach a message.

pub mod algorithm;
pub mod cache;
pub mod gate;
pub mod issuer;
pub mod issuers;
pub mod jwks;
pub mod jwt;
pub mod keys;
pub mod metadata;
pub mod mint;
pub mod principal;
mod public_key;
pub mod restrictions;
pub mod revocation;
pub mod scope;

pub use algorithm::SignatureAlgorithm;
pub use cache::TokenCache;
pub use issuer::{Audience, IssuerKeys, IssuerRules};
pub use jwks::KeySet;
pub use jwt::{TokenRules, Trust, Verified, verify};
pub use keys::{KeyFault, SigningKey, VerificationKeys, load_or_create_secret};
pub use metadata::ResourceMetadata;
pub use mint::{MintFault, MintRequest, mint};
pub use principal::{FingerprintKey, Principal, bearer};

/// Why a request carries no usable identity (contextforge.md section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AuthFault {
    /// No `Authorization` header.
    #[error("no authorization header")]
    MissingHeader,
    /// The header does not start with the exact bytes `Bearer `.
    #[error("authorization scheme is not Bearer")]
    WrongScheme,
    /// The token is longer than [`TokenRules::token_bytes_max`].
    #[error("token is too long")]
    TooLong,
    /// The token is not three base64url parts with a JSON header, or not UTF-8.
    #[error("token is malformed")]
    Malformed,
    /// The header asks for extensions by `crit`, none of which we know (RFC 7515 section 4.1.11).
    #[error("token asks for an unknown critical extension")]
    CriticalExtension,
    /// `alg` is none that is known, or none that the issuer may use.
    #[error("token algorithm is not allowed")]
    AlgorithmNotAllowed,
    /// `alg` belongs to a key family for which no key is configured.
    #[error("no key is configured for the token's algorithm")]
    NoKey,
    /// A trusted issuer, by its index, has no key for the token: a new one may be there.
    #[error("the issuer has no key for the token")]
    UnknownKey(usize),
    /// The keys of a trusted issuer, by its index, are not known.
    #[error("the keys of the token's issuer are not known")]
    KeysMissing(usize),
    /// The signature does not match.
    #[error("token signature does not match")]
    BadSignature,
    /// A required claim is missing or a claim has the wrong type.
    #[error("token claims have the wrong shape")]
    ClaimsShape,
    /// `iss` is not the configured issuer.
    #[error("token issuer is not accepted")]
    WrongIssuer,
    /// `aud` is not the configured audience.
    #[error("token audience is not accepted")]
    WrongAudience,
    /// `exp` lies further in the past than the leeway.
    #[error("token has expired")]
    Expired,
    /// `nbf` lies further in the future than the leeway.
    #[error("token is not valid yet")]
    NotYetValid,
    /// Its `jti` is on the list of revoked tokens.
    #[error("token was revoked")]
    Revoked,
}

impl AuthFault {
    /// A short fixed word for metric labels and log fields.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::MissingHeader => "missing_header",
            Self::WrongScheme => "wrong_scheme",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::CriticalExtension => "critical_extension",
            Self::AlgorithmNotAllowed => "algorithm_not_allowed",
            Self::NoKey => "no_key",
            Self::UnknownKey(_) => "unknown_key",
            Self::KeysMissing(_) => "keys_missing",
            Self::BadSignature => "bad_signature",
            Self::ClaimsShape => "claims_shape",
            Self::WrongIssuer => "wrong_issuer",
            Self::WrongAudience => "wrong_audience",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Revoked => "revoked",
        }
    }
}
