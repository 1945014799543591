//! `bench compare`.

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use clap::Args;

use super::EXIT_NOTHING;
use crate::{
    compare::{CompareFault, CompareOptions, Outcome, RATE_OF_V8, compare},
    contestant::Peer,
    targets::TARGETS,
};

/// Cycles, when nobody says how many; fewer tell nothing about what the machine does meanwhile.
const CYCLES_MIN: u32 = 3;

const LESSON: &str = "\
How it is measured:
  Whoever is under test has one core, the load and the backends another. In each cycle all take
  turns, in reversed order every other time; a ratio is between two samples of one cycle, and the
  median over the cycles is what counts. Saturated (64 kept connections, each calls again when its
  reply has come) the CPU time of a call is the figure. At a fixed rate calls start when they are
  due, whether replies have come or not, and response times count from then: that is for latency.

What is refused:
  A sample of which more than 0.1 % of the calls failed, or less than 99 % of the schedule was sent,
  stands in the table with a mark, and takes no part in medians, ratios and targets.

Other gateways:
  Start yours in front of the backends of this bench, which listen in a row from --backend-port on:
  json200, json16k, sse200. Pin it to the core under test. Say where it listens ({case} stands for
  the case; without it only json200 is asked for), which process it is (pid=, for CPU time), under
  which name it has the tool `echo` (tool=), and the header lines it wants.
    taskset -c 0 other-gateway --upstream http://127.0.0.1:18901/mcp &
    bench compare --backend-port 18901 --only V1,V8 \\
        --peer 'other=http://127.0.0.1:3000/mcp,pid=4711,tool=b_echo,Authorization: Bearer T'

Examples:
  Everything (about five minutes):
    cargo build --release && cargo run --release -p bench -- compare
  Whether it works at all:
    cargo run --release -p bench -- compare --quick
  Latency at three rates, five cycles:
    cargo run --release -p bench -- compare --only V8 --rates 1000,5000,20000 --cycles 5

Exit codes: 0 measured (read the verdicts), 3 nothing could be measured.";

#[derive(Debug, Args)]
#[command(after_help = LESSON)]
pub(super) struct CompareArguments {
    /// The gateway's release binary.
    #[arg(long, default_value = "target/release/shardgate")]
    gateway: PathBuf,
    /// Targets to measure, as V1,V5; none: all. V8 is read at 5000 calls per second.
    #[arg(long, value_delimiter = ',', value_parser = target_id)]
    only: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// What `compare` and `engines` have in common.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Half a second a sample, and one cycle: to see that everything works, not to quote.
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// One JSON object instead of tables.
    #[arg(long)]
    pub(super) json: bool,
    /// Seconds of each sample.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Cycles, at least 3; medians are over them.
    #[arg(long, value_parser = clap::value_parser!(u32).range(i64::from(CYCLES_MIN)..=1000))]
    cycles: Option<u32>,
    /// Calls per second of the open loops.
    #[arg(long, value_delimiter = ',', value_parser = rate, default_values_t = [1000.0, 5000.0, 10_000.0])]
    rates: Vec<f64>,
    /// Another gateway, as NAME=URL[,pid=NUMBER][,tool=NAME][,HEADER: VALUE]...; may be repeated.
    #[arg(long = "peer", value_name = "PEER")]
    peers: Vec<Peer>,
    /// First port of the backends; by default they take free ones.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65_000))]
    backend_port: Option<u16>,
    /// Core of the process under test.
    #[arg(long, default_value_t = 0)]
    test_cpu: usize,
    /// Core of load and backends.
    #[arg(long, default_value_t = 1)]
    load_cpu: usize,
}

impl Common {
    /// Options for all targets.
    pub(super) fn options(self) -> CompareOptions {
        CompareOptions {
            seconds: if self.quick { 0.5 } else { self.seconds },
            cycles: match self.cycles {
                Some(cycles) => cycles,
                None if self.quick => 1,
                None => CYCLES_MIN,
            },
            gateway: PathBuf::new(),
            peers: self.peers,
            backend_port: self.backend_port,
            rates: self.rates,
            only: BTreeSet::new(),
            test_cpu: self.test_cpu,
            load_cpu: self.load_cpu,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.05 to 3600 seconds".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1.0..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("1 to 10000000 calls per second".to_owned()),
    }
}

fn target_id(text: &str) -> Result<String, String> {
    let id = text.trim().to_ascii_uppercase();
    if TARGETS.iter().any(|target| target.id == id) {
        Ok(id)
    } else {
        let known: Vec<_> = TARGETS.iter().map(|target| target.id).collect();
        Err(format!("one of {}", known.join(", ")))
    }
}

/// Compares; the exit code says whether there was anything to compare.
pub(super) fn run(arguments: CompareArguments) -> ExitCode {
    let is_json = arguments.common.json;
    report(compare(options_of(arguments)), is_json)
}

/// Prints what was found; the exit code says whether anything was.
pub(super) fn report(found: Result<Outcome, CompareFault>, is_json: bool) -> ExitCode {
    let outcome = match found {
        Ok(outcome) => outcome,
        Err(fault) => {
            eprintln!("bench: {fault}");
            return ExitCode::from(EXIT_NOTHING);
        }
    };
    if is_json {
        println!("{}", outcome.to_json());
    } else {
        print!("{}", outcome.to_text());
    }
    if outcome.is_empty() {
        ExitCode::from(EXIT_NOTHING)
    } else {
        ExitCode::SUCCESS
    }
}

fn options_of(arguments: CompareArguments) -> CompareOptions {
    // V18 has two figures; whoever asks for one gets both.
    let only: BTreeSet<String> = arguments
        .only
        .into_iter()
        .map(|id| if id == "V18B" { "V18".to_owned() } else { id })
        .collect();
    let mut options = arguments.common.options();
    if only.contains("V8") && !options.rates.contains(&RATE_OF_V8) {
        options.rates.push(RATE_OF_V8);
    }
    CompareOptions {
        gateway: arguments.gateway,
        only,
        ..options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        arguments: CompareArguments,
    }

    #[test]
    fn command_lines() {
        let parse = |line: &str| {
            Probe::try_parse_from(line.split(' ')).map(|probe| options_of(probe.arguments))
        };
        let options = parse("compare --quick --cycles 5 --only v1,S2 --gateway g").unwrap();
        assert!((options.seconds - 0.5).abs() < 1e-9);
        assert_eq!((options.cycles, options.only.len()), (5, 2));
        assert_eq!(parse("compare --quick").unwrap().cycles, 1);
        let options = parse("compare --only V8 --rates 100,200 --peer a=http://127.0.0.1:1/mcp");
        let options = options.unwrap();
        assert_eq!(options.rates, [100.0, 200.0, RATE_OF_V8]);
        assert_eq!((options.cycles, options.peers[0].name.as_str()), (3, "a"));
        for line in [
            "compare --only V99",
            "compare --quick --seconds 1",
            "compare --seconds 0",
            "compare --cycles 2",
            "compare --rates 0",
            "compare --peer nginx=http://127.0.0.1:1/mcp",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
