//! Where declared tools may not lead (dual-profile.md 2.9), at load and at connect.

use serde_json::json;

use crate::{
    api_of, call, merge, plan_of,
    process::{Folder, run},
    support::Plan,
    text_of, tool,
};

#[test]
fn private_targets_are_refused_at_load() {
    let folder = Folder::new();
    for host in [
        "http://127.0.0.1:8080",
        "http://0x7f.1",
        "http://2130706433/",
        "http://[::1]",
        "http://[::ffff:127.0.0.1]",
        "http://10.1.2.3",
        "http://169.254.169.254/latest",
        "https://localhost",
        "https://a.localhost",
        "http://metadata.google.internal",
    ] {
        let declared = json!({"name": "t", "targetHost": host, "path": "/t"});
        let document = json!({"virtual_hosts": {"v": {"backends": {}, "tools": [declared]}}});
        let path = folder.write("bad.json", &document.to_string());
        let output = run(&folder, &["config", "check", &path], "");
        assert_eq!(output.code, 2, "{host}");
        assert!(
            output.stderr.contains("MCP_ROUTING_CONTRACT_INVALID"),
            "{}",
            output.stderr
        );
        assert!(output.stderr.contains("/targetHost"), "{}", output.stderr);
    }
}

#[test]
fn a_name_that_leads_to_this_host_is_refused_at_connect() {
    let api = api_of("{}");
    // A public-looking name whose address is loopback: every system knows its own name.
    let name = String::from_utf8(
        std::process::Command::new("hostname")
            .output()
            .unwrap()
            .stdout,
    );
    let name = name.unwrap().trim().to_owned();
    let addresses = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), 80));
    let is_known = addresses.is_ok_and(|mut all| all.next().is_some());
    assert!(is_known, "the machine's own name has an address");
    let mut guarded = tool("guarded", &api, json!({}));
    guarded["targetHost"] = format!("http://{name}:{}", api.address().port()).into();
    merge(
        &mut guarded,
        json!({"toolMetadata": {"runtime": {"allowPrivateTargetHost": false}}}),
    );
    let gateway = plan_of(json!([guarded])).start();
    let text = text_of(&call(&gateway, "guarded", &json!({})), true);
    assert_eq!(
        text,
        "upstream failed: the upstream's address is not a public one"
    );
    assert_eq!(api.seen().len(), 0);
}

#[test]
fn a_redirect_is_not_followed() {
    let inner = api_of("{}");
    let location = format!("location: http://{}/t\r\n", inner.address());
    let api = crate::api(move |_, wire| wire.answer(307, &location, ""));
    let gateway = plan_of(json!([tool("t", &api, json!({}))])).start();
    let text = text_of(&call(&gateway, "t", &json!({})), true);
    assert_eq!(text, "upstream returned HTTP 307");
    assert_eq!((api.seen().len(), inner.seen().len()), (1, 0));
}

#[test]
fn exchanges_with_one_target_are_bounded() {
    let gate = std::sync::Arc::new(crate::support::Gate::default());
    let api = crate::api({
        let gate = gate.clone();
        move |_, wire| {
            gate.wait();
            wire.json("{}");
        }
    });
    let tools = json!([tool("t", &api, json!({}))]);
    let hosts = json!({crate::HOST: {"backends": {}, "tools": tools}});
    let gateway = Plan::document(json!({"virtual_hosts": hosts}))
        .shards(1)
        .settings(|settings| settings.upstream.concurrency_max = 1)
        .start();
    let mut first = crate::McpClient::open(&gateway);
    first.send_call("1", "t", "{}");
    gate.await_arrivals(1);
    let text = text_of(&call(&gateway, "t", &json!({})), true);
    assert_eq!(
        text,
        "upstream failed: the backend has too many calls under way"
    );
    gate.open();
    assert_eq!(first.connection.read_response().status, 200);
}
