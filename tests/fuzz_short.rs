//! The fuzz targets' short form (reliability contract, section 8, promise 1): every target over its
//! corpus and over mutations of it from a fixed seed, `SHARDGATE_TEST_LONG` times as many when it
//! is set. The long form is `scripts/fuzz`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/cases.rs"]
mod cases;
#[path = "fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a crate of its own for the fuzzer")]
mod fuzz;
#[path = "support/mutate.rs"]
mod mutate;

use std::{fs, path::PathBuf};

use fuzz::{TARGETS, Verdict};
use mutate::Mutator;

const MUTANT_COUNT: usize = 20_000;

/// The files of a target's corpus, by name; for the HTTP ones the case files' lines too.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder.join(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    for case in cases::FILES.into_iter().flat_map(cases::cases) {
        let body = case.bytes.windows(4).position(|piece| piece == b"\r\n\r\n");
        match (target, body) {
            ("head", _) => seeds.push(case.bytes),
            ("chunked", Some(at)) => seeds.push(case.bytes[at + 4..].to_vec()),
            _ => {}
        }
    }
    // What is longer belongs to limits, which the case files' own test reaches.
    seeds.retain(|seed| seed.len() <= 4096);
    seeds
}

/// Runs a target over its corpus and mutants; each verdict must come up often enough to mean
/// something.
fn run(name: &str) {
    let factor: usize =
        std::env::var("SHARDGATE_TEST_LONG").map_or(1, |factor| factor.parse().expect("a factor"));
    let seeds = seeds(name);
    let mut counts = [0, 0];
    let mut count = |bytes: &[u8]| {
        let outcome = std::panic::catch_unwind(|| fuzz::run(name, bytes));
        let Ok(verdict) = outcome else {
            panic!("{name} fails with b\"{}\"", bytes.escape_ascii())
        };
        counts[usize::from(verdict == Verdict::Taken)] += 1;
    };
    for seed in &seeds {
        count(seed);
    }
    let mut mutator = Mutator::new(0x5eed);
    for _ in 0..MUTANT_COUNT * factor {
        count(&match mutator.below(2) {
            0 => mutator.mutant(&seeds),
            _ => mutator.near_mutant(&seeds),
        });
    }
    let [refused, taken] = counts;
    let few = MUTANT_COUNT * factor / 100;
    assert!(refused > few, "{name}: only {refused} refused");
    assert!(taken > few, "{name}: only {taken} taken");
    println!("{name}: {taken} taken, {refused} refused, all properties hold");
}

#[test]
fn heads_hold() {
    run("head");
}

#[test]
fn framing_holds() {
    run("framing");
}

#[test]
fn chunked_bodies_hold() {
    run("chunked");
}

#[test]
fn envelopes_hold() {
    run("envelope");
}

#[test]
fn replies_hold() {
    run("reply");
}

#[test]
fn tokens_hold() {
    run("jwt");
}

#[test]
fn user_configurations_hold() {
    run("user_config");
}

#[test]
fn redis_answers_hold() {
    run("resp");
}

#[test]
fn event_streams_hold() {
    run("sse");
}

#[test]
fn routes_hold() {
    run("route");
}

#[test]
fn session_ids_hold() {
    run("session_id");
}

#[test]
fn websocket_frames_hold() {
    run("websocket");
}

#[test]
fn messages_of_the_connection_gateway_hold() {
    run("gateway_message");
}

#[test]
fn every_target_has_a_corpus_a_program_and_a_test() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
    let tests = fs::read_to_string(root.join("fuzz_short.rs")).unwrap();
    for (name, _) in TARGETS {
        assert!(!seeds(name).is_empty(), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        assert!(tests.contains(&format!("run(\"{name}\");")), "{name}");
        let program = root.join(format!("fuzz/fuzz_targets/{name}.rs"));
        let program = fs::read_to_string(program).unwrap();
        assert!(
            program.contains(&format!("run(\"{name}\", data)")),
            "{name}"
        );
    }
    let programs = fs::read_dir(root.join("fuzz/fuzz_targets")).unwrap();
    assert_eq!(programs.count(), TARGETS.len());
}
