//! Whether a token may do what is asked of it: the scopes of each operation, and the other things a
//! token can be restricted to.
//!
//! Off unless `--enforce-scopes` is said. The names and the rules are the control plane's own
//! (contextforge.md section 2): one permission to use a server at all, and one for each kind of
//! method. A token of a trusted issuer says them in `scope`.

use std::net::IpAddr;

use crate::{
    auth::{Principal, restrictions::SERVERS_USE},
    config::compiled::VirtualHost,
    refusal::Refusal,
    request::Request,
    shard_state::ShardState,
};

/// What a client needs for everything an ordinary one does: what it is told to ask for first.
pub(super) const ORDINARY: &str =
    "servers.use tools.read tools.execute resources.read prompts.read";

/// All scopes of an operation, as a challenge names them: the one for its JSON-RPC method and the
/// one to use a server at all, which is all that handshakes, pings and notifications need.
#[must_use]
pub fn required_scopes(method: &[u8]) -> &'static str {
    match method {
        b"initialize" | b"ping" | b"server/discover" | b"subscriptions/listen" => "servers.use",
        b"tools/list" | b"completion/complete" => "servers.use tools.read",
        b"resources/list"
        | b"resources/templates/list"
        | b"resources/read"
        | b"resources/subscribe"
        | b"resources/unsubscribe" => "servers.use resources.read",
        b"prompts/list" | b"prompts/get" => "servers.use prompts.read",
        b"logging/setLevel" => "servers.use admin.system_config",
        method if method.starts_with(b"notifications/") => "servers.use",
        // Calls, and whatever else is passed on to a backend.
        _ => "servers.use tools.execute",
    }
}

/// Whether the caller may ask for `method`; always, where scopes are not enforced.
///
/// # Errors
/// When its token lacks one of the operation's scopes: the refusal names all of them.
pub fn check(shard: &ShardState, principal: &Principal, method: &[u8]) -> Result<(), Refusal> {
    match shard.settings.auth.enforce_scopes {
        true => check_all(principal, required_scopes(method)),
        false => Ok(()),
    }
}

/// The same for scopes by their names, where what is needed depends on more than the method.
///
/// # Errors
/// When the token lacks one of them.
pub fn check_scopes(
    shard: &ShardState,
    principal: &Principal,
    scopes: &'static str,
) -> Result<(), Refusal> {
    match shard.settings.auth.enforce_scopes {
        true => check_all(principal, scopes),
        false => Ok(()),
    }
}

fn check_all(principal: &Principal, scopes: &'static str) -> Result<(), Refusal> {
    let permissions = &principal.restrictions.permissions;
    let may = principal.anonymous || scopes.split(' ').all(|scope| permissions.grant(scope));
    may.then_some(()).ok_or(Refusal::Scope(scopes))
}

/// Whether the caller may use the virtual host at all, from where it is and at this time. Looked at
/// with every request: a token is remembered, an address and the time are not.
///
/// # Errors
/// When one of the token's restrictions says no.
pub fn admit(
    shard: &ShardState,
    request: &Request,
    principal: &Principal,
    host: &VirtualHost,
) -> Result<(), Refusal> {
    if !shard.settings.auth.enforce_scopes {
        return Ok(());
    }
    let restrictions = &principal.restrictions;
    check_circumstances(request.peer.ip(), principal)?;
    let server = restrictions.server_id.as_deref();
    if server.is_some_and(|only| *only != *host.name) {
        return Err(Refusal::Restricted("the token is not for this server"));
    }
    if !restrictions.teams.may_see(&host.teams) {
        return Err(Refusal::Restricted(
            "the server belongs to none of the token's teams",
        ));
    }
    check_all(principal, SERVERS_USE)
}

/// Whether the caller may bring a server of its own, from where it is and at this time. One of
/// three permissions lets it (connection-gateway.md 10); a token for one server brings no other.
///
/// # Errors
/// When one of the token's restrictions says no.
pub fn admit_server(
    shard: &ShardState,
    peer: IpAddr,
    principal: &Principal,
) -> Result<(), Refusal> {
    if !shard.settings.auth.enforce_scopes {
        return Ok(());
    }
    let restrictions = &principal.restrictions;
    check_circumstances(peer, principal)?;
    if restrictions.server_id.is_some() {
        return Err(Refusal::Restricted("the token is for another server"));
    }
    let mut permissions = SERVERS_BRING.into_iter();
    match permissions.any(|one| restrictions.permissions.grant(one)) {
        true => Ok(()),
        false => Err(Refusal::Scope(SERVERS_BRING[0])),
    }
}

/// The permissions each of which lets a caller bring a server.
const SERVERS_BRING: [&str; 3] = ["servers.create", "servers.update", "servers.manage"];

fn check_circumstances(peer: IpAddr, principal: &Principal) -> Result<(), Refusal> {
    let restrictions = &principal.restrictions;
    let ranges = restrictions.addresses.as_deref();
    if ranges.is_some_and(|ranges| !ranges.iter().any(|range| range.holds(peer))) {
        return Err(Refusal::Restricted(
            "the token may not be used from this address",
        ));
    }
    match restrictions.hours.hold(shards::clock::coarse_unix_s()) {
        true => Ok(()),
        false => Err(Refusal::Restricted(
            "the token may not be used at this time",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_needs_the_server_and_its_own_scope() {
        for (method, scopes) in [
            ("tools/call", "servers.use tools.execute"),
            ("tools/list", "servers.use tools.read"),
            ("prompts/get", "servers.use prompts.read"),
            ("resources/subscribe", "servers.use resources.read"),
            ("tasks/cancel", "servers.use tools.execute"),
            ("anything/else", "servers.use tools.execute"),
            ("", "servers.use tools.execute"),
            ("notifications/cancelled", "servers.use"),
            ("ping", "servers.use"),
            ("initialize", "servers.use"),
            ("server/discover", "servers.use"),
        ] {
            assert_eq!(required_scopes(method.as_bytes()), scopes, "{method}");
        }
        // An ordinary client is told to ask for what it needs, and for nothing an operator does.
        for method in [
            "tools/call",
            "tools/list",
            "prompts/get",
            "resources/read",
            "ping",
        ] {
            let needed = required_scopes(method.as_bytes());
            let asked: Vec<&str> = ORDINARY.split(' ').collect();
            assert!(
                needed.split(' ').all(|scope| asked.contains(&scope)),
                "{method}"
            );
        }
        assert!(!ORDINARY.contains("admin") && !ORDINARY.contains("offline_access"));
    }
}
