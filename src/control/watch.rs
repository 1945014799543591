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
    config::document::Document,
    control::View,
    log,
    prepare::{TlsFiles, read_documents},
    shard_state::ToShard,
};

/// How long a change of files is left to settle before they are read.
const SETTLE: Duration = Duration::from_millis(50);
/// How often files are looked at all the same, should a change go unnoticed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long a shard is left alone that has too much to do to be told something.
const TELL_AGAIN: Duration = Duration::from_millis(20);

/// What was read at the start and may change.
#[derive(Default)]
pub struct Watched {
    /// The file store's path, and what was read there.
    pub documents: Option<(PathBuf, Arc<Document>)>,
    /// Certificates and keys.
    pub tls: TlsFiles,
}

/// Starts to watch; `reload` asks to read everything again, changed or not.
pub(super) fn start(view: &View, watched: Watched, reload: Arc<Notify>) {
    let (all, _) = broadcast::channel(1);
    if let Some((path, document)) = watched.documents {
        tokio::spawn(documents(view.clone(), path, document, all.subscribe()));
    }
    if !watched.tls.is_empty() {
        tokio::spawn(certificates(view.clone(), watched.tls, all.subscribe()));
    }
    tokio::spawn(async move {
        loop {
            reload.notified().await;
            // Nobody may be watching anything.
            let _ = all.send(());
        }
    });
}

/// Gives changed documents to all shards.
async fn documents(
    view: View,
    path: PathBuf,
    mut current: Arc<Document>,
    mut reload: broadcast::Receiver<()>,
) {
    let files = |document: &Document| {
        let mut files = vec![path.clone()];
        files.extend(document.credential_files());
        files
    };
    let mut watch = Watch::new(files(&current));
    loop {
        watch.changed(&mut reload).await;
        match read_documents(&path) {
            Ok(document) => {
                for finding in &document.findings {
                    log::warn(|| finding.to_string());
                }
                current = Arc::new(document);
                watch.follow(files(&current));
                tell_all(&view, || ToShard::Document(current.clone())).await;
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

/// Gives changed certificates to all shards: new connections use them.
async fn certificates(view: View, files: TlsFiles, mut reload: broadcast::Receiver<()>) {
    let mut watch = Watch::new(files.paths());
    loop {
        watch.changed(&mut reload).await;
        match files.load() {
            Ok(tls) => {
                tell_all(&view, || ToShard::Tls(tls.clone())).await;
                log::info(|| "certificates were read again".to_owned());
            }
            Err(faults) => {
                log::error(|| format!("certificates stay as they were: {}", faults.join("; ")));
            }
        }
    }
}

/// Tells every shard, however long that takes one that is far behind: what is told here must not
/// get lost.
async fn tell_all(view: &View, message: impl Fn() -> ToShard) {
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
    fn new(paths: Vec<PathBuf>) -> Self {
        let (changed, changes) = mpsc::channel(1);
        let watcher = watcher(&paths, changed.clone());
        Self {
            known: stamps(&paths),
            paths,
            changes,
            changed,
            watcher,
        }
    }

    /// Looks at these from now on, if they are others.
    fn follow(&mut self, paths: Vec<PathBuf>) {
        if paths != self.paths {
            self.watcher = watcher(&paths, self.changed.clone());
            self.known = stamps(&paths);
            self.paths = paths;
        }
    }

    /// Waits until a file has changed and its writer is done, or somebody asks.
    async fn changed(&mut self, reload: &mut broadcast::Receiver<()>) {
        let pause = match self.watcher {
            Some(_) => LOOK_AGAIN,
            None => LOOK_AGAIN / 25,
        };
        loop {
            let is_asked = tokio::select! {
                _ = self.changes.recv() => false,
                // One that was missed is one all the same.
                asked = reload.recv() => !matches!(asked, Err(broadcast::error::RecvError::Closed)),
                () = tokio::time::sleep(pause) => false,
            };
            let mut now = stamps(&self.paths);
            if now == self.known && !is_asked {
                continue;
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
            return;
        }
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
