//! `server/discover`: what is said of the servers behind the gateway (DSC-1, DSC-2).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use crate::{
    SERVER_INFO, assert_no_session, assert_refused,
    support::{Backend, LAYOUTS, Layout, ModernClient, Plan, Refusing, eventually},
    whole_result,
};

fn discover(client: &mut ModernClient) -> Value {
    let response = client.ask("\"d\"", "server/discover", "");
    assert_eq!(response.message()["id"], "d");
    whole_result(&response)
}

#[test]
fn what_is_said_is_what_is_there() {
    for layout in LAYOUTS {
        let backend = Backend::modern_scripted("a", &["one"], |asked, wire| {
            match asked.rpc_method()?.as_str() {
                "prompts/list" => {
                    wire.complete(
                        asked,
                        r#""prompts":[{"name":"p"}],"ttlMs":1000,"cacheScope":"public""#,
                    );
                    Some(())
                }
                _ => None,
            }
        });
        backend.set_capabilities(r#"{"tools":{"listChanged":true},"prompts":{}}"#);
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = ModernClient::new(&gateway);
        let result = discover(&mut client);
        assert_eq!(
            result,
            json!({
                "resultType": "complete",
                "ttlMs": 30_000,
                "cacheScope": "private",
                "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
                "capabilities": {"tools": {"listChanged": true}, "prompts": {}},
                "_meta": {SERVER_INFO: {"name": "shardgate", "version": env!("CARGO_PKG_VERSION")}},
            })
        );
        // Each family that is advertised is served, and no other.
        for (method, is_there) in [
            ("tools/list", true),
            ("prompts/list", true),
            ("resources/list", false),
            ("resources/templates/list", false),
        ] {
            let response = client.ask("1", method, "");
            match is_there {
                true => drop(whole_result(&response)),
                false => drop(assert_refused(&response, 404, Some("1"), -32601)),
            }
        }
        for (method, params) in [
            ("resources/read", r#""uri":"x:1""#),
            (
                "completion/complete",
                r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}"#,
            ),
        ] {
            let response = client.ask("1", method, params);
            assert_refused(&response, 404, Some("1"), -32601);
        }
        assert_no_session(&gateway);
    }
}

#[test]
fn several_servers_are_said_to_be_one() {
    let a = Backend::modern("a", &["one"]);
    let b = Backend::modern("b", &["two"]);
    a.set_capabilities(r#"{"tools":{},"extensions":{"com.example/x":{}},"experimental":{"e":{}}}"#);
    b.set_capabilities(r#"{"tools":{},"resources":{"subscribe":true},"completions":{}}"#);
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())]).start();
    let result = discover(&mut ModernClient::new(&gateway));
    // What cannot be told apart through us is not said.
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}, "completions": {}})
    );
}

#[test]
fn a_server_nobody_reaches_is_no_stateless_one() {
    let a = Backend::modern("a", &["one"]);
    let old = Backend::start("b", &["two"]);
    let gateway = Plan::of(&[("a", &a.url()), ("b", &old.url())]).start();
    let mut client = ModernClient::new(&gateway);
    // Then a client that knows both opens a session, and misses nothing.
    let response = client.ask("1", "server/discover", "");
    assert_refused(&response, 404, Some("1"), -32601);
    assert_eq!(old.session_count(), 0);
}

#[test]
fn a_backend_that_is_away_is_left_out_for_now() {
    let a = Backend::modern("a", &["one"]);
    let away = Refusing::new();
    let gateway = Plan::of(&[("a", &a.url()), ("b", &away.url())]).start();
    let mut client = ModernClient::new(&gateway);
    let result = discover(&mut client);
    assert_eq!(result["ttlMs"], 0, "{result}");
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}})
    );
}

#[test]
fn the_answer_is_kept_for_each_principal_by_itself() {
    let one = Backend::modern("one", &["t"]);
    let two = Backend::modern("two", &["t"]);
    two.set_capabilities(r#"{"tools":{},"prompts":{}}"#);
    let host = |backend: &Backend| json!({"virtual_hosts": {"main": {"backends": {"x": {"url": backend.url()}}}}});
    for lists_max in [1, 1000] {
        let document = json!({"users": {"alice": host(&one), "bob": host(&two)}});
        let gateway = Plan::document(document)
            .with_tokens()
            .shards(1)
            .settings(move |settings| {
                settings.protocols.lists_max = lists_max;
                settings.protocols.discover_ttl_ms = 86_400_000;
            })
            .start();
        let mut alice = ModernClient::of(&gateway, "main", Some(&gateway.token("alice")));
        let mut bob = ModernClient::of(&gateway, "main", Some(&gateway.token("bob")));
        for _ in 0..3 {
            // With room for one they push each other out, and each still gets its own.
            assert_eq!(
                discover(&mut alice)["capabilities"],
                json!({"tools": {"listChanged": true}})
            );
            assert_eq!(
                discover(&mut bob)["capabilities"],
                json!({"tools": {"listChanged": true}, "prompts": {}})
            );
        }
    }
    // What a backend says of itself is no one's secret: it was asked once by each gateway.
    assert_eq!(one.seen_rpc("server/discover").len(), 2);
    assert_eq!(two.seen_rpc("server/discover").len(), 2);
}

#[test]
fn the_answer_is_kept_no_longer_than_was_said() {
    let is_new = Arc::new(AtomicBool::new(false));
    let backend = Backend::modern_scripted("a", &["one"], {
        let is_new = is_new.clone();
        move |asked, wire| {
            let capabilities = match is_new.load(Ordering::SeqCst) {
                true => r#"{"tools":{},"prompts":{}}"#,
                false => r#"{"tools":{}}"#,
            };
            asked.is("server/discover").then(|| {
                wire.complete(asked, &format!(r#""supportedVersions":["2026-07-28"],"capabilities":{capabilities},"ttlMs":0,"cacheScope":"public""#));
            })
        }
    });
    let gateway = Plan::one(&backend)
        .layout(Layout::One)
        .settings(|settings| settings.protocols.discover_ttl_ms = 1)
        .start();
    let mut client = ModernClient::new(&gateway);
    let result = discover(&mut client);
    assert_eq!(
        (&result["ttlMs"], &result["capabilities"]),
        (&json!(1), &json!({"tools": {"listChanged": true}}))
    );
    is_new.store(true, Ordering::SeqCst);
    eventually("what the backend says now", || {
        discover(&mut client)["capabilities"]
            .get("prompts")
            .map(drop)
    });
}
