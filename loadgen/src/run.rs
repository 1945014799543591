//! A run: sessions that call one tool, in a closed loop or at a fixed rate.
//!
//! [`start`] opens all sessions on their own shards, then starts the clock; [`Running`] lets the
//! caller watch and stop; its report holds the histograms. A fixed rate is an open loop: each call
//! has an intended start, response times count from there, and a slow server makes calls late, not
//! fewer (no coordinated omission). What the machine could not send in time is told, not hidden.

mod pace;
mod report;
mod worker;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, unbounded};
use shards::{DriverChoice, DriverKind, Plan, Shards, counters::Counter};

use crate::client::{CallFault, Expected, Script, Target, TargetFault};
pub use report::{ErrorCount, Report};
use worker::Order;

/// How the calls of the sessions spread over connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Each session has its own kept connection, as the SDKs do.
    #[default]
    Sticky,
    /// Kept connections are shared: each call of a session goes over the next free one.
    Spread,
    /// A new connection for each call.
    Fresh,
}

/// What replies must be beside no error, with the right id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// Nothing more.
    #[default]
    Success,
    /// JSON of this size, give or take 32 bytes (a gateway puts its own ids in).
    Bytes(usize),
    /// The number after the last one of the session (`increment` of a counter).
    Counter,
}

/// Bytes by which a reply may differ from [`Check::Bytes`].
const SIZE_TOLERANCE: usize = 32;

/// What to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The endpoint, `http://HOST[:PORT]/PATH`.
    pub url: String,
    /// Calls in flight at the most; with Sticky and Spread, kept connections.
    pub connections: u32,
    /// Sessions; by default one for each connection, with Spread two. Sticky ignores it.
    pub sessions: Option<u32>,
    /// Generator shards.
    pub shards: u16,
    /// Cores to pin them to; `None`: not pinned.
    pub cpus: Option<Vec<usize>>,
    /// I/O driver.
    pub driver: DriverChoice,
    /// Calls per second over all connections; `None`: closed loop.
    pub rate: Option<f64>,
    /// Measured time after the warm-up; `None`: until stopped or until the calls are made.
    pub duration: Option<Duration>,
    /// Calls, the warm-up's included.
    pub calls: Option<u64>,
    /// Calls that start before this has passed are not in the histograms.
    pub warm_up: Duration,
    /// The tool.
    pub tool: String,
    /// Its arguments, a JSON object.
    pub arguments: String,
    /// Bearer token.
    pub token: Option<String>,
    /// How calls spread over connections.
    pub pattern: Pattern,
    /// What replies must be.
    pub check: Check,
    /// Time limit of a connect, and of each exchange.
    pub limit: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            url: String::new(),
            connections: 1,
            sessions: None,
            shards: 1,
            cpus: None,
            driver: DriverChoice::Auto,
            rate: None,
            duration: None,
            calls: None,
            warm_up: Duration::ZERO,
            tool: "echo".to_owned(),
            arguments: r#"{"text":"hello"}"#.to_owned(),
            token: None,
            pattern: Pattern::default(),
            check: Check::default(),
            limit: Duration::from_secs(10),
        }
    }
}

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
    /// The token holds something no header can hold.
    #[error("the token must be visible ASCII")]
    Token,
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
    Done(Box<report::Tally>),
}

/// What all shards of a run share.
pub(crate) struct Common {
    pub(crate) script: Script,
    pub(crate) options: RunOptions,
    pub(crate) is_stopped: AtomicBool,
    /// Calls done, by shard.
    pub(crate) calls: Box<[Counter]>,
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
}

/// Opens all sessions, then starts calling.
pub fn start(options: RunOptions) -> Result<Running, RunFault> {
    let _: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&options.arguments)?;
    if options
        .rate
        .is_some_and(|rate| !(rate > 0.0 && rate.is_finite()))
    {
        return Err(RunFault::Rate);
    }
    let is_header = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
    if !options.token.as_ref().is_none_or(is_header) {
        return Err(RunFault::Token);
    }
    let mut options = options;
    options.connections = options.connections.max(1);
    // A shard without a connection would have nothing to do.
    let shards_max = u16::try_from(options.connections).unwrap_or(u16::MAX);
    options.shards = options.shards.clamp(1, shards_max);
    let plan = Plan {
        shards: options.shards,
        cpus: options.cpus.clone(),
        driver: options.driver,
        name: "loadgen",
    };
    let (words, heard) = unbounded();
    let common = Arc::new(Common {
        script: Script {
            target: Target::parse(&options.url)?,
            tool: serde_json::Value::from(options.tool.as_str()).to_string(),
            arguments: options.arguments.clone(),
            token: options.token.clone(),
            expected: match options.check {
                Check::Success => Expected::Success,
                Check::Bytes(count) => Expected::Bytes {
                    count,
                    tolerance: SIZE_TOLERANCE,
                },
                Check::Counter => Expected::Counter,
            },
            limit: options.limit,
        },
        is_stopped: AtomicBool::new(false),
        calls: (0..plan.shards).map(|_| Counter::default()).collect(),
        due: (0..plan.shards).map(|_| pace::Due::default()).collect(),
        options,
    });
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
    let started_at = Instant::now();
    tell(&shards, || Order::Start(started_at));
    let mut running = Running {
        common,
        shards,
        words: heard,
        pacer: None,
        started_at,
    };
    if running.common.options.rate.is_some() {
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

fn tell(shards: &Shards<Order>, order: impl Fn() -> Order) {
    for handle in shards.handles() {
        // Refused only by a shard that has ended; `wait` finds out.
        let _ = handle.post(order());
    }
}

impl Running {
    /// Calls done so far, the warm-up's and failed ones included.
    pub fn calls(&self) -> u64 {
        self.common.calls.iter().map(Counter::value).sum()
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
        let mut whole: Option<report::Tally> = None;
        for _ in 0..self.common.options.shards {
            let tally = match self.words.recv() {
                Ok(Word::Done(tally)) => tally,
                Ok(Word::Ready(_)) | Err(_) => return Err(RunFault::Died),
            };
            match &mut whole {
                Some(whole) => whole.merge(&tally),
                None => whole = Some(*tally),
            }
        }
        self.common.is_stopped.store(true, Ordering::Relaxed);
        if let Some(pacer) = self.pacer {
            // The pacer cannot panic; if it did, the slips show it.
            let _ = pacer.join();
        }
        self.shards.join();
        let whole = whole.ok_or(RunFault::Died)?;
        Ok(whole.into_report(&self.common.options, self.started_at))
    }
}
