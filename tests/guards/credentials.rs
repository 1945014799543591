//! Credentials the gateway has for a backend: on every request, from a variable or a file, and
//! nowhere else.

use serde_json::{Value, json};

use crate::{
    process::{Folder, run},
    support::{Asked, Backend, HOST, McpClient, Plan, eventually},
    text_of,
};

fn document(backends: Value) -> Plan {
    Plan::document(json!({"virtual_hosts": {HOST: {"backends": backends}}}))
}

/// What all requests to it said in this header.
fn said(backend: &Backend, header: &str) -> Vec<Option<String>> {
    let value = |asked: &Asked| asked.header(header).map(str::to_owned);
    let mut all: Vec<_> = backend.seen().iter().map(value).collect();
    all.dedup();
    all
}

#[test]
fn every_request_to_a_backend_carries_its_credential() {
    let folder = Folder::new();
    let password = folder.write("password", "pass:word\n");
    let [bearer, basic, header] = ["a", "b", "c"].map(|name| Backend::start(name, &["t"]));
    let gateway = document(json!({
        "a": {
            "url": bearer.url(),
            // Set for all tests by cargo.
            "auth": {"type": "bearer", "token": "env:CARGO_PKG_NAME"},
            "passthrough_headers": ["Authorization"],
            "add_headers": {"authorization": "Bearer other"},
        },
        "b": {
            "url": basic.url(),
            "auth": {"type": "basic", "username": "me", "password": format!("file:{password}")},
            "remove_headers": ["authorization"],
        },
        "c": {
            "url": header.url(),
            "auth": {"type": "header", "name": "X-Api-Key", "value": format!("file:{password}")},
        },
    }))
    .start();
    let mut client = McpClient::open(&gateway);
    for backend in ["a", "b", "c"] {
        let call = client.request(crate::support::call_body(
            "1",
            &format!("{backend}-t"),
            "{}",
        ));
        let answer = client
            .connection
            .ask(&call.header("authorization", "Bearer of the client"));
        assert_eq!(text_of(&answer), format!("{backend} t {{}}"));
    }
    assert_eq!(client.delete().status, 200);
    for backend in [&bearer, &basic, &header] {
        eventually("its session is ended", || {
            (backend.session_count() == 0).then_some(())
        });
    }
    assert_eq!(
        said(&bearer, "authorization"),
        [Some("Bearer shardgate".to_owned())]
    );
    let pair = "Basic bWU6cGFzczp3b3Jk";
    assert_eq!(said(&basic, "authorization"), [Some(pair.to_owned())]);
    assert_eq!(said(&header, "x-api-key"), [Some("pass:word".to_owned())]);
    assert_eq!(said(&header, "authorization"), [None]);
}

#[test]
fn a_secret_that_is_replaced_is_sent_without_a_restart() {
    let folder = Folder::new();
    let token = folder.write("token", "first");
    let backend = Backend::start("a", &["t"]);
    let auth = json!({"type": "bearer", "token": format!("file:{token}")});
    let gateway = document(json!({"a": {"url": backend.url(), "auth": auth}})).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(text_of(&client.call("1", "t", "{}")), "a t {}");
    let next = folder.write("next", "second");
    std::fs::rename(next, &token).unwrap();
    eventually("the new secret is sent", || {
        assert_eq!(text_of(&client.call("2", "t", "{}")), "a t {}");
        let last = backend.seen_rpc("tools/call").pop().unwrap();
        (last.header("authorization") == Some("Bearer second")).then_some(())
    });
}

#[test]
fn a_backend_without_its_secret_is_not_asked_and_keeps_its_place() {
    let [keyless, other] = ["a", "b"].map(|name| Backend::start(name, &["t"]));
    let auth = json!({"type": "bearer", "token": "env:SHARDGATE_TEST_NO_SUCH_VARIABLE"});
    let gateway = document(json!({
        "a": {"url": keyless.url(), "auth": auth},
        "b": {"url": other.url()},
    }))
    .start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(client.tool_names(), ["b-t"]);
    assert_eq!(keyless.seen().len(), 0);
}

#[test]
fn no_command_prints_a_secret() {
    let folder = Folder::new();
    let auth = |token: &str| {
        let auth = json!({"type": "bearer", "token": token});
        let backend = json!({"url": "http://a.example/mcp", "auth": auth});
        json!({"virtual_hosts": {"v": {"backends": {"a": backend}}}}).to_string()
    };
    let secret = folder.write("secret", "hunter2");
    let sound = folder.write("sound.json", &auth(&format!("file:{secret}")));
    let get = ["config", "get", "--subject", "x", "--config-file", &sound];
    let output = run(&folder, &get, "");
    let text = output.stdout;
    assert!(
        output.code == 0 && text.contains("file:") && !text.contains("hunter2"),
        "{text}"
    );

    for written in ["hunter2", "file:hunter2", "env:NOBODY_SET_THIS"] {
        let bad = folder.write("bad.json", &auth(written));
        let output = run(&folder, &["config", "check", &bad], "");
        let text = output.stderr;
        assert_eq!(output.code, 2, "{text}");
        assert!(text.contains("virtual_hosts.v.backends.a.auth"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
