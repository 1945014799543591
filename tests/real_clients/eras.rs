//! Every client in every way it has to meet a server, against backends with sessions and without,
//! alone and merged: each lists, calls with progress, reads a resource and gets a prompt.
//!
//! Which revision was spoken is read from the gateway's counters, not from what clients say.

use serde_json::{Value, json};

use crate::{
    peers::{Client, Server, Shared, drive_well},
    rmcp_client,
    stage::Stage,
    support::Plan,
};

static EVERYTHING: Shared = Shared::none();

/// How a client meets the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// With the handshake of the older revisions.
    Legacy,
    /// With `server/discover`, and the handshake where that is not known.
    Auto,
    /// As 2026-07-28 says and in no other way.
    Modern,
}

/// A virtual host: its name, what is to be visited there, and its backends' configuration.
struct Host {
    name: &'static str,
    at: &'static str,
    is_bridged: bool,
}

const MODERN: Host = Host {
    name: "modern",
    at: "fixture=",
    is_bridged: false,
};
const LEGACY: Host = Host {
    name: "legacy",
    at: "everything=",
    is_bridged: false,
};
const BRIDGED: Host = Host {
    name: "bridged",
    at: "everything=",
    is_bridged: true,
};
const MIXED: Host = Host {
    name: "mixed",
    at: "fixture=m-,everything=l-",
    is_bridged: false,
};
const MIXED_BRIDGED: Host = Host {
    name: "mixed-bridged",
    at: "fixture=m-,everything=l-",
    is_bridged: true,
};

/// Where each way leads: whether sessions are spoken there.
const WAYS: [(Era, Host, bool); 11] = [
    (Era::Legacy, MODERN, true),
    (Era::Legacy, LEGACY, true),
    (Era::Legacy, MIXED, true),
    (Era::Auto, MODERN, false),
    // A server that needs sessions says so, and the client opens one.
    (Era::Auto, LEGACY, true),
    (Era::Auto, BRIDGED, false),
    (Era::Auto, MIXED, true),
    (Era::Auto, MIXED_BRIDGED, false),
    (Era::Modern, MODERN, false),
    (Era::Modern, BRIDGED, false),
    (Era::Modern, MIXED_BRIDGED, false),
];

fn document(modern: &str, legacy: &str) -> Value {
    let stateless = json!({"name": "m", "url": modern, "protocol": "stateless"});
    let found_out = json!({"name": "m", "url": modern, "protocol": "auto"});
    let sessions = json!({"name": "l", "url": legacy, "protocol": "legacy"});
    let bridged = json!({"name": "l", "url": legacy, "protocol": "auto",
        "bridge": "per-request", "session_independent_tools": ["*"]});
    json!({"virtual_hosts": {
        "modern": {"backends": {"m": stateless}},
        "legacy": {"backends": {"l": sessions}},
        "bridged": {"backends": {"l": bridged}},
        "mixed": {"backends": {"m": found_out, "l": sessions}},
        "mixed-bridged": {"backends": {"m": found_out, "l": bridged}},
    }})
}

/// Goes every way with `visit(era, url, at)`, which sends one client or several.
fn go_every_way<'a>(
    ways: impl IntoIterator<Item = &'a (Era, Host, bool)>,
    visit: impl Fn(Era, &str, &str),
) {
    let everything = EVERYTHING.get(|| vec![Server::everything()]);
    let modern = fixture::Running::start().unwrap();
    let stage = Stage::start(Plan::document(document(&modern.url, &everything[0].url)));
    let counted = || {
        let of = |name| stage.gateway.metric(name);
        [
            of("shardgate_sessions_opened_total"),
            of("shardgate_stateless_requests_total"),
            of("shardgate_stateless_bridged_total"),
        ]
    };
    let mut before = counted();
    for &(era, ref host, with_sessions) in ways {
        let url = format!("http://{}/servers/{}/mcp", stage.address(), host.name);
        visit(era, &url, host.at);
        let after = counted();
        let [sessions, stateless, bridged] =
            std::array::from_fn(|index| after[index] - before[index]);
        let told = format!(
            "{era:?} at {}: {sessions}, {stateless}, {bridged}",
            host.name
        );
        assert_eq!(sessions > 0, with_sessions, "{told}");
        if with_sessions {
            // Each client that asks first asks once.
            let probes = if era == Era::Auto { sessions } else { 0 };
            assert_eq!(stateless, probes, "{told}");
        } else {
            assert!(stateless > 0, "{told}");
        }
        assert_eq!(bridged > 0, host.is_bridged, "{told}");
        before = after;
    }
    assert_eq!(stage.totals().failures, []);
    stage.end();
}

fn drive(client: Client, mode: &str, era: Era, url: &str, at: &str) {
    let era = match era {
        Era::Legacy => "legacy",
        Era::Auto => "auto",
        Era::Modern => "modern",
    };
    let mut options = vec!["--mode", mode, "--era", era, "--at", at];
    options.extend(["--sessions", "1", "--calls", "1"]);
    drive_well(client, url, None, &options);
}

fn drive_every_way(client: Client) {
    go_every_way(&WAYS, |era, url, at| drive(client, "visit", era, url, at));
}

/// Goes the ways on which tools can ask the client, and calls some that do. Where a session meets a
/// backend that has both profiles it is served by the older ones, where this server does not ask.
fn answer_every_way(answer: impl Fn(Era, &str, &str)) {
    let asked = |(era, host, _): &&(Era, Host, bool)| {
        host.name != "mixed" && (*era != Era::Legacy || host.name == "modern")
    };
    go_every_way(WAYS.iter().filter(asked), answer);
}

#[test]
fn client2_meets_servers_of_both_eras() {
    drive_every_way(Client::Client2);
}

#[test]
fn python_meets_servers_of_both_eras() {
    drive_every_way(Client::Python);
}

#[test]
fn the_inspector_meets_servers_of_both_eras() {
    drive_every_way(Client::Inspector);
}

#[test]
fn rmcp_meets_servers_of_both_eras() {
    go_every_way(&WAYS, rmcp_client::visit);
}

#[test]
fn client2_answers_servers_of_both_eras() {
    answer_every_way(|era, url, at| drive(Client::Client2, "asked", era, url, at));
}

#[test]
fn python_answers_servers_of_both_eras() {
    answer_every_way(|era, url, at| drive(Client::Python, "asked", era, url, at));
}

#[test]
fn rmcp_answers_servers_of_both_eras() {
    answer_every_way(rmcp_client::answer);
}
