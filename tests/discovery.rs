//! How the gateway finds out what a backend without sessions can do.

#[path = "support/support.rs"]
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use support::{Ask, Asked, Backend, Gateway, Plan, Response, Wire};

const DISCOVERED: &str = r#"{"resultType":"complete","ttlMs":60000,"cacheScope":"public",
    "supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#;

/// What a stateless client asks to begin with.
fn discover(gateway: &Gateway) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": "d", "method": "server/discover", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }}});
    let ask = Ask::post("/servers/main/mcp", body.to_string())
        .with("mcp-protocol-version", "2026-07-28")
        .with("mcp-method", "server/discover");
    gateway.connect().ask(&ask)
}

/// A backend that refuses the first requests of the revision and says that it serves it.
fn contrary(refusals: usize) -> Backend {
    let asked_before = AtomicUsize::new(0);
    Backend::scripted(
        "contrary",
        &[],
        move |asked: &Asked, wire: &mut Wire<'_>| {
            if !asked.is("server/discover") {
                return None;
            }
            if asked_before.fetch_add(1, Ordering::Relaxed) >= refusals {
                wire.result(asked, DISCOVERED);
                return Some(());
            }
            let data = json!({"supported": ["2026-07-28"], "requested": "2026-07-28"});
            let refusal = json!({"jsonrpc": "2.0", "id": asked.json()["id"],
            "error": {"code": -32022, "message": "Unsupported protocol version", "data": data}});
            wire.answer(
                400,
                "content-type: application/json\r\n",
                refusal.to_string(),
            );
            Some(())
        },
    )
}

fn asked_of(backend: &Backend) -> Vec<Value> {
    let seen = backend.seen_rpc("server/discover");
    seen.iter().map(Asked::json).collect()
}

#[test]
fn one_that_names_the_revision_it_refused_is_asked_once_more() {
    let backend = contrary(1);
    let gateway = Plan::one(&backend).shards(1).start();
    let result = discover(&gateway).result();
    assert!(result["capabilities"]["tools"].is_object(), "{result}");
    let asked = asked_of(&backend);
    assert_eq!(asked.len(), 2);
    assert_ne!(asked[0]["id"], asked[1]["id"]);
    for one in &asked {
        let meta = &one["params"]["_meta"];
        let version = &meta["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(*version, "2026-07-28");
        // It asks for all clients, whatever they can do.
        let capabilities = &meta["io.modelcontextprotocol/clientCapabilities"];
        for kind in ["elicitation", "roots", "sampling"] {
            assert!(capabilities[kind].is_object(), "{capabilities}");
        }
    }
    assert!(backend.seen_rpc("initialize").is_empty());
    assert!(gateway.stop());
}

#[test]
fn one_that_goes_on_refusing_is_not_asked_a_third_time() {
    let backend = contrary(usize::MAX);
    let gateway = Plan::one(&backend).shards(1).start();
    let response = discover(&gateway);
    assert_eq!(response.error_code(), -32603, "{}", response.text());
    assert_eq!(asked_of(&backend).len(), 2);
    // It speaks no revision with sessions either, as far as it has said.
    assert!(backend.seen_rpc("initialize").is_empty());
    assert!(gateway.stop());
}
