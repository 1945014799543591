//! Checks 14 and 15: settings of TCP that trade latency for something else.

use crate::{
    host::Host,
    row::{Draft, Row, Scope, Subject},
    source::sysctl,
};

static SOCKET_MEMORY: Subject = Subject {
    number: 14,
    name: "socket memory",
    wanted: "smallest <= first <= largest, largest >= 1 MiB",
    why: "a small largest buffer throttles big results over long distances; a large first one \
          costs memory for each connection",
    scope: Scope::Network,
};

/// What a large result needs in flight over a distance of some 80 ms at 100 Mbit/s.
const LARGEST_BYTES_MIN: u64 = 1 << 20;
/// More than this at the start is paid by every idle connection that ever had data.
const FIRST_BYTES_MAX: u64 = 1 << 20;

/// 14: buffers of sockets.
pub(super) fn socket_memory(host: &Host) -> Row {
    let mut draft = Draft::new(&SOCKET_MEMORY);
    for short in ["tcp_rmem", "tcp_wmem"] {
        let name = format!("net.ipv4.{short}");
        match host.source.numbers::<3>(&sysctl(&name)) {
            Err(reason) => draft.unseen(reason),
            Ok([smallest, first, largest]) => {
                let found = format!("{short} {smallest} {first} {largest}");
                let is_sane = smallest <= first
                    && first <= largest.min(FIRST_BYTES_MAX)
                    && largest >= LARGEST_BYTES_MIN;
                if is_sane {
                    draft.ok(found);
                } else {
                    draft.info(found);
                    draft.advise(format!("sysctl -w {name}=\"4096 131072 6291456\""));
                }
            }
        }
    }
    match host.source.numbers::<3>(&sysctl("net.ipv4.tcp_mem")) {
        Err(reason) => draft.unseen(reason),
        Ok([low, pressure, high]) if low <= pressure && pressure <= high => {
            draft.ok(format!("tcp_mem up to {high} pages"));
        }
        Ok([low, pressure, high]) => draft.info(format!("tcp_mem {low} {pressure} {high} pages")),
    }
    for short in ["rmem_max", "wmem_max"] {
        match host.setting_number(&format!("net.core.{short}")) {
            // The gateway leaves buffers to the kernel, which this does not bound.
            Ok(bytes) => draft.ok(format!("{short} {bytes}")),
            Err(reason) => draft.unseen(reason),
        }
    }
    draft.finish(&host.place)
}

static SETTINGS: Subject = Subject {
    number: 15,
    name: "TCP latency",
    wanted: "no slow start after idle, keepalive <= 120 s, cubic or bbr, fq or fq_codel",
    why: "kept connections and streams pause often: they should not begin anew, nor die unnoticed",
    scope: Scope::Network,
};

/// Dead peers of idle streams are found within this and nine probes.
const KEEPALIVE_S_MAX: u64 = 120;
/// The kernel's way to say that there is no low-water mark.
const LOWAT_NONE: u64 = u32::MAX as u64;

/// 15: settings for connections that pause.
pub(super) fn settings(host: &Host) -> Row {
    let mut draft = Draft::new(&SETTINGS);
    let mut number = |name: &str, wanted: u64, is_fine: fn(u64) -> bool| {
        let short = name.rsplit_once('.').map_or(name, |(_, short)| short);
        match host.setting_number(name) {
            Ok(LOWAT_NONE) if is_fine(LOWAT_NONE) => draft.ok(format!("{short} none")),
            Ok(value) if is_fine(value) => draft.ok(format!("{short} {value}")),
            Ok(value) => {
                draft.info(format!("{short} {value}"));
                draft.advise(format!("sysctl -w {name}={wanted}"));
            }
            Err(reason) => draft.unseen(reason),
        }
    };
    number("net.ipv4.tcp_slow_start_after_idle", 0, |value| value == 0);
    number("net.ipv4.tcp_keepalive_time", KEEPALIVE_S_MAX, |seconds| {
        seconds <= KEEPALIVE_S_MAX
    });
    // Any mark is fine that does not starve the link; none is the default.
    number("net.ipv4.tcp_notsent_lowat", 131_072, |bytes| {
        bytes >= 16_384
    });
    for (name, fine, wanted) in [
        ("net.ipv4.tcp_congestion_control", ["cubic", "bbr"], "cubic"),
        ("net.core.default_qdisc", ["fq", "fq_codel"], "fq_codel"),
    ] {
        match host.setting(name) {
            Ok(value) if fine.contains(&value.as_str()) => draft.ok(value),
            Ok(value) => {
                draft.info(value);
                draft.advise(format!("sysctl -w {name}={wanted}"));
            }
            Err(reason) => draft.unseen(reason),
        }
    }
    draft.finish(&host.place)
}
