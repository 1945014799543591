//! `shardgate reverse`: puts a local MCP server behind a gateway.

use std::{process::ExitCode, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::Instant,
};

use crate::{
    command::{complain, refuse_lines},
    reverse_client,
    settings::{Environment, ReverseArguments, ReverseSettings},
    tls::{self, Roots},
};

/// Signals so soon after the first are the same wish: `timeout` signals a process and its group.
const ONE_STOP: Duration = Duration::from_millis(500);

/// Stays connected until told to stop. 0: in order; 1: another attempt would be useless, or a
/// second signal came; 2: the command line cannot be used.
pub(crate) fn run(arguments: ReverseArguments, environment: &Environment) -> ExitCode {
    let (settings, notes) = match ReverseSettings::check(arguments, environment) {
        Ok(checked) => checked,
        Err(faults) => return refuse_lines(faults),
    };
    for note in notes {
        complain(format_args!("note: {note}"));
    }
    let tls = match tls::client(Roots::SystemAnd(settings.ca.as_deref()), None) {
        Ok(tls) => tls::for_http(tls),
        Err(fault) => return refuse_lines([fault.0]),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(error),
    };
    let code = runtime.block_on(stay(&settings, tls));
    // Name resolution may sit in a blocking thread: it is not waited for.
    runtime.shutdown_background();
    code
}

async fn stay(settings: &ReverseSettings, tls: Arc<rustls::ClientConfig>) -> ExitCode {
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let [Ok(mut terminate), Ok(mut interrupt)] = signals else {
        return fail("signals cannot be received");
    };
    let (stop, stopped) = watch::channel(false);
    let tell = |line: &str| complain(format_args!("shardgate reverse: {line}"));
    let client = reverse_client::run(settings, tls, stopped, tell);
    tokio::pin!(client);
    tokio::select! {
        outcome = &mut client => return ended(outcome),
        () = either(&mut terminate, &mut interrupt) => {}
    }
    tell("stopping");
    // The client holds the other end.
    let _ = stop.send(true);
    let again = async {
        let first = Instant::now();
        while first.elapsed() < ONE_STOP {
            either(&mut terminate, &mut interrupt).await;
        }
    };
    tokio::select! {
        outcome = client => ended(outcome),
        () = again => fail("stopped at once"),
    }
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

fn ended(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(why),
    }
}

fn fail(why: impl std::fmt::Display) -> ExitCode {
    complain(format_args!("error: {why}"));
    ExitCode::FAILURE
}
