//! Promise 18: what cannot be used never replaces what can, whoever damaged it and how. Documents
//! and values of Redis, mutated and oversized, with declared tools in them, one after another
//! before a running gateway: each refusal is counted and logged, and the last good stays in force.

use serde_json::json;
use shardgate::config::{
    encode::{ArrayLayout, encode_array, encode_map},
    user_config::UserConfig,
};

use crate::{
    caller::{Caller, SECRET, metric, token},
    is_long,
    mutate::Mutator,
    process::{Folder, Process, until},
    redis_config::{Seen, both, caller, info, look, publish, until_seen},
};

/// More than any document may have (4 MiB).
const TOO_LONG: usize = 4 * 1024 * 1024 + 1;

/// A configuration with a backend, declared tools of both kinds and rules for them.
fn good() -> UserConfig {
    let tool = |name: &str, schema: serde_json::Value| {
        json!({
            "name": name, "targetHost": "https://api.example.com", "path": format!("/v1/{name}"),
            "description": "Says how it is.", "inputSchema": schema,
        })
    };
    let config = json!({"virtual_hosts": {"one": {
        "backends": {"counter": {
            "name": "counter", "url": "http://127.0.0.1:9/mcp",
            "allowed_tool_names": ["increment", "get"], "tool_name_aliases": {"get": "read"},
            "passthrough_headers": ["x-request-id"], "add_headers": {"x-from": "gateway"},
        }},
        "tools": [
            tool("weather", json!({"type": "object", "required": ["city"],
                "properties": {"city": {"type": "string", "maxLength": 64}}})),
            tool("tides", json!({"type": "object", "additionalProperties": false})),
        ],
    }}});
    serde_json::from_value(config).unwrap()
}

/// A document that is too long by white space alone, and one that is by a name.
fn oversized(document: &str) -> [Vec<u8>; 2] {
    let spaced = format!("{}{document}", " ".repeat(TOO_LONG));
    let named = document.replacen("\"counter\"", &format!("\"{}\"", "c".repeat(TOO_LONG)), 1);
    assert!(named.len() > TOO_LONG);
    [spaced.into_bytes(), named.into_bytes()]
}

/// How often a process has said so.
fn said(process: &Process, part: &str) -> u64 {
    u64::try_from(process.stderr().matches(part).count()).unwrap()
}

#[test]
fn a_damaged_document_never_replaces_a_good_one() {
    let refusals_wanted = if is_long() { 1_000 } else { 60 };
    let document = json!({"users": {"a": good()}, "revoked_tokens": ["gone"]}).to_string();
    let home = Folder::new();
    let path = home.write("users.json", &document);
    let process = Process::serve(
        &home,
        &[
            "--config-file",
            &path,
            "--token-verification-secret",
            SECRET,
        ],
    );
    let admin = process.admin_address();
    let one = Caller::new(process.address(), "/servers/one/mcp", Some(token("a")));
    assert_eq!(look(&one), Seen::Host);
    // In one step, so that no half of it is read.
    let replace = |bytes: &[u8]| {
        let before = (
            said(&process, "user configurations stay as they were"),
            said(&process, "user configurations were read again"),
        );
        let next = home.file("next");
        std::fs::write(&next, bytes).unwrap();
        std::fs::rename(next, &path).unwrap();
        until("it is refused or taken, and that is said", || {
            let refused = said(&process, "user configurations stay as they were");
            let taken = said(&process, "user configurations were read again");
            (refused + taken > before.0 + before.1).then_some(refused > before.0)
        })
    };
    let mut mutator = Mutator::new(18);
    let seeds = [document.clone().into_bytes()];
    let mut large = oversized(&document).into_iter();
    let (mut refused, mut taken) = (0, 0);
    while refused < refusals_wanted {
        let bytes = large.next().unwrap_or_else(|| mutator.mutant(&seeds));
        if replace(&bytes) {
            refused += 1;
            assert_eq!(
                look(&one),
                Seen::Host,
                "{}",
                String::from_utf8_lossy(&bytes)
            );
        } else {
            // Some damage makes another good one.
            assert!(bytes.len() < TOO_LONG);
            taken += 1;
            assert!(!replace(document.as_bytes()), "the good one is taken");
            until_seen(&one, Seen::Host);
        }
    }
    println!("{refused} documents refused, {taken} taken");
    assert_eq!(metric(admin, "shardgate_reloads_refused_total"), refused);
    assert_eq!(
        said(&process, "user configurations stay as they were"),
        refused
    );
    assert_eq!(metric(admin, "shardgate_panics_total"), 0);
}

#[test]
fn a_damaged_value_in_redis_never_replaces_a_good_one() {
    let refusals_wanted = if is_long() { 1_000 } else { 40 };
    // Kept for a minute: only a change makes a shard read.
    let (redis, process, _home) = both(&["--user-config-cache-expiry-seconds", "60"]);
    let mut store = redis.admin();
    let admin = process.admin_address();
    let good = good();
    let seeds = [
        encode_map(&good),
        encode_array(&good, ArrayLayout::Head),
        encode_array(&good, ArrayLayout::Seed),
    ];
    publish(&mut store, "ann", &seeds[0]);
    let ann = caller(&process, "ann", "one");
    until_seen(&ann, Seen::Host);
    let bad = || metric(admin, "shardgate_configs_bad_total");
    let loaded = || metric(admin, "shardgate_configs_loaded_total");
    let mut mutator = Mutator::new(18);
    let (mut refused, mut taken) = (0, 0);
    while refused < refusals_wanted {
        let value = mutator.mutant(&seeds);
        if seeds.contains(&value) {
            continue;
        }
        let before = (bad(), loaded());
        publish(&mut store, "ann", &value);
        let is_refused = until("both shards have read it", || {
            let seen = look(&ann);
            let (bad, loaded) = (bad() - before.0, loaded() - before.1);
            if bad > 0 {
                assert_eq!(seen, Seen::Host, "{value:?}");
            }
            (bad + loaded >= 2).then_some(bad > 0)
        });
        if is_refused {
            refused += 1;
            until_seen(&ann, Seen::Host);
        } else {
            taken += 1;
            publish(&mut store, "ann", &seeds[0]);
            until_seen(&ann, Seen::Host);
        }
    }
    // One user's value that is too long costs nobody else the connection.
    let bob = caller(&process, "bob", "one");
    let reconnects = || info(&mut redis.admin(), "stats", "total_connections_received:");
    publish(&mut store, "bob", &vec![b'x'; TOO_LONG]);
    let connections: u64 = reconnects().parse().unwrap();
    for _ in 0..20 {
        assert_eq!(look(&bob), Seen::BadConfig);
    }
    assert_eq!(reconnects().parse::<u64>().unwrap(), connections + 1);
    publish(&mut store, "bob", &seeds[0]);
    until_seen(&bob, Seen::Host);
    let before = bad();
    publish(&mut store, "bob", &vec![b'x'; TOO_LONG]);
    until("the long value is met", || {
        assert_eq!(look(&bob), Seen::Host);
        (bad() >= before + 2).then_some(())
    });
    println!("{refused} values refused, {taken} taken");
    let counted = bad();
    until("each refusal is logged", || {
        let said = said(&process, "a user configuration in the store cannot be read");
        (said == counted).then_some(())
    });
    assert!(counted >= 2 * refused, "{counted} of {refused}");
    assert_eq!(metric(admin, "shardgate_panics_total"), 0);
}
