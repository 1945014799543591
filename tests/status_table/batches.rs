//! Several messages in one POST: what revision 2025-03-26 had, and no other (mcp.md 1.2).

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    assert_rpc,
    support::{Backend, Gate, LAYOUTS, Layout, McpClient, Plan, Response, call_body, request},
};

const REVISION: &str = "2025-03-26";
const MESSAGES_MAX: usize = 100;

fn ping(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

fn batch(messages: &[String]) -> String {
    format!("[{}]", messages.join(","))
}

/// The responses of a batch by their raw ids, in what order they may be.
fn by_id(response: &Response) -> BTreeMap<String, Value> {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/json"));
    let all = response.json();
    let all = all.as_array().unwrap();
    let found: BTreeMap<String, Value> = all
        .iter()
        .map(|message| (message["id"].to_string(), message.clone()))
        .collect();
    assert_eq!(found.len(), all.len(), "{all:?}");
    found
}

#[test]
fn a_batch_is_answered_with_one_array() {
    for layout in LAYOUTS {
        let a = Backend::start("a", &["one"]);
        let b = Backend::scripted("b", &["two"], |asked, wire| {
            asked.tool()?;
            let done = crate::support::response(asked, "streamed");
            let note = request(
                None,
                "notifications/message",
                r#"{"level":"error","data":1}"#,
            );
            let stream = format!("data: {note}\n\ndata: {done}\n\n");
            wire.answer(200, "content-type: text/event-stream\r\n", stream);
            Some(())
        });
        let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
            .layout(layout)
            .start();
        let mut client = McpClient::open_with(&gateway, REVISION, "{}");
        let response = client.post(batch(&[
            call_body(r#""x""#, "a-one", r#"{"n":1}"#),
            request(None, "notifications/roots/list_changed", "{}"),
            call_body("2", "b-two", "{}"),
            call_body("3", "c-none", "{}"),
            request(Some("4"), "tools/list", "{}"),
            request(Some("5"), "no/such", "{}"),
            ping("0"),
        ]));
        assert!(response.text().starts_with('['));
        assert!(response.text().contains(r#"a one {\"n\":1}"#));
        let found = by_id(&response);
        let ids: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(ids, [r#""x""#, "0", "2", "3", "4", "5"]);
        assert_eq!(found["2"]["result"]["content"][0]["text"], "streamed");
        assert_eq!(found["3"]["error"]["code"], -32602);
        assert_eq!(found["4"]["result"]["tools"].as_array().unwrap().len(), 2);
        assert_eq!(found["5"]["error"]["code"], -32601);
        assert_eq!(found["0"]["result"], serde_json::json!({}));
    }
}

#[test]
fn a_batch_without_requests_is_taken() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    let mut client = McpClient::open_with(&gateway, REVISION, "{}");
    let note = request(None, "notifications/roots/list_changed", "{}");
    let answer = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#.to_owned();
    for messages in [vec![note.clone()], vec![answer.clone()], vec![note, answer]] {
        let response = client.post(batch(&messages));
        assert_eq!((response.status, response.body.len()), (202, 0));
    }
}

#[test]
fn what_is_no_batch_is_refused_whole() {
    for layout in [Layout::One, Layout::Spread] {
        let backend = Backend::start("a", &["one"]);
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open_with(&gateway, REVISION, "{}");
        let call = || call_body("1", "one", "{}");
        let initialize = crate::support::initialize_body("1", REVISION);
        let too_many = vec![ping("1"); MESSAGES_MAX + 1];
        for (body, code) in [
            ("[]".to_owned(), -32600),
            (" [ ] ".to_owned(), -32600),
            (batch(&[call(), initialize.clone()]), -32600),
            (batch(&[initialize]), -32600),
            (batch(&too_many), -32600),
            (batch(&[call(), "1".to_owned()]), -32600),
            (batch(&[call(), batch(&[call()])]), -32600),
            (format!("[{},]", call()), -32700),
            (format!("[{}", call()), -32700),
            (format!("[{}] x", call()), -32700),
            (format!("[{} {}]", call(), call()), -32700),
        ] {
            let response = client.post(&body);
            assert_eq!(response.status, 400, "{body:.60}");
            assert_eq!(response.error_code(), code, "{body:.60}");
        }
        assert_eq!(backend.seen_rpc("tools/call").len(), 0, "nothing was done");
        let most: Vec<String> = (0..MESSAGES_MAX).map(|id| ping(&id.to_string())).collect();
        assert_eq!(by_id(&client.post(batch(&most))).len(), MESSAGES_MAX);
    }
}

#[test]
fn other_revisions_have_no_batches() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut client = McpClient::open_with(&gateway, revision, "{}");
        let response = client.post(batch(&[ping("1")]));
        assert_rpc(&response, 400, "null", -32600, revision);
    }
    assert_eq!(backend.seen_rpc("ping").len(), 0);
}

/// One message of a batch may be cancelled; the others have their answers.
#[test]
fn a_message_of_a_batch_can_be_cancelled() {
    for layout in LAYOUTS {
        let gate = Arc::new(Gate::default());
        let backend = Backend::scripted("a", &["slow", "fast"], {
            let gate = gate.clone();
            move |asked, _| {
                if asked.tool()? == "slow" {
                    gate.wait();
                }
                None
            }
        });
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = McpClient::open_with(&gateway, REVISION, "{}");
        let mut waiting = client.again();
        let messages = [call_body("1", "slow", "{}"), call_body("2", "fast", "{}")];
        let ask = waiting.request(batch(&messages));
        waiting.connection.send(ask.bytes());
        gate.await_arrivals(1);
        let params = r#"{"requestId":1}"#;
        let cancelled = request(None, "notifications/cancelled", params);
        assert_eq!(client.post(cancelled).status, 202);
        let found = by_id(&waiting.connection.read_response());
        assert_eq!(found.keys().collect::<Vec<_>>(), ["2"]);
        gate.open();
    }
}
