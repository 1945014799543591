//! One child for all sessions.

use serde_json::json;

use crate::{
    stdio::{gateway, open, pid, text, until_gone},
    support::{Gateway, McpClient, eventually},
};

fn shared() -> Gateway {
    gateway(json!({"shared": true}))
}

#[test]
fn sessions_share_a_child_that_is_initialized_once() {
    let gateway = shared();
    let (mut one, mut two) = (open(&gateway), open(&gateway));
    let child = pid(&mut one);
    assert_eq!(pid(&mut two), child);
    assert_eq!(text(&two.call("1", "counts", "{}")), "1 1");
    one.delete();
    // It stays for the others, and for those to come.
    assert_eq!(pid(&mut two), child);
    two.delete();
    assert_eq!(pid(&mut open(&gateway)), child);
    assert!(gateway.stop());
    until_gone(child);
}

#[test]
fn equal_ids_and_tokens_do_not_meet() {
    let gateway = shared();
    let body = |text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{{"name":"{text}","arguments":{{"text":"x"}},"_meta":{{"progressToken":0}}}}}}"#
        )
    };
    let mut clients: Vec<McpClient> = (0..4).map(|_| open(&gateway)).collect();
    for client in &mut clients {
        let request = client.request(body("progress"));
        client.connection.send(request.bytes());
    }
    for client in &mut clients {
        let response = client.connection.read_response();
        assert_eq!(
            response.messages().len(),
            4,
            "three of its own and the answer"
        );
        assert_eq!(response.message()["id"], 0);
        assert_eq!(text(&response), "done");
    }
}

#[test]
fn what_a_shared_child_asks_is_refused() {
    let gateway = shared();
    let mut client = open(&gateway);
    // Asked by a shared child, which cannot say whom: refused at once.
    assert_eq!(text(&client.call("5", "sample", "{}")), "-32601");
}

#[test]
fn a_changed_list_is_told_to_every_session() {
    let gateway = shared();
    let mut clients = [open(&gateway), open(&gateway)];
    let mut streams: Vec<_> = clients.iter().map(McpClient::stream).collect();
    for client in &mut clients {
        client
            .post(
                r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}"#,
            )
            .result();
    }
    clients[0].call("2", "announce", "{}").result();
    for stream in &mut streams {
        // Log messages may be about another session's call: they are nobody's.
        let event = stream.next_event().unwrap();
        assert!(
            event.data.contains("notifications/tools/list_changed"),
            "{}",
            event.data
        );
    }
}

#[test]
fn after_a_crash_all_sessions_get_one_new_child() {
    let gateway = shared();
    let (mut one, mut two) = (open(&gateway), open(&gateway));
    let first = pid(&mut one);
    assert_eq!(one.call("2", "crash", "{}").error_code(), -32603);
    let again = |client: &mut McpClient| {
        eventually("a new child", || {
            let response = client.call("3", "pid", "{}");
            let is_there = response.message()["result"].is_object();
            is_there.then(|| text(&response).parse::<u32>().unwrap())
        })
    };
    let second = again(&mut one);
    assert_ne!(first, second);
    assert_eq!(again(&mut two), second);
}
