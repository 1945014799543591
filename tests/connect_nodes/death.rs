//! A node that dies without a word.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    cluster::{self, LEASE, node_with},
    process::{Folder, Process},
    redis::Server,
    stage::{Node, Session, chunk, end, lines, next_line, token_of},
    support::eventually,
};

/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(2);

/// A node that is a process.
fn process(home: &Folder, redis: u16, name: &str) -> (Process, Node) {
    cluster::process(home, &format!("redis://127.0.0.1:{redis}"), name, &[])
}

#[test]
fn callers_of_a_node_that_is_killed_are_told_within_the_lease_and_its_clients_come_back() {
    let redis = Server::start(&[]);
    let home = Folder::new();
    let (process, a) = process(&home, redis.port, "node-a");
    let b = node_with(redis.port, "node-b", 2, |settings| settings.lease = LEASE);
    let (mut client, session) = a.bound("tmb_1");
    let mut caller = b.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    client.send_envelope(session.envelope("stream", "r", chunk(json!("before"))));
    assert_eq!(next_line(&mut caller).unwrap()["payload"]["data"], "before");
    let killed = Instant::now();
    // By SIGKILL.
    drop(process);
    let last = lines(&mut caller).pop().unwrap();
    let told = killed.elapsed();
    assert_eq!(last["payload"]["event"], "error", "{last}");
    assert_eq!(last["payload"]["message"], "Gateway session owner expired");
    assert!(told <= LEASE + SLACK, "{told:?}");
    println!("told {told:?} after the death, lease {LEASE:?}");
    // A client of the real kind tries again and again.
    let (mut client, session) = eventually("its client is bound elsewhere", || {
        let mut client = b.client();
        client.send_bind(&token_of("tmb_1"), &json!({}));
        let mut message = client.message();
        (message["type"] == "bound").then(|| (client, Session(message["session"].take())))
    });
    let mut caller = b.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    client.send_envelope(session.envelope("stream", "r", end()));
    assert_eq!(lines(&mut caller).len(), 1);
}

/// A process that starts under the name of one that was killed does not take its sessions for its
/// own.
#[test]
fn sessions_of_a_killed_node_are_not_alive_for_the_next_one_of_its_name() {
    let redis = Server::start(&[]);
    let home = Folder::new();
    let (first, a) = process(&home, redis.port, "node-a");
    let (_client, session) = a.bound("tmb_1");
    // By SIGKILL.
    drop(first);
    let (_second, a) = process(&home, redis.port, "node-a");
    let view = eventually("Redis is reached", || {
        let response = a.status(session.id());
        (response.status != 503).then_some(response)
    });
    if view.status == 200 {
        assert_eq!(view.json()["data"]["ownerAlive"], false);
        let refused = a.publish(session.id(), &session.request("r"));
        assert!([404, 409].contains(&refused.status), "{}", refused.text());
    }
}

/// Two processes of one name are told apart, and the operator is told.
#[test]
fn a_name_that_two_nodes_have_is_complained_about_and_confuses_nothing() {
    let redis = Server::start(&[]);
    let home = Folder::new();
    let (_first, a) = process(&home, redis.port, "same");
    let (mut client, session) = a.bound("tmb_1");
    let (second, _) = process(&home, redis.port, "same");
    eventually("it is said", || {
        client.is_served();
        let said = "another live process has this node's name";
        second.stderr().contains(said).then_some(())
    });
    let mut caller = a.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    client.send_envelope(session.envelope("stream", "r", end()));
    assert_eq!(lines(&mut caller).len(), 1);
}
