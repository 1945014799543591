//! Lists, calls, progress and cancellations, in every framing.

use serde_json::json;

use crate::{
    stage::{
        FRAMINGS, Framing, SHARDS, Server, TOOLS, adjusted, client, gateway, gateway_of,
        until_tools, url,
    },
    support::{Backend, HOST, McpClient, ModernClient, Response, eventually},
};

fn text(response: &Response) -> String {
    let result = response.result();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_server_is_listed_and_called_in_every_framing() {
    for shards in SHARDS {
        for framing in FRAMINGS {
            let gateway = gateway(shards);
            let server = Server::connect(&gateway, framing);
            let mut clients: Vec<McpClient> = (0..4).map(|_| client(&gateway)).collect();
            for client in &mut clients {
                until_tools(client, &TOOLS);
                let response = client.call("\"x\"", "echo", r#"{"text":"hé\n"}"#);
                assert_eq!(text(&response), "files: \"hé\\n\"", "{framing:?}");
                assert_eq!(response.message()["id"], "x");
            }
            let token = gateway.token("client");
            let mut modern = ModernClient::of(&gateway, HOST, Some(&token));
            assert_eq!(modern.tool_names(), TOOLS);
            let response = modern.call("7", "echo", r#"{"text":1}"#);
            assert_eq!(text(&response), "files: 1");
            assert_eq!(response.result()["resultType"], "complete");
            let unknown = modern.ask("8", "prompts/get", r#""name":"x""#);
            assert_eq!(unknown.message()["id"], 8, "{}", unknown.text());
            assert!(gateway.stop());
            drop(server);
        }
    }
}

#[test]
fn equal_ids_and_progress_tokens_do_not_meet() {
    for framing in FRAMINGS {
        let gateway = gateway(4);
        let _server = Server::connect(&gateway, framing);
        let mut clients: Vec<McpClient> = (0..6).map(|_| client(&gateway)).collect();
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"progress","arguments":{},"_meta":{"progressToken":0}}}"#;
        until_tools(&mut clients[0], &TOOLS);
        for client in &mut clients {
            let request = client.request(body);
            client.connection.send(request.bytes());
        }
        for client in &mut clients {
            let response = client.connection.read_response();
            let messages = response.messages();
            assert_eq!(messages.len(), 4, "three of its own and the answer");
            for message in &messages[..3] {
                assert!(message.contains(r#""progressToken":0"#), "{message}");
            }
            assert_eq!(text(&response), "done");
        }
    }
}

#[test]
fn a_cancellation_reaches_the_server_under_its_own_id() {
    for framing in FRAMINGS {
        let gateway = gateway(4);
        let server = Server::connect(&gateway, framing);
        let mut client = client(&gateway);
        until_tools(&mut client, &TOOLS);
        let mut calling = client.again();
        calling.send_call("\"c\"", "wait", "{}");
        let call = server.wait_for("tools/call");
        client.post(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#,
        );
        let cancelled = server.wait_for("notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], call["id"]);
        // One without a session cancels by leaving.
        let token = gateway.token("client");
        let mut modern = ModernClient::of(&gateway, HOST, Some(&token));
        let request = modern.call_request("1", "wait", "{}");
        modern.connection.send(request.bytes());
        let call = server.wait_for("tools/call");
        drop(modern);
        let cancelled = server.wait_for("notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], call["id"]);
    }
}

#[test]
fn two_of_them_and_one_over_http_are_one_server() {
    let http = Backend::start("http", &["one"]);
    let gateway = gateway_of(
        4,
        &[
            ("files", &url("mcp:alice:files")),
            ("git", &url("mcp:alice:git")),
            ("http", &http.url()),
        ],
    );
    let _files = Server::named(&gateway, Framing::Plain, "files");
    let git = Server::named(&gateway, Framing::ContextForge, "git");
    let mut client = client(&gateway);
    let prefixed = |key: &str| TOOLS.map(|tool| format!("{key}-{tool}"));
    let mut all = [prefixed("files"), prefixed("git")].concat();
    all.push("http-one".to_owned());
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    until_tools(&mut client, &names);
    let answer = text(&client.call("1", "git-echo", r#"{"text":"a"}"#));
    assert_eq!(answer, "git: \"a\"");
    let answer = text(&client.call("1", "files-echo", r#"{"text":"a"}"#));
    assert_eq!(answer, "files: \"a\"");
    assert!(client.call("2", "http-one", "{}").result().is_object());
    git.cut();
    let rest: Vec<&str> = names
        .into_iter()
        .filter(|name| !name.starts_with("git-"))
        .collect();
    until_tools(&mut client, &rest);
    assert_eq!(client.call("1", "git-echo", "{}").error_code(), -32603);
    assert!(client.call("2", "http-one", "{}").result().is_object());
}

/// Answers that are larger together than all queues: nothing is lost and nothing hangs.
#[test]
fn large_answers_of_many_callers_all_arrive() {
    // Over the limit of envelopes, which is not this framing's.
    let bytes = 3 << 20;
    let gateway = gateway(4);
    let _server = Server::connect(&gateway, Framing::Plain);
    let mut clients: Vec<McpClient> = (0..16).map(|_| client(&gateway)).collect();
    until_tools(&mut clients[0], &TOOLS);
    for client in &mut clients {
        client.send_call("1", "large", &json!({"bytes": bytes}).to_string());
    }
    for client in &mut clients {
        let response = client.connection.read_response();
        assert_eq!(text(&response).len(), bytes);
    }
}

#[test]
fn it_is_counted() {
    let gateway = adjusted(2, &[("a", &url("mcp:alice:files"))], |_| {});
    let _server = Server::connect(&gateway, Framing::Plain);
    let mut client = client(&gateway);
    until_tools(&mut client, &TOOLS);
    client.call("1", "echo", "{}");
    let text = gateway.inner().view.reverse.as_ref().unwrap().as_text();
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse().unwrap()
    };
    assert_eq!(value("shardgate_reverse_servers "), 1);
    assert!(value("shardgate_reverse_messages_received_total ") >= 3);
    assert!(value("shardgate_reverse_messages_sent_total ") >= 4);
    eventually("nothing fails", || {
        (value("shardgate_reverse_calls_failed_total ") == 0).then_some(())
    });
}
