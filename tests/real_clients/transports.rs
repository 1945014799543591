//! The reference server over its other transports, as a child process and over HTTP+SSE.

use serde_json::json;

use crate::{
    peers::{Client, Server, drive_well, program},
    stage::Stage,
    support::Plan,
};

fn stage(entry: serde_json::Value) -> Stage {
    let plan = Plan::document(json!({"mcpServers": {"main": entry}}))
        .settings(|settings| settings.upstream.allow_stdio = true);
    Stage::start(plan)
}

/// Lists and calls with clients of three makers.
fn drive_all(stage: &Stage) {
    let url = format!("http://{}/mcp", stage.address());
    for client in [Client::Sdk1, Client::Client2, Client::Python] {
        let list = ["--mode", "list", "--sessions", "1", "--calls", "1"];
        let report = drive_well(client, &url, None, &list);
        assert_eq!(report.number("tools"), 13.0, "{}", report.0);
        let echo = [
            "--mode",
            "echo",
            "--tool",
            "echo",
            "--sessions",
            "2",
            "--calls",
            "4",
        ];
        drive_well(client, &url, None, &echo);
    }
}

#[test]
fn everything_is_a_child_process_of_each_session_or_of_all() {
    for is_shared in [false, true] {
        let (command, path) = program("mcp-server-everything");
        let stage = stage(json!({"command": command, "args": ["stdio"],
            "env": {"PATH": path}, "shared": is_shared}));
        drive_all(&stage);
        stage.end();
    }
}

#[test]
fn everything_speaks_the_transport_of_2024_11_05() {
    let server = Server::everything_sse();
    let stage = stage(json!({"type": "sse", "url": server.url}));
    drive_all(&stage);
    stage.end();
}
