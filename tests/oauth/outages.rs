//! Issuers that are away, late, or say something else; and what is asked of whom.

use std::{path::PathBuf, time::Duration};

use crate::{
    certificates::{Authority, VERSIONS},
    gateway,
    issuer::{Issuer, PATH},
    open_at,
    process::Folder,
    status,
    support::{Backend, Plan, Refusing, eventually},
    tls::Terminator,
    token, trusting,
};

const NO_KEYS: &str = "Service Unavailable: the keys of the token's issuer are not known";

#[test]
fn without_keys_a_token_is_not_called_wrong() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let good = token(&issuer, "first");
    let long = format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(300 * 1024));
    let elsewhere = Issuer::start();
    for (status, headers, body) in [
        (500, "", "{}"),
        (404, "", "{}"),
        (204, "", ""),
        (
            302,
            &*format!("location: {}{PATH}\r\n", elsewhere.name()),
            "",
        ),
        (200, "content-type: text/html\r\n", "<html>"),
        (200, "", r#"{"keys":{}}"#),
        (200, "", &long),
    ] {
        issuer.say(status, headers, body);
        let gateway = gateway(&backend, &issuer);
        let answer = open_at(&gateway, crate::TARGET, &good);
        assert_eq!((answer.status, answer.text()), (503, NO_KEYS), "{status}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("www-authenticate"), None);
        assert!(gateway.metric("shardgate_jwks_failures_total") > 0);
    }
    assert_eq!(elsewhere.fetches(), 0);
    // A well-formed set without keys is an answer: the issuer has withdrawn them.
    issuer.publish(&[]);
    let gateway = gateway(&backend, &issuer);
    assert_eq!(status(&gateway, &good), 401);
    assert_eq!(backend.seen().len(), 0);
}

#[test]
fn an_issuer_that_comes_late_is_found() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    issuer.say(503, "", "");
    let gateway = gateway(&backend, &issuer);
    let good = token(&issuer, "first");
    assert_eq!(status(&gateway, &good), 503);
    issuer.publish(&["first"]);
    eventually("its tokens are taken", || {
        (status(&gateway, &good) == 200).then_some(())
    });
}

#[test]
fn an_issuer_that_refuses_connections_harms_its_own_tokens_only() {
    let backend = Backend::start("a", &["one"]);
    let (issuer, refusing) = (Issuer::start(), Refusing::new());
    let mut away = issuer.rules(Some(crate::AUDIENCE));
    away.issuer = "away".into();
    away.jwks_url = refusing.url().replace("/mcp", PATH).parse().unwrap();
    let gateway = Plan::one(&backend)
        .settings(trusting(&[&issuer]))
        .settings(move |settings| settings.auth.trusted_issuers.push(away))
        .start();
    let theirs = issuer.token("first", crate::AUDIENCE, serde_json::json!({"iss": "away"}));
    assert_eq!(status(&gateway, &theirs), 503);
    assert_eq!(status(&gateway, &token(&issuer, "first")), 200);
}

#[test]
fn the_last_keys_are_used_while_there_are_no_others_and_not_for_ever() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let good = token(&issuer, "first");
    let patient = gateway(&backend, &issuer);
    assert_eq!(status(&patient, &good), 200);
    let impatient = Plan::one(&backend)
        .settings(trusting(&[&issuer]))
        .settings(|settings| settings.timeouts.jwks_stale_max = Duration::from_secs(1))
        .start();
    issuer.say(500, "", "");
    patient.inner().reload();
    eventually("keys could not be fetched", || {
        (patient.metric("shardgate_jwks_failures_total") > 0).then_some(())
    });
    assert_eq!(status(&patient, &good), 200, "the last ones are used");
    assert_eq!(patient.metric("shardgate_jwks_keys"), 1);
    eventually("too old", || {
        (status(&impatient, &good) == 503).then_some(())
    });
    assert_eq!(impatient.metric("shardgate_jwks_keys"), 0);
    issuer.publish(&["first"]);
    impatient.inner().reload();
    eventually("it is back", || {
        (status(&impatient, &good) == 200).then_some(())
    });
}

#[test]
fn keys_come_over_tls_from_who_is_trusted_and_nobody_else() {
    let (backend, issuer) = (Backend::start("a", &["one"]), Issuer::start());
    let authority = Authority::new("the issuer's own");
    let identity = authority.issue(&["localhost"]);
    let url = format!("{}/mcp", issuer.name());
    let terminator = Terminator::start(identity.server(&VERSIONS), &url);
    let folder = Folder::new();
    let bundle = PathBuf::from(folder.write("issuer.pem", &authority.pem()));
    let good = token(&issuer, "first");
    for (bundle, expected) in [(Some(bundle), 200), (None, 503)] {
        let mut rules = issuer.rules(Some(crate::AUDIENCE));
        rules.jwks_url = format!("https://localhost:{}{PATH}", terminator.port())
            .parse()
            .unwrap();
        let gateway = Plan::one(&backend)
            .settings(move |settings| {
                settings.access.allow_anonymous = false;
                settings.auth.trusted_issuers = vec![rules];
                settings.auth.issuer_trust_bundle = bundle;
            })
            .start();
        assert_eq!(status(&gateway, &good), expected);
    }
    let seen = terminator.seen();
    assert!(seen.iter().all(|seen| seen.client_chain_length == 0));
    assert_eq!(seen[0].server_name.as_deref(), Some("localhost"));
}
