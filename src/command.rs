//! The subcommands, one file each.

mod config;
mod demo;
mod reverse;
mod serve;
mod status;
mod token;
mod tools;
mod top;
mod tune;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use crate::settings::{Command, Environment, Fault, Invocation, Note, Purpose};

/// Exit code of a command that was told something it cannot use.
pub(crate) const EXIT_USAGE: u8 = 2;

/// Understands a command line and does what it says.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let invocation = match Invocation::parse(arguments) {
        Ok(invocation) => invocation,
        Err(error) => {
            // Help and version are "errors" with exit code 0 to clap.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE));
        }
    };
    let environment = Environment::of_process();
    let flags = invocation.flags;
    match invocation.command {
        Command::Serve => serve::run(&flags, &environment, Purpose::Serve),
        Command::Connect => serve::run(&flags, &environment, Purpose::Connect),
        Command::Demo { once } => demo::run(flags, once),
        Command::Reverse(arguments) => reverse::run(*arguments, &environment),
        Command::Status { admin, json } => status::run(admin, json, &flags, &environment),
        Command::Config { action } => config::run(action, &flags, &environment),
        Command::Token { action } => token::run(&action, &flags, &environment),
        Command::Loadgen(rest) => {
            // Its parser takes the first word for the program's name.
            let name = OsString::from("shardgate loadgen");
            loadgen::cli::main(std::iter::once(name).chain(rest.arguments))
        }
        Command::Tune(rest) => tuning::cli::main(
            rest.arguments,
            &tuning::cli::Gateway {
                read_documents: tune::documents,
                prepare: tune::prepare,
            },
        ),
        Command::Plan(rest) => tuning::cli::plan::main(rest.arguments),
        Command::Tools { action } => tools::run(action),
        Command::Top {
            admin,
            once,
            interval,
        } => top::run(admin, once, Duration::from_secs_f64(interval)),
        Command::Version { json } => version(json),
    }
}

/// Prints a line of a command's result.
pub(crate) fn say(line: impl std::fmt::Display) {
    // A closed pipe is the reader's choice.
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line for the operator.
pub(crate) fn complain(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints notes.
pub(crate) fn print_notes(notes: &[Note]) {
    for note in notes {
        complain(format_args!("note: {note}"));
    }
}

/// Prints faults and gives the exit code that says so.
pub(crate) fn refuse(faults: &[Fault]) -> ExitCode {
    refuse_lines(faults.iter().map(ToString::to_string))
}

/// Prints fault lines and gives the exit code that says so.
pub(crate) fn refuse_lines(lines: impl IntoIterator<Item = String>) -> ExitCode {
    for line in lines {
        complain(format_args!("error: {line}"));
    }
    ExitCode::from(EXIT_USAGE)
}

fn version(json: bool) -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        say(serde_json::json!({
            "name": "shardgate",
            "version": version,
            "protocol_versions": crate::mcp::version::names(true, crate::mcp::version::VersionSet::ALL),
        }));
    } else {
        say(format_args!("shardgate {version}"));
    }
    ExitCode::SUCCESS
}
