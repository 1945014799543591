//! Clients that mean harm, or do it: each is refused in words or ended with a code, costs what one
//! client may cost, and the others go on.

use std::time::Duration;

use serde_json::{Value, json};
use shardgate::websocket::{Masking, frame, write_frame};

use crate::{
    stage::{Client, Heard, Node, PATH, SHARDS, claims_of, sign, token_of},
    support::{Connection, eventually},
};

/// The head of a frame of text that says this length in eight bytes and has this key.
fn long_head(length: u64, key: [u8; 4]) -> Vec<u8> {
    let mut head = vec![0x81, 0xff];
    head.extend_from_slice(&length.to_be_bytes());
    head.extend_from_slice(&key);
    head
}

#[test]
fn a_length_nobody_can_mean_is_judged_by_its_head() {
    let node = Node::start(1);
    for (length, code) in [
        (1 << 63, 1002),
        (u64::MAX, 1002),
        ((1 << 63) - 1, 1009),
        (1 << 40, 1009),
    ] {
        let mut client = node.client();
        client.connection.send(long_head(length, [0; 4]));
        assert_eq!(client.error(None), "invalid_message", "{length}");
        client.ends_with(Some(code));
        let (mut bound, _) = node.bound(&format!("u{length}"));
        bound.connection.send(long_head(length, [9; 4]));
        bound.ends_with(Some(code));
    }
}

#[test]
fn a_key_of_zeros_is_a_key() {
    let node = Node::start(1);
    let mut client = node.client();
    let mut bytes = Vec::new();
    let text = br#"{"protocol":"connection-gateway.ws.v1","type":"heartbeat","ts":1}"#;
    write_frame(&mut bytes, frame::TEXT, text, Masking::Key([0; 4]));
    assert_eq!(&bytes[6..], text);
    client.connection.send(&bytes);
    assert_eq!(client.message()["type"], "heartbeat");
    client.is_served();
}

#[test]
fn a_close_that_says_what_it_may_not_is_answered_with_the_code_of_its_fault() {
    let node = Node::start(1);
    for (payload, code) in [
        // A reason that is not UTF-8; a letter cut in two; codes that never stand in a frame.
        (&b"\x03\xe8\xff\xfe"[..], 1007),
        (b"\x03\xe8a\xc3", 1007),
        (b"\x03\xec", 1002),
        (b"\x03\xed", 1002),
        (b"\x03\xee", 1002),
        (b"\x03\xf7", 1002),
        (b"\x00\x00", 1002),
        (b"\xff\xff", 1002),
    ] {
        let (mut client, _) = node.bound(&format!("{payload:?}"));
        client.send_frame(frame::CLOSE, payload);
        client.ends_with(Some(code));
    }
    // The longest reason there can be.
    let mut longest = b"\x03\xe9".to_vec();
    longest.resize(125, b'x');
    let (mut client, _) = node.bound("longest");
    client.send_frame(frame::CLOSE, &longest);
    client.ends_with(Some(1001));
}

#[test]
fn each_ping_of_a_flood_is_answered_in_order() {
    let node = Node::start(1);
    let (mut client, _) = node.bound("tmb_1");
    let mut bytes = Vec::new();
    for number in 0..5_000_u32 {
        let key = Masking::Key(number.to_le_bytes());
        write_frame(&mut bytes, frame::PING, &number.to_be_bytes(), key);
    }
    client.connection.send(&bytes);
    for number in 0..5_000_u32 {
        assert_eq!(client.hear(), Heard::Pong(number.to_be_bytes().to_vec()));
    }
    client.is_served();
}

/// While its pongs are not taken nothing more is read of it, and in the end it is cut off.
#[test]
fn a_flood_of_pings_by_one_that_does_not_read_is_ended_and_others_are_served() {
    let node = Node::with(1, |settings| {
        settings.slow_consumer_time = Duration::from_millis(200);
    });
    let (mut other, _) = node.bound("other");
    let mut client = Client::over(Connection::open_narrow(node.websocket));
    client.bind(&token_of("flood"), &json!({}));
    let mut pings = Vec::new();
    for _ in 0..1_000 {
        write_frame(&mut pings, frame::PING, &[b'x'; 125], Masking::Key([3; 4]));
    }
    // Until its bytes are refused: 131 kB a round, far more than all buffers on the way hold.
    let mut rounds = 0;
    while client.connection.try_send(&pings) {
        rounds += 1;
        assert!(rounds < 4_000, "nothing stops it");
    }
    eventually("its session is over", || {
        (node.metrics()["activeSessions"] == 1).then_some(())
    });
    other.is_served();
}

#[test]
fn a_token_binds_again_after_its_session_was_deleted_unless_it_is_good_once() {
    for shards in SHARDS {
        for is_single in [false, true] {
            let node = Node::with(shards, |settings| settings.single_use_tokens = is_single);
            let mut claims = claims_of("tmb_1");
            claims["nonce"] = "n-1".into();
            let token = sign(&claims);
            let mut first = node.client();
            let session = first.bind(&token, &json!({}));
            assert_eq!(node.delete(session.id()).status, 200);
            first.ends_with(None);
            let answer = eventually("the source is free", || {
                let mut again = node.client();
                again.send_bind(&token, &json!({}));
                let message = again.message();
                (message["code"] != "connection_gateway.session_already_bound").then_some(message)
            });
            if is_single {
                assert_eq!(answer["code"], "connection_gateway.invalid_token");
            } else {
                assert_eq!(answer["type"], "bound");
                assert_ne!(answer["session"]["id"], session.id());
            }
        }
    }
}

/// A client's clock is nobody's business: its time is read and not used.
#[test]
fn a_heartbeat_from_the_future_is_answered_with_the_gateway_s_own_time() {
    let node = Node::start(1);
    let (mut client, session) = node.bound("tmb_1");
    for ts in [1, 4_102_444_800_000_u64, 9_007_199_254_740_991] {
        client.send(json!({"type": "heartbeat", "ts": ts}));
        let message = client.message();
        let now = message["ts"].as_u64().unwrap();
        assert!(
            (1_700_000_000_000..4_000_000_000_000).contains(&now),
            "{now}"
        );
        let status = node.status(session.id()).json();
        let expires_at = status["data"]["session"]["expiresAt"].as_u64().unwrap();
        assert!(expires_at <= now + 60_000, "the lease is the gateway's");
    }
    // Above what every reader has exactly.
    client.send_text(
        r#"{"protocol":"connection-gateway.ws.v1","type":"heartbeat","ts":9007199254740992}"#,
    );
    assert_eq!(client.error(None), "invalid_message");
    client.ends_with(Some(1008));
}

/// An array in so many others, itself among them.
fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn metadata_that_are_large_or_deep_are_shown_as_they_came_and_replaced_whole() {
    for shards in SHARDS {
        let node = Node::start(shards);
        let (mut client, session) = node.bound("tmb_1");
        let deep = nested(120);
        let features = format!(r#"{{"gateway":{{"features":{deep}}}}}"#);
        let wide = format!(r#"{{"text":"{}"}}"#, "x".repeat(1_000_000));
        let metadata_message = |metadata: &str| {
            format!(
                r#"{{"protocol":"connection-gateway.ws.v1","type":"metadata","metadata":{metadata}}}"#
            )
        };
        for metadata in [&features, &wide, &format!(r#"{{"deep":{deep}}}"#)] {
            client.send_text(&metadata_message(metadata));
            client.is_served();
            let shown = node.status(session.id());
            assert_eq!(shown.status, 200);
            assert!(shown.text().contains(metadata.as_str()));
        }
        // Nothing of it is kept.
        client.send(json!({"type": "metadata", "metadata": {}}));
        client.is_served();
        assert!(node.status(session.id()).text().len() < 2_000);
        // One more byte than a message may have.
        let over = format!(
            r#"{{"protocol":"connection-gateway.ws.v1","type":"metadata","metadata":{{"a":"{}"}}}}"#,
            "x".repeat(1 << 20)
        );
        client.send_text(&over);
        client.ends_with(Some(1009));
        // Deeper than anything is read.
        let (mut client, _session) = node.bound("tmb_2");
        client.send_text(&metadata_message(&format!(
            r#"{{"deep":{}}}"#,
            nested(100_000)
        )));
        assert_eq!(client.error(None), "invalid_message");
        client.ends_with(Some(1008));
    }
}

#[test]
fn a_bomb_of_metadata_by_a_caller_is_refused_or_kept_and_breaks_nothing() {
    let node = Node::start(2);
    let (mut client, session) = node.bound("tmb_1");
    let (deep, deeper) = (nested(120), nested(100_000));
    let target = format!("/internal/sessions/{}/metadata", session.id());
    for (body, status) in [
        (format!(r#"{{"metadata":{deep}}}"#), 400),
        (format!(r#"{{"metadata":{{"a":{deep}}}}}"#), 200),
        (format!(r#"{{"metadata":{{"a":{deeper}}}}}"#), 400),
        (deeper, 400),
    ] {
        let mut ask = crate::stage::with_body("PATCH", &target, &Value::Null);
        ask.body = Some(body.into_bytes());
        assert_eq!(node.ask(&ask).status, status);
    }
    client.is_served();
}

#[test]
fn an_opening_request_that_never_ends_or_is_too_long_is_given_up() {
    let node = Node::with_all(
        1,
        |_| {},
        |all| all.timeouts.head = Duration::from_millis(200),
    );
    let mut slow = Connection::open(node.websocket);
    slow.send(format!("GET {PATH} HTTP/1.1\r\nHost: a\r\nUpgr"));
    assert!(slow.is_closed());
    let mut long = Connection::open(node.websocket);
    let lines = "X-Filler: 0123456789abcdef\r\n".repeat(20_000);
    // It may be cut off before it has said all.
    long.try_send(format!("GET {PATH} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    while long.fill() {}
    let answer = String::from_utf8_lossy(&long.buffer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    node.client().is_served();
}

/// A connection that has begun a message and says no more of it is ended like any other that does
/// not bind, or whose lease is over.
#[test]
fn a_message_that_never_ends_keeps_nothing_open() {
    let node = Node::with(1, |settings| {
        settings.bind_timeout = Duration::from_millis(150);
    });
    let mut unbound = node.client();
    unbound.connection.send(long_head(1_000_000, [1; 4]));
    unbound.connection.send([b'x'; 1_000]);
    assert_eq!(unbound.error(None), "bind_timeout");
    unbound.ends_with(Some(1008));
    let node = Node::with(1, |settings| settings.lease = Duration::from_millis(300));
    let (mut bound, _) = node.bound("tmb_1");
    bound.connection.send(long_head(1_000_000, [1; 4]));
    assert_eq!(bound.error(None), "session_owner_expired");
    bound.ends_with(Some(1008));
    eventually("it is gone", || {
        (node.metrics()["activeConnections"] == 0).then_some(())
    });
}
