//! Virtual hosts that serve fewer profiles and revisions than the process (dual-profile.md 7).

use crate::support::{Ask, Backend, Gateway, Layout, ModernClient, Plan, initialize_body};
use serde_json::{Value, json};

fn gateway() -> (Backend, Gateway) {
    let backend = Backend::modern("a", &["one", "two"]);
    let backends = json!({"a": {"url": backend.url()}});
    let host = |protocols: Value| json!({"backends": backends, "protocols": protocols});
    let document = json!({"virtual_hosts": {
        "main": {"backends": backends},
        "sessions": host(json!({"stateless": {"enabled": false}})),
        "old": host(json!({"legacy": {"versions": ["2025-03-26", "2025-06-18"]}})),
        "modern": host(json!({
            "legacy": {"enabled": false}, "stateless": {"discoverTtlMs": 7, "toolsListTtlMs": 9},
        })),
        "narrow": host(json!({"stateless": {"maxToolsListItems": 1}})),
    }});
    let gateway = Plan::document(document).layout(Layout::One).start();
    (backend, gateway)
}

fn agreed(gateway: &Gateway, host: &str, version: &str) -> Value {
    let target = format!("/servers/{host}/mcp");
    let ask = Ask::post(&target, initialize_body("1", version));
    gateway.connect().ask(&ask).json()["result"]["protocolVersion"].clone()
}

#[test]
fn a_host_says_which_revisions_are_agreed_on() {
    let (_backend, gateway) = gateway();
    for (host, asked, agreed_on) in [
        ("main", "2025-11-25", "2025-11-25"),
        ("sessions", "2025-11-25", "2025-11-25"),
        ("old", "2025-11-25", "2025-06-18"),
        ("old", "2025-03-26", "2025-03-26"),
        ("narrow", "2024-11-05", "2024-11-05"),
    ] {
        assert_eq!(agreed(&gateway, host, asked), agreed_on, "{host} {asked}");
    }
    let mut old = ModernClient::of(&gateway, "old", None);
    let supported =
        old.ask("1", "server/discover", "").json()["result"]["supportedVersions"].clone();
    assert_eq!(supported, json!(["2026-07-28", "2025-06-18", "2025-03-26"]));
}

#[test]
fn a_host_without_sessions_or_without_the_stateless_profile_says_so() {
    let (backend, gateway) = gateway();
    let opening = Ask::post("/servers/modern/mcp", initialize_body("1", "2025-11-25"));
    let refused = gateway.connect().ask(&opening);
    assert_eq!((refused.status, refused.error_code()), (400, -32022));
    assert_eq!(
        refused.json()["error"]["data"]["supported"],
        json!(["2026-07-28"])
    );

    let mut sessions = ModernClient::of(&gateway, "sessions", None);
    let refused = sessions.call("1", "one", "{}");
    let off = Plan::of(&[("a", &backend.url())])
        .layout(Layout::One)
        .settings(|settings| settings.protocols.stateless = false)
        .start();
    let same = ModernClient::new(&off).call("1", "one", "{}");
    assert_eq!((refused.status, &refused.body), (same.status, &same.body));
    assert_ne!(refused.status, 200);
    assert_eq!(backend.seen_rpc("tools/call").len(), 0);
    assert_eq!(
        ModernClient::of(&gateway, "main", None)
            .call("1", "one", "{}")
            .status,
        200
    );
}

#[test]
fn a_hosts_times_and_bounds_count() {
    let (_backend, gateway) = gateway();
    let mut modern = ModernClient::of(&gateway, "modern", None);
    let ttl = |response: crate::support::Response| response.json()["result"]["ttlMs"].clone();
    assert_eq!(ttl(modern.ask("1", "server/discover", "")), 7);
    assert_eq!(ttl(modern.list()), 9);
    let refused = ModernClient::of(&gateway, "narrow", None).list();
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(refused.error_code(), -31001);
}
