//! What a client may say and what it hears: the behaviour table (2.6), with D15 and D16 in the
//! place of silence.

use serde_json::json;

use crate::{
    stage::{Node, SHARDS, chunk, end, lines},
    support::eventually,
};

#[test]
fn an_unbound_connection_gets_heartbeats_and_errors_and_stays() {
    let node = Node::start(1);
    let mut client = node.client();
    client.is_served();
    client.send(json!({"type": "metadata", "requestId": "m", "metadata": {}}));
    assert_eq!(client.error(Some("m")), "unbound");
    client.send(json!({"type": "metadata", "metadata": {}}));
    assert_eq!(client.error(None), "unbound");
    let (_, session) = node.bound("tmb_1");
    client.send_envelope(session.envelope("response", "req-1", json!({})));
    assert_eq!(client.error(Some("req-1")), "unbound");
    client.is_served();
}

#[test]
fn every_message_of_a_bound_client_renews_its_lease() {
    let node = Node::start(2);
    let (mut client, session) = node.bound("tmb_1");
    let expires_at = || node.status(session.id()).json()["data"]["session"]["expiresAt"].as_u64();
    let mut before = session.0["expiresAt"].as_u64();
    let says = [
        json!({"type": "heartbeat", "ts": 1}),
        json!({"type": "metadata", "metadata": {"a": 1}}),
        json!({"type": "envelope", "envelope": session.envelope("response", "r", json!({}))}),
    ];
    for message in says {
        client.send(message.clone());
        before = eventually("the lease is longer", || {
            let now = expires_at();
            if now > before {
                return Some(now);
            }
            // In the very millisecond of the last renewal it cannot be.
            client.send(message.clone());
            None
        });
    }
}

#[test]
fn metadata_are_replaced_whole_and_nothing_is_said() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let mut client = node.client();
        let session = client.bind(&crate::stage::token_of("a"), &json!({"old": 1, "both": 1}));
        client.send(json!({"type": "metadata", "requestId": "m", "metadata": {"both": 2}}));
        // Nothing came before the answer to this.
        client.is_served();
        let status = node.status(session.id()).json();
        assert_eq!(status["data"]["session"]["metadata"], json!({"both": 2}));
    }
}

/// D15: the original dropped all of these in silence.
#[test]
fn an_envelope_the_session_may_not_send_is_answered_with_the_exact_code() {
    let node = Node::start(1);
    let (mut client, session) = node.bound("tmb_1");
    for (name, value, code) in [
        (
            "sessionId",
            json!("7a76e6cf-0000-4000-8000-000000000000"),
            "session_mismatch",
        ),
        ("generation", json!(1), "stale_generation"),
        ("consumerType", json!("other"), "invalid_token"),
        ("capability", json!("admin"), "capability_denied"),
        // D16: it used to come straight back.
        ("type", json!("request"), "invalid_envelope"),
    ] {
        let mut envelope = session.envelope("response", "r", json!({}));
        envelope[name] = value;
        client.send_envelope(envelope);
        assert_eq!(client.error(Some("r")), code, "{name}");
    }
    let mut envelope = session.envelope("response", "r", json!({}));
    envelope.as_object_mut().unwrap().remove("requestId");
    client.send_envelope(envelope);
    assert_eq!(client.error(None), "invalid_envelope");
    client.is_served();
}

#[test]
fn what_is_no_message_ends_the_connection_after_an_error() {
    let node = Node::start(1);
    for message in [
        json!({"type": "nothing"}),
        json!({"type": "heartbeat", "ts": 0}),
        json!({"type": "envelope", "envelope": {}}),
    ] {
        let (mut client, _) = node.bound(&format!("{message}"));
        client.send(message);
        assert_eq!(client.error(None), "invalid_message");
        client.ends_with(Some(1008));
    }
}

/// 2.5, 3.2: what an envelope is on its way, and which one is the last.
#[test]
fn envelopes_keep_their_payloads_bytes_and_lose_members_nobody_knows() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, session) = node.bound("tmb_1");
        let payload = r#"{"n":1.50,"2":1,"1":12345678901234567890,"x":"\ud800"}"#;
        let id = session.id();
        let body = format!(
            "{{\"envelope\":{{\"createdAt\":5,\"unknown\":1,\"payload\":{payload},\n\
             \"capability\":\"invoke\",\"type\":\"request\",\"requestId\":\"r\",\"generation\":0,\
             \"consumerType\":\"plugin-debug\",\"sessionId\":\"{id}\",\"traceId\":\"\",\
             \"protocol\":\"connection-gateway.v1\"}}}}"
        );
        let mut ask = crate::stage::stream_ask(id, &json!({}));
        ask.body = Some(body.into_bytes());
        let mut caller = node.caller();
        caller.send(ask.bytes());
        assert_eq!(caller.read_head().status, 200);
        let wanted = format!(
            "{{\"protocol\":\"connection-gateway.v1\",\"sessionId\":\"{id}\",\"generation\":0,\
             \"requestId\":\"r\",\"type\":\"request\",\"consumerType\":\"plugin-debug\",\
             \"capability\":\"invoke\",\"traceId\":\"\",\"payload\":{payload},\"createdAt\":5}}"
        );
        let message = format!(
            "{{\"protocol\":\"connection-gateway.ws.v1\",\"type\":\"envelope\",\"envelope\":{wanted}}}"
        );
        while client.connection.buffer.len() < 4 + message.len() {
            assert!(client.connection.fill());
        }
        assert_eq!(
            std::str::from_utf8(&client.connection.buffer[4..]).unwrap(),
            message
        );
        client.connection.buffer.clear();
        // And back, over several lines: one line for the caller.
        let pretty =
            "{\n  \"kind\": \"plugin-debug.stream\",\r\n  \"event\": \"end\", \"n\": 1.50\n}";
        let answer = wanted
            .replace("\"request\"", "\"stream\"")
            .replace(payload, pretty);
        client.send_text(&message.replace(&wanted, &answer));
        let line = caller.read_chunk().unwrap();
        let line = String::from_utf8(line).unwrap();
        assert!(
            line.ends_with("}\n") && line.matches('\n').count() == 1,
            "{line}"
        );
        assert!(line.contains("\"n\": 1.50"), "{line}");
        assert_eq!(caller.read_chunk(), None);
    }
}

#[test]
fn a_stream_ends_with_its_terminal_envelope_and_with_no_other() {
    let node = Node::start(2);
    let (mut client, session) = node.bound("tmb_1");
    let open = [
        ("response", json!({"kind": "plugin-debug.accepted"})),
        ("event", json!({"event": "end"})),
        ("stream", chunk(json!(1))),
        ("stream", json!("end")),
        ("stream", json!({"event": "other"})),
    ];
    let terminal = [
        ("response", json!(null)),
        ("response", json!([])),
        ("response", json!("text")),
        (
            "response",
            json!({"kind": "plugin-debug.error", "message": "m"}),
        ),
        ("stream", end()),
        ("stream", json!({"event": "error"})),
    ];
    for (index, (kind, payload)) in terminal.into_iter().enumerate() {
        let request_id = format!("r-{index}");
        let mut caller = node.open_stream(session.id(), &session.stream_body(&request_id));
        client.envelope();
        for (kind, payload) in &open {
            client.send_envelope(session.envelope(kind, &request_id, payload.clone()));
        }
        client.send_envelope(session.envelope(kind, &request_id, payload.clone()));
        // What comes later has nobody to go to (D13).
        client.send_envelope(session.envelope("stream", &request_id, chunk(json!("late"))));
        let lines = lines(&mut caller);
        assert_eq!(lines.len(), open.len() + 1);
        assert_eq!(lines.last().unwrap()["payload"], payload);
    }
    client.is_served();
}
