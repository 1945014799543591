//! Callers without sessions, over real sockets: what they send, what they demand of replies, and
//! what they cannot be told to do.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

use std::{
    io::{Read, Write},
    net::TcpListener,
};

use loadgen::{
    backend::{Backend, BackendKind, BackendOptions, ReplyKind},
    era::Era,
    operation::{Method, Operation},
    run::{Check, Pattern, Rhythm, RunFault, RunOptions, run},
};

fn backend(options: BackendOptions) -> Backend {
    Backend::start(BackendOptions {
        kind: BackendKind::All,
        resource_count: 2,
        prompt_count: 2,
        ..options
    })
    .unwrap()
}

fn options(url: String) -> RunOptions {
    RunOptions {
        url,
        era: Era::Stateless,
        connections: 3,
        calls: Some(300),
        ..RunOptions::default()
    }
}

/// Every method of the era, all as often.
fn everything() -> Vec<Operation> {
    let methods = Method::ALL.into_iter();
    let methods = methods.filter(|method| method.is_of(Era::Stateless));
    methods
        .map(|method| match method {
            Method::CallTool => Operation {
                arguments: r#"{"text":"hello"}"#.to_owned(),
                check: Check::Echo,
                ..Operation::of(method)
            },
            _ => Operation::of(method),
        })
        .collect()
}

#[test]
fn every_method_is_answered_over_any_connections() {
    for reply in [ReplyKind::Json, ReplyKind::Sse] {
        // A server that knows no sessions finds out who asks for one.
        let backend = backend(BackendOptions {
            era: Some(Era::Stateless),
            reply,
            ..BackendOptions::default()
        });
        for pattern in [Pattern::Sticky, Pattern::Pooled, Pattern::Fresh] {
            let report = run(RunOptions {
                mix: everything(),
                pattern,
                ..options(backend.url())
            })
            .unwrap();
            assert_eq!(report.error_count(), 0, "{pattern:?} {:?}", report.errors);
            assert_eq!(report.sent, 300);
            let operations = &report.recording.operations;
            assert_eq!(operations.len(), everything().len());
            for (name, operation) in operations {
                assert!(operation.good() > 0, "{name}");
            }
        }
        assert_eq!(backend.stop(), 0);
    }
}

#[test]
fn one_endpoint_serves_both_eras_and_agents_of_both() {
    let backend = backend(BackendOptions::default());
    for era in Era::ALL {
        let report = run(RunOptions {
            era,
            rhythm: Rhythm::Agent,
            think: "1ms".parse().unwrap(),
            calls: Some(30),
            ..options(backend.url())
        })
        .unwrap();
        assert_eq!(report.error_count(), 0, "{era:?} {:?}", report.errors);
        assert_eq!(backend.calls() % 30, 0);
    }
    assert_eq!(backend.calls(), 60);
    backend.stop();
}

#[test]
fn a_server_of_the_older_revisions_fails_every_call() {
    let backend = backend(BackendOptions {
        era: Some(Era::Legacy),
        ..BackendOptions::default()
    });
    let report = run(options(backend.url())).unwrap();
    assert_eq!(report.error_count(), 300);
    assert_eq!(report.errors["status"].count, 300);
    backend.stop();
}

/// Answers one call with this result member, and the head lines it is given.
fn server_that_says(lines: &'static str, result: &'static str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        let mut request = Vec::new();
        while !request.ends_with(b"}}}") {
            let count = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..count]);
        }
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{{result}}}}}"#);
        let length = body.len();
        let reply = format!("HTTP/1.1 200 OK\r\n{lines}content-length: {length}\r\n\r\n{body}");
        stream.write_all(reply.as_bytes()).unwrap();
    });
    url
}

#[test]
fn replies_that_only_a_session_could_have_are_wrong() {
    const CONTENT: &str = r#""content":[{"type":"text","text":"hello"}]"#;
    const COMPLETE: &str = r#""resultType":"complete","content":[{"type":"text","text":"hello"}]"#;
    for (lines, result, label) in [
        ("", COMPLETE, None),
        ("", CONTENT, Some("wrong_result_type")),
        (
            "",
            r#""resultType":"input_required""#,
            Some("wrong_result_type"),
        ),
        ("mcp-session-id: abc\r\n", COMPLETE, Some("session_given")),
    ] {
        let report = run(RunOptions {
            connections: 1,
            calls: Some(1),
            ..options(server_that_says(lines, result))
        })
        .unwrap();
        let labels: Vec<&str> = report.errors.keys().map(|label| &**label).collect();
        assert_eq!(labels, Vec::from_iter(label), "{lines}{result}");
    }
}

#[test]
fn what_needs_a_session_is_refused() {
    let of = |method| vec![Operation::of(method)];
    let plain = || options("http://127.0.0.1:9/mcp".to_owned());
    for (name, options) in [
        (
            "mix",
            RunOptions {
                mix: of(Method::Ping),
                ..plain()
            },
        ),
        (
            "mix",
            RunOptions {
                mix: of(Method::Initialize),
                ..plain()
            },
        ),
        (
            "mix",
            RunOptions {
                mix: of(Method::Discover),
                era: Era::Legacy,
                ..plain()
            },
        ),
        (
            "sessions",
            RunOptions {
                sessions: Some(2),
                ..plain()
            },
        ),
        (
            "session-life",
            RunOptions {
                session_life: Some(2),
                ..plain()
            },
        ),
        (
            "streams",
            RunOptions {
                streams: 1,
                ..plain()
            },
        ),
        (
            "target-shards",
            RunOptions {
                target_shards: Some(2),
                ..plain()
            },
        ),
        (
            "connections",
            RunOptions {
                pattern: Pattern::Spread,
                ..plain()
            },
        ),
        (
            "expect",
            RunOptions {
                check: Check::Counter,
                ..plain()
            },
        ),
    ] {
        match run(options) {
            Err(RunFault::Era(text)) => assert!(text.starts_with(name), "{text}"),
            other => panic!("{name}: {:?}", other.map(|report| report.sent)),
        }
    }
}
