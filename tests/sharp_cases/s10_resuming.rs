//! S10: streams that break off are gone on with, on either side of the gateway (mcp.md 1.2).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    support::{
        Asked, Backend, Gate, LAYOUTS, Layout, McpClient, Plan, Speaker, Wire, event, eventually,
        request, response,
    },
    text_of,
};

fn note(data: &str) -> String {
    let params = format!(r#"{{"level":"error","data":"{data}"}}"#);
    request(None, "notifications/message", &params)
}

/// What messages say: a log message's data or a call's text.
fn said(messages: &[String]) -> Vec<String> {
    let said = messages.iter().map(|message| {
        let message: serde_json::Value = serde_json::from_str(message).unwrap();
        let data = message["params"]["data"].as_str();
        let text = message["result"]["content"][0]["text"].as_str();
        data.or(text).unwrap().to_owned()
    });
    said.collect()
}

#[test]
fn s10_a_get_stream_is_gone_on_with_behind_the_last_event() {
    for layout in LAYOUTS {
        let speaker = Arc::new(Speaker::default());
        let backend = Backend::scripted("a", &["one"], {
            let speaker = speaker.clone();
            move |asked, wire| (asked.method == "GET").then(|| speaker.speak(wire))
        });
        let gateway = Plan::one(&backend).layout(layout).start();
        let client = McpClient::open(&gateway);
        let mut stream = client.stream();
        speaker.await_listeners(1);
        for data in ["1", "2", "3"] {
            speaker.say(event(None, &note(data)));
        }
        let mut ids = Vec::new();
        for data in ["1", "2", "3"] {
            let event = stream.next_event().unwrap();
            assert_eq!(said(&[event.data]), [data]);
            ids.push(event.id.unwrap());
        }
        ids.dedup();
        assert_eq!(ids.len(), 3, "ids are unique: {ids:?}");
        // As a client that has only got the first one.
        drop(stream);
        let mut again = client.stream_after(&ids[0]);
        let replayed: Vec<_> = (0..2).map(|_| again.next_event().unwrap()).collect();
        let known: Vec<String> = replayed
            .iter()
            .map(|event| event.id.clone().unwrap())
            .collect();
        assert_eq!(known, ids[1..]);
        let data: Vec<String> = replayed.into_iter().map(|event| event.data).collect();
        assert_eq!(said(&data), ["2", "3"]);
        let event = speaker.say_until(&event(None, &note("4")), || again.next_event().unwrap());
        assert_eq!(said(&[event.data]), ["4"]);
        assert!(!ids.contains(&event.id.unwrap()), "ids go on");
    }
}

/// A call whose stream says two messages, waits at the gate, and says two more and the response.
fn in_two_parts() -> (Backend, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let backend = Backend::scripted("a", &["parts", "one"], {
        let gate = gate.clone();
        move |asked, wire| {
            if asked.tool()? != "parts" {
                return None;
            }
            wire.stream_head();
            for data in ["1", "2"] {
                wire.send(event(None, &note(data)));
            }
            gate.wait();
            for data in ["3", "4"] {
                wire.send(event(None, &note(data)));
            }
            wire.send(event(None, &response(asked, "done")));
            Some(())
        }
    });
    (backend, gate)
}

#[test]
fn s10_the_stream_of_a_call_is_gone_on_with_by_a_client_that_broke_off() {
    for layout in LAYOUTS {
        for version in ["2025-06-18", "2025-11-25"] {
            for seen in [1, 2] {
                let (backend, gate) = in_two_parts();
                let gateway = Plan::one(&backend).layout(layout).start();
                let client = McpClient::open_with(&gateway, version, "{}");
                let mut stream = client.call_stream("7", "parts", "{}");
                for _ in 0..seen {
                    assert!(stream.next_event().is_some());
                }
                let last = stream.last_id.clone().unwrap();
                drop(stream);
                let mut again = client.stream_after(&last);
                gate.open();
                let rest = again.rest();
                let expected = ["1", "2", "3", "4", "done"];
                assert_eq!(said(&rest), expected[seen..], "{version}, {seen} seen");
                let last: serde_json::Value = serde_json::from_str(rest.last().unwrap()).unwrap();
                assert_eq!(last["id"], 7);
                assert_eq!(
                    backend.seen_rpc("tools/call").len(),
                    1,
                    "it was not repeated"
                );
            }
        }
    }
}

/// Also when it broke off before the first message, and came back after the last.
#[test]
fn s10_the_response_waits_for_a_client_that_comes_back_late() {
    for layout in LAYOUTS {
        let (backend, gate) = in_two_parts();
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let mut stream = client.call_stream("7", "parts", "{}");
        let first = stream.next_raw_event().unwrap();
        assert_eq!(first.data, "", "where to resume comes first");
        drop(stream);
        gate.open();
        // The end of the call shows in the counters of what was served.
        eventually("the backend's stream was read to its end", || {
            (gateway.metric("shardgate_upstream_connections_idle") > 0)
                .then_some(())
                .or_else(|| (text_of(&client.call("1", "one", "{}")) == "a one {}").then_some(()))
        });
        let mut again = client.stream_after(&first.id.unwrap());
        let mut messages = Vec::new();
        while said(&messages).last().is_none_or(|last| last != "done") {
            messages.push(again.next_event().unwrap().data);
        }
        assert_eq!(said(&messages), ["1", "2", "3", "4", "done"]);
    }
}

#[test]
fn s10_only_the_streams_own_events_are_replayed() {
    for layout in LAYOUTS {
        let (backend, gate) = in_two_parts();
        let gateway = Plan::one(&backend).layout(layout).start();
        let client = McpClient::open(&gateway);
        let stranger = McpClient::open(&gateway);
        let mut first = client.call_stream("1", "parts", "{}");
        let mut second = client.call_stream("2", "parts", "{}");
        for stream in [&mut first, &mut second] {
            assert!(stream.next_event().is_some());
        }
        let id = first.last_id.clone().unwrap();
        drop(first);
        // Another session has no such stream.
        let mut connection = stranger.connect();
        connection.send(stranger.bare("GET").header("last-event-id", &id).bytes());
        let head = connection.read_head();
        drop(connection);
        let mut again = client.stream_after(&id);
        gate.open();
        let (rest, other) = (again.rest(), second.rest());
        assert_eq!(said(&rest), ["2", "3", "4", "done"]);
        assert_eq!(said(&other), ["2", "3", "4", "done"]);
        let id_of = |messages: &[String]| {
            let last: serde_json::Value = serde_json::from_str(messages.last().unwrap()).unwrap();
            last["id"].clone()
        };
        assert_eq!((id_of(&rest), id_of(&other)), (1.into(), 2.into()));
        assert!(matches!(head.status, 200 | 400 | 404), "{}", head.status);
    }
}

#[test]
fn s10_event_ids_nobody_gave_replay_nothing() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    let mut client = McpClient::open(&gateway);
    for id in [
        "x",
        "0",
        "-1",
        "99999999999999999999-1",
        "c4294967295-4294967295",
        "g1-99",
        &"9".repeat(4000),
    ] {
        let mut connection = client.connect();
        connection.send(client.bare("GET").header("last-event-id", id).bytes());
        let head = connection.read_head();
        assert!(
            matches!(head.status, 200 | 400 | 404 | 431),
            "{id:.20}: {}",
            head.status
        );
    }
    assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
    assert_eq!(gateway.metric("shardgate_panics_total"), 0);
}

/// A backend that closes its streams after event ids, as polling servers do.
fn polled(parts: &'static [&'static str]) -> Backend {
    let asked_for = std::sync::Mutex::new(String::new());
    let opened = AtomicUsize::new(0);
    Backend::scripted(
        "a",
        &["polled"],
        move |asked: &Asked, wire: &mut Wire<'_>| {
            let is_call = asked.tool().is_some();
            if is_call {
                *asked_for.lock().unwrap() = response(asked, "done");
                wire.stream_head();
                // The priming event: nothing but where to resume.
                wire.send("id: p0\nretry: 20\ndata: \n\n");
                return Some(());
            }
            if asked.method != "GET" {
                return None;
            }
            let Some(seen) = asked.header("last-event-id") else {
                wire.answer(405, "allow: POST, DELETE\r\n", "");
                return Some(());
            };
            opened.fetch_add(1, Ordering::SeqCst);
            let next: usize = seen.strip_prefix('p').unwrap().parse().unwrap();
            wire.stream_head();
            match parts.get(next) {
                Some(part) => wire.send(event(Some(&format!("p{}", next + 1)), &note(part))),
                None => wire.send(event(None, &asked_for.lock().unwrap())),
            }
            Some(())
        },
    )
}

#[test]
fn s10_a_backend_that_breaks_off_after_an_event_id_is_gone_on_with() {
    for layout in LAYOUTS {
        for parts in [&[][..], &["1"], &["1", "2", "3"]] {
            let backend = polled(parts);
            let gateway = Plan::one(&backend).layout(layout).start();
            // A client that knows no polling just waits.
            let mut client = McpClient::open_with(&gateway, "2025-06-18", "{}");
            let response = client.call(r#""q""#, "polled", "{}");
            assert_eq!(response.message()["id"], "q");
            let expected: Vec<&str> = parts.iter().copied().chain(["done"]).collect();
            assert_eq!(said(&response.messages()), expected);
            let mut gets = backend.seen();
            gets.retain(|asked| asked.header("last-event-id").is_some());
            let seen: Vec<&str> = gets
                .iter()
                .map(|asked| asked.header("last-event-id").unwrap())
                .collect();
            let expected: Vec<String> = (0..=parts.len())
                .map(|number| format!("p{number}"))
                .collect();
            assert_eq!(seen, expected);
            let session = backend.seen_rpc("tools/call")[0]
                .header("mcp-session-id")
                .map(str::to_owned);
            assert!(
                gets.iter()
                    .all(|get| get.header("mcp-session-id") == session.as_deref())
            );
            assert_eq!(
                backend.seen_rpc("tools/call").len(),
                1,
                "it was not repeated"
            );
        }
    }
}

/// A client that knows polling may be let go, and comes back for the rest (SEP-1699).
#[test]
fn s10_a_client_that_knows_polling_gets_all_of_a_polled_call() {
    for layout in LAYOUTS {
        let backend = polled(&["1", "2", "3"]);
        let gateway = Plan::one(&backend).layout(layout).start();
        let client = McpClient::open_with(&gateway, "2025-11-25", "{}");
        let mut stream = client.call_stream("5", "polled", "{}");
        let mut messages = stream.rest();
        for _ in 0..20 {
            if said(&messages).last().is_some_and(|last| last == "done") {
                break;
            }
            let last = stream.last_id.clone().unwrap();
            let seen = stream.last_id.take();
            stream = client.stream_after(&last);
            stream.last_id = seen;
            messages.extend(stream.rest());
        }
        assert_eq!(said(&messages), ["1", "2", "3", "done"]);
        assert_eq!(backend.seen_rpc("tools/call").len(), 1);
    }
}

/// Breaking off without a word is an error, not silence, and no reason to ask again.
#[test]
fn s10_a_backend_that_breaks_off_without_an_event_id_has_failed() {
    for layout in LAYOUTS {
        let backend = Backend::scripted("a", &["broken"], |asked, wire| {
            asked.tool()?;
            wire.stream_head();
            wire.send(event(None, &note("1")));
            Some(())
        });
        let gateway = Plan::one(&backend).layout(layout).start();
        let response = McpClient::open(&gateway).call("3", "broken", "{}");
        assert_eq!(response.error_code(), -32603);
        assert_eq!(response.message()["id"], 3);
        assert_eq!(backend.seen_rpc("tools/call").len(), 1);
        assert!(
            backend
                .seen()
                .iter()
                .all(|asked| asked.header("last-event-id").is_none())
        );
    }
}
