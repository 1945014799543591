//! No backend holds more than its share of requests: over it they fail at once.

use std::sync::Arc;

use crate::{
    support::{Backend, Gate, McpClient, Plan, call_body, eventually},
    text_of,
};

fn stuck(name: &str) -> (Backend, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let backend = Backend::scripted(name, &["slow", "quick"], {
        let gate = gate.clone();
        move |asked, _| {
            if asked.tool().as_deref() == Some("slow") {
                gate.wait();
            }
            None
        }
    });
    (backend, gate)
}

#[test]
fn over_the_limit_a_call_fails_at_once_and_others_are_served() {
    let (a, gate) = stuck("a");
    let b = Backend::start("b", &["quick"]);
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
        .shards(1)
        .settings(|settings| settings.upstream.concurrency_max = 3)
        .start();
    let mut client = McpClient::open(&gateway);
    let mut waiting: Vec<_> = (0..3)
        .map(|number| {
            let mut connection = client.connect();
            let body = call_body(&number.to_string(), "a-slow", "{}");
            connection.send(client.request(body).bytes());
            connection
        })
        .collect();
    gate.await_arrivals(3);
    assert_eq!(gateway.metric("shardgate_backend_in_flight"), 3);
    let answer = client.call("9", "a-quick", "{}").message();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&9.into(), &(-32603).into())
    );
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.ends_with("the backend has too many calls under way"),
        "{message}"
    );
    // Neither the other backend nor the breaker is affected.
    assert_eq!(text_of(&client.call("10", "b-quick", "{}")), "b quick {}");
    gate.open();
    for connection in &mut waiting {
        assert_eq!(text_of(&connection.read_response()), "a slow {}");
    }
    assert_eq!(text_of(&client.call("11", "a-quick", "{}")), "a quick {}");
    eventually("all places are free", || {
        (gateway.metric("shardgate_backend_in_flight") == 0).then_some(())
    });
}

#[test]
fn a_place_is_free_again_when_a_client_leaves() {
    let (a, gate) = stuck("a");
    let gateway = Plan::one(&a)
        .shards(1)
        .settings(|settings| settings.upstream.concurrency_max = 1)
        .start();
    let mut client = McpClient::open(&gateway);
    let mut connection = client.connect();
    connection.send(client.request(call_body("1", "slow", "{}")).bytes());
    gate.await_arrivals(1);
    assert_eq!(client.call("2", "quick", "{}").error_code(), -32603);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(client.post(cancel).status, 202);
    eventually("the place is free", || {
        let answer = client.call("3", "quick", "{}").message();
        answer["result"].is_object().then_some(())
    });
    gate.open();
}

#[test]
fn streams_of_backends_take_no_place() {
    let a = Backend::scripted("a", &["quick"], |asked, wire| {
        (asked.method == "GET").then(|| {
            wire.stream_head();
            wire.send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n");
            wire.await_end();
        })
    });
    let gateway = Plan::one(&a)
        .shards(1)
        .settings(|settings| settings.upstream.concurrency_max = 1)
        .start();
    let mut clients = [McpClient::open(&gateway), McpClient::open(&gateway)];
    let mut streams = [clients[0].stream(), clients[1].stream()];
    for stream in &mut streams {
        assert_eq!(stream.next_message()["method"], "notifications/message");
    }
    for client in &mut clients {
        assert_eq!(text_of(&client.call("1", "quick", "{}")), "a quick {}");
    }
}
