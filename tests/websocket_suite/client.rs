//! The other role: a client that asks the suite's server for one case after the other and sends
//! back what it hears.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::Child,
};

use shardgate::websocket::{
    CloseCode, Event, Masking, Receiver, Role, frame, handshake, write_close, write_frame,
};

use crate::{MESSAGE_BYTES_MAX, support::Connection};

const KEY: [u8; 16] = *b"the sample nonce";
const MASK: Masking = Masking::Key([0x37, 0xfa, 0x21, 0x3d]);

/// Speaks to the suite until it has no more cases; what it said on standard error.
pub(crate) fn run(mut child: Child) -> String {
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim().rsplit("ws://").next().unwrap();
    let address: SocketAddr = address.parse().unwrap_or_else(|_| panic!("{line}"));

    let count = echo(address, "/getCaseCount").unwrap();
    let count: usize = count.parse().unwrap();
    for case in 1..=count {
        echo(address, &format!("/runCase?case={case}&agent=shardgate"));
    }
    echo(address, "/updateReports?agent=shardgate");
    said.read_to_string(&mut line).unwrap();
    child.wait().unwrap();
    line
}

/// One connection, on which everything is sent back; the first text that came.
fn echo(address: SocketAddr, target: &str) -> Option<String> {
    let mut connection = Connection::open(address);
    connection.send(handshake::request(&address.to_string(), target, KEY, ""));
    let head = loop {
        if let Some(at) = memchr::memmem::find(&connection.buffer, b"\r\n\r\n") {
            break connection.buffer.drain(..at + 4).collect::<Vec<u8>>();
        }
        assert!(connection.fill(), "no answer to {target}");
    };
    assert!(handshake::is_opened(&head, KEY), "{}", head.escape_ascii());
    let mut receiver = Receiver::new(Role::Client, MESSAGE_BYTES_MAX);
    let mut first = None;
    loop {
        let input = std::mem::take(&mut connection.buffer);
        let mut out = Vec::new();
        let is_over = take_in(&mut receiver, &input, &mut out, &mut first);
        let is_gone = !connection.try_send(&out);
        if is_over || is_gone {
            // The server ends first (RFC 6455 section 7.1.1).
            while connection.fill() {
                connection.buffer.clear();
            }
            return first;
        }
        if !connection.fill() {
            return first;
        }
    }
}

/// Answers what came; whether the talk is over.
fn take_in(
    receiver: &mut Receiver,
    input: &[u8],
    out: &mut Vec<u8>,
    first: &mut Option<String>,
) -> bool {
    let mut at = 0;
    while at < input.len() {
        let (taken, event) = match receiver.read(&input[at..]) {
            Ok(read) => read,
            Err(violation) => {
                write_close(out, Some((violation.code(), "")), MASK);
                return true;
            }
        };
        at += taken;
        match event {
            None | Some(Event::Pong(_)) => {}
            Some(Event::Text(text)) => {
                first.get_or_insert_with(|| text.to_owned());
                write_frame(out, frame::TEXT, text.as_bytes(), MASK);
            }
            Some(Event::Binary(bytes)) => write_frame(out, frame::BINARY, bytes, MASK),
            Some(Event::Ping(payload)) => write_frame(out, frame::PONG, payload, MASK),
            Some(Event::Close(code)) => {
                write_close(out, code.map(|(code, _)| (CloseCode(code), "")), MASK);
                return true;
            }
        }
    }
    false
}
