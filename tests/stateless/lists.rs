//! Lists: the same for as long as they were said to hold, each principal's own, never cut short
//! (LST-1 to LST-3).

use serde_json::{Value, json};

use crate::{
    assert_no_session, assert_refused,
    support::{Backend, LAYOUTS, Layout, ModernClient, Plan, Refusing, Response, eventually},
    whole_result,
};

/// So long that no test sees the end of it.
const LONG_MS: u64 = 86_400_000;

/// The answer without its date of origin: status line apart, all its bytes.
fn bytes(response: &Response) -> (Vec<(String, String)>, Vec<u8>) {
    (response.headers.to_vec(), response.body.clone())
}

#[test]
fn every_connection_and_every_shard_says_the_same() {
    for layout in LAYOUTS {
        let a = Backend::modern("a", &["zeta", "alpha", "mu"]);
        let b = Backend::modern("b", &["beta"]);
        b.set_pages(&[&["omega"], &["beta"], &["chi", "psi"]]);
        let gateway = Plan::of(&[("b", &b.url()), ("a", &a.url())])
            .layout(layout)
            .start();
        let mut first = ModernClient::new(&gateway);
        let said = first.list();
        let result = whole_result(&said);
        assert_eq!(
            (&result["ttlMs"], &result["cacheScope"]),
            (&json!(30_000), &json!("private"))
        );
        assert!(result.get("nextCursor").is_none());
        assert_eq!(
            first.tool_names(),
            [
                "a-alpha", "a-mu", "a-zeta", "b-beta", "b-chi", "b-omega", "b-psi"
            ]
        );
        // What one connection did before changes nothing for it or for others.
        first.call("1", "a-mu", "{}");
        for _ in 0..32 {
            let mut other = first.again();
            assert_eq!(bytes(&other.list()), bytes(&said));
        }
        assert_eq!(bytes(&first.list()), bytes(&said));
        assert!(a.seen_rpc("tools/list").len() <= gateway.shards);
        assert_no_session(&gateway);
    }
}

#[test]
fn everybody_sees_his_own() {
    let backend = Backend::modern("a", &["one", "two", "three"]);
    let host = |allowed: Value| json!({"virtual_hosts": {"main": {"backends": {"a": {"url": backend.url(), "allowed_tool_names": allowed}}}}});
    let document =
        json!({"users": {"alice": host(json!(["one", "two"])), "bob": host(json!(["three"]))}});
    for layout in LAYOUTS {
        let gateway = Plan::document(document.clone())
            .layout(layout)
            .with_tokens()
            .start();
        let mut alice = ModernClient::of(&gateway, "main", Some(&gateway.token("alice")));
        let mut bob = ModernClient::of(&gateway, "main", Some(&gateway.token("bob")));
        for _ in 0..4 {
            assert_eq!(alice.tool_names(), ["one", "two"]);
            assert_eq!(bob.tool_names(), ["three"]);
        }
        // The same bytes, whatever token of his he comes with, and on whose connection.
        let said = bytes(&alice.list());
        let mut again = ModernClient::of(&gateway, "main", Some(&gateway.token("alice")));
        assert_eq!(bytes(&again.list()), said);
        bob.token.clone_from(&alice.token);
        assert_eq!(bytes(&bob.list()), said);
        // What is not shown is not there.
        bob.token = Some(gateway.token("bob"));
        let response = bob.call("1", "one", "{}");
        assert_eq!(response.error_code(), -32602);
    }
    let called = backend.seen_rpc("tools/call");
    assert!(called.is_empty(), "{called:?}");
}

/// Two with the same configuration: what a backend told one of them it has not told the other.
#[test]
fn nobody_is_given_what_was_kept_for_another() {
    let backend = Backend::modern("a", &["one"]);
    let host = json!({"virtual_hosts": {"main": {"backends": {"a": {"name": "a", "url": backend.url()}}}}});
    let gateway = Plan::document(json!({"users": {"*": host}}))
        .layout(Layout::One)
        .with_tokens()
        .start();
    for count in 1..=3 {
        let token = gateway.token(&format!("user-{count}"));
        let mut client = ModernClient::of(&gateway, "main", Some(&token));
        for _ in 0..2 {
            assert_eq!(client.tool_names(), ["one"]);
            assert_eq!(backend.seen_rpc("tools/list").len(), count);
        }
    }
}

/// An answer that a backend would have everybody keep is for its principal alone.
#[test]
fn what_depends_on_the_caller_is_private() {
    let backend = Backend::modern_scripted("a", &["one"], |asked, wire| {
        asked.is("resources/read").then(|| {
            wire.complete(asked, r#""contents":[],"ttlMs":5000,"cacheScope":"public""#);
        })
    });
    backend.set_capabilities(r#"{"tools":{},"resources":{}}"#);
    let host = json!({"virtual_hosts": {"main": {"backends": {"a": {"url": backend.url()}}}}});
    let gateway = Plan::document(json!({"users": {"*": host}}))
        .with_tokens()
        .start();
    let mut client = ModernClient::of(&gateway, "main", Some(&gateway.token("a")));
    let result = whole_result(&client.ask("1", "resources/read", r#""uri":"x:1""#));
    assert_eq!(
        (&result["ttlMs"], &result["cacheScope"]),
        (&json!(5000), &json!("private"))
    );
    assert_eq!(whole_result(&client.list())["cacheScope"], "private");
}

#[test]
fn a_list_holds_no_longer_than_its_shortest_part() {
    let a = Backend::modern("a", &["one"]);
    let b = Backend::modern("b", &["two"]);
    a.set_ttl_ms(7_000);
    b.set_ttl_ms(9_000);
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
        .shards(1)
        .start();
    let mut client = ModernClient::new(&gateway);
    assert_eq!(whole_result(&client.list())["ttlMs"], 7_000);
    // One of which it does not hold at all is asked for each time.
    a.set_ttl_ms(0);
    let fresh = Plan::one(&a).shards(1).start();
    let mut client = ModernClient::new(&fresh);
    let before = a.seen_rpc("tools/list").len();
    for _ in 0..3 {
        assert_eq!(whole_result(&client.list())["ttlMs"], 0);
    }
    assert_eq!(a.seen_rpc("tools/list").len(), before + 3);
    assert_eq!(fresh.metric("shardgate_lists_cached_total"), 0);
}

#[test]
fn a_list_with_a_backend_missing_is_not_kept() {
    let a = Backend::modern("a", &["one"]);
    let away = Refusing::new();
    let gateway = Plan::of(&[("a", &a.url()), ("b", &away.url())])
        .shards(1)
        .start();
    let mut client = ModernClient::new(&gateway);
    let result = whole_result(&client.list());
    assert_eq!(result["ttlMs"], 0);
    assert_eq!(result["tools"].as_array().unwrap().len(), 1);
    assert_eq!(result["_meta"]["shardgate/unavailable"], json!(["b"]));
    let late = Backend::modern_scripted_on(away.listen(), "b", &["two"], |_, _| None);
    eventually("the other is there", || {
        (client.tool_names() == ["a-one", "b-two"]).then_some(())
    });
    drop(late);
    // With nobody there, there is no list.
    let nobody = Plan::of(&[("b", &Refusing::new().url())]).start();
    let response = ModernClient::new(&nobody).list();
    assert_refused(&response, 200, Some("\"list\""), -32603);
}

#[test]
fn too_many_items_are_refused_whole_and_not_kept() {
    let backend = Backend::modern("a", &["one", "two", "three"]);
    let gateway = Plan::one(&backend)
        .shards(1)
        .settings(|settings| settings.protocols.list_items_max = 2)
        .start();
    let mut client = ModernClient::new(&gateway);
    for _ in 0..2 {
        let data = assert_refused(&client.list(), 400, Some("\"list\""), -31001);
        assert_eq!(data, json!({"reason": "catalog_items"}));
    }
    backend.set_pages(&[&["one", "two"]]);
    assert_eq!(client.tool_names(), ["one", "two"]);
}

const RESPONSE_BYTES_MAX: usize = 4096;

#[test]
fn too_long_a_list_is_refused_whole_and_not_kept() {
    let (a, b) = (Backend::modern("a", &[]), Backend::modern("b", &[]));
    let tool = |letter: &str, length: usize| {
        format!(
            r#"{{"name":"{letter}","description":"{}","inputSchema":{{"type":"object"}}}}"#,
            letter.repeat(length)
        )
    };
    let (long, short) = (tool("x", 2500), tool("y", 10));
    // Each of them may say it; both together are too much.
    a.set_pages(&[&[&long]]);
    b.set_pages(&[&[&long]]);
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
        .shards(1)
        .settings(|settings| settings.limits.response_bytes_max = RESPONSE_BYTES_MAX)
        .start();
    let mut client = ModernClient::new(&gateway);
    for _ in 0..2 {
        let data = assert_refused(&client.list(), 400, Some("\"list\""), -31001);
        assert_eq!(data, json!({"reason": "response_bytes"}));
    }
    b.set_pages(&[&[&short]]);
    assert_eq!(client.tool_names(), ["a-x", "b-y"]);
    // What was kept is measured with the id it is sent with.
    let id = format!("\"{}\"", "i".repeat(2048));
    let response = client.ask(&id, "tools/list", "");
    let data = assert_refused(&response, 400, Some(&id), -31001);
    assert_eq!(data, json!({"reason": "response_bytes"}));
    assert_eq!(client.tool_names(), ["a-x", "b-y"]);
    assert_eq!(gateway.metric("shardgate_lists_cached_total"), 1);
}

#[test]
fn cursors_are_ours_or_none() {
    let backend = Backend::modern("a", &["one", "two", "three"]);
    let gateway = Plan::one(&backend)
        .settings(|settings| settings.limits.page_items_max = 2)
        .start();
    let mut client = ModernClient::new(&gateway);
    let first = whole_result(&client.list());
    assert_eq!(first["tools"].as_array().unwrap().len(), 2);
    let cursor = first["nextCursor"].to_string();
    let second = whole_result(&client.ask("1", "tools/list", &format!(r#""cursor":{cursor}"#)));
    assert_eq!(second["tools"].as_array().unwrap().len(), 1);
    assert!(second.get("nextCursor").is_none());
    assert_eq!(first["cacheScope"], second["cacheScope"]);
    let same = whole_result(&client.ask("1", "tools/list", r#""cursor":null"#));
    assert_eq!(same, first);
    let mut other = cursor.clone().into_bytes();
    other[5] ^= 1;
    let other = String::from_utf8(other).unwrap();
    for bad in ["\"\"", "\"2\"", &other, "7", "{}", "[]", "true"] {
        let response = client.ask("1", "tools/list", &format!(r#""cursor":{bad}"#));
        assert_refused(&response, 400, Some("1"), -32602);
    }
    // Of another list, or of another virtual host's.
    let response = client.ask("1", "prompts/list", &format!(r#""cursor":{cursor}"#));
    assert_refused(&response, 400, Some("1"), -32602);
}

#[test]
fn a_new_configuration_is_seen_before_the_old_list_is_due() {
    for layout in LAYOUTS {
        let backend = Backend::modern("a", &["one", "two"]);
        let gateway = Plan::one(&backend)
            .layout(layout)
            .settings(|settings| {
                settings.protocols.list_ttl_ms = LONG_MS;
                settings.protocols.discover_ttl_ms = LONG_MS;
            })
            .start();
        backend.set_ttl_ms(LONG_MS);
        let clients = || (0..16).map(|_| ModernClient::new(&gateway));
        let mut kept: Vec<ModernClient> = clients().collect();
        for client in &mut kept {
            assert_eq!(client.tool_names(), ["one", "two"]);
        }
        let asked = backend.seen_rpc("tools/list").len();
        assert!(asked <= gateway.shards, "{asked}");
        let document = json!({"virtual_hosts": {"main": {"backends": {
            "a": {"name": "a", "url": backend.url(), "allowed_tool_names": ["two"]}
        }}}});
        std::fs::write(gateway.config_path(), document.to_string()).unwrap();
        for client in &mut kept {
            eventually("the new list", || {
                (client.tool_names() == ["two"]).then_some(())
            });
            let response = client.call("1", "one", "{}");
            assert_eq!(response.error_code(), -32602);
        }
    }
}

/// The number of kept lists is bounded; who is pushed out asks again.
#[test]
fn kept_lists_are_bounded() {
    let backend = Backend::modern("a", &["one"]);
    let host = json!({"virtual_hosts": {"main": {"backends": {"a": {"url": backend.url()}}}}});
    let gateway = Plan::document(json!({"users": {"*": host}}))
        .shards(1)
        .with_tokens()
        .settings(|settings| settings.protocols.lists_max = 2)
        .start();
    for round in 0..3 {
        for number in 0..8 {
            let token = gateway.token(&format!("user-{number}"));
            let mut client = ModernClient::of(&gateway, "main", Some(&token));
            assert_eq!(client.tool_names(), ["one"], "{round}");
        }
    }
    let asked = backend.seen_rpc("tools/list").len();
    assert!(asked > 8, "{asked}");
    assert!(gateway.metric("shardgate_lists_cached_total") <= 24 - asked as u64);
}

/// Tools whose marks are invalid are left out, and counted.
#[test]
fn tools_with_invalid_marks_are_left_out() {
    let bad = |name: &str, property: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"p":{property}}}}}}}"#
        )
    };
    let tools = [
        r#"{"name":"good","inputSchema":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"P"}}}}"#.to_owned(),
        bad("empty", r#"{"type":"string","x-mcp-header":""}"#),
        bad("blank", r#"{"type":"string","x-mcp-header":"a b"}"#),
        bad("line", r#"{"type":"string","x-mcp-header":"a\r\nb"}"#),
        bad("umlaut", r#"{"type":"string","x-mcp-header":"ä"}"#),
        bad("number", r#"{"type":"number","x-mcp-header":"P"}"#),
        bad("object", r#"{"type":"object","x-mcp-header":"P"}"#),
        bad("array", r#"{"type":"array","items":{"type":"string","x-mcp-header":"P"}}"#),
        bad("union", r#"{"type":["string","null"],"x-mcp-header":"P"}"#),
        bad("branch", r#"{"anyOf":[{"type":"string","x-mcp-header":"P"}]}"#),
        bad("twice", r#"{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"P"},"b":{"type":"string","x-mcp-header":"p"}}}"#),
        bad("no_text", r#"{"type":"string","x-mcp-header":7}"#),
    ];
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let backend = Backend::modern("a", &tools);
    let gateway = Plan::one(&backend).layout(Layout::One).start();
    let mut client = ModernClient::new(&gateway);
    assert_eq!(client.tool_names(), ["good"]);
    assert_eq!(gateway.metric("shardgate_tools_invalid_total"), 11);
}
