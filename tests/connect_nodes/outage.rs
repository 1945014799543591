//! A Redis that is away.

use std::time::Duration;

use serde_json::json;

use crate::{
    cluster::{Two, node_with},
    redis::Server,
    stage::{end, lines, token_of},
    support::{Ask, eventually},
};

#[test]
fn without_redis_local_callers_are_served_and_others_are_told_so() {
    let two = Two::start(2);
    let (mut client, session) = two.a.bound("tmb_1");
    two.redis.kill();
    eventually("it is noticed", || (!two.b.is_ready()).then_some(()));
    let mut caller = two.a.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    client.send_envelope(session.envelope("stream", "r", end()));
    assert_eq!(lines(&mut caller).len(), 1);
    client.is_served();
    assert_eq!(
        two.a.status(session.id()).json()["data"]["ownerAlive"],
        true
    );
    for response in [
        two.b.publish(session.id(), &session.request("r")),
        two.b.status(session.id()),
        two.b.patch(session.id(), &json!({})),
        two.b.delete(session.id()),
        two.b.by_source("debug:tmbId:tmb_1"),
    ] {
        assert_eq!(response.status, 503, "{}", response.text());
        assert!(response.json()["error"]["code"].is_string());
    }
    let (mut caller, head) = two.b.stream(session.id(), &session.stream_body("r"));
    assert_eq!(head.status, 503);
    assert!(caller.read_body("POST", head).json()["error"].is_object());
    // The real client waits for ever when it is not told.
    let mut second = two.a.client();
    second.send_bind(&token_of("tmb_2"), &json!({}));
    assert_eq!(second.error(Some("bind-1")), "bind_failed");
    second.ends_with(Some(1008));
    assert_eq!(two.a.ask(&Ask::new("GET", "/health")).status, 200);
}

/// D4: a session that nobody else can know to live does not go on for ever.
#[test]
fn a_lease_that_cannot_be_renewed_ends_the_session_with_a_word() {
    let lease = Duration::from_secs(2);
    let redis = Server::start(&[]);
    let node = node_with(redis.port, "node-a", 2, |settings| settings.lease = lease);
    let (mut client, _session) = node.bound("tmb_1");
    redis.kill();
    let code = eventually("its client is told", || {
        client.send(json!({"type": "heartbeat", "ts": 1}));
        let message = client.message();
        (message["type"] == "error").then(|| message["code"].clone())
    });
    assert_eq!(code, "connection_gateway.session_owner_expired");
    client.ends_with(Some(1008));
    redis.restart();
    eventually("it is back", || node.is_ready().then_some(()));
    let (mut client, _) = node.bound("tmb_1");
    client.is_served();
}

/// A connection that is lost and made again loses nothing, and sessions go on.
#[test]
fn a_short_outage_is_ridden_out() {
    let two = Two::start(2);
    let (mut client, session) = two.a.bound("tmb_1");
    let mut admin = two.redis.admin();
    for round in 0..5 {
        let id = format!("r-{round}");
        let mut caller = two.b.open_stream(session.id(), &session.stream_body(&id));
        client.envelope();
        // All connections but this one.
        admin.ask(&[b"CLIENT", b"KILL", b"TYPE", b"normal", b"SKIPME", b"yes"]);
        client.send_envelope(session.envelope("stream", &id, end()));
        let lines = lines(&mut caller);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["payload"]["event"], "end");
        eventually("both are back", || {
            (two.a.is_ready() && two.b.is_ready()).then_some(())
        });
    }
    client.is_served();
}
