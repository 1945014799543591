//! What a child asks its client reaches the client, and the answer the child.

use serde_json::{Value, json};

use crate::{
    child,
    support::{EventStream, Gateway, HOST, McpClient, Plan, VERSION, call_body},
};

fn gateway(more: Value) -> Gateway {
    let backends = json!({"c": child::entry(more)});
    Plan::document(json!({"virtual_hosts": {HOST: {"backends": backends}}}))
        .settings(|settings| settings.upstream.allow_stdio = true)
        .start()
}

/// Calls the tool that asks, and gives the stream of the call, with the question.
fn asked(client: &McpClient) -> (EventStream, Value) {
    let mut calling = client.again();
    let ask = calling.request(call_body("\"c\"", "sample", "{}"));
    calling.connection.send(ask.bytes());
    let head = calling.connection.read_head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    let mut stream = EventStream::new(calling.connection, head);
    let asked: Value = serde_json::from_str(&stream.next_event().unwrap().data).unwrap();
    assert_eq!(asked["method"], "sampling/createMessage");
    (stream, asked)
}

fn end(mut stream: EventStream) -> Value {
    let last: Value = serde_json::from_str(&stream.next_event().unwrap().data).unwrap();
    assert_eq!(last["id"], "c");
    last["result"]["content"][0]["text"].clone()
}

#[test]
fn sampling_goes_to_the_client_that_declared_it_and_back() {
    let gateway = gateway(json!({}));
    let mut clients: Vec<_> = (0..2)
        .map(|_| McpClient::open_with(&gateway, VERSION, r#"{"sampling":{}}"#))
        .collect();
    // Both children ask with the same id.
    let mut streams: Vec<_> = clients.iter().map(asked).collect();
    for client in clients.iter_mut().rev() {
        let (stream, asked) = streams.pop().unwrap();
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"],
            "error": {"code": -1234, "message": "no"}});
        assert_eq!(client.post(answer.to_string()).status, 202);
        assert_eq!(end(stream), "-1234");
    }
}

#[test]
fn what_a_shared_child_asks_reaches_nobody() {
    let gateway = gateway(json!({"shared": true}));
    let mut client = McpClient::open_with(&gateway, VERSION, r#"{"sampling":{}}"#);
    let response = client.call("1", "sample", "{}");
    assert_eq!(response.result()["content"][0]["text"], "-32601");
}
