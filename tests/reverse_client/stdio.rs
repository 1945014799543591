//! A child process behind the gateway: what it is told and says, one for each connection.

use serde_json::{Value, json};

use crate::{
    process::Folder,
    stage::{Client, Door, TOKEN, code_of, text_of, until_gone},
    support::eventually,
};

#[test]
fn a_child_is_initialized_listed_and_called() {
    let door = Door::open();
    let client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    assert_eq!(socket.initialize()["serverInfo"]["name"], "child");
    let tools = socket.request("tools/list", json!({}));
    assert_eq!(tools["result"]["tools"][0]["name"], "echo");
    assert_eq!(socket.call("echo", json!({"text": "a\nbé"})), "a\nbé");
    // The greeting on its standard output is no message, which is said once.
    client.process.logged("no JSON-RPC message");
    // Its standard error is the client's.
    client.process.logged("is up");
    socket.call("complain", json!({"text": "heard by the operator"}));
    client.process.logged("heard by the operator");
    let said = client.process.stderr();
    assert_eq!(said.matches("no JSON-RPC message").count(), 1, "{said}");
    assert!(!said.contains(TOKEN), "{said}");
}

#[test]
fn progress_and_questions_of_the_child_pass_and_so_do_the_answers() {
    let door = Door::open();
    let _client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let id = socket.ask(
        "tools/call",
        json!({"name": "progress", "arguments": {}, "_meta": {"progressToken": "p"}}),
    );
    for progress in 1..=3 {
        let message = socket.message();
        assert_eq!(message["params"]["progress"], progress, "{message}");
        assert_eq!(message["params"]["progressToken"], "p");
    }
    assert_eq!(socket.message()["id"], id);
    let id = socket.ask_tool("sample", json!({}));
    let question = socket.message();
    assert_eq!(question["method"], "sampling/createMessage");
    // An id of the child's that is also one of ours belongs to nobody's call.
    socket.say(&json!({"jsonrpc": "2.0", "id": question["id"],
        "error": {"code": -7, "message": "no"}}));
    let answer = socket.message();
    assert_eq!((&answer["id"], text_of(&answer)), (&json!(id), "-7".into()));
    let id = socket.ask_tool("announce", json!({}));
    assert_eq!(socket.message()["method"], "notifications/message");
    let changed = "notifications/tools/list_changed";
    assert_eq!(socket.message()["method"], changed);
    assert_eq!(socket.message()["id"], id);
}

#[test]
fn a_cancelled_call_is_told_and_its_late_answer_left_out() {
    let door = Door::open();
    let _client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let held = socket.ask_tool("hold", json!({}));
    socket.notify("notifications/cancelled", json!({"requestId": held}));
    // The child answers the cancelled call all the same.
    assert_eq!(socket.call("echo", json!({"text": "next"})), "next");
}

#[test]
fn each_connection_has_a_child_of_its_own_and_keeps_its_source() {
    let door = Door::open();
    let _client = Client::stdio(&door, &["--source", "notes", "--header", "X-Way: 1"]);
    let mut pids = Vec::new();
    for end in ["1001", "cut", "1000"] {
        let knock = door.knock();
        assert!(knock.head.starts_with("GET /reverse/v1 HTTP/1.1\r\n"));
        assert_eq!(knock.header("authorization"), Some("Bearer the-token"));
        assert_eq!(knock.header("x-shardgate-source"), Some("notes"));
        assert_eq!(knock.header("x-way"), Some("1"));
        let mut socket = knock.take_in();
        socket.initialize();
        let pid = socket.call("pid", json!({}));
        assert!(!pids.contains(&pid));
        assert_eq!(socket.call("counts", json!({})), "1 1");
        match end {
            "cut" => drop(socket),
            code => {
                let code = code.parse().unwrap();
                socket.close(code);
                socket.ends_with(Some(code));
            }
        }
        until_gone(&pid);
        pids.push(pid);
    }
}

#[test]
fn the_child_has_our_environment_without_the_token() {
    let door = Door::open();
    let _client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let mut env = |name: &str| socket.call("env", json!({"name": name}));
    assert_eq!(env("SHARDGATE_TEST_CHILD"), "from the environment");
    assert_eq!(env("SHARDGATE_REVERSE_TOKEN"), "(none)");
    assert_eq!(socket.call("descriptors", json!({})), "");
}

#[test]
fn a_child_that_dies_fails_its_calls_and_is_started_again() {
    let door = Door::open();
    let client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let first = socket.call("pid", json!({}));
    let held = socket.ask_tool("hold", json!({}));
    let crashed = socket.ask_tool("crash", json!({}));
    for id in [held, crashed] {
        let error = socket.message();
        assert_eq!((&error["id"], code_of(&error)), (&json!(id), -32603));
    }
    socket.ends_with(Some(1011));
    client
        .process
        .logged("the local server ended (exit status: 3); trying again in");
    let mut socket = door.enter();
    socket.initialize();
    assert_ne!(socket.call("pid", json!({})), first);
}

#[test]
fn a_command_that_is_not_there_ends_the_client() {
    let door = Door::open();
    let mut client = Client::start(&door.url(), &["--", "/nonexistent/server"]);
    assert_eq!(client.process.exit_code(), 1);
    let said = client.process.stderr();
    assert!(said.contains("/nonexistent/server"), "{said}");
    assert!(door.is_quiet());
}

#[test]
fn a_child_that_keeps_failing_is_started_after_growing_pauses() {
    let door = Door::open();
    let home = Folder::new();
    let client = Client::start_in(home, &door.url(), &["--", "sh", "-c", "exit 4"]);
    // The gateway never answers: that the server is gone is noticed all the same.
    let pause = |line: &str| {
        let (_, rest) = line.split_once("trying again in ").unwrap();
        rest.trim_end_matches(" s").parse::<f64>().unwrap()
    };
    let line = client.process.logged("(exit status: 4); trying again in");
    assert!(pause(&line) <= 0.5, "{line}");
    let said = eventually("four attempts", || {
        let said = client.process.stderr();
        (said.matches("trying again in").count() >= 4).then_some(said)
    });
    let last = said
        .lines()
        .filter(|line| line.contains("trying again"))
        .nth(3);
    assert!(pause(last.unwrap()) >= 1.0, "{said}");
}

#[test]
fn whole_messages_pass_with_their_line_ends_and_ids() {
    let door = Door::open();
    let _client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let text = "{\"jsonrpc\":\"2.0\",\n\"id\":\"odd \\u0069d\",\"method\":\"tools/call\",\r\n\
                \"params\":\n{\"name\":\"echo\",\"arguments\":{\"text\":\"x\"}}}";
    socket.send_frame(shardgate::websocket::frame::TEXT, text.as_bytes());
    let answer: Value = socket.message();
    assert_eq!(answer["id"], "odd id");
    assert_eq!(text_of(&answer), "x");
}
