//! Ends: of connections, leases, requests, callers and the process. Whoever waits is told.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    stage::{Client, LONG, Node, SHARDS, Session, authorized, chunk, lines, next_line, token_of},
    support::eventually,
};

/// The last line of a request that failed: for whom, and that it is one the plugin server knows.
#[track_caller]
fn is_failure(session: &Session, line: &Value, request_id: &str, message: &str) {
    assert_eq!(line["protocol"], "connection-gateway.v1");
    assert_eq!(line["sessionId"], session.id());
    assert_eq!(line["requestId"], request_id);
    assert_eq!(line["type"], "stream");
    assert_eq!(line["consumerType"], "plugin-debug");
    assert_eq!(line["capability"], "invoke");
    let wanted = json!({"kind": "plugin-debug.stream", "event": "error", "message": message});
    assert_eq!(line["payload"], wanted);
}

/// D3.
#[test]
fn thirty_connections_that_end_without_a_close_frame_leave_nothing_and_free_their_sources() {
    for shards in SHARDS {
        // Which would free them too, long after this test has given up.
        let node = Node::with(shards, |settings| settings.lease = LONG * 20);
        let clients: Vec<Client> = (0..30)
            .map(|number| node.bound(&format!("u{number}")).0)
            .collect();
        assert_eq!(node.metrics()["activeConnections"], 30);
        for client in &clients {
            client.connection.end_output();
        }
        eventually("they are gone", || {
            let metrics = node.metrics();
            (metrics["activeConnections"] == 0 && metrics["activeSessions"] == 0).then_some(())
        });
        for number in 0..30 {
            let token = token_of(&format!("u{number}"));
            eventually("the source is free", || {
                let mut client = node.client();
                client.send_bind(&token, &json!({}));
                (client.message()["type"] == "bound").then_some(())
            });
        }
        // Clients whose connection is reset end too.
        let (client, _) = node.bound("reset");
        client.connection.reset();
        eventually("it is gone", || {
            (node.metrics()["activeSessions"] == 0).then_some(())
        });
    }
}

/// D4, its second half.
#[test]
fn a_session_nobody_hears_of_is_told_that_its_lease_is_over_and_is_gone() {
    for shards in SHARDS {
        let node = Node::with(shards, |settings| {
            settings.lease = Duration::from_millis(150)
        });
        let (mut client, session) = node.bound("tmb_1");
        assert_eq!(client.error(None), "session_owner_expired");
        client.ends_with(Some(1008));
        assert_eq!(node.status(session.id()).status, 404);
        assert_eq!(node.metrics()["ownerLeaseExpiries"], 1);
        assert_eq!(node.metrics()["activeSessions"], 0);
        // Its source was free at once.
        eventually("the source is free", || {
            let mut client = node.client();
            client.send_bind(&token_of("tmb_1"), &json!({}));
            (client.message()["type"] == "bound").then_some(())
        });
    }
}

/// D10.
#[test]
fn callers_are_told_at_once_when_the_client_leaves_or_is_deleted() {
    for shards in SHARDS {
        let node = Node::start(shards);
        for is_deleted in [false, true] {
            let name = format!("u{is_deleted}");
            let (mut client, session) = node.bound(&name);
            let mut callers: Vec<_> = (0..3)
                .map(|number| {
                    node.open_stream(session.id(), &session.stream_body(&format!("r{number}")))
                })
                .collect();
            for _ in 0..3 {
                client.envelope();
            }
            client.send_envelope(session.envelope("stream", "r1", chunk(json!(1))));
            assert!(next_line(&mut callers[1]).is_some());
            let message = if is_deleted {
                node.delete(session.id());
                "Gateway session deleted"
            } else {
                drop(client);
                "Gateway session closed"
            };
            for (number, caller) in callers.iter_mut().enumerate() {
                let lines = lines(caller);
                assert_eq!(lines.len(), 1);
                is_failure(&session, &lines[0], &format!("r{number}"), message);
                // A clean end: the connection goes on.
                assert_eq!(caller.ask(&authorized("GET", "/health")).status, 200);
            }
            assert_eq!(node.metrics()["inFlightRequests"], 0);
        }
    }
}

/// D11.
#[test]
fn a_request_that_takes_too_long_ends_with_a_line_that_says_so() {
    for shards in SHARDS {
        let node = Node::with(shards, |settings| {
            settings.session_ttl = Duration::from_millis(120)
        });
        let (mut client, session) = node.bound("tmb_1");
        let timed_out = "Gateway request timed out waiting for its response";
        let mut body = session.stream_body("r");
        for timeout in [json!(80), Value::Null] {
            if timeout.is_null() {
                // The default: `SESSION_TTL_MS`.
                body.as_object_mut().unwrap().remove("timeoutMs");
            } else {
                body["timeoutMs"] = timeout;
            }
            let mut caller = node.open_stream(session.id(), &body);
            client.envelope();
            client.send_envelope(session.envelope(
                "response",
                "r",
                json!({"kind": "plugin-debug.accepted"}),
            ));
            let lines = lines(&mut caller);
            assert_eq!(lines.len(), 2);
            is_failure(&session, &lines[1], "r", timed_out);
            assert_eq!(node.metrics()["inFlightRequests"], 0);
            // What the client still says is nobody's.
            client.send_envelope(session.envelope("stream", "r", crate::stage::end()));
            client.is_served();
        }
    }
}

/// D12.
#[test]
fn a_caller_that_leaves_frees_its_place_and_its_client_is_told_if_it_wants_to_know() {
    for shards in SHARDS {
        let node = Node::with(shards, |settings| settings.in_flight_max = 1);
        let mut client = node.client();
        let metadata = json!({"gateway": {"features": ["cancel"]}});
        let session = client.bind(&token_of("knows"), &metadata);
        let (mut plain, plain_session) = node.bound("does not");
        for (client, session) in [(&mut client, &session), (&mut plain, &plain_session)] {
            let caller = node.open_stream(session.id(), &session.stream_body("r"));
            client.envelope();
            drop(caller);
            eventually("the place is free", || {
                (node.metrics()["inFlightRequests"] == 0).then_some(())
            });
        }
        let message = client.message();
        assert_eq!(
            (&message["type"], &message["requestId"]),
            (&json!("cancel"), &json!("r"))
        );
        // The other one would die of a type it does not know.
        plain.is_served();
        // Its late answers go nowhere, and the id can be used again.
        plain.send_envelope(plain_session.envelope("response", "r", json!("late")));
        plain.is_served();
        let mut caller = node.open_stream(plain_session.id(), &plain_session.stream_body("r"));
        plain.envelope();
        plain.send_envelope(plain_session.envelope("response", "r", json!("fresh")));
        assert_eq!(lines(&mut caller)[0]["payload"], "fresh");
    }
}

/// D8, on one node: a deletion wins over whatever the client says meanwhile.
#[test]
fn a_deletion_that_races_with_heartbeats_leaves_no_session_and_no_claim() {
    for shards in SHARDS {
        let node = Node::start(shards);
        for number in 0..20 {
            let name = format!("u{number}");
            let (mut client, session) = node.bound(&name);
            for _ in 0..50 {
                client.send(json!({"type": "heartbeat", "ts": 1}));
            }
            node.delete(session.id());
            assert_eq!(node.status(session.id()).status, 404);
            client.hear_to_close();
            eventually("the source is free", || {
                let mut client = node.client();
                client.send_bind(&token_of(&name), &json!({}));
                (client.message()["type"] == "bound").then_some(())
            });
            assert_eq!(node.status(session.id()).status, 404);
        }
    }
}

/// D9.
#[test]
fn of_a_thousand_updates_of_metadata_under_heartbeats_none_is_lost() {
    let node = Node::start(2);
    let (mut client, session) = node.bound("tmb_1");
    let mut caller = node.caller();
    for number in 0..1_000 {
        client.send(json!({"type": "heartbeat", "ts": 1}));
        let target = format!("/internal/sessions/{}/metadata", session.id());
        let body = json!({"metadata": {"number": number}});
        let patched = caller.ask(&crate::stage::with_body("PATCH", &target, &body));
        assert_eq!(patched.status, 200);
        client.message();
        let target = format!("/internal/sessions/{}/status", session.id());
        let status = caller.ask(&authorized("GET", &target)).json();
        assert_eq!(status["data"]["session"]["metadata"]["number"], number);
    }
}

#[test]
fn a_drain_lets_requests_finish_and_says_that_it_goes_away() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut idle, _) = node.bound("idle");
        let mut unbound = node.client();
        let (mut busy, session) = node.bound("busy");
        let mut caller = node.open_stream(session.id(), &session.stream_body("r"));
        busy.envelope();
        let (http, websocket) = (node.http, node.websocket);
        let stopping = std::thread::spawn(move || node.stop());
        idle.ends_with(Some(1001));
        assert_eq!(unbound.error(None), "draining");
        unbound.ends_with(Some(1001));
        // What is outstanding goes on.
        busy.send_envelope(session.envelope("stream", "r", chunk(json!(1))));
        assert!(next_line(&mut caller).is_some());
        busy.send_envelope(session.envelope("stream", "r", crate::stage::end()));
        assert_eq!(lines(&mut caller).len(), 1);
        busy.ends_with(Some(1001));
        assert!(stopping.join().unwrap());
        for address in [http, websocket] {
            assert!(std::net::TcpStream::connect(address).is_err());
        }
    }
}

#[test]
fn what_does_not_finish_in_a_drain_ends_with_a_line_that_says_so() {
    let node = Node::with_all(
        2,
        |_| {},
        |all| all.timeouts.drain = Duration::from_millis(200),
    );
    let (mut client, session) = node.bound("tmb_1");
    let mut caller = node.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    let stopping = std::thread::spawn(move || node.stop());
    let lines = lines(&mut caller);
    is_failure(&session, &lines[0], "r", "Gateway is shutting down");
    client.ends_with(Some(1001));
    stopping.join().unwrap();
}
