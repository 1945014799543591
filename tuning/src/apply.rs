//! `apply`: the settings that the checks want otherwise, as commands, as a script, or done.
//!
//! Only values of files in /proc/sys, /proc/irq and /sys are changed, so each change has a value
//! to go back to. Before the first one is written all old values are in a record on disk; `revert`
//! writes back those that are still as they were set. What belongs to the host is never touched
//! from inside a container. Nothing here outlives a reboot.

mod record;
mod script;

use serde::{Deserialize, Serialize};

use crate::{
    check::Options,
    checks::cards,
    host::Host,
    source::{Source, sysctl},
};
pub use record::{Record, RecordFault};

/// One file and its two values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Number of the check that wants it.
    pub number: u8,
    /// The file.
    pub path: String,
    /// What it holds.
    pub current: String,
    /// What it should hold.
    pub wanted: String,
}

/// Something that is not changed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// What it is about.
    pub what: String,
    /// Why it is left as it is.
    pub why: &'static str,
}

/// All changes for a host.
#[derive(Debug, Clone)]
pub struct Changes {
    /// What to write.
    pub changes: Vec<Change>,
    /// What to leave.
    pub left: Vec<Left>,
    source: Source,
}

/// Whose a setting is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The network namespace, a container's own as a rule.
    Namespace,
    Host,
}

const IN_CONTAINER: &str = "it is the host's, and this is a container: run this on the host";

impl Changes {
    /// Looks at the host and plans; writes nothing.
    pub fn plan(options: &Options) -> Self {
        let host = Host::read(options);
        let mut plan = Self {
            changes: Vec::new(),
            left: Vec::new(),
            source: host.source.clone(),
        };
        plan.numbers(&host);
        plan.ports(&host);
        plan.huge_pages(&host);
        plan.governors(&host);
        for (path, cpu) in cards::interrupt_moves(&host) {
            plan.want(&host, 8, Owner::Host, path, cpu.to_string());
        }
        for (path, mask) in cards::rps_masks(&host) {
            plan.want(&host, 9, Owner::Host, path, mask);
        }
        plan.in_process();
        plan.changes.sort_by_key(|change| change.number);
        plan
    }

    /// Kernel settings that are one number.
    fn numbers(&mut self, host: &Host) {
        type Fine = fn(u64) -> bool;
        let backlog: Fine = |length| length >= 4096;
        let all: [(u8, Owner, &str, Fine, u64); 6] = [
            (10, Owner::Namespace, "net.core.somaxconn", backlog, 4096),
            (
                10,
                Owner::Namespace,
                "net.ipv4.tcp_max_syn_backlog",
                backlog,
                4096,
            ),
            (
                10,
                Owner::Host,
                "net.core.netdev_max_backlog",
                backlog,
                4096,
            ),
            (
                15,
                Owner::Namespace,
                "net.ipv4.tcp_slow_start_after_idle",
                |v| v == 0,
                0,
            ),
            (
                15,
                Owner::Namespace,
                "net.ipv4.tcp_keepalive_time",
                |s| s <= 120,
                120,
            ),
            (19, Owner::Host, "vm.swappiness", |value| value <= 1, 1),
        ];
        for (number, owner, name, is_fine, wanted) in all {
            if host.setting_number(name).is_ok_and(|value| !is_fine(value)) {
                self.want(host, number, owner, sysctl(name), wanted.to_string());
            }
        }
    }

    fn ports(&mut self, host: &Host) {
        let name = "net.ipv4.ip_local_port_range";
        let needed = u64::from(host.plan.upstream_connections) * 3 / 2;
        if let Ok([first, last]) = host.source.numbers::<2>(&sysctl(name))
            && last.saturating_sub(first) < needed
        {
            let wanted = "10240\t65535".to_owned();
            self.want(host, 13, Owner::Namespace, sysctl(name), wanted);
        }
    }

    fn huge_pages(&mut self, host: &Host) {
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        if host
            .source
            .text(path)
            .is_ok_and(|text| text.contains("[always]"))
        {
            self.want(host, 18, Owner::Host, path.to_owned(), "madvise".to_owned());
        }
    }

    fn governors(&mut self, host: &Host) {
        for cpu in &host.plan.cpus {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            if host
                .source
                .text(&path)
                .is_ok_and(|governor| governor != "performance")
            {
                self.want(host, 6, Owner::Host, path, "performance".to_owned());
            }
        }
    }

    fn in_process(&mut self) {
        for (what, why) in [
            (
                "file limit (12)",
                "LimitNOFILE of the unit, or ulimit of who starts the gateway",
            ),
            (
                "shards and their cores (1 to 5)",
                "--shards and --cpu-list of the gateway",
            ),
        ] {
            self.left.push(Left {
                what: what.to_owned(),
                why,
            });
        }
    }

    fn want(&mut self, host: &Host, number: u8, owner: Owner, path: String, wanted: String) {
        if owner == Owner::Host && host.place.container.is_some() {
            self.left.push(Left {
                what: format!("{path} ({number})"),
                why: IN_CONTAINER,
            });
            return;
        }
        let Ok(current) = host.source.text(&path) else {
            return;
        };
        // The chosen word of several stands in brackets.
        let current = match current
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
        {
            Some((chosen, _)) => chosen.to_owned(),
            None => current,
        };
        if !is_same(&current, &wanted) {
            self.changes.push(Change {
                number,
                path,
                current,
                wanted,
            });
        }
    }

    /// The script that does all this, and takes it back.
    pub fn script(&self) -> String {
        script::render(&self.changes)
    }

    /// Writes all changes, the old values to `record` first. Each change comes back with what went
    /// wrong, if anything did: one that is refused does not keep the others.
    pub fn apply(&self, record: &Record) -> Result<Vec<(Change, Option<String>)>, RecordFault> {
        record.add(&self.changes)?;
        Ok(self
            .changes
            .iter()
            .map(|change| {
                (
                    change.clone(),
                    write(&self.source, &change.path, &change.wanted),
                )
            })
            .collect())
    }
}

/// Writes one value; what went wrong.
fn write(source: &Source, path: &str, value: &str) -> Option<String> {
    if let Err(error) = source.write(path, value) {
        return Some(error.to_string());
    }
    match source.text(path) {
        Ok(found) if is_same(&found, value) || found.contains(&format!("[{value}]")) => None,
        Ok(found) => Some(format!("it now says {found}")),
        Err(reason) => Some(reason.to_string()),
    }
}

/// Whether two values mean the same: blanks between numbers, and leading zeros and commas of masks
/// are the kernel's affair.
fn is_same(one: &str, other: &str) -> bool {
    let plain = |text: &str| {
        let words: Vec<String> = text
            .split_whitespace()
            .map(|word| word.replace(',', "").trim_start_matches('0').to_owned())
            .collect();
        words
    };
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_ways_to_write_a_value_are_the_same_value() {
        assert!(is_same("32768\t60999", "32768 60999"));
        assert!(is_same("00000000,0000ffff", "ffff"));
        assert!(is_same("0", "0"));
        assert!(!is_same("1", "0") && !is_same("performance", "powersave"));
    }
}
