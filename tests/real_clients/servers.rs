//! Three servers nobody here wrote behind one endpoint.

use serde_json::json;
use shardgate::settings::FailMode;

use crate::{
    peers::{Client, Server, drive_well, program},
    stage::Stage,
    support::{PATIENCE, Plan},
};

#[test]
fn everything_fastmcp_and_memory_are_one_server() {
    let (everything, fastmcp, memory) = (
        Server::everything(),
        Server::fastmcp(false),
        Server::memory(),
    );
    let stage = Stage::open(&[
        ("everything", &everything.url),
        ("fastmcp", &fastmcp.url),
        ("memory", &memory.url),
    ]);
    let url = stage.url();
    for client in [
        Client::Sdk1,
        Client::Client2,
        Client::Python,
        Client::Inspector,
    ] {
        let list = ["--mode", "list", "--sessions", "1", "--calls", "1"];
        let report = drive_well(client, &url, None, &list);
        // 13 of everything, 3 of fastmcp, 9 of memory. The Inspector has roots to list, and
        // everything has a tool for clients that have some.
        let extra = if client == Client::Inspector {
            1.0
        } else {
            0.0
        };
        assert_eq!(report.number("tools"), 25.0 + extra, "{}", report.0);
    }
    for (mode, tool) in [
        ("counter", "fastmcp-increment"),
        ("echo", "fastmcp-echo"),
        ("echo", "everything-echo"),
    ] {
        let options = [
            "--mode",
            mode,
            "--tool",
            tool,
            "--sessions",
            "2",
            "--calls",
            "4",
        ];
        drive_well(Client::Sdk1, &url, None, &options);
    }
    stage.end();
}

/// All that a client can ask for and be asked for, of two servers at once.
fn tour(client: Client, eras: &[&str]) {
    let (a, b) = (Server::everything(), Server::everything());
    let stage = Stage::open(&[("a", &a.url), ("b", &b.url)]);
    for era in eras {
        let mut options = vec!["--mode", "tour", "--era", era];
        options.extend(["--sessions", "2", "--calls", "2", "--in-flight", "2"]);
        drive_well(client, &stage.url(), None, &options);
    }
    stage.end();
}

/// The same when one is a child process and the other speaks HTTP+SSE.
#[test]
fn sdk1_tours_a_child_and_an_sse_server_at_once() {
    let sse = Server::everything_sse();
    let (program, path) = program("mcp-server-everything");
    let document = json!({"mcpServers": {
        "a": {"command": program, "args": ["stdio"], "env": {"PATH": path}},
        "b": {"type": "sse", "url": sse.url},
    }});
    let stage = Stage::start(Plan::document(document).settings(|settings| {
        settings.upstream.allow_stdio = true;
        // A server that is late would be left out.
        settings.upstream.fail_mode = FailMode::Closed;
        settings.timeouts.initialize = PATIENCE;
    }));
    let url = format!("http://{}/mcp", stage.address());
    let mut options = vec!["--mode", "tour", "--sessions", "2"];
    options.extend(["--calls", "2", "--in-flight", "2"]);
    drive_well(Client::Sdk1, &url, None, &options);
    stage.end();
}

#[test]
fn sdk1_tours_two_servers_at_once() {
    tour(Client::Sdk1, &["legacy"]);
}

#[test]
fn client2_tours_two_servers_at_once() {
    tour(Client::Client2, &["legacy", "auto"]);
}

#[test]
fn python_tours_two_servers_at_once() {
    tour(Client::Python, &["legacy", "auto"]);
}
