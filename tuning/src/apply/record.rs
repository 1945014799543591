//! What to go back to: the values from before the first change, in a file.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{Change, is_same, write};
use crate::source::Source;

/// The file and the host it belongs to.
#[derive(Debug, Clone)]
pub struct Record {
    path: PathBuf,
    source: Source,
}

/// Why the record cannot be used.
#[derive(Debug)]
pub enum RecordFault {
    /// The file cannot be read or written.
    File(PathBuf, io::Error),
    /// The file holds something else.
    Content(PathBuf),
}

impl std::fmt::Display for RecordFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Content(path) => write!(f, "{} is not a record of changes", path.display()),
        }
    }
}

impl std::error::Error for RecordFault {}

/// What became of a change.
type Outcome = (Change, Option<String>);

impl Record {
    /// The record at `path`, or where the system keeps such things; `root` is the copy of a host
    /// that is changed instead of this one.
    pub fn at(path: Option<PathBuf>, root: Option<&Path>) -> Self {
        let source = Source::new(root.map_or_else(|| PathBuf::from("/"), Path::to_path_buf));
        Self {
            path: path.unwrap_or_else(|| source.place("/var/lib/shardgate/tune.json")),
            source,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The changes that were made, oldest values first; none when there is no file.
    pub fn changes(&self) -> Result<Vec<Change>, RecordFault> {
        match fs::read(&self.path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|_| RecordFault::Content(self.path.clone()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(self.fault(error)),
        }
    }

    /// Adds changes. A file that was changed before keeps its first value.
    pub(super) fn add(&self, changes: &[Change]) -> Result<(), RecordFault> {
        let mut all = self.changes()?;
        for change in changes {
            match all.iter_mut().find(|known| known.path == change.path) {
                Some(known) => known.wanted.clone_from(&change.wanted),
                None => all.push(change.clone()),
            }
        }
        self.store(&all)
    }

    /// Writes the old values back. Those that somebody has changed since are left; what could not
    /// be written back stays in the record.
    pub fn revert(&self) -> Result<Vec<Outcome>, RecordFault> {
        let mut stuck = Vec::new();
        let mut outcomes = Vec::new();
        for change in self.changes()? {
            let outcome = match self.source.text(&change.path) {
                // It was never set, or is back already.
                Ok(now) if holds(&now, &change.current) => None,
                Ok(now) if !holds(&now, &change.wanted) => {
                    Some(format!("left: it says {now}, which is not what was set"))
                }
                _ => {
                    let fault = write(&self.source, &change.path, &change.current);
                    if fault.is_some() {
                        stuck.push(change.clone());
                    }
                    fault
                }
            };
            outcomes.push((change, outcome));
        }
        self.store(&stuck)?;
        Ok(outcomes)
    }

    /// Writes the file beside and renames it, so that there is always a whole one.
    fn store(&self, changes: &[Change]) -> Result<(), RecordFault> {
        if changes.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.fault(error)),
                _ => Ok(()),
            };
        }
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let write = || {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = fs::File::create(&beside)?;
            file.write_all(&serde_json::to_vec_pretty(changes)?)?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)
        };
        write().map_err(|error| self.fault(error))
    }

    fn fault(&self, error: io::Error) -> RecordFault {
        RecordFault::File(self.path.clone(), error)
    }
}

fn holds(now: &str, value: &str) -> bool {
    is_same(now, value) || now.contains(&format!("[{value}]"))
}
