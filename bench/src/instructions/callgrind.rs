//! valgrind's callgrind: whether it is there, how it is started, what it wrote.

use std::{path::Path, process::Command};

/// The version of the valgrind that is installed; `None`: there is none.
pub fn version() -> Option<String> {
    let output = Command::new("valgrind").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// The words a command line begins with to be counted into the file `counts`.
pub(super) fn wrapper(counts: &Path) -> Vec<String> {
    vec![
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        // Nobody attaches a debugger, and its pipes would be left in the temporary folder.
        "--vgdb=no".to_owned(),
        // The gateway starts in a folder of its own.
        format!(
            "--callgrind-out-file={}",
            std::path::absolute(counts)
                .unwrap_or_else(|_| counts.to_owned())
                .display()
        ),
    ]
}

/// Instructions of the whole run, out of callgrind's file (Callgrind Format Specification: `totals`
/// is the sum over all of the file, in the order of `events`; `summary` is that of one part).
pub(super) fn total(text: &str) -> Option<u64> {
    let value = |key: &str| {
        let mut lines = text.lines().rev();
        lines.find_map(|line| line.strip_prefix(key)?.split_whitespace().next())
    };
    let events = text.lines().find_map(|line| line.strip_prefix("events:"))?;
    if events.split_whitespace().next() != Some("Ir") {
        return None;
    }
    value("totals:").or_else(|| value("summary:"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_of_instructions() {
        let text = "version: 1\nevents: Ir\nsummary: 12\nfn=(1) main\n16 400\n\ntotals: 4711\n";
        assert_eq!(total(text), Some(4711));
        assert_eq!(total("events: Ir\nsummary: 12\n"), Some(12));
        assert_eq!(total("events: Ir Dr\ntotals: 7 8\n"), Some(7));
        for text in [
            "",
            "events: Dr Ir\ntotals: 7 8\n",
            "events: Ir\ntotals: x\n",
        ] {
            assert_eq!(total(text), None, "{text}");
        }
    }

    #[test]
    fn the_file_is_named_from_the_root() {
        let words = wrapper(Path::new("here/counts"));
        let file = words[3].strip_prefix("--callgrind-out-file=").unwrap();
        assert!(file.starts_with('/') && file.ends_with("/here/counts"));
    }
}
