//! Mixes, lives of sessions, agents, streams, payloads, tokens and shapes.

use std::time::Instant;

use loadgen::{
    arrivals::Shape,
    backend::{BackendKind, BackendOptions, ErrorKind},
    delay::Delay,
    era::Era,
    operation::{Method, Operation, Sizes},
    run::{Check, Pattern, Rhythm, RunFault, RunOptions, run, start},
    search::{SearchOptions, find_max},
    slo::Slo,
};

use super::{backend, ms, options};

fn weighted(method: Method, weight: f64) -> Operation {
    Operation {
        weight,
        ..Operation::of(method)
    }
}

#[test]
fn every_method_is_sent_and_every_reply_checked() {
    let backend = backend(BackendOptions {
        kind: BackendKind::All,
        resource_count: 3,
        prompt_count: 3,
        sse_share: Some(0.5),
        ..BackendOptions::default()
    });
    for pattern in [Pattern::Sticky, Pattern::Pooled, Pattern::Fresh] {
        let own = Method::ALL
            .into_iter()
            .filter(|method| method.is_of(Era::Legacy));
        let mut mix: Vec<_> = own.map(|method| weighted(method, 1.0)).collect();
        let call = mix.iter_mut().find(|one| one.method == Method::CallTool);
        call.unwrap().arguments = r#"{"text":"é \" \\ x"}"#.to_owned();
        mix.push(Operation {
            name: "payload".to_owned(),
            payload: Some(Sizes { min: 0, max: 9000 }),
            check: Check::Echo,
            ..Operation::of(Method::CallTool)
        });
        let report = run(RunOptions {
            connections: 3,
            shards: 2,
            calls: Some(900),
            pattern,
            mix,
            ..options(&backend)
        })
        .unwrap();
        assert_eq!(report.error_count(), 0, "{pattern:?} {:?}", report.errors);
        let operations = &report.recording.operations;
        for name in [
            "initialize",
            "ping",
            "tools_list",
            "tools_call",
            "resources_list",
            "resources_read",
            "prompts_list",
            "prompts_get",
            "payload",
        ] {
            // A ninth of 900 each; far fewer would be a draw that is not even.
            assert!(operations[name].sent > 50, "{pattern:?} {name}");
        }
        // Each new session takes the place of one that is ended.
        assert_eq!(operations["delete"].sent, operations["initialize"].sent);
        assert!(report.first_byte.is_some_and(|times| times.len() > 300));
    }
    backend.stop();
}

#[test]
fn a_session_lives_as_long_as_it_is_told() {
    let backend = backend(BackendOptions {
        kind: BackendKind::Counter,
        ..BackendOptions::default()
    });
    let report = run(RunOptions {
        connections: 2,
        calls: Some(100),
        session_life: Some(10),
        tool: "increment".to_owned(),
        arguments: "{}".to_owned(),
        check: Check::Counter,
        ..options(&backend)
    })
    .unwrap();
    assert_eq!(report.error_count(), 0, "{:?}", report.errors);
    let sent = |name: &str| report.recording.operations[name].sent;
    assert_eq!(sent("tools_call"), 100);
    // Fifty calls of each caller, or as the hundred came to be shared: a tenth, rounded down.
    assert!(
        (9..=10).contains(&sent("initialize")),
        "{}",
        sent("initialize")
    );
    assert_eq!(sent("delete"), sent("initialize"));
    backend.stop();
}

#[test]
fn agents_look_around_and_think() {
    let backend = backend(BackendOptions::default());
    let started = Instant::now();
    let report = run(RunOptions {
        connections: 4,
        duration: Some(ms(1500)),
        rhythm: Rhythm::Agent,
        think: Delay::Fixed(ms(100)),
        session_life: Some(6),
        ..options(&backend)
    })
    .unwrap();
    assert_eq!(report.error_count(), 0, "{:?}", report.errors);
    let sent = |name: &str| report.recording.operations[name].sent;
    // Once in each session that was used: the first four, and those in place of others.
    let sessions = sent("initialize") + 4;
    assert!((4..=sessions).contains(&sent("tools_list")));
    assert!(sent("initialize") >= 1);
    // At most 15 pauses and a beginning of five calls each, of four agents.
    assert!(sent("tools_call") <= 4 * 16 * 5, "{}", sent("tools_call"));
    assert!(sent("tools_call") >= 4 * 2);
    assert!(started.elapsed() >= ms(1400));
    backend.stop();
}

#[test]
fn streams_are_held_and_their_events_counted() {
    let backend = backend(BackendOptions {
        stream_interval: Some(ms(20)),
        ..BackendOptions::default()
    });
    let report = run(RunOptions {
        streams: 5,
        shards: 2,
        connections: 2,
        duration: Some(ms(1000)),
        think: Delay::Fixed(ms(50)),
        ..options(&backend)
    })
    .unwrap();
    assert_eq!(report.error_count(), 0, "{:?}", report.errors);
    // On a busy machine not every stream is open in time.
    let opened = report.recording.operations["stream_open"].sent;
    assert!((1..=5).contains(&opened), "{opened}");
    // 49 of each at the most.
    assert!(
        (2..=250).contains(&report.stream_events),
        "{}",
        report.stream_events
    );
    let gap = report.stream_gap.unwrap().value_at_quantile(0.5);
    assert!(gap >= 15_000_000, "{gap}");
    backend.stop();
}

#[test]
fn a_shape_is_sent_call_by_call() {
    let backend = backend(BackendOptions::default());
    let report = run(RunOptions {
        shape: Some(Shape::steps(100.0, 300.0, 100.0, ms(1500))),
        warm_up: ms(200),
        shards: 2,
        connections: 8,
        ..options(&backend)
    })
    .unwrap();
    // 20 in the warm-up, then 50, 100 and 150.
    assert_eq!((report.sent, report.unsent), (320, 0));
    assert_eq!(report.recording.sent(), 300);
    assert_eq!(report.rate, Some(300.0));
    backend.stop();
}

#[test]
fn failures_are_counted_by_reason_and_are_not_wrong_replies() {
    for (kind, reason) in [
        (ErrorKind::Rpc, "rpc_error"),
        (ErrorKind::Tool, "tool_error"),
        (ErrorKind::Status, "status"),
    ] {
        let backend = backend(BackendOptions {
            error_rate: 0.5,
            error_kind: kind,
            ..BackendOptions::default()
        });
        let report = run(RunOptions {
            calls: Some(400),
            ..options(&backend)
        })
        .unwrap();
        let count = report.errors[reason].count;
        // Ten standard deviations.
        assert!(count.abs_diff(200) <= 100, "{reason}: {count}");
        assert_eq!((report.wrong_count, report.sent), (0, 400));
        backend.stop();
    }
}

#[test]
fn what_has_no_schedule_has_no_rate() {
    for refused in [
        RunOptions {
            think: Delay::Fixed(ms(1)),
            ..RunOptions::default()
        },
        RunOptions {
            rhythm: Rhythm::Agent,
            ..RunOptions::default()
        },
    ] {
        let refused = start(RunOptions {
            url: "http://127.0.0.1:9/mcp".to_owned(),
            rate: Some(1.0),
            ..refused
        });
        assert!(matches!(refused.err().unwrap(), RunFault::Rhythm));
    }
}

/// One caller and a call that takes 20 ms: 50 calls a second at the most. Below, latency is near
/// 20 ms; above, calls are late, and later all the time.
#[test]
fn the_search_finds_what_a_server_can_do() {
    let backend = backend(BackendOptions {
        delay: Some(ms(20)),
        ..BackendOptions::default()
    });
    let slo: Slo = "p90=200ms,errors=0.1%".parse().unwrap();
    let mut told = 0;
    let search = SearchOptions {
        start: 5.0,
        probe: ms(1000),
        precision: 0.5,
        ..SearchOptions::default()
    };
    let found = find_max(&options(&backend), search, &slo, |_| told += 1).unwrap();
    let (good, bad) = (found.max.last_good.unwrap(), found.max.first_bad.unwrap());
    assert!(good >= 5.0 && bad <= 80.0 && good < bad, "{good} {bad}");
    assert_eq!(told, found.steps.len());
    assert_eq!(found.best.recording.found_max.as_ref(), Some(&found.max));
    assert_eq!(found.best.rate, Some(good));
    assert!(!found.is_wrong);
    let remark = &found.steps.iter().find(|step| !step.is_met).unwrap().remark;
    assert!(remark.contains("p90 <= 200 ms"), "{remark}");
    backend.stop();
}
