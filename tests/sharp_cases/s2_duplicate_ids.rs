//! S2: equal request ids in flight at once; reliability promise 6: nobody sees another's bytes.

use std::sync::{Arc, Barrier};

use crate::{
    support::{Asked, Backend, Gate, LAYOUTS, Layout, McpClient, Plan, Wire},
    text_of,
};

/// A backend whose tool `slow` answers only once the gate is open.
fn with_slow_tool() -> (Backend, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let backend = Backend::scripted("a", &["slow", "fast"], {
        let gate = gate.clone();
        move |asked: &Asked, _: &mut Wire<'_>| {
            if asked.tool().as_deref() == Some("slow") {
                gate.wait();
            }
            None
        }
    });
    (backend, gate)
}

#[test]
fn s2_the_fast_call_overtakes_the_slow_one_with_the_same_id() {
    for (layout, slow_id, fast_id) in [
        (Layout::One, "1", "1"),
        (Layout::Two, "1", "1"),
        (Layout::Spread, "1", "1"),
        (Layout::One, "1", r#""1""#),
        (Layout::Spread, r#""1""#, "1"),
        (Layout::Two, "0", r#""""#),
    ] {
        let (backend, gate) = with_slow_tool();
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut slow = McpClient::open(&gateway);
        let mut fast = slow.again();
        slow.send_call(slow_id, "slow", r#"{"echo":"S"}"#);
        gate.await_arrivals(1);
        let response = fast.call(fast_id, "fast", r#"{"echo":"F"}"#);
        assert!(!gate.is_open());
        assert_eq!(text_of(&response), r#"a fast {"echo":"F"}"#);
        assert_eq!(response.message()["id"].to_string(), fast_id);
        gate.open();
        let response = slow.connection.read_response();
        assert_eq!(text_of(&response), r#"a slow {"echo":"S"}"#);
        assert_eq!(response.message()["id"].to_string(), slow_id);
        let ids: Vec<String> = backend
            .seen_rpc("tools/call")
            .iter()
            .map(Asked::id)
            .collect();
        assert_ne!(
            ids[0], ids[1],
            "the backend must be able to tell them apart"
        );
    }
}

#[test]
fn s2_sixty_four_calls_with_one_id_each_get_their_own_answer() {
    for layout in LAYOUTS {
        let (backend, gate) = with_slow_tool();
        let gateway = Plan::one(&backend).layout(layout).start();
        let first = McpClient::open(&gateway);
        let mut clients: Vec<McpClient> = (0..64).map(|_| first.again()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_call("1", "slow", &format!(r#"{{"number":{number}}}"#));
        }
        gate.await_arrivals(64);
        gate.open();
        for (number, client) in clients.iter_mut().enumerate() {
            let response = client.connection.read_response();
            assert_eq!(
                text_of(&response),
                format!(r#"a slow {{"number":{number}}}"#)
            );
            assert_eq!(response.message()["id"], 1);
        }
    }
}

#[test]
fn s2_two_sessions_may_use_one_id() {
    for layout in LAYOUTS {
        let (backend, gate) = with_slow_tool();
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut slow: Vec<McpClient> = (0..4).map(|_| McpClient::open(&gateway)).collect();
        for (number, client) in slow.iter_mut().enumerate() {
            client.send_call("1", "slow", &format!(r#"{{"session":{number}}}"#));
        }
        gate.await_arrivals(4);
        gate.open();
        for (number, client) in slow.iter_mut().enumerate() {
            let response = client.connection.read_response();
            assert_eq!(
                text_of(&response),
                format!(r#"a slow {{"session":{number}}}"#)
            );
        }
    }
}

#[test]
fn s2_ids_of_every_form_come_back_as_they_were_sent() {
    let (backend, _gate) = with_slow_tool();
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "123456789012345678901234567890",
        r#""""#,
        r#""0""#,
        r#""\u00e9\/é""#,
        r#""a\"b\\""#,
    ] {
        for response in [
            client.call(id, "fast", "{}"),
            client.call(id, "nope-nothing", "{}"),
            client.post(format!(r#"{{"id":{id},"method":"ping","jsonrpc":"2.0"}}"#)),
            client.post(format!(
                r#"{{"id":{id},"method":"tools/list","jsonrpc":"2.0"}}"#
            )),
        ] {
            let raw = response.raw_message();
            assert!(raw.contains(&format!(r#""id":{id},"#)), "{id}: {raw}");
        }
    }
}

/// Principals share the pool to one backend and use the same ids at the same time; half of the
/// answers are streams. Every answer must carry its own canary and no other.
#[test]
fn s2_no_principal_sees_anothers_bytes() {
    const PRINCIPALS: usize = 6;
    const CALLS: usize = 40;
    let backend = Backend::scripted("a", &["echo"], |asked, wire| {
        let canary = asked.json()["params"]["arguments"]["canary"]
            .as_str()?
            .to_owned();
        let id = asked.id();
        let response = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{canary}"}}]}}}}"#
        );
        if canary.ends_with(['1', '3', '5', '7', '9']) {
            let note = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{canary}"}}}}"#
            );
            let stream = format!("data: {note}\n\ndata: {response}\n\n");
            wire.answer(200, "content-type: text/event-stream\r\n", stream);
        } else {
            wire.json(response);
        }
        Some(())
    });
    for layout in LAYOUTS {
        let document = serde_json::json!({"users": {"*": {"virtual_hosts": {"main": {"backends": {
            "a": {"name": "a", "url": backend.url()}
        }}}}}});
        let gateway = Plan::document(document)
            .layout(layout)
            .with_tokens()
            .start();
        let start = Barrier::new(PRINCIPALS);
        std::thread::scope(|scope| {
            for number in 0..PRINCIPALS {
                let (gateway, start) = (&gateway, &start);
                scope.spawn(move || {
                    let token = gateway.token(&format!("principal-{number}"));
                    let mut client = McpClient::open_on(gateway, "main", Some(&token));
                    start.wait();
                    for call in 0..CALLS {
                        let canary = format!("canary-{number}-{call}");
                        let arguments = format!(r#"{{"canary":"{canary}"}}"#);
                        let response = client.call(&call.to_string(), "echo", &arguments);
                        assert_eq!(text_of(&response), canary);
                        assert_eq!(response.message()["id"], call);
                        let messages = response.messages();
                        assert_eq!(messages.len(), 1 + call % 2);
                        assert!(messages.iter().all(|message| message.contains(&canary)));
                        if call % 10 == 9 {
                            client = client.again();
                        }
                    }
                });
            }
        });
    }
}
