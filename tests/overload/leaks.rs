//! Promise 14: no leaks: after all that comes and goes, descriptors, sessions and memory are where
//! they were.

use crate::{
    house::House,
    is_long,
    support::{Backend, Connection, McpClient, eventually},
    text_of,
};

/// What must come back to where it was.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    descriptors: usize,
    connections: u64,
    sessions: u64,
    backend_sessions: usize,
}

fn counts(house: &House) -> Counts {
    Counts {
        descriptors: house.descriptor_count(),
        connections: house.metric("shardgate_connections"),
        sessions: house.metric("shardgate_sessions"),
        backend_sessions: house.backend.session_count(),
    }
}

/// Connections that come and go in every way a client has.
fn connections_come_and_go(house: &House, client: &McpClient, count: usize) {
    let request = client
        .request(crate::support::call_body("1", "one", "{}"))
        .bytes();
    for number in 0..count {
        let mut connection = Connection::open(house.address);
        match number % 6 {
            0 => {}
            1 => connection.send(&request[..number % 97]),
            2 => connection.send(&request[..request.len() - 1]),
            3 => {
                connection.send(&request);
                assert_eq!(text_of(&connection.read_response()), "a one {}");
            }
            // Leaves before its answer.
            4 => connection.send(&request),
            _ => {
                connection.send(&request);
                connection.reset();
            }
        }
    }
}

/// Sessions that are opened, used and ended; each third one is left for its time limit, with its
/// stream broken off.
fn sessions_come_and_go(house: &House, count: usize) {
    for number in 0..count {
        let mut client = house.open();
        let mut stream = client.stream();
        assert!(stream.next_block().is_some());
        assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
        if number % 3 > 0 {
            assert_eq!(client.delete().status, 200);
            assert_eq!(stream.next_event(), None);
        }
    }
}

fn come_and_go(house: &House, connections: usize, sessions: usize) {
    let mut client = house.open();
    connections_come_and_go(house, &client, connections);
    assert_eq!(client.delete().status, 200);
    sessions_come_and_go(house, sessions);
}

#[test]
fn nothing_is_left_of_what_came_and_went() {
    let (connections, sessions) = if is_long() {
        (1_000_000, 100_000)
    } else {
        (1_200, 150)
    };
    let backend = Backend::start("a", &["one"]);
    // Idle backend connections are kept on purpose; one a shard is the same number every time.
    let house = House::start(
        backend,
        None,
        &[
            "--session-idle-timeout",
            "4s",
            "--sessions-max",
            "200000",
            "--sessions-per-principal-max",
            "200000",
            "--upstream-idle-per-backend-max",
            "1",
        ],
    );
    come_and_go(&house, 400, 60);
    let settled = |house: &House| {
        let counts = counts(house);
        let is_empty = counts.connections == 0 && counts.sessions == 0;
        (is_empty && counts.backend_sessions == 0).then_some(counts.descriptors)
    };
    let before = eventually("the warm-up is over", || settled(&house));
    let before_kib = house.resident_kib();
    come_and_go(&house, connections, sessions);
    eventually("everything has gone", || settled(&house));
    eventually("descriptors are where they were", || {
        (house.descriptor_count() <= before + 2).then_some(())
    });
    let grown_kib = house.resident_kib().saturating_sub(before_kib);
    println!("{connections} connections, {sessions} sessions: {grown_kib} KiB more");
    assert!(grown_kib <= 8 * 1024, "{grown_kib} KiB");
    assert_eq!(house.metric("shardgate_panics_total"), 0);
    assert!(house.metric("shardgate_sessions_expired_total") >= sessions as u64 / 3);
}
