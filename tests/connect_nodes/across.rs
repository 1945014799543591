//! What works on one node works when the caller asks another one.

use std::time::Duration;

use serde_json::json;

use crate::{
    cluster::{PREFIX, SHARDS, Two, keys_with},
    stage::{LONG, chunk, claims_of, end, lines, next_line, sign, token_of},
    support::eventually,
};

#[test]
fn both_shapes_of_a_request_reach_the_client_and_its_answers_come_back() {
    for shards in SHARDS {
        let two = Two::start(shards);
        let (mut client, session) = two.a.bound("tmb_1");
        assert_eq!(session.0["ownerNodeId"], "node-a");
        let accepted = two.b.publish(session.id(), &session.request("plain"));
        assert_eq!(accepted.status, 202, "{}", accepted.text());
        assert_eq!(accepted.json()["data"]["accepted"], true);
        assert_eq!(client.envelope()["requestId"], "plain");
        // Nobody waits for it.
        client.send_envelope(session.envelope("response", "plain", json!({})));

        for round in 0..3 {
            let id = format!("r-{round}");
            let mut caller = two.b.open_stream(session.id(), &session.stream_body(&id));
            let request = client.envelope();
            assert_eq!(request["payload"]["kind"], "plugin-debug.run");
            let accepted = json!({"kind": "plugin-debug.accepted"});
            client.send_envelope(session.envelope("response", &id, accepted));
            client.send_envelope(session.envelope("stream", &id, chunk(json!({"n": round}))));
            // One by one as well as together.
            assert_eq!(next_line(&mut caller).unwrap()["type"], "response");
            client.send_envelope(session.envelope("stream", &id, end()));
            let rest = lines(&mut caller);
            assert_eq!(rest.len(), 2, "{rest:?}");
            assert_eq!(rest[0]["payload"]["data"], json!({"n": round}));
            assert_eq!(rest[1]["payload"]["event"], "end");
        }
        client.is_served();
        assert_eq!(two.b.metrics()["inFlightRequests"], 0);
        assert_eq!(two.b.metrics()["streamBufferBytes"], 0);
    }
}

/// D6: a stream of many parts, none of which is lost.
#[test]
fn a_long_stream_arrives_whole_and_in_order() {
    let two = Two::start(2);
    let (mut client, session) = two.a.bound("tmb_1");
    let mut caller = two.b.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    let count = 3_000;
    for number in 0..count {
        client.send_envelope(session.envelope("stream", "r", chunk(json!(number))));
    }
    client.send_envelope(session.envelope("stream", "r", end()));
    let lines = lines(&mut caller);
    assert_eq!(lines.len(), count + 1);
    for (number, line) in lines[..count].iter().enumerate() {
        assert_eq!(line["payload"]["data"], number);
    }
}

/// D6 as well: who does not take what the client says is told so.
#[test]
fn a_caller_that_reads_too_slowly_hears_an_error_and_no_silence() {
    let two = Two::with(1, |settings| settings.slow_consumer_bytes = 4 << 20);
    let (mut client, session) = two.a.bound("tmb_1");
    let mut caller = two.b.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    let data = "x".repeat(500_000);
    // More than the sockets between them hold.
    for number in 0..60 {
        let part = chunk(json!([number, data]));
        client.send_envelope(session.envelope("stream", "r", part));
    }
    eventually("the call is given up", || {
        (two.b.metrics()["inFlightRequests"] == 0).then_some(())
    });
    let lines = lines(&mut caller);
    let last = lines.last().unwrap();
    assert_eq!(last["payload"]["event"], "error", "{} lines", lines.len());
    for (number, line) in lines[..lines.len() - 1].iter().enumerate() {
        assert_eq!(line["payload"]["data"][0], number);
    }
    client.is_served();
}

#[test]
fn a_session_is_shown_changed_and_deleted_from_any_node() {
    for shards in SHARDS {
        let two = Two::start(shards);
        let (mut client, session) = two.a.bound("tmb_1");
        let source = "debug:tmbId:tmb_1";
        for view in [two.b.status(session.id()), two.b.by_source(source)] {
            let view = view.json()["data"].take();
            assert_eq!(view["ownerAlive"], true);
            assert_eq!(view["mailboxLag"], 0);
            assert_eq!(view["logs"], json!([]));
            let mut shown = view["session"].clone();
            let mut bound = session.0.clone();
            bound.as_object_mut().unwrap().remove("now");
            // It may have been renewed.
            for times in [&mut shown, &mut bound] {
                times["expiresAt"].take();
                times["lastSeenAt"].take();
            }
            assert_eq!(shown, bound);
        }
        let patched = two.b.patch(session.id(), &json!({"from": "b"}));
        assert_eq!(patched.status, 200);
        assert_eq!(
            patched.json()["data"]["session"]["metadata"],
            json!({"from": "b"})
        );
        eventually("its owner hears of it", || {
            let view = two.a.status(session.id()).json()["data"].take();
            (view["session"]["metadata"] == json!({"from": "b"})).then_some(())
        });
        client.send(json!({"type": "metadata", "metadata": {"from": "client"}}));
        eventually("the other node hears of it", || {
            let view = two.b.status(session.id()).json()["data"].take();
            (view["session"]["metadata"] == json!({"from": "client"})).then_some(())
        });
        let mut caller = two.b.open_stream(session.id(), &session.stream_body("r"));
        client.envelope();
        assert_eq!(two.b.delete(session.id()).status, 200);
        client.ends_with(None);
        let last = lines(&mut caller).pop().unwrap();
        assert_eq!(last["payload"]["event"], "error");
        // By its owner, at once: whoever looks for it finds only that it is closed (D10).
        assert_eq!(last["payload"]["message"], "Gateway session deleted");
        let id = session.id();
        assert_eq!(two.b.status(id).status, 404);
        assert_eq!(two.b.publish(id, &session.request("r")).status, 404);
        assert_eq!(two.b.patch(id, &json!({})).status, 404);
        assert_eq!(two.b.delete(id).status, 200);
        let mut admin = two.redis.admin();
        assert_eq!(keys_with(&mut admin, id), [""; 0]);
        assert_eq!(keys_with(&mut admin, source), [""; 0]);
    }
}

#[test]
fn a_closed_session_is_shown_as_closed_and_its_source_is_free() {
    let two = Two::start(2);
    let (client, session) = two.a.bound("tmb_1");
    drop(client);
    eventually("it is closed for the other node", || {
        let view = two.b.status(session.id()).json()["data"].take();
        let is_closed = view["session"]["status"] == "closed";
        assert!(!is_closed || view["ownerAlive"] == false);
        is_closed.then_some(())
    });
    let refused = two.b.publish(session.id(), &session.request("r"));
    assert_eq!(refused.status, 409);
    assert_eq!(refused.json()["error"]["data"]["status"], "closed");
    let (mut client, second) = two.b.bound("tmb_1");
    client.is_served();
    let view = two.a.by_source("debug:tmbId:tmb_1").json()["data"].take();
    assert_eq!(view["session"]["id"], second.id());
    assert_eq!(view["ownerAlive"], true);
}

/// A claim is every node's.
#[test]
fn a_source_with_a_live_owner_is_bound_on_no_other_node() {
    let two = Two::start(2);
    let (mut client, _session) = two.a.bound("tmb_1");
    for node in [&two.a, &two.b] {
        let mut second = node.client();
        second.send_bind(&token_of("tmb_1"), &json!({}));
        assert_eq!(second.error(Some("bind-1")), "session_already_bound");
        second.ends_with(Some(1008));
    }
    client.is_served();
}

#[test]
fn a_token_that_is_good_once_is_so_for_all_nodes() {
    let two = Two::with(1, |settings| settings.single_use_tokens = true);
    let mut claims = claims_of("tmb_1");
    claims["nonce"] = "once".into();
    let token = sign(&claims);
    let mut client = two.a.client();
    client.bind(&token, &json!({}));
    drop(client);
    let mut second = two.b.client();
    eventually("its source is free", || {
        let view = two.b.by_source("debug:tmbId:tmb_1").json()["data"].take();
        (view["ownerAlive"] != true).then_some(())
    });
    second.send_bind(&token, &json!({}));
    assert_eq!(second.error(Some("bind-1")), "invalid_token");
    second.ends_with(Some(1008));
}

/// The checks of the contract's table, by a node that does not have the session.
#[test]
fn what_is_refused_here_is_refused_there() {
    let two = Two::with(1, |settings| settings.in_flight_max = 2);
    let (mut client, session) = two.a.bound("tmb_1");
    let with = |name: &str, value: serde_json::Value| {
        let mut envelope = session.request("r");
        envelope[name] = value;
        let refused = two.b.publish(session.id(), &envelope);
        (refused.status, refused.json()["error"].clone())
    };
    let (status, error) = with("generation", json!(3));
    assert_eq!(
        (status, &error["data"]["expectedGeneration"]),
        (409, &json!(0))
    );
    let (status, error) = with("consumerType", json!("other"));
    assert_eq!(
        (status, &error["data"]["expectedConsumerType"]),
        (401, &json!("plugin-debug"))
    );
    let (status, error) = with("capability", json!("fly"));
    assert_eq!((status, &error["data"]["capability"]), (403, &json!("fly")));
    let (status, _) = with("sessionId", json!("another"));
    assert_eq!(status, 404);
    let unknown = "00000000-0000-4000-8000-000000000000";
    assert_eq!(two.b.publish(unknown, &session.request("r")).status, 404);
    assert_eq!(two.b.status(unknown).status, 404);

    // D13 and D14, by the node that publishes.
    let mut first = two.b.open_stream(session.id(), &session.stream_body("r-0"));
    let (_, head) = two.b.stream(session.id(), &session.stream_body("r-0"));
    assert_eq!(head.status, 409);
    let _second = two.b.open_stream(session.id(), &session.stream_body("r-1"));
    let (_, head) = two.b.stream(session.id(), &session.stream_body("r-2"));
    assert_eq!(head.status, 429);
    assert_eq!(client.envelope()["requestId"], "r-0");
    // By the owner, when the other request is not the same node's.
    let (_, head) = two.a.stream(session.id(), &session.stream_body("r-0"));
    assert_eq!(head.status, 409);
    client.send_envelope(session.envelope("stream", "r-0", end()));
    assert_eq!(lines(&mut first).len(), 1);
    two.b.open_stream(session.id(), &session.stream_body("r-2"));
}

/// D12: the place of a caller that leaves is free, and a client that knows `cancel` hears of it.
#[test]
fn a_caller_that_leaves_is_told_to_the_client_on_the_other_node() {
    let two = Two::with(1, |settings| settings.in_flight_max = 1);
    let mut client = two.a.client();
    let metadata = json!({"gateway": {"features": ["cancel"]}});
    let session = client.bind(&token_of("tmb_1"), &metadata);
    let caller = two.b.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    drop(caller);
    let message = client.message();
    assert_eq!(
        (&message["type"], &message["requestId"]),
        (&json!("cancel"), &json!("r"))
    );
    eventually("its place is free", || {
        (two.b.metrics()["inFlightRequests"] == 0).then_some(())
    });
    let mut caller = two.b.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    client.send_envelope(session.envelope("response", "r", json!(1)));
    assert_eq!(lines(&mut caller).len(), 1);
}

/// Whatever the settings are, what others know of a session lasts as long as its lease.
#[test]
fn keys_live_for_a_lease_that_is_longer_than_their_time() {
    let (short, long) = (Duration::from_secs(20), Duration::from_secs(600));
    let two = Two::with(1, |settings| {
        settings.session_ttl = short;
        settings.lease = long;
    });
    let (_client, session) = two.a.bound("tmb_1");
    assert_eq!(two.b.patch(session.id(), &json!({"a": 1})).status, 200);
    let mut admin = two.redis.admin();
    for key in [
        format!("sessions:by-id:{}", session.id()),
        "sessions:by-subject:tmb_1".to_owned(),
        "sessions:by-source:debug:tmbId:tmb_1".to_owned(),
        "sessions:source-owner:debug:tmbId:tmb_1".to_owned(),
    ] {
        let left = admin.ask(&[b"PTTL", format!("{PREFIX}{key}").as_bytes()]);
        let left = String::from_utf8(left).unwrap();
        let left: u64 = left.strip_prefix(':').unwrap().parse().unwrap();
        assert!(u128::from(left) > long.as_millis() / 2, "{key}: {left}");
    }
}

/// A node that ends says so to callers on others (D10).
#[test]
fn a_node_that_is_stopped_ends_the_calls_to_its_sessions_at_once() {
    // Callers' nodes look after sessions in the time of a lease: nobody here waits for that.
    let Two { redis, a, b } = Two::with(2, |settings| settings.lease = LONG * 20);
    let (mut client, session) = a.bound("tmb_1");
    let mut caller = b.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    client.send_envelope(session.envelope("stream", "r", chunk(json!(1))));
    assert_eq!(next_line(&mut caller).unwrap()["payload"]["data"], 1);
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| a.stop());
        // A drain lets the request finish, so the client ends it by leaving.
        drop(client);
        let last = lines(&mut caller).pop().unwrap();
        assert_eq!(last["payload"]["event"], "error", "{last}");
        assert!(stopped.join().unwrap());
    });
    let (mut client, _) = b.bound("tmb_1");
    client.is_served();
    let mut admin = redis.admin();
    let owner = format!("{PREFIX}sessions:source-owner:debug:tmbId:tmb_1");
    assert!(!admin.ask(&[b"GET", owner.as_bytes()]).is_empty());
}
