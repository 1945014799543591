//! Tokens for trying the gateway out: `shardgate token mint` and the bootstrap helper.
//!
//! The claims are those of ContextForge's own bootstrap token (contextforge.md section 2), so a
//! token minted here is also accepted by its data plane, and the other way round.

use jsonwebtoken::Header;
use serde::Serialize;

use super::algorithm::SignatureAlgorithm;
use super::keys::{SigningKey, random_hex};

/// What the minted token shall say.
#[derive(Debug, Clone)]
pub struct MintRequest<'a> {
    /// `sub`: the key of the user configuration.
    pub subject: &'a str,
    /// `user.email`.
    pub email: &'a str,
    /// Seconds from now until `exp`.
    pub lifetime_s: u64,
    /// `alg`; its family must be that of the key.
    pub algorithm: SignatureAlgorithm,
    /// The key to sign with.
    pub key: &'a SigningKey,
    /// `kid` of the header; nobody reads it.
    pub key_id: Option<&'a str>,
    /// `iss`.
    pub issuer: &'a str,
    /// `aud`.
    pub audience: &'a str,
}

impl<'a> MintRequest<'a> {
    /// The bootstrap token of the contract: one hour, `kid` = `test`, the control plane's names.
    #[must_use]
    pub fn bootstrap(
        subject: &'a str,
        email: &'a str,
        algorithm: SignatureAlgorithm,
        key: &'a SigningKey,
    ) -> Self {
        Self {
            subject,
            email,
            lifetime_s: 3600,
            algorithm,
            key,
            key_id: Some("test"),
            issuer: "mcpgateway",
            audience: "mcpgateway-api",
        }
    }
}

/// Why a token cannot be minted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MintFault {
    /// An algorithm with a key of another kind.
    #[error("the algorithm does not belong to the kind of key given")]
    KeyFamily,
    /// `exp` would not fit into 64 bits.
    #[error("the lifetime is too long")]
    Lifetime,
    /// The system gave no random bytes for `jti`.
    #[error("the system gives no random bytes")]
    Random,
    /// The key cannot sign, for example an RSA key below 2048 bits.
    #[error("the key cannot sign")]
    Signing,
}

#[derive(Serialize)]
struct MintedClaims<'a> {
    sub: &'a str,
    jti: &'a str,
    iss: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
    token_use: &'a str,
    user: MintedUser<'a>,
    teams: [&'a str; 1],
    scopes: MintedScopes<'a>,
}

#[derive(Serialize)]
struct MintedUser<'a> {
    email: &'a str,
    is_admin: bool,
    auth_provider: &'a str,
}

#[derive(Serialize)]
struct MintedScopes<'a> {
    server_id: &'a str,
    permissions: [&'a str; 2],
    ip_restrictions: [&'a str; 1],
    time_restrictions: Option<()>,
}

/// Signs a token that [`verify`](super::verify) accepts from now until its `exp`.
///
/// # Errors
/// When key and algorithm do not fit, or the key cannot sign.
pub fn mint(request: &MintRequest<'_>, now_unix_s: u64) -> Result<String, MintFault> {
    if request.key.family != request.algorithm.family() {
        return Err(MintFault::KeyFamily);
    }
    let exp = now_unix_s
        .checked_add(request.lifetime_s)
        .ok_or(MintFault::Lifetime)?;
    let jti = random_hex::<16>().map_err(|_| MintFault::Random)?;
    let claims = MintedClaims {
        sub: request.subject,
        jti: &jti,
        iss: request.issuer,
        aud: request.audience,
        iat: now_unix_s,
        exp,
        token_use: "api",
        user: MintedUser {
            email: request.email,
            is_admin: true,
            auth_provider: "api_token",
        },
        teams: ["team_awesome"],
        scopes: MintedScopes {
            server_id: "my_id",
            permissions: ["tools.read", "servers.use"],
            ip_restrictions: ["192.169.1.0/24"],
            time_restrictions: None,
        },
    };
    let mut header = Header::new(request.algorithm.to_library());
    header.kid = request.key_id.map(str::to_owned);
    jsonwebtoken::encode(&header, &claims, &request.key.key).map_err(|_| MintFault::Signing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{TokenRules, VerificationKeys, verify};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    #[test]
    fn a_minted_token_is_accepted() {
        let key = SigningKey::from_secret(b"a secret of some length").unwrap();
        let mut keys = VerificationKeys::default();
        keys.set_secret(b"a secret of some length").unwrap();
        for algorithm in [
            SignatureAlgorithm::Hs256,
            SignatureAlgorithm::Hs384,
            SignatureAlgorithm::Hs512,
        ] {
            let request = MintRequest::bootstrap("alice", "alice@example.com", algorithm, &key);
            let token = mint(&request, 1_000).unwrap();
            let verified = verify(&keys, token.as_bytes(), 1_000, &TokenRules::default()).unwrap();
            assert_eq!(&*verified.subject, "alice");
            assert_eq!(verified.expires_at_unix_s, 4_600);
        }
    }

    #[test]
    fn the_shape_is_that_of_the_bootstrap_token() {
        let key = SigningKey::from_secret(b"k").unwrap();
        let request = MintRequest::bootstrap("s", "e", SignatureAlgorithm::Hs256, &key);
        let token = mint(&request, 10).unwrap();
        let parts: Vec<serde_json::Value> = token
            .split('.')
            .take(2)
            .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
            .collect();
        assert_eq!(
            parts[0],
            serde_json::json!({"typ": "JWT", "alg": "HS256", "kid": "test"})
        );
        let mut claims = parts[1].clone();
        let jti = claims.as_object_mut().unwrap().remove("jti").unwrap();
        assert_eq!(jti.as_str().unwrap().len(), 32);
        let expected = serde_json::json!({
            "sub": "s", "iss": "mcpgateway", "aud": "mcpgateway-api", "iat": 10, "exp": 3610,
            "token_use": "api",
            "user": {"email": "e", "is_admin": true, "auth_provider": "api_token"},
            "teams": ["team_awesome"],
            "scopes": {
                "server_id": "my_id",
                "permissions": ["tools.read", "servers.use"],
                "ip_restrictions": ["192.169.1.0/24"],
                "time_restrictions": null,
            },
        });
        assert_eq!(claims, expected);
        assert_ne!(
            mint(&request, 10).unwrap(),
            token,
            "every token has its own jti"
        );
    }

    #[test]
    fn a_key_of_the_other_family_and_an_endless_life_are_refused() {
        let key = SigningKey::from_secret(b"k").unwrap();
        let mut request = MintRequest::bootstrap("s", "e", SignatureAlgorithm::Rs256, &key);
        assert_eq!(mint(&request, 0), Err(MintFault::KeyFamily));
        request.algorithm = SignatureAlgorithm::Hs256;
        request.lifetime_s = u64::MAX;
        assert_eq!(mint(&request, 1), Err(MintFault::Lifetime));
    }
}
