//! Checks 6, 7, 22 and 23: what slows a core down or takes it away for a while.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    host::Host,
    jitter::{self, Jitter},
    plan::cpu_list,
    row::{Draft, Row, Scope, Subject},
    source::{Unseen, field},
};

static GOVERNOR: Subject = Subject {
    number: 6,
    name: "CPU governor",
    wanted: "performance",
    why: "a core that clocked down in a pause serves the next calls slowly until it is back up",
    scope: Scope::Host,
};

/// 6: the frequency governor, and where it decides itself, the energy preference.
pub(super) fn governor(host: &Host) -> Row {
    let mut draft = Draft::new(&GOVERNOR);
    let cpus = match (&host.plan.cpus, &host.usable_cpus) {
        (planned, _) if !planned.is_empty() => planned.as_slice(),
        (_, Ok(usable)) => usable.as_slice(),
        (_, Err(_)) => &[],
    };
    let mut by_governor: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut missing = None;
    for &cpu in cpus {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
        match host.source.text(&format!("{folder}/scaling_governor")) {
            Ok(governor) if governor == "performance" => {
                by_governor.entry(governor).or_default().push(cpu);
            }
            Ok(governor) => {
                // Hardware that picks its own frequency looks at this instead.
                let preference = format!("{folder}/energy_performance_preference");
                let name = match host.source.text(&preference) {
                    Ok(preference) => format!("{governor} ({preference})"),
                    Err(_) => governor,
                };
                by_governor.entry(name).or_default().push(cpu);
            }
            Err(reason) => missing = missing.or(Some(reason)),
        }
    }
    for (name, cpus) in by_governor {
        let found = format!("{name} on {}", cpu_list(&cpus));
        if name == "performance" {
            draft.ok(found);
        } else {
            draft.warn(found, "cpupower frequency-set --governor performance");
        }
    }
    match missing {
        Some(reason) if host.place.virtual_machine.is_some() => {
            draft.unseen(format!("{reason}: the machine below decides"));
        }
        Some(reason) => draft.unseen(reason),
        None if cpus.is_empty() => draft.unseen("which CPUs are meant"),
        None => {}
    }
    draft.finish(&host.place)
}

static ISOLATED: Subject = Subject {
    number: 7,
    name: "isolated CPUs",
    wanted: "known",
    why: "the kernel puts nothing else on isolated CPUs: the best place for shards",
    scope: Scope::Process,
};

/// 7: CPUs taken from the scheduler at boot.
pub(super) fn isolated(host: &Host) -> Row {
    let mut draft = Draft::new(&ISOLATED);
    for name in ["isolated", "nohz_full"] {
        match host.source.text(&format!("/sys/devices/system/cpu/{name}")) {
            // The kernel prints a list it does not have as (null).
            Ok(list) if list.is_empty() || list == "(null)" => draft.info(format!("{name} none")),
            Ok(list) => {
                if name == "isolated" && host.named_cpus.is_none() {
                    draft.advise(format!("--cpu-list {list} puts the shards there"));
                }
                draft.info(format!("{name} {list}"));
            }
            Err(reason) => draft.unseen(reason),
        }
    }
    draft.finish(&host.place)
}

static PRESSURE: Subject = Subject {
    number: 22,
    name: "steal, pressure",
    wanted: "steal < 1 %, stalls < 5 % of the last minute",
    why: "time that neighbours take cannot be won back by tuning the gateway",
    scope: Scope::Host,
};

/// Steal that can be felt, in percent of all CPU time.
const STEAL_PERCENT_MAX: f64 = 1.0;
/// Share of the last minute in which somebody waited, in percent.
const STALL_PERCENT_MAX: f64 = 5.0;

/// 22: time taken by the hypervisor, and time somebody waited for a resource (PSI).
pub(super) fn pressure(host: &Host) -> Row {
    let mut draft = Draft::new(&PRESSURE);
    match steal_percent(host) {
        Ok(percent) if percent < STEAL_PERCENT_MAX => {
            draft.ok(format!("steal {percent:.1} % since boot"));
        }
        Ok(percent) => draft.warn(
            format!("steal {percent:.1} % since boot"),
            "a machine with CPUs of its own, or a quieter one",
        ),
        Err(reason) => draft.unseen(reason),
    }
    for resource in ["cpu", "memory", "io"] {
        match stall_percent(host, resource) {
            Ok(percent) if percent < STALL_PERCENT_MAX => {
                draft.ok(format!("{resource} {percent:.1} %"));
            }
            Ok(percent) => draft.warn(
                format!("{resource} {percent:.1} %"),
                "find who competes (the gateway itself at full load counts too) and move it away",
            ),
            Err(reason) => draft.unseen(reason),
        }
    }
    draft.finish(&host.place)
}

/// proc_stat(5): after `cpu` user, nice, system, idle, iowait, irq, softirq, steal; guest times
/// follow and are already part of user and nice.
fn steal_percent(host: &Host) -> Result<f64, Unseen> {
    let path = "/proc/stat";
    let text = host.source.text(path)?;
    let odd = || Unseen::Odd(path.to_owned());
    let line = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("cpu "));
    let times: Option<Vec<u64>> = line
        .ok_or_else(odd)?
        .split_whitespace()
        .take(8)
        .map(|word| word.parse().ok())
        .collect();
    match times.ok_or_else(odd)?.as_slice() {
        times @ [.., steal] if times.len() == 8 => {
            let total: f64 = times.iter().map(|time| *time as f64).sum();
            Ok(*steal as f64 * 100.0 / total.max(1.0))
        }
        _ => Err(odd()),
    }
}

/// Documentation/accounting/psi.rst: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn stall_percent(host: &Host, resource: &str) -> Result<f64, Unseen> {
    let path = format!("/proc/pressure/{resource}");
    let text = host.source.text(&path)?;
    text.lines()
        .find_map(|line| line.strip_prefix("some "))
        .map(|line| line.replace('=', " ").replace("avg60", "\navg60"))
        .and_then(|line| field(&line, "avg60")?.parse().ok())
        .ok_or(Unseen::Odd(path))
}

static JITTER: Subject = Subject {
    number: 23,
    name: "timer jitter",
    wanted: "99 of 100 sleeps < 200 us late",
    why: "a core that wakes late answers late; power saving and neighbours are the usual reasons",
    scope: Scope::Host,
};

const LATE_MAX: Duration = Duration::from_micros(200);
const MEASURE: Duration = Duration::from_millis(200);

/// 23: sleeps on the shards' cores.
pub(super) fn jitter(host: &Host) -> Row {
    let mut draft = Draft::new(&JITTER);
    if !host.is_this_machine {
        draft.unseen("not measured: the files are a copy");
    } else if !host.may_measure {
        draft.unseen("not measured: --no-probe");
    } else if host.plan.cpus.is_empty() {
        draft.unseen("not measured: the shards would not be pinned");
    } else {
        judge_jitter(&mut draft, &jitter::measure(&host.plan.cpus, MEASURE));
    }
    draft.finish(&host.place)
}

fn judge_jitter(draft: &mut Draft, measured: &[Jitter]) {
    let Some(worst) = measured.iter().max_by_key(|jitter| jitter.p99) else {
        draft.unseen("no thread could be started to measure");
        return;
    };
    let count: usize = measured.iter().map(|jitter| jitter.count).sum();
    let longest = measured.iter().map(|jitter| jitter.max).max();
    let found = format!(
        "p99 {} us on CPU {}, longest {} us, {count} sleeps",
        worst.p99.as_micros(),
        worst.cpu,
        longest.unwrap_or_default().as_micros(),
    );
    if worst.p99 < LATE_MAX {
        draft.ok(found);
    } else {
        draft.warn(
            found,
            "measure again on an idle host; then shallower idle states (cpupower idle-set), the \
             performance governor, CPUs of the shards' own",
        );
    }
    if let Some(jitter) = measured.iter().find(|jitter| !jitter.is_pinned) {
        draft.unseen(format!("CPU {} by itself: pinning was refused", jitter.cpu));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{place::Place, row::Severity};

    fn judged(late_us: &[u64]) -> Row {
        let measured: Vec<Jitter> = late_us
            .iter()
            .enumerate()
            .map(|(cpu, &us)| Jitter {
                cpu,
                is_pinned: cpu != 2,
                count: 100,
                p99: Duration::from_micros(us),
                max: Duration::from_micros(us * 2),
            })
            .collect();
        let mut draft = Draft::new(&JITTER);
        judge_jitter(&mut draft, &measured);
        draft.finish(&Place::default())
    }

    #[test]
    fn the_latest_core_decides() {
        let row = judged(&[60, 199]);
        assert_eq!(row.severity, Severity::Ok);
        assert_eq!(
            row.current,
            "p99 199 us on CPU 1, longest 398 us, 200 sleeps"
        );
        assert_eq!(judged(&[200, 70]).severity, Severity::Warn);
        assert_eq!(judged(&[]).severity, Severity::Unseen);
        assert_eq!(judged(&[1, 1, 1]).unseen.len(), 1);
    }
}
