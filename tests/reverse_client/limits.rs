//! Large messages, many calls, and sides that do not read: nothing grows without bound.

use std::time::Duration;

use serde_json::json;

use crate::{
    stage::{Client, Door, Heard, code_of, text_of},
    support::eventually,
};

/// Memory of a process in bytes, by a line of its status.
fn memory(pid: u32, line: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|known| known.starts_with(line));
    let size = line.unwrap().split_whitespace().nth(1).unwrap();
    size.parse::<usize>().unwrap() << 10
}

fn resident(pid: u32) -> usize {
    memory(pid, "VmRSS:")
}

/// The most that was ever resident.
fn peak(pid: u32) -> usize {
    memory(pid, "VmHWM:")
}

/// Waits until the client seems to take no more. Were it wrong, less would be asked of it.
fn until_full(pid: u32, more_than: usize) {
    let (mut last, mut still_count) = (0, 0);
    eventually("the client takes no more", || {
        let now = resident(pid);
        let is_still = now == last && now > more_than;
        still_count = if is_still { still_count + 1 } else { 0 };
        last = now;
        std::thread::park_timeout(Duration::from_millis(50));
        (still_count >= 20).then_some(())
    });
}

#[test]
fn five_megabytes_pass_both_ways() {
    let door = Door::open();
    let _client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let text: String = ('a'..='z').cycle().take(5 << 20).collect();
    for _ in 0..3 {
        assert!(socket.call("echo", json!({"text": text})) == text);
    }
}

#[test]
fn a_message_over_the_limit_ends_the_connection_either_way() {
    let door = Door::open();
    let client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    // A head is enough.
    let mut head = vec![0x81, 127];
    head.extend_from_slice(&((16u64 << 20) + 1).to_be_bytes());
    socket.connection.send(head);
    assert_eq!(socket.hear(), Heard::Close(Some(1009)));
    let mut socket = door.enter();
    socket.initialize();
    let id = socket.ask_tool("long", json!({"bytes": 17 << 20}));
    let error = socket.message();
    assert_eq!((&error["id"], code_of(&error)), (&json!(id), -32603));
    assert_eq!(socket.hear(), Heard::Close(Some(1011)));
    client.process.logged("wrote a line of more than");
}

#[test]
fn too_many_calls_at_once_are_refused_one_by_one() {
    let door = Door::open();
    let _client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    // The child holds the last one only and answers none of them.
    for _ in 0..256 {
        socket.ask_tool("hold", json!({}));
    }
    let over = socket.ask_tool("echo", json!({"text": "x"}));
    let error = socket.message();
    assert_eq!((&error["id"], code_of(&error)), (&json!(over), -32603));
    socket.notify("notifications/cancelled", json!({"requestId": over - 2}));
    assert_eq!(socket.call("echo", json!({"text": "x"})), "x");
}

#[test]
fn a_gateway_that_does_not_read_slows_the_child_down() {
    let door = Door::open();
    let client = Client::stdio(&door, &[]);
    let mut socket = door.enter();
    socket.initialize();
    let before = resident(client.process.pid());
    // Asked for: 80 MiB. Read: nothing, until the client has what it takes.
    let asked: Vec<u64> = (0..20)
        .map(|_| socket.ask_tool("long", json!({"bytes": 4 << 20})))
        .collect();
    socket.ask_tool("complain", json!({"text": "the child has said it all"}));
    until_full(client.process.pid(), before + (4 << 20));
    assert!(!client.process.stderr().contains("said it all"));
    for id in asked {
        let answer = socket.message();
        assert_eq!(answer["id"], id);
        assert_eq!(text_of(&answer).len(), 4 << 20);
    }
    client.process.logged("the child has said it all");
    let peak = peak(client.process.pid());
    assert!(peak < before + (48 << 20), "{before} {peak}");
}

#[test]
fn a_child_that_does_not_read_slows_the_gateway_down() {
    let door = Door::open();
    let home = crate::process::Folder::new();
    let go = home.file("go");
    // Reads nothing until the file is there.
    let script = format!("while [ ! -e {go} ]; do sleep 0.01; done; exec cat > /dev/null");
    let client = Client::start_in(home, &door.url(), &["--", "sh", "-c", &script]);
    let mut socket = door.enter();
    let before = resident(client.process.pid());
    let big = json!({"jsonrpc": "2.0", "method": "notifications/x",
        "params": {"text": "x".repeat(1 << 20)}});
    let bytes = crate::stage::frame_of(1, big.to_string().as_bytes());
    let writer = std::thread::spawn(move || {
        let mut sent = 0;
        while sent < 128 && socket.connection.try_send(&bytes) {
            sent += 1;
        }
        sent
    });
    until_full(client.process.pid(), before + (1 << 20));
    assert!(!writer.is_finished());
    client.home.write("go", "");
    assert_eq!(writer.join().unwrap(), 128);
    let peak = peak(client.process.pid());
    assert!(peak < before + (32 << 20), "{before} {peak}");
}
