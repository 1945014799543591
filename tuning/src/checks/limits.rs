//! Checks 12 and 13: files and ports for the planned connections.

use crate::{
    host::Host,
    row::{Draft, Row, Scope, Subject},
    source::Unseen,
};

static FILES: Subject = Subject {
    number: 12,
    name: "file limit",
    wanted: "2 x (client and backend connections) + 1024",
    why: "without a free descriptor no connection is taken and no backend is called",
    scope: Scope::Process,
};

/// Descriptors for listeners, rings, event descriptors, logs and the control thread.
const FILES_SPARE: u64 = 1024;

/// From here on the kernel means "as many as there is memory for".
const COUNT_UNLIMITED: u64 = 1 << 62;

/// 12: descriptors of the process and of the host.
pub(super) fn files(host: &Host) -> Row {
    let mut draft = Draft::new(&FILES);
    let plan = &host.plan;
    let connections = u64::from(plan.connections) + u64::from(plan.upstream_connections);
    let needed = 2 * connections + FILES_SPARE;
    match open_files(host) {
        Err(reason) => draft.unseen(reason),
        Ok((soft, hard)) => {
            let found = format!("process {soft} of {needed}");
            let fix = if hard >= needed {
                format!("LimitNOFILE={needed} in the unit, --ulimit nofile, or ulimit -n {needed}")
            } else {
                format!("LimitNOFILE={needed}: the hard limit of {hard} has to grow as well")
            };
            if soft >= needed {
                draft.ok(found);
            } else if plan.connections_are_named {
                draft.fatal(found, fix);
            } else {
                // The gateway's own bound is no plan: say what the limit is good for.
                let good_for = (soft.saturating_sub(FILES_SPARE) / 2)
                    .saturating_sub(u64::from(plan.upstream_connections));
                let found = format!("{found}, enough for {good_for} connections");
                draft.warn(
                    found,
                    format!("{fix}; or say with --connections how many are planned"),
                );
            }
        }
    }
    for (name, what) in [("fs.file-max", "host"), ("fs.nr_open", "largest limit")] {
        match host.setting_number(name) {
            Ok(COUNT_UNLIMITED..) => draft.ok(format!("{what} unlimited")),
            Ok(count) if count >= needed => draft.ok(format!("{what} {count}")),
            Ok(count) => draft.warn(
                format!("{what} {count}"),
                format!("sysctl -w {name}={needed} (on the host)"),
            ),
            Err(reason) => draft.unseen(reason),
        }
    }
    draft.finish(&host.place)
}

/// Soft and hard limit of open files, proc_pid_limits(5).
fn open_files(host: &Host) -> Result<(u64, u64), Unseen> {
    let path = "/proc/self/limits";
    let text = host.source.text(path)?;
    let number = |word: &str| match word {
        "unlimited" => Some(u64::MAX),
        word => word.parse().ok(),
    };
    text.lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| {
            let mut words = rest.split_whitespace();
            Some((number(words.next()?)?, number(words.next()?)?))
        })
        .ok_or_else(|| Unseen::Odd(path.to_owned()))
}

static PORTS: Subject = Subject {
    number: 13,
    name: "local ports",
    wanted: "1.5 x the connections to one backend",
    why: "each connection to the same backend address needs a local port of its own, and a closed \
          one rests for a minute",
    scope: Scope::Network,
};

/// 13: ports for connections to backends.
pub(super) fn ports(host: &Host) -> Row {
    let mut draft = Draft::new(&PORTS);
    let needed = u64::from(host.plan.upstream_connections) * 3 / 2;
    let name = "net.ipv4.ip_local_port_range";
    match host.source.numbers::<2>(&crate::source::sysctl(name)) {
        Err(reason) => draft.unseen(reason),
        Ok([first, last]) => {
            let count = (last + 1).saturating_sub(first);
            let found = format!("{count} ports of {needed}");
            let widest = 65_535 - 10_240 + 1;
            if count >= needed {
                draft.ok(found);
            } else if needed <= widest {
                draft.warn(found, format!("sysctl -w {name}=\"10240 65535\""));
            } else {
                draft.warn(
                    found,
                    "more backend addresses, or fewer connections to each",
                );
            }
        }
    }
    match host.setting_number("net.ipv4.tcp_tw_reuse") {
        // 2 is for loopback only.
        Ok(0) => draft.info("tcp_tw_reuse 0"),
        Ok(value) => draft.ok(format!("tcp_tw_reuse {value}")),
        Err(reason) => draft.unseen(reason),
    }
    match host.setting_number("net.ipv4.tcp_fin_timeout") {
        Ok(seconds) if seconds <= 60 => draft.ok(format!("tcp_fin_timeout {seconds} s")),
        Ok(seconds) => draft.info(format!("tcp_fin_timeout {seconds} s")),
        Err(reason) => draft.unseen(reason),
    }
    draft.finish(&host.place)
}
