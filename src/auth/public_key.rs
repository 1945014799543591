//! Public keys that check signatures: RSA, the curves P-256 and P-384, Ed25519.
//!
//! A key knows its family, and checks nothing that is not of it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;

use super::algorithm::{KeyFamily, SignatureAlgorithm};

/// Shorter RSA keys are guessed too easily (RFC 7518 section 3.3).
const RSA_BITS_MIN: usize = 2048;
/// What the verifier takes at the most; a longer key would refuse every token.
const RSA_BITS_MAX: usize = 8192;

/// `SubjectPublicKeyInfo` up to the key itself, which is the rest (RFC 5480, RFC 8410).
const P256_PREFIX: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const P384_PREFIX: &[u8] = &[
    0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b,
    0x81, 0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
];
const ED25519_PREFIX: &[u8] = &[
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// Why a public key is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Not a key of a kind that is known.
    Kind,
    /// RSA with too few bits.
    Short,
    /// RSA with more bits than are worth the time.
    Long,
}

/// One public key.
#[derive(Clone)]
pub(super) struct PublicKey {
    family: KeyFamily,
    key: DecodingKey,
}

impl PublicKey {
    /// A key from the block of a PEM document: its label and what is in it.
    pub(super) fn from_pem(pem: &[u8], label: &str) -> Result<Self, Unfit> {
        let der = body(pem).ok_or(Unfit::Kind)?;
        for (prefix, family, bytes) in [
            (P256_PREFIX, KeyFamily::P256, 65),
            (P384_PREFIX, KeyFamily::P384, 97),
            (ED25519_PREFIX, KeyFamily::Ed25519, 32),
        ] {
            if label == "PUBLIC KEY"
                && let Some(point) = der.strip_prefix(prefix)
                && point.len() == bytes
            {
                return Self::from_point(family, point);
            }
        }
        let key = DecodingKey::from_rsa_pem(pem).map_err(|_| Unfit::Kind)?;
        // ring refuses short keys only when it verifies, which would be a 401 for every request.
        // A 2048-bit modulus alone has 256 bytes; a whole 1024-bit key has 162.
        match der.len() * 8 {
            bits if bits < RSA_BITS_MIN => Err(Unfit::Short),
            // The key's wrapping has less than 64 bytes.
            bits if bits > RSA_BITS_MAX + 64 * 8 => Err(Unfit::Long),
            _ => Ok(Self {
                family: KeyFamily::Rsa,
                key,
            }),
        }
    }

    /// An RSA key from its modulus and exponent, base64url (RFC 7518 section 6.3.1).
    pub(super) fn from_rsa_parts(modulus: &str, exponent: &str) -> Result<Self, Unfit> {
        let number = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| Unfit::Kind);
        let (modulus, exponent) = (number(modulus)?, number(exponent)?);
        // Some writers put zeros in front.
        let start = modulus.iter().position(|byte| *byte != 0);
        let modulus = modulus.get(start.unwrap_or(0)..).unwrap_or_default();
        match modulus.len() * 8 {
            bits if bits < RSA_BITS_MIN => Err(Unfit::Short),
            bits if bits > RSA_BITS_MAX => Err(Unfit::Long),
            _ => Ok(Self {
                family: KeyFamily::Rsa,
                key: DecodingKey::from_rsa_raw_components(modulus, &exponent),
            }),
        }
    }

    /// A key on a curve, from its coordinates, base64url: two of P-256 and P-384, one of Ed25519
    /// (RFC 7518 section 6.2.1, RFC 8037 section 2).
    pub(super) fn from_coordinates(
        family: KeyFamily,
        x: &str,
        y: Option<&str>,
    ) -> Result<Self, Unfit> {
        let number = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| Unfit::Kind);
        let mut point = Vec::with_capacity(97);
        let bytes = match family {
            KeyFamily::P256 => 32,
            KeyFamily::P384 => 48,
            KeyFamily::Ed25519 => 32,
            KeyFamily::Hmac | KeyFamily::Rsa => return Err(Unfit::Kind),
        };
        if family != KeyFamily::Ed25519 {
            // SEC 1 section 2.3.3: not compressed.
            point.push(4);
        }
        for coordinate in [Some(x), y].into_iter().flatten() {
            let coordinate = number(coordinate)?;
            if coordinate.len() != bytes {
                return Err(Unfit::Kind);
            }
            point.extend_from_slice(&coordinate);
        }
        let wanted = if family == KeyFamily::Ed25519 {
            bytes
        } else {
            1 + 2 * bytes
        };
        if point.len() != wanted {
            return Err(Unfit::Kind);
        }
        Self::from_point(family, &point)
    }

    fn from_point(family: KeyFamily, point: &[u8]) -> Result<Self, Unfit> {
        let key = match family {
            KeyFamily::P256 | KeyFamily::P384 if point.first() == Some(&4) => {
                DecodingKey::from_ec_der(point)
            }
            KeyFamily::Ed25519 => DecodingKey::from_ed_der(point),
            _ => return Err(Unfit::Kind),
        };
        Ok(Self { family, key })
    }

    /// What it is.
    pub(super) const fn family(&self) -> KeyFamily {
        self.family
    }

    /// Whether `signature`, base64url, is one of `message` by this key. False for an algorithm of
    /// another family.
    pub(super) fn has_signed(
        &self,
        algorithm: SignatureAlgorithm,
        message: &str,
        signature: &str,
    ) -> bool {
        self.family == algorithm.family() && holds(&self.key, algorithm, message, signature)
    }
}

/// Checks a signature with a key whose family is the algorithm's.
pub(super) fn holds(
    key: &DecodingKey,
    algorithm: SignatureAlgorithm,
    message: &str,
    signature: &str,
) -> bool {
    let algorithm = algorithm.to_library();
    let is_genuine = jsonwebtoken::crypto::verify(signature, message.as_bytes(), key, algorithm);
    is_genuine.is_ok_and(|genuine| genuine)
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("PublicKey")
            .field(&self.family)
            .finish()
    }
}

/// What the first block of a PEM document decodes to (RFC 7468).
fn body(pem: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(pem).ok()?;
    let body: String = text
        .split("-----")
        .nth(2)?
        .split_ascii_whitespace()
        .collect();
    STANDARD.decode(body).ok()
}
