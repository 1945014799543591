//! An issuer of tokens: keys it publishes, changes and withdraws, and tokens signed with any.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use serde_json::{Value, json};
use shardgate::auth::{Audience, IssuerRules, SignatureAlgorithm};

use crate::support::Backend;

/// Where the keys are.
pub const PATH: &str = "/keys";

/// A running issuer.
pub struct Issuer {
    /// Its server, which also knows how often it was asked.
    pub server: Backend,
    keys: Mutex<BTreeMap<String, KeyPair>>,
    answer: Arc<Mutex<Answer>>,
}

/// What the server says of the keys.
struct Answer {
    status: u16,
    headers: String,
    body: String,
}

/// Seconds since 1970.
pub fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

impl Issuer {
    /// One that publishes the key `first`.
    pub fn start() -> Self {
        let answer = Arc::new(Mutex::new(Answer {
            status: 200,
            headers: String::new(),
            body: String::new(),
        }));
        let server = Backend::scripted("issuer", &[], {
            let answer = answer.clone();
            move |asked, wire| {
                assert_eq!((&*asked.method, &*asked.target), ("GET", PATH));
                assert_eq!(asked.header("authorization"), None);
                let answer = answer.lock().unwrap();
                wire.answer(answer.status, &answer.headers, &answer.body);
                Some(())
            }
        });
        let issuer = Self {
            server,
            keys: Mutex::default(),
            answer,
        };
        issuer.publish(&["first"]);
        issuer
    }

    /// Its name in tokens.
    pub fn name(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// What a gateway trusts it by, for tokens that name `audience`, or the endpoint.
    pub fn rules(&self, audience: Option<&str>) -> IssuerRules {
        let audience = audience.map(|audience| Audience::Exact(audience.into()));
        IssuerRules {
            issuer: self.name().into(),
            jwks_url: format!("{}{PATH}", self.name()).parse().unwrap(),
            audience: audience.unwrap_or(Audience::Resource),
            algorithms: [SignatureAlgorithm::Es256].into(),
            subject_prefix: "".into(),
        }
    }

    /// Publishes these keys and no others; those that are new are made.
    pub fn publish(&self, ids: &[&str]) {
        let mut keys = self.keys.lock().unwrap();
        let jwk = |id: &&str| {
            let made = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
            let point = keys
                .entry((*id).to_owned())
                .or_insert_with(made)
                .der_bytes();
            let part = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
            json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": part(1), "y": part(33)})
        };
        let jwks: Vec<Value> = ids.iter().map(jwk).collect();
        self.say(
            200,
            "content-type: application/json\r\n",
            &json!({"keys": jwks}).to_string(),
        );
    }

    /// Answers with this from now on.
    pub fn say(&self, status: u16, headers: &str, body: &str) {
        *self.answer.lock().unwrap() = Answer {
            status,
            headers: headers.to_owned(),
            body: body.to_owned(),
        };
    }

    /// How often its keys were asked for.
    pub fn fetches(&self) -> usize {
        self.server.seen().len()
    }

    /// A good token of `alice` for `audience`, signed with the key `id` and changed by `members`.
    pub fn token(&self, id: &str, audience: &str, members: Value) -> String {
        let mut claims = json!({
            "iss": self.name(), "sub": "alice", "aud": audience, "exp": now_unix_s() + 600,
            "scope": "tools.read tools.execute resources.read prompts.read",
        });
        for (name, value) in members.as_object().unwrap() {
            claims[name] = value.clone();
        }
        self.sign(
            id,
            &json!({"alg": "ES256", "kid": id, "typ": "at+jwt"}),
            &claims,
        )
    }

    /// Signs anything with the key `id`, published or not.
    pub fn sign(&self, id: &str, header: &Value, claims: &Value) -> String {
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encode(header), encode(claims));
        let pem = self.keys.lock().unwrap()[id].serialize_pem();
        let key = EncodingKey::from_ec_pem(pem.as_bytes()).unwrap();
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::ES256);
        format!("{message}.{}", signature.unwrap())
    }
}
