//! Who is let in, and to whom a session belongs: on every method, path and shard.

use loadgen::backend::{Backend, BackendKind, BackendOptions};

use crate::{
    caller::{Caller, LIST, SECRET, call, metric, now_unix_s, token, token_at},
    process::{Folder, Process, until},
};

/// A gateway with a counter behind two virtual hosts, of which everybody has both.
struct House {
    process: Process,
    _home: Folder,
    _counter: Backend,
}

impl House {
    fn new() -> Self {
        let counter = Backend::start(BackendOptions {
            kind: BackendKind::Counter,
            ..BackendOptions::default()
        })
        .unwrap();
        let home = Folder::new();
        let host = format!(
            r#"{{"backends":{{"n":{{"name":"n","url":"{}"}}}}}}"#,
            counter.url()
        );
        let users =
            format!(r#"{{"virtual_hosts":{{"one":{host},"two":{host},"default":{host}}}}}"#);
        let process = Process::serve(
            &home,
            &[
                "--config-file",
                &home.write("users.json", &users),
                "--token-verification-secret",
                SECRET,
                "--upstream-connection-mode",
                "plain-text-or-tls",
            ],
        );
        Self {
            process,
            _home: home,
            _counter: counter,
        }
    }

    fn caller(&self, path: &str, token: String) -> Caller {
        Caller::new(self.process.address(), path, Some(token))
    }

    /// Connections that moved to another shard, and requests that were forwarded to one.
    fn steered(&self) -> (u64, u64) {
        let admin = self.process.admin_address();
        (
            metric(admin, "shardgate_handed_over_total"),
            metric(admin, "shardgate_forwarded_total"),
        )
    }

    /// Asserts that `caller` has no session, on each method, until requests of his have moved to
    /// another shard and have been forwarded to one.
    fn assert_no_session(&self, caller: &Caller) {
        let before = self.steered();
        until("requests came in on another shard, too", || {
            for answer in [
                caller.post(LIST),
                caller.post_chunked(LIST),
                caller.get(),
                caller.delete(),
            ] {
                assert_eq!(answer.status, 404, "{answer:?}");
                assert_eq!(answer.json()["error"]["code"], -32001, "{answer:?}");
            }
            let after = self.steered();
            (after.0 > before.0 && after.1 > before.1).then_some(())
        });
    }
}

fn next(caller: &Caller) -> String {
    caller.post(&call("increment", "{}")).tool_text()
}

#[test]
fn without_a_valid_token_nothing_is_told_but_the_challenge() {
    let house = House::new();
    let good = token("ann");
    let (parts, signature) = good.rsplit_once('.').unwrap();
    let broken = format!("Bearer {parts}.{}", &signature[1..]);
    let expired = token_at("ann", now_unix_s() - 7200, 3600);
    let invalid = "Bearer error=\"invalid_token\"";
    let cases = [
        (String::new(), "Bearer"),
        ("Basic YTpi".to_owned(), "Bearer"),
        (format!("bearer {good}"), "Bearer"),
        (format!("Bearer  {good}"), "Bearer"),
        ("Bearer a.b.c".to_owned(), invalid),
        (broken, invalid),
        (format!("Bearer {parts}."), invalid),
        (format!("Bearer {expired}"), invalid),
    ];
    let mut caller = house.caller("", String::new());
    for (value, challenge) in cases {
        for path in [
            "/mcp",
            "/servers/one/mcp",
            "/contextforge-rs/servers/no/mcp",
        ] {
            caller.path = path.to_owned();
            for method in ["POST", "GET", "DELETE"] {
                let answer = caller.with_authorization(method, &value);
                assert_eq!(
                    (answer.status, &*answer.body),
                    (401, ""),
                    "{value} {answer:?}"
                );
                assert_eq!(answer.header("content-type"), Some("text/plain"));
                let told = answer.header("www-authenticate").unwrap();
                assert!(told.starts_with(challenge), "{value}: {told}");
            }
        }
    }
    assert_eq!(
        house.caller("/servers/one/mcp", good).post(LIST).status,
        400
    );
}

#[test]
fn a_refreshed_token_keeps_its_session() {
    let house = House::new();
    let first = token_at("ann", now_unix_s() - 10, 3600);
    let mut ann = house.caller("/servers/one/mcp", first.clone());
    ann.open();
    assert_eq!(next(&ann), "1");
    // Another jti, another exp, the same person.
    let second = token("ann");
    assert_ne!(first, second);
    ann.token = Some(second);
    for count in 2..20 {
        assert_eq!(next(&ann), count.to_string());
    }
    assert_eq!(ann.delete().status, 200);
}

#[test]
fn a_session_is_nobody_elses_whatever_he_asks_and_wherever_he_comes_in() {
    let house = House::new();
    let mut ann = house.caller("/servers/one/mcp", token("ann"));
    ann.open();
    assert_eq!(next(&ann), "1");
    let mut bob = ann.clone();
    bob.token = Some(token("bob"));
    house.assert_no_session(&bob);
    // A session of his own changes nothing about that.
    let mut own = house.caller("/servers/one/mcp", token("bob"));
    own.open();
    house.assert_no_session(&bob);
    assert_eq!((next(&own), next(&ann)), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn a_session_is_of_no_other_virtual_host() {
    let house = House::new();
    let mut ann = house.caller("/servers/one/mcp", token("ann"));
    ann.open();
    assert_eq!(next(&ann), "1");
    for path in [
        "/servers/two/mcp",
        "/contextforge-rs/servers/two/mcp",
        "/mcp",
    ] {
        let mut elsewhere = ann.clone();
        elsewhere.path = path.to_owned();
        house.assert_no_session(&elsewhere);
    }
    // The same virtual host under its other path.
    ann.path = "/contextforge-rs/servers/one/mcp".to_owned();
    assert_eq!(next(&ann), "2");
}

#[test]
fn a_forged_session_id_is_unknown() {
    let house = House::new();
    let mut ann = house.caller("/servers/one/mcp", token("ann"));
    ann.open();
    let id = ann.session.clone().unwrap();
    for position in [0, 5, 20, id.len() - 1] {
        let mut bytes = id.clone().into_bytes();
        bytes[position] = if bytes[position] == b'A' { b'B' } else { b'A' };
        let mut forger = ann.clone();
        forger.session = Some(String::from_utf8(bytes).unwrap());
        for answer in [forger.post(LIST), forger.get(), forger.delete()] {
            assert_eq!(answer.status, 404, "{answer:?}");
        }
    }
    assert_eq!(next(&ann), "1");
}

#[test]
fn an_expired_token_is_refused_although_it_is_cached() {
    let house = House::new();
    // A minute of leeway is over in three seconds.
    let brief = token_at("ann", now_unix_s() - 117, 60);
    let mut ann = house.caller("/servers/one/mcp", brief);
    ann.open();
    let verified = || {
        let admin = house.process.admin_address();
        metric(admin, "shardgate_tokens_verified_total")
    };
    let end = until("the token's time is over", || {
        let answer = ann.post(LIST);
        (answer.status != 200).then_some(answer)
    });
    assert_eq!((end.status, &*end.body), (401, ""));
    // Two shards verified it once each; every other request found it in their caches.
    let before = verified();
    for _ in 0..10 {
        assert_eq!(ann.post(LIST).status, 401);
    }
    assert_eq!(verified() - before, 10, "what has expired is not kept");
    // The session outlives the token.
    ann.token = Some(token("ann"));
    assert_eq!(next(&ann), "1");
}
