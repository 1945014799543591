//! Exchanges with a gateway that is told to do things wrong: what the run says of it. The right one
//! is in `tests/connect/load.rs`.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use loadgen::{
    exchange::{ExchangeOptions, Secret},
    run::{Report, RunFault, RunOptions, run},
    slo::Slo,
    verdict::{Outcome, judge},
};

const OPENED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const BOUND: &str = r#"{"type":"bound","session":{"id":"abc","generation":0}}"#;

/// Listens, and has each connection served by a thread of its own.
fn serve(each: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let each = each.clone();
            thread::spawn(move || each(stream));
        }
    });
    address
}

/// Reads until the bytes so far satisfy `is_whole`; `None` at the end.
fn read_until(stream: &mut TcpStream, is_whole: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while !is_whole(&all) {
        match stream.read(&mut part) {
            Ok(count @ 1..) => all.extend_from_slice(&part[..count]),
            _ => return None,
        }
    }
    Some(all)
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(at + 4)
}

/// Where clients are bound at once with this message, and then hear nothing.
fn binding(message: &'static str) -> SocketAddr {
    serve(move |mut stream| {
        read_until(&mut stream, |bytes| head_end(bytes).is_some());
        let mut answer = OPENED.as_bytes().to_vec();
        answer.extend_from_slice(&[0x81, u8::try_from(message.len()).unwrap()]);
        answer.extend_from_slice(message.as_bytes());
        stream.write_all(&answer).unwrap();
        // Until the client ends.
        read_until(&mut stream, |_| false);
    })
}

fn request_id(request: &str) -> Option<&str> {
    let (_, rest) = request.split_once(r#""requestId":""#)?;
    Some(rest.split_once('"')?.0)
}

/// An internal API that answers every request with these lines; `ID` stands for its id.
fn answering(lines: &'static [&'static str]) -> SocketAddr {
    serve(move |mut stream| {
        let is_whole =
            |bytes: &[u8]| head_end(bytes).is_some() && bytes.ends_with(b"}}") && bytes.len() > 300;
        while let Some(request) = read_until(&mut stream, is_whole) {
            let request = String::from_utf8(request).unwrap();
            let id = request_id(&request).unwrap();
            let mut answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\
                transfer-encoding: chunked\r\n\r\n"
                .to_owned();
            for line in lines {
                let line = line.replace("ID", id);
                answer += &format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
            }
            answer += "0\r\n\r\n";
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

const ACCEPTED: &str =
    r#"{"requestId":"ID","type":"response","payload":{"kind":"plugin-debug.accepted"}}"#;
const PART: &str = r#"{"requestId":"ID","type":"stream","payload":{"event":"chunk","data":{"data":{"content":"0 xx"}}}}"#;
const END: &str = r#"{"requestId":"ID","type":"stream","payload":{"event":"end"}}"#;

fn options(api: SocketAddr, clients: SocketAddr) -> RunOptions {
    RunOptions {
        url: format!("http://{api}"),
        connections: 2,
        calls: Some(10),
        limit: Duration::from_secs(20),
        exchange: Some(ExchangeOptions {
            clients_at: format!("ws://{clients}/connection-gateway/v1"),
            secret: Secret(b"secret".to_vec()),
            chunks: 1,
            chunk_bytes: 4,
            ..ExchangeOptions::default()
        }),
        ..RunOptions::default()
    }
}

fn against(lines: &'static [&'static str]) -> Report {
    run(options(answering(lines), binding(BOUND))).unwrap()
}

#[test]
fn whole_answers_are_good_and_their_first_line_is_timed() {
    let mut report = against(&[ACCEPTED, PART, END]);
    assert_eq!((report.error_count(), report.sent), (0, 10));
    assert_eq!(report.recording.operations["exchange"].good(), 10);
    assert_eq!(report.first_byte.as_ref().unwrap().len(), 10);
    assert!(report.to_text().contains("first line"));
    let slo: Slo = "errors=0%".parse().unwrap();
    assert_eq!(judge(&mut report, &slo), Outcome::Passed);
}

#[test]
fn every_other_answer_is_an_error_of_its_kind() {
    const OTHER: &str = r#"{"requestId":"x","type":"stream","payload":{"event":"end"}}"#;
    const FAILED: &str = r#"{"requestId":"ID","type":"stream","payload":{"event":"error"}}"#;
    let cases: [(&'static [&'static str], &str, bool); 5] = [
        (&[ACCEPTED, PART, OTHER], "wrong_id", true),
        (&[ACCEPTED, PART], "incomplete", true),
        (&[ACCEPTED, END], "incomplete", true),
        (&[ACCEPTED, PART, PART, END], "incomplete", true),
        (&[ACCEPTED, FAILED], "error_line", false),
    ];
    for (lines, label, is_wrong) in cases {
        let mut report = against(lines);
        assert_eq!(report.errors[label].count, 10, "{lines:?}");
        assert_eq!(report.wrong_count > 0, is_wrong, "{lines:?}");
        // No share of errors makes wrong answers good.
        let slo: Slo = "errors=100%".parse().unwrap();
        let wanted = if is_wrong {
            Outcome::Broken
        } else {
            Outcome::Passed
        };
        assert_eq!(judge(&mut report, &slo), wanted, "{lines:?}");
    }
}

#[test]
fn a_client_that_is_not_bound_is_a_set_up_fault() {
    let refusal = r#"{"type":"error","code":"connection_gateway.invalid_token","message":"x"}"#;
    let fault = run(options(answering(&[]), binding(refusal))).unwrap_err();
    assert!(matches!(fault, RunFault::Setup(_)));
    assert!(fault.to_string().contains("JWT_SECRET"), "{fault}");
}
