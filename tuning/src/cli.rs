//! The command line `shardgate tune`.
//!
//! Ends with 0 when all is well, 1 with warnings, 2 when the plan cannot be served, and 3 when it
//! was told something it cannot use, so that a script can tell a bad host from a bad flag.

use std::{
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, error::ErrorKind};
use serde::Serialize;
use shards::topology::parse_cpu_list;

use crate::{
    around::Documents,
    check::{Options, Report, check},
    table,
};

/// Exit code of a command line that is not understood.
const EXIT_USAGE: u8 = 3;
/// Version of the JSON report: it grows by new members without changing, and changes with a member
/// that is renamed, removed or means something else.
const JSON_FORMAT: u32 = 1;

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
    Check(CheckArguments),
}

#[derive(Debug, Args)]
struct CheckArguments {
    /// Report as one JSON object.
    #[arg(long)]
    json: bool,
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
    /// Redis of the gateway, HOST:PORT in plain text: asked 100 times PING, for its version, its
    /// eviction policy and its clock.
    #[arg(long)]
    redis: Option<String>,
    /// Document or folder of user configurations: checked, and each backend is asked once.
    #[arg(long)]
    config_file: Option<PathBuf>,
    /// Leave out what measures the timer and the rings.
    #[arg(long)]
    no_probe: bool,
    /// Read /proc and /sys below this folder, a copy of another host's; nothing is tried then.
    #[arg(long)]
    root: Option<PathBuf>,
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
}

/// Understands the arguments after `shardgate tune` and does what they say.
pub fn main(arguments: Vec<OsString>, gateway: &Gateway) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed terminal is no reason to fail twice.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp => ExitCode::SUCCESS,
                _ => ExitCode::from(EXIT_USAGE),
            };
        }
    };
    let Command::Check(arguments) = cli.command;
    let is_json = arguments.json;
    let report = check(&options(arguments, gateway));
    let text = if is_json {
        json(&report)
    } else {
        table::render(&report)
    };
    // A closed pipe is the reader's choice; the exit code still says what was found.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::from(report.exit_code())
}

fn options(arguments: CheckArguments, gateway: &Gateway) -> Options {
    let documents = arguments.config_file.as_deref();
    Options {
        redis: arguments.redis,
        documents: documents.map(gateway.read_documents),
        root: arguments.root,
        shards: arguments.shards,
        cpus: arguments.cpu_list.map(|cpus| cpus.0),
        connections: arguments.connections,
        upstream_connections: arguments.upstream_connections,
        sessions: arguments.sessions,
        may_measure: !arguments.no_probe,
    }
}

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    exit_code: u8,
    #[serde(flatten)]
    report: &'a Report,
}

fn json(report: &Report) -> String {
    let document = Document {
        format: JSON_FORMAT,
        exit_code: report.exit_code(),
        report,
    };
    // Texts, numbers and lists only: nothing in it can be refused.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Options, ErrorKind> {
        let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.kind())?;
        let Command::Check(arguments) = cli.command;
        Ok(options(
            arguments,
            &Gateway {
                read_documents: |_| Documents::default(),
            },
        ))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_become_options() {
        let options =
            parse("check --shards 3 --cpu-list 0-1,4 --no-probe --sessions 7 --root x").unwrap();
        assert_eq!(options.shards, Some(3));
        assert_eq!(options.cpus, Some(vec![0, 1, 4]));
        assert_eq!(options.sessions, Some(7));
        assert_eq!(options.root, Some(PathBuf::from("x")));
        assert!(!options.may_measure);
        assert!(parse("check").unwrap().may_measure);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(parse("check --help").unwrap_err(), ErrorKind::DisplayHelp);
        for line in [
            "check --shards 0",
            "check --cpu-list 3-1",
            "check x",
            "plan",
            "--json",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn json_has_everything_and_its_format() {
        let report = check(&Options {
            root: Some("/nowhere-at-all".into()),
            ..Options::default()
        });
        let value: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
        assert_eq!(value["format"], 1);
        assert_eq!(value["exit_code"], 0);
        assert_eq!(value["plan"]["shards"], 1);
        assert_eq!(value["rows"].as_array().unwrap().len(), report.rows.len());
        assert_eq!(value["rows"][0]["severity"], "unseen");
    }
}
