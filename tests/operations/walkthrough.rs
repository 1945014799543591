//! The walk-through of the ContextForge book, step by step with curl: a token, a configuration into
//! a real Redis, and a session through the gateway to two backends.

use loadgen::backend::{Backend, BackendKind, BackendOptions, ReplyKind};

use crate::{
    caller::{Answer, INITIALIZE, INITIALIZED, LIST, SECRET, await_ready, call, curl},
    process::{Folder, Process},
    redis::Server,
};

const USER: &str = "admin@example.com";

fn backend(kind: BackendKind, reply: ReplyKind) -> Backend {
    Backend::start(BackendOptions {
        kind,
        reply,
        ..BackendOptions::default()
    })
    .unwrap()
}

/// A user configuration as the walk-through writes it, with all fields of the contract.
fn user_config(counter: &Backend, echo: &Backend) -> String {
    let backend = |name: &str, url: String| {
        format!(
            r#""{name}":{{"name":"{name}","url":"{url}","transport":"STREAMABLEHTTP","passthrough_headers":[],"allowed_tool_names":[],"tool_name_aliases":{{}},"allowed_resource_names":[],"allowed_prompt_names":[]}}"#
        )
    };
    format!(
        r#"{{"virtual_hosts":{{"my_host":{{"backends":{{{},{}}}}}}}}}"#,
        backend("gateway-one", counter.url()),
        backend("gateway-two", echo.url())
    )
}

#[test]
fn the_walk_through_works_step_by_step_with_curl() {
    let redis = Server::start(&[]);
    let counter = backend(BackendKind::Counter, ReplyKind::Json);
    let echo = backend(BackendKind::Echo, ReplyKind::Sse);
    let home = Folder::new();
    let port = redis.port.to_string();
    let mut process = Process::serve(
        &home,
        &[
            "--bootstrap-helpers",
            "--token-verification-secret",
            SECRET,
            "--redis-address",
            "127.0.0.1",
            "--redis-port",
            &port,
            "--redis-mode",
            "plain-text",
            "--upstream-connection-mode",
            "plain-text-or-tls",
        ],
    );
    let base = format!("http://{}/contextforge-rs", process.address());
    await_ready(process.admin_address());

    // Health, byte for byte.
    let health = curl(&[&format!("{base}/health")]);
    assert_eq!(
        (health.status, &*health.body),
        (200, r#"{"status": "healthy"}"#)
    );
    assert_eq!(health.header("content-type"), Some("application/json"));

    // A token.
    let token = curl(&[&format!("{base}/admin/tokens/{USER}")]);
    assert_eq!(token.status, 200);
    assert_eq!(token.header("content-type"), Some("text/plain"));
    assert_eq!(token.body.split('.').count(), 3, "{}", token.body);
    let bearer = format!("Authorization: Bearer {}", token.body);

    let endpoint = format!("{base}/servers/my_host/mcp");
    let post = |body: &str, more: &[&str]| -> Answer {
        let json = "Content-Type: application/json";
        let accept = "Accept: application/json, text/event-stream";
        let mut arguments = vec!["-X", "POST", "-H", &bearer, "-H", json, "-H", accept];
        arguments.extend(["--data", body, &endpoint]);
        arguments.extend(more);
        curl(&arguments)
    };

    // Nothing is configured yet.
    post(INITIALIZE, &[]).assert_plain(400, "Problem occurred retrieving the configuration");

    // The configuration, into Redis under the contract's key and in its array form.
    let config = user_config(&counter, &echo);
    let config_url = format!("{base}/admin/userconfigs/{USER}");
    let json = "Content-Type: application/json";
    let added = curl(&["-X", "POST", "-H", json, "--data", &config, &config_url]);
    added.assert_plain(202, "Added");
    let value = redis
        .admin()
        .ask(&[b"GET", b"\x92\xaaUserConfig\xb1admin@example.com"]);
    assert!(
        value.starts_with(b"\x91\x81\xa7my_host\x91\x82\xabgateway-one"),
        "{value:?}"
    );
    let damaged = curl(&[
        "-X",
        "POST",
        "-H",
        json,
        "--data",
        "{\"virtual",
        &config_url,
    ]);
    assert_eq!(damaged.status, 422, "{damaged:?}");

    // initialize, the id it gives, and what follows.
    let opened = post(INITIALIZE, &[]);
    assert_eq!(opened.status, 200, "{opened:?}");
    let result = &opened.json()["result"];
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(result["serverInfo"]["name"], "shardgate");
    assert!(result["capabilities"]["tools"].is_object());
    let id = opened.header("mcp-session-id").unwrap();
    let session = format!("Mcp-Session-Id: {id}");
    let more = ["-H", &*session, "-H", "MCP-Protocol-Version: 2025-11-25"];
    let accepted = post(INITIALIZED, &more);
    assert_eq!((accepted.status, &*accepted.body), (202, ""));

    // The merged list.
    let listed = post(LIST, &more);
    assert_eq!(
        listed.tool_names(),
        [
            "gateway-one-increment",
            "gateway-one-reset",
            "gateway-one-value",
            "gateway-two-echo",
            "gateway-two-payload",
            "gateway-two-sleep",
        ]
    );

    // Calls, of a backend that answers JSON and of one that answers a stream.
    for count in ["1", "2", "3"] {
        let answer = post(&call("gateway-one-increment", "{}"), &more);
        assert_eq!((answer.status, answer.tool_text()), (200, count.to_owned()));
        assert_eq!(answer.json()["id"], 7);
    }
    let answer = post(&call("gateway-two-echo", r#"{"text":"über"}"#), &more);
    assert_eq!((answer.status, &*answer.tool_text()), (200, "über"));
    let unknown = post(&call("increment", "{}"), &more).json();
    assert_eq!(unknown["error"]["code"], -32602);

    // DELETE ends it, here and at the backends.
    let delete = || curl(&["-X", "DELETE", "-H", &bearer, "-H", &session, &endpoint]);
    assert_eq!(delete().status, 200);
    assert_eq!(delete().status, 404);
    let gone = post(LIST, &more);
    assert_eq!(
        (gone.status, &gone.json()["error"]["code"]),
        (404, &(-32001).into())
    );

    process.signal("TERM");
    assert_eq!(process.exit_code(), 0);
    assert!(
        !process.stdout().contains("not ready"),
        "{}",
        process.stdout()
    );
    assert!(!process.stderr().contains(USER), "{}", process.stderr());
}

#[test]
fn without_the_helpers_their_routes_do_not_exist() {
    let home = Folder::new();
    let document = home.write("users.json", r#"{"users":{}}"#);
    let arguments = [
        "--config-file",
        &*document,
        "--token-verification-secret",
        SECRET,
    ];
    let process = Process::serve(&home, &arguments);
    let base = format!("http://{}/contextforge-rs", process.address());
    for path in ["/health", "/admin/tokens/a", "/admin/userconfigs/a"] {
        let answer = curl(&[&format!("{base}{path}")]);
        assert_eq!((answer.status, &*answer.body), (404, ""), "{path}");
    }
}
