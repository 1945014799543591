//! The `bench` command line.

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use crate::{
    compare::{CompareOptions, compare},
    targets::TARGETS,
};

/// Nothing could be measured.
const EXIT_NOTHING: u8 = 3;

/// Side-by-side measurements of the gateway.
#[derive(Debug, Parser)]
#[command(name = "bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare direct calls, nginx and the gateway in one run. Who is absent is skipped; ends with
    /// 3 when nothing could be measured.
    Compare(CompareArguments),
}

#[derive(Debug, Args)]
struct CompareArguments {
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

/// Runs the command; the first argument is the program's own name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and usage faults alike; a closed terminal is no reason to fail twice.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    let Command::Compare(arguments) = cli.command;
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
    use clap::CommandFactory;

    #[test]
    fn command_lines() {
        Cli::command().debug_assert();
        let parse = |line: &str| {
            Cli::try_parse_from(line.split(' ')).map(|cli| {
                let Command::Compare(arguments) = cli.command;
                options_of(arguments)
            })
        };
        let options = parse("bench compare --quick --cycles 5 --only v1,S2 --gateway g").unwrap();
        assert!((options.seconds - 0.5).abs() < 1e-9);
        assert_eq!((options.cycles, options.only.len()), (5, 2));
        for line in [
            "bench compare --only V99",
            "bench compare --quick --seconds 1",
            "bench compare --seconds 0",
            "bench compare --cycles 0",
            "bench",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
