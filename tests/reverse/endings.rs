//! How a server's connection ends.

use std::time::Duration;

use serde_json::json;

use crate::{
    stage::{
        FRAMINGS, Framing, SOURCE, Said, Server, Socket, TOOLS, adjusted, claims, client, gateway,
        sign, until_tools, url, websocket,
    },
    support::{Limit, Plan, eventually},
};
use shardgate::settings::ConnectionGateway;

fn plain(gateway: &crate::support::Gateway) -> Socket {
    let extra = format!("Authorization: Bearer {}\r\n", sign(&claims(&[SOURCE])));
    let opened = Socket::open(websocket(gateway), Framing::Plain.path(), &extra);
    opened.unwrap_or_else(|refused| panic!("{refused:?}"))
}

#[test]
fn a_drain_lets_its_calls_end_and_then_sends_it_away() {
    for framing in FRAMINGS {
        let gateway = gateway(4);
        let server = Server::connect(&gateway, framing);
        let mut client = client(&gateway);
        until_tools(&mut client, &TOOLS);
        client.send_call("1", "wait", "{}");
        let call = server.wait_for("tools/call");
        let stopping = std::thread::spawn(move || gateway.stop());
        server.say(&json!({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}}));
        let response = client.connection.read_response();
        assert!(response.result().is_object(), "{framing:?}");
        assert_eq!(server.await_close(), Some(1001), "{framing:?}");
        assert!(stopping.join().unwrap());
    }
}

#[test]
fn one_that_does_not_initialize_is_sent_away() {
    let gateway = gateway(2);
    let mut socket = plain(&gateway);
    let greeting = socket.text();
    socket.say(&json!({"jsonrpc": "2.0", "id": greeting["id"],
        "error": {"code": -32603, "message": "no"}}));
    assert_eq!(socket.hear(), Said::Close(Some(1011)));
}

#[test]
fn one_that_gives_no_sign_of_life_is_ended() {
    let gateway = adjusted(2, &[("a", &url(SOURCE))], |settings| {
        settings.lease = Duration::from_millis(300);
    });
    let mut socket = plain(&gateway);
    assert_eq!(socket.text()["method"], "initialize");
    // It is asked, does not answer, and is told the end without another message.
    let mut pings = 0;
    let limit = Limit::begin();
    let end = loop {
        limit.check("an end");
        match socket.hear() {
            Said::Ping => pings += 1,
            other => break other,
        }
    };
    assert_eq!(end, Said::Close(Some(1008)));
    assert!(pings > 0);
    let again = eventually("the source is free", || {
        let extra = format!("Authorization: Bearer {}\r\n", sign(&claims(&[SOURCE])));
        Socket::open(websocket(&gateway), Framing::Plain.path(), &extra).ok()
    });
    drop(again);
}

#[test]
fn one_that_answers_pings_stays() {
    let gateway = adjusted(2, &[("a", &url(SOURCE))], |settings| {
        settings.lease = Duration::from_millis(200);
    });
    let server = Server::connect(&gateway, Framing::Plain);
    let mut client = client(&gateway);
    until_tools(&mut client, &TOOLS);
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert!(client.call("1", "echo", "{}").result().is_object());
        std::thread::park_timeout(Duration::from_millis(20));
    }
    drop(server);
}

#[test]
fn frames_that_are_no_text_and_texts_over_the_limit_end_it() {
    let gateway = Plan::of(&[("a", &url(SOURCE))])
        .with_tokens()
        .settings(|settings| {
            settings.limits.response_bytes_max = 1000;
            settings.connection_gateway = Some(ConnectionGateway::testing());
        })
        .start();
    let mut socket = plain(&gateway);
    assert_eq!(socket.text()["method"], "initialize");
    socket.say(&json!({"jsonrpc": "2.0", "method": "x", "params": {"x": "y".repeat(2000)}}));
    assert_eq!(socket.hear(), Said::Close(Some(1009)));
}
