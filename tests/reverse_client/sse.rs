//! A local server over HTTP+SSE (2024-11-05): one stream for each connection.

use serde_json::json;

use crate::{
    old::{Dialect, Old, USUAL},
    stage::{Client, Door, code_of},
    support::{Asked, eventually},
};

fn client(door: &Door, old: &Old) -> Client {
    let url = old.url();
    let more = ["--sse", &url, "--server-header", "X-Key: k"];
    Client::start(&door.url(), &more)
}

#[test]
fn a_server_is_initialized_listed_and_called_over_its_stream() {
    let old = Old::start(USUAL);
    let door = Door::open();
    let mut client = client(&door, &old);
    let mut socket = door.enter();
    assert_eq!(socket.initialize()["serverInfo"]["name"], "old");
    let tools = socket.request("tools/list", json!({}));
    assert_eq!(tools["result"]["tools"][0]["name"], "echo");
    for _ in 0..3 {
        socket.ask_tool("echo", json!({"text": "hi"}));
        assert!(socket.message()["result"].is_object());
    }
    for asked in old.backend.seen() {
        assert_eq!(asked.header("x-key"), Some("k"));
    }
    client.process.signal("TERM");
    socket.ends_with(Some(1001));
    assert_eq!(client.process.exit_code(), 0);
}

#[test]
fn a_stream_that_ends_fails_what_is_under_way_and_is_opened_again() {
    let old = Old::start(USUAL);
    let door = Door::open();
    let client = client(&door, &old);
    let mut socket = door.enter();
    socket.initialize();
    let id = socket.ask_tool("silent", json!({}));
    eventually("the call is there", || {
        let is_there = |asked: &Asked| asked.tool().as_deref() == Some("silent");
        old.posts().iter().any(is_there).then_some(())
    });
    old.cut();
    let error = socket.message();
    assert_eq!((&error["id"], code_of(&error)), (&json!(id), -32603));
    socket.ends_with(Some(1011));
    // By the end of the stream, or by the answer to a POST that was under way: it is gone.
    eventually("the client says why", || {
        let said = client.process.stderr();
        let ways = ["ended its event stream", "has forgotten us"];
        ways.iter().any(|way| said.contains(way)).then_some(())
    });
    door.enter().initialize();
}

#[test]
fn an_endpoint_of_another_origin_is_no_server() {
    let old = Old::start(Dialect {
        endpoint: "event: endpoint\ndata: http://127.0.0.1:1/message\n\n",
        ..USUAL
    });
    let door = Door::open();
    let client = client(&door, &old);
    client.process.logged("endpoint of another origin");
    assert!(door.is_quiet() && old.posts().is_empty());
}
