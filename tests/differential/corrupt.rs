//! A server with one bad habit for each kind of message: what a walk must notice.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use crate::support::find;

/// What the server says, what is made of it (as long), and the step that has to notice.
pub(crate) const HABITS: [(&str, &str, &str); 8] = [
    (r#""Echo: h"#, r#""Echo: H"#, "echo "),
    (
        r#""priority":0.7"#,
        r#""priority":0.8"#,
        "get-annotated-message",
    ),
    (
        r#","structuredContent":{"temp"#,
        r#","StructuredContent":{"temp"#,
        "get-structured-content",
    ),
    (
        r#""progress":3,"total":4"#,
        r#""total":4,"progress":3"#,
        "trigger-long-running-operation",
    ),
    (
        r#""maxTokens":7"#,
        r#""maxTokens":8"#,
        "trigger-sampling-request",
    ),
    (
        r#"Prompt nonesuch not"#,
        r#"prompt nonesuch not"#,
        "no such prompt",
    ),
    (
        r#"{"uri":"demo://resource/static/document/features.md"}"#,
        r#"{"uri":"demo://resource/static/document/Features.md"}"#,
        "toggle-subscriber-updates",
    ),
    (r#""hasMore":false"#, r#""hasMore":null "#, "complete "),
];

/// Starts one in front of the server at this URL; it has its URL.
pub(crate) fn start(url: &str) -> String {
    let (address, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    let address = address.to_owned();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&address).unwrap());
            let (from_client, to_client) = (client.try_clone().unwrap(), client);
            let (from_server, to_server) = (server.try_clone().unwrap(), server);
            thread::spawn(move || copy(from_client, to_server, |_| {}));
            thread::spawn(move || copy(from_server, to_client, corrupt));
        }
    });
    format!("http://{own}/{path}")
}

fn copy(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut piece = [0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        change(&mut piece[..count]);
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn corrupt(bytes: &mut [u8]) {
    for (said, made, _) in HABITS {
        assert_eq!(said.len(), made.len(), "{said}");
        while let Some(at) = find(bytes, said.as_bytes()) {
            bytes[at..at + made.len()].copy_from_slice(made.as_bytes());
        }
    }
}
