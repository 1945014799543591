//! What an exchange costs Redis (contract D25), counted by Redis itself.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::json;

use crate::{
    cluster::Two,
    redis::Admin,
    stage::{Client, Node, Session, chunk, end, lines},
};

/// Exchanges that are counted.
const EXCHANGES: usize = 100;
/// Commands that have nothing to do with exchanges in that time: leases, names, inboxes.
const BACKGROUND: usize = 12;

/// Hears of every command from now on.
struct Monitor(BufReader<TcpStream>);

impl Monitor {
    fn start(port: u16) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(crate::redis::PATIENCE))
            .unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "+OK\r\n");
        Self(reader)
    }

    /// Waits for a command with all of this in it.
    fn await_command(&mut self, parts: &[&str]) {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "no {parts:?}");
            if parts.iter().all(|part| line.contains(part)) {
                return;
            }
        }
    }

    /// Commands of clients so far, without what scripts do.
    fn commands(mut self, admin: &mut Admin) -> Vec<String> {
        admin.ask(&[b"ECHO", b"the end of it"]);
        let mut commands = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0);
            if line.contains("the end of it") {
                return commands;
            }
            let is_of_a_script = line.contains(" lua] ");
            let command = line.split('"').nth(1).unwrap_or_default().to_owned();
            if !is_of_a_script && command != "PING" {
                commands.push(command);
            }
        }
    }
}

/// One exchange whose client answers all at once.
fn exchange(node: &Node, client: &mut Client, session: &Session, id: &str) {
    let mut caller = node.open_stream(session.id(), &session.stream_body(id));
    client.envelope();
    let answers = [
        ("response", json!({"kind": "plugin-debug.accepted"})),
        ("stream", chunk(json!(id))),
        ("stream", end()),
    ];
    let mut bytes = Vec::new();
    for (kind, payload) in answers {
        let message = json!({
            "protocol": "connection-gateway.ws.v1", "type": "envelope",
            "envelope": session.envelope(kind, id, payload),
        });
        let key = shardgate::websocket::Masking::Key([1, 2, 3, 4]);
        let opcode = shardgate::websocket::frame::TEXT;
        shardgate::websocket::write_frame(&mut bytes, opcode, message.to_string().as_bytes(), key);
    }
    client.connection.send(bytes);
    assert_eq!(lines(&mut caller).len(), 3);
}

/// What Redis has counted so far.
fn statistic(admin: &mut Admin, name: &str) -> u64 {
    let info = String::from_utf8(admin.ask(&[b"INFO", b"stats"])).unwrap();
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap().trim().parse().unwrap()
}

fn connections(admin: &mut Admin) -> u64 {
    statistic(admin, "total_connections_received:")
}

#[test]
fn an_exchange_over_two_nodes_is_four_commands_and_no_connection() {
    let two = Two::start(1);
    let (mut client, session) = two.a.bound("tmb_1");
    let mut admin = two.redis.admin();
    // Scripts are sent once, and the session is read once.
    exchange(&two.b, &mut client, &session, "first");
    let monitor = Monitor::start(two.redis.port);
    let before = connections(&mut admin);
    for number in 0..EXCHANGES {
        exchange(&two.b, &mut client, &session, &format!("r-{number}"));
    }
    assert_eq!(connections(&mut admin), before);
    let commands = monitor.commands(&mut admin);
    let count = commands.len();
    println!("{EXCHANGES} exchanges over two nodes: {count} commands");
    assert!(count <= 4 * EXCHANGES + BACKGROUND, "{count}: {commands:?}");
}

#[test]
fn an_exchange_on_one_node_asks_redis_nothing() {
    let two = Two::start(2);
    let (mut client, session) = two.a.bound("tmb_1");
    let mut admin = two.redis.admin();
    let monitor = Monitor::start(two.redis.port);
    for number in 0..EXCHANGES {
        exchange(&two.a, &mut client, &session, &format!("r-{number}"));
    }
    let commands = monitor.commands(&mut admin);
    println!(
        "{EXCHANGES} exchanges on one node: {} commands",
        commands.len()
    );
    assert!(commands.len() <= BACKGROUND, "{commands:?}");
}

/// D25: however much a client says, one write a third of the lease.
#[test]
fn a_renewal_is_seldom() {
    let two = Two::start(1);
    let (mut client, _session) = two.a.bound("tmb_1");
    let mut admin = two.redis.admin();
    let monitor = Monitor::start(two.redis.port);
    for _ in 0..2_000 {
        client.is_served();
    }
    let commands = monitor.commands(&mut admin);
    assert!(commands.len() <= BACKGROUND, "{commands:?}");
}

/// D26: it does not carry the metadata.
#[test]
fn a_renewal_is_small_whatever_the_metadata_weigh() {
    const RENEWALS: usize = 3;
    let two = Two::with(1, |settings| settings.lease = Duration::from_millis(1_500));
    let mut client = two.a.client();
    let metadata = json!({"large": "x".repeat(300_000)});
    let session = client.bind(&crate::stage::token_of("tmb_1"), &metadata);
    let mut admin = two.redis.admin();
    let mut monitor = Monitor::start(two.redis.port);
    let before = statistic(&mut admin, "total_net_input_bytes:");
    for _ in 0..RENEWALS {
        client.is_served();
        // Part of the script, and of no other that runs now.
        monitor.await_command(&["\"PEXPIRE\"", "by-id:", session.id()]);
    }
    let bytes = statistic(&mut admin, "total_net_input_bytes:") - before;
    println!("{RENEWALS} renewals: {bytes} bytes");
    assert!(bytes < 30_000, "{bytes}");
}
