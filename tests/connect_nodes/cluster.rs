//! A Redis of the test's own and nodes that share it.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use shardgate::settings::{ConnectionGateway, Redis, RedisConnection};

use crate::{
    process::{Folder, Process},
    redis::{Admin, Server, free_port},
    stage::Node,
};

/// Shards of nodes: a session's shard here is seldom its caller's shard there.
pub(crate) const SHARDS: [usize; 2] = [1, 3];
/// The lease of sessions of a [`process`].
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// What all keys begin with.
pub(crate) const PREFIX: &str = "fastgpt-plugin:connection-gateway:";

/// A node with this name whose Redis is on `port`.
pub(crate) fn node(port: u16, name: &str, shards: usize) -> Node {
    node_with(port, name, shards, |_| {})
}

/// The same with other settings.
pub(crate) fn node_with(
    port: u16,
    name: &str,
    shards: usize,
    adjust: impl FnOnce(&mut ConnectionGateway),
) -> Node {
    let node = Node::with(shards, |settings| {
        settings.node_id = Some(name.to_owned());
        settings.redis = Some(at(port));
        adjust(settings);
    });
    crate::support::eventually("the node reaches Redis", || node.is_ready().then_some(()));
    node
}

fn at(port: u16) -> Redis {
    Redis {
        host: "127.0.0.1".to_owned(),
        port,
        connection: RedisConnection::PlainText,
        username: None,
        password: None,
        database: 0,
    }
}

/// A node that is a process, with more variables.
pub(crate) fn process(
    home: &Folder,
    redis_url: &str,
    name: &str,
    more: &[(&str, &str)],
) -> (Process, Node) {
    let (http, websocket) = (free_port(), free_port());
    let lease = LEASE.as_millis().to_string();
    let ports = [http.to_string(), websocket.to_string()];
    let mut variables = vec![
        ("REDIS_URL", redis_url),
        ("CONNECTION_GATEWAY_HOST", "127.0.0.1"),
        ("CONNECTION_GATEWAY_PORT", &ports[0]),
        ("CONNECTION_GATEWAY_WS_PORT", &ports[1]),
        ("CONNECTION_GATEWAY_NODE_ID", name),
        ("CONNECTION_GATEWAY_OWNER_LEASE_TTL_MS", &lease),
        ("JWT_SECRET", "secret"),
        ("AUTH_TOKEN", "token"),
    ];
    variables.extend(more);
    let arguments = [
        "connect",
        "--shards",
        "2",
        "--no-pin",
        "--admin-address",
        "none",
    ];
    let process = Process::start_with(home, &variables, &arguments);
    process.printed("connection gateway on ws://");
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    (process, Node::at(at(http), at(websocket)))
}

/// A Redis and two nodes, `node-a` and `node-b`.
pub(crate) struct Two {
    pub(crate) redis: Server,
    pub(crate) a: Node,
    pub(crate) b: Node,
}

impl Two {
    pub(crate) fn start(shards: usize) -> Self {
        Self::with(shards, |_| {})
    }

    pub(crate) fn with(shards: usize, adjust: impl Fn(&mut ConnectionGateway)) -> Self {
        let redis = Server::start(&[]);
        Self {
            a: node_with(redis.port, "node-a", shards, &adjust),
            // Another number of shards, so the same session is another shard's.
            b: node_with(redis.port, "node-b", shards + 1, &adjust),
            redis,
        }
    }
}

/// The names of keys with `part` in them.
pub(crate) fn keys_with(admin: &mut Admin, part: &str) -> Vec<String> {
    let script = "return cjson.encode(redis.call('KEYS', ARGV[1]))";
    let pattern = format!("*{part}*");
    let found = admin.ask(&[b"EVAL", script.as_bytes(), b"0", pattern.as_bytes()]);
    // No array is an object to this encoder.
    match serde_json::from_slice(&found).unwrap() {
        Value::Array(keys) => keys
            .iter()
            .map(|key| key.as_str().unwrap().to_owned())
            .collect(),
        _ => Vec::new(),
    }
}

/// The `envelope` fields of a stream's entries, and their ids.
pub(crate) fn entries(admin: &mut Admin, key: &str) -> Vec<(String, Value)> {
    let script = "return cjson.encode(redis.call('XRANGE', KEYS[1], '-', '+'))";
    let found = admin.ask(&[b"EVAL", script.as_bytes(), b"1", key.as_bytes()]);
    let found: Value = serde_json::from_slice(&found).unwrap();
    let entry = |entry: &Value| {
        let fields = entry[1].as_array().unwrap();
        let at = fields.iter().position(|field| field == "envelope").unwrap();
        let envelope = serde_json::from_str(fields[at + 1].as_str().unwrap()).unwrap();
        (entry[0].as_str().unwrap().to_owned(), envelope)
    };
    found
        .as_array()
        .map_or_else(Vec::new, |found| found.iter().map(entry).collect())
}
