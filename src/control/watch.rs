//! Files that may change while the process runs: user configurations, the secrets they name, and
//! certificates. They are read again when they change or when somebody asks (SIGHUP); what cannot
//! be used changes nothing.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tokio::sync::{Notify, broadcast, mpsc};

use crate::{
    bridge::Bridge,
    config::{document::Document, user_config::DocumentRules},
    control::View,
    log,
    prepare::{TlsFiles, document_rules, read_documents},
    settings::{Settings, StoreSource},
    shard_state::ToShard,
};

/// How long a change of files is left to settle before they are read.
const SETTLE: Duration = Duration::from_millis(50);
/// How often files are looked at all the same, should a change go unnoticed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long a shard is left alone that has too much to do to be told something.
const TELL_AGAIN: Duration = Duration::from_millis(20);

/// What is read at the start and may change, and how the files were before that.
pub struct Watched {
    documents: Option<Documents>,
    tls: TlsFiles,
    tls_known: Vec<Stamp>,
}

/// The files of the file store.
struct Documents {
    path: PathBuf,
    rules: DocumentRules,
    known: Vec<Stamp>,
}

impl Watched {
    /// Looks at the files these settings name; to be called before they are read, or a change in
    /// between goes unnoticed.
    pub fn of(settings: &Settings) -> Self {
        let documents = match &settings.store.source {
            StoreSource::File(path) => Some(Documents {
                path: path.clone(),
                rules: document_rules(settings),
                known: stamps(std::slice::from_ref(path)),
            }),
            StoreSource::Empty | StoreSource::Redis(_) => None,
        };
        let tls = TlsFiles::of(settings);
        Self {
            documents,
            tls_known: stamps(&tls.paths()),
            tls,
        }
    }
}

/// Starts to watch; `reload` asks to read everything again, changed or not. `current` is what was
/// read at the start, and who takes in the child processes of what is read later. What it returns
/// tells of each such request.
pub(super) fn start(
    view: &View,
    watched: Watched,
    current: (Arc<Document>, Arc<Bridge>),
    reload: Arc<Notify>,
) -> broadcast::Receiver<()> {
    let (all, asked) = broadcast::channel(1);
    if let Some(files) = watched.documents {
        tokio::spawn(documents(view.clone(), files, current, all.subscribe()));
    }
    if !watched.tls.is_empty() {
        let watch = Watch::new(watched.tls.paths(), watched.tls_known);
        tokio::spawn(certificates(
            view.clone(),
            watched.tls,
            watch,
            all.subscribe(),
        ));
    }
    tokio::spawn(async move {
        loop {
            reload.notified().await;
            // Nobody may be watching anything.
            let _ = all.send(());
        }
    });
    asked
}

/// Gives changed documents to all shards.
async fn documents(
    view: View,
    store: Documents,
    (mut current, bridge): (Arc<Document>, Arc<Bridge>),
    mut reload: broadcast::Receiver<()>,
) {
    let Documents { path, rules, known } = store;
    let files = |document: &Document| {
        let mut files = vec![path.clone()];
        files.extend(document.credential_files());
        files
    };
    // Files of secrets were not known before: they are a difference, so all is read once more.
    let mut watch = Watch::new(files(&current), known);
    loop {
        watch.changed(&mut reload).await;
        match read_documents(&path, rules) {
            Ok(document) => {
                for finding in &document.findings {
                    log::warn(|| finding.to_string());
                }
                // First: a shard may ask for a child as soon as it knows of it.
                bridge.register(&document);
                current = Arc::new(document);
                watch.follow(files(&current));
                tell_all(&view, || ToShard::Document(current.clone())).await;
                log::info(|| "user configurations were read again".to_owned());
            }
            Err(faults) => {
                let refused = &view.reloads_refused.documents;
                refused.fetch_add(1, Ordering::Relaxed);
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

/// Gives changed certificates to all shards: new connections use them.
async fn certificates(
    view: View,
    files: TlsFiles,
    mut watch: Watch,
    mut reload: broadcast::Receiver<()>,
) {
    loop {
        watch.changed(&mut reload).await;
        match files.load() {
            Ok(tls) => {
                tell_all(&view, || ToShard::Tls(tls.clone())).await;
                log::info(|| "certificates were read again".to_owned());
            }
            Err(faults) => {
                let refused = &view.reloads_refused.certificates;
                refused.fetch_add(1, Ordering::Relaxed);
                log::error(|| format!("certificates stay as they were: {}", faults.join("; ")));
            }
        }
    }
}

/// Tells every shard, however long that takes one that is far behind: what is told here must not
/// get lost.
pub(super) async fn tell_all(view: &View, message: impl Fn() -> ToShard) {
    let mut untold: Vec<_> = view.handles.iter().collect();
    loop {
        untold.retain(|handle| handle.post(message()).is_err());
        if untold.is_empty() || view.is_draining.load(Ordering::Relaxed) {
            return;
        }
        tokio::time::sleep(TELL_AGAIN).await;
    }
}

/// Files and folders that are looked at.
struct Watch {
    paths: Vec<PathBuf>,
    known: Vec<Stamp>,
    changes: mpsc::Receiver<()>,
    changed: mpsc::Sender<()>,
    /// None: there is no watcher on this system, looking is all there is.
    watcher: Option<notify::RecommendedWatcher>,
}

impl Watch {
    /// `known` is how they were before they were read.
    fn new(paths: Vec<PathBuf>, known: Vec<Stamp>) -> Self {
        let (changed, changes) = mpsc::channel(1);
        let watcher = watcher(&paths, changed.clone());
        Self {
            known,
            paths,
            changes,
            changed,
            watcher,
        }
    }

    /// Looks at these from now on, if they are others; a new one counts as a change.
    fn follow(&mut self, paths: Vec<PathBuf>) {
        if paths != self.paths {
            self.watcher = watcher(&paths, self.changed.clone());
            self.paths = paths;
        }
    }

    /// Waits until a file has changed and its writer is done, or somebody asks.
    async fn changed(&mut self, reload: &mut broadcast::Receiver<()>) {
        let pause = match self.watcher {
            Some(_) => LOOK_AGAIN,
            None => LOOK_AGAIN / 25,
        };
        let mut is_asked = false;
        let mut now = stamps(&self.paths);
        while now == self.known && !is_asked {
            tokio::select! {
                _ = self.changes.recv() => {}
                // One that was missed is one all the same.
                asked = reload.recv() => {
                    is_asked = !matches!(asked, Err(broadcast::error::RecvError::Closed));
                }
                () = tokio::time::sleep(pause) => {}
            }
            now = stamps(&self.paths);
        }
        // A writer may not be done: wait until two looks agree.
        loop {
            tokio::time::sleep(SETTLE / 2).await;
            let again = stamps(&self.paths);
            if again == now {
                break;
            }
            now = again;
        }
        self.known = now;
    }
}

/// Watches the folders, because files are replaced by renames as a rule.
fn watcher(paths: &[PathBuf], changed: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    use notify::Watcher;
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // A change is waiting to be looked at already, when the channel is full.
            let _ = changed.try_send(());
        }
    })
    .ok()?;
    let mut folders: Vec<PathBuf> = paths.iter().map(|path| folder_of(path)).collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        watcher
            .watch(&folder, notify::RecursiveMode::NonRecursive)
            .ok()?;
    }
    Some(watcher)
}

fn folder_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Name, size, time and inode of a file: different when it has changed.
type Stamp = (PathBuf, u64, Option<SystemTime>, u64);

/// The stamps of all files, those in folders among them.
fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let mut files: Vec<PathBuf> = Vec::new();
    for path in paths {
        match std::fs::read_dir(path) {
            Ok(entries) => files.extend(entries.filter_map(|entry| Some(entry.ok()?.path()))),
            Err(_) => files.push(path.clone()),
        }
    }
    files.sort();
    files.into_iter().filter_map(stamp).collect()
}

fn stamp(file: PathBuf) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(&file).ok()?;
    let (length, inode) = (metadata.len(), metadata.ino());
    Some((file, length, metadata.modified().ok(), inode))
}
