//! The faults of other gateways (baseline.md, "Faults of peers"): ours has none of them.
//!
//! Fault 1, stalls, is `back_to_back`; fault 4, Redis down with a cold cache, and fault 5, a second
//! process on the same address, are in `tests/operations`; fault 8 is about measuring.

use std::{sync::Arc, thread};

use base64::{
    Engine,
    engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use serde_json::Value;

use crate::{
    stage::Stage,
    support::{Backend, Gate, McpClient, Plan, eventually},
};

fn text_of(mut result: Value) -> String {
    match result["content"][0]["text"].take() {
        Value::String(text) => text,
        other => panic!("no text: {other}"),
    }
}

#[test]
fn a_session_and_its_end_leave_the_users_other_sessions_alone() {
    let backend = Backend::start("a", &["echo"]);
    let stage = Stage::start(Plan::one(&backend).with_tokens());
    let token = stage.gateway.token("ann@example.com");
    let open = || McpClient::open_on(&stage.gateway, "main", Some(&token));
    let mut first = open();
    let mut second = open();
    let mut third = open();
    assert_eq!(backend.session_count(), 3, "each has a session of its own");
    assert_eq!(backend.seen_rpc("initialize").len(), 3);

    assert_eq!(first.delete().status, 200);
    eventually("its backend session is deleted", || {
        (backend.session_count() == 2).then_some(())
    });
    for (client, backend_session) in [(&mut second, "a-session-2"), (&mut third, "a-session-3")] {
        let result = client.call("1", "echo", r#"{"text":"x"}"#).result();
        assert_eq!(text_of(result), r#"a echo {"text":"x"}"#);
        let calls = backend.seen_rpc("tools/call");
        let used = calls.last().unwrap().header("mcp-session-id");
        assert_eq!(used, Some(backend_session));
        assert_eq!(client.tool_names(), ["echo"]);
    }
    assert_eq!(first.call("1", "echo", "{}").status, 404);
    let deleted: Vec<_> = backend
        .seen()
        .into_iter()
        .filter(|asked| asked.method == "DELETE")
        .map(|asked| asked.header("mcp-session-id").map(str::to_owned))
        .collect();
    assert_eq!(deleted, [Some("a-session-1".to_owned())]);
    // None was opened in the place of another one.
    assert_eq!(backend.seen_rpc("initialize").len(), 3);
    stage.end();
}

#[test]
fn one_call_is_one_backend_request() {
    const CALLS: usize = 20;
    let (a, b) = (
        Backend::start("a", &["echo"]),
        Backend::start("b", &["echo"]),
    );
    let stage = Stage::open(&[("a", &a.url()), ("b", &b.url())]);
    let mut client = McpClient::open(&stage.gateway);
    let (before_a, before_b) = (a.seen().len(), b.seen().len());
    for call in 0..CALLS {
        let result = client.call(&call.to_string(), "a-echo", "{}").result();
        assert_eq!(text_of(result), "a echo {}");
    }
    assert_eq!(a.seen().len() - before_a, CALLS);
    assert_eq!(
        b.seen().len() - before_b,
        0,
        "the other backend is not asked"
    );
    stage.end();
}

#[test]
fn sixty_four_calls_at_once_on_one_session_all_succeed() {
    const CALLS: usize = 64;
    let gate = Arc::new(Gate::default());
    let waiting = gate.clone();
    let backend = Backend::scripted("a", &["echo"], move |asked, _| {
        if asked.tool().is_some() {
            waiting.wait();
        }
        None
    });
    let stage = Stage::start(Plan::one(&backend));
    let client = McpClient::open(&stage.gateway);
    let callers: Vec<_> = (0..CALLS)
        .map(|call| {
            let mut client = client.again();
            thread::spawn(move || {
                let arguments = format!(r#"{{"text":"call {call}"}}"#);
                let response = client.call(&call.to_string(), "echo", &arguments);
                assert_eq!(response.message()["id"], call);
                assert_eq!(text_of(response.result()), format!("a echo {arguments}"));
            })
        })
        .collect();
    // The backend has all of them before it answers one.
    gate.await_arrivals(CALLS);
    gate.open();
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(backend.seen_rpc("tools/call").len(), CALLS);
    assert_eq!(backend.session_count(), 1);
    let totals = stage.totals();
    assert_eq!((totals.calls, &*totals.failures), (CALLS as u64, &[][..]));
    stage.end();
}

/// All that a reader of base64 may find in `id`, from whatever character it starts.
fn decoded(id: &str) -> Vec<Vec<u8>> {
    let any_length = |engine: &GeneralPurpose, text: &str| {
        let whole = &text[..text.len() / 4 * 4];
        engine.decode(whole).ok()
    };
    let mut found = Vec::new();
    for start in 0..id.len() {
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            found.extend(any_length(engine, &id[start..]));
        }
    }
    found
}

fn holds(bytes: &[u8], needle: &str) -> bool {
    bytes
        .windows(needle.len())
        .any(|window| window.eq_ignore_ascii_case(needle.as_bytes()))
}

#[test]
fn a_session_id_tells_nothing_of_the_backends() {
    // The check itself finds what it looks for.
    let leaky = GeneralPurpose::new(&base64::alphabet::STANDARD, NO_PAD).encode("?a-session-1");
    assert!(
        decoded(&leaky)
            .iter()
            .any(|bytes| holds(bytes, "a-session-1"))
    );

    let (a, b) = (
        Backend::start("a", &["echo"]),
        Backend::start("b", &["echo"]),
    );
    let stage = Stage::open(&[("a", &a.url()), ("b", &b.url())]);
    let mut ids = Vec::new();
    for number in 1..=16 {
        let client = McpClient::open(&stage.gateway);
        let id = client.session.clone();
        assert_eq!(id.len(), 52);
        assert!(
            id.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)),
            "only the alphabet of the contract"
        );
        for backend in ["a", "b"] {
            let theirs = format!("{backend}-session-{number}");
            assert!(!holds(id.as_bytes(), &theirs));
            assert!(decoded(&id).iter().all(|bytes| !holds(bytes, &theirs)));
        }
        // Behind version, key and node nothing is shared with an earlier one.
        assert!(ids.iter().all(|other: &String| other[6..14] != id[6..14]));
        ids.push(id);
    }
    stage.end();
}
