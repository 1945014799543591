//! The file store: watched, swapped whole, never replaced by what cannot be read.

use loadgen::backend::{Backend, BackendKind, BackendOptions};

use crate::{
    caller::{Answer, Caller, LIST, SECRET, call, token},
    process::{Folder, Process, until},
};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// A document in which user `a` has these virtual hosts, without backends.
fn document(hosts: &[&str]) -> String {
    let hosts: Vec<String> = hosts
        .iter()
        .map(|host| format!(r#""{host}":{{"backends":{{}}}}"#))
        .collect();
    format!(
        r#"{{"users":{{"a":{{"virtual_hosts":{{{}}}}}}}}}"#,
        hosts.join(",")
    )
}

fn serve(home: &Folder, path: &str) -> Process {
    let arguments = ["--config-file", path, "--token-verification-secret", SECRET];
    Process::serve(home, &arguments)
}

fn caller(process: &Process, host: &str) -> Caller {
    let path = format!("/servers/{host}/mcp");
    Caller::new(process.address(), &path, Some(token("a")))
}

/// Whether the caller's virtual host is there: only then the missing session matters.
fn is_there(answer: &Answer) -> bool {
    if answer.body == r#"{"detail":"Server not found"}"# {
        assert_eq!(answer.status, 404);
        return false;
    }
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        answer.body.contains("Mcp-Session-Id header is required"),
        "{answer:?}"
    );
    true
}

/// Waits until `caller` is served so over many fresh connections in a row, which both shards get.
fn until_there(caller: &Caller, wanted: bool) {
    until("the new document is in force on all shards", || {
        (0..20)
            .all(|_| is_there(&caller.post(PING)) == wanted)
            .then_some(())
    });
}

#[test]
fn a_file_that_is_replaced_by_a_rename_is_in_force_without_a_restart() {
    let home = Folder::new();
    let path = home.write("users.json", &document(&["one"]));
    let process = serve(&home, &path);
    let (one, two) = (caller(&process, "one"), caller(&process, "two"));
    until_there(&one, true);
    until_there(&two, false);

    let next = home.write("next", &document(&["two"]));
    std::fs::rename(next, &path).unwrap();
    until_there(&two, true);
    until_there(&one, false);

    // Again: the watch outlives the file it began with.
    let next = home.write("next", &document(&["one", "two"]));
    std::fs::rename(next, &path).unwrap();
    until_there(&one, true);
    until_there(&two, true);
}

#[test]
fn a_file_that_is_edited_in_place_is_in_force_without_a_restart() {
    let home = Folder::new();
    let path = home.write("users.json", &document(&["one"]));
    let process = serve(&home, &path);
    let two = caller(&process, "two");
    until_there(&two, false);
    home.write("users.json", &document(&["two"]));
    until_there(&two, true);
}

#[test]
fn a_document_that_cannot_be_read_changes_nothing_and_is_logged() {
    let home = Folder::new();
    let path = home.write("users.json", &document(&["one"]));
    let process = serve(&home, &path);
    let (one, two) = (caller(&process, "one"), caller(&process, "two"));
    until_there(&one, true);

    home.write("users.json", "{\"users\": oh no");
    let line = process.logged("user configurations stay as they were");
    assert!(line.contains(&path) && line.contains(":1:"), "{line}");
    until_there(&one, true);

    std::fs::remove_file(&path).unwrap();
    until("its absence is logged", || {
        let lines = process.stderr();
        (lines.matches("stay as they were").count() >= 2).then_some(())
    });
    until_there(&one, true);

    home.write("users.json", &document(&["two"]));
    until_there(&two, true);
}

#[test]
fn a_folder_of_documents_follows_its_files() {
    let home = Folder::new();
    let folder = home.file("users");
    std::fs::create_dir(&folder).unwrap();
    home.write("users/a.json", &document(&["one"]));
    let process = serve(&home, &folder);
    let (one, two) = (caller(&process, "one"), caller(&process, "two"));
    until_there(&one, true);
    // A later file replaces a user's entry as a whole.
    home.write("users/b.json", &document(&["two"]));
    until_there(&two, true);
    until_there(&one, false);
    std::fs::remove_file(home.file("users/b.json")).unwrap();
    until_there(&one, true);
}

#[test]
fn the_server_list_of_an_mcp_client_is_served_at_mcp() {
    let options = |kind| BackendOptions {
        kind,
        ..BackendOptions::default()
    };
    let counter = Backend::start(options(BackendKind::Counter)).unwrap();
    let echo = Backend::start(options(BackendKind::Echo)).unwrap();
    let home = Folder::new();
    let list = |servers: &[(&str, &Backend)]| {
        let servers: Vec<String> = servers
            .iter()
            .map(|(name, at)| format!(r#""{name}":{{"type":"http","url":"{}"}}"#, at.url()))
            .collect();
        format!(r#"{{"mcpServers":{{{}}}}}"#, servers.join(","))
    };
    let path = home.write("mcp.json", &list(&[("counter", &counter)]));
    let process = Process::serve(
        &home,
        &[
            "--config-file",
            &path,
            "--allow-anonymous",
            "--upstream-connection-mode",
            "plain-text-or-tls",
        ],
    );
    let mut caller = Caller::new(process.address(), "/mcp", None);
    caller.open();
    assert_eq!(
        caller.post(LIST).tool_names(),
        ["increment", "reset", "value"]
    );
    assert_eq!(caller.post(&call("increment", "{}")).tool_text(), "1");

    // A backend more: the session that is open sees it, and keeps what it has.
    home.write("mcp.json", &list(&[("counter", &counter), ("echo", &echo)]));
    until("the open session has both backends", || {
        let names = caller.post(LIST).tool_names();
        (names.len() == 6).then_some(())
    });
    assert_eq!(
        caller.post(&call("counter-increment", "{}")).tool_text(),
        "2"
    );
    let echoed = caller.post(&call("echo-echo", r#"{"text":"hi"}"#));
    assert_eq!(echoed.tool_text(), "hi");
}
