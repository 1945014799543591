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
#[path = "differential/form.rs"]
mod form;
#[path = "differential/masks.rs"]
mod masks;
#[path = "differential/walk.rs"]
mod walk;

use std::{collections::BTreeSet, thread};

use compare::differences;
use form::{Form, meant};
use peers::{Server, Shared};
use walk::{REVISIONS, Revision, Walked, walk};

static SERVERS: Shared = Shared::none();

/// Two walks straight to the server: no difference, nothing that did not come, nothing listed that
/// was not used, and all masks are needed.
fn straight(url: &str, revision: Revision) -> Vec<Walked> {
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| walk(url, revision));
        (walk(url, revision), second.join().unwrap())
    });
    let found = differences(&first, &second);
    let found = found.iter().map(ToString::to_string);
    assert_none("two straight walks", found.collect());
    let heard = first.iter().flat_map(|part| &part.steps);
    let missing: Vec<String> = heard
        .flat_map(|step| {
            step.heard
                .iter()
                .map(|(method, _)| format!("{}: {method}", step.name))
        })
        .filter(|heard| heard.ends_with("did not come"))
        .collect();
    assert_none("a straight walk", missing);
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

/// Walks straight and through a gateway with this server as its one backend: the same, but for what
/// is meant to differ.
fn is_the_same(form: Form, revision: Revision) {
    let servers = SERVERS.get(|| vec![Server::everything()]);
    let behind = form.gateway(&servers[0].url);
    let (straight, through) = thread::scope(|scope| {
        let through = scope.spawn(|| walk(&behind.url, revision));
        (straight(&servers[0].url, revision), through.join().unwrap())
    });
    let mut found = differences(&through, &straight);
    let mut findings = Vec::new();
    for meant in meant(form, revision) {
        let count = found.len();
        found.retain(|difference| !difference.step.starts_with(meant));
        if found.len() == count {
            findings.push(format!("{meant}: does not differ any more"));
        }
    }
    findings.extend(found.iter().map(ToString::to_string));
    assert_none("through the gateway", findings);
}

#[test]
fn a_client_of_2024_11_05_hears_the_same() {
    is_the_same(Form::Http, REVISIONS[0]);
}

#[test]
fn a_client_of_2025_03_26_hears_the_same() {
    is_the_same(Form::Http, REVISIONS[1]);
}

#[test]
fn a_client_of_2025_06_18_hears_the_same() {
    is_the_same(Form::Http, REVISIONS[2]);
}

#[test]
fn a_client_of_2025_11_25_hears_the_same() {
    is_the_same(Form::Http, REVISIONS[3]);
}

#[test]
fn a_client_of_2024_11_05_hears_the_same_over_sse() {
    is_the_same(Form::Sse, REVISIONS[0]);
}

#[test]
fn a_client_of_2025_11_25_hears_the_same_over_sse() {
    is_the_same(Form::Sse, REVISIONS[3]);
}

#[test]
fn a_client_of_2024_11_05_hears_the_same_of_a_child() {
    is_the_same(Form::Stdio, REVISIONS[0]);
}

#[test]
fn a_client_of_2025_11_25_hears_the_same_of_a_child() {
    is_the_same(Form::Stdio, REVISIONS[3]);
}

#[test]
fn masks_are_enough_and_none_is_idle() {
    let servers = SERVERS.get(|| vec![Server::everything()]);
    let server = &servers[0];
    let straight = straight(&server.url, REVISIONS[3]);
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
    let servers = SERVERS.get(|| vec![Server::everything()]);
    let server = &servers[0];
    let url = corrupt::start(&server.url);
    let (good, bad) = (walk(&server.url, REVISIONS[2]), walk(&url, REVISIONS[2]));
    let found = differences(&bad, &good);
    for (said, _, step) in corrupt::HABITS {
        let is_noticed = found.iter().any(|found| found.step.starts_with(step));
        assert!(is_noticed, "{said} was not noticed: {found:?}");
    }
}
