//! The bearer token of the bench: HS256, with the claims the gateway asks for (contextforge.md 2).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::json;

/// Seconds a token is good for: longer than any run.
const LIFETIME_S: u64 = 24 * 3600;

/// A token for `subject`, signed with `secret`.
pub fn mint(subject: &str, secret: &str, now_unix_s: u64) -> String {
    let header = json!({"alg": "HS256", "typ": "JWT"});
    let claims = json!({
        "sub": subject,
        "jti": format!("bench-{now_unix_s}"),
        "iss": "mcpgateway",
        "aud": "mcpgateway-api",
        "iat": now_unix_s,
        "exp": now_unix_s + LIFETIME_S,
        "user": {"email": "bench@example.com", "is_admin": false, "auth_provider": "api_token"},
    });
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let signed = format!(
        "{}.{}",
        encode(header.to_string().as_bytes()),
        encode(claims.to_string().as_bytes())
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = encode(hmac::sign(&key, signed.as_bytes()).as_ref());
    format!("{signed}.{signature}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_three_parts_and_a_signature_that_verifies() {
        let token = mint("alice", "secret", 1_000);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        hmac::verify(&key, signed.as_bytes(), &signature).unwrap();
        let claims = URL_SAFE_NO_PAD
            .decode(signed.split_once('.').unwrap().1)
            .unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["sub"], "alice");
        assert_eq!(claims["exp"], 1_000 + LIFETIME_S);
        assert!(claims["aud"].is_string() && claims["user"]["is_admin"].is_boolean());
    }
}
