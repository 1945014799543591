//! Who may not have a child process: a gateway without the flag, and every configuration of Redis.

use serde_json::json;

use crate::{
    child,
    process::{Folder, Process, run},
    redis::Server,
    support::{Ask, Connection, McpClient},
};

#[test]
fn without_the_flag_the_entry_is_left_out_and_it_is_said() {
    let home = Folder::new();
    let file = home.write(
        "mcp.json",
        &child::document(&[("c", json!({}))]).to_string(),
    );
    let finished = run(&home, &["config", "check", &file], "");
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let complaints = finished.complaints();
    // The other one is about the virtual host that is empty now.
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(complaints[0].contains("mcpServers.c"), "{complaints:?}");
    assert!(complaints[0].contains("only with --allow-stdio; skipped"));
    let finished = run(&home, &["config", "check", &file, "--allow-stdio"], "");
    assert_eq!((finished.code, &*finished.stderr), (0, ""));

    let backend = json!({"virtual_hosts": {"v": {"backends": {"c": child::entry(json!({}))}}}});
    let file = home.write("users.json", &backend.to_string());
    let finished = run(&home, &["config", "check", &file], "");
    assert_eq!(finished.code, 2);
    assert!(
        finished
            .stderr
            .contains("virtual_hosts.v.backends.c.transport")
    );
    let finished = run(&home, &["config", "check", &file, "--allow-stdio"], "");
    assert_eq!((finished.code, &*finished.stderr), (0, ""));
    // Neither arguments nor variables are printed.
    let get = ["config", "get", "--subject", "x", "--config-file", &file];
    let finished = run(&home, &get, "");
    assert!(
        !finished.stdout.contains("from the configuration"),
        "{}",
        finished.stdout
    );

    let arguments = ["--config-file", &file, "--allow-anonymous"];
    let process = Process::serve(&home, &arguments);
    process.address();
    let line = process.logged("virtual_hosts.v.backends.c.transport");
    assert!(line.contains("--allow-stdio"), "{line}");
}

#[test]
fn a_configuration_of_redis_starts_no_process() {
    let redis = Server::start(&[]);
    let home = Folder::new();
    let evidence = home.file("evidence");
    let backend = json!({"url": "touch", "transport": "STDIO", "command": "touch",
        "args": [evidence], "shared": true});
    let config = json!({"virtual_hosts": {"v": {"backends": {"c": backend}}}});
    // The subject of a caller without a token.
    let key = b"\x92\xaaUserConfig\xa0";
    let value = rmp_serde::to_vec(&config).unwrap();
    redis.admin().order(&[b"SET", key, &value]);
    let port = redis.port.to_string();
    let process = Process::serve(
        &home,
        &[
            "--allow-anonymous",
            "--allow-stdio",
            "--redis-address",
            "127.0.0.1",
            "--redis-mode",
            "plain-text",
            "--redis-port",
            &port,
        ],
    );
    let initialize = McpClient::initialize("/servers/v/mcp");
    let response = crate::process::until("the store is connected", || {
        let response = Connection::open(process.address()).ask(&initialize);
        (response.status == 200).then_some(response)
    });
    let session = response.header("mcp-session-id").unwrap();
    let list = Ask::post(
        "/servers/v/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
    )
    .header("mcp-session-id", session);
    let response = Connection::open(process.address()).ask(&list);
    assert_eq!(response.result()["tools"], json!([]));
    let line = process.logged("STDIO backends of user configurations in Redis are skipped");
    assert!(line.contains(" warn "), "{line}");
    assert!(!std::path::Path::new(&home.file("evidence")).exists());
}
