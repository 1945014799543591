//! The frames of ContextForge's reverse proxy, one by one.

use serde_json::{Value, json};

use crate::{
    stage::{Framing, Said, Socket, USER, gateway, register, websocket},
    support::Gateway,
};

fn proxy(gateway: &Gateway) -> Socket {
    let token = format!("Authorization: Bearer {}\r\n", gateway.token(USER));
    let path = Framing::ContextForge.path();
    Socket::open(websocket(gateway), path, &token).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn registered(gateway: &Gateway) -> Socket {
    let mut socket = proxy(gateway);
    socket.say(&register("files"));
    let ack = socket.text();
    assert_eq!(ack["type"], "register_ack");
    assert!(ack["sessionId"].is_string() && ack["status"].is_string());
    let complete = socket.text();
    assert_eq!(
        (&complete["type"], &complete["status"]),
        (&json!("register_complete"), &json!("success"))
    );
    let greeting = socket.text();
    assert_eq!(greeting["type"], "request");
    assert_eq!(greeting["payload"]["method"], "initialize");
    socket
}

#[test]
fn without_a_good_token_it_ends_by_policy() {
    let gateway = gateway(1);
    for extra in ["", "Authorization: Bearer x\r\n"] {
        let opened = Socket::open(websocket(&gateway), Framing::ContextForge.path(), extra);
        let mut socket = opened.unwrap_or_else(|refused| panic!("{refused:?}"));
        assert_eq!(socket.hear(), Said::Close(Some(1008)));
    }
}

#[test]
fn a_second_registration_is_an_error_and_the_end() {
    let gateway = gateway(1);
    let mut socket = registered(&gateway);
    socket.say(&register("files"));
    assert_eq!(socket.text()["type"], "error");
    assert_eq!(socket.hear(), Said::Close(Some(1008)));
}

#[test]
fn heartbeats_are_answered_and_what_is_no_frame_is_an_error() {
    let gateway = gateway(1);
    let mut socket = registered(&gateway);
    socket.say(&json!({"type": "heartbeat", "sessionId": "mine"}));
    let answer = socket.text();
    assert_eq!(answer["type"], "heartbeat");
    assert!(answer["timestamp"].as_u64().unwrap() > 1_700_000_000_000);
    // Some proxies answer the answer: that one is not answered again.
    socket.say(&json!({"type": "heartbeat", "sessionId": "mine"}));
    for wrong in [
        json!({"type": "other"}),
        json!([]),
        json!({"type": "response", "payload": 1}),
    ] {
        socket.say(&wrong);
        assert_eq!(socket.text()["type"], "error", "{wrong}");
    }
    socket.say(&json!({"type": "unregister", "sessionId": "mine"}));
    assert_eq!(socket.hear(), Said::Close(Some(1000)));
    // Its name is free again.
    registered(&gateway);
}

#[test]
fn before_it_has_registered_nothing_is_taken() {
    let gateway = gateway(1);
    let mut socket = proxy(&gateway);
    socket.say(&json!({"type": "response", "payload": {"jsonrpc": "2.0", "id": 1, "result": {}}}));
    let refused: Value = socket.text();
    assert_eq!(refused["type"], "error");
    registered(&gateway);
}
