//! Processes under test: started on one core, their CPU time and memory read from `/proc`.
//!
//! CPU time is that of the whole process tree: `schedstat` of every thread for the total (exact, in
//! nanoseconds), `stat` for how it divides into user and system (ticks, scaled by the kernel).

use std::{
    fs, io,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// CPU time used so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuTime {
    /// User and system, ns.
    pub total_ns: u64,
    /// User share, clock ticks.
    pub user_ticks: u64,
    /// System share, clock ticks.
    pub system_ticks: u64,
}

impl CpuTime {
    /// What was used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(earlier.system_ticks),
        }
    }

    /// User time, ns: the exact total, divided as the ticks say.
    pub fn user_ns(self) -> f64 {
        let ticks = self.user_ticks + self.system_ticks;
        if ticks == 0 {
            0.0
        } else {
            self.total_ns as f64 * self.user_ticks as f64 / ticks as f64
        }
    }
}

/// A process under test: one of ours, which is killed when dropped, after `stop_with` has had its
/// chance, or one that somebody else started, which is only watched.
#[derive(Debug)]
pub struct Process {
    id: u32,
    child: Option<Child>,
    stop_with: Option<Command>,
}

impl Process {
    /// Starts `command` with all of it on core `cpu` (`None`: wherever this thread may run). Its
    /// output goes to `log`. `stop_with` ends it where killing would leave children behind.
    pub fn start(
        mut command: Command,
        cpu: Option<usize>,
        log: &Path,
        stop_with: Option<Command>,
    ) -> io::Result<Self> {
        let log = fs::File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // A child inherits the affinity of the thread that starts it, so a thread of its own does.
        let starting = std::thread::spawn(move || {
            if cpu.is_some_and(|cpu| !shards::topology::pin(cpu)) {
                return Err(io::Error::other("cannot pin to the core under test"));
            }
            command.spawn()
        });
        let child = starting
            .join()
            .map_err(|_| io::Error::other("cannot start a process"))??;
        Ok(Self {
            id: child.id(),
            child: Some(child),
            stop_with,
        })
    }

    /// A process that runs already; `None` when there is none of this number.
    pub fn watch(id: u32) -> Option<Self> {
        Path::new(&format!("/proc/{id}/stat"))
            .exists()
            .then_some(Self {
                id,
                child: None,
                stop_with: None,
            })
    }

    /// Cores it may run on, as a list such as `0-3,6`; `None` when the system does not say.
    pub fn cores(&self) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).ok()?;
        let mut lines = status.lines();
        let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(list.trim().to_owned())
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => Self::watch(self.id).is_some(),
        }
    }

    /// Asks it to end (SIGTERM) and waits until it has. Past `limit` it is an error, and the
    /// process still runs.
    pub fn end(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        let (Some(child), Some(id)) = (&mut self.child, id) else {
            return Err(io::Error::other("the process is not ours to end"));
        };
        kill_process(id, Signal::TERM)?;
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the process did not end when it was asked to",
        ))
    }

    /// CPU time of it and its children.
    pub fn cpu_time(&self) -> CpuTime {
        let mut sum = CpuTime::default();
        for id in tree(self.id) {
            let time = cpu_time_of(Path::new(&format!("/proc/{id}")));
            sum.total_ns += time.total_ns;
            sum.user_ticks += time.user_ticks;
            sum.system_ticks += time.system_ticks;
        }
        sum
    }

    /// Memory of it and its children by a field of `/proc/PID/status`, bytes: `VmRSS` (resident)
    /// or `RssAnon` (resident and its own).
    pub fn memory(&self, field: &str) -> u64 {
        tree(self.id)
            .into_iter()
            .filter_map(|id| {
                let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
                memory_field(&status, field)
            })
            .sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(stop) = &mut self.stop_with {
            // When it fails, the kill below still ends the process itself.
            let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
            for _ in 0..200 {
                if !self.is_running() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if let Some(child) = &mut self.child {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The process and all its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if let Some(parent) = fs::read_to_string(entry.path().join("stat"))
            .ok()
            .and_then(|stat| stat_fields(&stat)?.get(1)?.parse::<u32>().ok())
        {
            parents.push((id, parent));
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(
            parents
                .iter()
                .filter(|entry| entry.1 == parent)
                .map(|entry| entry.0),
        );
        next += 1;
    }
    found
}

/// The fields of a `stat` file after the command's name, which may hold anything.
fn stat_fields(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace().collect())
}

fn cpu_time_of(folder: &Path) -> CpuTime {
    let mut time = CpuTime::default();
    if let Ok(stat) = fs::read_to_string(folder.join("stat"))
        && let Some(fields) = stat_fields(&stat)
    {
        // proc(5): utime and stime are fields 14 and 15; ours begin with field 3.
        let number = |index: usize| fields.get(index).and_then(|text| text.parse().ok());
        time.user_ticks = number(11).unwrap_or(0);
        time.system_ticks = number(12).unwrap_or(0);
    }
    for task in fs::read_dir(folder.join("task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let on_cpu = schedstat
            .split_whitespace()
            .next()
            .and_then(|text| text.parse::<u64>().ok());
        time.total_ns += on_cpu.unwrap_or(0);
    }
    time
}

fn memory_field(status: &str, field: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_after_a_name_with_spaces_and_brackets() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 55 66 0 0 20 0";
        let fields = stat_fields(stat).unwrap();
        assert_eq!(
            (fields[0], fields[1], fields[11], fields[12]),
            ("S", "1", "55", "66")
        );
    }

    #[test]
    fn memory_fields() {
        let status = "Name:\tx\nVmRSS:\t    1024 kB\nRssAnon:\t  12 kB\n";
        assert_eq!(memory_field(status, "VmRSS"), Some(1024 * 1024));
        assert_eq!(memory_field(status, "RssAnon"), Some(12 * 1024));
        assert_eq!(memory_field(status, "Rss"), None);
    }

    #[test]
    fn the_user_share_follows_the_ticks() {
        let time = CpuTime {
            total_ns: 1000,
            user_ticks: 1,
            system_ticks: 3,
        };
        assert!((time.user_ns() - 250.0).abs() < 1e-9);
        assert!(CpuTime::default().user_ns().abs() < 1e-9);
    }

    #[test]
    fn who_is_asked_to_end_may_say_how_it_went() {
        let log = std::env::temp_dir().join(format!("bench-ending-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done",
        ]);
        let mut process = Process::start(command, None, &log, None).unwrap();
        while !fs::read_to_string(&log).unwrap().contains("ready") {
            assert!(process.is_running());
            std::thread::yield_now();
        }
        let status = process.end(Duration::from_secs(60)).unwrap();
        assert_eq!(status.code(), Some(7));
        fs::remove_file(log).unwrap();
    }

    #[test]
    fn a_process_is_measured_with_its_children_and_ends_when_dropped() {
        let log = std::env::temp_dir().join(format!("bench-process-{}", std::process::id()));
        let mut command = Command::new("sh");
        // The shell burns CPU in a child and then waits, so there is something to read.
        command.args([
            "-c",
            "sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; \
            exec sleep 600' & wait",
        ]);
        let mut process = Process::start(command, Some(0), &log, None).unwrap();
        while !fs::read_to_string(&log).unwrap().contains("done") {
            assert!(process.is_running());
            std::thread::yield_now();
        }
        assert!(process.cpu_time().total_ns > 1_000_000);
        assert!(process.memory("VmRSS") > 100_000);
        let ids = tree(process.id);
        let watched = Process::watch(process.id).unwrap();
        assert_eq!(watched.cores().as_deref(), Some("0"));
        assert!(watched.cpu_time().total_ns > 1_000_000);
        // Whoever only watches ends nothing.
        drop(watched);
        assert!(process.is_running());
        assert_eq!(ids.len(), 2, "the shell and its child");
        drop(process);
        assert!(Process::watch(ids[0]).is_none());
        // The child is not killed with its parent: that is what `stop_with` is for.
        Command::new("kill")
            .arg(ids[1].to_string())
            .status()
            .unwrap();
        fs::remove_file(log).unwrap();
    }
}
