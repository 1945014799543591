//! RFC 6455 on the wire: what is taken, what is answered, and the codes of what is not (D21).

use serde_json::json;
use shardgate::websocket::{Masking, frame, write_frame};

use crate::stage::{Heard, Node};

const KEY: Masking = Masking::Key([5, 6, 7, 8]);

/// A frame whose first byte need not be right.
fn raw(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, 0, payload, KEY);
    bytes[0] = first;
    bytes
}

const HEARTBEAT: &[u8] = br#"{"protocol":"connection-gateway.ws.v1","type":"heartbeat","ts":1}"#;

#[test]
fn pings_are_answered_pongs_are_not_and_a_close_is_answered_with_its_code() {
    let node = Node::start(1);
    let mut client = node.client();
    client.send_frame(frame::PING, b"hi");
    assert_eq!(client.hear(), Heard::Pong(b"hi".to_vec()));
    client.send_frame(frame::PONG, b"unasked");
    client.is_served();
    for (payload, code) in [
        (&b""[..], None),
        (b"\x03\xe8bye", Some(1000)),
        (b"\x0f\xa0", Some(4000)),
    ] {
        let mut client = node.client();
        client.send_frame(frame::CLOSE, payload);
        client.ends_with(code);
    }
}

#[test]
fn fragments_with_pings_between_them_make_one_message_up_to_the_limit() {
    let node = Node::with(1, |settings| settings.envelope_bytes_max = 1000);
    let mut client = node.client();
    let (front, back) = HEARTBEAT.split_at(20);
    client.connection.send(raw(0x01, front));
    client.connection.send(raw(0x89, b"p"));
    client.connection.send(raw(0x80, back));
    assert_eq!(client.hear(), Heard::Pong(b"p".to_vec()));
    assert_eq!(client.message()["type"], "heartbeat");
    // Exactly the limit, in all.
    let mut padded = HEARTBEAT.to_vec();
    padded.resize(1000, b' ');
    client.connection.send(raw(0x01, &padded[..400]));
    client.connection.send(raw(0x80, &padded[400..]));
    assert_eq!(client.message()["type"], "heartbeat");
    client.send_frame(frame::TEXT, &padded);
    assert_eq!(client.message()["type"], "heartbeat");
    // And one byte more.
    client.connection.send(raw(0x01, &padded));
    client.connection.send(raw(0x80, b" "));
    assert_eq!(client.error(None), "invalid_message");
    client.ends_with(Some(1009));
}

#[test]
fn each_broken_rule_ends_the_connection_with_its_code_and_an_error_before_that() {
    let node = Node::with(1, |settings| settings.envelope_bytes_max = 1000);
    let mut unmasked = Vec::new();
    write_frame(&mut unmasked, frame::TEXT, HEARTBEAT, Masking::Plain);
    let cases: [(&str, Vec<u8>, u16); 13] = [
        ("unmasked", unmasked, 1002),
        ("reserved bit", raw(0xc1, HEARTBEAT), 1002),
        ("opcode 3", raw(0x83, HEARTBEAT), 1002),
        ("continuation of nothing", raw(0x80, HEARTBEAT), 1002),
        ("ping in fragments", raw(0x09, b"x"), 1002),
        ("long ping", raw(0x89, &[b'x'; 126]), 1002),
        ("close of one byte", raw(0x88, b"x"), 1002),
        ("binary", raw(0x82, HEARTBEAT), 1003),
        ("not UTF-8", raw(0x81, b"\xff"), 1007),
        ("not UTF-8 in a fragment", raw(0x01, b"a\xff"), 1007),
        ("too big, by its head", vec![0x81, 0xfe, 0x03, 0xe9], 1009),
        ("not JSON", raw(0x81, b"{"), 1008),
        ("empty", raw(0x81, b""), 1008),
    ];
    for (name, mut bytes, code) in cases {
        if code == 1009 {
            bytes.extend_from_slice(&[0; 4]);
        }
        let mut client = node.client();
        client.connection.send(&bytes);
        assert_eq!(client.error(None), "invalid_message", "{name}");
        client.ends_with(Some(code));
    }
    // A bound client waits for nothing, so it is told by the code alone.
    let (mut client, _) = node.bound("tmb_1");
    client.connection.send(raw(0xc1, HEARTBEAT));
    client.ends_with(Some(1002));
}

#[test]
fn messages_that_arrive_byte_by_byte_or_many_at_once_are_heard() {
    let node = Node::start(1);
    let mut client = node.client();
    for byte in raw(0x81, HEARTBEAT) {
        client.connection.send([byte]);
    }
    assert_eq!(client.message()["type"], "heartbeat");
    client.connection.send(raw(0x81, HEARTBEAT).repeat(200));
    for _ in 0..200 {
        assert_eq!(client.message()["type"], "heartbeat");
    }
}

#[test]
fn a_message_of_one_mebibyte_passes_both_ways() {
    let node = Node::start(2);
    let (mut client, session) = node.bound("tmb_1");
    let text = "x".repeat((1 << 20) - 1000);
    let mut body = session.stream_body("r");
    body["envelope"]["payload"] = json!({"text": text});
    let mut caller = node.open_stream(session.id(), &body);
    assert_eq!(client.envelope()["payload"]["text"], text);
    client.send_envelope(session.envelope("response", "r", json!({"text": text})));
    let lines = crate::stage::lines(&mut caller);
    assert_eq!(lines[0]["payload"]["text"], text);
}
