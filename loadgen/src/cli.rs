//! The `loadgen` command line: `run`, `compare` and `backend`.

use std::{ffi::OsString, net::SocketAddr, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use shards::{DriverChoice, topology::parse_cpu_list};

use crate::{
    backend::{Backend, BackendKind, BackendOptions, ReplyKind},
    report::compare::{self, CompareArguments},
    run::{Check, Pattern, RunOptions, run},
};

/// The run went well but calls failed.
const EXIT_ERRORS: u8 = 1;
/// The generator could not keep the schedule: its figures are not to be trusted.
const EXIT_NOT_HONEST: u8 = 2;
/// Nothing was measured.
const EXIT_SETUP: u8 = 3;

/// Loads MCP endpoints and measures them.
#[derive(Debug, Parser)]
#[command(name = "loadgen", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Call a tool in many sessions and report times. Ends with 0, 1 when calls failed, 2 when
    /// the schedule could not be kept, 3 when nothing was measured.
    Run(RunArguments),
    /// Compare the folders of two runs, and fail when a condition holds.
    Compare(CompareArguments),
    /// Serve the sample MCP backend until the process is ended.
    Backend(BackendArguments),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PatternName {
    /// A kept connection for each session.
    Sticky,
    /// Kept connections that all sessions share.
    Spread,
    /// A new connection for each call.
    Fresh,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindName {
    /// increment, value, reset.
    Counter,
    /// echo, payload, sleep.
    Echo,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReplyName {
    /// application/json.
    Json,
    /// text/event-stream.
    Sse,
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

#[derive(Debug, Args)]
struct RunArguments {
    /// The endpoint, http://HOST[:PORT]/PATH.
    url: String,
    /// Calls in flight at the most.
    #[arg(long, short, default_value_t = 1)]
    connections: u32,
    /// How sessions use connections.
    #[arg(long, value_enum, default_value = "sticky")]
    pattern: PatternName,
    /// Sessions, when they share connections.
    #[arg(long)]
    sessions: Option<u32>,
    /// Calls per second; none: as fast as replies come.
    #[arg(long, short)]
    rate: Option<f64>,
    /// Seconds to measure.
    #[arg(long, short, default_value_t = 10.0)]
    duration: f64,
    /// Calls to make, instead of a duration.
    #[arg(long, conflicts_with = "duration")]
    calls: Option<u64>,
    /// Seconds before measuring starts.
    #[arg(long, default_value_t = 0.0)]
    warm_up: f64,
    /// Tool to call.
    #[arg(long, default_value = "echo")]
    tool: String,
    /// Its arguments, a JSON object.
    #[arg(long, default_value = r#"{"text":"hello"}"#)]
    arguments: String,
    /// Bearer token; better in the environment than on the command line.
    #[arg(long, env = "LOADGEN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Replies must have this many bytes of JSON, give or take 32.
    #[arg(long, conflicts_with = "expect_counter")]
    expect_bytes: Option<usize>,
    /// Replies must count up from 1 in every session.
    #[arg(long)]
    expect_counter: bool,
    /// Seconds a connect or an exchange may take.
    #[arg(long, default_value_t = 10.0)]
    timeout: f64,
    /// Report as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: Machine,
}

#[derive(Debug, Args)]
struct BackendArguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8901")]
    address: SocketAddr,
    /// Tools on offer.
    #[arg(long, value_enum, default_value = "echo")]
    kind: KindName,
    /// How requests are answered.
    #[arg(long, value_enum, default_value = "json")]
    reply: ReplyName,
    /// Name of the server.
    #[arg(long, default_value = "sample")]
    name: String,
    /// Bytes of JSON in the reply to echo, reached by padding.
    #[arg(long)]
    payload_bytes: Option<usize>,
    /// Milliseconds before each call is answered.
    #[arg(long)]
    delay_ms: Option<u64>,
    /// Filler tools listed beside the real ones.
    #[arg(long, default_value_t = 0)]
    tool_count: u32,
    #[command(flatten)]
    machine: Machine,
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
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    match cli.command {
        Command::Run(arguments) => run_command(arguments),
        Command::Compare(arguments) => compare::command(&arguments),
        Command::Backend(arguments) => backend_command(arguments),
    }
}

fn run_command(arguments: RunArguments) -> ExitCode {
    let is_json = arguments.json;
    let report = options_of(arguments).and_then(|options| run(options).map_err(|e| e.to_string()));
    match report {
        Err(fault) => {
            eprintln!("loadgen: {fault}");
            ExitCode::from(EXIT_SETUP)
        }
        Ok(report) => {
            if is_json {
                println!("{}", report.to_json());
            } else {
                print!("{}", report.to_text());
            }
            if !report.is_honest() {
                ExitCode::from(EXIT_NOT_HONEST)
            } else if report.error_count() > 0 {
                ExitCode::from(EXIT_ERRORS)
            } else {
                ExitCode::SUCCESS
            }
        }
    }
}

fn options_of(arguments: RunArguments) -> Result<RunOptions, String> {
    let seconds = |name: &str, value: f64| {
        Duration::try_from_secs_f64(value).map_err(|_| format!("--{name} is not a time"))
    };
    let check = match (arguments.expect_bytes, arguments.expect_counter) {
        (Some(bytes), _) => Check::Bytes(bytes),
        (None, true) => Check::Counter,
        (None, false) => Check::Success,
    };
    let duration = seconds("duration", arguments.duration)?;
    Ok(RunOptions {
        url: arguments.url,
        connections: arguments.connections,
        sessions: arguments.sessions,
        shards: arguments.machine.shards,
        cpus: arguments.machine.cpu_list.map(|cpus| cpus.0),
        driver: arguments.machine.io_driver,
        rate: arguments.rate,
        duration: arguments.calls.is_none().then_some(duration),
        calls: arguments.calls,
        warm_up: seconds("warm-up", arguments.warm_up)?,
        tool: arguments.tool,
        arguments: arguments.arguments,
        token: arguments.token,
        pattern: match arguments.pattern {
            PatternName::Sticky => Pattern::Sticky,
            PatternName::Spread => Pattern::Spread,
            PatternName::Fresh => Pattern::Fresh,
        },
        check,
        limit: seconds("timeout", arguments.timeout)?,
    })
}

fn backend_command(arguments: BackendArguments) -> ExitCode {
    let backend = Backend::start(BackendOptions {
        address: arguments.address,
        shards: arguments.machine.shards,
        cpus: arguments.machine.cpu_list.map(|cpus| cpus.0),
        driver: arguments.machine.io_driver,
        kind: match arguments.kind {
            KindName::Counter => BackendKind::Counter,
            KindName::Echo => BackendKind::Echo,
        },
        name: arguments.name,
        reply: match arguments.reply {
            ReplyName::Json => ReplyKind::Json,
            ReplyName::Sse => ReplyKind::Sse,
        },
        payload_bytes: arguments.payload_bytes,
        delay: arguments.delay_ms.map(Duration::from_millis),
        tool_count: arguments.tool_count,
    });
    match backend {
        Err(fault) => {
            eprintln!("loadgen: {fault}");
            ExitCode::from(EXIT_SETUP)
        }
        Ok(backend) => {
            println!("{} on {}", backend.url(), backend.driver());
            // Only a panic ends a shard; the process itself is ended by a signal.
            if backend.join() == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<RunOptions, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        match cli.command {
            Command::Run(arguments) => options_of(arguments),
            Command::Backend(_) | Command::Compare(_) => Err("not a run".to_owned()),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_line_becomes_options() {
        let options = parse(
            "loadgen run http://h/mcp -c 8 -r 500 -d 2.5 --pattern spread --cpu-list 0-1 \
             --io-driver epoll --expect-bytes 200",
        );
        let options = options.unwrap();
        assert_eq!((options.connections, options.rate), (8, Some(500.0)));
        assert_eq!(options.duration, Some(Duration::from_millis(2500)));
        assert_eq!(options.pattern, Pattern::Spread);
        assert_eq!(options.cpus, Some(vec![0, 1]));
        assert_eq!(options.driver, DriverChoice::Epoll);
        assert_eq!(options.check, Check::Bytes(200));
        let counted = parse("loadgen run u --calls 5").unwrap();
        assert_eq!((counted.duration, counted.calls), (None, Some(5)));
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            "loadgen run u --calls 5 --duration 1",
            "loadgen run u --duration -1",
            "loadgen run u --timeout nan",
            "loadgen run u --cpu-list x",
            "loadgen run u --expect-bytes 1 --expect-counter",
            "loadgen run",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
