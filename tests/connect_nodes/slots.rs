//! D27: names that a Redis Cluster can have.

use serde_json::json;

use crate::{
    cluster::{keys_with, node_with},
    redis::Server,
    stage::{chunk, end, lines},
    support::eventually,
};

/// A cluster of one node, which has every slot and refuses a script over two of them.
fn redis_cluster() -> Server {
    let redis = Server::start(&["--cluster-enabled", "yes"]);
    let mut admin = redis.admin();
    admin.ask(&[b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"16383"]);
    eventually("the cluster serves", || {
        let info = admin.ask(&[b"CLUSTER", b"INFO"]);
        String::from_utf8_lossy(&info)
            .contains("cluster_state:ok")
            .then_some(())
    });
    redis
}

#[test]
fn with_a_hash_tag_nodes_share_a_redis_cluster() {
    let redis = redis_cluster();
    let [a, b] = ["node-a", "node-b"]
        .map(|name| node_with(redis.port, name, 2, |settings| settings.hash_tag = true));
    let (mut client, session) = a.bound("tmb_1");
    let mut caller = b.open_stream(session.id(), &session.stream_body("r"));
    client.envelope();
    client.send_envelope(session.envelope("stream", "r", chunk(json!(1))));
    client.send_envelope(session.envelope("stream", "r", end()));
    let lines = lines(&mut caller);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(b.by_source("debug:tmbId:tmb_1").status, 200);
    let mut admin = redis.admin();
    let all = keys_with(&mut admin, "");
    assert!(!all.is_empty());
    for key in all {
        assert!(
            key.starts_with("{fastgpt-plugin:connection-gateway}:"),
            "{key}"
        );
    }
    assert_eq!(b.delete(session.id()).status, 200);
    client.ends_with(None);
    assert_eq!(keys_with(&mut admin, session.id()), [""; 0]);
}

/// The names of the original: said clearly, before the client is bound to nothing.
#[test]
fn without_one_a_bind_is_refused_with_an_error() {
    let redis = redis_cluster();
    let node = node_with(redis.port, "node-a", 1, |_| {});
    let mut client = node.client();
    client.send_bind(&crate::stage::token_of("tmb_1"), &json!({}));
    assert_eq!(client.error(Some("bind-1")), "bind_failed");
}
