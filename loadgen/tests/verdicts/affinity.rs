//! Sessions that are mixed up are found, and those that are not are not.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use loadgen::{
    affinity::ViolationKind,
    backend::{BackendKind, BackendOptions, CounterFault},
    run::{Check, Pattern, RunOptions, run},
    slo::Slo,
    verdict::{Outcome, judge},
};

use super::{backend, options};

#[test]
fn each_way_to_break_a_counter_is_found_and_named() {
    for (fault, kinds) in [
        (None, &[][..]),
        (
            // One number for all: every session sees the others' counts as gaps.
            Some(CounterFault::Mixed),
            &[ViolationKind::Gap],
        ),
        (Some(CounterFault::Skips), &[ViolationKind::Gap]),
        (Some(CounterFault::Repeats), &[ViolationKind::Repeat]),
        (Some(CounterFault::Resets), &[ViolationKind::Reset]),
    ] {
        let backend = backend(BackendOptions {
            kind: BackendKind::Counter,
            counter_fault: fault,
            ..BackendOptions::default()
        });
        for pattern in [Pattern::Spread, Pattern::Sticky] {
            let mut report = run(RunOptions {
                connections: 4,
                calls: Some(2000),
                pattern,
                tool: "increment".to_owned(),
                arguments: "{}".to_owned(),
                check: Check::Counter,
                target_shards: Some(4),
                ..options(&backend)
            })
            .unwrap();
            let mut found: Vec<_> = report.violations.iter().map(|one| one.kind).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, kinds, "{fault:?} {pattern:?}");
            let outcome = judge(&mut report, &Slo::default());
            let expected = if fault.is_some() {
                Outcome::Broken
            } else {
                Outcome::Passed
            };
            assert_eq!(outcome, expected, "{fault:?} {pattern:?}");
            let count = report
                .errors
                .get("wrong_sequence")
                .map_or(0, |one| one.count);
            assert_eq!(count, report.violation_count, "{fault:?} {pattern:?}");
            // The shards are those of the published rule.
            for violation in &report.violations {
                assert!(
                    violation.owner.is_some_and(|shard| shard < 4),
                    "{violation}"
                );
                assert!(violation.to_string().contains(" of shard "), "{violation}");
            }
        }
        backend.stop();
    }
}

/// With Spread and a known number of shards no call goes over a connection at home with its session
/// while another session is free.
#[test]
fn spread_connections_are_nobodys_own() {
    let backend = backend(BackendOptions {
        kind: BackendKind::Counter,
        counter_fault: Some(CounterFault::Mixed),
        ..BackendOptions::default()
    });
    let foreign = |pattern| {
        let report = run(RunOptions {
            connections: 4,
            sessions: Some(64),
            calls: Some(1000),
            pattern,
            tool: "increment".to_owned(),
            arguments: "{}".to_owned(),
            check: Check::Counter,
            target_shards: Some(4),
            ..options(&backend)
        })
        .unwrap();
        let violations = report.violations.iter();
        let foreign = violations.filter(|one| one.through.is_some() && one.through != one.owner);
        (foreign.count(), report.violations.len())
    };
    let (count, all) = foreign(Pattern::Spread);
    assert_eq!((count, all), (100, 100));
    let (count, _) = foreign(Pattern::Sticky);
    assert_eq!(count, 0);
    backend.stop();
}

/// One connection; its exchanges are small enough to come in one piece each.
fn relay(mut client: TcpStream, target: SocketAddr, count: &AtomicU32) {
    let mut server = TcpStream::connect(target).unwrap();
    let mut bytes = [0; 16 * 1024];
    while let Ok(length @ 1..) = client.read(&mut bytes) {
        let is_call = find(&bytes[..length], b"tools/call");
        if is_call && count.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
            let reply = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
            client.write_all(reply).unwrap();
            continue;
        }
        server.write_all(&bytes[..length]).unwrap();
        let length = server.read(&mut bytes).unwrap();
        client.write_all(&bytes[..length]).unwrap();
    }
}

fn find(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_session_that_the_server_forgets_is_lost() {
    let backend = backend(BackendOptions {
        kind: BackendKind::Counter,
        ..BackendOptions::default()
    });
    // A relay between: it lets everything through and answers every tenth call with 404.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, target) = (listener.local_addr().unwrap(), backend.address());
    let count = Arc::new(AtomicU32::new(0));
    thread::spawn(move || {
        for client in listener.incoming() {
            let count = count.clone();
            thread::spawn(move || relay(client.unwrap(), target, &count));
        }
    });
    let report = run(RunOptions {
        url: format!("http://{address}/mcp"),
        calls: Some(35),
        tool: "increment".to_owned(),
        arguments: "{}".to_owned(),
        check: Check::Counter,
        ..RunOptions::default()
    })
    .unwrap();
    let kinds: Vec<_> = report.violations.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [ViolationKind::Lost; 3]);
    assert_eq!(report.errors["status"].count, 3);
    backend.stop();
}
