//! The control groups of this process, version 1 or 2, and the limits they put on it.
//!
//! A limit binds wherever it stands between our group and the top one that is visible, so every
//! folder of that way is read. Owns the file names of both versions.

use crate::source::{Source, Unseen, field};

/// Version 1 says "no limit" with a number near the top of its range.
const V1_UNLIMITED_BYTES: u64 = 1 << 60;

/// Folders of the groups of this process.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    source: Source,
    membership: Result<String, Unseen>,
    mounts: Vec<Mount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// Controllers of a version 1 hierarchy; none for version 2.
    controllers: Option<String>,
    /// The group that is seen at `point`.
    root: String,
    point: String,
}

/// How often a group was stopped for having used its time (`cpu.stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Throttling {
    pub(crate) periods: u64,
    pub(crate) throttled: u64,
    pub(crate) throttled_ms: u64,
}

/// A memory limit and what of it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) limit_bytes: u64,
    pub(crate) used_bytes: u64,
}

impl Cgroups {
    pub(crate) fn read(source: &Source) -> Self {
        Self {
            source: source.clone(),
            membership: source.text("/proc/self/cgroup"),
            mounts: mounts(&source.text("/proc/self/mountinfo").unwrap_or_default()),
        }
    }

    /// CPUs' worth of time the tightest quota gives; none when there is no quota.
    pub(crate) fn quota_cpus(&self) -> Result<Option<f64>, Unseen> {
        let quotas = self.folders("cpu")?;
        let quotas = quotas.iter().filter_map(|folder| self.quota_of(folder));
        Ok(quotas.min_by(f64::total_cmp))
    }

    /// The worst throttling on the way up; none when no group counts it.
    pub(crate) fn throttling(&self) -> Result<Option<Throttling>, Unseen> {
        let folders = self.folders("cpu")?;
        let all = folders.iter().filter_map(|folder| {
            let text = self.source.text(&format!("{folder}/cpu.stat")).ok()?;
            let number = |name: &str| field(&text, name)?.parse::<u64>().ok();
            Some(Throttling {
                periods: number("nr_periods")?,
                throttled: number("nr_throttled")?,
                // Version 2 counts microseconds, version 1 nanoseconds.
                throttled_ms: number("throttled_usec")
                    .map(|us| us / 1_000)
                    .or_else(|| number("throttled_time").map(|ns| ns / 1_000_000))
                    .unwrap_or(0),
            })
        });
        Ok(all.max_by_key(|throttling| throttling.throttled))
    }

    /// The memory limit that leaves the least; none when there is no limit.
    pub(crate) fn memory(&self) -> Result<Option<MemoryLimit>, Unseen> {
        let folders = self.folders("memory")?;
        let all = folders.iter().filter_map(|folder| self.memory_of(folder));
        Ok(all.min_by_key(|limit| limit.limit_bytes.saturating_sub(limit.used_bytes)))
    }

    /// Whether a group forbids swap (`memory.swap.max` is 0).
    pub(crate) fn forbids_swap(&self) -> bool {
        self.folders("memory").is_ok_and(|folders| {
            folders
                .iter()
                .any(|folder| self.source.number(&format!("{folder}/memory.swap.max")) == Ok(0))
        })
    }

    fn quota_of(&self, folder: &str) -> Option<f64> {
        if let Ok(text) = self.source.text(&format!("{folder}/cpu.max")) {
            let mut words = text.split_whitespace();
            let quota: f64 = words.next()?.parse().ok()?;
            let period: f64 = words.next()?.parse().ok()?;
            return (quota > 0.0 && period > 0.0).then_some(quota / period);
        }
        let number = |name: &str| -> Option<f64> {
            let text = self.source.text(&format!("{folder}/{name}")).ok()?;
            text.parse().ok()
        };
        let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    }

    fn memory_of(&self, folder: &str) -> Option<MemoryLimit> {
        let number = |name: &str| self.source.number(&format!("{folder}/{name}")).ok();
        // `max` is no number: no limit.
        let limit_bytes = number("memory.max").or_else(|| {
            number("memory.limit_in_bytes").filter(|limit| *limit < V1_UNLIMITED_BYTES)
        })?;
        let used_bytes = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
        // File pages nobody has touched lately are given up before anything else.
        let stat = self.source.text(&format!("{folder}/memory.stat"));
        let stat = stat.unwrap_or_default();
        let reclaimable = field(&stat, "total_inactive_file")
            .or_else(|| field(&stat, "inactive_file"))
            .and_then(|bytes| bytes.parse::<u64>().ok())
            .unwrap_or(0);
        Some(MemoryLimit {
            limit_bytes,
            used_bytes: used_bytes.saturating_sub(reclaimable),
        })
    }

    /// The folders from our group up to the top, for a controller.
    fn folders(&self, controller: &str) -> Result<Vec<String>, Unseen> {
        let membership = self.membership.as_ref().map_err(Clone::clone)?;
        let odd = || Unseen::Odd("/proc/self/cgroup".to_owned());
        let of = |wanted: Option<&str>| {
            membership.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let (names, path) = (fields.next()?, fields.next()?);
                match wanted {
                    Some(name) => names.split(',').any(|known| known == name),
                    None => names.is_empty(),
                }
                .then_some((names, path))
            })
        };
        let is_v1 = of(Some(controller)).is_some();
        let (names, path) = of(Some(controller)).or_else(|| of(None)).ok_or_else(odd)?;
        let mount = self.mounts.iter().find(|mount| match &mount.controllers {
            Some(known) => is_v1 && known.split(',').any(|name| name == controller),
            None => !is_v1,
        });
        let (root, point) = match mount {
            Some(mount) => (mount.root.as_str(), mount.point.clone()),
            None if is_v1 => ("/", format!("/sys/fs/cgroup/{names}")),
            None => ("/", "/sys/fs/cgroup".to_owned()),
        };
        if !self.source.has(&point) {
            return Err(Unseen::Missing(point));
        }
        let folders = way_up(&point, below(path, root));
        Ok(folders.into_iter().filter(|f| self.source.has(f)).collect())
    }
}

/// The part of `path` below `root`; all that is mounted when the path lies elsewhere, as it does in
/// a container that has the host's names but its own mount.
fn below<'a>(path: &'a str, root: &str) -> &'a str {
    if path.split('/').any(|part| part == "..") {
        return "";
    }
    if root == "/" {
        return path;
    }
    match path.strip_prefix(root) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
        _ => "",
    }
}

fn way_up(point: &str, path: &str) -> Vec<String> {
    let mut rest = path.trim_matches('/');
    let mut folders = Vec::new();
    while !rest.is_empty() {
        folders.push(format!("{point}/{rest}"));
        rest = rest.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    folders.push(point.to_owned());
    folders
}

/// The cgroup mounts of a `mountinfo` file (proc_pid_mountinfo(5)): fields 4 and 5 are root and
/// mount point; after the lone dash come type, source and the options, for version 1 with the names
/// of the controllers.
fn mounts(mountinfo: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split_whitespace().skip(3);
        let mut kind = kind.split_whitespace();
        let controllers = match kind.next()? {
            "cgroup2" => None,
            "cgroup" => Some(kind.nth(1)?.to_owned()),
            _ => return None,
        };
        Some(Mount {
            controllers,
            root: place.next()?.to_owned(),
            point: place.next()?.to_owned(),
        })
    };
    mountinfo.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_up_to_the_mount_is_read() {
        assert_eq!(way_up("/m", "/a/b"), ["/m/a/b", "/m/a", "/m"]);
        assert_eq!(way_up("/m", "/"), ["/m"]);
        assert_eq!(way_up("/m", ""), ["/m"]);
    }

    #[test]
    fn a_path_outside_of_the_mount_is_the_mount() {
        assert_eq!(below("/docker/x/y", "/docker/x"), "/y");
        assert_eq!(below("/docker/x", "/docker/x"), "");
        assert_eq!(below("/docker/xy", "/docker/x"), "");
        assert_eq!(below("/../other", "/"), "");
        assert_eq!(below("/a/b", "/"), "/a/b");
    }

    #[test]
    fn mounts_of_both_versions() {
        let text = "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
                    31 24 0:27 /x /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
                    32 24 0:28 / / rw - overlay overlay rw\n";
        let mount = |controllers: Option<&str>, root: &str, point: &str| Mount {
            controllers: controllers.map(str::to_owned),
            root: root.to_owned(),
            point: point.to_owned(),
        };
        assert_eq!(
            mounts(text),
            [
                mount(None, "/", "/sys/fs/cgroup"),
                mount(Some("rw,cpu,cpuacct"), "/x", "/sys/fs/cgroup/cpu,cpuacct"),
            ]
        );
    }
}
