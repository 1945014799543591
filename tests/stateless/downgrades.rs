//! What makes a backend count as one with sessions, and that trouble never does (DWN-1).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    assert_refused,
    support::{
        Asked, Backend, Gateway, Layout, McpClient, ModernClient, Plan, Refusing, Wire, eventually,
    },
    text_of, whole_result,
};

/// A bridge stands open: a backend that counted as old would be called in a session.
fn started(url: &str) -> Gateway {
    let document = json!({"virtual_hosts": {"main": {"backends": {
        "a": {"name": "a", "url": url, "bridge": "per-request", "session_independent_tools": ["*"]}
    }}}});
    Plan::document(document)
        .layout(Layout::One)
        .settings(|settings| {
            settings.timeouts.upstream_first_byte = Duration::from_millis(300);
            settings.timeouts.call = Duration::from_millis(600);
            settings.timeouts.initialize = Duration::from_millis(300);
        })
        .start()
}

type Trouble = fn(&Asked, &mut Wire<'_>);

/// Everything that says nothing about a backend's revision.
const TROUBLES: [(&str, Trouble); 15] = [
    ("401", |_, wire| {
        wire.answer(401, "www-authenticate: Bearer\r\n", "")
    }),
    ("403", |_, wire| wire.answer(403, "", "")),
    ("407", |_, wire| wire.answer(407, "", "")),
    ("429", |_, wire| wire.answer(429, "", "")),
    ("500", |_, wire| wire.answer(500, "", "")),
    ("502", |_, wire| {
        wire.answer(502, "content-type: text/html\r\n", "<html>")
    }),
    ("503", |_, wire| wire.answer(503, "retry-after: 1\r\n", "")),
    ("redirect", |_, wire| {
        wire.answer(307, "location: http://127.0.0.1:1/\r\n", "")
    }),
    ("-32020", |asked, wire| {
        wire.refuse(asked, 400, -32020, "null")
    }),
    ("-32021", |asked, wire| {
        wire.refuse(
            asked,
            400,
            -32021,
            r#"{"requiredCapabilities":{"sampling":{}}}"#,
        );
    }),
    ("-32022 newer", |asked, wire| {
        wire.refuse(
            asked,
            400,
            -32022,
            r#"{"supported":["2099-01-01"],"requested":"2026-07-28"}"#,
        );
    }),
    ("-32022 without data", |asked, wire| {
        wire.refuse(asked, 400, -32022, "null")
    }),
    ("no HTTP", |_, wire| {
        wire.send("canary\r\n\r\n");
        wire.close();
    }),
    ("closed", |_, wire| wire.close()),
    ("silent", |_, wire| {
        wire.await_end();
        wire.close();
    }),
];

#[test]
fn trouble_is_no_reason_to_open_a_session() {
    for (name, trouble) in TROUBLES {
        let is_over = Arc::new(AtomicBool::new(false));
        let backend = Backend::modern_scripted("a", &["one"], {
            let is_over = is_over.clone();
            move |asked, wire| {
                if is_over.load(Ordering::SeqCst) {
                    return None;
                }
                trouble(asked, wire);
                Some(())
            }
        });
        let gateway = started(&backend.url());
        let mut client = ModernClient::new(&gateway);
        for method in ["server/discover", "tools/list"] {
            let response = client.ask("1", method, "");
            assert_refused(&response, 200, Some("1"), -32603);
        }
        let response = client.call("1", "one", "{}");
        assert_refused(&response, 200, Some("1"), -32603);
        for asked in backend.seen() {
            assert!(asked.is("server/discover"), "{name}: {asked:?}");
        }
        // One request is one question, but where its connection just ended.
        let may_repeat = matches!(name, "closed" | "no HTTP");
        let questions = backend.seen().len();
        assert!(
            (1..=if may_repeat { 6 } else { 3 }).contains(&questions),
            "{name}: {questions}"
        );
        // It is not remembered either.
        is_over.store(true, Ordering::SeqCst);
        eventually(name, || {
            let response = client.call("2", "one", "{}");
            response.message().get("result").map(|_| text_of(&response))
        });
        assert!(backend.seen_rpc("initialize").is_empty(), "{name}");
        assert_eq!(gateway.metric("shardgate_stateless_bridged_total"), 0);
    }
}

/// The same while calls are made: what a backend is was found out before.
#[test]
fn trouble_with_a_call_changes_nothing_of_what_a_backend_is() {
    for (name, trouble) in TROUBLES {
        let backend = Backend::modern_scripted("a", &["one", "bad"], move |asked, wire| {
            (asked.tool()? == "bad").then(|| trouble(asked, wire))
        });
        let gateway = started(&backend.url());
        let mut client = ModernClient::new(&gateway);
        text_of(&client.call("1", "one", "{}"));
        let response = client.call("2", "bad", "{}");
        let code = if name == "-32021" {
            (400, -32021)
        } else {
            (200, -32603)
        };
        assert_refused(&response, code.0, Some("2"), code.1);
        text_of(&client.call("3", "one", "{}"));
        assert!(backend.seen_rpc("initialize").is_empty(), "{name}");
        let calls = backend.seen_rpc("tools/call").len();
        // Headers may be made anew once (mcp.md 2.2).
        assert!(calls <= 4, "{name}: {calls}");
    }
}

#[test]
fn a_backend_that_is_not_to_be_had_is_not_an_old_one() {
    let away = Refusing::new();
    let plain = Backend::modern("a", &["one"]);
    let no_tls = plain.url().replace("http://", "https://");
    for url in [
        away.url(),
        no_tls,
        "http://no-such-name.invalid/mcp".to_owned(),
    ] {
        let gateway = started(&url);
        let mut client = ModernClient::new(&gateway);
        for method in ["server/discover", "tools/list"] {
            assert_refused(&client.ask("1", method, ""), 200, Some("1"), -32603);
        }
        assert_refused(&client.call("1", "one", "{}"), 200, Some("1"), -32603);
        assert_eq!(gateway.metric("shardgate_stateless_bridged_total"), 0);
    }
    assert!(plain.seen().is_empty());
}

/// What real servers with sessions say when they are asked for what they do not know
/// (mcp.md 0.8).
const OLD: [(&str, Trouble); 7] = [
    ("400 -32000", |asked, wire| {
        wire.refuse(asked, 400, -32000, "null")
    }),
    ("400 -32600", |_, wire| {
        let body = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}"#;
        wire.answer(400, "content-type: application/json\r\n", body);
    }),
    ("404 -32601", |asked, wire| {
        wire.refuse(asked, 404, -32601, "null")
    }),
    ("200 -32601", |asked, wire| wire.error(asked, -32601, "m")),
    ("200 stream -32602", |asked, wire| {
        let id = asked.id();
        let data = format!(
            r#"data: {{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"m"}}}}"#
        );
        wire.answer(
            200,
            "content-type: text/event-stream\r\n",
            format!("{data}\n\n"),
        );
    }),
    ("400 empty", |_, wire| wire.answer(400, "", "")),
    ("-32022 older", |asked, wire| {
        wire.refuse(
            asked,
            400,
            -32022,
            r#"{"supported":["2025-11-25"],"requested":"2026-07-28"}"#,
        );
    }),
];

#[test]
fn servers_that_answer_as_old_ones_are_old_ones() {
    for (name, answer) in OLD {
        let backend = Backend::scripted("a", &["one"], move |asked, wire| {
            asked.is("server/discover").then(|| answer(asked, wire))
        });
        let gateway = started(&backend.url());
        let mut client = ModernClient::new(&gateway);
        for _ in 0..3 {
            assert_eq!(
                text_of(&client.call("1", "one", "{}")),
                "a one {}",
                "{name}"
            );
        }
        // It was asked once, and is known.
        assert_eq!(backend.seen_rpc("server/discover").len(), 1, "{name}");
        assert_eq!(gateway.metric("shardgate_stateless_bridged_total"), 3);
        eventually("sessions end", || {
            (backend.session_count() == 0).then_some(())
        });
    }
}

/// A backend that is written down as stateless is never anything else.
#[test]
fn a_backend_that_must_be_stateless_is_not_asked_for_a_session() {
    let backend = Backend::start("a", &["one"]);
    let document = json!({"virtual_hosts": {"main": {"backends": {
        "a": {"name": "a", "url": backend.url(), "protocol": "stateless", "bridge": "per-request", "session_independent_tools": ["*"]}
    }}}});
    let gateway = Plan::document(document).start();
    let mut client = ModernClient::new(&gateway);
    assert_refused(&client.call("1", "one", "{}"), 200, Some("1"), -32603);
    let mut session = McpClient::open(&gateway);
    assert_eq!(session.call("1", "one", "{}").error_code(), -32603);
    for asked in backend.seen() {
        assert!(asked.is("server/discover"), "{asked:?}");
    }
}

/// A backend that was replaced by one of the other kind is found out when it refuses.
#[test]
fn a_backend_that_became_another_is_found_out() {
    let is_old = Arc::new(AtomicBool::new(false));
    let backend = Backend::modern_scripted("a", &["one"], {
        let is_old = is_old.clone();
        move |asked, wire| {
            let data = r#"{"supported":["2025-11-25"],"requested":"2026-07-28"}"#;
            is_old
                .load(Ordering::SeqCst)
                .then(|| match asked.is("initialize") {
                    true => wire.initialize(asked),
                    false if asked.is("tools/call") && asked.header("mcp-session-id").is_some() => {
                        wire.text(asked, "in a session");
                    }
                    false if asked.header("mcp-session-id").is_some() => wire.answer(202, "", ""),
                    false => wire.refuse(asked, 400, -32022, data),
                })
        }
    });
    let gateway = started(&backend.url());
    let mut client = ModernClient::new(&gateway);
    text_of(&client.call("1", "one", "{}"));
    is_old.store(true, Ordering::SeqCst);
    let response = client.call("2", "one", "{}");
    assert_refused(&response, 200, Some("2"), -32603);
    assert_eq!(text_of(&client.call("3", "one", "{}")), "in a session");
}

#[test]
fn what_is_discovered_is_used_by_everybody() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = started(&backend.url());
    let mut clients: Vec<ModernClient> = (0..4).map(|_| ModernClient::new(&gateway)).collect();
    for client in &mut clients {
        let found: Value = whole_result(&client.ask("1", "server/discover", ""));
        assert!(found["capabilities"]["tools"].is_object());
        text_of(&client.call("1", "one", "{}"));
    }
    assert_eq!(backend.seen_rpc("server/discover").len(), 1);
}
