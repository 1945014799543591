//! The token contract, row by row (contextforge.md section 2), through the public interface.
//!
//! The keys below were made for these tests and guard nothing.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "jwt/families.rs"]
mod families;

use std::path::Path;

use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};
use shardgate::auth::{
    AuthFault, KeyFault, MintFault, MintRequest, SignatureAlgorithm, SigningKey, TokenRules,
    VerificationKeys, Verified, bearer, mint, verify,
};

const SECRET: &[u8] = b"my-test-key";
const NOW: u64 = 1_500;

const PRIVATE_PEM: &str = "\
-----BEGIN PRIVATE KEY-----
MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIBAQDbz9Qzl9xvIFQf
f1jqP1POeFkabr814Dm0gqJxnBsxviWmfNmRJUrAzJpvgBShUthiPw74LErdMsYw
+rWCpJII7Jjwp0jdTpRmbD9VfxJoPfc34uE0q2otIDriw43bCqg0kxzRcI4GB8Xm
ur6PdxAYZjviKW99KMl4I0CktFm/YTEpT8o3aJMSQndA6ogDjAHcdj/qA8s4z0CC
+cFdRlmrph4JcaPqyeLbYyipKtgATMjabkzikWMEPTaljbnZF0T9PMTVzy8kIaNi
sSi2WzcPQEVpXCjaWnb6VFuUqL5RgOFrfNduicPaaQXPX4zbKPazv9PcDQfVu47i
rwcqY167AgMBAAECggEABTBLtwgPqQPfWHr+E1F5XfdTSx9wHgpz8kHfKcVgkvUF
GH/79sQllpV908H3OrOk7fTFGrCY9826Be/1FudhlxpWpd+dBbRUJnLJr+/29ET6
L/SIEmE1eWk4Wp/5GkGPJOaQGJWKlLPcRQ0FcIeD9r97DGSkABVVZCOY5Appz+2l
M2Znw4e2DB7Ln3F3Se6/O/fKy1q/qLlQND42oklaN1DhNvEA/VN0cnXvxS4t5YXj
G5FDuyIL5Y3u2w2Trn8fzgn/o41tURRUSezNYRGmjR8Zat6f42vpfbQjzZcJbE6W
Kqb7PB1/87Ge7byas+1faU0sh+uPGHk4CptcYKiGYQKBgQDulcS4w2se6bEvhzLS
Pc64jn2wZQKsyk9AI5YLPcBujYZ99qpqokzUWmnKZ7MBdHW7cNv6mcNUkNvK9e5g
7tHpdqIxlEi4GcvFZXFLSDK1+glcGY2VBzE3mVqdV/kIMTAdqhhAx90w6HTeyTHL
uKOinSwYcSpDOXbycQtkLzlkUQKBgQDr20MOfC9/xSObwCgdy1we/QvLuwbokmoB
G6NxMze6WwFBHdRO6BrMUzzYsVeOcg+K8Avmp9QCRWekHheyQ1UHRMZQzoEw9TZd
XjTkkTxCZy+KfvZVQ+MZDPjU8+amLuBTBeC35ZndDIBgt9FXzPRPgjVvcibxnbSO
koDjWauLSwKBgQDqvLAwmRRr9cE+4eY+tFEPhCJlyvw2xVXz5Q9bQAZ0vwn0JRzG
jajJxasQWbblV4/+O6wzg9WK/ntB1XYUKOServoljZ9+guLZ9FTjnMVIBhnvY7TJ
S6pA6cEdzdBXHw4YIaJ7GimmVQ+noow7xA47kCgyZCUQvxkor9BlYZE2AQKBgCot
o+hLPRNUZfHMg2AQpgDEr/9XCv08cciQ8MGlrymcbLUAaJ9T0rcHi7IUxNuseisW
kopFKRze3JH077fpYqNSIUUCKQhgUcCQwFS/xE77tPzHh7Xn1gz8zOMIWw8NAwDV
5EH+xW1KdwrU1JMnC+nMF1I+z8gVs9xrRrFhr9PRAoGBAMh/4Ojrjq6771Z2fmFS
iUdCzbFyArlFS8tonqKxQF96OGVNzjfKl3vWdX46j2uKrwc2ISk9UGrvYrHiJg24
bc7kXdT8tUchfNJi35GnW958nPRPjIkNzkhy//BRJOXzOA8DaUERA9y2zZF0d9CA
UmCTbF+ABhGzUEOj60RbDORo
-----END PRIVATE KEY-----
";
const PUBLIC_PEM: &str = "\
-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA28/UM5fcbyBUH39Y6j9T
znhZGm6/NeA5tIKicZwbMb4lpnzZkSVKwMyab4AUoVLYYj8O+CxK3TLGMPq1gqSS
COyY8KdI3U6UZmw/VX8SaD33N+LhNKtqLSA64sON2wqoNJMc0XCOBgfF5rq+j3cQ
GGY74ilvfSjJeCNApLRZv2ExKU/KN2iTEkJ3QOqIA4wB3HY/6gPLOM9AgvnBXUZZ
q6YeCXGj6sni22MoqSrYAEzI2m5M4pFjBD02pY252RdE/TzE1c8vJCGjYrEotls3
D0BFaVwo2lp2+lRblKi+UYDha3zXbonD2mkFz1+M2yj2s7/T3A0H1buO4q8HKmNe
uwIDAQAB
-----END PUBLIC KEY-----
";
const PUBLIC_PKCS1_PEM: &str = "\
-----BEGIN RSA PUBLIC KEY-----
MIIBCgKCAQEA28/UM5fcbyBUH39Y6j9TznhZGm6/NeA5tIKicZwbMb4lpnzZkSVK
wMyab4AUoVLYYj8O+CxK3TLGMPq1gqSSCOyY8KdI3U6UZmw/VX8SaD33N+LhNKtq
LSA64sON2wqoNJMc0XCOBgfF5rq+j3cQGGY74ilvfSjJeCNApLRZv2ExKU/KN2iT
EkJ3QOqIA4wB3HY/6gPLOM9AgvnBXUZZq6YeCXGj6sni22MoqSrYAEzI2m5M4pFj
BD02pY252RdE/TzE1c8vJCGjYrEotls3D0BFaVwo2lp2+lRblKi+UYDha3zXbonD
2mkFz1+M2yj2s7/T3A0H1buO4q8HKmNeuwIDAQAB
-----END RSA PUBLIC KEY-----
";
const SHORT_PUBLIC_PEM: &str = "\
-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC1eOLqI61b4v4GWqXO31un8IZt
Biflxm2eCFC8Xr+Iu7C5d3IN6g4r7Hx5d0Wtscera/XOSV7soJhXjztef/pGmS5L
tK7FBBL+ZG0idUYNOnQeACEH/r2xLURcQoAZkipBbQjJdU9MYzauE+KdDwsRTqRz
mWTTiF93Gte8PFTO+wIDAQAB
-----END PUBLIC KEY-----
";
const P521_PUBLIC_PEM: &str = "\
-----BEGIN PUBLIC KEY-----
MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBYQ/as4VXGg2ldBQjA+Zh2aMWr21c
Jx7Q78RBJ4y0mtYL1Ah1CXej80X/PC9g6uhUw4c21vmC5+APb1EMi+QUipYAnixc
5zzrXHeK8szwQ+ywDWW63CDWyYZt1aKMQSBXnS1USJZDMHWz+ql/SHCccBe7mngZ
oVaSQegJjYKGTNWjXTU=
-----END PUBLIC KEY-----
";

/// Made with Python's `hmac`: the shape that the control plane's token page mints.
const HS256_VECTOR: &str = "\
    eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjNlNDU2Ny1lODliLTEyZDMtYTQ1Ni00MjY2MTQ\
    xNzQwMDAiLCJpc3MiOiJtY3BnYXRld2F5IiwiYXVkIjoibWNwZ2F0ZXdheS1hcGkiLCJpYXQiOjEwMDAsImp0aSI\
    6ImoxIiwiZXhwIjoyMDAwLCJ1c2VyIjp7ImVtYWlsIjoiYUBleGFtcGxlLmNvbSIsImZ1bGxfbmFtZSI6IkFQSSB\
    Ub2tlbiBVc2VyIiwiaXNfYWRtaW4iOmZhbHNlLCJhdXRoX3Byb3ZpZGVyIjoiYXBpX3Rva2VuIn0sInRlYW1zIjp\
    udWxsLCJzY29wZXMiOnsic2VydmVyX2lkIjpudWxsLCJwZXJtaXNzaW9ucyI6WyJ0b29scy5yZWFkIl0sImlwX3J\
    lc3RyaWN0aW9ucyI6W10sInRpbWVfcmVzdHJpY3Rpb25zIjp7fX19.mKwT-NkTrLnhMJ29ZaklHLX3iKhdC1nmnB\
    6oIKle36A";
/// Made with the OpenSSL command line.
const RS256_VECTOR: &str = "\
    eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InRlc3QifQ.eyJzdWIiOiIxMjNlNDU2Ny1lODliLTEyZ\
    DMtYTQ1Ni00MjY2MTQxNzQwMDAiLCJpc3MiOiJtY3BnYXRld2F5IiwiYXVkIjoibWNwZ2F0ZXdheS1hcGkiLCJpY\
    XQiOjEwMDAsImp0aSI6ImoxIiwiZXhwIjoyMDAwLCJ1c2VyIjp7ImVtYWlsIjoiYUBleGFtcGxlLmNvbSIsImZ1b\
    GxfbmFtZSI6IkFQSSBUb2tlbiBVc2VyIiwiaXNfYWRtaW4iOmZhbHNlLCJhdXRoX3Byb3ZpZGVyIjoiYXBpX3Rva\
    2VuIn0sInRlYW1zIjpudWxsLCJzY29wZXMiOnsic2VydmVyX2lkIjpudWxsLCJwZXJtaXNzaW9ucyI6WyJ0b29sc\
    y5yZWFkIl0sImlwX3Jlc3RyaWN0aW9ucyI6W10sInRpbWVfcmVzdHJpY3Rpb25zIjp7fX19.lPXgLOUgvfxx5yof\
    Hoc7FzlhiYfchRw5e1zlYFyzbzAipQdR8KroRdVzVC8POnCQ1LAYYidb6Ywd2YHqgXWF1GzRL-G2u7TGp1Uk7rsO\
    2lvW3zNG491uMm9UjxjYJpsdilaejn56zmRCLy7pOUezSylAY_DBYaX5fDxSBSmDH3xVvDabCCHefnt89HhfrDAQ\
    8M5BFl-oHEqQjoKXGgOHMNm8wlnu2kvNOA50FTO2oPrdSCekaQjc-fm-2y66eyPu3C8cnkvWVc4UdFEuOaBztAek\
    6Zrv2DEshGpY0os4Yn0JqJFc3x2e5-AS_tev1YkAG1l7Twp5yDio9KUGaevBtQ";

fn file() -> &'static Path {
    Path::new("public.pem")
}

fn both_keys() -> VerificationKeys {
    let mut keys = VerificationKeys::default();
    keys.set_public_pem(PUBLIC_PEM.as_bytes(), file()).unwrap();
    keys.set_secret(SECRET).unwrap();
    keys
}

fn check(keys: &VerificationKeys, token: &str) -> Result<Verified, AuthFault> {
    verify(keys, token.as_bytes(), NOW, &TokenRules::default())
}

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Signs whatever it is given, allowed or not.
fn forge(header: &Value, payload: &str, algorithm: Algorithm, key: &EncodingKey) -> String {
    let message = format!(
        "{}.{}",
        base64url(header.to_string().as_bytes()),
        base64url(payload.as_bytes())
    );
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), key, algorithm).unwrap();
    format!("{message}.{signature}")
}

fn hs256(payload: &str) -> String {
    let key = EncodingKey::from_secret(SECRET);
    forge(&json!({"alg": "HS256"}), payload, Algorithm::HS256, &key)
}

fn good_claims() -> Value {
    json!({
        "sub": "alice", "jti": "j", "iss": "mcpgateway", "aud": "mcpgateway-api", "exp": 2000,
        "user": {"email": "e", "is_admin": true, "auth_provider": "p", "full_name": "f"},
        "token_use": "api", "iat": 1, "teams": ["t"],
        "scopes": {
            "server_id": "s", "permissions": ["p"], "ip_restrictions": ["i"],
            "time_restrictions": {"any": [1]},
        },
    })
}

/// The verdict on the good claims after one change by JSON pointer; `None` removes the member.
fn with(pointer: &str, value: Option<Value>) -> Result<Verified, AuthFault> {
    let mut claims = good_claims();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let members = claims.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.remove(name),
    };
    check(&both_keys(), &hs256(&claims.to_string()))
}

#[test]
fn tokens_made_by_other_programs_are_accepted() {
    for token in [HS256_VECTOR, RS256_VECTOR] {
        let verified = check(&both_keys(), token).unwrap();
        assert_eq!(&*verified.subject, "123e4567-e89b-12d3-a456-426614174000");
        assert_eq!(&*verified.issuer, "mcpgateway");
        assert_eq!(verified.expires_at_unix_s, 2_000);
    }
}

#[test]
fn the_six_algorithms_are_accepted_with_their_own_key() {
    let rsa = SigningKey::from_rsa_private_pem(PRIVATE_PEM.as_bytes(), file()).unwrap();
    let hmac = SigningKey::from_secret(SECRET).unwrap();
    let mut rsa_only = VerificationKeys::default();
    rsa_only
        .set_public_pem(PUBLIC_PKCS1_PEM.as_bytes(), file())
        .unwrap();
    let mut hmac_only = VerificationKeys::default();
    hmac_only.set_secret(SECRET).unwrap();
    for (name, key, own, other) in [
        ("RS256", &rsa, &rsa_only, &hmac_only),
        ("RS384", &rsa, &rsa_only, &hmac_only),
        ("RS512", &rsa, &rsa_only, &hmac_only),
        ("HS256", &hmac, &hmac_only, &rsa_only),
        ("HS384", &hmac, &hmac_only, &rsa_only),
        ("HS512", &hmac, &hmac_only, &rsa_only),
    ] {
        let algorithm = SignatureAlgorithm::from_name(name).unwrap();
        let request = MintRequest::bootstrap("alice", "alice@example.com", algorithm, key);
        let token = mint(&request, NOW).unwrap();
        let verified = check(&both_keys(), &token).unwrap();
        assert_eq!(
            (&*verified.subject, verified.expires_at_unix_s),
            ("alice", NOW + 3600)
        );
        assert!(check(own, &token).is_ok(), "{name}");
        assert_eq!(check(other, &token), Err(AuthFault::NoKey), "{name}");
        assert_eq!(
            check(&VerificationKeys::default(), &token),
            Err(AuthFault::NoKey),
            "{name}"
        );
    }
    let request = MintRequest::bootstrap("a", "a", SignatureAlgorithm::Hs256, &rsa);
    assert_eq!(mint(&request, NOW), Err(MintFault::KeyFamily));
}

#[test]
fn every_other_algorithm_is_refused() {
    let rsa = EncodingKey::from_rsa_pem(PRIVATE_PEM.as_bytes()).unwrap();
    let claims = good_claims().to_string();
    for (name, algorithm) in [
        ("PS256", Algorithm::PS256),
        ("PS384", Algorithm::PS384),
        ("PS512", Algorithm::PS512),
    ] {
        let token = forge(&json!({"alg": name}), &claims, algorithm, &rsa);
        assert_eq!(
            check(&both_keys(), &token),
            Err(AuthFault::AlgorithmNotAllowed),
            "{name}"
        );
    }
    // A signature that would hold, under names that must not be looked at.
    let hmac = EncodingKey::from_secret(SECRET);
    for name in ["none", "ES512", "ES256K", "Ed25519", "hs256", "HS1", ""] {
        let token = forge(&json!({"alg": name}), &claims, Algorithm::HS256, &hmac);
        assert_eq!(
            check(&both_keys(), &token),
            Err(AuthFault::AlgorithmNotAllowed),
            "{name}"
        );
    }
    let unsigned = format!(
        "{}.{}.",
        base64url(br#"{"alg":"none"}"#),
        base64url(claims.as_bytes())
    );
    assert_eq!(
        check(&both_keys(), &unsigned),
        Err(AuthFault::AlgorithmNotAllowed)
    );
}

#[test]
fn the_public_key_is_never_an_hmac_secret() {
    let claims = good_claims().to_string();
    let confused = EncodingKey::from_secret(PUBLIC_PEM.as_bytes());
    let token = forge(
        &json!({"alg": "HS256"}),
        &claims,
        Algorithm::HS256,
        &confused,
    );
    let mut rsa_only = VerificationKeys::default();
    rsa_only
        .set_public_pem(PUBLIC_PEM.as_bytes(), file())
        .unwrap();
    assert_eq!(check(&rsa_only, &token), Err(AuthFault::NoKey));
    assert_eq!(check(&both_keys(), &token), Err(AuthFault::BadSignature));
    // An HMAC signature under an RSA name, and the reverse.
    let hmac = EncodingKey::from_secret(SECRET);
    let token = forge(&json!({"alg": "RS256"}), &claims, Algorithm::HS256, &hmac);
    assert_eq!(check(&both_keys(), &token), Err(AuthFault::BadSignature));
    let rsa = EncodingKey::from_rsa_pem(PRIVATE_PEM.as_bytes()).unwrap();
    let token = forge(&json!({"alg": "HS256"}), &claims, Algorithm::RS256, &rsa);
    assert_eq!(check(&both_keys(), &token), Err(AuthFault::BadSignature));
}

#[test]
fn any_changed_byte_is_noticed() {
    let keys = both_keys();
    for (at, _) in HS256_VECTOR.char_indices() {
        let mut changed = HS256_VECTOR.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        assert!(
            verify(&keys, &changed, NOW, &TokenRules::default()).is_err(),
            "byte {at}"
        );
    }
    for length in 0..HS256_VECTOR.len() {
        assert!(
            check(&keys, &HS256_VECTOR[..length]).is_err(),
            "cut at {length}"
        );
    }
    for suffix in ["A", "=", ".", " ", "\n", "\0"] {
        assert!(
            check(&keys, &format!("{HS256_VECTOR}{suffix}")).is_err(),
            "{suffix:?}"
        );
        assert!(
            check(&keys, &format!("{suffix}{HS256_VECTOR}")).is_err(),
            "{suffix:?}"
        );
    }
}

#[test]
fn malformed_tokens_are_refused() {
    let keys = both_keys();
    for token in [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c",
        "a.b.c.d.e",
        "not a token",
    ] {
        assert_eq!(check(&keys, token), Err(AuthFault::Malformed), "{token}");
    }
    let rules = TokenRules::default();
    assert_eq!(
        verify(&keys, b"\xff.\xff.\xff", NOW, &rules),
        Err(AuthFault::Malformed)
    );
    for payload in ["", "[]", "null", "{", "{}", "\u{feff}{}"] {
        assert_eq!(
            check(&keys, &hs256(payload)),
            Err(AuthFault::ClaimsShape),
            "{payload}"
        );
    }
    let trailing = format!("{} x", good_claims());
    assert_eq!(check(&keys, &hs256(&trailing)), Err(AuthFault::ClaimsShape));
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(check(&keys, &hs256(&deep)), Err(AuthFault::ClaimsShape));
}

#[test]
fn the_length_is_bounded_before_anything_else() {
    let rules = TokenRules::default();
    let mut claims = good_claims();
    claims["padding"] = json!("x".repeat(11_700));
    let long = hs256(&claims.to_string());
    assert!(long.len() > 16_000 && long.len() <= 16 * 1024);
    assert!(check(&both_keys(), &long).is_ok());
    let too_long = vec![b'x'; 16 * 1024 + 1];
    assert_eq!(
        verify(&both_keys(), &too_long, NOW, &rules),
        Err(AuthFault::TooLong)
    );
    assert_eq!(
        verify(&both_keys(), &too_long[1..], NOW, &rules),
        Err(AuthFault::Malformed),
        "16 KiB are read"
    );
}

#[test]
fn the_scheme_is_bearer_and_one_space() {
    let token = |value: &str| bearer(value.as_bytes()).map(<[u8]>::to_vec);
    let good = format!("Bearer {HS256_VECTOR}");
    assert_eq!(token(&good).as_deref(), Some(HS256_VECTOR.as_bytes()));
    for value in ["bearer x", "BEARER x", "Bearer", "Basic x", "", " Bearer x"] {
        assert_eq!(token(value), None, "{value}");
    }
    let two_spaces = token(&format!("Bearer  {HS256_VECTOR}")).unwrap();
    assert!(verify(&both_keys(), &two_spaces, NOW, &TokenRules::default()).is_err());
}

#[test]
fn exp_has_a_leeway_of_sixty_seconds() {
    let at = |now: u64, rules: &TokenRules| {
        verify(&both_keys(), HS256_VECTOR.as_bytes(), now, rules).map(|_| ())
    };
    let rules = TokenRules::default();
    for now in [0, 1_999, 2_000, 2_001, 2_060] {
        assert_eq!(at(now, &rules), Ok(()), "{now}");
    }
    for now in [2_061, 3_000, u64::MAX] {
        assert_eq!(at(now, &rules), Err(AuthFault::Expired), "{now}");
    }
    let strict = TokenRules {
        leeway_s: 0,
        ..TokenRules::default()
    };
    assert_eq!(at(2_000, &strict), Ok(()));
    assert_eq!(at(2_001, &strict), Err(AuthFault::Expired));
    let far = with("/exp", Some(json!(u64::MAX)));
    assert_eq!(far.unwrap().expires_at_unix_s, u64::MAX);
}

#[test]
fn claims_that_decide_are_checked() {
    for value in ["", "mcpgateway ", "MCPGATEWAY", "other"] {
        assert_eq!(
            with("/iss", Some(json!(value))),
            Err(AuthFault::WrongIssuer),
            "{value}"
        );
    }
    for value in ["", "mcpgateway", "mcpgateway-api2"] {
        assert_eq!(
            with("/aud", Some(json!(value))),
            Err(AuthFault::WrongAudience),
            "{value}"
        );
    }
    let rules = TokenRules {
        issuer: "i".into(),
        audience: "a".into(),
        ..TokenRules::default()
    };
    let mut claims = good_claims();
    claims["iss"] = json!("i");
    claims["aud"] = json!("a");
    let token = hs256(&claims.to_string());
    assert!(verify(&both_keys(), token.as_bytes(), NOW, &rules).is_ok());
    assert_eq!(check(&both_keys(), &token), Err(AuthFault::WrongIssuer));
    assert_eq!(
        &*with("/sub", Some(json!(""))).unwrap().subject,
        "",
        "an empty subject is one"
    );
}

#[test]
fn required_claims_are_required() {
    for pointer in [
        "/sub",
        "/jti",
        "/iss",
        "/aud",
        "/exp",
        "/user",
        "/user/email",
        "/user/is_admin",
        "/user/auth_provider",
        "/scopes/permissions",
        "/scopes/ip_restrictions",
    ] {
        assert_eq!(
            with(pointer, None),
            Err(AuthFault::ClaimsShape),
            "{pointer} missing"
        );
        assert_eq!(
            with(pointer, Some(Value::Null)),
            Err(AuthFault::ClaimsShape),
            "{pointer} null"
        );
    }
}

#[test]
fn optional_claims_may_be_missing_or_null() {
    for pointer in [
        "/token_use",
        "/iat",
        "/teams",
        "/scopes",
        "/user/full_name",
        "/scopes/server_id",
        "/scopes/time_restrictions",
    ] {
        assert!(with(pointer, None).is_ok(), "{pointer} missing");
        assert!(with(pointer, Some(Value::Null)).is_ok(), "{pointer} null");
    }
}

#[test]
fn every_claim_has_its_type() {
    for (pointer, values) in [
        ("/sub", vec![json!(1), json!(["a"])]),
        ("/jti", vec![json!(1)]),
        ("/iss", vec![json!(["mcpgateway"])]),
        ("/aud", vec![json!(["mcpgateway-api"]), json!(1)]),
        (
            "/exp",
            vec![
                json!(2000.0),
                json!(2000.5),
                json!("2000"),
                json!(-1),
                json!([]),
            ],
        ),
        ("/iat", vec![json!(1.0), json!("1"), json!(-1)]),
        ("/token_use", vec![json!(1)]),
        ("/teams", vec![json!([{"id": "t"}]), json!("t"), json!([1])]),
        (
            "/user",
            vec![json!("e"), json!(["e", true, "p"]), json!({})],
        ),
        ("/user/email", vec![json!(1)]),
        ("/user/is_admin", vec![json!("true"), json!(1)]),
        ("/user/auth_provider", vec![json!(1)]),
        ("/user/full_name", vec![json!(1)]),
        ("/scopes", vec![json!({}), json!([]), json!("s")]),
        ("/scopes/permissions", vec![json!("p"), json!([1])]),
        ("/scopes/ip_restrictions", vec![json!({}), json!([null])]),
        ("/scopes/server_id", vec![json!(1)]),
    ] {
        for value in values {
            let text = format!("{pointer} {value}");
            assert_eq!(
                with(pointer, Some(value)),
                Err(AuthFault::ClaimsShape),
                "{text}"
            );
        }
    }
}

#[test]
fn what_the_contract_ignores_is_ignored() {
    assert!(
        with("/nbf", Some(json!(9_999_999_999_u64))).is_ok(),
        "a future nbf"
    );
    assert!(with("/nbf", Some(json!("text"))).is_ok());
    assert!(with("/unknown", Some(json!({"a": [1, 2.5, null]}))).is_ok());
    assert!(with("/user/unknown", Some(json!(1))).is_ok());
    assert!(
        with("/iat", Some(json!(9_999_999_999_u64))).is_ok(),
        "a future iat"
    );
    for restrictions in [json!({}), json!([]), json!("x"), json!(1)] {
        assert!(with("/scopes/time_restrictions", Some(restrictions)).is_ok());
    }
    let key = EncodingKey::from_secret(SECRET);
    let claims = good_claims().to_string();
    for header in [
        json!({"alg": "HS256", "kid": "any", "typ": "at+jwt", "jku": "http://evil.example/"}),
        json!({"alg": "HS256", "x": null}),
    ] {
        assert!(
            check(
                &both_keys(),
                &forge(&header, &claims, Algorithm::HS256, &key)
            )
            .is_ok()
        );
    }
    let critical = json!({"alg": "HS256", "crit": ["exp"]});
    assert_eq!(
        check(
            &both_keys(),
            &forge(&critical, &claims, Algorithm::HS256, &key)
        ),
        Err(AuthFault::CriticalExtension)
    );
}

#[test]
fn a_known_claim_given_twice_is_refused() {
    let claims = good_claims().to_string();
    for twice in [
        r#""sub":"bob""#,
        r#""exp":9999"#,
        r#""aud":"mcpgateway-api""#,
        r#""user":{}"#,
    ] {
        let text = claims.replacen('{', &format!("{{{twice},"), 1);
        assert_eq!(
            check(&both_keys(), &hs256(&text)),
            Err(AuthFault::ClaimsShape),
            "{twice}"
        );
    }
}

#[test]
fn tokens_that_the_control_plane_mints_but_the_contract_refuses() {
    // A login session token has no `user`, and a token without end has no `exp`.
    assert_eq!(with("/user", None), Err(AuthFault::ClaimsShape));
    assert_eq!(with("/exp", None), Err(AuthFault::ClaimsShape));
    // An administrator's command line token has no `scopes`, which is allowed.
    assert!(with("/scopes", None).is_ok());
}

#[test]
fn keys_that_could_never_verify_are_refused_at_start() {
    let mut keys = VerificationKeys::default();
    let mut set = |pem: &str| keys.set_public_pem(pem.as_bytes(), file()).unwrap_err();
    assert!(matches!(set(PRIVATE_PEM), KeyFault::PrivateKey { .. }));
    assert!(matches!(set(P521_PUBLIC_PEM), KeyFault::NotPublic { .. }));
    assert!(matches!(set(SHORT_PUBLIC_PEM), KeyFault::TooShort { .. }));
    assert!(matches!(set(""), KeyFault::NotPublic { .. }));
    assert!(keys.is_empty());
    assert!(matches!(
        SigningKey::from_rsa_private_pem(PUBLIC_PEM.as_bytes(), file()),
        Err(KeyFault::NotRsa { .. })
    ));
}
