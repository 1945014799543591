//! `shardgate serve` and `shardgate connect`: start, print the endpoints, wait for a signal, drain.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{
    command::{complain, print_notes, refuse, refuse_lines, say},
    gateway::Gateway,
    log,
    settings::{Environment, Flags, Purpose, Settings},
};

/// How long a store that is there may take to say so before it is reported as missing.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT. The first drains, the second ends at once.
pub(crate) fn run(flags: &Flags, environment: &Environment, purpose: Purpose) -> ExitCode {
    let (settings, notes) = match Settings::load(flags, environment, purpose) {
        Ok(loaded) => loaded,
        Err(faults) => return refuse(&faults),
    };
    print_notes(&notes);
    log::start(settings.telemetry.log_level);
    // Before any thread starts: all inherit the mask, so signals reach only the waiting one.
    let signals = match Signals::block() {
        Ok(signals) => signals,
        Err(error) => return refuse_lines([format!("cannot wait for signals: {error}")]),
    };
    let gateway = match Gateway::start(settings) {
        Ok(gateway) => gateway,
        Err(faults) => return refuse_lines(faults),
    };
    announce(&gateway);
    loop {
        match signals.wait(Duration::from_millis(500)) {
            Some(Signal::Hangup) => gateway.reload(),
            Some(signal) => {
                complain(format_args!(
                    "{signal}: draining; a second signal ends at once"
                ));
                break;
            }
            None if !gateway.is_alive() => {
                complain("error: a shard died; ending, because a part of all connections is lost");
                log::flush();
                return ExitCode::FAILURE;
            }
            None => {}
        }
    }
    signals.end_at_next();
    let is_clean = gateway.stop();
    log::flush();
    if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn announce(gateway: &Gateway) {
    say(format_args!(
        "shardgate {}: {} shard{} on {}",
        env!("CARGO_PKG_VERSION"),
        gateway.shard_count,
        if gateway.shard_count == 1 { "" } else { "s" },
        gateway.view.driver,
    ));
    if let Some(reason) = gateway.fallback_reason() {
        say(format_args!("  {reason}; all shards use epoll"));
    }
    if gateway.unpinned > 0 {
        say(format_args!(
            "  {} shards could not be pinned",
            gateway.unpinned
        ));
    }
    if let Some(address) = gateway.address {
        say(format_args!("  listening on http://{address}"));
    }
    if let Some(address) = gateway.tls_address {
        say(format_args!("  listening on https://{address}"));
    }
    if let Some(gateway) = &gateway.connection_gateway {
        say(format_args!(
            "  connection gateway on ws://{}{}, internal API on http://{}",
            gateway.websocket, gateway.path, gateway.http
        ));
    }
    if let Some(address) = gateway.admin_address {
        say(format_args!(
            "  admin on http://{address} (/livez /readyz /status /metrics)"
        ));
    }
    if !becomes_ready(gateway) {
        say("  not ready: the user configurations or the Redis of the nodes cannot be reached yet");
    }
}

/// Whether the store can be asked, once it has had the time of a connection.
fn becomes_ready(gateway: &Gateway) -> bool {
    let end = Instant::now() + STORE_PATIENCE;
    loop {
        if gateway.view.is_ready() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What an operator tells the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    /// Read everything again.
    Hangup,
    Interrupt,
    Terminate,
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

/// SIGHUP, SIGTERM and SIGINT, waited for by a thread of their own.
struct Signals {
    received: crossbeam_channel::Receiver<Signal>,
}

impl Signals {
    fn block() -> std::io::Result<Self> {
        let (sender, received) = crossbeam_channel::bounded(4);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (ready, is_ready) = crossbeam_channel::bounded(1);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    use tokio::signal::unix::{SignalKind, signal};
                    let all = signal(SignalKind::terminate()).and_then(|term| {
                        let interrupt = signal(SignalKind::interrupt())?;
                        Ok((term, interrupt, signal(SignalKind::hangup())?))
                    });
                    let (mut term, mut interrupt, mut hangup) = match all {
                        Ok(all) => all,
                        Err(error) => {
                            let _ = ready.send(Err(error));
                            return;
                        }
                    };
                    let _ = ready.send(Ok(()));
                    loop {
                        let signal = tokio::select! {
                            _ = term.recv() => Signal::Terminate,
                            _ = interrupt.recv() => Signal::Interrupt,
                            _ = hangup.recv() => Signal::Hangup,
                        };
                        if sender.send(signal).is_err() {
                            return;
                        }
                    }
                });
            })?;
        is_ready.recv().map_err(std::io::Error::other)??;
        Ok(Self { received })
    }

    fn wait(&self, limit: Duration) -> Option<Signal> {
        self.received.recv_timeout(limit).ok()
    }

    /// From here on a signal ends the process at once.
    fn end_at_next(self) {
        let watcher = std::thread::Builder::new()
            .name("second-signal".to_owned())
            .spawn(move || {
                let is_end = |signal: &Signal| *signal != Signal::Hangup;
                if self.received.iter().any(|signal| is_end(&signal)) {
                    complain("second signal: ending now");
                    // The operator asked for it twice.
                    std::process::exit(1);
                }
            });
        // Without the thread a second signal is ignored, which is the drain's time limit's affair.
        drop(watcher);
    }
}
