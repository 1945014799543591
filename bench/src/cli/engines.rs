//! `bench engines`, and `bench proxy`, which it starts.

use std::process::ExitCode;

use clap::Args;

use super::{
    EXIT_NOTHING,
    compare::{Common, report},
};
use crate::{
    compare::engines,
    engines::{Engine, Place, Proxy},
};

const LESSON: &str = "\
What is measured:
  A proxy that knows nothing but HTTP, with the gateway's codec and on the gateway's facade, on each
  engine: io-uring and epoll (monoio, what --io-driver of the gateway chooses between), and glommio
  when this bench was built with --features glommio. nginx and HAProxy take turns with them in the
  same run. It is the floor under `bench compare`: what the gateway costs beyond it is MCP.

How to read it:
  The last lines hold io-uring against epoll on this host: CPU of a call when saturated, the median
  with one connection, p99 at a fixed rate. Choose by the line that is like your load. The gateway's
  own `auto` takes io-uring where it can be had.

Examples:
  Which driver suits this host:
    cargo run --release -p bench -- engines
  With glommio:
    cargo run --release -p bench --features glommio -- engines --cycles 5

Exit codes: 0 measured, 3 nothing could be measured.";

#[derive(Debug, Args)]
#[command(after_help = LESSON)]
pub(super) struct EnginesArguments {
    #[command(flatten)]
    common: Common,
}

/// Measures; the exit code says whether there was anything to measure.
pub(super) fn run(arguments: EnginesArguments) -> ExitCode {
    let is_json = arguments.common.json;
    report(engines(arguments.common.options()), is_json)
}

#[derive(Debug, Args)]
pub(super) struct ProxyArguments {
    /// What it runs on.
    #[arg(long)]
    engine: Engine,
    /// Core of its one thread.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Where it listens, and the backend behind it, as 127.0.0.1:8001=127.0.0.1:8901.
    #[arg(required = true, value_name = "LISTEN=BACKEND")]
    places: Vec<Place>,
}

/// Serves until the process is ended.
pub(super) fn serve(arguments: &ProxyArguments) -> ExitCode {
    let started = Proxy::start(arguments.engine, arguments.cpu, &arguments.places);
    match started.and_then(Proxy::join) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {}: {error}", arguments.engine.name());
            ExitCode::from(EXIT_NOTHING)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        arguments: ProxyArguments,
    }

    #[test]
    fn command_lines() {
        let parse = |line: &str| Probe::try_parse_from(line.split(' '));
        let probe = parse("x --engine epoll --cpu 1 127.0.0.1:1=127.0.0.1:2").unwrap();
        assert_eq!(probe.arguments.engine, Engine::Epoll);
        assert_eq!(probe.arguments.places.len(), 1);
        for line in [
            "x 127.0.0.1:1=127.0.0.1:2",
            "x --engine epoll",
            "x --engine epoll 1=2",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
