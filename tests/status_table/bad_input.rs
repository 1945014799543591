//! Input over a limit, late, or not HTTP: one answer, then the connection closes.

use std::time::Duration;

use crate::{
    LIST, TARGET, list,
    support::{Ask, Backend, Gateway, McpClient, Plan, Response},
};

const BODY_BYTES_MAX: usize = 8192;
const HEAD_BYTES_MAX: usize = 2048;
const TARGET_BYTES_MAX: usize = 512;

fn started() -> Gateway {
    // No backend is asked for anything here.
    Plan::of(&[])
        .settings(|settings| {
            settings.limits.body_bytes_max = BODY_BYTES_MAX;
            settings.limits.head_bytes_max = HEAD_BYTES_MAX;
            settings.limits.target_bytes_max = TARGET_BYTES_MAX;
            settings.limits.header_count_max = 20;
        })
        .start()
}

/// The one answer to these bytes, after which nothing comes.
fn last_answer(gateway: &Gateway, bytes: impl AsRef<[u8]>) -> Response {
    let mut connection = gateway.connect();
    connection.send(bytes);
    let response = connection.read_response();
    assert_eq!(response.header("connection"), Some("close"));
    assert!(connection.is_closed());
    response
}

fn head_with(lines: &str) -> String {
    format!(
        "POST {TARGET} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{lines}\r\n"
    )
}

#[test]
fn a_declared_body_over_the_limit_is_413_before_it_is_sent() {
    let gateway = started();
    for length in [(BODY_BYTES_MAX + 1).to_string(), "9".repeat(18)] {
        for expect in ["", "expect: 100-continue\r\n"] {
            let head = head_with(&format!("content-length: {length}\r\n{expect}"));
            assert_eq!(last_answer(&gateway, head).status, 413, "{length} {expect}");
        }
    }
}

#[test]
fn a_chunked_body_over_the_limit_is_413() {
    let gateway = started();
    let head = head_with("transfer-encoding: chunked\r\n");
    let piece = format!("400\r\n{}\r\n", " ".repeat(0x400));
    let many = format!("{head}{}", piece.repeat(BODY_BYTES_MAX / 0x400 + 1));
    assert_eq!(last_answer(&gateway, many).status, 413);
    let one = format!(
        "{head}{:x}\r\n{}",
        BODY_BYTES_MAX + 1,
        " ".repeat(BODY_BYTES_MAX)
    );
    assert_eq!(last_answer(&gateway, one).status, 413);
}

#[test]
fn a_body_at_the_limit_passes() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend)
        .settings(|settings| settings.limits.body_bytes_max = BODY_BYTES_MAX)
        .start();
    let mut client = McpClient::open(&gateway);
    let body = format!("{LIST}{}", " ".repeat(BODY_BYTES_MAX - LIST.len()));
    assert_eq!(client.post(&body).status, 200);
    let chunked = Ask {
        body: Some(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes()),
        ..client.request("").header("transfer-encoding", "chunked")
    };
    assert_eq!(client.connection.ask(&chunked).status, 200);
    let mut connection = gateway.connect();
    let head = client
        .request("")
        .header("content-length", &body.len().to_string());
    connection.send(head.header("expect", "100-continue").bytes());
    assert_eq!(connection.read_head().status, 100);
    connection.send(&body);
    assert_eq!(connection.read_response().status, 200);
}

#[test]
fn a_head_over_the_limit_is_431() {
    let gateway = started();
    let long = head_with(&format!("x-long: {}\r\n", "x".repeat(HEAD_BYTES_MAX)));
    assert_eq!(last_answer(&gateway, long).status, 431);
    let many = head_with(&"x: y\r\n".repeat(30));
    assert_eq!(last_answer(&gateway, many).status, 431);
    // Said without waiting for the head's end.
    let endless = head_with("").trim_end().to_owned() + "\r\nx: " + &"y".repeat(HEAD_BYTES_MAX);
    assert_eq!(last_answer(&gateway, endless).status, 431);
}

#[test]
fn a_target_over_the_limit_is_414() {
    let gateway = started();
    let target = format!("/{}", "x".repeat(TARGET_BYTES_MAX));
    assert_eq!(
        last_answer(&gateway, Ask::post(&target, LIST).bytes()).status,
        414
    );
    let endless = format!("POST /{}", "x".repeat(TARGET_BYTES_MAX));
    assert_eq!(last_answer(&gateway, endless).status, 414);
}

#[test]
fn a_head_that_drips_is_408() {
    let gateway = Plan::of(&[])
        .settings(|settings| settings.timeouts.head = Duration::from_millis(200))
        .start();
    for start in [
        "P",
        "POST /mcp HTTP/1.1\r\n",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: y",
    ] {
        assert_eq!(last_answer(&gateway, start).status, 408, "{start:?}");
    }
    // Each byte is in time; the whole is not.
    let mut connection = gateway.connect();
    connection.send("POST /mcp HTTP/1.1\r\nx: ");
    while !connection.has_input_within(Duration::from_millis(5)) {
        connection.send("y");
    }
    assert_eq!(connection.read_response().status, 408);
}

#[test]
fn a_body_that_stalls_is_408() {
    let gateway = Plan::of(&[])
        .settings(|settings| settings.timeouts.body = Duration::from_millis(200))
        .start();
    let length = head_with("content-length: 100\r\n") + "{";
    assert_eq!(last_answer(&gateway, length).status, 408);
    let chunked = head_with("transfer-encoding: chunked\r\n") + "5\r\n{";
    assert_eq!(last_answer(&gateway, chunked).status, 408);
}

#[test]
fn what_is_not_http_is_refused_and_closed() {
    let gateway = started();
    let host = "host: localhost\r\n";
    for (status, bytes) in [
        (400, "hello\r\n\r\n".to_owned()),
        (400, format!("GET  / HTTP/1.1\r\n{host}\r\n")),
        (400, "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (400, format!("GET / HTTP/1.1\r\n{host}{host}\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{host}a b: c\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{host}x: y\n\r\n")),
        (
            400,
            head_with("content-length: 3\r\ncontent-length: 4\r\n") + "{}",
        ),
        (400, head_with("content-length: +3\r\n") + "{ }"),
        (
            400,
            head_with("content-length: 3\r\ntransfer-encoding: chunked\r\n") + "0\r\n\r\n",
        ),
        (400, head_with("transfer-encoding: chunked\r\n") + "x\r\n"),
        (411, head_with("")),
        (
            417,
            head_with("content-length: 2\r\nexpect: tea\r\n") + "{}",
        ),
        (501, head_with("transfer-encoding: gzip\r\n")),
        (505, format!("GET / HTTP/2.0\r\n{host}\r\n")),
    ] {
        let response = last_answer(&gateway, &bytes);
        assert_eq!(response.status, status, "{bytes:?}");
    }
}

#[test]
fn a_refusal_of_the_message_keeps_the_connection() {
    let gateway = started();
    let mut connection = gateway.connect();
    for (status, ask) in [
        (406, list().with("accept", "text/html")),
        (415, list().with("content-type", "text/plain")),
        (400, Ask::post(TARGET, "{")),
        (404, list().header("mcp-session-id", "nope")),
        (404, Ask::post("/nope", LIST)),
        (400, list()),
    ] {
        let response = connection.ask(&ask);
        assert_eq!(response.status, status);
        assert_eq!(response.header("connection"), None);
    }
}
