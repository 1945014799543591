//! Bearer tokens of virtual users: read from a file, or minted from a key.
//!
//! The claims are those a ContextForge control plane gives its tokens (contextforge.md 2), so
//! gateways that take those take these.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{hmac, rand::SystemRandom, signature};
use serde_json::json;

/// Seconds a minted token is good for: longer than any run.
const LIFETIME_S: u64 = 24 * 3600;
/// Users with a token of their own.
pub const USERS_MAX: u32 = 1_000_000;

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    /// The file cannot be read.
    #[error("{}: {fault}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What happened.
        fault: std::io::Error,
    },
    /// There is nothing in it.
    #[error("{}: it is empty", .0.display())]
    Empty(PathBuf),
    /// A key that is no RSA key.
    #[error("{}: no RSA private key in PEM (PKCS #8 or PKCS #1)", .0.display())]
    Key(PathBuf),
    /// The key does not sign.
    #[error("the key does not sign")]
    Signing,
}

/// The tokens of a file, one a line; empty lines and lines that begin with # are passed over.
pub fn read_tokens(path: &Path) -> Result<Vec<String>, TokenFault> {
    let text = read(path)?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim);
    let tokens: Vec<String> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    if tokens.is_empty() {
        return Err(TokenFault::Empty(path.to_owned()));
    }
    Ok(tokens)
}

/// The secret in a file, without its last newline.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, TokenFault> {
    let bytes = read(path)?;
    let secret = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    if secret.is_empty() {
        return Err(TokenFault::Empty(path.to_owned()));
    }
    Ok(secret.to_vec())
}

/// What minted tokens say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// `sub`; `{n}` is the user's number, from 1.
    pub subject: String,
    /// `iss`.
    pub issuer: String,
    /// `aud`.
    pub audience: String,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            subject: "user-{n}".to_owned(),
            issuer: "mcpgateway".to_owned(),
            audience: "mcpgateway-api".to_owned(),
        }
    }
}

/// A key to sign with: a secret (HS256) or an RSA key (RS256).
pub struct Signer(Kind);

enum Kind {
    Secret(hmac::Key),
    Rsa(Box<signature::RsaKeyPair>),
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Kind::Secret(_) => "Signer(HS256)",
            Kind::Rsa(_) => "Signer(RS256)",
        })
    }
}

impl Signer {
    /// A secret's bytes.
    pub fn secret(bytes: &[u8]) -> Self {
        Self(Kind::Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// A file with an RSA private key in PEM, or else with a secret (without its last newline).
    pub fn read(path: &Path) -> Result<Self, TokenFault> {
        let bytes = read(path)?;
        let text = String::from_utf8_lossy(&bytes);
        if !text.contains("-----BEGIN") {
            return Ok(Self::secret(&read_secret(path)?));
        }
        let key = pem(&text, "PRIVATE KEY")
            .and_then(|der| signature::RsaKeyPair::from_pkcs8(&der).ok())
            .or_else(|| {
                let der = pem(&text, "RSA PRIVATE KEY")?;
                signature::RsaKeyPair::from_der(&der).ok()
            });
        let key = key.ok_or_else(|| TokenFault::Key(path.to_owned()))?;
        Ok(Self(Kind::Rsa(Box::new(key))))
    }

    /// A token for user `number`.
    pub fn mint(
        &self,
        claims: &Claims,
        number: u32,
        now_unix_s: u64,
    ) -> Result<String, TokenFault> {
        let algorithm = match &self.0 {
            Kind::Secret(_) => "HS256",
            Kind::Rsa(_) => "RS256",
        };
        let subject = claims.subject.replace("{n}", &number.to_string());
        let header = json!({"alg": algorithm, "typ": "JWT"});
        let payload = json!({
            "sub": subject,
            "jti": format!("loadgen-{now_unix_s}-{number}"),
            "iss": claims.issuer,
            "aud": claims.audience,
            "iat": now_unix_s,
            "exp": now_unix_s + LIFETIME_S,
            "user": {"email": subject, "is_admin": false, "auth_provider": "api_token"},
        });
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(payload.to_string().as_bytes())
        );
        let signature = match &self.0 {
            Kind::Secret(key) => hmac::sign(key, signed.as_bytes()).as_ref().to_vec(),
            Kind::Rsa(key) => {
                let mut bytes = vec![0; key.public().modulus_len()];
                key.sign(
                    &signature::RSA_PKCS1_SHA256,
                    &SystemRandom::new(),
                    signed.as_bytes(),
                    &mut bytes,
                )
                .map_err(|_| TokenFault::Signing)?;
                bytes
            }
        };
        Ok(format!("{signed}.{}", encode(&signature)))
    }

    /// Tokens for users 1 to `count`.
    pub fn mint_all(
        &self,
        claims: &Claims,
        count: u32,
        now_unix_s: u64,
    ) -> Result<Vec<String>, TokenFault> {
        (1..=count.clamp(1, USERS_MAX))
            .map(|number| self.mint(claims, number, now_unix_s))
            .collect()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TokenFault> {
    fs::read(path).map_err(|fault| TokenFault::Read {
        path: path.to_owned(),
        fault,
    })
}

/// The contents of the first block of this name.
fn pem(text: &str, name: &str) -> Option<Vec<u8>> {
    let (start, end) = (
        format!("-----BEGIN {name}-----"),
        format!("-----END {name}-----"),
    );
    let inside = text.split_once(&start)?.1.split_once(&end)?.0;
    let packed: String = inside.split_whitespace().collect();
    STANDARD.decode(packed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn part(token: &str, index: usize) -> Vec<u8> {
        let part = token.split('.').nth(index).unwrap();
        URL_SAFE_NO_PAD.decode(part).unwrap()
    }

    #[test]
    fn every_user_has_a_token_of_its_own_that_verifies() {
        let tokens = Signer::secret(b"secret").mint_all(&Claims::default(), 3, 1000);
        let tokens = tokens.unwrap();
        for (index, token) in tokens.iter().enumerate() {
            let claims: Value = serde_json::from_slice(&part(token, 1)).unwrap();
            assert_eq!(claims["sub"], format!("user-{}", index + 1));
            assert_eq!(claims["exp"], 1000 + LIFETIME_S);
            let (signed, _) = token.rsplit_once('.').unwrap();
            let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
            hmac::verify(&key, signed.as_bytes(), &part(token, 2)).unwrap();
        }
        assert_eq!(tokens.len(), 3);
    }

    #[test]
    fn files_are_read_and_faults_name_them() {
        let folder = std::env::temp_dir().join(format!("loadgen-tokens-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let tokens = read_tokens(&file("tokens", "a\n\n# no token\n b \n")).unwrap();
        assert_eq!(tokens, ["a", "b"]);
        let secret = Signer::read(&file("secret", "abc\n")).unwrap();
        let token = secret.mint(&Claims::default(), 1, 1000).unwrap();
        let same = Signer::secret(b"abc").mint(&Claims::default(), 1, 1000);
        assert_eq!(token, same.unwrap());
        let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for fault in [
            read_tokens(&folder.join("none")).unwrap_err(),
            read_tokens(&file("empty", "# nothing\n")).unwrap_err(),
            Signer::read(&file("no-secret", "\n")).unwrap_err(),
            Signer::read(&file("broken", broken)).unwrap_err(),
        ] {
            let text = fault.to_string();
            assert!(text.contains("loadgen-tokens"), "{text}");
            assert!(!text.contains("AAAA"));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
