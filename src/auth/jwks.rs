//! Key sets as issuers publish them (RFC 7517): a document in, the keys that can check tokens out.
//!
//! A key that is not for signatures, of another kind, too weak, or secret is left out and counted;
//! the others are used. Nothing of a token is looked at but `kid` and `alg`.

use std::fmt;

use serde::Deserialize;

use super::algorithm::{KeyFamily, SignatureAlgorithm};
use super::public_key::PublicKey;

/// A document is not read beyond this, whatever it says of its length.
pub const JWKS_BYTES_MAX: usize = 256 * 1024;
/// Keys taken of one document; the others are left out.
const KEYS_MAX: usize = 64;
/// Keys tried for a token that names none.
const TRIED_MAX: usize = 4;

/// Why a document is no key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwksFault {
    /// Longer than [`JWKS_BYTES_MAX`].
    #[error("the key set is longer than 256 KiB")]
    TooLong,
    /// Not JSON, or not an object with an array `keys`.
    #[error("the answer is not a JSON Web Key Set")]
    NotAKeySet,
}

/// The keys of one issuer at one time. Immutable.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<Key>,
    /// Keys of the document that are not used.
    left_out: usize,
    /// SHA-256 of the document.
    digest: [u8; 32],
}

struct Key {
    id: Option<Box<str>>,
    /// The one algorithm it may be used with, if it says so.
    algorithm: Option<SignatureAlgorithm>,
    key: PublicKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Key").field(&self.key).finish()
    }
}

impl KeySet {
    /// Reads a document.
    ///
    /// # Errors
    /// When it is no key set. One without a usable key is a key set.
    pub fn parse(document: &[u8]) -> Result<Self, JwksFault> {
        #[derive(Deserialize)]
        struct Document<'a> {
            #[serde(borrow)]
            keys: Vec<&'a serde_json::value::RawValue>,
        }
        if document.len() > JWKS_BYTES_MAX {
            return Err(JwksFault::TooLong);
        }
        let parsed: Document<'_> =
            serde_json::from_slice(document).map_err(|_| JwksFault::NotAKeySet)?;
        let mut digest = [0; 32];
        digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, document).as_ref());
        let all = parsed.keys.len();
        let keys = parsed.keys.iter().filter_map(|raw| Key::read(raw.get()));
        let keys: Vec<Key> = keys.take(KEYS_MAX).collect();
        Ok(Self {
            left_out: all - keys.len(),
            keys,
            digest,
        })
    }

    /// Number of keys that can check something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it checks nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Keys of the document that are not used.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Whether both come from the same bytes.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// Whether one of its keys has made `signature`; `None`: it has no key for this token. A token
    /// that names no key is checked with a few that fit, and has none here when none of them did.
    pub(super) fn has_signed(
        &self,
        id: Option<&str>,
        algorithm: SignatureAlgorithm,
        message: &str,
        signature: &str,
    ) -> Option<bool> {
        let fits = |key: &&Key| {
            key.key.family() == algorithm.family()
                && key.algorithm.is_none_or(|only| only == algorithm)
                && id.is_none_or(|id| key.id.as_deref() == Some(id))
        };
        let mut fitting = self.keys.iter().filter(fits).take(TRIED_MAX).peekable();
        fitting.peek()?;
        let is_genuine = fitting.any(|key| key.key.has_signed(algorithm, message, signature));
        (is_genuine || id.is_some()).then_some(is_genuine)
    }
}

/// RFC 7517 section 4, RFC 7518 section 6: the members that decide something.
#[derive(Deserialize)]
struct Written {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Key {
    fn read(json: &str) -> Option<Self> {
        let written: Written = serde_json::from_str(json).ok()?;
        if written.purpose.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let can_verify = |operations: &Vec<String>| operations.iter().any(|one| one == "verify");
        if !written.key_ops.as_ref().is_none_or(can_verify) {
            return None;
        }
        // `oct`, a shared secret, is none of these: who publishes it has none any more.
        let key = match (&*written.kty, written.crv.as_deref()) {
            ("RSA", _) => PublicKey::from_rsa_parts(&written.n?, &written.e?),
            ("EC", Some("P-256")) => {
                PublicKey::from_coordinates(KeyFamily::P256, &written.x?, Some(&written.y?))
            }
            ("EC", Some("P-384")) => {
                PublicKey::from_coordinates(KeyFamily::P384, &written.x?, Some(&written.y?))
            }
            ("OKP", Some("Ed25519")) => {
                PublicKey::from_coordinates(KeyFamily::Ed25519, &written.x?, None)
            }
            _ => return None,
        };
        let key = key.ok()?;
        let algorithm = match written.alg.as_deref() {
            None => None,
            Some(name) => {
                let known = SignatureAlgorithm::from_name(name)?;
                if known.family() != key.family() {
                    return None;
                }
                Some(known)
            }
        };
        Some(Self {
            id: written.kid.map(String::into_boxed_str),
            algorithm,
            key,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn zeros(bytes: usize) -> String {
        use base64::Engine as _;
        let mut number = vec![0x81; bytes];
        number[bytes - 1] = 1;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(number)
    }

    fn count(key: &serde_json::Value) -> (usize, usize) {
        let set = KeySet::parse(json!({"keys": [key]}).to_string().as_bytes()).unwrap();
        (set.len(), set.left_out())
    }

    #[test]
    fn keys_that_check_signatures_are_taken() {
        for key in [
            json!({"kty": "RSA", "n": zeros(256), "e": "AQAB"}),
            json!({"kty": "RSA", "n": zeros(512), "e": "AQAB", "use": "sig", "alg": "RS512"}),
            json!({"kty": "EC", "crv": "P-256", "x": zeros(32), "y": zeros(32)}),
            json!({"kty": "EC", "crv": "P-384", "x": zeros(48), "y": zeros(48), "alg": "ES384"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": zeros(32), "key_ops": ["verify"]}),
            json!({"kty": "RSA", "n": zeros(256), "e": "AQAB", "x5c": ["..."], "later": {"a": 1}}),
        ] {
            assert_eq!(count(&key), (1, 0), "{key}");
        }
    }

    #[test]
    fn other_keys_are_left_out_and_stop_nothing() {
        let sound = json!({"kty": "OKP", "crv": "Ed25519", "x": zeros(32)});
        for key in [
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
            json!({"kty": "RSA", "n": zeros(128), "e": "AQAB"}),
            json!({"kty": "RSA", "n": zeros(2048), "e": "AQAB"}),
            json!({"kty": "RSA", "n": zeros(256), "e": "AQAB", "use": "enc"}),
            json!({"kty": "RSA", "n": zeros(256), "e": "AQAB", "alg": "RSA-OAEP"}),
            json!({"kty": "RSA", "n": zeros(256), "e": "AQAB", "alg": "ES256"}),
            json!({"kty": "RSA", "n": zeros(256), "e": "AQAB", "alg": "HS256"}),
            json!({"kty": "RSA", "n": zeros(256), "e": "AQAB", "key_ops": ["encrypt"]}),
            json!({"kty": "RSA", "n": "??", "e": "AQAB"}),
            json!({"kty": "RSA", "e": "AQAB"}),
            json!({"kty": "EC", "crv": "P-521", "x": zeros(66), "y": zeros(66)}),
            json!({"kty": "EC", "crv": "P-256", "x": zeros(48), "y": zeros(48)}),
            json!({"kty": "EC", "crv": "P-256", "x": zeros(32)}),
            json!({"kty": "OKP", "crv": "Ed448", "x": zeros(57)}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": zeros(31)}),
            json!({"kty": 1}),
            json!("key"),
            json!(null),
        ] {
            assert_eq!(count(&key), (0, 1), "{key}");
            let both = json!({"keys": [key, sound]}).to_string();
            assert_eq!(KeySet::parse(both.as_bytes()).unwrap().len(), 1);
        }
        let many = vec![sound; KEYS_MAX + 3];
        let set = KeySet::parse(json!({"keys": many}).to_string().as_bytes()).unwrap();
        assert_eq!((set.len(), set.left_out()), (KEYS_MAX, 3));
    }

    #[test]
    fn what_is_no_key_set_is_refused() {
        for text in [
            "",
            "[]",
            "null",
            "{}",
            r#"{"keys":{}}"#,
            r#"{"keys":[]"#,
            "<html>",
        ] {
            let fault = KeySet::parse(text.as_bytes()).unwrap_err();
            assert_eq!(fault, JwksFault::NotAKeySet, "{text}");
        }
        let empty = KeySet::parse(br#"{"keys":[]}"#).unwrap();
        assert!(empty.is_empty());
        let long = vec![b' '; JWKS_BYTES_MAX + 1];
        assert_eq!(KeySet::parse(&long).unwrap_err(), JwksFault::TooLong);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Whatever an issuer serves, the reader ends with keys or a fault.
        #[test]
        fn no_document_panics(text in "[\\[\\]{}:,\"a-zA-Z0-9_ \\-]{0,120}") {
            let _ = KeySet::parse(text.as_bytes());
            let wrapped = format!(r#"{{"keys":[{{"kty":"RSA","n":"{text}","e":"{text}"}}]}}"#);
            let _ = KeySet::parse(wrapped.as_bytes());
        }
    }
}
