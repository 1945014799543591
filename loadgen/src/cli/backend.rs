//! `loadgen backend`: the backend simulator.

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};

use super::{EXIT_SETUP, Machine, complain, say};
use crate::{
    backend::{Backend, BackendKind, BackendOptions, CounterFault, ErrorKind, ReplyKind, Stall},
    delay::Delay,
    era::Era,
    units::{parse_bytes, parse_time, seconds_or_time, share},
};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindName {
    /// increment, value, reset.
    Counter,
    /// echo, payload, sleep.
    Echo,
    /// All six.
    All,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReplyName {
    /// application/json.
    Json,
    /// text/event-stream.
    Sse,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ErrorName {
    /// A JSON-RPC error.
    Rpc,
    /// A result with isError.
    Tool,
    /// HTTP status 500.
    Status,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BrokenName {
    /// All sessions share one number.
    Mixed,
    /// Every 50th call of a session begins anew.
    Resets,
    /// Every 50th call of a session gives the last number again.
    Repeats,
    /// Every 50th call of a session leaves a number out.
    Skips,
}

const EXAMPLES: &str = "\
Examples:
  A fast server with 16 KiB replies:
    loadgen backend --payload-bytes 16k
  A server with a long tail that stalls 1 s every 10 s and fails one call in a thousand:
    loadgen backend --latency lognormal:5ms,0.8 --stall 1s/10s --error-rate 0.1%
  Resources, prompts and GET streams as well, one reply in five an event stream:
    loadgen backend --kind all --resource-count 10 --prompt-count 5 --stream-interval 1s \\
        --sse-share 20%
  A server that mixes up its sessions, to see `loadgen run --check-affinity` find it:
    loadgen backend --kind counter --broken mixed";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct BackendArguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8901")]
    address: SocketAddr,
    /// Serve only legacy (initialize and sessions) or only stateless (revision 2026-07-28); none:
    /// both.
    #[arg(long)]
    era: Option<Era>,
    /// Tools on offer.
    #[arg(long, value_enum, default_value = "echo")]
    kind: KindName,
    /// How requests are answered.
    #[arg(long, value_enum, default_value = "json")]
    reply: ReplyName,
    /// Share of replies that are event streams, the others JSON.
    #[arg(long, value_parser = share, conflicts_with = "reply")]
    sse_share: Option<f64>,
    /// Name of the server.
    #[arg(long, default_value = "sample")]
    name: String,
    /// Bytes of JSON in the reply to echo, reached by padding; 16k is 16384.
    #[arg(long, value_parser = bytes)]
    payload_bytes: Option<usize>,
    /// Time before each call is answered: 5ms, uniform:1ms..20ms, exponential:5ms (mean),
    /// lognormal:5ms,0.8 (median, sigma). Resolution 1 ms.
    #[arg(long, default_value = "0ms")]
    latency: Delay,
    /// Milliseconds before each call is answered, beside the latency.
    #[arg(long)]
    delay_ms: Option<u64>,
    /// The whole server answers nothing for a time in each period: 1s/10s.
    #[arg(long, value_parser = stall)]
    stall: Option<Stall>,
    /// Share of calls that wait longer, each for itself.
    #[arg(long, value_parser = share, default_value = "0%")]
    stall_rate: f64,
    /// How much longer.
    #[arg(long, value_parser = seconds_or_time, default_value = "1s")]
    stall_length: Duration,
    /// Share of calls that fail.
    #[arg(long, value_parser = share, default_value = "0%")]
    error_rate: f64,
    /// How they fail.
    #[arg(long, value_enum, default_value = "rpc")]
    error_kind: ErrorName,
    /// Progress notifications ahead of each event-stream reply to a call that has a progress token.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    progress_count: u32,
    /// Filler tools listed beside the real ones.
    #[arg(long, default_value_t = 0)]
    tool_count: u32,
    /// Resources sample:///resource/1 and so on.
    #[arg(long, default_value_t = 0)]
    resource_count: u32,
    /// Prompts prompt_001 and so on.
    #[arg(long, default_value_t = 0)]
    prompt_count: u32,
    /// Offer GET streams, with an event each time this has passed.
    #[arg(long, value_parser = seconds_or_time)]
    stream_interval: Option<Duration>,
    /// Break the counters on purpose.
    #[arg(long, value_enum)]
    broken: Option<BrokenName>,
    /// Of everything drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    machine: Machine,
}

fn bytes(text: &str) -> Result<usize, String> {
    parse_bytes(text).ok_or_else(|| format!("`{text}` is no size (write 200, 16k or 1m)"))
}

fn stall(text: &str) -> Result<Stall, String> {
    let parts = text.split_once('/').and_then(|(length, every)| {
        Some(Stall {
            length: parse_time(length)?,
            every: parse_time(every)?,
        })
    });
    parts
        .filter(|stall| stall.length < stall.every)
        .ok_or_else(|| format!("`{text}` is no stall (write 1s/10s: one second in every ten)"))
}

impl BackendArguments {
    fn options(self) -> BackendOptions {
        BackendOptions {
            address: self.address,
            shards: self.machine.shards,
            cpus: self.machine.cpus(),
            driver: self.machine.io_driver,
            era: self.era,
            kind: match self.kind {
                KindName::Counter => BackendKind::Counter,
                KindName::Echo => BackendKind::Echo,
                KindName::All => BackendKind::All,
            },
            name: self.name,
            reply: match self.reply {
                ReplyName::Json => ReplyKind::Json,
                ReplyName::Sse => ReplyKind::Sse,
            },
            payload_bytes: self.payload_bytes,
            delay: self.delay_ms.map(Duration::from_millis),
            latency: self.latency,
            stall: self.stall,
            stall_rate: self.stall_rate,
            stall_length: self.stall_length,
            error_rate: self.error_rate,
            error_kind: match self.error_kind {
                ErrorName::Rpc => ErrorKind::Rpc,
                ErrorName::Tool => ErrorKind::Tool,
                ErrorName::Status => ErrorKind::Status,
            },
            sse_share: self.sse_share,
            progress_count: self.progress_count,
            tool_count: self.tool_count,
            resource_count: self.resource_count,
            prompt_count: self.prompt_count,
            stream_interval: self.stream_interval,
            counter_fault: self.broken.map(|broken| match broken {
                BrokenName::Mixed => CounterFault::Mixed,
                BrokenName::Resets => CounterFault::Resets,
                BrokenName::Repeats => CounterFault::Repeats,
                BrokenName::Skips => CounterFault::Skips,
            }),
            seed: self.seed,
        }
    }
}

/// Serves until the process is ended.
pub(super) fn run(arguments: BackendArguments) -> ExitCode {
    match Backend::start(arguments.options()) {
        Err(fault) => {
            complain(fault);
            ExitCode::from(EXIT_SETUP)
        }
        Ok(backend) => {
            say(format_args!("{} on {}", backend.url(), backend.driver()));
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
    use clap::Parser;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        arguments: BackendArguments,
    }

    fn parse(line: &str) -> Option<BackendOptions> {
        let probe = Probe::try_parse_from(line.split(' ')).ok()?;
        Some(probe.arguments.options())
    }

    #[test]
    fn a_command_line_becomes_options() {
        let options = parse(
            "x --kind all --latency uniform:1ms..3ms --stall 1s/10s --error-rate 0.1% \
             --error-kind tool --sse-share 0.5 --payload-bytes 2k --broken skips --era legacy",
        );
        let options = options.unwrap();
        let ms = Duration::from_millis;
        assert_eq!(options.kind, BackendKind::All);
        assert_eq!(options.era, Some(Era::Legacy));
        assert_eq!(options.latency, Delay::Uniform(ms(1), ms(3)));
        let stall = options.stall.unwrap();
        assert_eq!((stall.length, stall.every), (ms(1000), ms(10_000)));
        assert_eq!((options.error_rate, options.sse_share), (0.001, Some(0.5)));
        assert_eq!(options.error_kind, ErrorKind::Tool);
        assert_eq!(options.payload_bytes, Some(2048));
        assert_eq!(options.counter_fault, Some(CounterFault::Skips));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for line in [
            "x --stall 1s",
            "x --stall 2s/1s",
            "x --error-rate 110%",
            "x --latency 5",
            "x --sse-share 1 --reply sse",
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
