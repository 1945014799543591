//! Signature algorithms, and the kind of key each one is pinned to.
//!
//! An algorithm has one family and a key has one family, and they meet only when they are the same:
//! a token can choose neither to have its HMAC checked with a public key nor to have one curve's
//! signature checked with another's key (RFC 8725 section 3.1).

use jsonwebtoken::Algorithm;

/// The signature algorithms that are known; everything else is refused.
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
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519 (RFC 8037); Ed448 has the same name and is not known.
    EdDsa,
}

/// What a key is, and so which algorithms it checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyFamily {
    /// A shared secret.
    Hmac,
    /// RSA.
    Rsa,
    /// The curve P-256.
    P256,
    /// The curve P-384.
    P384,
    /// Ed25519.
    Ed25519,
}

impl SignatureAlgorithm {
    /// All of them, with the name a token header has for it (RFC 7518 section 3.1, RFC 8037).
    pub const ALL: [(&'static str, Self); 9] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("HS256", Self::Hs256),
        ("HS384", Self::Hs384),
        ("HS512", Self::Hs512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// Reads the `alg` value of a token header; case-sensitive.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| *algorithm)
    }

    /// Says whether this is one of the HMAC algorithms, which use the shared secret.
    #[must_use]
    pub const fn is_hmac(self) -> bool {
        matches!(self.family(), KeyFamily::Hmac)
    }

    /// The one kind of key it is checked with.
    #[must_use]
    pub const fn family(self) -> KeyFamily {
        match self {
            Self::Rs256 | Self::Rs384 | Self::Rs512 => KeyFamily::Rsa,
            Self::Hs256 | Self::Hs384 | Self::Hs512 => KeyFamily::Hmac,
            Self::Es256 => KeyFamily::P256,
            Self::Es384 => KeyFamily::P384,
            Self::EdDsa => KeyFamily::Ed25519,
        }
    }

    pub(super) const fn to_library(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Rs384 => Algorithm::RS384,
            Self::Rs512 => Algorithm::RS512,
            Self::Hs256 => Algorithm::HS256,
            Self::Hs384 => Algorithm::HS384,
            Self::Hs512 => Algorithm::HS512,
            Self::Es256 => Algorithm::ES256,
            Self::Es384 => Algorithm::ES384,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_known_algorithms_have_a_name() {
        for (name, algorithm) in SignatureAlgorithm::ALL {
            assert_eq!(SignatureAlgorithm::from_name(name), Some(algorithm));
            assert_eq!(algorithm.is_hmac(), name.starts_with("HS"));
            assert_eq!(format!("{:?}", algorithm.to_library()), name);
        }
        for name in [
            "none", "None", "", "hs256", "HS256 ", "PS256", "ES256K", "ES512", "eddsa", "Ed25519",
        ] {
            assert_eq!(SignatureAlgorithm::from_name(name), None, "{name}");
        }
    }
}
