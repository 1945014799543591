//! The command line `shardgate tune`.
//!
//! Ends with 0 when all is well, 1 with warnings, 2 when the plan cannot be served, and 3 when it
//! was told something it cannot use, so that a script can tell a bad host from a bad flag.

mod apply;
mod check;
mod cores;
pub mod plan;
mod planning;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, error::ErrorKind};
use shards::topology::parse_cpu_list;

use crate::{around::Documents, check::Options};

/// Exit code of a command line that is not understood.
const EXIT_USAGE: u8 = 3;

/// Looks at this host with the eyes of a gateway that has one thread on each core.
#[derive(Debug, Parser)]
#[command(
    name = "shardgate tune",
    bin_name = "shardgate tune",
    no_binary_name = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read the host's settings and say what costs latency or connections; changes nothing.
    /// Ends with 0, 1 with warnings, 2 when the plan cannot be served, 3 for a wrong flag.
    Check(check::Arguments),
    /// Set what the checks want otherwise: prints commands and changes nothing unless --apply is
    /// given. Ends with 0, 1 when something could not be changed, 3 for a wrong flag.
    Apply(apply::Arguments),
    /// Measure 1, 2, ... shards under an objective on this machine, or read runs, and say what a
    /// rate takes. Ends with 0, 1 when a rate has no answer, 3 when nothing was measured.
    Cores(Box<cores::Arguments>),
}

/// What the gateway is expected to do here.
#[derive(Debug, Args)]
struct HostArguments {
    /// Shards the gateway will run [default: what it would choose here].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    shards: Option<u16>,
    /// CPUs the shards will be pinned to, as 0-3,6 [default: the usable ones].
    #[arg(long, value_parser = cpus)]
    cpu_list: Option<Cpus>,
    /// Client connections to plan for [default: the gateway's limit].
    #[arg(long)]
    connections: Option<u32>,
    /// Connections to one backend to plan for [default: what the gateway keeps].
    #[arg(long)]
    upstream_connections: Option<u32>,
    /// Live sessions to plan for [default: the gateway's limit].
    #[arg(long)]
    sessions: Option<u32>,
    /// Work on the files below this folder, a copy of another host's /proc and /sys; nothing is
    /// tried then.
    #[arg(long)]
    root: Option<PathBuf>,
}

impl HostArguments {
    fn options(self) -> Options {
        Options {
            root: self.root,
            shards: self.shards,
            cpus: self.cpu_list.map(|cpus| cpus.0),
            connections: self.connections,
            upstream_connections: self.upstream_connections,
            sessions: self.sessions,
            ..Options::default()
        }
    }
}

/// Cores, as one value of a flag.
#[derive(Debug, Clone)]
struct Cpus(Vec<usize>);

fn cpus(text: &str) -> Result<Cpus, String> {
    parse_cpu_list(text).map(Cpus)
}

/// What the gateway knows and this crate does not.
#[derive(Debug, Clone, Copy)]
pub struct Gateway {
    /// Reads documents of user configurations.
    pub read_documents: fn(&Path) -> Documents,
    /// Writes what a gateway with this backend needs into a folder.
    pub prepare: fn(&Path, &str) -> Result<Prepared, String>,
}

/// A gateway that can be started.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Further arguments of `serve`.
    pub arguments: Vec<OsString>,
    /// A token it takes.
    pub token: String,
    /// Path of its endpoint.
    pub path: String,
}

/// Understands the arguments after `shardgate tune` and does what they say.
pub fn main(arguments: Vec<OsString>, gateway: &Gateway) -> ExitCode {
    let cli: Cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.command {
        Command::Check(arguments) => check::run(arguments, gateway),
        Command::Apply(arguments) => apply::run(arguments),
        Command::Cores(arguments) => cores::run(*arguments, gateway),
    }
}

fn parse<T: Parser>(arguments: Vec<OsString>) -> Result<T, ExitCode> {
    T::try_parse_from(arguments).map_err(|error| {
        // A closed terminal is no reason to fail twice.
        let _ = error.print();
        match error.kind() {
            ErrorKind::DisplayHelp => ExitCode::SUCCESS,
            _ => ExitCode::from(EXIT_USAGE),
        }
    })
}

/// Prints a result. A closed pipe is the reader's choice; the exit code still says what was found.
fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Prints a fault.
fn complain(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "error: {text}");
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
    fn what_makes_no_sense_is_refused() {
        let fault = |line: &str| {
            Cli::try_parse_from(line.split_whitespace())
                .map(|_| ())
                .unwrap_err()
                .kind()
        };
        assert_eq!(fault("check --help"), ErrorKind::DisplayHelp);
        for line in [
            "check --shards 0",
            "check --cpu-list 3-1",
            "check x",
            "plan",
            "--json",
            "apply --apply --revert",
            "apply --revert --output-script x",
        ] {
            assert_ne!(fault(line), ErrorKind::DisplayHelp, "{line}");
        }
    }
}
