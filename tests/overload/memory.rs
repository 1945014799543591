//! Promise 13: memory is bounded by the settings: connections times what each may hold.

use crate::{
    house::House,
    is_long,
    support::{Ask, Backend, Connection, eventually},
    text_of,
};

const BODY_BYTES: usize = 1 << 20;
/// What a connection costs besides, in KiB: room for a read, and what allocation adds.
const KIB_EACH: usize = 192;

#[test]
fn as_many_and_as_large_requests_as_may_be_stay_within_the_bound() {
    let connections: usize = if is_long() { 1_000 } else { 48 };
    let backend = Backend::start("a", &["one"]);
    let connections_max = connections.to_string();
    let house = House::start(
        backend,
        None,
        &[
            "--shards",
            "1",
            "--connections-max",
            &connections_max,
            "--body-bytes-max",
            "1MiB",
            "--body-timeout",
            "60s",
        ],
    );
    let mut good = house.open();
    assert_eq!(text_of(&good.call("1", "one", "{}")), "a one {}");
    let before_kib = house.resident_kib();
    // Large requests that lack their last byte.
    let filler = " ".repeat(BODY_BYTES - 200);
    let body = crate::support::call_body("1", "one", &format!(r#"{{"x":"{filler}"}}"#));
    assert!(body.len() <= BODY_BYTES);
    let request = good.request(&body).bytes();
    let (most, last) = request.split_at(request.len() - 1);
    let mut held: Vec<Connection> = (1..connections)
        .map(|_| Connection::open(house.address))
        .collect();
    for connection in &mut held {
        connection.send(most);
    }
    let bound_kib = connections * (BODY_BYTES / 1024 + KIB_EACH) * 11 / 10;
    let read_kib = connections * BODY_BYTES / 1024 * 9 / 10;
    let grown_kib = || house.resident_kib().saturating_sub(before_kib);
    eventually("they are read", || (grown_kib() >= read_kib).then_some(()));
    for _ in 0..100 {
        let mut more = Connection::open(house.address);
        more.try_send(Ask::new("GET", "/nowhere").bytes());
        assert!(more.is_closed());
    }
    println!("{} KiB, the bound is {bound_kib} KiB", grown_kib());
    assert!(
        grown_kib() <= bound_kib,
        "{} of {bound_kib} KiB",
        grown_kib()
    );
    assert_eq!(text_of(&good.call("2", "one", "{}")), "a one {}");
    // One after the other: each call holds its request, its copy for the backend and its reply.
    for mut connection in held {
        connection.send(last);
        assert!(text_of(&connection.read_response()).starts_with("a one {"));
    }
    assert!(
        grown_kib() <= bound_kib + 8 * BODY_BYTES / 1024,
        "{} KiB",
        grown_kib()
    );
    eventually("the buffers are given back", || {
        (house.metric("shardgate_connections") == 1).then_some(())
    });
}

#[test]
fn replies_over_the_limit_are_not_held() {
    let backend = Backend::scripted("a", &["one", "endless"], |asked, wire| {
        if asked.tool()? != "endless" {
            return None;
        }
        // Says no length and no end; the gateway ends it.
        wire.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"x\":\"");
        let piece = "x".repeat(64 * 1024);
        for _ in 0..10_000 {
            if !wire.try_send(&piece) {
                break;
            }
        }
        wire.close();
        Some(())
    });
    let house = House::start(backend, None, &["--response-bytes-max", "1MiB"]);
    let mut client = house.open();
    assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
    let before_kib = house.resident_kib();
    for id in 0..100 {
        let response = client.call(&id.to_string(), "endless", "{}");
        assert_eq!((response.status, response.error_code()), (200, -32603));
    }
    let grown_kib = house.resident_kib().saturating_sub(before_kib);
    // Each held for itself would be 100 MiB.
    assert!(grown_kib < 32 * 1024, "{grown_kib} KiB");
    assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
}
