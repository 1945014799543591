//! The processes of a measurement: a gateway and its backend, started from our own program and
//! ended when dropped.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// How long a process may take to say where it listens.
const START_MAX: Duration = Duration::from_secs(20);

/// A running process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    what: &'static str,
    log: std::path::PathBuf,
}

impl Process {
    /// Starts `program`; what it complains of goes to a file in `folder`.
    pub(super) fn start(
        what: &'static str,
        program: &Path,
        arguments: &[OsString],
        folder: &Path,
    ) -> Result<Self, String> {
        let fault = |error: std::io::Error| format!("{what}: {error}");
        let log = folder.join(format!("{what}.log"));
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).map_err(fault)?)
            .spawn()
            .map_err(fault)?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // Ends with the process, whose output it keeps taking.
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Nobody has to listen any more.
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self {
            child,
            lines,
            what,
            log,
        })
    }

    /// The first line with `part` in it, waited for.
    pub(super) fn line_with(&self, part: &str) -> Result<String, String> {
        let end = Instant::now() + START_MAX;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(part) => return Ok(line),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        Err(format!(
            "{} did not come up: {}",
            self.what,
            last.unwrap_or("it said nothing")
        ))
    }

    /// Resident bytes.
    pub(super) fn resident(&self) -> Option<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).ok()?;
        crate::source::field(&status, "VmRSS")?
            .parse::<u64>()
            .ok()
            .map(|kib| kib * 1024)
    }

    /// Whether it still runs.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_waited_for_and_an_early_end_says_why() {
        let folder = std::env::temp_dir().join(format!("tuning-child-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let start = |script: &str| {
            let arguments = ["-c", script].map(OsString::from);
            Process::start("sh", Path::new("/bin/sh"), &arguments, &folder).unwrap()
        };
        let mut process = start("echo one; echo on two; kill -STOP $$");
        assert_eq!(process.line_with("two").unwrap(), "on two");
        assert!(process.is_running());
        assert!(process.resident().unwrap() > 10_000);
        drop(process);
        let failing = start("echo out of luck >&2");
        assert_eq!(
            failing.line_with("two").unwrap_err(),
            "sh did not come up: out of luck"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
