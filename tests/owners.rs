//! A session always reaches its owner (reliability.md 8, promise 5): whatever the number of shards,
//! whichever connection a request comes on, while sessions and connections come and go.
//!
//! Every live session counts, and its count is known here: an answer of any other session's, or of
//! none, shows. At the end each shard has exactly the sessions that are its own by their ids.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "support/support.rs"]
mod support;

use std::{collections::VecDeque, net::SocketAddr, thread};

use loadgen::backend::{Backend, BackendKind, BackendOptions};
use shards::slots::SlotTable;
use support::{Ask, Connection, Gateway, Plan, Response};

const SHARDS_MAX: usize = 8;
const THREADS: usize = 4;
/// Of one thread.
const SESSIONS_MAX: usize = 24;
const CONNECTIONS: usize = 6;
/// Requests sent on a connection before the first answer is read.
const PIPELINED_MAX: usize = 8;
const TARGET: &str = "/servers/main/mcp";

/// Requests of the whole run; the long form is the promise's own figure.
fn request_count() -> usize {
    match std::env::var_os("SHARDGATE_TEST_LONG") {
        Some(_) => 10_000_000,
        None => 100_000,
    }
}

/// A session of one client: nobody else uses it.
struct Live {
    id: String,
    count: u64,
}

/// xorshift64*: the run is the same each time as far as the clients decide it.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let value = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(value).unwrap() % bound
    }
}

/// A client with several connections, over any of which it uses any of its sessions.
struct Client {
    address: SocketAddr,
    connections: Vec<Connection>,
    sessions: Vec<Live>,
    ended: VecDeque<String>,
    random: Random,
    request_count: u64,
}

fn post(session: &str, body: &str) -> Ask {
    Ask::post(TARGET, body).header("mcp-session-id", session)
}

impl Client {
    fn new(address: SocketAddr, seed: u64) -> Self {
        Self {
            address,
            connections: (0..CONNECTIONS)
                .map(|_| Connection::open(address))
                .collect(),
            sessions: Vec::new(),
            ended: VecDeque::new(),
            random: Random(seed),
            request_count: 0,
        }
    }

    /// Sends a request on some connection and reads its answer.
    fn ask(&mut self, ask: &Ask) -> Response {
        self.request_count += 1;
        let index = self.random.below(CONNECTIONS);
        self.connections[index].ask(ask)
    }

    fn open(&mut self) {
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"owners","version":"1"}}}"#;
        let response = self.ask(&Ask::post(TARGET, body));
        assert_eq!(response.status, 200, "{}", response.text());
        let id = response.header("mcp-session-id").unwrap().to_owned();
        self.sessions.push(Live { id, count: 0 });
    }

    fn end(&mut self) {
        let index = self.random.below(self.sessions.len());
        let session = self.sessions.swap_remove(index);
        let ask = Ask::new("DELETE", TARGET).header("mcp-session-id", &session.id);
        assert_eq!(self.ask(&ask).status, 200, "a live session can be ended");
        self.ended.push_back(session.id);
        if self.ended.len() > SESSIONS_MAX {
            self.ended.pop_front();
        }
    }

    /// An ended session is unknown on whatever connection it is named.
    fn miss(&mut self) {
        let Some(id) = self.ended.back().cloned() else {
            return;
        };
        let ask = post(&id, r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#);
        assert_eq!(self.ask(&ask).status, 404);
    }

    /// Several requests of any sessions, one after the other without waiting for an answer.
    fn use_some(&mut self) {
        let connection = self.random.below(CONNECTIONS);
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for id in 0..=self.random.below(PIPELINED_MAX) {
            let session = self.random.below(self.sessions.len());
            let session = &mut self.sessions[session];
            let body = if self.random.below(4) == 0 {
                session.count += 1;
                expected.push(Some(session.count));
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"increment"}}}}"#
                )
            } else {
                expected.push(None);
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
            };
            bytes.extend_from_slice(&post(&session.id, &body).bytes());
        }
        self.request_count += expected.len() as u64;
        let connection = &mut self.connections[connection];
        connection.send(bytes);
        for (id, count) in expected.into_iter().enumerate() {
            let response = connection.read_response();
            assert_eq!(response.status, 200, "{}", response.text());
            let message = response.message();
            assert_eq!(message["id"], id);
            match count {
                Some(count) => {
                    let text = message["result"]["content"][0]["text"].as_str().unwrap();
                    assert_eq!(text, count.to_string(), "the session's own next number");
                }
                None => assert_eq!(message["result"], serde_json::json!({})),
            }
        }
    }

    /// Works until it has made `count` requests; the sessions left open.
    fn run(mut self, count: u64) -> Vec<Live> {
        while self.request_count < count {
            match self.random.below(100) {
                _ if self.sessions.is_empty() => self.open(),
                0..5 if self.sessions.len() < SESSIONS_MAX => self.open(),
                5..8 => self.end(),
                8 => self.miss(),
                9..13 => {
                    let index = self.random.below(CONNECTIONS);
                    self.connections[index] = Connection::open(self.address);
                }
                _ => self.use_some(),
            }
        }
        self.sessions
    }
}

/// Each shard has as many sessions as there are live ids that it owns.
fn check_owners(gateway: &Gateway, shard_count: usize, live: &[Live]) {
    let slots = SlotTable::new(u16::try_from(shard_count).unwrap());
    let mut expected = vec![0; shard_count];
    for session in live {
        expected[usize::from(slots.owner_of(session.id.as_bytes()))] += 1;
    }
    let snapshots = gateway.inner().view.snapshots();
    let found: Vec<usize> = snapshots.iter().map(|shard| shard.sessions).collect();
    assert_eq!(found, expected);
}

fn run_with(shard_count: usize, requests: usize) {
    let backend = Backend::start(BackendOptions {
        kind: BackendKind::Counter,
        ..Default::default()
    })
    .unwrap();
    let gateway = Plan::of(&[("counter", &backend.url())])
        .shards(shard_count)
        .start();
    let share = (requests / THREADS) as u64;
    let clients: Vec<_> = (1..=THREADS as u64)
        .map(|thread| {
            let client = Client::new(gateway.address, shard_count as u64 * 1_000 + thread);
            thread::spawn(move || client.run(share))
        })
        .collect();
    let live: Vec<Live> = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap())
        .collect();
    assert!(!live.is_empty());
    check_owners(&gateway, shard_count, &live);
    if shard_count > 1 {
        for name in ["shardgate_handed_over_total", "shardgate_forwarded_total"] {
            assert!(gateway.metric(name) > 0, "{name} with {shard_count} shards");
        }
    }
    for name in ["shardgate_panics_total", "shardgate_calls_failed_total"] {
        assert_eq!(gateway.metric(name), 0, "{name} with {shard_count} shards");
    }
    assert!(gateway.stop(), "the gateway drained cleanly");
    assert_eq!(backend.stop(), 0);
}

#[test]
fn every_request_reaches_the_owner_of_its_session() {
    for shard_count in 1..=SHARDS_MAX {
        run_with(shard_count, request_count() / SHARDS_MAX);
    }
}
