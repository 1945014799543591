//! Checks 1 to 4: is there a whole core for each shard?

use std::collections::BTreeMap;

use shards::topology::parse_cpu_list;

use crate::{
    host::Host,
    plan::cpu_list,
    row::{Draft, Row, Scope, Subject},
    source::Unseen,
};

static USABLE_CPUS: Subject = Subject {
    number: 1,
    name: "usable CPUs",
    wanted: "one CPU for each shard",
    why: "shards that share a CPU take turns, and every call waits for the other one's turn to end",
    scope: Scope::Process,
};

/// 1: the shards against affinity and cpuset.
pub(super) fn usable_cpus(host: &Host) -> Row {
    let mut draft = Draft::new(&USABLE_CPUS);
    let shards = usize::from(host.plan.shards);
    match &host.usable_cpus {
        Err(reason) => draft.unseen(reason),
        Ok(usable) => {
            let outside: Vec<usize> = host
                .named_cpus
                .iter()
                .flatten()
                .copied()
                .filter(|cpu| !usable.contains(cpu))
                .collect();
            let found = format!("{} ({}) for {shards}", usable.len(), cpu_list(usable));
            if shards > usable.len() {
                draft.fatal(
                    found,
                    format!("--shards {}, or a wider affinity or cpuset", usable.len()),
                );
            } else if outside.is_empty() {
                draft.ok(found);
            } else {
                draft.fatal(
                    format!("{found}; {} may not be used", cpu_list(&outside)),
                    "choose --cpu-list among the usable CPUs, or widen affinity or cpuset",
                );
            }
            let online = host.source.text("/sys/devices/system/cpu/online");
            if let Some(online) = online.ok().and_then(|list| parse_cpu_list(&list).ok())
                && online.len() > usable.len()
            {
                draft.info(format!("{} CPUs are online", online.len()));
            }
        }
    }
    draft.finish(&host.place)
}

static QUOTA: Subject = Subject {
    number: 2,
    name: "CPU quota",
    wanted: "none, or one CPU's worth for each shard",
    why: "when the quota is used up all shards stand still until the next period, up to 100 ms",
    scope: Scope::Process,
};

/// 2: the shards against the quota of the control group.
pub(super) fn quota(host: &Host) -> Row {
    let mut draft = Draft::new(&QUOTA);
    let shards = host.plan.shards;
    match host.cgroups.quota_cpus() {
        Err(reason) => draft.unseen(reason),
        Ok(None) => draft.ok("none"),
        Ok(Some(cpus)) if cpus >= f64::from(shards) => {
            draft.ok(format!("{cpus:.2} CPUs for {shards}"));
        }
        Ok(Some(cpus)) => draft.fatal(
            format!("{cpus:.2} CPUs for {shards}"),
            if cpus < 2.0 {
                "a quota of at least 1 CPU, with one shard".to_owned()
            } else {
                format!("--shards {cpus:.0}, or a larger quota", cpus = cpus.floor())
            },
        ),
    }
    draft.finish(&host.place)
}

static THROTTLING: Subject = Subject {
    number: 3,
    name: "throttling",
    wanted: "never",
    why: "each throttled period is a pause of tens of milliseconds for every call in flight",
    scope: Scope::Process,
};

/// 3: whether the quota has stopped this group before.
pub(super) fn throttling(host: &Host) -> Row {
    let mut draft = Draft::new(&THROTTLING);
    match host.cgroups.throttling() {
        Err(reason) => draft.unseen(reason),
        // Only a group that can have a quota counts; the top group cannot.
        Ok(None) if host.cgroups.quota_cpus() == Ok(None) => draft.ok("no quota to exceed"),
        Ok(None) => draft.unseen("no cpu.stat with nr_throttled in the control group"),
        Ok(Some(seen)) if seen.throttled == 0 => {
            draft.ok(format!("0 of {} periods", seen.periods));
        }
        Ok(Some(seen)) => draft.warn(
            format!(
                "{} of {} periods, {} ms, since the group exists",
                seen.throttled, seen.periods, seen.throttled_ms
            ),
            "fewer shards or a larger quota; then see that the count stays",
        ),
    }
    draft.finish(&host.place)
}

static SIBLINGS: Subject = Subject {
    number: 4,
    name: "SMT siblings",
    wanted: "one shard for each physical core",
    why: "two hardware threads of one core share its caches and units: one shard slows the other",
    scope: Scope::Process,
};

/// 4: whether two shards land on hardware threads of one core.
pub(super) fn siblings(host: &Host) -> Row {
    let mut draft = Draft::new(&SIBLINGS);
    let mut cores: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    if host.plan.cpus.is_empty() {
        draft.unseen("the shards would not be pinned, so they have no core of their own");
    }
    for &cpu in &host.plan.cpus {
        match siblings_of(host, cpu) {
            Ok(siblings) => cores.entry(siblings).or_default().push(cpu),
            Err(reason) => {
                // They are missing together: one says it for all.
                draft.unseen(reason);
                break;
            }
        }
    }
    let shared: Vec<String> = cores
        .values()
        .filter(|cpus| cpus.len() > 1)
        .map(|cpus| cpu_list(cpus))
        .collect();
    if !shared.is_empty() {
        // Cores nobody was pinned to yet can take the shards that are one too many.
        let mut first_threads: Vec<usize> = host
            .usable_cpus
            .iter()
            .flatten()
            .filter_map(|&cpu| siblings_of(host, cpu).ok()?.first().copied())
            .collect();
        first_threads.sort_unstable();
        first_threads.dedup();
        first_threads.truncate(host.plan.cpus.len());
        draft.warn(
            format!("shards share the cores of {}", shared.join(" and ")),
            format!("--cpu-list {}", cpu_list(&first_threads)),
        );
    } else if !cores.is_empty() {
        draft.ok(format!("a core for each of {}", host.plan.shards));
    }
    draft.finish(&host.place)
}

fn siblings_of(host: &Host, cpu: usize) -> Result<Vec<usize>, Unseen> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let list = host.source.text(&path)?;
    parse_cpu_list(&list).map_err(|_| Unseen::Odd(path))
}
