//! `bench compare`.

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use clap::Args;

use super::EXIT_NOTHING;
use crate::{
    compare::{CompareOptions, compare},
    targets::TARGETS,
};

#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// Half a second a sample: to see that everything works, not to quote.
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// One JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Seconds of each sample.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Cycles; medians are over them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: u32,
    /// The gateway's release binary.
    #[arg(long, default_value = "target/release/shardgate")]
    gateway: PathBuf,
    /// Targets to measure, as V1,V5; none: all.
    #[arg(long, value_delimiter = ',', value_parser = target_id)]
    only: Vec<String>,
    /// Core of the process under test.
    #[arg(long, default_value_t = 0)]
    test_cpu: usize,
    /// Core of load and backends.
    #[arg(long, default_value_t = 1)]
    load_cpu: usize,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.05 to 3600 seconds".to_owned()),
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
    let is_json = arguments.json;
    let outcome = match compare(options_of(arguments)) {
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
    CompareOptions {
        seconds: if arguments.quick {
            0.5
        } else {
            arguments.seconds
        },
        cycles: arguments.cycles,
        gateway: arguments.gateway,
        only,
        test_cpu: arguments.test_cpu,
        load_cpu: arguments.load_cpu,
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
        for line in [
            "compare --only V99",
            "compare --quick --seconds 1",
            "compare --seconds 0",
            "compare --cycles 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
