//! Every kind of key checks its own algorithms and no others, given in a file or published.

use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData,
    SignatureAlgorithm as RcgenAlgorithm,
};
use serde_json::{Value, json};
use shardgate::auth::{
    Audience, AuthFault, IssuerKeys, IssuerRules, KeySet, SignatureAlgorithm, TokenRules, Trust,
    VerificationKeys, Verified,
};

use crate::{
    NOW, PRIVATE_PEM, PUBLIC_PEM, PUBLIC_PKCS1_PEM, SECRET, base64url, check, file, forge,
    good_claims,
};

/// One key: its name, what it signs with, its PEM, its JWK.
struct Family {
    algorithms: &'static [(&'static str, Algorithm)],
    signing: EncodingKey,
    pem: String,
    jwk: Value,
}

fn curve(algorithm: &'static RcgenAlgorithm) -> (KeyPair, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let pem = key.public_key_pem();
    (key, pem)
}

fn families() -> Vec<Family> {
    let rsa_der = {
        use base64::Engine as _;
        let body: String = PUBLIC_PKCS1_PEM
            .lines()
            .filter(|line| !line.starts_with('-'))
            .collect();
        base64::engine::general_purpose::STANDARD
            .decode(body)
            .unwrap()
    };
    // RFC 8017 A.1.1 for 2048 bits: 9 bytes, the modulus, 5 bytes of exponent.
    let modulus = base64url(&rsa_der[9..265]);
    let (p256, p256_pem) = curve(&PKCS_ECDSA_P256_SHA256);
    let (p384, p384_pem) = curve(&PKCS_ECDSA_P384_SHA384);
    let (ed, ed_pem) = curve(&PKCS_ED25519);
    let point = |key: &KeyPair, bytes: usize| {
        let raw = key.der_bytes().to_vec();
        (base64url(&raw[1..=bytes]), base64url(&raw[1 + bytes..]))
    };
    let (x256, y256) = point(&p256, 32);
    let (x384, y384) = point(&p384, 48);
    vec![
        Family {
            algorithms: &[
                ("RS256", Algorithm::RS256),
                ("RS384", Algorithm::RS384),
                ("RS512", Algorithm::RS512),
            ],
            signing: EncodingKey::from_rsa_pem(PRIVATE_PEM.as_bytes()).unwrap(),
            pem: PUBLIC_PEM.to_owned(),
            jwk: json!({"kty": "RSA", "n": modulus, "e": "AQAB"}),
        },
        Family {
            algorithms: &[("ES256", Algorithm::ES256)],
            signing: EncodingKey::from_ec_pem(p256.serialize_pem().as_bytes()).unwrap(),
            pem: p256_pem,
            jwk: json!({"kty": "EC", "crv": "P-256", "x": x256, "y": y256}),
        },
        Family {
            algorithms: &[("ES384", Algorithm::ES384)],
            signing: EncodingKey::from_ec_pem(p384.serialize_pem().as_bytes()).unwrap(),
            pem: p384_pem,
            jwk: json!({"kty": "EC", "crv": "P-384", "x": x384, "y": y384}),
        },
        Family {
            algorithms: &[("EdDSA", Algorithm::EdDSA)],
            signing: EncodingKey::from_ed_pem(ed.serialize_pem().as_bytes()).unwrap(),
            pem: ed_pem,
            jwk: json!({"kty": "OKP", "crv": "Ed25519", "x": base64url(ed.der_bytes())}),
        },
    ]
}

/// A verdict by published keys alone.
fn by_published(keys: &[Value], algorithms: &[&str], token: &str) -> Result<Verified, AuthFault> {
    let set = KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap();
    assert_eq!(set.len(), keys.len());
    let algorithms = algorithms
        .iter()
        .map(|name| SignatureAlgorithm::from_name(name).unwrap());
    let rules = IssuerRules {
        issuer: "idp".into(),
        jwks_url: "https://idp.example/keys".parse().unwrap(),
        audience: Audience::Exact("a".into()),
        algorithms: algorithms.collect(),
        subject_prefix: "idp:".into(),
    };
    let issuers = IssuerKeys::unknown([rules].into()).with(0, Some(set.into()));
    // Keys of the control plane that must never be taken for the issuer's.
    let mut own = VerificationKeys::default();
    own.set_secret(SECRET).unwrap();
    own.set_public_pem(PUBLIC_PEM.as_bytes(), file()).unwrap();
    let trust = Trust {
        keys: &own,
        rules: &TokenRules::default(),
        issuers: &issuers,
    };
    trust.verify(token.as_bytes(), NOW)
}

const ALL: [&str; 6] = ["RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA"];

fn published_claims() -> Value {
    json!({"iss": "idp", "sub": "alice", "aud": ["b", "a"], "exp": 2000, "jti": "j"})
}

#[test]
fn a_key_in_a_file_checks_its_own_algorithms_and_no_others() {
    let claims = good_claims().to_string();
    let families = families();
    for (index, family) in families.iter().enumerate() {
        let mut keys = VerificationKeys::default();
        keys.set_public_pem(family.pem.as_bytes(), file()).unwrap();
        for (other_index, other) in families.iter().enumerate() {
            for (name, algorithm) in other.algorithms {
                let token = forge(&json!({"alg": name}), &claims, *algorithm, &other.signing);
                let expected = match index == other_index {
                    true => Ok(()),
                    false => Err(AuthFault::NoKey),
                };
                assert_eq!(check(&keys, &token).map(drop), expected, "{name}");
            }
        }
        // Signed with the right key, by another's name.
        let (name, algorithm) = family.algorithms[0];
        for other in SignatureAlgorithm::ALL.map(|(name, _)| name) {
            let token = forge(&json!({"alg": other}), &claims, algorithm, &family.signing);
            assert_eq!(
                check(&keys, &token).is_ok(),
                other == name,
                "{name} as {other}"
            );
        }
        // The public key is no secret.
        let confused = EncodingKey::from_secret(family.pem.as_bytes());
        let token = forge(
            &json!({"alg": "HS256"}),
            &claims,
            Algorithm::HS256,
            &confused,
        );
        assert_eq!(check(&keys, &token), Err(AuthFault::NoKey));
    }
}

#[test]
fn a_published_key_checks_its_own_algorithms_and_no_others() {
    let claims = published_claims().to_string();
    let families = families();
    for (index, family) in families.iter().enumerate() {
        for (other_index, other) in families.iter().enumerate() {
            for (name, algorithm) in other.algorithms {
                let token = forge(&json!({"alg": name}), &claims, *algorithm, &other.signing);
                let verdict = by_published(std::slice::from_ref(&family.jwk), &ALL, &token);
                if index == other_index {
                    let verified = verdict.unwrap();
                    assert_eq!(&*verified.subject, "idp:alice");
                    assert_eq!(verified.audiences.len(), 2);
                } else {
                    assert_eq!(verdict, Err(AuthFault::UnknownKey(0)), "{name}");
                }
                // What the issuer may not use is not looked at.
                let others: Vec<&str> = ALL.into_iter().filter(|one| one != name).collect();
                let verdict = by_published(std::slice::from_ref(&other.jwk), &others, &token);
                assert_eq!(verdict, Err(AuthFault::AlgorithmNotAllowed));
            }
        }
    }
    // A secret the control plane's tokens are signed with is not the issuer's.
    let secret = EncodingKey::from_secret(SECRET);
    let token = forge(&json!({"alg": "HS256"}), &claims, Algorithm::HS256, &secret);
    let verdict = by_published(std::slice::from_ref(&families[1].jwk), &ALL, &token);
    assert_eq!(verdict, Err(AuthFault::AlgorithmNotAllowed));
    // Nor is its RSA key.
    let rsa = &families[0];
    let token = forge(
        &json!({"alg": "RS256"}),
        &claims,
        Algorithm::RS256,
        &rsa.signing,
    );
    let verdict = by_published(std::slice::from_ref(&families[1].jwk), &ALL, &token);
    assert_eq!(verdict, Err(AuthFault::UnknownKey(0)));
    // And the issuer's key does not make tokens of the control plane.
    let token = forge(
        &json!({"alg": "ES256"}),
        &good_claims().to_string(),
        Algorithm::ES256,
        &families[1].signing,
    );
    let verdict = by_published(std::slice::from_ref(&families[1].jwk), &ALL, &token);
    assert_eq!(verdict, Err(AuthFault::NoKey));
}

#[test]
fn a_key_is_found_by_its_name_and_its_algorithm() {
    let [_, p256, _, ed] = <[Family; 4]>::try_from(families()).ok().unwrap();
    let named = |jwk: &Value, members: Value| {
        let mut jwk = jwk.clone();
        for (name, value) in members.as_object().unwrap() {
            jwk[name] = value.clone();
        }
        jwk
    };
    let other = named(&families()[1].jwk, json!({"kid": "other"}));
    let keys = [
        other,
        named(
            &p256.jwk,
            json!({"kid": "ours", "alg": "ES256", "use": "sig"}),
        ),
        named(&ed.jwk, json!({"kid": "ed"})),
    ];
    let claims = published_claims().to_string();
    let es256 = |header: Value| forge(&header, &claims, Algorithm::ES256, &p256.signing);
    for (kid, expected) in [
        (Some("ours"), Ok(())),
        (None, Ok(())),
        (Some("other"), Err(AuthFault::BadSignature)),
        (Some("ed"), Err(AuthFault::UnknownKey(0))),
        (Some("unheard of"), Err(AuthFault::UnknownKey(0))),
        (Some(""), Err(AuthFault::UnknownKey(0))),
    ] {
        let mut header = json!({"alg": "ES256"});
        if let Some(kid) = kid {
            header["kid"] = kid.into();
        }
        assert_eq!(
            by_published(&keys, &ALL, &es256(header)).map(drop),
            expected,
            "{kid:?}"
        );
    }
    // Without a name and without a key that has made it: a new one may be there.
    let strange = families().swap_remove(1).signing;
    let token = forge(
        &json!({"alg": "ES256"}),
        &claims,
        Algorithm::ES256,
        &strange,
    );
    assert_eq!(
        by_published(&keys, &ALL, &token),
        Err(AuthFault::UnknownKey(0))
    );
}

#[test]
fn an_issuers_claims_are_checked() {
    let family = families().swap_remove(3);
    let verdict = |pointer: &str, value: Value| {
        let mut claims = published_claims();
        claims[pointer] = value;
        let token = forge(
            &json!({"alg": "EdDSA"}),
            &claims.to_string(),
            Algorithm::EdDSA,
            &family.signing,
        );
        by_published(std::slice::from_ref(&family.jwk), &ALL, &token).map(drop)
    };
    for (pointer, value, expected) in [
        ("aud", json!("a"), Ok(())),
        ("aud", json!("b"), Err(AuthFault::WrongAudience)),
        (
            "aud",
            json!(["A", "a/", " a"]),
            Err(AuthFault::WrongAudience),
        ),
        ("aud", json!([]), Err(AuthFault::WrongAudience)),
        ("exp", json!(NOW - 60), Ok(())),
        ("exp", json!(NOW - 61), Err(AuthFault::Expired)),
        ("nbf", json!(NOW + 60), Ok(())),
        ("nbf", json!(NOW + 61), Err(AuthFault::NotYetValid)),
        ("sub", json!(""), Err(AuthFault::ClaimsShape)),
        ("sub", json!(null), Err(AuthFault::ClaimsShape)),
        ("jti", json!(null), Ok(())),
        ("jti", json!(7), Err(AuthFault::ClaimsShape)),
        // Nobody's then, and the control plane has no such key.
        ("iss", json!("idp2"), Err(AuthFault::NoKey)),
    ] {
        assert_eq!(
            verdict(pointer, value.clone()),
            expected,
            "{pointer} {value}"
        );
    }
}
