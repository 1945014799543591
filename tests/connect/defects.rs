//! What is left of section 8 of the contract for one node: D23 and D25. The others stand with what
//! they are about: D26 beside `src/connection_gateway/session.rs`; D1, D2 in `handshakes.rs`; D3,
//! D4, D8 to D12 in `endings.rs`; D5, D6, D7, D13, D14, D17, D20 in `limits.rs`; D15, D16 in
//! `messages.rs`; D18, D19 in `binding.rs`; D21 in `websocket.rs`; D22, D24 in `http_api.rs`.

use serde_json::json;

use crate::{
    process::{Folder, run_with},
    stage::Node,
    support::Ask,
};

/// D23: the rest of it is in `http_api.rs` (no CORS, no `/openapi.json`) and `binding.rs` (short
/// texts, tokens that are good once).
#[test]
fn production_does_not_start_with_secrets_that_everybody_knows() {
    let home = Folder::new();
    let variables = [
        ("NODE_ENV", "production"),
        ("CONNECTION_GATEWAY_MAX_CONNECTIONS", "0"),
    ];
    let finished = run_with(
        &home,
        &variables,
        &["connect", "--admin-address", "none"],
        "",
    );
    assert_eq!(finished.code, 2, "{finished:?}");
    for name in [
        "AUTH_TOKEN",
        "JWT_SECRET",
        "CONNECTION_GATEWAY_MAX_CONNECTIONS",
    ] {
        let named = format!("environment variable {name}: ");
        assert!(
            finished
                .complaints()
                .iter()
                .any(|line| line.contains(&named)),
            "{finished:?}"
        );
    }
    assert_eq!(finished.complaints().len(), 3, "{finished:?}");
}

/// D25, on one node: without a Redis there is none to ask.
#[test]
fn an_exchange_on_one_node_needs_no_redis() {
    let node = Node::with(2, |settings| settings.redis = None);
    let (mut client, session) = node.bound("tmb_1");
    let mut caller = node.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    client.send_envelope(session.envelope("response", "r", json!({})));
    assert_eq!(crate::stage::lines(&mut caller).len(), 1);
    assert_eq!(node.ask(&Ask::new("GET", "/health")).status, 200);
}
