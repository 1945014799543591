//! A run: sessions that do what a mix says, in a closed loop or by a schedule.
//!
//! [`start`] opens all sessions on their own shards, then starts the clock; [`Running`] lets the
//! caller watch and stop; its report holds the recording. A schedule is an open loop: each call has
//! an intended start, response times count from there, and a slow server makes calls late, not
//! fewer (no coordinated omission). What the machine could not send in time is told, not hidden.

mod busy;
mod exchange;
mod options;
mod pace;
mod report;
mod streams;
mod tally;
mod team;
mod watch;
mod worker;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use shards::{DriverKind, Plan, Shards, counters::Counter, slots::SlotTable};

pub use crate::operation::Check;
use crate::{
    arrivals::Shape,
    client::{CallFault, Script, Target, TargetFault},
    operation::{Method, Operation},
};
pub use options::{Pattern, Rhythm, RunOptions};
pub use report::Report;
use worker::Order;

/// How often a run that is watched tells how it goes.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RunFault {
    /// The URL cannot be used.
    #[error(transparent)]
    Target(#[from] TargetFault),
    /// The arguments are no JSON object.
    #[error("the arguments of the tool must be a JSON object: {0}")]
    Arguments(#[from] serde_json::Error),
    /// The rate is zero, negative or not a number.
    #[error("the rate must be above 0")]
    Rate,
    /// A weight is zero, negative or not a number.
    #[error("the weight of {0} must be above 0")]
    Weight(String),
    /// What callers of the era cannot do.
    #[error("{0}")]
    Era(String),
    /// Callers that think or come in bursts have no schedule.
    #[error("think times and the agent profile are for a closed loop: leave the rate out")]
    Rhythm,
    /// The token holds something no header can hold.
    #[error("a token must be visible ASCII")]
    Token,
    /// A header line is none, or one that the generator writes itself.
    #[error("`{0}` is no header line that can be added")]
    Header(String),
    /// The shards cannot be started.
    #[error("cannot start the generator's shards: {0}")]
    Start(#[from] io::Error),
    /// A session could not be opened.
    #[error("cannot open a session: {0}")]
    Setup(CallFault),
    /// A shard ended without a report.
    #[error("a shard of the generator died")]
    Died,
}

/// What a shard says: first that its sessions are open, last what it measured.
pub(crate) enum Word {
    Ready(Result<(), CallFault>),
    Done(Box<tally::Tally>),
}

/// What one shard counts while it runs, for those who watch.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) calls: Counter,
    pub(crate) errors: Counter,
    pub(crate) response_ns: Counter,
}

/// What all shards of a run share.
pub(crate) struct Common {
    pub(crate) script: Script,
    /// With a connection gateway: what is exchanged, in place of the script's forms.
    pub(crate) exchange: Option<crate::exchange::Plan>,
    pub(crate) options: RunOptions,
    /// Calls that are due, when there is a schedule; the warm-up's included.
    pub(crate) shape: Option<Shape>,
    /// The form by which an agent looks around.
    pub(crate) discovery: Option<usize>,
    pub(crate) is_stopped: AtomicBool,
    /// By shard.
    pub(crate) live: Box<[Live]>,
    /// When each shard's next waiting call is due, for the pacer.
    pub(crate) due: Box<[pace::Due]>,
}

/// A run under way.
pub struct Running {
    common: Arc<Common>,
    shards: Shards<Order>,
    words: Receiver<Word>,
    pacer: Option<std::thread::JoinHandle<()>>,
    started_at: Instant,
    started_unix_ms: u64,
}

/// How a run goes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Since the start, the warm-up included.
    pub elapsed: Duration,
    /// Calls done so far.
    pub calls: u64,
    /// Calls that failed so far.
    pub errors: u64,
    /// Sum of the response times of good calls so far, ns.
    pub response_ns: u64,
}

/// Opens all sessions, then starts calling.
pub fn start(options: RunOptions) -> Result<Running, RunFault> {
    let mut options = options;
    options.connections = options.connections.max(1);
    // A shard without a connection would have nothing to do.
    let shards_max = u16::try_from(options.connections).unwrap_or(u16::MAX);
    options.shards = options.shards.clamp(1, shards_max);
    let plan = Plan {
        shards: options.shards,
        cpus: options.cpus.clone(),
        driver: options.driver,
        busy_poll: Duration::ZERO,
        name: "loadgen",
    };
    let (words, heard) = unbounded();
    let common = Arc::new(prepare(options)?);
    let for_shards = common.clone();
    // Only the shards hold the sending half: when they are gone, `recv` says so.
    let shards = shards::start::<(), Order, _, _>(&plan, Vec::new(), move |shard| {
        worker::live(shard, for_shards.clone(), words.clone())
    })?;
    for _ in 0..plan.shards {
        let fault = match heard.recv() {
            Ok(Word::Ready(Ok(()))) => continue,
            Ok(Word::Ready(Err(fault))) => RunFault::Setup(fault),
            Ok(Word::Done(_)) | Err(_) => RunFault::Died,
        };
        tell(&shards, || Order::Stop);
        shards.join();
        return Err(fault);
    }
    if let Some(start_at) = common.options.start_at {
        // In the past: at once.
        std::thread::sleep(
            start_at
                .duration_since(SystemTime::now())
                .unwrap_or_default(),
        );
    }
    let (started_at, now) = (Instant::now(), SystemTime::now());
    tell(&shards, || Order::Start(started_at));
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut running = Running {
        common,
        shards,
        words: heard,
        pacer: None,
        started_at,
        started_unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or_default(),
    };
    if running.common.shape.is_some() {
        let (common, handles) = (running.common.clone(), running.shards.handles().to_vec());
        running.pacer = Some(
            std::thread::Builder::new()
                .name("pacer".to_owned())
                .spawn(move || pace::tick(&common.due, &common.is_stopped, started_at, &handles))?,
        );
    }
    Ok(running)
}

/// Runs to the end that `options` name.
pub fn run(options: RunOptions) -> Result<Report, RunFault> {
    start(options)?.wait()
}

/// Checks the options and makes of them what the shards need.
fn prepare(options: RunOptions) -> Result<Common, RunFault> {
    let mut operations = options.operations();
    for operation in &operations {
        let _: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&operation.arguments)?;
        if !(operation.weight > 0.0 && operation.weight.is_finite()) {
            return Err(RunFault::Weight(operation.name.clone()));
        }
    }
    if let Some((name, why)) = options.not_of_era() {
        return Err(RunFault::Era(format!("{name} {why}")));
    }
    let shape = options.whole_shape();
    if shape.as_ref().is_some_and(|shape| !shape.is_sound()) {
        return Err(RunFault::Rate);
    }
    if shape.is_some() && (options.rhythm != Rhythm::Steady || !options.think.is_none()) {
        return Err(RunFault::Rhythm);
    }
    let tokens: Vec<String> = options
        .token
        .iter()
        .chain(&options.tokens)
        .cloned()
        .collect();
    let is_header = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
    if !tokens.iter().all(is_header) {
        return Err(RunFault::Token);
    }
    if let Some(line) = options.headers.iter().find(|line| !is_free_header(line)) {
        let name = line.split(':').next().unwrap_or_default();
        return Err(RunFault::Header(name.to_owned()));
    }
    let target = Target::parse(&options.url)?;
    let mut script = Script::new(target, options.era, &operations, options.limit);
    script.tokens = tokens;
    script.headers = options.headers.clone();
    script.slots = options.target_shards.map(SlotTable::new);
    let mut discovery = None;
    if options.rhythm == Rhythm::Agent {
        // Behind the mix, so that it is never drawn.
        discovery = Some(operations.len());
        operations.push(Operation::of(Method::ListTools));
        let target = script.target.clone();
        script.forms = Script::new(target, options.era, &operations, options.limit).forms;
    }
    let exchange = options.exchange.clone();
    Ok(Common {
        script,
        exchange: exchange.map(crate::exchange::Plan::new).transpose()?,
        shape,
        discovery,
        is_stopped: AtomicBool::new(false),
        live: (0..options.shards).map(|_| Live::default()).collect(),
        due: (0..options.shards).map(|_| pace::Due::default()).collect(),
        options,
    })
}

/// Headers the generator writes itself.
const OWN_HEADERS: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "content-type",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
];

/// Whether it is one whole header line (RFC 9110 5.1, 5.5) that is not the generator's to write.
fn is_free_header(line: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    line.split_once(':').is_some_and(|(name, value)| {
        !name.is_empty()
            && name.bytes().all(is_name)
            && value
                .bytes()
                .all(|byte| byte == b'\t' || (b' '..0x7f).contains(&byte))
            && !OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own))
    })
}

fn tell(shards: &Shards<Order>, order: impl Fn() -> Order) {
    for handle in shards.handles() {
        // Refused only by a shard that has ended; `wait` finds out.
        let _ = handle.post(order());
    }
}

impl Running {
    /// Calls done so far, the warm-up's and failed ones included.
    pub fn calls(&self) -> u64 {
        self.common.live.iter().map(|live| live.calls.value()).sum()
    }

    /// How it goes.
    pub fn progress(&self) -> Progress {
        let sum = |count: fn(&Live) -> &Counter| {
            self.common
                .live
                .iter()
                .map(|live| count(live).value())
                .sum()
        };
        Progress {
            elapsed: self.started_at.elapsed(),
            calls: sum(|live| &live.calls),
            errors: sum(|live| &live.errors),
            response_ns: sum(|live| &live.response_ns),
        }
    }

    /// The I/O driver of the generator.
    pub fn driver(&self) -> DriverKind {
        self.shards.driver
    }

    /// Lets calls in flight finish and starts no more.
    pub fn stop(&self) {
        self.common.is_stopped.store(true, Ordering::Relaxed);
        tell(&self.shards, || Order::Stop);
    }

    /// Waits for the end and gives the report. Without duration and calls: call `stop` first.
    pub fn wait(self) -> Result<Report, RunFault> {
        self.wait_and_watch(|_| {})
    }

    /// The same; `watch` is told once a second how it goes.
    pub fn wait_and_watch(self, mut watch: impl FnMut(Progress)) -> Result<Report, RunFault> {
        let mut tallies = Vec::new();
        let mut next_look = Instant::now() + WATCH_INTERVAL;
        while tallies.len() < usize::from(self.common.options.shards) {
            match self.words.recv_deadline(next_look) {
                Ok(Word::Done(tally)) => tallies.push(*tally),
                Err(RecvTimeoutError::Timeout) => {
                    watch(self.progress());
                    next_look += WATCH_INTERVAL;
                }
                Ok(Word::Ready(_)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(RunFault::Died);
                }
            }
        }
        self.common.is_stopped.store(true, Ordering::Relaxed);
        if let Some(pacer) = self.pacer {
            // The pacer cannot panic; if it did, the slips show it.
            let _ = pacer.join();
        }
        let driver = self.shards.driver;
        self.shards.join();
        Ok(Report::new(
            &self.common.options,
            self.common.shape.as_ref(),
            driver,
            self.started_unix_ms,
            tallies,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_lines_that_can_be_added() {
        for line in ["x-tenant: a, b", "Authorization: Bearer x", "x:"] {
            assert!(is_free_header(line), "{line}");
        }
        for line in [
            "",
            ": x",
            "x",
            "x y: 1",
            "x: 1\r\ny: 2",
            "Host: a",
            "content-LENGTH: 1",
            "mcp-session-id: 1",
        ] {
            assert!(!is_free_header(line), "{line}");
        }
    }
}
