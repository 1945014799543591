//! Bounds of child processes, what is logged of them, and that none is left behind.

use serde_json::json;

use crate::{
    child,
    door::Alone,
    process::{Folder, Process},
    stdio::{open, plan, text, until_gone},
    support::{Ask, Connection, McpClient, call_body, eventually, initialize_body},
};

#[test]
fn no_more_children_than_allowed() {
    let document = child::document(&[("a", json!({}))]);
    let alone = Alone::start(&document, |settings| settings.limits.stdio_children_max = 1);
    let path = &alone.paths[0];
    let session = alone.open(path);
    let initialize = initialize_body("0", "2025-11-25");
    assert_eq!(alone.post(path, None, &initialize).status, 503);
    let ask = alone.ask("DELETE", path, Some(&session));
    assert_eq!(alone.connect().ask(&ask).status, 200);
    eventually("its place is free", || {
        (alone.post(path, None, &initialize).status == 200).then_some(())
    });
}

#[test]
fn a_session_that_was_forgotten_ends_with_its_child() {
    let document = child::document(&[("a", json!({}))]);
    let idle = std::time::Duration::from_millis(400);
    let alone = Alone::start(&document, move |settings| {
        settings.timeouts.session_age_max = idle;
        settings.limits.stdio_children_max = 1;
    });
    let path = &alone.paths[0];
    let session = alone.open(path);
    // The one place is free again only when the child is gone.
    let initialize = initialize_body("0", "2025-11-25");
    eventually("its place is free", || {
        (alone.post(path, None, &initialize).status == 200).then_some(())
    });
    let response = alone.post(path, Some(&session), &call_body("1", "pid", "{}"));
    assert_eq!(response.status, 404);
}

#[test]
fn a_program_that_is_not_there_and_one_that_ends_at_once_fail_the_session() {
    let document = json!({"mcpServers": {
        "gone": {"command": "/nonexistent/program"},
        "silent": {"command": "true"},
    }});
    let alone = Alone::start(&document, |_| {});
    let initialize = initialize_body("0", "2025-11-25");
    for path in &alone.paths {
        assert_eq!(alone.post(path, None, &initialize).status, 502);
        // The second failure in a row costs a pause, which a caller waits through.
        assert_eq!(alone.post(path, None, &initialize).status, 502);
    }
}

#[test]
fn a_line_over_the_limit_ends_the_child() {
    let gateway = plan(json!({}))
        .settings(|settings| settings.limits.response_bytes_max = 64 << 10)
        .start();
    let mut client = open(&gateway);
    let long = |bytes: u32| json!({"bytes": bytes}).to_string();
    assert_eq!(text(&client.call("1", "long", &long(60_000))).len(), 60_000);
    assert_eq!(client.call("2", "long", &long(70_000)).error_code(), -32603);
    eventually("a new child", || {
        let response = client.call("3", "pid", "{}");
        response.message()["result"].is_object().then_some(())
    });
}

#[test]
fn a_changed_document_changes_the_children() {
    let gateway = plan(json!({})).start();
    let mut client = open(&gateway);
    let old = crate::stdio::pid(&mut client);
    let env = |client: &mut McpClient| text(&client.call("1", "env", r#"{"name":"EXTRA"}"#));
    assert_eq!(env(&mut client), "(none)");
    let mut document = child::document(&[("c", json!({}))]);
    document["mcpServers"]["c"]["env"]["EXTRA"] = json!("more");
    let next = gateway.config_path().with_file_name("next");
    std::fs::write(&next, document.to_string()).unwrap();
    std::fs::rename(&next, gateway.config_path()).unwrap();
    eventually("the new child has the variable", || {
        let response = client.call("1", "env", r#"{"name":"EXTRA"}"#);
        let is_there = response.message()["result"].is_object();
        (is_there && text(&response) == "more").then_some(())
    });
    until_gone(old);
}

/// Sockets of a process that listen.
fn listening(process: &Process) -> usize {
    let folder = format!("/proc/{}", process.id());
    let sockets: Vec<String> = std::fs::read_dir(format!("{folder}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| {
            let link = link.display().to_string();
            Some(
                link.strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    let table = std::fs::read_to_string(format!("{folder}/net/tcp")).unwrap();
    let is_ours = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // State 10 is LISTEN; the tenth word is the inode.
        words[3] == "0A" && sockets.iter().any(|socket| socket == words[9])
    };
    table.lines().skip(1).filter(is_ours).count()
}

#[test]
fn there_is_no_port_for_such_backends_before_one_is_configured() {
    let home = Folder::new();
    let process = serve(&home, &json!({"mcpServers": {}}));
    let initialize = McpClient::initialize("/mcp");
    assert_eq!(
        Connection::open(process.address()).ask(&initialize).status,
        200
    );
    let before = listening(&process);
    home.write(
        "mcp.json",
        &child::document(&[("c", json!({}))]).to_string(),
    );
    eventually("the new document is in force", || {
        let response = Connection::open(process.address()).ask(&initialize);
        let session = response.header("mcp-session-id")?.to_owned();
        let ask = Ask::post("/mcp", call_body("1", "pid", "{}"));
        let ask = ask.header("mcp-session-id", &session);
        let response = Connection::open(process.address()).ask(&ask);
        response.message()["result"].is_object().then_some(())
    });
    assert_eq!(listening(&process), before + 1, "one for all shards");
}

fn serve(home: &Folder, document: &serde_json::Value) -> Process {
    let file = home.write("mcp.json", &document.to_string());
    Process::serve(
        home,
        &["--config-file", &file, "--allow-anonymous", "--allow-stdio"],
    )
}

/// Opens a session and calls one tool: its text.
fn call(process: &Process, tool: &str, arguments: &str) -> String {
    let response = Connection::open(process.address()).ask(&McpClient::initialize("/mcp"));
    let session = response.header("mcp-session-id").unwrap().to_owned();
    let ask = Ask::post("/mcp", call_body("1", tool, arguments)).header("mcp-session-id", &session);
    text(&Connection::open(process.address()).ask(&ask))
}

#[test]
fn standard_error_goes_to_the_log_under_the_servers_name() {
    let home = Folder::new();
    let mut process = serve(&home, &child::document(&[("c", json!({}))]));
    let said = json!({"text": "trouble \u{1b}[31m ahead"}).to_string();
    call(&process, "complain", &said);
    let line = process.logged("trouble");
    assert!(
        line.contains("stdio server default.c: trouble \u{fffd}[31m ahead"),
        "{line}"
    );
    let long = json!({"text": format!("start {} end", "y".repeat(5000))}).to_string();
    call(&process, "complain", &long);
    let line = process.logged("start y");
    assert!(line.len() < 1200 && !line.contains("end"), "{}", line.len());
    assert!(
        !process.stderr().contains("--exact"),
        "an argument was logged"
    );
    process.signal("TERM");
    assert_eq!(process.exit_code(), 0);
}

#[test]
fn no_child_outlives_the_gateway_even_when_it_is_killed() {
    for signal in ["TERM", "KILL"] {
        let home = Folder::new();
        let process = serve(
            &home,
            &child::document(&[("c", json!({})), ("s", json!({"shared": true}))]),
        );
        let own = call(&process, "c-pid", "{}").parse().unwrap();
        let shared = call(&process, "s-pid", "{}").parse().unwrap();
        process.signal(signal);
        until_gone(own);
        until_gone(shared);
    }
}
