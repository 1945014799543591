//! Check 21: the clock, cheap to read and right.

use crate::{
    host::Host,
    row::{Draft, Row, Scope, Subject},
};

static CLOCK: Subject = Subject {
    number: 21,
    name: "clock",
    wanted: "tsc or a paravirtual clock; synchronised",
    why: "other sources cost a system call each time the clock is read; a wrong time refuses good \
          tokens or takes expired ones",
    scope: Scope::Host,
};

/// Sources that are read without a system call (vDSO), on the machines we know.
const FAST: [&str; 4] = [
    "tsc",
    "kvm-clock",
    "arch_sys_counter",
    "hyperv_clocksource_tsc_page",
];

/// 21: the clock source, and whether a time service keeps it.
pub(super) fn clock(host: &Host) -> Row {
    let mut draft = Draft::new(&CLOCK);
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match host.source.text(path) {
        Ok(name) if FAST.contains(&name.as_str()) => draft.ok(name),
        Ok(name) => draft.warn(
            name,
            format!("echo tsc > {path}, if the CPU's tsc is stable"),
        ),
        Err(reason) => draft.unseen(reason),
    }
    // systemd-timesyncd(8) makes this file when it has set the clock for the first time.
    if host.source.has("/run/systemd/timesync/synchronized") {
        draft.ok("synchronised");
    } else {
        draft.unseen(
            "whether the time is right: systemd-timesyncd has not said so, and other services are \
             not asked (chronyc tracking, ntpq -p)",
        );
    }
    draft.finish(&host.place)
}
