//! The `bench` command line.

mod compare;
mod engines;
mod instructions;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

/// Nothing could be measured.
const EXIT_NOTHING: u8 = 3;
/// A program that measuring needs is not installed: skipped, as test drivers have it.
const EXIT_SKIPPED: u8 = 77;

/// Side-by-side measurements of the gateway.
#[derive(Debug, Parser)]
#[command(name = "bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare direct calls, nginx, HAProxy, other gateways and this one in one run. Who is absent
    /// is skipped.
    Compare(compare::CompareArguments),
    /// Count the gateway's instructions for one `tools/call`, and hold them against the budget.
    Instructions(instructions::InstructionsArguments),
    /// Compare a bare HTTP proxy on each engine with nginx and HAProxy: the floor under `compare`,
    /// and which I/O driver suits this host.
    Engines(engines::EnginesArguments),
    /// The bare proxy itself, as `engines` starts it.
    #[command(hide = true)]
    Proxy(engines::ProxyArguments),
}

/// Runs the command; the first argument is the program's own name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => match cli.command {
            Command::Compare(arguments) => compare::run(arguments),
            Command::Instructions(arguments) => instructions::run(arguments),
            Command::Engines(arguments) => engines::run(arguments),
            Command::Proxy(arguments) => engines::serve(&arguments),
        },
        Err(error) => {
            // Help and usage faults alike; a closed terminal is no reason to fail twice.
            let _ = error.print();
            u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["bench"]).is_err());
        assert!(Cli::try_parse_from(["bench", "compare", "--quick"]).is_ok());
    }
}
