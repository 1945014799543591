//! One child process for each session: what it is told and says, and that it never outlives it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    child,
    support::{EventStream, Gateway, McpClient, Plan, Response, eventually},
};

/// What a child gets of the gateway's variables, as `docs/backends.md` says.
const INHERITED: [&str; 11] = [
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ",
    "USER",
];

/// A gateway in front of one child, `c`, of the virtual host `default`.
pub(crate) fn gateway(more: Value) -> Gateway {
    plan(more).start()
}

pub(crate) fn plan(more: Value) -> Plan {
    Plan::document(child::document(&[("c", more)]))
        .settings(|settings| settings.upstream.allow_stdio = true)
}

pub(crate) fn open(gateway: &Gateway) -> McpClient {
    McpClient::open_on(gateway, "default", None)
}

/// The one text of a tool's answer.
pub(crate) fn text(response: &Response) -> String {
    response.result()["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

pub(crate) fn pid(client: &mut McpClient) -> u32 {
    text(&client.call("1", "pid", "{}")).parse().unwrap()
}

/// Waits until there is no process of this number, or only a dead one.
pub(crate) fn until_gone(pid: u32) {
    eventually("the process is gone", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let is_gone = status.map_or(true, |status| {
            status
                .rsplit(')')
                .next()
                .unwrap()
                .trim_start()
                .starts_with('Z')
        });
        is_gone.then_some(())
    });
}

#[test]
fn a_child_is_listed_and_called() {
    let gateway = gateway(json!({}));
    let mut client = open(&gateway);
    assert_eq!(client.tool_names(), ["echo", "pid"]);
    let response = client.call("\"odd id\"", "echo", r#"{"text":"a\nb\u00e9"}"#);
    assert_eq!(text(&response), "a\nbé");
    assert_eq!(response.message()["id"], "odd id");
    // White space between tokens may hold line ends; a line may not.
    let body = "{\"jsonrpc\":\"2.0\",\n\"id\":7,\"method\":\"tools/call\",\r\n\"params\":\n\
                {\"name\":\"echo\",\"arguments\":{\"text\":\"x\"}}}";
    assert_eq!(text(&client.post(body)), "x");
}

#[test]
fn each_session_has_a_child_of_its_own_that_ends_with_it() {
    let gateway = gateway(json!({}));
    let (mut one, mut two) = (open(&gateway), open(&gateway));
    let (first, second) = (pid(&mut one), pid(&mut two));
    assert_ne!(first, second);
    assert_eq!(pid(&mut one), first);
    assert_eq!(one.delete().status, 200);
    until_gone(first);
    assert_eq!(pid(&mut two), second);
    assert!(gateway.stop());
    until_gone(second);
}

#[test]
fn a_child_that_ignores_the_end_of_its_input_is_killed_with_what_it_started() {
    let gateway = gateway(json!({}));
    let mut client = open(&gateway);
    let child = pid(&mut client);
    let descendant = text(&client.call("2", "descendant", "{}")).parse().unwrap();
    client.call("3", "stubborn", "{}").result();
    client.delete();
    until_gone(child);
    until_gone(descendant);
}

#[test]
fn after_a_crash_the_next_call_reaches_a_new_child() {
    let gateway = gateway(json!({}));
    let mut client = open(&gateway);
    let first = pid(&mut client);
    // The call it died of may have done something, so it is not repeated.
    assert_eq!(client.call("2", "crash", "{}").error_code(), -32603);
    let second = eventually("a new child", || {
        let response = client.call("3", "pid", "{}");
        let is_there = response.message()["result"].is_object();
        is_there.then(|| text(&response).parse::<u32>().unwrap())
    });
    assert_ne!(first, second);
    assert_eq!(
        gateway.metric("shardgate_backend_sessions_reopened_total"),
        1
    );
}

#[test]
fn progress_comes_before_the_answer_on_the_same_stream() {
    let gateway = gateway(json!({}));
    let mut client = open(&gateway);
    for token in ["7", "\"seven\""] {
        let response = client.post(format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"progress","arguments":{{}},"_meta":{{"progressToken":{token}}}}}}}"#
        ));
        let messages: Vec<Value> = response
            .messages()
            .iter()
            .map(|message| serde_json::from_str(message).unwrap())
            .collect();
        let own: Value = serde_json::from_str(token).unwrap();
        let steps: Vec<_> = messages
            .iter()
            .filter(|message| message["params"]["progressToken"] == own)
            .map(|message| message["params"]["progress"].as_u64().unwrap())
            .collect();
        assert_eq!(steps, [1, 2, 3], "{messages:?}");
        assert_eq!(text(&response), "done");
    }
}

#[test]
fn a_call_may_take_longer_than_the_first_byte_of_a_reply() {
    let (first_byte, heartbeat) = (Duration::from_millis(400), Duration::from_millis(50));
    let gateway = plan(json!({}))
        .settings(move |settings| {
            settings.timeouts.upstream_first_byte = first_byte;
            settings.timeouts.heartbeat_interval = heartbeat;
        })
        .start();
    let mut client = open(&gateway);
    let mut calling = client.again();
    calling.send_call("5", "hold", "{}");
    let head = calling.connection.read_head();
    assert_eq!(head.status, 200);
    let mut stream = EventStream::new(calling.connection, head);
    // Comments of a quiet stream, for twice the time.
    let mut comment_count = 0;
    while comment_count < 16 {
        let block = stream.next_block().unwrap();
        assert!(!block.contains("jsonrpc"), "{block}");
        comment_count += usize::from(block.starts_with(':'));
    }
    assert_eq!(text(&client.call("6", "release", "{}")), "ok");
    let event: Value = serde_json::from_str(&stream.next_event().unwrap().data).unwrap();
    assert_eq!(event["id"], 5);
    assert_eq!(event["result"]["content"][0]["text"], "released");
}

#[test]
fn a_child_that_asks_for_sampling_is_answered() {
    let gateway = gateway(json!({}));
    let mut client = open(&gateway);
    // The client has not declared it.
    let code = text(&client.call("1", "sample", "{}"));
    assert!(code.starts_with("-32"), "{code}");
    // A ping is answered with a result, which has no code.
    assert_eq!(text(&client.call("2", "ping", "{}")), "null");
}

#[test]
fn what_a_child_says_outside_calls_reaches_the_client_that_listens() {
    let gateway = gateway(json!({}));
    let mut client = open(&gateway);
    let mut stream = client.stream();
    assert_eq!(stream.next_block().as_deref(), Some(": ok"));
    client
        .post(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}"#)
        .result();
    client.call("2", "announce", "{}").result();
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let event: Value = serde_json::from_str(&stream.next_event().unwrap().data).unwrap();
        heard.push(event["method"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        heard,
        ["notifications/message", "notifications/tools/list_changed"]
    );
}

#[test]
fn a_child_gets_its_own_variables_and_none_of_ours() {
    let folder = std::env::temp_dir();
    let gateway = gateway(json!({"cwd": folder}));
    let mut client = open(&gateway);
    let mut env = |name: &str| text(&client.call("1", "env", &json!({"name": name}).to_string()));
    assert_eq!(env("SHARDGATE_TEST_CHILD"), "from the configuration");
    assert_eq!(env("PATH"), std::env::var("PATH").unwrap());
    // What the gateway's own process has beside those that every child gets.
    let ours = std::env::vars().map(|(name, _)| name);
    let ours: Vec<_> = ours.filter(|name| !INHERITED.contains(&&**name)).collect();
    assert!(!ours.is_empty(), "there is nothing to keep back");
    for name in ours {
        assert_eq!(env(&name), "(none)", "{name}");
    }
    let folder = folder.canonicalize().unwrap();
    assert_eq!(
        text(&client.call("2", "cwd", "{}")),
        folder.to_str().unwrap()
    );
}

#[test]
fn a_child_inherits_no_socket() {
    let gateway = gateway(json!({}));
    // Listeners, clients, a second child's pipes: none of them.
    let (mut one, mut two) = (open(&gateway), open(&gateway));
    pid(&mut one);
    assert_eq!(text(&two.call("1", "descriptors", "{}")), "");
}
