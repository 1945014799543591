//! TLS connections of sessions that live on another shard: the session moves with its socket, in
//! the middle of whatever is under way, and what cannot move is forwarded.

use std::{io::Write, sync::Arc, time::Duration};

use rustls::ClientConfig;
use shardgate::settings::IoDriver;
use shards::slots::SlotTable;

use crate::{
    Trust,
    certificates::VERSIONS,
    open_session,
    support::{Backend, Connection, EventStream, Gateway, McpClient, Plan, call_body},
    text_of,
    tls::{Terminator, TlsClient},
};

/// Connections until one of them must have met a shard that does not own the session: by chance
/// none of so many does once in 2^200 runs.
const ATTEMPTS: usize = 200;

/// Everything in TLS, on `shards` shards.
struct Stage {
    gateway: Gateway,
    backend: Backend,
    _terminator: Terminator,
    _trust: Trust,
    config: Arc<ClientConfig>,
    /// Whether keys can be changed.
    is_newest: bool,
}

/// Runs `test` with every number of shards, driver and version that is to work. Where io_uring is
/// forbidden `Auto` is epoll once more.
fn on_each_stage(test: impl Fn(&Stage)) {
    for shards in [2, 4] {
        for driver in [IoDriver::Auto, IoDriver::Epoll] {
            for version in VERSIONS {
                let trust = Trust::new();
                let backend = Backend::start("b", &["echo"]);
                let server = trust.identity.server(&[version]);
                let terminator = Terminator::start(server, &backend.url());
                let plan = Plan::of(&[("a", &terminator.url())]).shards(shards);
                let plan = trust.listening(trust.toward_backends(plan));
                let gateway = plan
                    .settings(move |settings| {
                        settings.shards.driver = driver;
                        settings.timeouts.heartbeat_interval = Duration::from_millis(50);
                    })
                    .start();
                let config = Arc::new(trust.authority.client(&[version]));
                test(&Stage {
                    gateway,
                    backend,
                    _terminator: terminator,
                    _trust: trust,
                    config,
                    is_newest: version.version == rustls::ProtocolVersion::TLSv1_3,
                });
            }
        }
    }
}

impl Stage {
    fn moved(&self) -> u64 {
        self.gateway.metric("shardgate_handed_over_total")
    }

    fn connect(&self) -> TlsClient {
        TlsClient::new(&self.config, self.gateway.inner().tls_address.unwrap())
    }

    fn session(&self) -> McpClient {
        open_session(&self.gateway, &self.config)
    }

    /// Does the same on one connection after the other until one was moved; gives that one.
    fn until_moved<T>(&self, mut attempt: impl FnMut(TlsClient) -> T) -> T {
        for _ in 0..ATTEMPTS {
            let before = self.moved();
            let outcome = attempt(self.connect());
            if self.moved() > before {
                return outcome;
            }
        }
        panic!("no connection was moved");
    }
}

/// Records of `bytes`, unsent.
fn seal(client: &mut TlsClient, bytes: &[u8]) -> Vec<u8> {
    let tls = &mut client.0;
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).unwrap();
    }
    tls.conn.writer().write_all(bytes).unwrap();
    let mut records = Vec::new();
    while tls.conn.wants_write() {
        tls.conn.write_tls(&mut records).unwrap();
    }
    records
}

#[test]
fn a_session_goes_on_over_a_connection_that_was_moved_in_the_middle() {
    on_each_stage(|stage| {
        let mut first = stage.session();
        let call = |id: &str| {
            first
                .request(call_body(id, "echo", &format!("[{id}]")))
                .bytes()
        };
        let both = [call("1"), call("2")].concat();
        let third = call("3");
        let mut connection = stage.until_moved(|mut client| {
            // Two requests in a record, then a part of the record of the third: what is read of it
            // moves inside the session.
            let mut records = seal(&mut client, &both);
            records.extend(seal(&mut client, &third));
            let late = records.split_off(records.len() - 30);
            let mut socket = client.0.sock.try_clone().unwrap();
            socket.write_all(&records).unwrap();
            let mut connection = Connection::over(client);
            for id in [1, 2] {
                let response = connection.read_response();
                assert_eq!(response.message()["id"], id);
                assert_eq!(text_of(&response), format!("b echo [{id}]"));
            }
            socket.write_all(&late).unwrap();
            let response = connection.read_response();
            assert_eq!(text_of(&response), "b echo [3]");
            connection
        });
        // The same connection from here on.
        let before = stage.moved();
        for size in [1, 5_000, 200_000] {
            if stage.is_newest {
                connection.tls().refresh_traffic_keys().unwrap();
            }
            let arguments = format!(r#"["{}"]"#, "x".repeat(size));
            let ask = first.request(call_body("4", "echo", &arguments));
            let text = text_of(&connection.ask(&ask));
            assert!(text == format!("b echo {arguments}"), "{size}");
        }
        assert_eq!(stage.moved(), before, "it moves once");
        // The first one still serves too.
        assert_eq!(text_of(&first.call("5", "echo", "[5]")), "b echo [5]");
        assert_eq!(stage.backend.session_count(), 1);
        assert_eq!(stage.gateway.metric("shardgate_panics_total"), 0);
    });
}

#[test]
fn a_stream_opens_on_a_connection_that_moves_with_its_request() {
    on_each_stage(|stage| {
        let open = || {
            let client = stage.session();
            let before = stage.moved();
            let mut connection = Connection::over(stage.connect());
            connection.send(client.bare("GET").bytes());
            let head = connection.read_head();
            assert_eq!(head.status, 200);
            let stream = EventStream::new(connection, head);
            (stage.moved() > before).then_some((client, stream))
        };
        let found = (0..ATTEMPTS).find_map(|_| open());
        let (mut client, mut stream) = found.expect("a connection that was moved");
        // Heartbeats; before them the event a client may go on from.
        let blocks = std::iter::from_fn(|| stream.next_block());
        let beats = blocks.filter(|block| block.starts_with(':')).take(3);
        assert_eq!(beats.count(), 3);
        assert_eq!(client.delete().status, 200);
        assert_eq!(stream.next_event(), None, "it ends with its session");
    });
}

#[test]
fn two_sessions_of_two_shards_share_a_connection() {
    on_each_stage(|stage| {
        let shards = stage.gateway.inner().shard_count;
        let slots = SlotTable::new(shards);
        let owner = |client: &McpClient| slots.owner_of(client.session.as_bytes());
        let a = stage.session();
        // New sessions go where there are fewer.
        let b = (0..ATTEMPTS)
            .map(|_| stage.session())
            .find(|b| owner(b) != owner(&a))
            .expect("a session elsewhere");
        let before = stage.gateway.metric("shardgate_forwarded_total");
        let mut connection = Connection::over(stage.connect());
        // More than a ring holds at once.
        for size in [1, 20_000, 300_000] {
            let arguments = format!(r#"["{}"]"#, "x".repeat(size));
            for client in [&a, &b] {
                let ask = client.request(call_body("1", "echo", &arguments));
                let text = text_of(&connection.ask(&ask));
                assert!(text == format!("b echo {arguments}"), "{size}");
            }
        }
        // And without waiting for one another.
        let mut bytes = Vec::new();
        for id in 0..10 {
            let client = if id % 2 == 0 { &a } else { &b };
            let body = call_body(&id.to_string(), "echo", &format!("[{id}]"));
            bytes.extend(client.request(body).bytes());
        }
        connection.send(bytes);
        for id in 0..10 {
            let response = connection.read_response();
            assert_eq!(response.message()["id"], id);
            assert_eq!(text_of(&response), format!("b echo [{id}]"));
        }
        assert!(stage.gateway.metric("shardgate_forwarded_total") > before);
    });
}
