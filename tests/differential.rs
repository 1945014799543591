//! The reference server `server-everything`, walked from end to end twice: straight, and through
//! the gateway. Every result, error, question and notification is the same, byte for byte.
//!
//! The server is installed by `scripts/peers`, which `scripts/test` runs first.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail where it stands"
)]

#[path = "support/between.rs"]
mod between;
#[path = "support/conversation.rs"]
mod conversation;
#[path = "support/peers.rs"]
mod peers;
#[path = "support/support.rs"]
mod support;

#[path = "differential/answers.rs"]
mod answers;
#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/corrupt.rs"]
mod corrupt;
#[path = "differential/everything.rs"]
mod everything;
#[path = "differential/fastmcp.rs"]
mod fastmcp;
#[path = "differential/form.rs"]
mod form;
#[path = "differential/masks.rs"]
mod masks;
#[path = "differential/walk.rs"]
mod walk;

use std::{collections::BTreeSet, sync::Arc, thread};

use compare::differences;
use form::{Form, meant};
use peers::{Server, Shared};
use walk::{Part, REVISIONS, Revision, Walked, walk};

static EVERYTHING: Shared = Shared::none();

fn the_server() -> Arc<Vec<Server>> {
    EVERYTHING.get(|| vec![Server::everything()])
}

/// Two walks straight to the server: no difference, nothing that did not come, and nothing listed
/// that was not used.
fn straight(url: &str, revision: Revision, parts: &[Part]) -> Vec<Walked> {
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| walk(url, revision, parts));
        (walk(url, revision, parts), second.join().unwrap())
    });
    let found = differences(&first, &second);
    let found = found.iter().map(ToString::to_string);
    assert_none("two straight walks", found.collect());
    let heard = first.iter().flat_map(|part| &part.steps).flat_map(|step| {
        let methods = step.heard.iter().map(|(method, _)| method);
        methods.map(|method| format!("{}: {method}", step.name))
    });
    let missing = heard.filter(|heard| heard.ends_with("did not come"));
    assert_none("a straight walk", missing.collect());
    let all = |of: fn(&Walked) -> &Vec<String>| -> BTreeSet<&String> {
        first.iter().flat_map(of).collect()
    };
    let (listed, used) = (all(|part| &part.listed), all(|part| &part.used));
    let unused = listed.difference(&used).map(|name| (*name).clone());
    assert_none("listed and never used", unused.collect());
    first
}

#[track_caller]
fn assert_none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Walks straight to the server at `url` and through a gateway: the same, but for the steps whose
/// names begin as `meant` says.
fn is_the_same(url: &str, form: Form, revision: Revision, parts: &[Part], meant: &[&str]) {
    let behind = form.gateway(url);
    let (straight, through) = thread::scope(|scope| {
        let through = scope.spawn(|| walk(&behind.url, revision, parts));
        // Once for each revision is often enough to walk straight twice.
        let straight = match form {
            Form::Http => straight(url, revision, parts),
            Form::Sse | Form::Stdio => walk(url, revision, parts),
        };
        (straight, through.join().unwrap())
    });
    let mut found = differences(&through, &straight);
    let mut findings = Vec::new();
    for meant in meant {
        let count = found.len();
        found.retain(|difference| !difference.step.starts_with(meant));
        if found.len() == count {
            findings.push(format!("{meant}: does not differ any more"));
        }
    }
    findings.extend(found.iter().map(ToString::to_string));
    assert_none("through the gateway", findings);
}

fn everything_is_the_same(form: Form, revision: Revision) {
    let servers = the_server();
    let (parts, meant) = (everything::parts(revision), meant(form, revision));
    is_the_same(&servers[0].url, form, revision, parts, &meant);
}

/// The FastMCP server is the same for clients of the oldest and of the newest revision.
fn fastmcp_is_the_same(has_json_replies: bool) {
    let server = Server::rich_fastmcp(has_json_replies);
    for revision in [REVISIONS[0], REVISIONS[3]] {
        is_the_same(&server.url, Form::Http, revision, fastmcp::PARTS, &[]);
    }
}

#[test]
fn a_client_of_2024_11_05_hears_the_same() {
    everything_is_the_same(Form::Http, REVISIONS[0]);
}

#[test]
fn a_client_of_2025_03_26_hears_the_same() {
    everything_is_the_same(Form::Http, REVISIONS[1]);
}

#[test]
fn a_client_of_2025_06_18_hears_the_same() {
    everything_is_the_same(Form::Http, REVISIONS[2]);
}

#[test]
fn a_client_of_2025_11_25_hears_the_same() {
    everything_is_the_same(Form::Http, REVISIONS[3]);
}

#[test]
fn a_client_of_2024_11_05_hears_the_same_over_sse() {
    everything_is_the_same(Form::Sse, REVISIONS[0]);
}

#[test]
fn a_client_of_2025_03_26_hears_the_same_over_sse() {
    everything_is_the_same(Form::Sse, REVISIONS[1]);
}

#[test]
fn a_client_of_2025_06_18_hears_the_same_over_sse() {
    everything_is_the_same(Form::Sse, REVISIONS[2]);
}

#[test]
fn a_client_of_2025_11_25_hears_the_same_over_sse() {
    everything_is_the_same(Form::Sse, REVISIONS[3]);
}

#[test]
fn a_client_of_2024_11_05_hears_the_same_of_a_child() {
    everything_is_the_same(Form::Stdio, REVISIONS[0]);
}

#[test]
fn a_client_of_2025_03_26_hears_the_same_of_a_child() {
    everything_is_the_same(Form::Stdio, REVISIONS[1]);
}

#[test]
fn a_client_of_2025_06_18_hears_the_same_of_a_child() {
    everything_is_the_same(Form::Stdio, REVISIONS[2]);
}

#[test]
fn a_client_of_2025_11_25_hears_the_same_of_a_child() {
    everything_is_the_same(Form::Stdio, REVISIONS[3]);
}

#[test]
fn a_fastmcp_server_of_event_streams_is_the_same() {
    fastmcp_is_the_same(false);
}

#[test]
fn a_fastmcp_server_of_json_replies_is_the_same() {
    fastmcp_is_the_same(true);
}

#[test]
fn no_mask_is_idle() {
    let servers = the_server();
    let parts = everything::parts(REVISIONS[3]);
    let straight = walk(&servers[0].url, REVISIONS[3], parts);
    let masks = straight.iter().flat_map(|part| &part.masks);
    let needed: BTreeSet<&str> = masks
        .clone()
        .filter(|mask| mask.1)
        .map(|mask| mask.0)
        .collect();
    let idle = masks
        .map(|mask| mask.0)
        .filter(|reason| !needed.contains(reason));
    assert_none("idle masks", idle.map(str::to_owned).collect());
}

#[test]
fn a_byte_changed_on_the_way_is_noticed() {
    let servers = the_server();
    let url = corrupt::start(&servers[0].url);
    let parts = everything::parts(REVISIONS[2]);
    let (good, bad) = (
        walk(&servers[0].url, REVISIONS[2], parts),
        walk(&url, REVISIONS[2], parts),
    );
    let found = differences(&bad, &good);
    for (said, _, step) in corrupt::HABITS {
        let is_noticed = found.iter().any(|found| found.step.starts_with(step));
        assert!(is_noticed, "{said} was not noticed: {found:?}");
    }
}
