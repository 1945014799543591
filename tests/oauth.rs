//! The gateway as an OAuth resource server (mcp.md 6, dual-profile.md 10.1 AUT-1 and AUT-2): whose
//! tokens it takes, what they may do, and to whom it passes them on.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/issuer.rs"]
#[allow(unreachable_pub, reason = "as in all of the support")]
mod issuer;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod process;
#[path = "support/redis.rs"]
#[allow(dead_code, reason = "only a plain server is needed here")]
mod redis;
#[path = "support/support.rs"]
mod support;
#[path = "support/tls.rs"]
mod tls;

#[path = "oauth/audiences.rs"]
mod audiences;
#[path = "oauth/callers.rs"]
mod callers;
#[path = "oauth/keys.rs"]
mod keys;
#[path = "oauth/outages.rs"]
mod outages;
#[path = "oauth/restrictions.rs"]
mod restrictions;
#[path = "oauth/revoked.rs"]
mod revoked;
#[path = "oauth/scopes.rs"]
mod scopes;
#[path = "oauth/stateless.rs"]
mod stateless;

use issuer::Issuer;
use serde_json::json;
use shardgate::settings::Settings;
use support::{Backend, Gateway, HOST, McpClient, Plan, Response};

/// The audience of tokens where it is no address.
const AUDIENCE: &str = "mcp";
/// An endpoint of the virtual host `main`.
const TARGET: &str = "/servers/main/mcp";

/// Has a gateway trust these issuers' tokens for [`AUDIENCE`] and take no others.
fn trusting(issuers: &[&Issuer]) -> impl FnOnce(&mut Settings) + use<> {
    let rules: Vec<_> = issuers
        .iter()
        .map(|issuer| issuer.rules(Some(AUDIENCE)))
        .collect();
    move |settings| {
        settings.access.allow_anonymous = false;
        settings.auth.trusted_issuers = rules;
    }
}

/// A gateway in front of this backend that trusts this issuer.
fn gateway(backend: &Backend, issuer: &Issuer) -> Gateway {
    Plan::one(backend).settings(trusting(&[issuer])).start()
}

/// What a client with this token gets that opens a session at `target`.
fn open_at(gateway: &Gateway, target: &str, token: &str) -> Response {
    let ask = McpClient::initialize(target);
    gateway
        .connect()
        .ask(&ask.header("authorization", &format!("Bearer {token}")))
}

/// The status of the same on the virtual host `main`.
fn status(gateway: &Gateway, token: &str) -> u16 {
    open_at(gateway, TARGET, token).status
}

/// A good token of this issuer, signed with the key `id`.
fn token(issuer: &Issuer, id: &str) -> String {
    issuer.token(id, AUDIENCE, json!({}))
}

/// A session on the virtual host `main` with this token.
fn session(gateway: &Gateway, token: &str) -> McpClient {
    McpClient::open_on(gateway, HOST, Some(token))
}
