//! The `loadgen` command line: `run`, `join`, `compare`, `scenario` and `backend`.

mod backend;
mod compare;
mod join;
mod run;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};
use shards::{DriverChoice, topology::parse_cpu_list};

use crate::scenario::EXAMPLE;

/// Nothing was measured: the command line, the scenario or the target is at fault.
const EXIT_SETUP: u8 = 3;

/// Loads MCP endpoints and measures them.
#[derive(Debug, Parser)]
#[command(name = "loadgen", version, arg_required_else_help = true)]
#[command(after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 passed; 1 an objective was missed or a reply was wrong; 2 less than 99 % of the
schedule was sent, so that the figures say nothing; 3 nothing was measured.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Load an endpoint, check every reply and report times.
    Run(Box<run::RunArguments>),
    /// Add up the folders of runs of several generators, exactly, and judge them together.
    Join(join::JoinArguments),
    /// Compare two runs, and fail when a condition holds.
    Compare(compare::CompareArguments),
    /// Print a scenario file in which every key is explained.
    Scenario,
    /// Serve the backend simulator until the process is ended.
    Backend(Box<backend::BackendArguments>),
}

#[derive(Debug, Clone, Args)]
struct Machine {
    /// Shards.
    #[arg(long, default_value_t = 1)]
    shards: u16,
    /// CPUs to pin the shards to, as 0-3,6; none: not pinned.
    #[arg(long, value_parser = cpu_list)]
    cpu_list: Option<Cpus>,
    /// auto, io-uring or epoll.
    #[arg(long, default_value = "auto")]
    io_driver: DriverChoice,
}

/// Cores, as one value of a flag.
#[derive(Debug, Clone)]
struct Cpus(Vec<usize>);

impl Machine {
    fn cpus(&self) -> Option<Vec<usize>> {
        self.cpu_list.as_ref().map(|cpus| cpus.0.clone())
    }
}

/// Prints a line of a command's result; a closed pipe is the reader's choice.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line for the operator.
fn complain(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "loadgen: {line}");
}

fn cpu_list(text: &str) -> Result<Cpus, String> {
    parse_cpu_list(text).map(Cpus)
}

/// Runs the command; the first argument is the program's own name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and usage faults alike; a closed terminal is no reason to fail twice.
            let _ = error.print();
            let is_fault = error.use_stderr();
            return if is_fault {
                ExitCode::from(EXIT_SETUP)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match cli.command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Join(arguments) => join::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Scenario => {
            say(EXAMPLE.trim_end());
            ExitCode::SUCCESS
        }
        Command::Backend(arguments) => backend::run(*arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_lines_of_the_guide_are_understood() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarking.md");
        let guide = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
        let ours = guide
            .lines()
            .filter_map(|line| line.strip_prefix("shardgate "));
        let mut count = 0;
        for line in ours {
            let words = line.split_whitespace().map(|word| word.trim_matches('\''));
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
            count += 1;
        }
        assert!(count >= 4, "only {count} command lines were found");
    }

    #[test]
    fn usage_faults_are_set_up_faults_and_help_is_none() {
        let code = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            format!("{:?}", main(words))
        };
        let set_up = format!("{:?}", ExitCode::from(EXIT_SETUP));
        for line in [
            "loadgen run u --rate x",
            "loadgen nothing",
            "loadgen run",
            "loadgen run ftp://x",
            "loadgen run http://127.0.0.1:1/mcp --duration -1",
            "loadgen run http://127.0.0.1:1/mcp --calls 5 --duration 1",
            "loadgen run http://127.0.0.1:1/mcp --scenario nowhere.toml",
            "loadgen join nowhere --out elsewhere",
            "loadgen join",
            "loadgen compare nowhere elsewhere",
            "loadgen compare a b --fail-if p99~5ms",
        ] {
            assert_eq!(code(line), set_up, "{line}");
        }
        let passed = format!("{:?}", ExitCode::SUCCESS);
        for line in ["loadgen --help", "loadgen run --help"] {
            assert_eq!(code(line), passed, "{line}");
        }
    }
}
