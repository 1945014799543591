//! Time limits, and the shard's time as such.

use std::{
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use shardgate::settings::IoDriver;

use crate::{
    support::{self, Ask, Backend, Connection, Gate, McpClient, Plan, eventually},
    text_of,
};

/// A call may take longer than its connection may be idle, however its body is framed.
#[test]
fn a_chunked_call_is_not_held_to_the_idle_limit() {
    let is_over = Arc::new(Gate::default());
    let backend = Backend::scripted("a", &["slow"], {
        let is_over = is_over.clone();
        move |asked, _| {
            if asked.tool().is_some() {
                is_over.wait();
            }
            None
        }
    });
    let gateway = Plan::one(&backend)
        .shards(1)
        .settings(|settings| settings.timeouts.idle = Duration::from_millis(500))
        .start();
    let mut client = McpClient::open(&gateway);
    let body = support::call_body("7", "slow", "{}");
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let mut ask = client
        .request(&chunks)
        .header("transfer-encoding", "chunked");
    ask.body = Some(chunks.into_bytes());
    client.connection.send(ask.bytes());
    is_over.await_arrivals(1);
    // Another connection says when the idle limit has passed.
    let mut idle = gateway.connect();
    assert_eq!(idle.ask(&Ask::new("GET", "/nowhere")).status, 404);
    assert!(idle.is_closed());
    is_over.open();
    assert_eq!(text_of(&client.connection.read_response()), "a slow {}");
}

/// A limit that has passed on a kept connection is no reason to wait as long once more.
#[test]
fn a_list_that_is_late_is_asked_for_once() {
    let backend = Backend::scripted("a", &["one"], |asked, wire| {
        asked.is("tools/list").then(|| wire.await_end())
    });
    let gateway = Plan::one(&backend)
        .shards(1)
        .settings(|settings| settings.timeouts.initialize = Duration::from_millis(300))
        .start();
    let mut client = McpClient::open(&gateway);
    let result = client.list().result();
    assert_eq!(result["_meta"]["shardgate/unavailable"], json!(["a"]));
    assert_eq!(backend.seen_rpc("tools/list").len(), 1);
}

/// A head is no answer: the list is cut off in time, and after some of them nobody waits any more.
#[test]
fn a_list_that_begins_and_never_ends_is_late_too() {
    let backend = Backend::scripted("a", &["one"], |asked, wire| {
        asked.is("tools/list").then(|| {
            wire.stream_head();
            wire.await_end();
        })
    });
    let gateway = Plan::one(&backend)
        .shards(1)
        .settings(|settings| {
            settings.timeouts.initialize = Duration::from_millis(200);
            settings.timeouts.call = Duration::from_secs(3600);
        })
        .start();
    let mut client = McpClient::open(&gateway);
    for _ in 0..4 {
        let result = client.list().result();
        assert_eq!(result["_meta"]["shardgate/unavailable"], json!(["a"]));
    }
    assert_eq!(
        backend.seen_rpc("tools/list").len(),
        3,
        "the circuit is open"
    );
}

/// The limit is for who does not read, not for who takes longer than it in all.
#[test]
fn a_client_that_reads_slowly_gets_the_whole_reply() {
    const BYTES: usize = 12 << 20;
    let backend = Backend::scripted("a", &["large"], |asked, wire| {
        asked
            .tool()
            .is_some()
            .then(|| wire.text(asked, &"x".repeat(BYTES)))
    });
    let gateway = Plan::one(&backend)
        .shards(1)
        .settings(|settings| settings.timeouts.write = Duration::from_secs(1))
        .start();
    let mut client = McpClient::open(&gateway);
    client.connection = Connection::open_narrow(gateway.address);
    client.send_call("1", "large", "{}");
    let length = client.connection.read_head();
    let length: usize = length.header("content-length").unwrap().parse().unwrap();
    while client.connection.buffer.len() < length {
        // The slow reader itself, which takes some three seconds.
        thread::sleep(Duration::from_millis(4));
        assert!(client.connection.fill(), "the reply was cut off");
    }
}

/// On the epoll driver whatever can be done at once is done at once.
#[test]
fn endless_pipelined_requests_leave_others_their_turn() {
    const REQUESTS: usize = 400_000;
    let gateway = Plan::of(&[])
        .shards(1)
        .settings(|settings| settings.shards.driver = IoDriver::Epoll)
        .start();
    let hog = TcpStream::connect(gateway.address).unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let writer = thread::spawn({
        let mut hog = hog.try_clone().unwrap();
        move || {
            let request = Ask::new("GET", "/nowhere").bytes().repeat(1000);
            for _ in 0..REQUESTS / 1000 {
                if std::io::Write::write_all(&mut hog, &request).is_err() {
                    break;
                }
            }
        }
    });
    let reader = thread::spawn({
        let (mut hog, answered) = (hog.try_clone().unwrap(), answered.clone());
        move || {
            let mut piece = vec![0; 256 * 1024];
            while let Ok(count) = std::io::Read::read(&mut hog, &mut piece)
                && count > 0
            {
                answered.fetch_add(count, Ordering::Relaxed);
            }
        }
    });
    eventually("answers", || {
        (answered.load(Ordering::Relaxed) > 0).then_some(())
    });
    let mut other = gateway.connect();
    let response = other.ask(&Ask::new("GET", "/nowhere"));
    assert_eq!(response.status, 404);
    let so_far = answered.load(Ordering::Relaxed);
    let answer_bytes = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".len();
    assert!(so_far < REQUESTS * answer_bytes, "it had to wait for all");
    hog.shutdown(Shutdown::Both).unwrap();
    writer.join().unwrap();
    reader.join().unwrap();
}

/// A stream keeps a session from being idle, not from growing old.
#[test]
fn a_session_that_is_listened_to_ends_with_its_age() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend)
        .settings(|settings| {
            settings.timeouts.session_idle = Duration::from_secs(1);
            settings.timeouts.session_age_max = Duration::from_secs(4);
            // A stream that does not end is to look like one.
            settings.timeouts.heartbeat_interval = Duration::from_secs(3600);
        })
        .start();
    let started = Instant::now();
    let mut client = McpClient::open(&gateway);
    let mut stream = client.stream();
    let backend_session_ends = || (backend.session_count() == 0).then_some(());
    assert_eq!(stream.next_event(), None);
    assert!(started.elapsed() > Duration::from_secs(3), "not idle");
    eventually("the backend session's end", backend_session_ends);
    let response = client.call("1", "one", "{}");
    assert_eq!(response.status, 404);
    assert_eq!(gateway.metric("shardgate_sessions_expired_total"), 1);
}
