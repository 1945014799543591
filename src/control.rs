//! The control thread: everything that is not on a request's path and for which good libraries
//! exist. It answers the shards' questions, watches files, serves the admin listener, and tells the
//! shards when to drain. No shard ever waits for it without a limit.

mod issuers;
mod watch;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crossbeam_channel::Sender;
pub use issuers::{IssuerNumbers, Issuers};
use shards::{EngineCounters, shard::ShardHandle};
use tokio::sync::{Notify, mpsc};
pub use watch::Watched;

use crate::{
    admin,
    bridge::{Bridge, ReverseNumbers},
    config::document::Document,
    connection_gateway::AllNumbers,
    log,
    shard_state::ToShard,
    supervisor::Supervisor,
    telemetry::{Latency, Numbers},
    upstream::{
        health::{self, BackendHealth},
        resolve::{Answer, Question},
    },
};

/// How long a shard may take to report.
const REPORT_PATIENCE: Duration = Duration::from_millis(500);

/// How one shard is.
#[derive(Debug)]
pub struct Snapshot {
    /// The shard.
    pub shard: shards::ShardId,
    /// Its histograms.
    pub latency: Latency,
    /// Its live sessions.
    pub sessions: usize,
    /// Its store can be asked, and the Redis that nodes of the connection gateway share.
    pub is_store_ready: bool,
    /// Idle backend connections it keeps, and all it has opened.
    pub upstream_connections: (usize, u64),
    /// Messages of other shards it has not taken in yet.
    pub ring_depth: usize,
}

/// What everyone may see of a running gateway.
#[derive(Clone)]
pub struct View {
    /// A handle for each shard.
    pub handles: Vec<ShardHandle<ToShard>>,
    /// Engine counters, by shard.
    pub engine: Arc<[Arc<EngineCounters>]>,
    /// Gateway counters, by shard.
    pub numbers: Arc<[Arc<Numbers>]>,
    /// Those of the connection gateway, when it is on.
    pub connection_gateway: Option<AllNumbers>,
    /// What the bridge counts of reverse-connected servers, likewise.
    pub reverse: Option<Arc<ReverseNumbers>>,
    /// What is counted of each trusted issuer.
    pub issuers: Arc<[IssuerNumbers]>,
    /// The I/O driver and why it was chosen.
    pub driver: String,
    /// It is going down.
    pub is_draining: Arc<AtomicBool>,
    /// What was read again and could not be used.
    pub reloads_refused: Arc<ReloadsRefused>,
}

/// How often files that had changed could not be used, so that those before stayed in force.
#[derive(Debug, Default)]
pub struct ReloadsRefused {
    /// User configurations.
    pub documents: AtomicU64,
    /// Certificates, their keys and bundles of roots.
    pub certificates: AtomicU64,
}

impl View {
    /// Asks all shards how they are; those that do not answer in time are missing.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let mut snapshots = self.ask(ToShard::Report);
        snapshots.sort_by_key(|snapshot| snapshot.shard);
        snapshots
    }

    /// How backends are, as far as the shards tell in time.
    pub fn backends(&self) -> Vec<BackendHealth> {
        health::together(self.ask(ToShard::Backends))
    }

    /// The answers of all shards that answer in time.
    fn ask<T>(&self, question: impl Fn(Sender<T>) -> ToShard) -> Vec<T> {
        let (sender, receiver) = crossbeam_channel::bounded(self.handles.len());
        let mut expected = 0;
        for handle in &self.handles {
            expected += usize::from(handle.post(question(sender.clone())).is_ok());
        }
        drop(sender);
        let mut answers = Vec::with_capacity(expected);
        while answers.len() < expected {
            match receiver.recv_timeout(REPORT_PATIENCE) {
                Ok(answer) => answers.push(answer),
                Err(_) => break,
            }
        }
        answers
    }

    /// CPU time of a shard's thread, as the scheduler counts it; none where it does not.
    pub fn cpu_time(&self, shard: usize) -> Option<Duration> {
        let thread = self.engine.get(shard)?.thread.value();
        let path = format!("/proc/self/task/{thread}/schedstat");
        let text = std::fs::read_to_string(path).ok()?;
        let on_cpu = text.split_whitespace().next()?.parse().ok()?;
        Some(Duration::from_nanos(on_cpu))
    }

    /// Whether it is going down.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Whether requests can be served: all shards answer and can ask their store, no drain.
    pub fn is_ready(&self) -> bool {
        !self.is_draining.load(Ordering::Relaxed) && self.is_ready_by(&self.snapshots())
    }

    /// The same, when the shards have answered already.
    pub fn is_ready_by(&self, snapshots: &[Snapshot]) -> bool {
        !self.is_draining.load(Ordering::Relaxed)
            && snapshots.len() == self.handles.len()
            && snapshots.iter().all(|snapshot| snapshot.is_store_ready)
    }
}

/// What the control thread does until it is stopped.
pub struct Tasks {
    /// The running shards.
    pub view: View,
    /// The shards' questions.
    pub questions: mpsc::Receiver<Question>,
    /// The trusted issuers, whose keys are to be fetched.
    pub issuers: Issuers,
    /// What was read at the start and may change.
    pub watched: Watched,
    /// The file store's documents at start.
    pub document: Arc<Document>,
    /// Takes in the child processes of the documents.
    pub bridge: Arc<Bridge>,
    /// Asks to read all of it again.
    pub reload: Arc<Notify>,
    /// The admin listener, bound.
    pub admin: Option<std::net::TcpListener>,
}

/// Runs the control thread's tasks until `stop` says so.
pub fn run(tasks: Tasks, stop: tokio::sync::oneshot::Receiver<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let Tasks {
            view,
            questions,
            issuers,
            watched,
            document,
            bridge,
            reload,
            admin,
        } = tasks;
        tokio::spawn(answer(view.clone(), questions));
        let reloads = watch::start(&view, watched, (document, bridge), reload);
        tokio::spawn(issuers::run(view.clone(), issuers, reloads));
        let parting = Supervisor::of_process().map(|supervisor| {
            let parting = supervisor.parting();
            tokio::spawn(supervisor.run(view.clone()));
            parting
        });
        if let Some(listener) = admin {
            tokio::spawn(admin::serve(view, listener));
        }
        // The other side going away is a reason to stop as well.
        let _ = stop.await;
        if let Some(Ok(parting)) = parting {
            parting.say();
        }
    });
    // Name resolution may sit in a blocking thread: it is not waited for.
    runtime.shutdown_background();
    Ok(())
}

async fn answer(view: View, mut questions: mpsc::Receiver<Question>) {
    while let Some(question) = questions.recv().await {
        let handle = view.handles[usize::from(question.shard)].clone();
        tokio::spawn(async move {
            let name = (&*question.host, question.port);
            let addresses: Vec<SocketAddr> = match tokio::net::lookup_host(name).await {
                Ok(addresses) => addresses.collect(),
                Err(_) => Vec::new(),
            };
            let answer = Answer {
                ticket: question.ticket,
                addresses,
            };
            if handle.post(ToShard::Resolved(answer)).is_err() {
                log::warn(|| "a shard does not take answers any more".to_owned());
            }
        });
    }
}
