//! How it ends: signals, pings, gateways that break rules; and that nothing is left behind.

use serde_json::json;
use shardgate::websocket::frame;

use crate::{
    stage::{Client, Door, Heard, code_of, until_gone},
    support::eventually,
};

#[test]
fn a_signal_fails_what_is_under_way_and_leaves_no_child() {
    for signal in ["TERM", "INT"] {
        let door = Door::open();
        let mut client = Client::stdio(&door, &[]);
        let mut socket = door.enter();
        socket.initialize();
        let pid = socket.call("pid", json!({}));
        let held = socket.ask_tool("hold", json!({}));
        // It has reached the child.
        socket.call("echo", json!({"text": "x"}));
        client.process.signal(signal);
        let error = socket.message();
        assert_eq!((&error["id"], code_of(&error)), (&json!(held), -32603));
        socket.ends_with(Some(1001));
        assert_eq!(client.process.exit_code(), 0);
        until_gone(&pid);
    }
}

#[test]
fn a_stubborn_child_and_what_it_started_are_killed() {
    let door = Door::open();
    let mut client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let pid = socket.call("pid", json!({}));
    let descendant = socket.call("descendant", json!({}));
    socket.call("stubborn", json!({}));
    client.process.signal("TERM");
    socket.ends_with(Some(1001));
    assert_eq!(client.process.exit_code(), 0);
    until_gone(&pid);
    until_gone(&descendant);
}

#[test]
fn a_signal_ends_it_while_it_waits_too() {
    let door = Door::open();
    let mut client = Client::stdio(&door, &[]);
    door.knock().refuse(503, "retry-after: 250\r\n");
    client.process.logged("trying again");
    client.process.signal("TERM");
    assert_eq!(client.process.exit_code(), 0);
    // And while it asks.
    let mut client = Client::stdio(&door, &[]);
    let knock = door.knock();
    client.process.signal("TERM");
    assert_eq!(client.process.exit_code(), 0);
    drop(knock);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let door = Door::open();
    let mut client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let pid = socket.call("pid", json!({}));
    socket.call("stubborn", json!({}));
    client.process.signal("TERM");
    client.process.logged("stopping");
    assert_eq!(socket.hear(), Heard::Close(Some(1001)));
    // One that comes too soon is the same wish, so again and again.
    let code = eventually("the end", || {
        let code = client.process.has_ended();
        if code.is_none() {
            client.process.signal("TERM");
        }
        code
    });
    assert_eq!(code, 1);
    until_gone(&pid);
}

#[test]
fn pings_are_answered_while_a_call_runs() {
    let door = Door::open();
    let _client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    socket.ask_tool("hold", json!({}));
    socket.send_frame(frame::PING, b"payload");
    assert_eq!(socket.hear(), Heard::Pong(b"payload".to_vec()));
    socket.send_frame(frame::PONG, b"unasked");
    assert_eq!(socket.call("echo", json!({"text": "x"})), "x");
}

#[test]
fn rules_that_the_gateway_breaks_end_the_connection_and_are_named() {
    let door = Door::open();
    let client = Client::stdio(&door, &[]);
    for (opcode, payload, code) in [
        (frame::BINARY, &b"x"[..], 1003),
        (frame::TEXT, b"\xff", 1007),
        (frame::TEXT, b"no JSON", 1008),
        (frame::TEXT, b"[]", 1008),
        (3, b"", 1002),
    ] {
        let mut socket = door.enter();
        socket.send_frame(opcode, payload);
        assert_eq!(socket.hear(), Heard::Close(Some(code)), "{payload:?}");
    }
    client.process.logged("broke the protocol");
    client.process.logged("no JSON-RPC message");
}
