//! The load generator's verdict on the gateway: with four shards, and every call coming over a
//! connection of another shard's, each session still counts on.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "support/support.rs"]
mod support;

use loadgen::{
    backend::{Backend, BackendKind, BackendOptions, CounterFault},
    operation::{Method, Operation},
    run::{Check, Pattern, Report, RunOptions, run},
    slo::Slo,
    tokens::{Claims, Signer},
    verdict::{Outcome, judge},
};
use support::{Gateway, HOST, Plan};

const SHARDS: u16 = 4;
const CALLS: u64 = 2000;

fn counter(fault: Option<CounterFault>) -> Backend {
    Backend::start(BackendOptions {
        kind: BackendKind::Counter,
        counter_fault: fault,
        ..BackendOptions::default()
    })
    .unwrap()
}

fn start(backend: &Backend) -> Gateway {
    Plan::of(&[("counter", &backend.url())])
        .shards(usize::from(SHARDS))
        .start()
}

fn count(gateway: &Gateway, pattern: Pattern) -> Report {
    run(RunOptions {
        url: format!("http://{}/servers/{HOST}/mcp", gateway.address),
        connections: 8,
        sessions: Some(32),
        calls: Some(CALLS),
        pattern,
        tool: "increment".to_owned(),
        arguments: "{}".to_owned(),
        check: Check::Counter,
        target_shards: Some(SHARDS),
        ..RunOptions::default()
    })
    .unwrap()
}

#[test]
fn affinity_holds_however_connections_are_spread() {
    let backend = counter(None);
    let gateway = start(&backend);
    let mut forwarded = gateway.metric("shardgate_forwarded_total");
    for (pattern, share) in [
        // Nearly all: a worker that finds no foreign session free takes one of its own.
        (Pattern::Spread, 0.9..1.1),
        // About three of four.
        (Pattern::Pooled, 0.4..1.1),
        (Pattern::Sticky, 0.0..0.05),
    ] {
        let mut report = count(&gateway, pattern);
        assert_eq!(
            judge(&mut report, &Slo::default()),
            Outcome::Passed,
            "{pattern:?}"
        );
        assert_eq!(
            (report.violation_count, report.sent),
            (0, CALLS),
            "{pattern:?}"
        );
        let after = gateway.metric("shardgate_forwarded_total");
        let found = (after - forwarded) as f64 / CALLS as f64;
        // Opening and ending sessions adds a few.
        let slack = 0.15;
        assert!(
            (share.start..share.end + slack).contains(&found),
            "{pattern:?}: {found} of the calls were forwarded"
        );
        forwarded = after;
        // What the generator says of the owners is all calls, and all of them are in use.
        let owners = &report.recording.owners;
        assert_eq!(owners.values().map(|owner| owner.sent).sum::<u64>(), CALLS);
        assert!(owners.keys().all(|shard| *shard < SHARDS));
        assert!(owners.len() > 1, "{owners:?}");
    }
}

#[test]
fn a_server_that_mixes_sessions_up_is_found_through_the_gateway() {
    let backend = counter(Some(CounterFault::Mixed));
    let gateway = start(&backend);
    let mut report = count(&gateway, Pattern::Spread);
    assert_eq!(judge(&mut report, &Slo::default()), Outcome::Broken);
    let violation = report.violations.first().unwrap();
    assert!(
        violation.owner.is_some() && violation.through.is_some(),
        "{violation}"
    );
}

#[test]
fn each_virtual_user_has_a_token_that_the_gateway_takes() {
    let backend = counter(None);
    let gateway = Plan::of(&[("counter", &backend.url())])
        .with_tokens()
        .settings(|settings| {
            settings.auth.secret = Some(shardgate::settings::Secret::new(b"one for minting"));
        })
        .start();
    let now = shards::clock::unix_s();
    let minted = |secret: &[u8]| Signer::secret(secret).mint_all(&Claims::default(), 3, now);
    let options = |secret: &[u8]| RunOptions {
        url: format!("http://{}/servers/{HOST}/mcp", gateway.address),
        connections: 6,
        calls: Some(120),
        session_life: Some(7),
        mix: vec![
            Operation::of(Method::ListTools),
            Operation {
                target: "increment".to_owned(),
                check: Check::Counter,
                weight: 4.0,
                ..Operation::of(Method::CallTool)
            },
        ],
        tokens: minted(secret).unwrap(),
        ..RunOptions::default()
    };
    let report = run(options(b"one for minting")).unwrap();
    assert_eq!(report.error_count(), 0, "{:?}", report.errors);
    let refused = run(options(b"another one"));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "cannot open a session: HTTP status 401"
    );
}
