//! Tokens: none is taken that the contract's own reader, `jsonwebtoken`, refuses.
//!
//! Input: a token as it is, or a header and a payload, a line each, which are then signed.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Validation};
use serde_json::value::RawValue;
use shardgate::auth::{TokenRules, VerificationKeys, verify};

use super::{Choices, Verdict};

const SECRET: &[u8] = b"known to the fuzz targets only";
/// The moment of every check.
const NOW_UNIX_S: u64 = 1_700_000_000;

type Claims = HashMap<String, Box<RawValue>>;

/// Verifies the token, and tokens that differ from it in one byte.
pub fn check(data: &[u8]) -> Verdict {
    let mut keys = VerificationKeys::default();
    keys.set_secret(SECRET).unwrap();
    let rules = TokenRules {
        token_bytes_max: 4096,
        ..TokenRules::default()
    };
    let token = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => signed(&data[..end], &data[end + 1..]),
        None => data.to_vec(),
    };
    let is_taken = |token: &[u8]| verify(&keys, token, NOW_UNIX_S, &rules);
    let mut changed = token.clone();
    if let Some(at) = (!token.is_empty()).then(|| Choices::of(data).below(token.len())) {
        changed[at] ^= 1 << Choices::of(&token).below(7);
        assert!(is_taken(&changed).is_err(), "a changed token");
    }
    let Ok(verified) = is_taken(&token) else {
        return Verdict::Refused;
    };
    let claims = reference(&token);
    let text = |name: &str| serde_json::from_str::<String>(claims[name].get()).unwrap();
    assert_eq!(*text("sub"), *verified.subject);
    assert_eq!(
        (&*text("iss"), &*text("aud")),
        (&*verified.issuer, "mcpgateway-api")
    );
    let expires_at: u64 = serde_json::from_str(claims["exp"].get()).unwrap();
    assert_eq!(expires_at, verified.expires_at_unix_s);
    assert!(expires_at.saturating_add(rules.leeway_s) >= NOW_UNIX_S);
    for name in ["jti", "user"] {
        assert!(claims.contains_key(name), "no {name}");
    }
    Verdict::Taken
}

/// A token of these parts, with the signature that its header asks for.
fn signed(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let names = |name: &str| {
        header
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    };
    let algorithm = match () {
        () if names("HS384") => Algorithm::HS384,
        () if names("HS512") => Algorithm::HS512,
        () => Algorithm::HS256,
    };
    let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
    let message = format!("{}.{}", encode(header), encode(payload));
    let key = EncodingKey::from_secret(SECRET);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, algorithm).unwrap();
    format!("{message}.{signature}").into_bytes()
}

fn reference(token: &[u8]) -> Claims {
    let token = std::str::from_utf8(token).expect("text");
    let header = jsonwebtoken::decode_header(token).expect("the reference reads the header");
    let mut validation = Validation::new(header.alg);
    validation.validate_exp = false;
    validation.set_issuer(&["mcpgateway"]);
    validation.set_audience(&["mcpgateway-api"]);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    let key = DecodingKey::from_secret(SECRET);
    jsonwebtoken::decode::<Claims>(token, &key, &validation)
        .expect("the reference takes the token")
        .claims
}
