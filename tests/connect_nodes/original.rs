//! Nodes of the original among ours: the test is one of them, and says to Redis what it would
//! (contract section 4).

use serde_json::{Value, json};

use crate::{
    cluster::{PREFIX, entries, keys_with, node},
    redis::{Admin, Server},
    stage::{Node, Session, chunk, end, lines, next_line},
    support::eventually,
};

const ID: &str = "7a76e6cf-0000-4000-8000-000000000001";
const SOURCE: &str = "debug:tmbId:tmb_o";

/// The part of the original that has to do with Redis.
struct Original(Admin);

impl Original {
    fn key(rest: &str) -> String {
        format!("{PREFIX}{rest}")
    }

    fn record(metadata: &Value) -> Value {
        let now = shards::clock::unix_ms();
        json!({
            "id": ID, "consumerType": "plugin-debug", "subject": "tmb_o",
            "sessionScope": {"userId": "tmb_o", "source": SOURCE}, "transport": "websocket",
            "capabilities": ["gateway.bind", "invoke"], "ownerNodeId": "original",
            "status": "connected", "expiresAt": now + 15_000, "metadata": metadata, "now": now,
            "generation": 0, "connectedAt": now, "lastSeenAt": now,
        })
    }

    fn set(&mut self, id: &str, record: &Value) {
        let key = Self::key(&format!("sessions:by-id:{id}"));
        let text = record.to_string();
        self.0
            .order(&[b"SET", key.as_bytes(), text.as_bytes(), b"PX", b"60000"]);
    }

    /// What it writes at a bind.
    fn bind(&mut self) -> Session {
        let record = Self::record(&json!({"a": [], "b": 1.5}));
        let owner = Self::key(&format!("sessions:source-owner:{SOURCE}"));
        self.0
            .order(&[b"SET", owner.as_bytes(), ID.as_bytes(), b"PX", b"15000"]);
        self.set(ID, &record);
        for set in [
            "sessions:by-subject:tmb_o".to_owned(),
            format!("sessions:by-source:{SOURCE}"),
        ] {
            let key = Self::key(&set);
            self.0.ask(&[b"SADD", key.as_bytes(), ID.as_bytes()]);
            self.0.ask(&[b"PEXPIRE", key.as_bytes(), b"60000"]);
        }
        Session(record)
    }

    /// Takes the next envelope of a mailbox, as its pump does.
    fn take(&mut self, mailbox: &str) -> Value {
        let key = Self::key(&format!("mailbox:{mailbox}"));
        eventually("an entry comes", || {
            let (id, envelope) = entries(&mut self.0, &key).into_iter().next()?;
            self.0.ask(&[b"XDEL", key.as_bytes(), id.as_bytes()]);
            Some(envelope)
        })
    }

    fn append(&mut self, mailbox: &str, envelope: &Value) {
        let key = Self::key(&format!("mailbox:{mailbox}"));
        let text = envelope.to_string();
        self.0.ask(&[
            b"XADD",
            key.as_bytes(),
            b"MAXLEN",
            b"~",
            b"1000",
            b"*",
            b"envelope",
            text.as_bytes(),
        ]);
        self.0.ask(&[b"PEXPIRE", key.as_bytes(), b"60000"]);
    }
}

fn stage() -> (Server, Node, Original) {
    let redis = Server::start(&[]);
    let node = node(redis.port, "node-a", 2);
    let original = Original(redis.admin());
    (redis, node, original)
}

#[test]
fn callers_of_ours_reach_clients_of_the_originals() {
    let (_redis, node, mut original) = stage();
    let session = original.bind();
    let view = node.by_source(SOURCE).json()["data"].take();
    assert_eq!(view["ownerAlive"], true);
    assert_eq!(view["session"]["metadata"], json!({"a": [], "b": 1.5}));
    assert_eq!(view["session"].get("now"), None);
    for round in 0..3 {
        // The same id each time: what is left of the last one is not heard again.
        let mut caller = node.open_stream(ID, &session.stream_body("r"));
        let request = original.take(ID);
        assert_eq!(request["requestId"], "r");
        let replies = format!("reply:{ID}:r");
        let part = session.envelope("stream", "r", chunk(json!(round)));
        original.append(&replies, &part);
        assert_eq!(next_line(&mut caller).unwrap()["payload"]["data"], round);
        original.append(&replies, &session.envelope("stream", "r", end()));
        original.append(
            &replies,
            &session.envelope("stream", "r", chunk(json!("late"))),
        );
        assert_eq!(lines(&mut caller).len(), 1);
    }
    assert_eq!(node.publish(ID, &session.request("plain")).status, 202);
    assert_eq!(original.take(ID)["requestId"], "plain");
    let patched = node.patch(ID, &json!({"from": "ours"}));
    assert_eq!(patched.status, 200);
    let key = Original::key(&format!("sessions:by-id:{ID}"));
    let raw = original.0.ask(&[b"GET", key.as_bytes()]);
    let record: Value = serde_json::from_slice(&raw).unwrap();
    assert_eq!(record["metadata"], json!({"from": "ours"}));
    assert_eq!(record["ownerNodeId"], "original");
    // Its source is held, by whichever node is asked.
    let mut client = node.client();
    client.send_bind(&crate::stage::token_of("tmb_o"), &json!({}));
    assert_eq!(client.error(Some("bind-1")), "session_already_bound");
    assert_eq!(node.delete(ID).status, 200);
    assert_eq!(keys_with(&mut original.0, &format!("by-id:{ID}")), [""; 0]);
    assert_eq!(keys_with(&mut original.0, "source-owner"), [""; 0]);
}

#[test]
fn callers_of_the_originals_reach_clients_of_ours() {
    let (_redis, node, mut original) = stage();
    let (mut client, session) = node.bound("tmb_1");
    let key = Original::key(&format!("sessions:by-id:{}", session.id()));
    let raw = original.0.ask(&[b"GET", key.as_bytes()]);
    let record: Value = serde_json::from_slice(&raw).unwrap();
    for (name, value) in session.0.as_object().unwrap() {
        if name != "now" {
            assert_eq!(&record[name], value, "{name}");
        }
    }
    let owner = Original::key("sessions:source-owner:debug:tmbId:tmb_1");
    let holder = original.0.ask(&[b"GET", owner.as_bytes()]);
    assert_eq!(holder, session.id().as_bytes());
    for round in 0..3 {
        let id = format!("r-{round}");
        original.append(session.id(), &session.request(&id));
        assert_eq!(client.envelope()["requestId"], id);
        let part = session.envelope("stream", &id, chunk(json!(round)));
        client.send_envelope(part);
        client.send_envelope(session.envelope("stream", &id, end()));
        let replies = format!("reply:{}:{id}", session.id());
        assert_eq!(original.take(&replies)["payload"]["data"], round);
        assert_eq!(original.take(&replies)["payload"]["event"], "end");
    }
    // The mailbox is not left to grow.
    eventually("what was taken is deleted", || {
        let key = Original::key(&format!("mailbox:{}", session.id()));
        (original.0.ask(&[b"XLEN", key.as_bytes()]) == b":0").then_some(())
    });
}

/// It rewrites the whole record, in its own order and without what it does not know.
#[test]
fn metadata_that_the_original_changes_are_taken_over_and_the_session_goes_on() {
    let redis = Server::start(&[]);
    let node = crate::cluster::node_with(redis.port, "node-a", 2, |settings| {
        settings.lease = std::time::Duration::from_secs(3);
    });
    let mut original = Original(redis.admin());
    let (mut client, session) = node.bound("tmb_1");
    let key = Original::key(&format!("sessions:by-id:{}", session.id()));
    let raw = original.0.ask(&[b"GET", key.as_bytes()]);
    let mut record: Value = serde_json::from_slice(&raw).unwrap();
    record["metadata"] = json!({"from": "original"});
    record.as_object_mut().unwrap().remove("inbox");
    original.set(session.id(), &record);
    eventually("its owner shows them", || {
        client.is_served();
        let view = node.status(session.id()).json()["data"].take();
        (view["session"]["metadata"] == json!({"from": "original"})).then_some(())
    });
    // It shows them before it has written them.
    let raw = eventually("it writes its own order", || {
        let raw = original.0.ask(&[b"GET", key.as_bytes()]);
        raw.starts_with(br#"{"expiresAt":"#).then_some(raw)
    });
    let again: Value = serde_json::from_slice(&raw).unwrap();
    assert_eq!(again["metadata"], json!({"from": "original"}));
    assert!(again["inbox"].is_string());
    client.is_served();
}

/// What it does at a DELETE: our owner finds it out at its next renewal.
#[test]
fn a_session_that_the_original_deletes_is_not_brought_back() {
    let redis = Server::start(&[]);
    let node = crate::cluster::node_with(redis.port, "node-a", 1, |settings| {
        settings.lease = std::time::Duration::from_secs(2);
    });
    let mut original = Original(redis.admin());
    let (mut client, session) = node.bound("tmb_1");
    for key in [
        format!("sessions:by-id:{}", session.id()),
        "sessions:source-owner:debug:tmbId:tmb_1".to_owned(),
    ] {
        original.0.ask(&[b"DEL", Original::key(&key).as_bytes()]);
    }
    let code = eventually("its client is told", || {
        client.send(json!({"type": "heartbeat", "ts": 1}));
        let message = client.message();
        (message["type"] == "error").then(|| message["code"].clone())
    });
    assert_eq!(code, "connection_gateway.session_owner_expired");
    eventually("no key is left", || {
        keys_with(&mut original.0, session.id())
            .is_empty()
            .then_some(())
    });
}

/// A source whose lease had run out is anybody's: a renewal that comes later finds it taken.
#[test]
fn a_source_that_the_original_has_taken_is_not_taken_back_by_a_renewal() {
    let redis = Server::start(&[]);
    let node = crate::cluster::node_with(redis.port, "node-a", 1, |settings| {
        settings.lease = std::time::Duration::from_secs(2);
    });
    let mut original = Original(redis.admin());
    let (mut client, _session) = node.bound("tmb_1");
    let owner = Original::key("sessions:source-owner:debug:tmbId:tmb_1");
    original
        .0
        .order(&[b"SET", owner.as_bytes(), ID.as_bytes(), b"PX", b"60000"]);
    let code = eventually("its client is told", || {
        client.send(json!({"type": "heartbeat", "ts": 1}));
        let message = client.message();
        (message["type"] == "error").then(|| message["code"].clone())
    });
    assert_eq!(code, "connection_gateway.session_owner_expired");
    client.ends_with(Some(1008));
    eventually("its other claims are given back", || {
        let left = keys_with(&mut original.0, "by-subject:tmb_1");
        left.is_empty().then_some(())
    });
    assert_eq!(original.0.ask(&[b"GET", owner.as_bytes()]), ID.as_bytes());
}
