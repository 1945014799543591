//! The load generator against the gateway: every exchange ends whole, whichever shard owns the
//! client, and what is refused is told by its kind.

use std::time::Duration;

use loadgen::{
    exchange::{ExchangeOptions, Secret},
    operation::Sizes,
    run::{Pattern, Report, RunFault, RunOptions, run},
    slo::Slo,
    verdict::{Outcome, judge},
};

use super::stage::{Node, PATH, SECRET, SHARDS};

const CALLS: u64 = 400;

fn options(node: &Node) -> RunOptions {
    RunOptions {
        url: format!("http://{}", node.http),
        token: Some("token".to_owned()),
        connections: 12,
        calls: Some(CALLS),
        sessions: Some(6),
        shards: 2,
        exchange: Some(ExchangeOptions {
            clients_at: format!("ws://{}{PATH}", node.websocket),
            secret: Secret(SECRET.to_vec()),
            chunks: 5,
            chunk_bytes: 300,
            request: Sizes {
                min: 1,
                max: 20_000,
            },
            heartbeats: 0.5,
        }),
        ..RunOptions::default()
    }
}

fn outcome(report: &mut Report) -> Outcome {
    let slo: Slo = "errors=0%".parse().unwrap();
    judge(report, &slo)
}

#[test]
fn every_exchange_is_whole() {
    for shards in SHARDS {
        let node = Node::start(shards);
        for pattern in [Pattern::Sticky, Pattern::Fresh] {
            let mut report = run(RunOptions {
                pattern,
                target_shards: Some(u16::try_from(shards).unwrap()),
                ..options(&node)
            })
            .unwrap();
            assert_eq!((report.sent, report.wrong_count), (CALLS, 0), "{shards}");
            assert_eq!(
                outcome(&mut report),
                Outcome::Passed,
                "{}",
                report.to_text()
            );
            assert_eq!(report.first_byte.as_ref().unwrap().len(), CALLS);
            let owners = &report.recording.owners;
            let sessions: u64 = owners.values().map(|owner| owner.sessions).sum();
            assert_eq!(sessions, 6);
        }
        // The clients have ended with their run, before the next one began.
        assert_eq!(node.metrics()["activeSessions"], 0);
        assert!(node.stop());
    }
}

#[test]
fn a_schedule_is_kept_and_a_limit_is_told_by_its_status() {
    let node = Node::with(1, |settings| settings.in_flight_max = 1);
    let mut report = run(RunOptions {
        calls: None,
        rate: Some(100.0),
        duration: Some(Duration::from_secs(1)),
        connections: 4,
        sessions: Some(4),
        shards: 1,
        ..options(&node)
    })
    .unwrap();
    assert_eq!((report.sent, report.unsent), (100, 0));
    assert_eq!(
        outcome(&mut report),
        Outcome::Passed,
        "{}",
        report.to_text()
    );
    // Four callers of one client that takes one request at a time.
    let crowded = run(RunOptions {
        sessions: Some(1),
        shards: 1,
        ..options(&node)
    })
    .unwrap();
    let refused = &crowded.errors["status"];
    assert!(refused.count > 0 && refused.first.contains("429"));
    assert_eq!(crowded.wrong_count, 0);
    assert!(node.stop());
}

#[test]
fn a_wrong_secret_is_told_before_anything_is_sent() {
    let node = Node::start(1);
    let mut wrong = options(&node);
    if let Some(exchange) = &mut wrong.exchange {
        exchange.secret = Secret(b"another".to_vec());
    }
    let fault = run(wrong).unwrap_err();
    assert!(matches!(fault, RunFault::Setup(_)), "{fault}");
    assert!(fault.to_string().contains("JWT_SECRET"), "{fault}");
    let mut stranger = options(&node);
    stranger.token = Some("stranger".to_owned());
    let report = run(stranger).unwrap();
    assert!(report.errors["status"].first.contains("401"));
    assert!(node.stop());
}
