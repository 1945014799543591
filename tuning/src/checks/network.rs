//! Checks 10 and 11: connections that arrive faster than they are taken.

use crate::{
    host::Host,
    row::{Draft, Row, Scope, Subject},
    source::Unseen,
};

static BACKLOG: Subject = Subject {
    number: 10,
    name: "accept backlog",
    wanted: "4096 or more each",
    why: "connections of a burst that find the queue full are dropped and tried again after 1 s",
    scope: Scope::Network,
};

/// What the gateway asks the kernel to queue on each listening socket.
const BACKLOG_MIN: u64 = 4096;

/// 10: the queues on the way to `accept`.
pub(super) fn backlog(host: &Host) -> Row {
    let mut draft = Draft::new(&BACKLOG);
    for name in [
        "net.core.somaxconn",
        "net.ipv4.tcp_max_syn_backlog",
        "net.core.netdev_max_backlog",
    ] {
        let short = name.rsplit_once('.').map_or(name, |(_, short)| short);
        match host.setting_number(name) {
            Ok(length) if length >= BACKLOG_MIN => draft.ok(format!("{short} {length}")),
            Ok(length) => draft.warn(
                format!("{short} {length}"),
                format!("sysctl -w {name}={BACKLOG_MIN}"),
            ),
            Err(reason) => draft.unseen(reason),
        }
    }
    draft.finish(&host.place)
}

static DROPS: Subject = Subject {
    number: 11,
    name: "accept drops",
    wanted: "0, or the same in the next report",
    why: "each is a connection or packet that was lost here and cost its sender a second or more",
    scope: Scope::Network,
};

/// 11: connections and packets dropped since boot, or since the network namespace exists.
pub(super) fn drops(host: &Host) -> Row {
    let mut draft = Draft::new(&DROPS);
    let netstat = "/proc/net/netstat";
    match host.source.text(netstat) {
        Err(reason) => draft.unseen(reason),
        Ok(text) => {
            for name in ["ListenOverflows", "ListenDrops"] {
                match counter(&text, name) {
                    None => draft.unseen(format!("{name} in {netstat}")),
                    Some(0) => draft.ok(format!("{name} 0")),
                    Some(count) => draft.warn(
                        format!("{name} {count}"),
                        "a longer accept backlog (10), or more shards to take connections",
                    ),
                }
            }
        }
    }
    match backlog_counts(host) {
        Err(reason) => draft.unseen(reason),
        Ok((dropped, squeezed)) => {
            match dropped {
                0 => draft.ok("packets dropped 0"),
                _ => draft.warn(
                    format!("packets dropped {dropped}"),
                    "sysctl -w net.core.netdev_max_backlog=16384",
                ),
            }
            match squeezed {
                0 => draft.ok("squeezed 0"),
                _ => draft.info(format!("squeezed {squeezed}")),
            }
        }
    }
    draft.finish(&host.place)
}

/// A counter of the `TcpExt:` pair of lines, names above and values below.
fn counter(netstat: &str, name: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split_whitespace().position(|known| known == name)?;
    values.split_whitespace().nth(index)?.parse().ok()
}

/// Packets dropped because a CPU's queue was full, and times a CPU had to leave packets for later:
/// second and third column of `softnet_stat`, hexadecimal, a line for each CPU.
fn backlog_counts(host: &Host) -> Result<(u64, u64), Unseen> {
    let path = "/proc/net/softnet_stat";
    let text = host.source.text(path)?;
    let parse = |line: &str| {
        let mut columns = line.split_whitespace().skip(1);
        let mut next = || u64::from_str_radix(columns.next()?, 16).ok();
        Some((next()?, next()?))
    };
    text.lines()
        .map(parse)
        .try_fold((0_u64, 0_u64), |(dropped, squeezed), line| {
            let (more_dropped, more_squeezed) = line?;
            Some((
                dropped.saturating_add(more_dropped),
                squeezed.saturating_add(more_squeezed),
            ))
        })
        .ok_or_else(|| Unseen::Odd(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_below_its_name() {
        let text = "TcpExt: A ListenDrops B\nTcpExt: 1 22 3\nIpExt: ListenDrops\nIpExt: 9";
        assert_eq!(counter(text, "ListenDrops"), Some(22));
        assert_eq!(counter(text, "ListenOverflows"), None);
        assert_eq!(counter("TcpExt: ListenDrops", "ListenDrops"), None);
    }
}
