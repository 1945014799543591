//! Instructions of the gateway for one `tools/call` or exchange, by callgrind, against a budget.
//!
//! The count is a slope: the gateway is run twice, with calls that differ in number alone, so what
//! starting, opening sessions and ending cost falls out. What is left depends on the program and
//! not on the machine's mood: the client and the backend share the gateway's core and run when it
//! sleeps, so a read that finds nothing does so every time. Only what the gateway's process does
//! outside the kernel counts, all threads of it. A machine so busy that the client is late by tens
//! of milliseconds adds a percent: the gateway takes the connection for an idle one.

pub mod budget;
pub mod callgrind;
mod talk;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use loadgen::backend::BackendFault;

use crate::contestant::{
    Absence, Backends, Case, ConnectNode, ConnectPlan, Contestant, GatewayPlan, wait_for,
};

/// Calls of the shorter run: enough for buffers, pools and tables to have their size.
const CALLS_FIRST: u32 = 1000;
/// Time the gateway has to end: a drain, many times slower than usual.
const END_LIMIT: Duration = Duration::from_secs(60);

/// What is called, and how it gets to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// A JSON reply of 200 bytes.
    Small,
    /// A JSON reply of 16 KiB.
    Large,
    /// An event stream: three progress notifications, then a reply of 200 bytes.
    Progress,
    /// A JSON reply of 200 bytes for a session that the other of two shards owns; both shards'
    /// instructions count.
    Forwarded,
    /// A JSON reply of 200 bytes to a call that belongs to no session.
    Stateless,
    /// An exchange of the connection gateway: a caller's request, the three parts of its client's
    /// answer, and the end.
    Exchange,
}

impl Input {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Small,
        Self::Large,
        Self::Progress,
        Self::Forwarded,
        Self::Stateless,
        Self::Exchange,
    ];

    /// Name in the budget and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "json200",
            Self::Large => "json16k",
            Self::Progress => "progress",
            Self::Forwarded => "forwarded",
            Self::Stateless => "stateless",
            Self::Exchange => "exchange",
        }
    }

    /// The input of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|input| input.name() == name)
    }

    fn case(self) -> Case {
        match self {
            Self::Small | Self::Forwarded | Self::Stateless | Self::Exchange => Case::Small,
            Self::Large => Case::Large,
            Self::Progress => Case::Progress,
        }
    }

    fn shards(self) -> usize {
        if self == Self::Forwarded { 2 } else { 1 }
    }
}

/// How to count.
#[derive(Debug, Clone)]
pub struct CountOptions {
    /// The gateway's release binary.
    pub gateway: PathBuf,
    /// `--io-driver` of the gateway.
    pub driver: &'static str,
    /// Core of everything.
    pub cpu: usize,
    /// Calls by which the two runs differ.
    pub calls: u32,
    /// Where callgrind's files go, for `callgrind_annotate`; `None`: they are removed.
    pub keep: Option<PathBuf>,
}

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub enum CountFault {
    /// No place for files, or the core cannot be had.
    #[error("cannot prepare: {0}")]
    Prepare(#[source] io::Error),
    /// No backend.
    #[error(transparent)]
    Backend(#[from] BackendFault),
    /// No gateway.
    #[error("the gateway {0}")]
    Gateway(#[from] Absence),
    /// A call was not answered as it must be.
    #[error("a call failed: {0}")]
    Call(#[source] io::Error),
    /// The gateway did not end, so callgrind has written nothing.
    #[error("the gateway did not end: {0}")]
    End(#[source] io::Error),
    /// callgrind's file holds no total.
    #[error("callgrind gave no total")]
    NoTotal,
}

/// Instructions for one call of `input`.
pub fn count(options: &CountOptions, input: Input) -> Result<f64, CountFault> {
    let folder = std::env::temp_dir().join(format!("bench-count-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(CountFault::Prepare)?;
    if let Some(keep) = &options.keep {
        fs::create_dir_all(keep).map_err(CountFault::Prepare)?;
    }
    let first = run(options, &folder, input, CALLS_FIRST);
    let second = first.and_then(|first| {
        let second = run(options, &folder, input, CALLS_FIRST + options.calls)?;
        Ok(second.saturating_sub(first))
    });
    // What stays behind is small and in the system's temporary folder.
    let _ = fs::remove_dir_all(&folder);
    Ok(second? as f64 / f64::from(options.calls.max(1)))
}

/// One run of the gateway, from start to end: its instructions.
fn run(options: &CountOptions, folder: &Path, input: Input, calls: u32) -> Result<u64, CountFault> {
    let cpu = options.cpu;
    let counts = options
        .keep
        .as_deref()
        .unwrap_or(folder)
        .join(format!("callgrind.{}.{calls}", input.name()));
    let under = callgrind::wrapper(&counts);
    if input == Input::Exchange {
        let plan = ConnectPlan {
            label: "counted-connect",
            program: &options.gateway,
            driver: options.driver,
            cpu,
            under: &under,
        };
        let mut node = ConnectNode::start(folder, &plan)?;
        talk::politely(cpu, || talk::exchange(&node, cpu, calls))
            .map_err(CountFault::Prepare)?
            .map_err(CountFault::Call)?;
        node.process.end(END_LIMIT).map_err(CountFault::End)?;
        return read_total(&counts);
    }
    let backends = talk::politely(cpu, || Backends::start(cpu, &[input.case()], None))
        .map_err(CountFault::Prepare)??;
    let plan = GatewayPlan {
        label: "counted",
        program: &options.gateway,
        driver: options.driver,
        cpus: &[cpu],
        shards: input.shards(),
        under: &under,
    };
    let mut gateway = Contestant::gateway(folder, &plan, &backends.addresses())?;
    // The admin listener comes up after the main one, and its counters are read as well.
    if let (Some(process), Some(admin)) = (&mut gateway.process, gateway.admin) {
        wait_for(process, admin, &plan.folder(folder).join("output.log"))?;
    }
    talk::politely(cpu, || talk::converse(&gateway, input, calls))
        .map_err(CountFault::Prepare)?
        .map_err(CountFault::Call)?;
    if let Some(process) = &mut gateway.process {
        process.end(END_LIMIT).map_err(CountFault::End)?;
    }
    backends.stop();
    read_total(&counts)
}

fn read_total(counts: &Path) -> Result<u64, CountFault> {
    let text = fs::read_to_string(counts).map_err(CountFault::End)?;
    callgrind::total(&text).ok_or(CountFault::NoTotal)
}
