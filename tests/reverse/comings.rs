//! A server comes and goes: what clients see and hear of it.

use std::time::Instant;

use serde_json::Value;

use crate::{
    stage::{FRAMINGS, Framing, SHARDS, Server, TOOLS, client, gateway, until_tools},
    support::{EventStream, HOST, Limit, ModernClient, eventually},
};

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// Waits until the stream tells that the tools are others.
fn until_changed(stream: &mut EventStream) -> Value {
    let limit = Limit::begin();
    loop {
        limit.check(LIST_CHANGED);
        let message = stream.next_message();
        if message["method"] == LIST_CHANGED {
            return message;
        }
    }
}

#[test]
fn sessions_begin_without_it_hear_of_it_and_outlive_it() {
    for shards in SHARDS {
        for framing in FRAMINGS {
            let gateway = gateway(shards);
            let mut client = client(&gateway);
            let mut stream = client.stream();
            assert_eq!(client.tool_names(), [""; 0]);
            assert_eq!(client.call("1", "echo", "{}").error_code(), -32603);
            for _ in 0..3 {
                let server = Server::connect(&gateway, framing);
                until_changed(&mut stream);
                assert_eq!(client.tool_names(), TOOLS);
                assert!(client.call("2", "echo", "{}").result().is_object());
                server.cut();
                until_changed(&mut stream);
                assert_eq!(client.tool_names(), [""; 0]);
                assert_eq!(client.call("3", "echo", "{}").error_code(), -32603);
            }
        }
    }
}

#[test]
fn clients_without_a_session_hear_of_it_too() {
    for shards in SHARDS {
        let gateway = gateway(shards);
        let token = gateway.token("client");
        let mut client = ModernClient::of(&gateway, HOST, Some(&token));
        assert_eq!(client.tool_names(), [""; 0]);
        let mut stream = client.listen("\"l\"", r#"{"toolsListChanged":true}"#);
        let first = stream.next_message();
        assert_eq!(
            first["params"]["notifications"]["toolsListChanged"], true,
            "{first}"
        );
        // It is acknowledged before the bridge is listened to.
        let mut server = Server::connect(&gateway, Framing::Plain);
        eventually("the list is the server's", || {
            (client.tool_names() == TOOLS).then_some(())
        });
        drop(server);
        eventually("the list is empty", || {
            client.tool_names().is_empty().then_some(())
        });
        let changed = until_changed(&mut stream);
        let meta = &changed["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], "l");
        // From here on it is listened to for certain: both are told, one after the other.
        server = Server::connect(&gateway, Framing::Plain);
        until_changed(&mut stream);
        eventually("the list is the server's", || {
            (client.tool_names() == TOOLS).then_some(())
        });
        drop(server);
        until_changed(&mut stream);
        eventually("the list is empty", || {
            client.tool_names().is_empty().then_some(())
        });
    }
}

#[test]
fn a_call_under_way_fails_when_it_goes() {
    for shards in SHARDS {
        for framing in FRAMINGS {
            let gateway = gateway(shards);
            let server = Server::connect(&gateway, framing);
            let mut client = client(&gateway);
            until_tools(&mut client, &TOOLS);
            let mut calling = client.again();
            calling.send_call("\"c\"", "wait", "{}");
            server.wait_for("tools/call");
            let cut = Instant::now();
            server.cut();
            let response = calling.connection.read_response();
            println!("{framing:?}, {shards} shards: {:?}", cut.elapsed());
            assert_eq!(response.error_code(), -32603);
            assert_eq!(response.message()["id"], "c");
            // The same place takes the next one at once.
            let _again = Server::connect(&gateway, framing);
            until_tools(&mut client, &TOOLS);
        }
    }
}

#[test]
fn a_change_that_the_server_tells_is_passed_on_and_its_log_is_not() {
    let gateway = gateway(4);
    let server = Server::connect(&gateway, Framing::Plain);
    let mut client = client(&gateway);
    until_tools(&mut client, &TOOLS);
    let mut streams = [client.stream(), crate::stage::client(&gateway).stream()];
    let say = |text: &str| server.say(&serde_json::from_str(text).unwrap());
    say(
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"x"}}"#,
    );
    say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    for stream in &mut streams {
        assert_eq!(stream.next_message()["method"], LIST_CHANGED);
    }
}
