//! Keys an issuer publishes, changes and withdraws.

use std::time::Instant;

use serde_json::json;
use shardgate::auth::SignatureAlgorithm;

use crate::{
    AUDIENCE, gateway,
    issuer::{Issuer, now_unix_s},
    session, status,
    support::{Backend, LAYOUTS, Plan, eventually},
    token, trusting,
};

#[test]
fn tokens_are_taken_by_the_keys_their_issuer_publishes() {
    for layout in LAYOUTS {
        let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
        issuer.publish(&["first", "second"]);
        let plan = Plan::one(&backend).layout(layout);
        let gateway = plan.settings(trusting(&[&issuer])).start();
        for id in ["first", "second"] {
            let mut client = session(&gateway, &token(&issuer, id));
            assert_eq!(client.tool_names(), ["one"], "{layout:?}");
        }
        let members = json!({"sub": "x"});
        let good = issuer.token("first", AUDIENCE, members);
        let (front, signature) = good.rsplit_once('.').unwrap();
        let forged: String = signature.chars().rev().collect();
        assert_eq!(status(&gateway, &format!("{front}.{forged}")), 401);
        assert_eq!(status(&gateway, &format!("{front}.")), 401);
        assert_eq!(status(&gateway, &good), 200);
        assert_eq!(issuer.fetches(), 1, "one fetch for all shards and tokens");
        assert_eq!(gateway.metric("shardgate_jwks_keys"), 2);
        assert_eq!(gateway.metric("shardgate_jwks_fetches_total"), 1);
    }
}

#[test]
fn what_a_token_says_is_checked() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    let now = now_unix_s();
    for (members, expected) in [
        (json!({}), 200),
        (json!({"aud": [AUDIENCE, "other"]}), 200),
        (json!({"aud": ["other"]}), 401),
        (json!({"aud": "Mcp"}), 401),
        (json!({"aud": null}), 401),
        (json!({"iss": format!("{}/", issuer.name())}), 401),
        (json!({"iss": "mcpgateway"}), 401),
        (json!({"iss": [issuer.name()]}), 401),
        (json!({"exp": now - 3600}), 401),
        (json!({"exp": null}), 401),
        (json!({"nbf": now + 3600}), 401),
        (json!({"nbf": now - 3600}), 200),
        (json!({"sub": ""}), 401),
        (json!({"sub": null}), 401),
    ] {
        let token = issuer.token("first", AUDIENCE, members.clone());
        assert_eq!(status(&gateway, &token), expected, "{members}");
    }
    let claims = json!({
        "iss": issuer.name(), "sub": "a", "aud": AUDIENCE, "exp": now + 600,
    });
    for (header, expected) in [
        (json!({"alg": "ES256", "kid": "first"}), 200),
        (json!({"alg": "ES256"}), 200),
        (json!({"alg": "ES384", "kid": "first"}), 401),
        (json!({"alg": "HS256", "kid": "first"}), 401),
        (json!({"alg": "none", "kid": "first"}), 401),
        (
            json!({"alg": "ES256", "kid": "first", "crit": ["x"], "x": 1}),
            401,
        ),
        (json!({"alg": "ES256", "kid": 1}), 401),
        // Where a header says that keys are is no matter.
        (
            json!({"alg": "ES256", "kid": "first", "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/"}),
            200,
        ),
    ] {
        let token = issuer.sign("first", &header, &claims);
        assert_eq!(status(&gateway, &token), expected, "{header}");
    }
    assert_eq!(issuer.fetches(), 1);
}

#[test]
fn a_new_key_is_fetched_when_a_token_names_it_once_for_all_who_need_it() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    let old = token(&issuer, "first");
    assert_eq!(status(&gateway, &old), 200);
    issuer.publish(&["first", "second"]);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (gateway, issuer) = (&gateway, &issuer);
            scope.spawn(move || {
                let members = json!({"sub": number.to_string()});
                let token = issuer.token("second", AUDIENCE, members);
                assert_eq!(status(gateway, &token), 200);
            });
        }
    });
    assert_eq!(status(&gateway, &old), 200);
    // The start's, and one more; another if a shard asked just when it was done.
    let fetches = issuer.fetches();
    assert!((2..=3).contains(&fetches), "{fetches}");
}

#[test]
fn a_key_that_is_withdrawn_proves_nothing_not_even_what_it_had_proved() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    let old = token(&issuer, "first");
    let mut client = session(&gateway, &old);
    assert_eq!(client.tool_names(), ["one"]);
    let verified = gateway.metric("shardgate_tokens_verified_total");
    assert_eq!(client.tool_names(), ["one"]);
    let again = gateway.metric("shardgate_tokens_verified_total");
    assert!(
        again <= verified + 1,
        "a known token is not verified each time"
    );

    issuer.publish(&["second"]);
    assert_eq!(status(&gateway, &token(&issuer, "second")), 200);
    // Shards are told one after the other.
    eventually("the old token is refused", || {
        (client.list().status == 401).then_some(())
    });
    for _ in 0..8 {
        assert_eq!(status(&gateway, &old), 401);
    }
    assert_eq!(client.list().status, 401, "its session does not help it");
    // The same user with a good token goes on in the same session.
    client.token = Some(token(&issuer, "second"));
    assert_eq!(client.tool_names(), ["one"]);
}

#[test]
fn keys_are_fetched_again_when_somebody_asks() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    let old = token(&issuer, "first");
    assert_eq!(status(&gateway, &old), 200);
    issuer.publish(&[]);
    gateway.inner().reload();
    eventually("no key is left", || {
        (status(&gateway, &old) == 401).then_some(())
    });
    assert_eq!(gateway.metric("shardgate_jwks_keys"), 0);
    issuer.publish(&["first"]);
    gateway.inner().reload();
    eventually("it is back", || {
        (status(&gateway, &old) == 200).then_some(())
    });
}

#[test]
fn keys_are_fetched_again_when_they_are_old() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let plan = Plan::one(&backend).settings(trusting(&[&issuer]));
    let gateway = plan
        .settings(|settings| settings.timeouts.jwks_age_max = std::time::Duration::from_millis(50))
        .start();
    let old = token(&issuer, "first");
    assert_eq!(status(&gateway, &old), 200);
    issuer.publish(&["second"]);
    // No token names the new key.
    eventually("the old key is gone", || {
        (status(&gateway, &old) == 401).then_some(())
    });
    assert_eq!(gateway.metric("shardgate_jwks_failures_total"), 0);
}

#[test]
fn nobody_can_have_an_issuer_flooded() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let gateway = gateway(&backend, &issuer);
    assert_eq!(status(&gateway, &token(&issuer, "first")), 200);
    let started = Instant::now();
    let claims = json!({
        "iss": issuer.name(), "sub": "a", "aud": AUDIENCE, "exp": now_unix_s() + 600,
    });
    std::thread::scope(|scope| {
        for part in 0..8 {
            let (gateway, issuer, claims) = (&gateway, &issuer, &claims);
            scope.spawn(move || {
                for number in 0..25 {
                    let header = json!({"alg": "ES256", "kid": format!("{part}-{number}")});
                    let token = issuer.sign("first", &header, claims);
                    assert_eq!(status(gateway, &token), 401);
                }
            });
        }
    });
    // Those who go on get an answer without anybody being asked.
    eventually("that was too often", || {
        let header = json!({"alg": "ES256", "kid": "again"});
        assert_eq!(
            status(&gateway, &issuer.sign("first", &header, &claims)),
            401
        );
        (gateway.metric("shardgate_jwks_unanswered_total") > 0).then_some(())
    });
    // A burst of four, one in 15 seconds, and the start's.
    let allowed = 5 + started.elapsed().as_secs() / 15;
    let fetches = issuer.fetches() as u64;
    assert!((5..=allowed).contains(&fetches), "{fetches} of {allowed}");
    assert_eq!(
        status(&gateway, &token(&issuer, "first")),
        200,
        "others are served"
    );
}

#[test]
fn several_issuers_are_kept_apart() {
    let backend = Backend::start("a", &["one"]);
    let [one, two] = [Issuer::start(), Issuer::start()];
    let host = |name: &str| json!({"virtual_hosts": {"main": {"backends": {name: {"url": backend.url()}}}}});
    let document = json!({"users": {"alice": host("a"), "two:alice": host("b")}});
    let rules = (one.rules(Some("for one")), two.rules(Some("for two")));
    let gateway = Plan::document(document)
        .with_tokens()
        .settings(move |settings| {
            let (one, mut two) = rules;
            two.subject_prefix = "two:".into();
            settings.auth.trusted_issuers = vec![one, two];
        })
        .start();
    assert_eq!(
        status(&gateway, &one.token("first", "for one", json!({}))),
        200
    );
    assert_eq!(
        status(&gateway, &two.token("first", "for two", json!({}))),
        200
    );
    assert_eq!(
        status(&gateway, &one.token("first", "for two", json!({}))),
        401
    );
    assert_eq!(
        status(&gateway, &two.token("first", "for one", json!({}))),
        401
    );
    // Each may sign for itself only, and nobody for the control plane.
    for name in [two.name(), "mcpgateway".to_owned()] {
        for audience in ["for one", "for two", "mcpgateway-api"] {
            let token = one.token("first", audience, json!({"iss": name}));
            assert_eq!(status(&gateway, &token), 401, "{name} {audience}");
        }
    }
    // Users of the same name are two users.
    let unprefixed = two.token("first", "for two", json!({"sub": "bob"}));
    assert_eq!(
        status(&gateway, &unprefixed),
        400,
        "no configuration of two:bob"
    );
    assert_eq!(
        status(&gateway, &gateway.token("alice")),
        200,
        "the control plane's own"
    );
    let rules = (one.rules(None).algorithms, SignatureAlgorithm::Es256);
    assert_eq!(*rules.0, [rules.1]);
}
