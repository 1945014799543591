//! Backend and generator together, over real sockets.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use loadgen::{
    backend::{Backend, BackendKind, BackendOptions, ReplyKind},
    operation::{Method, Operation},
    run::{Check, Pattern, RunFault, RunOptions, run, start},
};
use shards::DriverChoice;

fn backend(options: BackendOptions) -> Backend {
    Backend::start(options).unwrap()
}

fn options(backend: &Backend) -> RunOptions {
    RunOptions {
        url: backend.url(),
        ..RunOptions::default()
    }
}

#[test]
fn counters_follow_in_every_session_whatever_the_connections_do() {
    for (driver, reply) in [
        (DriverChoice::Auto, ReplyKind::Json),
        (DriverChoice::Epoll, ReplyKind::Sse),
    ] {
        for shards in [1, 2] {
            let backend = backend(BackendOptions {
                kind: BackendKind::Counter,
                driver,
                reply,
                shards,
                ..BackendOptions::default()
            });
            for pattern in [
                Pattern::Sticky,
                Pattern::Pooled,
                Pattern::Spread,
                Pattern::Fresh,
            ] {
                let before = backend.calls();
                let report = run(RunOptions {
                    connections: 5,
                    shards,
                    driver,
                    calls: Some(303),
                    pattern,
                    tool: "increment".to_owned(),
                    arguments: "{}".to_owned(),
                    check: Check::Counter,
                    ..options(&backend)
                })
                .unwrap();
                assert_eq!(report.error_count(), 0, "{pattern:?} {:?}", report.errors);
                assert_eq!(
                    (report.sent, report.service.len()),
                    (303, 303),
                    "{pattern:?}"
                );
                assert_eq!(backend.calls() - before, 303, "one request for each call");
            }
            assert_eq!(backend.stop(), 0);
        }
    }
}

#[test]
fn a_fixed_rate_sends_what_it_says() {
    let backend = backend(BackendOptions::default());
    let report = run(RunOptions {
        connections: 3,
        shards: 2,
        rate: Some(250.0),
        warm_up: Duration::from_millis(200),
        duration: Some(Duration::from_secs(1)),
        ..options(&backend)
    })
    .unwrap();
    assert_eq!(
        (report.sent, report.unsent, report.error_count()),
        (300, 0, 0)
    );
    assert_eq!(report.service.len(), 250, "the warm-up is not measured");
    assert!(report.is_honest());
    let (response, slip) = (report.response.max(), report.slip.unwrap().max());
    assert!(
        response >= slip,
        "a late start is part of the response time"
    );
    backend.stop();
}

#[test]
fn a_slow_server_makes_calls_late_and_not_fewer() {
    let backend = backend(BackendOptions {
        delay: Some(Duration::from_millis(20)),
        ..BackendOptions::default()
    });
    // One connection can make 50 calls a second at the most; 100 are due.
    let report = run(RunOptions {
        rate: Some(100.0),
        duration: Some(Duration::from_millis(500)),
        ..options(&backend)
    })
    .unwrap();
    assert_eq!((report.sent, report.unsent), (50, 0));
    // The last call is due after 490 ms and cannot start before 49 others took 20 ms each.
    assert!(
        report.response.max() >= 500_000_000,
        "{}",
        report.response.max()
    );
    backend.stop();
}

#[test]
fn sizes_are_exact_and_wrong_ones_are_found() {
    for reply in [ReplyKind::Json, ReplyKind::Sse] {
        let backend = backend(BackendOptions {
            payload_bytes: Some(16 * 1024),
            reply,
            ..BackendOptions::default()
        });
        let wanted = |bytes| {
            run(RunOptions {
                calls: Some(20),
                check: Check::Bytes(bytes),
                ..options(&backend)
            })
            .unwrap()
        };
        assert_eq!(wanted(16 * 1024).error_count(), 0);
        let report = wanted(16 * 1024 - 33);
        assert_eq!(
            (report.errors["wrong_size"].count, report.service.len()),
            (20, 0)
        );
        backend.stop();
    }
}

#[test]
fn errors_are_counted_by_reason() {
    let backend = backend(BackendOptions::default());
    for (tool, arguments, reason) in [
        ("nope", "{}", "rpc_error"),
        ("echo", r#"{"text":1}"#, "tool_error"),
    ] {
        let report = run(RunOptions {
            calls: Some(3),
            tool: tool.to_owned(),
            arguments: arguments.to_owned(),
            ..options(&backend)
        })
        .unwrap();
        assert_eq!((report.errors[reason].count, report.error_count()), (3, 3));
    }
    backend.stop();
}

#[test]
fn a_run_is_watched_and_stopped() {
    let backend = backend(BackendOptions::default());
    let running = start(RunOptions {
        connections: 4,
        ..options(&backend)
    })
    .unwrap();
    while running.calls() < 100 {
        std::thread::yield_now();
    }
    running.stop();
    let report = running.wait().unwrap();
    assert!(report.sent >= 100);
    assert_eq!(report.error_count(), 0);
    backend.stop();
}

#[test]
fn a_server_that_dies_is_told() {
    let backend = backend(BackendOptions::default());
    let running = start(RunOptions {
        connections: 2,
        limit: Duration::from_secs(1),
        ..options(&backend)
    })
    .unwrap();
    let url = backend.url();
    backend.stop();
    let calls = running.calls();
    while running.calls() < calls + 2 {
        std::thread::yield_now();
    }
    running.stop();
    assert!(running.wait().unwrap().error_count() > 0);
    assert!(matches!(
        run(RunOptions {
            url,
            ..RunOptions::default()
        }),
        Err(RunFault::Setup(_))
    ));
}

#[test]
fn further_headers_are_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let hearing = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        let mut piece = [0; 1024];
        while !heard.windows(4).any(|window| window == b"\r\n\r\n") {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "it ended early");
            heard.extend_from_slice(&piece[..count]);
        }
        String::from_utf8(heard).unwrap()
    });
    let options = RunOptions {
        url,
        headers: vec!["x-tenant: a, b".into(), "authorization: Basic eA==".into()],
        ..RunOptions::default()
    };
    // Nobody answers `initialize`.
    assert!(matches!(start(options).map(drop), Err(RunFault::Setup(_))));
    let head = hearing.join().unwrap();
    assert!(
        head.contains("\r\nx-tenant: a, b\r\nauthorization: Basic eA==\r\n"),
        "{head}"
    );
}

#[test]
fn bad_options_are_refused() {
    let bad = |options| match start(options) {
        Ok(_) => panic!("it started"),
        Err(fault) => fault,
    };
    let good = || RunOptions {
        url: "http://127.0.0.1:9/mcp".to_owned(),
        ..RunOptions::default()
    };
    assert!(matches!(
        bad(RunOptions {
            arguments: "[]".into(),
            ..good()
        }),
        RunFault::Arguments(_)
    ));
    assert!(matches!(
        bad(RunOptions {
            rate: Some(0.0),
            ..good()
        }),
        RunFault::Rate
    ));
    assert!(matches!(
        bad(RunOptions {
            token: Some("a\r\nb".into()),
            ..good()
        }),
        RunFault::Token
    ));
    assert!(matches!(
        bad(RunOptions {
            headers: vec!["host: elsewhere".into()],
            ..good()
        }),
        RunFault::Header(name) if name == "host"
    ));
    assert!(matches!(
        bad(RunOptions {
            url: "ftp://x".into(),
            ..good()
        }),
        RunFault::Target(_)
    ));
}

/// Sends raw bytes and reads until the answer ends with `end`.
fn raw(stream: &mut TcpStream, bytes: &str, end: &str) -> String {
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(
            count > 0,
            "closed after {}",
            String::from_utf8_lossy(&answer)
        );
        answer.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_wrong_session_is_404_and_pipelined_requests_are_answered_in_order() {
    let backend = backend(BackendOptions::default());
    let mut stream = TcpStream::connect(backend.address()).unwrap();
    let request = |id: u32, session: &str, method: &str| {
        let body = format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","#,
                r#""params":{{"protocolVersion":"2024-11-05"}}}}"#
            ),
            id = id,
            method = method
        );
        format!(
            "POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n\
             {session}content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = raw(
        &mut stream,
        &request(1, "mcp-session-id: no\r\n", "ping"),
        "}}",
    );
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
    assert!(answer.ends_with(r#""error":{"code":-32001,"message":"Session not found"}}"#));
    let answer = raw(&mut stream, &request(2, "", "initialize"), "}}}");
    let id = &answer.split("mcp-session-id: ").nth(1).unwrap()[..32];
    let header = format!("mcp-session-id: {id}\r\n");
    let both = [request(3, &header, "ping"), request(4, &header, "ping")].concat();
    let answer = raw(&mut stream, &both, "\"id\":4,\"result\":{}}");
    assert!(answer.find("\"id\":3").unwrap() < answer.find("\"id\":4").unwrap());
    backend.stop();
}

/// A generator with a core of its own polls when calls are due one after the other. A call that is
/// never answered ends all the same when its time is over, and not only when the schedule is.
#[test]
fn time_limits_hold_while_a_schedule_is_polled() {
    let backend = backend(BackendOptions::default());
    let call = |target: &str, arguments: &str, weight| Operation {
        target: target.to_owned(),
        arguments: arguments.to_owned(),
        weight,
        ..Operation::of(Method::CallTool)
    };
    let report = run(RunOptions {
        cpus: Some(vec![0]),
        rate: Some(7500.0),
        connections: 64,
        duration: Some(Duration::from_secs(3)),
        limit: Duration::from_millis(300),
        mix: vec![
            call("echo", r#"{"text":"hello"}"#, 2000.0),
            call("sleep", r#"{"ms":60000}"#, 1.0),
        ],
        ..options(&backend)
    })
    .unwrap();
    let early: u64 = report
        .recording
        .flow
        .iter()
        .take(2)
        .map(|one| one.errors)
        .sum();
    assert!(early > 0, "{}", report.to_text());
    assert!(report.errors.keys().all(|reason| reason == "timeout"));
    backend.stop();
}
