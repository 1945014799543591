//! The control thread: everything that is not on a request's path and for which good libraries
//! exist. It answers the shards' questions, watches files, serves the admin listener, and tells the
//! shards when to drain. No shard ever waits for it without a limit.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use shards::{EngineCounters, shard::ShardHandle};
use tokio::sync::mpsc;

use crate::{
    admin,
    bridge::Bridge,
    config::user_config::DocumentRules,
    log,
    prepare::{document_rules, read_documents},
    settings::{Settings, StoreSource},
    shard_state::ToShard,
    telemetry::{Latency, Numbers},
    upstream::resolve::{Answer, Question},
};

/// How long a change of files is left to settle before they are read.
const SETTLE: Duration = Duration::from_millis(50);
/// How often files are looked at all the same, should a change go unnoticed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
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
    /// Its store can be asked.
    pub is_store_ready: bool,
    /// Idle backend connections it keeps, and all it has opened.
    pub upstream_connections: (usize, u64),
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
    /// The I/O driver and why it was chosen.
    pub driver: String,
    /// It is going down.
    pub is_draining: Arc<AtomicBool>,
}

impl View {
    /// Asks all shards how they are; those that do not answer in time are missing.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let (sender, receiver) = crossbeam_channel::bounded(self.handles.len());
        let mut expected = 0;
        for handle in &self.handles {
            expected += usize::from(handle.post(ToShard::Report(sender.clone())).is_ok());
        }
        drop(sender);
        let mut snapshots = Vec::with_capacity(expected);
        while snapshots.len() < expected {
            match receiver.recv_timeout(REPORT_PATIENCE) {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(_) => break,
            }
        }
        snapshots.sort_by_key(|snapshot| snapshot.shard);
        snapshots
    }

    /// Whether requests can be served: all shards answer and can ask their store, no drain.
    pub fn is_ready(&self) -> bool {
        if self.is_draining.load(Ordering::Relaxed) {
            return false;
        }
        let snapshots = self.snapshots();
        snapshots.len() == self.handles.len()
            && snapshots.iter().all(|snapshot| snapshot.is_store_ready)
    }
}

/// The files of the file store.
pub struct Documents {
    path: PathBuf,
    rules: DocumentRules,
    /// What they were like when they were last read, or shortly before.
    known: Stamp,
}

impl Documents {
    /// Looks at them; to be called before they are read, or a change in between goes unnoticed.
    pub fn of(settings: &Settings) -> Option<Self> {
        let StoreSource::File(path) = &settings.store.source else {
            return None;
        };
        Some(Self {
            path: path.clone(),
            rules: document_rules(settings),
            known: stamp(path),
        })
    }
}

/// What the control thread does until it is stopped.
pub struct Tasks {
    /// The running shards.
    pub view: View,
    /// The shards' questions.
    pub questions: mpsc::Receiver<Question>,
    /// The file store's documents.
    pub documents: Option<Documents>,
    /// Takes in the child processes of the documents.
    pub bridge: Arc<Bridge>,
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
            documents,
            bridge,
            admin,
        } = tasks;
        tokio::spawn(answer(view.clone(), questions));
        if let Some(documents) = documents {
            tokio::spawn(watch(view.clone(), documents, bridge));
        }
        if let Some(listener) = admin {
            tokio::spawn(admin::serve(view, listener));
        }
        // The other side going away is a reason to stop as well.
        let _ = stop.await;
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

/// Reads the documents again when they change and gives them to all shards. Documents that cannot
/// be used change nothing.
async fn watch(view: View, documents: Documents, bridge: Arc<Bridge>) {
    let Documents {
        path,
        rules,
        mut known,
    } = documents;
    let (changed, mut changes) = mpsc::channel(1);
    let _watcher = watcher(&path, changed);
    loop {
        let mut now = stamp(&path);
        if now == known {
            tokio::select! {
                change = changes.recv() => {
                    if change.is_none() {
                        // No watcher on this system: looking is all there is.
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            continue;
        }
        // A writer may not be done: wait until two looks agree.
        loop {
            tokio::time::sleep(SETTLE / 2).await;
            let again = stamp(&path);
            if again == now {
                break;
            }
            now = again;
        }
        known = now;
        match read_documents(&path, rules) {
            Ok(document) => {
                for finding in &document.findings {
                    log::warn(|| finding.to_string());
                }
                // First: a shard may ask for a child as soon as it knows of it.
                bridge.register(&document);
                let document = Arc::new(document);
                for handle in &view.handles {
                    if handle.post(ToShard::Document(document.clone())).is_err() {
                        log::warn(|| "a shard does not take documents any more".to_owned());
                    }
                }
                log::info(|| "user configurations were read again".to_owned());
            }
            Err(faults) => {
                log::error(|| {
                    format!(
                        "user configurations stay as they were: {}",
                        faults.join("; ")
                    )
                });
            }
        }
    }
}

/// Watches the folder, because files are replaced by renames as a rule.
fn watcher(path: &Path, changed: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    use notify::Watcher;
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // A change is waiting to be looked at already, when the channel is full.
            let _ = changed.try_send(());
        }
    })
    .ok()?;
    let folder = if path.is_dir() {
        path.to_owned()
    } else {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        }
    };
    watcher
        .watch(&folder, notify::RecursiveMode::NonRecursive)
        .ok()?;
    Some(watcher)
}

/// Names, sizes, times and inodes of the documents: different when one of them changed.
type Stamp = Vec<(PathBuf, u64, Option<std::time::SystemTime>, u64)>;

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let mut files: Vec<PathBuf> = if path.is_dir() {
        std::fs::read_dir(path)
            .map(|entries| {
                entries
                    .filter_map(|entry| Some(entry.ok()?.path()))
                    .collect()
            })
            .unwrap_or_default()
    } else {
        vec![path.to_owned()]
    };
    files.sort();
    files
        .into_iter()
        .filter_map(|file| {
            let metadata = std::fs::metadata(&file).ok()?;
            Some((
                file,
                metadata.len(),
                metadata.modified().ok(),
                metadata.ino(),
            ))
        })
        .collect()
}
