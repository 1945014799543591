//! Which cores this process may use: affinity, cpuset and CPU quota.

use std::{fs, path::Path};

/// Core ids that a set of cores has room for (`CPU_SETSIZE`).
const CPUS_MAX: usize = 1024;

/// The cores the shards may use and how many of them make sense.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Core ids the process may run on, ascending.
    pub cpus: Vec<usize>,
    /// CPUs' worth of time the cgroup's quota gives, when one is set.
    pub quota_cpus: Option<f64>,
}

impl Topology {
    /// Reads affinity (which the cpuset has already narrowed) and the quota of this process.
    pub fn read() -> Self {
        let mut cpus: Vec<usize> = core_affinity::get_core_ids()
            .unwrap_or_default()
            .into_iter()
            .map(|core| core.id)
            .collect();
        cpus.sort_unstable();
        if cpus.is_empty() {
            cpus = (0..std::thread::available_parallelism().map_or(1, usize::from)).collect();
        }
        Self {
            cpus,
            quota_cpus: read_quota(Path::new("/")),
        }
    }

    /// Shards to start when the operator names no number: one for each usable core, but not more
    /// than the quota can feed (pinned shards past the quota are throttled in bursts), at least 1.
    pub fn default_shards(&self) -> u16 {
        let by_quota = self
            .quota_cpus
            .map_or(usize::MAX, |quota| (quota.floor() as usize).max(1));
        u16::try_from(self.cpus.len().min(by_quota).max(1)).unwrap_or(u16::MAX)
    }
}

/// Parses a list such as `0-3,6` into ascending core ids without repeats.
pub fn parse_cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let number = |digits: &str| {
            digits
                .parse::<usize>()
                .map_err(|_| format!("`{part}` is not a core or a range a-b"))
        };
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first || last - first > 4096 {
            return Err(format!("`{part}` is not a range of cores"));
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Pins the calling thread to one core; false when the system refuses.
pub fn pin(cpu: usize) -> bool {
    // A larger id does not fit into the set the system call takes, and would be a panic.
    cpu < CPUS_MAX && core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
}

/// Lets the calling thread, and those it starts from now on, wait for their turn when they wake,
/// instead of taking the core from whoever runs (SCHED_BATCH); false when the system refuses.
pub fn wake_without_preempting() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: one valid struct, which is read only; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) == 0 }
}

/// The kernel's number of the calling thread, as `/proc/self/task` has it.
pub fn own_thread() -> Option<u64> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// Raises this process's soft limit of open descriptors to its hard limit; both afterwards. `None`
/// when the system does not say.
pub fn raise_descriptor_limit() -> Option<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls read or write exactly the one struct they are given.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return None;
        }
        let hard = limit.rlim_max;
        let wanted = libc::rlimit {
            rlim_cur: hard,
            rlim_max: hard,
        };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) == 0 {
            limit.rlim_cur = hard;
        }
    }
    Some((limit.rlim_cur, limit.rlim_max))
}

/// The tightest quota from this process's cgroup up to the root, version 2 (`cpu.max`) or 1
/// (`cpu.cfs_quota_us`).
fn read_quota(root: &Path) -> Option<f64> {
    let membership = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mut tightest: Option<f64> = None;
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let base = if controllers.is_empty() {
            root.join("sys/fs/cgroup")
        } else if controllers.split(',').any(|name| name == "cpu") {
            root.join("sys/fs/cgroup").join(controllers)
        } else {
            continue;
        };
        let mut folder = base.join(path.trim_start_matches('/'));
        while folder.starts_with(&base) {
            if let Some(quota) = quota_of(&folder) {
                tightest = Some(tightest.map_or(quota, |known| known.min(quota)));
            }
            if !folder.pop() {
                break;
            }
        }
    }
    tightest
}

fn quota_of(folder: &Path) -> Option<f64> {
    if let Ok(text) = fs::read_to_string(folder.join("cpu.max")) {
        let mut words = text.split_whitespace();
        let quota: f64 = words.next()?.parse().ok()?;
        let period: f64 = words.next()?.parse().ok()?;
        return (period > 0.0).then_some(quota / period);
    }
    let number = |name: &str| -> Option<f64> {
        fs::read_to_string(folder.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-3,6").unwrap(), [0, 1, 2, 3, 6]);
        assert_eq!(parse_cpu_list("2, 1,2").unwrap(), [1, 2]);
        for bad in ["", "a", "3-1", "1-", "-1", "0-99999999"] {
            assert!(parse_cpu_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shards_follow_cores_and_quota() {
        let topology = |cpus: usize, quota_cpus| Topology {
            cpus: (0..cpus).collect(),
            quota_cpus,
        };
        assert_eq!(topology(8, None).default_shards(), 8);
        assert_eq!(topology(8, Some(2.5)).default_shards(), 2);
        assert_eq!(topology(8, Some(0.5)).default_shards(), 1);
        assert_eq!(topology(2, Some(16.0)).default_shards(), 2);
    }

    #[test]
    fn quota_of_both_cgroup_versions() {
        let root = std::env::temp_dir().join(format!("shards-quota-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        assert_eq!(read_quota(&root), Some(1.5));
        write("proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/y\n");
        write("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "400000\n");
        write("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
        assert_eq!(read_quota(&root), Some(4.0));
        write("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
        assert_eq!(read_quota(&root), None);
        fs::remove_dir_all(root).unwrap();
    }
}
