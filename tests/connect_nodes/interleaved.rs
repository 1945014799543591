//! D8 and D9 with the order of things forced: what one node has sent to Redis waits on its way
//! until another node has done what it would undo.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    cluster::{PREFIX, keys_with, node_with},
    redis::{Admin, Server},
    stage::Node,
    support::eventually,
    turnstile::{Turnstile, Words},
};

/// Renewals come a third of it after the last one. Longer than a busy machine makes a test wait.
const LEASE: Duration = Duration::from_millis(2_400);
const SOURCE_OWNER: &str = "sessions:source-owner:debug:tmbId:tmb_1";

/// Two nodes; what the first one says to Redis can be kept waiting.
struct Stage {
    kept: Node,
    free: Node,
    turnstile: Turnstile,
    redis: Server,
}

impl Stage {
    fn new() -> Self {
        let redis = Server::start(&[]);
        let turnstile = Turnstile::before(redis.port);
        let node = |port, name| node_with(port, name, 1, |settings| settings.lease = LEASE);
        Self {
            kept: node(turnstile.address.port(), "kept"),
            free: node(redis.port, "free"),
            turnstile,
            redis,
        }
    }
}

/// Whether a command changes, or may change, the record of this session: all but a plain read.
fn is_write_to(session: &str) -> impl Fn(&Words) -> bool + Send + 'static {
    let key = format!("{PREFIX}sessions:by-id:{session}").into_bytes();
    move |words| words[0] != b"GET" && words.contains(&key)
}

fn is_read_of_streams(words: &Words) -> bool {
    words[0] == b"XREAD"
}

fn get(admin: &mut Admin, key: &str) -> Vec<u8> {
    admin.ask(&[b"GET", format!("{PREFIX}{key}").as_bytes()])
}

/// A session as Redis has it.
fn record(admin: &mut Admin, session: &str) -> Value {
    let raw = get(admin, &format!("sessions:by-id:{session}"));
    serde_json::from_slice(&raw).unwrap_or_default()
}

fn metadata_at(node: &Node, session: &str) -> Value {
    node.status(session).json()["data"]["session"]["metadata"].take()
}

/// The client was heard once, and Redis was told so: no other renewal follows, and its script is
/// known there.
fn renew_once(admin: &mut Admin, client: &mut crate::stage::Client, session: &str) -> Value {
    let before = record(admin, session)["expiresAt"].take();
    client.is_served();
    eventually("its lease is renewed", || {
        let record = record(admin, session);
        (record["expiresAt"] != before).then_some(record)
    })
}

/// D8: the owner knows nothing of the deletion yet, and its renewal is on its way. What it would
/// bring back is free, or the next one's already.
#[test]
fn a_renewal_that_arrives_after_a_deletion_brings_nothing_back() {
    for is_taken in [false, true] {
        let stage = Stage::new();
        let mut admin = stage.redis.admin();
        // What the deletion leaves in the owner's inbox is not read before the end of this.
        let reading = stage.turnstile.keep(is_read_of_streams);
        let (mut client, session) = stage.kept.bound("tmb_1");
        reading.await_one();
        renew_once(&mut admin, &mut client, session.id());
        let renewal = stage.turnstile.keep(is_write_to(session.id()));
        client.is_served();
        renewal.await_one();
        assert_eq!(stage.free.delete(session.id()).status, 200);
        let next = is_taken.then(|| stage.free.bound("tmb_1"));
        let mut check = || {
            assert_eq!(keys_with(&mut admin, session.id()), [""; 0]);
            match &next {
                Some((_, next)) => assert_eq!(get(&mut admin, SOURCE_OWNER), next.id().as_bytes()),
                None => assert_eq!(keys_with(&mut admin, "tmb_1"), [""; 0]),
            }
        };
        check();
        // And what the owner gives back when it finds out.
        let release = stage.turnstile.keep(is_write_to(session.id()));
        renewal.pass();
        check();
        assert_eq!(client.error(None), "session_owner_expired");
        client.ends_with(Some(1008));
        release.await_one();
        release.pass();
        check();
        if let Some((mut client, _)) = next {
            client.is_served();
        }
    }
}

/// D8 once more: the client has left, which its node tells after the deletion.
#[test]
fn the_end_of_a_client_that_arrives_after_a_deletion_leaves_nothing() {
    let stage = Stage::new();
    let mut admin = stage.redis.admin();
    // Redis knows the script from here on.
    let (client, session) = stage.free.bound("tmb_2");
    drop(client);
    eventually("it is closed", || {
        (record(&mut admin, session.id())["status"] == "closed").then_some(())
    });
    // The owner hears of the deletion, and gives everything back, only after this.
    let reading = stage.turnstile.keep(is_read_of_streams);
    let (client, session) = stage.kept.bound("tmb_1");
    reading.await_one();
    let end = stage.turnstile.keep(is_write_to(session.id()));
    drop(client);
    end.await_one();
    assert_eq!(stage.free.delete(session.id()).status, 200);
    let (mut next_client, next) = stage.free.bound("tmb_1");
    end.pass();
    assert_eq!(keys_with(&mut admin, session.id()), [""; 0]);
    assert_eq!(get(&mut admin, SOURCE_OWNER), next.id().as_bytes());
    next_client.is_served();
}

/// D8 for metadata: a change that was begun before the end of a session is not made after it.
#[test]
fn a_change_of_metadata_that_arrives_after_the_end_of_a_session_changes_nothing() {
    let stage = Stage::new();
    let mut admin = stage.redis.admin();
    for is_deleted in [true, false] {
        let (client, session) = stage.free.bound("tmb_1");
        let id = session.id();
        assert_eq!(stage.kept.patch(id, &json!({"first": 1})).status, 200);
        let change = stage.turnstile.keep(is_write_to(id));
        std::thread::scope(|scope| {
            let patching = scope.spawn(|| stage.kept.patch(id, &json!({"late": 1})));
            change.await_one();
            if is_deleted {
                assert_eq!(stage.free.delete(id).status, 200);
                assert_eq!(keys_with(&mut admin, id), [""; 0]);
            } else {
                drop(client);
                eventually("it is closed", || {
                    (record(&mut admin, id)["status"] == "closed").then_some(())
                });
            }
            change.pass();
            assert_eq!(patching.join().unwrap().status, 404);
        });
        let left = record(&mut admin, id);
        if is_deleted {
            assert_eq!(keys_with(&mut admin, id), [""; 0]);
        } else {
            assert_eq!(left["status"], "closed", "{left}");
            assert_eq!(left["metadata"], json!({"first": 1}));
        }
    }
}

/// D9.
#[test]
fn a_renewal_that_arrives_after_a_change_of_metadata_keeps_it() {
    let stage = Stage::new();
    let mut admin = stage.redis.admin();
    let (mut client, session) = stage.kept.bound("tmb_1");
    let before = renew_once(&mut admin, &mut client, session.id());
    let renewal = stage.turnstile.keep(is_write_to(session.id()));
    client.is_served();
    renewal.await_one();
    let changed = json!({"by": "the other node"});
    assert_eq!(stage.free.patch(session.id(), &changed).status, 200);
    renewal.pass();
    let after = record(&mut admin, session.id());
    assert_eq!(after["metadata"], changed, "{after}");
    // It was done all the same.
    let lease = |record: &Value| record["expiresAt"].as_u64().unwrap();
    assert!(lease(&after) > lease(&before), "{before} {after}");
    client.is_served();
}

/// D9 the other way round: the record that a change was made from is older than the lease.
#[test]
fn a_change_of_metadata_that_arrives_after_a_renewal_keeps_it() {
    let stage = Stage::new();
    let mut admin = stage.redis.admin();
    let (mut client, session) = stage.free.bound("tmb_1");
    let changed = json!({"by": "the other node"});
    let renewed = std::thread::scope(|scope| {
        let first = stage.kept.patch(session.id(), &json!({"first": 1}));
        assert_eq!(first.status, 200);
        let change = stage.turnstile.keep(is_write_to(session.id()));
        let patching = scope.spawn(|| stage.kept.patch(session.id(), &changed));
        change.await_one();
        let renewed = renew_once(&mut admin, &mut client, session.id());
        change.pass();
        let patched = patching.join().unwrap();
        assert_eq!(patched.status, 200, "{}", patched.text());
        renewed
    });
    let after = record(&mut admin, session.id());
    assert_eq!(after["metadata"], changed, "{after}");
    assert_eq!(after["expiresAt"], renewed["expiresAt"]);
}

/// D9 between two changes: the owner, which hears of the other node's only later, shows the last.
#[test]
fn word_of_an_earlier_change_of_metadata_undoes_no_later_one() {
    let stage = Stage::new();
    let mut admin = stage.redis.admin();
    let reading = stage.turnstile.keep(is_read_of_streams);
    let (mut client, session) = stage.kept.bound("tmb_1");
    reading.await_one();
    let first = json!({"by": "the other node"});
    assert_eq!(stage.free.patch(session.id(), &first).status, 200);
    let last = json!({"by": "its client"});
    client.send(json!({"type": "metadata", "metadata": last}));
    eventually("it is written", || {
        (record(&mut admin, session.id())["metadata"] == last).then_some(())
    });
    drop(reading);
    // The inbox is read before the mailbox.
    let accepted = stage
        .free
        .publish(session.id(), &session.request("afterwards"));
    assert_eq!(accepted.status, 202);
    assert_eq!(client.envelope()["requestId"], "afterwards");
    for node in [&stage.kept, &stage.free] {
        assert_eq!(metadata_at(node, session.id()), last);
    }
}

/// The same with the owner's change the later one, which was begun first.
#[test]
fn a_change_of_metadata_that_arrives_last_is_the_one_both_nodes_show() {
    let stage = Stage::new();
    let (mut client, session) = stage.kept.bound("tmb_1");
    let first = json!({"by": "the other node"});
    // Redis knows the script from here on.
    let before = stage.free.patch(session.id(), &json!({"before": 1}));
    assert_eq!(before.status, 200);
    let change = stage.turnstile.keep(is_write_to(session.id()));
    let last = json!({"by": "its client"});
    client.send(json!({"type": "metadata", "metadata": last}));
    change.await_one();
    assert_eq!(stage.free.patch(session.id(), &first).status, 200);
    eventually("the owner hears of it", || {
        (metadata_at(&stage.kept, session.id()) == first).then_some(())
    });
    change.pass();
    for node in [&stage.kept, &stage.free] {
        eventually("both show the last one", || {
            (metadata_at(node, session.id()) == last).then_some(())
        });
    }
}

/// And with a change that waits for the owner's own earlier one while it hears of another node's.
#[test]
fn word_of_another_node_takes_the_place_of_no_change_that_is_still_to_be_written() {
    let stage = Stage::new();
    let (mut client, session) = stage.kept.bound("tmb_1");
    let before = stage.free.patch(session.id(), &json!({"before": 1}));
    assert_eq!(before.status, 200);
    let change = stage.turnstile.keep(is_write_to(session.id()));
    client.send(json!({"type": "metadata", "metadata": {"by": "its client"}}));
    change.await_one();
    let last = json!({"by": "its client", "last": true});
    client.send(json!({"type": "metadata", "metadata": last}));
    client.is_served();
    let other = json!({"by": "the other node"});
    assert_eq!(stage.free.patch(session.id(), &other).status, 200);
    // The inbox is read before the mailbox.
    let accepted = stage
        .free
        .publish(session.id(), &session.request("afterwards"));
    assert_eq!(accepted.status, 202);
    assert_eq!(client.envelope()["requestId"], "afterwards");
    change.pass();
    for node in [&stage.kept, &stage.free] {
        eventually("both show the last one", || {
            (metadata_at(node, session.id()) == last).then_some(())
        });
    }
}
