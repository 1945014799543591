//! What the binary refuses before it binds, what it says of it, and its small commands.

use serde_json::Value;

use crate::{
    caller::{SECRET, curl},
    process::{Finished, Folder, Process, run},
};

fn refused(more: &[&str]) -> Finished {
    let home = Folder::new();
    let document = home.write("users.json", r#"{"users":{}}"#);
    let mut arguments = vec!["serve", "--admin-address", "127.0.0.1:0", "--no-pin"];
    if !more.contains(&"--config-file") && !more.contains(&"--redis-address") {
        arguments.extend(["--config-file", &document]);
    }
    arguments.extend(more);
    let finished = run(&home, &arguments, "");
    assert_eq!(finished.code, 2, "{finished:?}");
    assert_eq!(finished.stdout, "", "{finished:?}");
    finished
}

/// A gateway for anybody on this host, and the folder it lives in.
fn anyone(more: &[&str]) -> (Process, Folder) {
    let home = Folder::new();
    let document = home.write("users.json", r#"{"users":{}}"#);
    let mut arguments = vec!["--allow-anonymous", "--config-file", &document];
    arguments.extend(more);
    (Process::serve(&home, &arguments), home)
}

#[test]
fn without_a_key_it_refuses_to_start_and_says_what_to_do() {
    let finished = refused(&["--address", "127.0.0.1:0"]);
    let [line] = finished.complaints()[..] else {
        panic!("not one line: {finished:?}");
    };
    assert!(line.starts_with("error: "), "{line}");
    for part in [
        "no key to check tokens with",
        "--token-verification-secret",
        "--token-verification-public-key",
        "--allow-anonymous",
    ] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn anonymous_service_is_refused_beyond_this_host_unless_it_is_meant() {
    let open = ["--address", "0.0.0.0:0", "--allow-anonymous"];
    let finished = refused(&open);
    let [line] = finished.complaints()[..] else {
        panic!("not one line: {finished:?}");
    };
    assert!(line.contains("--allow-anonymous-remote"), "{line}");

    let (process, _home) = anyone(&["--address", "0.0.0.0:0", "--allow-anonymous-remote"]);
    let port = process.address().port();
    let answer = curl(&[&format!("http://127.0.0.1:{port}/mcp")]);
    assert_eq!(
        answer.status, 400,
        "the anonymous user has no configuration"
    );
}

#[test]
fn helpers_that_hand_out_tokens_are_refused_beyond_this_host() {
    let finished = refused(&[
        "--address",
        "0.0.0.0:0",
        "--bootstrap-helpers",
        "--token-verification-secret",
        SECRET,
    ]);
    let [line] = finished.complaints()[..] else {
        panic!("not one line: {finished:?}");
    };
    assert!(line.contains("hands out tokens"), "{line}");
}

#[test]
fn a_second_process_on_an_address_is_refused_unless_it_takes_over() {
    let (first, _home) = anyone(&[]);
    let address = first.address().to_string();
    let finished = refused(&["--address", &address, "--allow-anonymous"]);
    let [line] = finished.complaints()[..] else {
        panic!("not one line: {finished:?}");
    };
    assert!(
        line.contains(&format!("{address} is in use by another process")),
        "{line}"
    );
    assert!(line.contains("--take-over"), "{line}");

    let (mut second, _home) = anyone(&["--address", &address, "--take-over"]);
    assert_eq!(second.address().to_string(), address);
    let mut first = first;
    first.signal("TERM");
    assert_eq!(first.exit_code(), 0);
    // Only the second is there now.
    let answer = curl(&[&format!("http://{address}/mcp")]);
    assert_eq!(answer.status, 400);
    second.signal("TERM");
    assert_eq!(second.exit_code(), 0);
}

#[test]
fn a_process_takes_over_with_the_very_settings_of_the_first() {
    let admin = ["--admin-address", "127.0.0.1:0"];
    let home = Folder::new();
    let document = home.write("users.json", r#"{"users":{}}"#);
    let mut arguments = vec!["serve", "--allow-anonymous", "--no-pin", "--shards", "2"];
    arguments.extend(["--config-file", &document, "--address", "127.0.0.1:0"]);
    let first: Vec<&str> = arguments.iter().copied().chain(admin).collect();
    let mut first = Process::start(&home, &first);
    let (address, admin) = (
        first.address().to_string(),
        first.admin_address().to_string(),
    );

    let last = arguments.len() - 1;
    arguments[last] = &address;
    arguments.extend(["--admin-address", &admin, "--take-over"]);
    let mut second = Process::start(&home, &arguments);
    assert_eq!(second.address().to_string(), address);
    assert_eq!(second.admin_address().to_string(), admin);
    first.signal("TERM");
    assert_eq!(first.exit_code(), 0);
    let answer = curl(&[&format!("http://{admin}/livez")]);
    assert_eq!((answer.status, &*answer.body), (200, "ok\n"));
    second.signal("TERM");
    assert_eq!(second.exit_code(), 0);
}

#[test]
fn every_faulty_flag_is_told_in_one_line_each() {
    let finished = refused(&[
        "--address",
        "nowhere",
        "--allow-anonymous",
        "--shards",
        "0",
        "--io-driver",
        "magic",
        "--head-timeout",
        "10",
        "--body-bytes-max",
        "4 apples",
        "--server-certificate",
        "/does/not/exist.pem",
    ]);
    let lines = finished.complaints();
    for flag in [
        "--address",
        "--shards",
        "--io-driver",
        "--head-timeout",
        "--body-bytes-max",
        "--server-certificate",
    ] {
        let told: Vec<_> = lines
            .iter()
            .filter(|line| line.starts_with(&format!("error: flag {flag}: ")))
            .collect();
        assert_eq!(told.len(), 1, "{flag} in {lines:#?}");
    }
    assert!(
        lines.iter().all(|line| line.starts_with("error: ")),
        "{lines:#?}"
    );
}

#[test]
fn a_faulty_document_is_refused_before_anything_is_bound() {
    let home = Folder::new();
    let document = home.write("users.json", "{\"users\":{\"a\":\n  nonsense}}");
    let finished = refused(&["--config-file", &document, "--allow-anonymous"]);
    let lines = finished.complaints();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].starts_with(&format!("error: {document}:2:4: ")),
        "{lines:#?}"
    );

    let checked = run(&home, &["config", "check", &document], "");
    assert_eq!(checked.code, 2);
    assert_eq!(checked.stderr, finished.stderr);
}

#[test]
fn config_check_counts_what_is_good_and_ends_with_0() {
    let home = Folder::new();
    let document = home.write(
        "users.json",
        r#"{"users":{"a":{"virtual_hosts":{}},"b":{"virtual_hosts":{}}}}"#,
    );
    let checked = run(&home, &["config", "check", &document], "");
    assert_eq!(
        (checked.code, &*checked.stdout),
        (0, "2 user configurations\n")
    );
    let settings = ["--config-file", &document, "--allow-anonymous"];
    let checked = run(&home, &[&["config", "check"][..], &settings].concat(), "");
    assert_eq!(
        (checked.code, &*checked.stdout),
        (0, "2 user configurations\n")
    );
}

#[test]
fn config_schema_prints_json_schemas() {
    let home = Folder::new();
    for of in ["document", "user-config"] {
        let printed = run(&home, &["config", "schema", "--of", of], "");
        assert_eq!(printed.code, 0);
        let schema: Value = serde_json::from_str(&printed.stdout).unwrap();
        let text = schema["$schema"].as_str().unwrap();
        assert!(text.contains("2020-12"), "{text}");
    }
}

#[test]
fn config_get_reads_a_user_from_a_file() {
    let home = Folder::new();
    let document = home.write(
        "users.json",
        r#"{"users":{"a":{"virtual_hosts":{"v":{"backends":{}}}}}}"#,
    );
    let get = |subject: &str| {
        let words = ["config", "get", "--subject", subject, "--config-file"];
        run(&home, &[&words[..], &[&document]].concat(), "")
    };
    let found = get("a");
    assert_eq!(found.code, 0, "{found:?}");
    let config: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(
        config["virtual_hosts"]["v"]["backends"],
        serde_json::json!({})
    );
    let none = get("nobody");
    assert_eq!((none.code, &*none.stdout), (1, ""));
    assert!(none.stderr.contains("no configuration"), "{none:?}");
}

#[test]
fn a_minted_token_is_let_in_by_a_gateway_with_the_generated_secret() {
    let home = Folder::new();
    let state = home.file("state");
    let mint = |subject: &str| run(&home, &["token", "mint", "--subject", subject], "");
    let first = mint("a");
    assert_eq!(first.code, 0, "{first:?}");
    let secret = first
        .stderr
        .split_whitespace()
        .find_map(|word| word.strip_prefix("file:"))
        .unwrap_or_else(|| panic!("no way to serve is named: {first:?}"))
        .to_owned();
    let second = mint("a");
    assert_eq!(
        (second.code, &*second.stderr),
        (0, ""),
        "the secret is made once"
    );

    let document = home.write("users.json", r#"{"users":{"a":{"virtual_hosts":{}}}}"#);
    let secret = format!("file:{secret}");
    let process = Process::serve(
        &home,
        &[
            "--config-file",
            &document,
            "--token-verification-secret",
            &secret,
            "--state-dir",
            &state,
        ],
    );
    let url = format!("http://{}/servers/none/mcp", process.address());
    for finished in [first, second] {
        let bearer = format!("Authorization: Bearer {}", finished.stdout.trim_end());
        let answer = curl(&["-H", &bearer, &url]);
        // Let in and known, without that virtual host.
        assert_eq!(answer.status, 404);
        assert_eq!(answer.body, r#"{"detail":"Server not found"}"#);
    }
    assert_eq!(curl(&[&url]).status, 401);
}

#[test]
fn version_can_be_read_by_programs() {
    let home = Folder::new();
    let printed = run(&home, &["version", "--json"], "");
    assert_eq!(printed.code, 0);
    let version: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(version["name"], "shardgate");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let plain = run(&home, &["version"], "");
    assert_eq!(
        plain.stdout,
        format!("shardgate {}\n", env!("CARGO_PKG_VERSION"))
    );
}
