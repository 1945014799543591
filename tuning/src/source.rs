//! Reading the small files of /proc and /sys, below the real root or below a copy of one.
//!
//! Owns the difference between "is not there", "may not be read" and "makes no sense". Writes one
//! value to one file when `apply` says so, and creates nothing.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The longest part of a file that is looked at; only memory maps come near it.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Why something could not be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// The file does not exist: an older kernel, another namespace, a feature left out.
    Missing(String),
    /// The file exists and cannot be read.
    Refused(String, io::ErrorKind),
    /// The file holds something else than expected.
    Odd(String),
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "{path} is missing"),
            Self::Refused(path, kind) => write!(f, "{path} cannot be read ({kind})"),
            Self::Odd(path) => write!(f, "{path} is not understood"),
        }
    }
}

/// A file system seen from its root.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    root: PathBuf,
}

impl Source {
    /// The files below `root`.
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The text of a file, trimmed. `path` is absolute.
    pub(crate) fn text(&self, path: &str) -> Result<String, Unseen> {
        let mut bytes = Vec::new();
        let read = File::open(self.place(path))
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Unseen::Missing(path.to_owned()))
            }
            Err(error) => Err(Unseen::Refused(path.to_owned(), error.kind())),
        }
    }

    /// The whole number a file holds.
    pub(crate) fn number(&self, path: &str) -> Result<u64, Unseen> {
        self.text(path)?
            .parse()
            .map_err(|_| Unseen::Odd(path.to_owned()))
    }

    /// The numbers a file holds, separated by blanks; exactly `N` of them.
    pub(crate) fn numbers<const N: usize>(&self, path: &str) -> Result<[u64; N], Unseen> {
        let numbers: Result<Vec<u64>, _> = self
            .text(path)?
            .split_whitespace()
            .map(str::parse::<u64>)
            .collect();
        numbers
            .ok()
            .and_then(|numbers| numbers.try_into().ok())
            .ok_or_else(|| Unseen::Odd(path.to_owned()))
    }

    /// What a folder holds, in the order of its numbers: `rx-2` before `rx-10`.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, Unseen> {
        let entries = std::fs::read_dir(self.place(path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Unseen::Missing(path.to_owned()),
            kind => Unseen::Refused(path.to_owned(), kind),
        })?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        Ok(names)
    }

    /// Whether there is a file or folder at `path`.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.place(path).exists()
    }

    /// Writes a value to a file that exists, and reads it back. Only [`crate::apply`] calls this.
    pub(crate) fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = File::options()
            .write(true)
            .truncate(true)
            .open(self.place(path))?;
        io::Write::write_all(&mut file, format!("{value}\n").as_bytes())
    }

    pub(crate) fn place(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(path.trim_start_matches('/')))
    }
}

/// The file of a kernel setting, `net.core.somaxconn` for example.
pub(crate) fn sysctl(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// The value of a line `name value...` or `name: value...`, first word only.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        (first.trim_end_matches(':') == name).then(|| words.next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_odd_is_named() {
        let source = Source::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        let path = "/no/such".to_owned();
        assert_eq!(source.text(&path), Err(Unseen::Missing(path)));
        assert_eq!(
            source.number("/lib.rs"),
            Err(Unseen::Odd("/lib.rs".to_owned()))
        );
        assert!(matches!(source.text("/"), Err(Unseen::Refused(..))));
        assert!(source.has("/checks"));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotal:  12 kB\nMem 3\nnr_throttled 4\nempty:";
        assert_eq!(field(text, "MemTotal"), Some("12"));
        assert_eq!(field(text, "Mem"), Some("3"));
        assert_eq!(field(text, "nr_throttled"), Some("4"));
        assert_eq!(field(text, "empty"), None);
        assert_eq!(field(text, "nr"), None);
    }
}
