//! Coordinated omission, and latencies that are known.

use std::thread;

use loadgen::{
    arrivals::Arrivals,
    backend::{BackendOptions, Stall},
    delay::Delay,
    run::{Report, RunOptions, run},
};

use super::{backend, ms, options};

/// p99 in seconds.
fn p99(report: &Report) -> f64 {
    report.response.value_at_quantile(0.99) as f64 / 1e9
}

/// The server answers nothing for 1 s of every 10 s. Of 100 calls a second, a tenth are due in the
/// stall and wait for its end: the 99th percentile lies nine tenths into it. One caller in a closed
/// loop meets the stall once among thousands of calls.
#[test]
fn an_open_loop_shows_a_stall_that_a_closed_loop_hides() {
    let backend = backend(BackendOptions {
        shards: 2,
        stall: Some(Stall {
            every: ms(10_000),
            length: ms(1000),
        }),
        ..BackendOptions::default()
    });
    let open = RunOptions {
        rate: Some(100.0),
        connections: 16,
        duration: Some(ms(10_000)),
        ..options(&backend)
    };
    let closed = RunOptions {
        duration: Some(ms(10_000)),
        ..options(&backend)
    };
    let open = thread::spawn(move || run(open).unwrap());
    let closed = run(closed).unwrap();
    let open = open.join().unwrap();
    assert_eq!((open.error_count(), closed.error_count()), (0, 0));
    assert_eq!((open.sent, open.unsent), (1000, 0));
    assert!(p99(&open) >= 0.6, "open loop: {} s", p99(&open));
    assert!(p99(&closed) < 0.2, "closed loop: {} s", p99(&closed));
    // Both met it.
    assert!(closed.response.max() >= 800_000_000);
    // What the server took for a call is kept as well: at most 16 were under way in the stall.
    let service = open.service.value_at_quantile(0.97) as f64 / 1e9;
    assert!(service < 0.2, "service time: {service} s");
    backend.stop();
}

/// Whether each percentile is within 2 % of what the distribution has there.
fn agrees(report: &Report, expected: &[(f64, u64)]) -> Result<(), String> {
    for (quantile, expected_ms) in expected {
        let found = report.service.value_at_quantile(*quantile) as f64 / 1e6;
        let expected = *expected_ms as f64;
        if !(0.999 * expected..1.02 * expected).contains(&found) {
            return Err(format!("p{}: {found} ms, not {expected}", quantile * 100.0));
        }
    }
    Ok(())
}

/// A call of the tool `sleep` takes as long as its arguments say: of ten calls, one takes 200 ms,
/// two 300 ms, three 400 ms, and so on. The machine may be busy with other things, so a run that
/// was disturbed is made again; a generator that measures wrong is wrong each time.
#[test]
fn percentiles_of_a_known_distribution_are_right() {
    let backend = backend(BackendOptions::default());
    let sleep = |time_ms: u64, weight: f64| loadgen::operation::Operation {
        target: "sleep".to_owned(),
        arguments: format!(r#"{{"ms":{time_ms}}}"#),
        weight,
        ..loadgen::operation::Operation::of(loadgen::operation::Method::CallTool)
    };
    let attempt = |seed| {
        let report = run(RunOptions {
            rate: Some(200.0),
            connections: 200,
            arrivals: Arrivals::Poisson,
            duration: Some(ms(4000)),
            mix: vec![sleep(200, 60.0), sleep(400, 30.0), sleep(600, 10.0)],
            seed,
            ..options(&backend)
        })
        .unwrap();
        assert_eq!(report.error_count(), 0);
        // 0.6, 0.3 and 0.1 of about 800 calls: none of these is near a step.
        agrees(&report, &[(0.3, 200), (0.5, 200), (0.75, 400), (0.97, 600)])
    };
    let outcomes: Vec<_> = (1..=5).map(attempt).take_while(Result::is_err).collect();
    assert!(outcomes.len() < 5, "{outcomes:?}");
    backend.stop();
}

/// The server's own distributions come out as they are written.
#[test]
fn the_simulator_has_the_latency_it_is_told() {
    let backend = backend(BackendOptions {
        latency: Delay::Uniform(ms(100), ms(300)),
        ..BackendOptions::default()
    });
    let report = run(RunOptions {
        rate: Some(200.0),
        connections: 100,
        duration: Some(ms(3000)),
        ..options(&backend)
    })
    .unwrap();
    assert_eq!(report.error_count(), 0);
    // Of 600 evenly spread values the median is within 5 standard errors, 20 ms, of the middle; a
    // timer adds up to 2 ms, a busy machine more.
    let p50 = report.service.value_at_quantile(0.5) / 1_000_000;
    assert!((179..=260).contains(&p50), "{p50} ms");
    assert!(report.service.min() >= 99_000_000);
    backend.stop();
}
