//! Connect tokens (connection-gateway.md 1): what a client binds with.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::Value;

/// How long a token is good for, milliseconds: longer than any run.
const LIFETIME_MS: u64 = 24 * 3600 * 1000;
/// `{"alg":"HS256","typ":"CGT"}`.
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkNHVCJ9";
/// The kind of consumer that binds.
pub(super) const CONSUMER: &str = "plugin-debug";

/// A token for one client, whose subject and source nobody else has.
pub(super) fn mint(secret: &[u8], subject: &str, source: &str, now_ms: u64) -> String {
    let claims = format!(
        concat!(
            r#"{{"consumerType":"{}","subject":{},"sessionScope":{{"userId":{},"source":{}}},"#,
            r#""transport":"websocket","capabilities":["gateway.bind","invoke"],"#,
            r#""expiresAt":{},"issuedAt":{}}}"#
        ),
        CONSUMER,
        Value::from(subject),
        Value::from(subject),
        Value::from(source),
        now_ms.saturating_add(LIFETIME_MS),
        now_ms,
    );
    sign(secret, &claims)
}

fn sign(secret: &[u8], claims: &str) -> String {
    let signed = format!("{HEADER}.{}", URL_SAFE_NO_PAD.encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract's test vector.
    #[test]
    fn a_token_is_signed_as_the_original_signs_it() {
        let claims = r#"{"consumerType":"plugin-debug","subject":"tmb_1","sessionScope":{"userId":"tmb_1","source":"debug:tmbId:tmb_1"},"transport":"websocket","capabilities":["gateway.bind","invoke"],"expiresAt":1760000300000,"issuedAt":1760000000000}"#;
        let token = sign(b"secret", claims);
        assert!(token.starts_with("eyJhbGciOiJIUzI1NiIsInR5cCI6IkNHVCJ9.eyJjb25zdW1lclR5cGUi"));
        assert!(token.ends_with(".xl4x1ZjrTCU8Ei2YUQmd_XZOk1fr-FLJ6KM5YFCMfs0"));
    }

    #[test]
    fn claims_are_json_of_the_client() {
        let token = mint(b"s", "a\"b", "c", 7);
        let payload = token.split('.').nth(1).unwrap();
        let payload = URL_SAFE_NO_PAD.decode(payload).unwrap();
        let claims: Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!(claims["subject"], "a\"b");
        assert_eq!(claims["sessionScope"]["source"], "c");
        assert_eq!(claims["expiresAt"], 7 + LIFETIME_MS);
    }
}
