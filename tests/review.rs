//! Defects a reading of the core has found, each as its user met it: time limits that were not
//! there or too many, what must not be mixed up, who must not starve.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/support.rs"]
mod support;

use std::{
    collections::HashSet,
    fs,
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use shardgate::settings::IoDriver;
use support::{Ask, Backend, Connection, Gate, HOST, McpClient, Plan, eventually};
use tokio::net::TcpSocket;

fn text_of(response: &support::Response) -> String {
    let result = response.result();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

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
        .settings(|settings| settings.timeouts.idle = Duration::from_millis(200))
        .start();
    let mut client = McpClient::open(&gateway);
    let body = support::call_body("7", "slow", "{}");
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let mut ask = client.request(&chunks).header("transfer-encoding", "chunked");
    ask.body = Some(chunks.into_bytes());
    // Another connection says when the idle limit has passed.
    let mut idle = gateway.connect();
    idle.send(Ask::new("GET", "/nowhere").bytes());
    assert_eq!(idle.read_response().status, 404);
    client.connection.send(ask.bytes());
    is_over.await_arrivals(1);
    let mut later = gateway.connect();
    later.send(Ask::new("GET", "/nowhere").bytes());
    assert_eq!(later.read_response().status, 404);
    assert!(later.is_closed() && idle.is_closed());
    is_over.open();
    assert_eq!(text_of(&client.connection.read_response()), "a slow {}");
}

fn write_config(gateway: &support::Gateway, backends: Value) {
    let document = json!({"virtual_hosts": {HOST: {"backends": backends}}});
    fs::write(gateway.config_path(), document.to_string()).unwrap();
}

fn with_a_secret(url: &str) -> Value {
    json!({"name": "a", "url": url, "add_headers": {"x-secret": "of a"}})
}

/// A call at `b` whose backend session is lost while the configuration changes.
struct Reconfigured {
    a: Backend,
    b: Backend,
    gateway: support::Gateway,
    client: McpClient,
    change_is_over: Arc<Gate>,
}

impl Reconfigured {
    fn start() -> Self {
        let change_is_over = Arc::new(Gate::default());
        let a = Backend::start("a", &["two"]);
        let b = Backend::scripted("b", &["one"], {
            let change_is_over = change_is_over.clone();
            move |asked, _| {
                if asked.tool().is_some() && !change_is_over.is_open() {
                    change_is_over.wait();
                }
                None
            }
        });
        let gateway = Plan::of(&[("b", &b.url())]).shards(1).start();
        let mut client = McpClient::open(&gateway);
        client.send_call("1", "one", "{}");
        change_is_over.await_arrivals(1);
        Self {
            a,
            b,
            gateway,
            client,
            change_is_over,
        }
    }

    fn change(&self, backends: Value, tools: &[&str]) {
        write_config(&self.gateway, backends);
        let mut other = self.client.again();
        eventually("the new configuration", || {
            (other.tool_names() == tools).then_some(())
        });
    }

    fn response(&mut self) -> support::Response {
        self.b.lose_sessions();
        self.change_is_over.open();
        self.client.connection.read_response()
    }
}

/// The place of a backend in its virtual host must not decide who gets whose credentials.
#[test]
fn a_call_that_meets_a_new_configuration_stays_with_its_backend() {
    let mut case = Reconfigured::start();
    let b = json!({"name": "b", "url": case.b.url()});
    let both = json!({"a": with_a_secret(&case.a.url()), "b": b});
    case.change(both, &["a-two", "b-one"]);
    assert_eq!(text_of(&case.response()), "b one {}");
    for asked in case.b.seen() {
        assert_eq!(asked.header("x-secret"), None);
        let session = asked.header("mcp-session-id").unwrap_or("b-session-0");
        assert!(session.starts_with("b-session-"), "{session}");
    }
    assert!(case.a.seen_rpc("tools/call").is_empty());
}

#[test]
fn a_backend_that_was_taken_away_is_not_opened_again() {
    let mut case = Reconfigured::start();
    case.change(
        json!({"a": with_a_secret(&case.a.url())}),
        &["two"],
    );
    assert_eq!(case.response().error_code(), -32603);
    assert_eq!(case.b.seen_rpc("initialize").len(), 1);
    assert!(case.a.seen_rpc("tools/call").is_empty());
}

#[test]
fn a_session_that_cannot_be_used_is_not_left_behind() {
    for fault in ["revision", "initialized"] {
        let backend = Backend::scripted("a", &[], move |asked, wire| {
            if fault == "revision" && asked.is("initialize") {
                let id = asked.id();
                let headers = "content-type: application/json\r\nmcp-session-id: left\r\n";
                let document = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2099-01-01","capabilities":{{}}}}}}"#
                );
                wire.answer(200, headers, document);
                return Some(());
            }
            let is_refused = fault == "initialized" && asked.is("notifications/initialized");
            is_refused.then(|| wire.answer(500, "", ""))
        });
        let gateway = Plan::one(&backend).start();
        McpClient::open(&gateway);
        let session = if fault == "revision" { "left" } else { "a-session-1" };
        eventually("DELETE", || {
            backend.seen().into_iter().find(|asked| {
                asked.method == "DELETE" && asked.header("mcp-session-id") == Some(session)
            })
        });
    }
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
    assert_eq!(backend.seen_rpc("tools/list").len(), 3, "the circuit is open");
}

#[test]
fn cursors_that_go_round_end_the_list() {
    let backend = Backend::scripted("a", &[], |asked, wire| {
        if !asked.is("tools/list") {
            return None;
        }
        let (name, next) = match asked.json()["params"]["cursor"].as_str() {
            None => ("first", "1"),
            Some("1") => ("second", "2"),
            Some("2") => ("third", "1"),
            Some(other) => panic!("a cursor nobody gave out: {other}"),
        };
        let tool = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        let page = format!(r#"{{"tools":[{tool}],"nextCursor":"{next}"}}"#);
        wire.result(asked, &page);
        Some(())
    });
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    assert_eq!(client.tool_names(), ["first", "second", "third"]);
    assert_eq!(gateway.metric("shardgate_lists_cyclic_total"), 1);
}

/// Connections to a backend are shared, so its sessions must not share request ids.
#[test]
fn no_two_requests_to_a_backend_have_the_same_id() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).shards(1).start();
    for _ in 0..3 {
        let mut client = McpClient::open(&gateway);
        assert_eq!(text_of(&client.call("1", "one", "{}")), "a one {}");
    }
    let seen = backend.seen();
    let ids: Vec<String> = seen
        .iter()
        .map(support::Asked::id)
        .filter(|id| id != "null")
        .collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
}

/// The limit is for who does not read, not for who takes longer than it in all.
#[test]
fn a_client_that_reads_slowly_gets_the_whole_reply() {
    const BYTES: usize = 12 << 20;
    let backend = Backend::scripted("a", &["large"], |asked, wire| {
        asked.tool().is_some().then(|| wire.text(asked, &"x".repeat(BYTES)))
    });
    let gateway = Plan::one(&backend)
        .shards(1)
        .settings(|settings| settings.timeouts.write = Duration::from_secs(1))
        .start();
    let mut client = McpClient::open(&gateway);
    client.connection = Connection::over(with_a_small_window(gateway.address));
    client.send_call("1", "large", "{}");
    let length = client.connection.read_head();
    let length: usize = length.header("content-length").unwrap().parse().unwrap();
    while client.connection.buffer.len() < length {
        // The slow reader itself, which takes some three seconds.
        thread::sleep(Duration::from_millis(4));
        assert!(client.connection.fill(), "the reply was cut off");
    }
}

fn with_a_small_window(address: std::net::SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(32 * 1024).unwrap();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
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
            settings.timeouts.session_idle = Duration::from_millis(500);
            settings.timeouts.session_age_max = Duration::from_secs(3);
        })
        .start();
    let mut client = McpClient::open(&gateway);
    let mut stream = client.stream();
    let backend_session_ends = || (backend.session_count() == 0).then_some(());
    assert_eq!(stream.next_event(), None);
    eventually("the backend session's end", backend_session_ends);
    let response = client.call("1", "one", "{}");
    assert_eq!(response.status, 404);
    assert_eq!(gateway.metric("shardgate_sessions_expired_total"), 1);
}
