//! Promise 12: slow clients cost little, and are given up in the end.

use std::sync::Arc;

use crate::{
    house::House,
    is_long,
    support::{
        Backend, Connection, Gate, McpClient, call_body, event, eventually, request, response,
    },
    text_of,
};

const REPLY_BYTES: usize = 4 << 20;
/// Memory of one slow client in KiB at the most.
const KIB_EACH: usize = 32;

fn started() -> House {
    let backend = Backend::scripted("a", &["one", "large"], |asked, wire| {
        (asked.tool()? == "large").then(|| wire.text(asked, &"x".repeat(REPLY_BYTES)))
    });
    let limit = if is_long() { "20s" } else { "4s" };
    let limits = [
        "--head-timeout",
        limit,
        "--body-timeout",
        limit,
        "--write-timeout",
        limit,
    ];
    House::start(backend, None, &limits)
}

/// Calls that must not suffer.
fn good_traffic(client: &mut McpClient) {
    for id in 0..100 {
        assert_eq!(
            text_of(&client.call(&id.to_string(), "one", "{}")),
            "a one {}"
        );
    }
}

#[test]
fn slow_heads_and_bodies_cost_little_and_end() {
    let (heads, bodies) = if is_long() {
        (5_000, 1_000)
    } else {
        (300, 100)
    };
    let house = started();
    let mut good = house.open();
    good_traffic(&mut good);
    let before_kib = house.resident_kib();
    let request = good.request(call_body("1", "one", "{}")).bytes();
    let head_end = crate::support::find(&request, b"\r\n\r\n").unwrap() + 4;
    let hold = |bytes: &[u8]| {
        let mut connection = Connection::open(house.address);
        connection.send(bytes);
        connection
    };
    let mut slow: Vec<Connection> = (0..heads).map(|n| hold(&request[..20 + n % 30])).collect();
    slow.extend((0..bodies).map(|n| hold(&request[..head_end + 1 + n % 30])));
    let all = (slow.len() + 1) as u64;
    eventually("all are held", || {
        (house.metric("shardgate_connections") == all).then_some(())
    });
    good_traffic(&mut good);
    let grown_kib = house.resident_kib().saturating_sub(before_kib);
    println!("{} slow requests: {grown_kib} KiB", slow.len());
    // The process has its own ups and downs, too.
    assert!(grown_kib <= slow.len() * KIB_EACH + 4096, "{grown_kib} KiB");
    for mut connection in slow {
        let response = connection.read_response();
        assert_eq!(response.status, 408);
        assert!(connection.is_closed());
    }
    good_traffic(&mut good);
    eventually("only the good one is left", || {
        (house.metric("shardgate_connections") == 1).then_some(())
    });
}

#[test]
fn slow_readers_hold_their_reply_and_no_more_and_end() {
    let readers = if is_long() { 200 } else { 12 };
    let house = started();
    let mut good = house.open();
    good_traffic(&mut good);
    let before_kib = house.resident_kib();
    let mut slow = Vec::new();
    for _ in 0..readers {
        let mut client = good.again_over(Connection::open_narrow(house.address));
        client.send_call("1", "large", "{}");
        // It has begun to come, and is read no further.
        assert_eq!(client.connection.read_head().status, 200);
        slow.push(client);
    }
    good_traffic(&mut good);
    let grown_kib = house.resident_kib().saturating_sub(before_kib);
    println!("{readers} slow readers: {grown_kib} KiB");
    let each_kib = REPLY_BYTES / 1024 + KIB_EACH;
    assert!(
        grown_kib <= readers * each_kib * 11 / 10 + 8 * each_kib,
        "{grown_kib} KiB"
    );
    eventually("they were given up", || {
        (house.metric("shardgate_connections") == 1).then_some(())
    });
    drop(slow);
    good_traffic(&mut good);
}

/// What a backend says on a stream that nobody reads is not kept, beyond what can be resumed; the
/// client is given up and the backend heard to its end.
#[test]
fn streams_that_are_not_read_are_bounded_and_given_up() {
    const EVENTS: usize = 8_000;
    let has_ended = Arc::new(Gate::default());
    let backend = Backend::scripted("a", &["one", "flood"], {
        let has_ended = has_ended.clone();
        move |asked, wire| {
            let is_call = asked.tool().as_deref() == Some("flood");
            if !is_call && asked.method != "GET" {
                return None;
            }
            wire.stream_head();
            let data = "x".repeat(1000);
            let params = format!(r#"{{"level":"error","data":"{data}"}}"#);
            let events = event(None, &request(None, "notifications/message", &params)).repeat(10);
            for _ in 0..EVENTS / 10 {
                if !wire.try_send(&events) {
                    return Some(());
                }
            }
            if is_call {
                wire.send(event(None, &response(asked, "done")));
            }
            // The gate counts the calls that were heard to their end.
            if is_call {
                has_ended.arrive();
            }
            Some(())
        }
    });
    let limits = ["--write-timeout", "2s", "--shards", "4"];
    let house = House::start(backend, None, &limits);
    let mut good = house.open();
    good_traffic(&mut good);
    let before_kib = house.resident_kib();
    // On connections that are the owner's and on others.
    let deaf: Vec<McpClient> = (0..4).map(|_| house.open()).collect();
    let mut held: Vec<Connection> = Vec::new();
    for client in &deaf {
        for ask in [
            client.bare("GET"),
            client.request(call_body("1", "flood", "{}")),
        ] {
            let mut connection = Connection::open_narrow(house.address);
            connection.send(ask.bytes());
            assert_eq!(connection.read_head().status, 200);
            held.push(connection);
        }
    }
    good_traffic(&mut good);
    has_ended.await_arrivals(deaf.len());
    let grown_kib = house.resident_kib().saturating_sub(before_kib);
    println!("{} floods of {EVENTS} events: {grown_kib} KiB", held.len());
    assert!(grown_kib <= 32 * 1024, "{grown_kib} KiB");
    // A GET stream may have lost what was too much, so that nothing of it is stuck.
    let left = 1 + deaf.len() as u64;
    eventually("the calls' were given up", || {
        (house.metric("shardgate_connections") <= left).then_some(())
    });
    // Their sessions go on.
    for client in &deaf {
        let connection = Connection::open(house.address);
        good_traffic(&mut client.again_over(connection));
    }
    drop(held);
}
