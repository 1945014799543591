//! Checks 16 and 17: what the shards stand on, tried for real.

use std::{io, net::Ipv4Addr};

use io_uring::IoUring;
use shards::listener::listen;

use crate::{
    host::Host,
    row::{Draft, Row, Scope, Subject},
    source::Unseen,
};

static IO_URING: Subject = Subject {
    number: 16,
    name: "io_uring",
    wanted: "usable, kernel 5.19 or newer",
    why: "the shards fall back to epoll, which costs more system calls for each request",
    scope: Scope::Process,
};

/// The oldest kernel with `IORING_SETUP_COOP_TASKRUN`, which the shards' rings ask for.
const KERNEL_MIN: (u32, u32) = (5, 19);
/// The first kernel that has `kernel.io_uring_disabled`.
const KERNEL_WITH_SWITCH: (u32, u32) = (6, 6);
/// Entries of a ring in the try: as many as a shard's.
const RING_ENTRIES: u32 = 1024;

/// 16: the kernel, its switch, and as many rings as there will be shards.
pub(super) fn io_uring(host: &Host) -> Row {
    let mut draft = Draft::new(&IO_URING);
    let kernel = kernel(host);
    match &kernel {
        Ok((major, minor)) if (*major, *minor) >= KERNEL_MIN => {
            draft.ok(format!("kernel {major}.{minor}"));
        }
        Ok((major, minor)) => draft.warn(
            format!("kernel {major}.{minor}: epoll will be used"),
            "a kernel of 5.19 or newer",
        ),
        Err(reason) => draft.unseen(reason),
    }
    let name = "kernel.io_uring_disabled";
    match host.setting_number(name) {
        Ok(0) => draft.ok("not disabled"),
        // For some processes only; the try below knows whether for this one.
        Ok(1) => draft.info(format!("{name} 1: only for root or kernel.io_uring_group")),
        Ok(value) => draft.warn(
            format!("{name} {value}: epoll will be used"),
            format!("sysctl -w {name}=0 on the host"),
        ),
        // Without the switch there is nothing to disable it with.
        Err(Unseen::Missing(_)) if kernel.is_ok_and(|kernel| kernel < KERNEL_WITH_SWITCH) => {}
        Err(reason) => draft.unseen(reason),
    }
    if host.is_this_machine {
        judge_rings(&mut draft, host.plan.shards, &try_rings(host.plan.shards));
    } else {
        draft.unseen("no ring was tried: the files are a copy");
    }
    draft.finish(&host.place)
}

/// Builds a ring for each shard, all at the same time, as the gateway will.
fn try_rings(count: u16) -> io::Result<()> {
    let mut builder = IoUring::builder();
    builder.setup_coop_taskrun();
    let rings: io::Result<Vec<IoUring>> = (0..count).map(|_| builder.build(RING_ENTRIES)).collect();
    rings.map(drop)
}

fn judge_rings(draft: &mut Draft, count: u16, tried: &io::Result<()>) {
    let error = match tried {
        Ok(()) => {
            draft.ok(format!("{count} rings built"));
            return;
        }
        Err(error) => error,
    };
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register \
             (the default one of Docker does not), and kernel.io_uring_disabled 0"
        }
        io::ErrorKind::OutOfMemory => "a larger memory limit or LimitMEMLOCK=infinity",
        io::ErrorKind::InvalidInput => "a kernel of 5.19 or newer",
        io::ErrorKind::Unsupported => "a kernel with CONFIG_IO_URING",
        _ => "look up the error; --io-driver io-uring refuses to start without it",
    };
    draft.warn(
        format!("no ring ({}): epoll will be used", error.kind()),
        fix,
    );
}

fn kernel(host: &Host) -> Result<(u32, u32), Unseen> {
    let name = "kernel.osrelease";
    let text = host.setting(name)?;
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(Unseen::Odd(crate::source::sysctl(name))),
    }
}

static REUSE_PORT: Subject = Subject {
    number: 17,
    name: "SO_REUSEPORT",
    wanted: "two sockets listen on one port",
    why: "each shard has a listening socket of its own on the same port",
    scope: Scope::Host,
};

/// 17: two listening sockets on a free loopback port.
pub(super) fn reuse_port(host: &Host) -> Row {
    let mut draft = Draft::new(&REUSE_PORT);
    if host.is_this_machine {
        match listen((Ipv4Addr::LOCALHOST, 0).into(), 2, false) {
            Ok(group) => draft.ok(format!("works on {}", group.address.ip())),
            Err(fault) => draft.fatal(
                fault.to_string(),
                "a loopback interface that is up, and a kernel or sandbox with SO_REUSEPORT",
            ),
        }
    } else {
        draft.unseen("not tried: the files are a copy");
    }
    draft.finish(&host.place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{place::Place, row::Severity};

    #[test]
    fn a_refused_ring_names_the_fallback_and_the_way_out() {
        for (kind, word) in [
            (io::ErrorKind::PermissionDenied, "seccomp"),
            (io::ErrorKind::InvalidInput, "5.19"),
            (io::ErrorKind::OutOfMemory, "memory"),
            (io::ErrorKind::Unsupported, "CONFIG_IO_URING"),
        ] {
            let mut draft = Draft::new(&IO_URING);
            judge_rings(&mut draft, 2, &Err(kind.into()));
            let row = draft.finish(&Place::default());
            assert_eq!(row.severity, Severity::Warn);
            assert!(row.current.contains("epoll will be used"));
            assert!(row.fix.contains(word), "{kind:?}: {}", row.fix);
        }
    }

    #[test]
    fn rings_that_were_built_are_counted() {
        let mut draft = Draft::new(&IO_URING);
        judge_rings(&mut draft, 2, &Ok(()));
        let row = draft.finish(&Place::default());
        assert_eq!(row.severity, Severity::Ok);
        assert_eq!(row.current, "2 rings built");
    }
}
