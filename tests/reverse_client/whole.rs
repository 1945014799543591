//! The client and the gateway together, which each has a test of its own with the other played.

use serde_json::json;
use shardgate::settings::ConnectionGateway;

use crate::{
    process::{Folder, Process},
    stage::command,
    support::{Gateway, HOST, McpClient, Plan, eventually},
};

fn gateway() -> Gateway {
    Plan::of(&[("notes", "reverse:mcp:alice:notes")])
        .shards(3)
        .with_tokens()
        .settings(|settings| settings.connection_gateway = Some(ConnectionGateway::testing()))
        .start()
}

/// Puts the small stdio server behind the gateway.
fn reverse(gateway: &Gateway) -> (Process, Folder) {
    let home = Folder::new();
    let file = home.write("token", &gateway.token("alice"));
    let at = gateway
        .inner()
        .connection_gateway
        .as_ref()
        .unwrap()
        .websocket;
    let url = format!("ws://{at}");
    let command = command();
    let mut arguments = vec!["reverse", "--to", &url, "--token-file", &file];
    arguments.extend(["--source", "notes", "--"]);
    arguments.extend(command.iter().map(String::as_str));
    let variables = [("SHARDGATE_TEST_CHILD", "yes")];
    (Process::start_with(&home, &variables, &arguments), home)
}

fn until_tools(client: &mut McpClient, wanted: &[&str]) {
    eventually("the tools are seen", || {
        (client.tool_names() == wanted).then_some(())
    });
}

#[test]
fn a_local_server_is_a_backend_while_its_client_runs() {
    let gateway = gateway();
    let mut client = McpClient::open_on(&gateway, HOST, Some(&gateway.token("caller")));
    until_tools(&mut client, &[]);
    for _ in 0..2 {
        let (mut process, _home) = reverse(&gateway);
        until_tools(&mut client, &["echo", "pid"]);
        let text = "x".repeat(200_000);
        let answer = client.call("1", "echo", &json!({"text": text}).to_string());
        assert_eq!(answer.result()["content"][0]["text"], text);
        process.signal("TERM");
        assert_eq!(process.exit_code(), 0);
        until_tools(&mut client, &[]);
        assert_eq!(client.call("2", "echo", "{}").error_code(), -32603);
    }
}

#[test]
fn a_source_has_one_client_and_another_waits_for_it() {
    let gateway = gateway();
    let mut client = McpClient::open_on(&gateway, HOST, Some(&gateway.token("caller")));
    let (first, _home) = reverse(&gateway);
    until_tools(&mut client, &["echo", "pid"]);
    let (second, _home) = reverse(&gateway);
    second.logged("connected already");
    // As a laptop that is closed does.
    drop(first);
    second.logged("connected to");
    until_tools(&mut client, &["echo", "pid"]);
}
