//! Limits: at each one a clear answer, and everybody else goes on.

use std::{thread::JoinHandle, time::Duration};

use serde_json::json;

use crate::{
    stage::{Client, Node, SHARDS, Session, chunk, end, lines, next_line, stream_ask, token_of},
    support::{Connection, eventually},
};

/// D14.
#[test]
fn outstanding_streams_count_and_one_that_ends_makes_room() {
    for shards in SHARDS {
        let node = Node::with(shards, |settings| settings.in_flight_max = 2);
        let (mut client, session) = node.bound("tmb_1");
        let mut first = node.open_stream(session.id(), &session.stream_body("r-0"));
        let _second = node.open_stream(session.id(), &session.stream_body("r-1"));
        for _ in 0..3 {
            let (mut caller, head) = node.stream(session.id(), &session.stream_body("r-2"));
            assert_eq!(head.status, 429);
            let refused = caller.read_body("POST", head);
            let error = &refused.json()["error"];
            assert_eq!(error["code"], "connection_gateway.resource_limit_exceeded");
            let wanted =
                json!({"limit": "maxInFlightPerSession", "sessionId": session.id(), "max": 2});
            assert_eq!(error["data"], wanted);
        }
        assert_eq!(node.metrics()["inFlightRequests"], 2);
        client.envelope();
        client.send_envelope(session.envelope("stream", "r-0", end()));
        assert_eq!(lines(&mut first).len(), 1);
        node.open_stream(session.id(), &session.stream_body("r-2"));
    }
}

/// D13.
#[test]
fn a_request_id_that_is_in_flight_cannot_be_used_twice() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, session) = node.bound("tmb_1");
        let mut caller = node.open_stream(session.id(), &session.stream_body("r"));
        let (_, head) = node.stream(session.id(), &session.stream_body("r"));
        assert_eq!(head.status, 409);
        let refused = node.publish(session.id(), &session.request("r"));
        assert_eq!(refused.status, 409);
        assert_eq!(
            refused.json()["error"]["code"],
            "connection_gateway.duplicate_request"
        );
        client.envelope();
        client.send_envelope(session.envelope("stream", "r", end()));
        client.send_envelope(session.envelope("stream", "r", chunk(json!("stale"))));
        assert_eq!(lines(&mut caller).len(), 1);
        client.is_served();
        // The next one with this id hears nothing of the last one.
        let mut caller = node.open_stream(session.id(), &session.stream_body("r"));
        client.envelope();
        client.send_envelope(session.envelope("response", "r", json!("fresh")));
        let lines = lines(&mut caller);
        assert_eq!((lines.len(), &lines[0]["payload"]), (1, &json!("fresh")));
    }
}

/// D7.
#[test]
fn a_client_s_backlog_is_bounded_by_a_refusal_and_nothing_accepted_is_lost() {
    let node = Node::with(2, |settings| settings.mailbox_messages_max = 40);
    let connection = Connection::open_narrow(node.websocket);
    let mut client = Client::over(connection);
    let session = client.bind(&token_of("slow"), &json!({}));
    // Each one is larger than what the sockets hold of a client that does not read.
    let payload = json!("x".repeat(300_000));
    let mut accepted = 0;
    let refused = loop {
        let envelope = session.envelope("event", &format!("r-{accepted}"), payload.clone());
        let response = node.publish(session.id(), &envelope);
        if response.status != 202 {
            break response;
        }
        accepted += 1;
        assert!(accepted < 1000, "never refused");
    };
    assert_eq!(refused.status, 429);
    let limit = refused.json()["error"]["data"]["limit"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        ["mailboxMaxLength", "slowConsumerBufferBytes"].contains(&limit.as_str()),
        "{limit}"
    );
    assert!(
        node.status(session.id()).json()["data"]["mailboxLag"]
            .as_u64()
            .unwrap()
            > 0
    );
    for number in 0..accepted {
        assert_eq!(client.envelope()["requestId"], format!("r-{number}"));
    }
    client.is_served();
    assert_eq!(
        node.publish(session.id(), &session.request("again")).status,
        202
    );
    client.envelope();
}

/// D20.
#[test]
fn a_client_that_reads_too_slowly_for_too_long_is_told_and_ended_and_others_are_not() {
    let node = Node::with(1, |settings| {
        settings.slow_consumer_bytes = 500_000;
        settings.slow_consumer_time = Duration::from_millis(200);
    });
    let (mut other, other_session) = node.bound("other");
    let mut client = Client::over(Connection::open_narrow(node.websocket));
    let session = client.bind(&token_of("slow"), &json!({}));
    let payload = json!("x".repeat(300_000));
    let mut accepted = 0;
    while node
        .publish(
            session.id(),
            &session.envelope("event", "r", payload.clone()),
        )
        .status
        == 202
    {
        accepted += 1;
        assert!(accepted < 1000, "never refused");
    }
    eventually("it is counted", || {
        (node.metrics()["slowConsumers"] == 1).then_some(())
    });
    // It reads again in time to hear why.
    let mut heard = 0;
    let code = loop {
        let message = client.message();
        if message["type"] == "error" {
            break message["code"].clone();
        }
        heard += 1;
    };
    assert!(heard < accepted);
    assert_eq!(code, "connection_gateway.slow_consumer");
    client.ends_with(Some(1008));
    eventually("its session is over", || {
        (node.metrics()["activeSessions"] == 1).then_some(())
    });
    assert_eq!(node.metrics()["mailbox"]["lag"], 0);
    let mut caller = node.open_stream(other_session.id(), &other_session.stream_body("r"));
    other.envelope();
    other.send_envelope(other_session.envelope("response", "r", json!({})));
    assert_eq!(lines(&mut caller).len(), 1);
}

/// D6.
#[test]
fn three_thousand_chunks_all_arrive() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, session) = node.bound("tmb_1");
        let mut caller = node.open_stream(session.id(), &session.stream_body("r"));
        client.envelope();
        let sender = send_chunks(client, &session, 1_000);
        is_whole(&mut caller);
        sender.join().unwrap().is_served();
        assert_eq!(node.metrics()["streamBufferBytes"], 0);
    }
}

/// D6's other half: what is sent faster than it is read slows its sender down and piles up nowhere.
#[test]
fn a_slow_caller_slows_its_client_down_and_hears_all_the_same() {
    const BUFFER_BYTES: u64 = 100_000;
    // 15 MB in all, far more than the sockets on the way hold.
    let node = Node::with(2, |settings| {
        settings.slow_consumer_bytes = 100_000;
    });
    let (mut client, session) = node.bound("tmb_1");
    let mut caller = Connection::open_narrow(node.http);
    caller.send(stream_ask(session.id(), &session.stream_body("r")).bytes());
    assert_eq!(caller.read_head().status, 200);
    client.envelope();
    let sender = send_chunks(client, &session, 5_000);
    let waiting = || node.metrics()["streamBufferBytes"].as_u64().unwrap();
    eventually("as much waits as may", || {
        (waiting() > BUFFER_BYTES).then_some(())
    });
    for _ in 0..300 {
        // What was read at once is taken at once.
        assert!(waiting() <= BUFFER_BYTES + (256 << 10), "{}", waiting());
    }
    is_whole(&mut caller);
    sender.join().unwrap().is_served();
    assert_eq!(waiting(), 0);
}

/// Sends 3,000 numbered chunks of this size and the end.
fn send_chunks(mut client: Client, session: &Session, bytes: usize) -> JoinHandle<Client> {
    let session = session.clone();
    std::thread::spawn(move || {
        for number in 0..3_000 {
            let data = json!([number, "x".repeat(bytes)]);
            client.send_envelope(session.envelope("stream", "r", chunk(data)));
        }
        client.send_envelope(session.envelope("stream", "r", end()));
        client
    })
}

fn is_whole(caller: &mut Connection) {
    for number in 0..3_000 {
        let line = next_line(caller).unwrap();
        assert_eq!(line["payload"]["data"][0], number);
    }
    assert_eq!(lines(caller).len(), 1);
}

/// D5.
#[test]
fn ten_thousand_answers_to_requests_nobody_made_leave_nothing_behind() {
    let node = Node::start(1);
    let (mut client, session) = node.bound("tmb_1");
    for number in 0..10_000 {
        client.send_envelope(session.envelope("stream", &format!("r-{number}"), chunk(json!(1))));
    }
    client.is_served();
    let metrics = node.metrics();
    assert_eq!(metrics["streamBufferBytes"], 0);
    assert_eq!(metrics["inFlightRequests"], 0);
    let text =
        node.ask(&crate::stage::authorized("GET", "/metrics").header("accept", "text/plain"));
    let late = "shardgate_connection_gateway_envelopes_late_total{shard=\"0\"} 10000";
    assert!(text.text().contains(late), "{}", text.text());
    assert!(
        node.status(session.id()).json()["data"]["logs"]
            .as_array()
            .unwrap()
            .len()
            <= 100
    );
}

/// D17.
#[test]
fn a_capability_may_be_left_out_unless_it_is_demanded() {
    for (is_demanded, status) in [(false, 202), (true, 403)] {
        let node = Node::with(1, |settings| settings.require_capability = is_demanded);
        let (_client, session) = node.bound("tmb_1");
        let mut envelope = session.request("r");
        envelope.as_object_mut().unwrap().remove("capability");
        assert_eq!(node.publish(session.id(), &envelope).status, status);
    }
}

/// D4, its first half.
#[test]
fn a_connection_that_does_not_bind_is_told_so_and_ended() {
    let node = Node::with(1, |settings| {
        settings.bind_timeout = Duration::from_millis(150)
    });
    let (mut bound, _) = node.bound("tmb_1");
    let mut client = node.client();
    assert_eq!(client.error(None), "bind_timeout");
    client.ends_with(Some(1008));
    eventually("only the bound one is left", || {
        (node.metrics()["activeConnections"] == 1).then_some(())
    });
    bound.is_served();
}
