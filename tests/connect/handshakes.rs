//! What is answered on the WebSocket port before a connection is one: the contract's table (2.1),
//! and the two requests that ended the original's process (D1, D2).

use std::{fs, net::SocketAddr};

use crate::{
    command::{free_ports, variables},
    process::{Folder, Process},
    stage::{Client, Node, PATH},
    support::{Connection, eventually},
};

const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n";
const BAD: &str = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
const PLAIN: &str = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=UTF-8\r\n\
    Content-Length: 9\r\nConnection: close\r\n\r\nNot Found";
const OPENED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// The whole answer to these bytes, up to the end of the connection or of an opening answer.
fn answer(node: &Node, request: &str) -> String {
    let mut connection = Connection::open(node.websocket);
    connection.send(request);
    while connection.buffer != OPENED.as_bytes() && connection.fill() {}
    String::from_utf8(connection.buffer.clone()).unwrap()
}

fn upgrade(target: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

#[test]
fn paths_are_resolved_as_the_contract_says() {
    let node = Node::start(2);
    for (target, wanted) in [
        (PATH.to_owned(), OPENED),
        (format!("{PATH}?x=1&y"), OPENED),
        (format!("/x/../.{PATH}"), OPENED),
        (format!("http://a{PATH}"), OPENED),
        (format!("{PATH}/"), NOT_FOUND),
        ("/other".to_owned(), NOT_FOUND),
        ("/connection-gateway/%76%31".to_owned(), NOT_FOUND),
    ] {
        assert_eq!(answer(&node, &upgrade(&target)), wanted, "{target}");
    }
}

#[test]
fn what_asks_for_no_websocket_or_not_rightly_is_refused() {
    let node = Node::start(1);
    let good = upgrade(PATH);
    for (from, to, wanted) in [
        ("Upgrade: websocket", "upgrade: WebSocket", OPENED),
        (
            "Connection: Upgrade",
            "connection: keep-alive, upgrade",
            OPENED,
        ),
        (
            "Connection:",
            "Origin: http://evil.example\r\nSec-WebSocket-Protocol: x\r\n\
             Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nConnection:",
            OPENED,
        ),
        ("Upgrade: websocket", "Upgrade: h2c, websocket", BAD),
        ("Version: 13", "Version: 8", BAD),
        ("Sec-WebSocket-Version: 13\r\n", "", BAD),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", BAD),
        ("Connection: Upgrade\r\n", "", PLAIN),
        ("Upgrade: websocket\r\nConnection: Upgrade\r\n", "", PLAIN),
        // D21: where the original looked away.
        ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=", BAD),
        ("GET ", "PUT ", BAD),
        ("HTTP/1.1", "HTTP/1.0", BAD),
        ("Host: a", "Host: a\r\nContent-Length: 1", BAD),
    ] {
        assert_eq!(answer(&node, &good.replacen(from, to, 1)), wanted, "{to}");
    }
    assert_eq!(answer(&node, "nonsense\r\n\r\n"), BAD);
}

/// D1.
#[test]
fn a_path_of_two_slashes_is_a_bad_request_and_the_process_serves_the_next_one() {
    let node = Node::start(1);
    for _ in 0..3 {
        assert_eq!(answer(&node, &upgrade("//")), BAD);
    }
    assert_eq!(answer(&node, &upgrade(PATH)), OPENED);
    assert_eq!(node.get("/health").status, 200);
}

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n\
    Content-Length: 0\r\n\r\n";

/// D2.
#[test]
fn a_connection_over_the_limit_is_refused_at_the_handshake_and_the_others_go_on() {
    let node = Node::with(2, |settings| settings.connections_max = 2);
    let (mut bound, _) = node.bound("tmb_1");
    let mut other = node.client();
    other.is_served();
    for _ in 0..20 {
        assert_eq!(answer(&node, &upgrade(PATH)), BUSY);
    }
    bound.is_served();
    other.is_served();
    assert_eq!(node.metrics()["activeConnections"], 2);
    drop(other);
    let mut next = eventually("there is room again", || {
        let mut connection = Connection::open(node.websocket);
        connection.send(upgrade(PATH));
        (connection.read_head().status == 101).then_some(connection)
    });
    assert!(next.try_send([0x88, 0x80, 0, 0, 0, 0]));
    bound.is_served();
}

/// Open descriptors of a process.
fn descriptor_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Resident memory of a process, KiB.
fn resident_kib(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// D2, from outside: 300 attempts, 10,000 in the long form.
#[test]
fn refused_attempts_leave_no_descriptor_and_no_memory_behind() {
    let is_long = std::env::var("SHARDGATE_TEST_LONG").is_ok();
    let attempts = if is_long { 10_000 } else { 300 };
    let home = Folder::new();
    let ports = free_ports();
    let mut variables = variables(&ports).to_vec();
    variables.push(("CONNECTION_GATEWAY_MAX_CONNECTIONS", "2"));
    let arguments = [
        "connect",
        "--admin-address",
        "none",
        "--shards",
        "2",
        "--no-pin",
    ];
    let process = Process::start_with(&home, &variables, &arguments);
    process.printed("connection gateway on ws://");
    let address = SocketAddr::from(([127, 0, 0, 1], ports[1].parse().unwrap()));
    let mut held = [Client::open(address), Client::open(address)];
    for client in &mut held {
        client.is_served();
    }
    let refuse = |count: usize| {
        for _ in 0..count {
            let mut connection = Connection::open(address);
            connection.send(upgrade(PATH));
            while connection.fill() {}
            assert_eq!(connection.buffer, BUSY.as_bytes());
        }
    };
    // What is made once is made.
    refuse(50);
    let before = descriptor_count(process.pid());
    let before_kib = resident_kib(process.pid());
    refuse(attempts);
    eventually("the descriptors are back", || {
        (descriptor_count(process.pid()) <= before).then_some(())
    });
    let more_kib = resident_kib(process.pid()).saturating_sub(before_kib);
    assert!(more_kib <= 8 << 10, "{more_kib} KiB more");
    for client in &mut held {
        client.is_served();
    }
    println!("{attempts} refused, {more_kib} KiB more");
}
