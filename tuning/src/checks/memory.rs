//! Checks 18 to 20: memory that stays in place and is enough.

use crate::{
    host::Host,
    row::{Draft, Row, Scope, Subject},
    source::{Unseen, field},
};

static HUGE_PAGES: Subject = Subject {
    number: 18,
    name: "huge pages",
    wanted: "madvise",
    why: "with always the kernel makes huge pages of our small buffers: more memory, and pauses \
          while it moves them together",
    scope: Scope::Host,
};

/// 18: transparent huge pages. The chosen word stands in brackets.
pub(super) fn huge_pages(host: &Host) -> Row {
    let mut draft = Draft::new(&HUGE_PAGES);
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match host.source.text(path) {
        Err(reason) => draft.unseen(reason),
        Ok(text) => match text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
        {
            Some((mode @ "always", _)) => draft.warn(mode, format!("echo madvise > {path}")),
            Some((mode, _)) => draft.ok(mode),
            None => draft.unseen(Unseen::Odd(path.to_owned())),
        },
    }
    draft.finish(&host.place)
}

static SWAP: Subject = Subject {
    number: 19,
    name: "swap",
    wanted: "none, or swappiness <= 1",
    why: "a session whose memory was swapped out answers after a disk has been read, and its whole \
          shard waits with it",
    scope: Scope::Host,
};

/// 19: whether our memory can be swapped out.
pub(super) fn swap(host: &Host) -> Row {
    let mut draft = Draft::new(&SWAP);
    let meminfo = host.source.text("/proc/meminfo");
    match meminfo.and_then(|text| kib(&text, "SwapTotal", "/proc/meminfo")) {
        Err(reason) => draft.unseen(reason),
        Ok(0) => draft.ok("no swap"),
        Ok(_) if host.cgroups.forbids_swap() => draft.ok("forbidden by the control group"),
        Ok(bytes) => {
            let size = mib(bytes);
            let name = "vm.swappiness";
            match host.setting_number(name) {
                Ok(value) if value <= 1 => draft.ok(format!("{size} with {name} {value}")),
                Ok(value) => draft.warn(
                    format!("{size} with {name} {value}"),
                    format!("swapoff -a, sysctl -w {name}=1, or MemorySwapMax=0 in the unit"),
                ),
                Err(reason) => {
                    draft.warn(format!("{size} of swap"), "swapoff -a");
                    draft.unseen(reason);
                }
            }
        }
    }
    let status = host.source.text("/proc/self/status");
    match status.and_then(|text| kib(&text, "VmSwap", "/proc/self/status")) {
        Err(reason) => draft.unseen(reason),
        Ok(0) => {}
        Ok(bytes) => draft.warn(
            format!("{} KiB of this short process are swapped out", bytes >> 10),
            "more memory: the host is swapping already",
        ),
    }
    draft.finish(&host.place)
}

static BUDGET: Subject = Subject {
    number: 20,
    name: "memory budget",
    wanted: "the plan and a fifth in reserve",
    why: "at the limit the kernel ends the process, and every session with it",
    scope: Scope::Process,
};

/// The gateway at rest; with the two figures below the sizes it promises to stay under.
const REST_BYTES: u64 = 40 << 20;
/// A session with an open stream.
const SESSION_BYTES: u64 = 6 << 10;
/// A kept connection, its socket's share of kernel memory included.
const CONNECTION_BYTES: u64 = 8 << 10;

/// 20: the plan against what is free.
pub(super) fn budget(host: &Host) -> Row {
    let mut draft = Draft::new(&BUDGET);
    let plan = &host.plan;
    let connections = u64::from(plan.connections) + u64::from(plan.upstream_connections);
    let needed =
        REST_BYTES + u64::from(plan.sessions) * SESSION_BYTES + connections * CONNECTION_BYTES;
    let with_reserve = needed + needed / 4;
    let mut free: Vec<(u64, &str)> = Vec::new();
    let meminfo = host.source.text("/proc/meminfo");
    match meminfo.and_then(|text| kib(&text, "MemAvailable", "/proc/meminfo")) {
        Ok(bytes) => free.push((bytes, "free on the host")),
        Err(reason) => draft.unseen(reason),
    }
    match host.cgroups.memory() {
        Ok(Some(limit)) => free.push((
            limit.limit_bytes.saturating_sub(limit.used_bytes),
            "left of the control group's limit",
        )),
        Ok(None) => {}
        Err(reason) => draft.unseen(reason),
    }
    if let Some((bytes, whose)) = free.into_iter().min() {
        let found = format!("{} {whose}, plan {}", mib(bytes), mib(needed));
        if bytes >= with_reserve {
            draft.ok(found);
        } else {
            draft.fatal(
                found,
                format!(
                    "{} of memory, or fewer sessions and connections",
                    mib(with_reserve)
                ),
            );
        }
    }
    draft.finish(&host.place)
}

/// A figure in kibibytes, as bytes.
fn kib(text: &str, name: &str, path: &str) -> Result<u64, Unseen> {
    field(text, name)
        .and_then(|word| word.parse::<u64>().ok()?.checked_mul(1024))
        .ok_or_else(|| Unseen::Odd(path.to_owned()))
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}
