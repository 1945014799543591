//! The folder of a run: written once, read by comparison, joining and planning.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use super::{
    document::{Document, DocumentFault},
    hgrm, hlog, html,
};
use crate::record::{Recording, Series};

/// The summary; it is written last, so a folder that has it is complete.
pub const REPORT: &str = "report.json";
/// The page to read.
pub const PAGE: &str = "report.html";
/// Response times by operation.
const RESPONSE: &str = "response.hlog";
/// Service times by operation.
const SERVICE: &str = "service.hlog";
/// How late calls were sent.
const SLIP: &str = "slip.hlog";
/// How late although a caller was free.
const LAG: &str = "lag.hlog";
/// Response times by shard of the target.
const OWNERS: &str = "owners.hlog";
/// Tag of the only series of a log.
const SLIP_TAG: &str = "slip";
/// The same.
const LAG_TAG: &str = "lag";
/// Tags of owners begin so.
const OWNER_TAG: &str = "shard_";
/// Bytes of a file of a run that is read at all.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Why a folder cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FolderFault {
    /// The folder holds a run already.
    #[error("{} holds a run already", .0.display())]
    Taken(PathBuf),
    /// The disk says no.
    #[error("{}: {fault}", .path.display())]
    Io {
        /// Of the file.
        path: PathBuf,
        /// What happened.
        fault: io::Error,
    },
    /// A file is larger than any of ours.
    #[error("{} is too large", .0.display())]
    TooLarge(PathBuf),
    /// The summary is not one of ours.
    #[error("{}: {fault}", .path.display())]
    Document {
        /// Of the file.
        path: PathBuf,
        /// What is wrong.
        fault: DocumentFault,
    },
    /// A log is not one of ours.
    #[error("{}: {fault}", .path.display())]
    Log {
        /// Of the file.
        path: PathBuf,
        /// What is wrong.
        fault: hlog::LogFault,
    },
    /// A log and the summary are of different runs.
    #[error("{}: {name} is not what the summary says", .path.display())]
    Mismatch {
        /// Of the log.
        path: PathBuf,
        /// The operation or shard.
        name: String,
    },
}

/// Makes the folder, before a run is made for nothing; refuses one that holds a run.
pub fn prepare(folder: &Path) -> Result<(), FolderFault> {
    let report = folder.join(REPORT);
    if report.exists() {
        return Err(FolderFault::Taken(folder.to_owned()));
    }
    fs::create_dir_all(folder).map_err(|fault| FolderFault::Io {
        path: folder.to_owned(),
        fault,
    })
}

/// Writes a run into a folder.
pub fn write(folder: &Path, recording: &Recording) -> Result<(), FolderFault> {
    prepare(folder)?;
    let clock = hlog::Clock {
        started_unix_ms: recording.started_unix_ms,
        interval_s: recording.interval_s,
        measured_s: recording.measured_s,
    };
    let named = |pick: fn(&crate::record::Operation) -> &Series| {
        let all = recording.operations.iter();
        all.map(|(name, one)| (name.clone(), pick(one)))
            .collect::<Vec<_>>()
    };
    let (response, service) = (named(|one| &one.response), named(|one| &one.service));
    let owners = recording.owners.iter();
    let owners: Vec<_> = owners
        .map(|(shard, owner)| (format!("{OWNER_TAG}{shard}"), &owner.response))
        .collect();
    let slip = vec![(SLIP_TAG.to_owned(), &recording.slip)];
    let lag = vec![(LAG_TAG.to_owned(), &recording.lag)];
    for (name, series) in [
        (RESPONSE, &response),
        (SERVICE, &service),
        (SLIP, &slip),
        (LAG, &lag),
        (OWNERS, &owners),
    ] {
        let tagged: Vec<(&str, &Series)> = series
            .iter()
            .map(|(tag, series)| (tag.as_str(), *series))
            .collect();
        if tagged.iter().any(|(_, series)| !series.whole().is_empty()) {
            put(folder, name, |out| hlog::write(out, &clock, &tagged))?;
        }
    }
    for (kind, series) in [("response", &response), ("service", &service)] {
        for (name, series) in series {
            let table = hgrm::to_text(series.whole());
            put(folder, &format!("{kind}-{name}.hgrm"), |out| {
                out.write_all(table.as_bytes())
            })?;
        }
    }
    for (name, times) in [
        ("response.hgrm", &recording.response()),
        ("service.hgrm", &recording.service()),
        ("slip.hgrm", recording.slip.whole()),
    ] {
        if !times.is_empty() {
            let table = hgrm::to_text(times);
            put(folder, name, |out| out.write_all(table.as_bytes()))?;
        }
    }
    put(folder, PAGE, |out| {
        out.write_all(html::page(recording).as_bytes())
    })?;
    put(folder, REPORT, |out| {
        serde_json::to_writer_pretty(&mut *out, &Document::of(recording))?;
        out.write_all(b"\n")
    })
}

fn put(
    folder: &Path,
    name: &str,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), FolderFault> {
    let path = folder.join(name);
    let written = File::create(&path).and_then(|file| {
        let mut out = BufWriter::new(file);
        fill(&mut out)?;
        out.flush()
    });
    written.map_err(|fault| FolderFault::Io { path, fault })
}

/// Reads a run again, exactly as it was recorded.
pub fn load(folder: &Path) -> Result<Recording, FolderFault> {
    let path = folder.join(REPORT);
    let text = get(&path)?;
    let in_report = |fault| FolderFault::Document {
        path: path.clone(),
        fault,
    };
    let document = Document::parse(&text).map_err(in_report)?;
    let good: BTreeMap<String, u64> = document
        .operations
        .iter()
        .map(|(name, part)| (name.clone(), part.good))
        .collect();
    let slips = document.summary.slip_us.count;
    let lags = document.summary.lag_us.count;
    let mut recording = document.into_recording().map_err(in_report)?;
    let read = |name: &str| read_log(folder, name, recording.interval_s);
    let (mut response, mut service) = (read(RESPONSE)?, read(SERVICE)?);
    let (mut slip, mut lag, mut owners) = (read(SLIP)?, read(LAG)?, read(OWNERS)?);
    recording.slip = slip.remove(SLIP_TAG).unwrap_or_default();
    recording.lag = lag.remove(LAG_TAG).unwrap_or_default();
    for (name, operation) in &mut recording.operations {
        operation.response = response.remove(name).unwrap_or_default();
        operation.service = service.remove(name).unwrap_or_default();
        let wanted = good.get(name).copied().unwrap_or(0);
        for (file, series) in [
            (RESPONSE, &operation.response),
            (SERVICE, &operation.service),
        ] {
            expect(folder, file, name, series, wanted)?;
        }
    }
    expect(folder, SLIP, SLIP_TAG, &recording.slip, slips)?;
    expect(folder, LAG, LAG_TAG, &recording.lag, lags)?;
    for (shard, owner) in &mut recording.owners {
        let tag = format!("{OWNER_TAG}{shard}");
        owner.response = owners.remove(&tag).unwrap_or_default();
        let wanted = owner.sent.saturating_sub(owner.errors);
        expect(folder, OWNERS, &tag, &owner.response, wanted)?;
    }
    let rest = [
        (RESPONSE, response),
        (SERVICE, service),
        (SLIP, slip),
        (LAG, lag),
        (OWNERS, owners),
    ];
    for (file, rest) in rest {
        if let Some((name, _)) = rest.into_iter().next() {
            let path = folder.join(file);
            return Err(FolderFault::Mismatch { path, name });
        }
    }
    Ok(recording)
}

/// A log and the summary have to agree on how many times there are.
fn expect(
    folder: &Path,
    file: &str,
    name: &str,
    series: &Series,
    count: u64,
) -> Result<(), FolderFault> {
    if series.whole().len() == count {
        return Ok(());
    }
    Err(FolderFault::Mismatch {
        path: folder.join(file),
        name: name.to_owned(),
    })
}

fn read_log(
    folder: &Path,
    name: &str,
    interval_s: u32,
) -> Result<BTreeMap<String, Series>, FolderFault> {
    let path = folder.join(name);
    // A log without a line is not written.
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = get(&path)?;
    hlog::read(&text, interval_s).map_err(|fault| FolderFault::Log { path, fault })
}

fn get(path: &Path) -> Result<Vec<u8>, FolderFault> {
    let in_path = |fault| FolderFault::Io {
        path: path.to_owned(),
        fault,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(in_path)?;
    let mut bounded = file.take(FILE_BYTES_MAX + 1);
    bounded.read_to_end(&mut bytes).map_err(in_path)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FolderFault::TooLarge(path.to_owned()));
    }
    Ok(bytes)
}

impl Recording {
    /// Reads a run's folder.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, FolderFault> {
        load(folder.as_ref())
    }

    /// Writes a run's folder.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<(), FolderFault> {
        write(folder.as_ref(), self)
    }
}
