//! Check 24: what a message from one core to another costs on the way.

use crate::{
    host::Host,
    ping::{self, Pair},
    row::{Draft, Row, Scope, Subject},
};

static RINGS: Subject = Subject {
    number: 24,
    name: "ring latency",
    wanted: "known; shards on one socket",
    why: "a call that came to another shard than its session's crosses a ring twice; between two \
          sockets each crossing costs several times as much",
    scope: Scope::Process,
};

/// 24: round trips over a ring between the shards' cores.
pub(super) fn ring_latency(host: &Host) -> Row {
    let mut draft = Draft::new(&RINGS);
    if !host.is_this_machine {
        draft.unseen("not measured: the files are a copy");
    } else if !host.may_measure {
        draft.unseen("not measured: --no-probe");
    } else if host.plan.cpus.len() < 2 {
        draft.unseen("not measured: it takes two shards with a core each");
    } else {
        let pairs = ping::measure(&host.plan.cpus);
        judge(&mut draft, &pairs, |cpu| package(host, cpu));
    }
    draft.finish(&host.place)
}

fn judge(draft: &mut Draft, pairs: &[Pair], package: impl Fn(usize) -> Option<u64>) {
    let is_far = |pair: &&Pair| {
        let (one, other) = (package(pair.cpus.0), package(pair.cpus.1));
        one.is_some() && other.is_some() && one != other
    };
    let (far, near): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(is_far);
    if pairs.is_empty() {
        draft.unseen("no two threads could be pinned to measure");
    }
    if let Some(found) = summary(&near) {
        draft.info(found);
    }
    if let Some(found) = summary(&far) {
        draft.warn(
            format!("{found} between sockets"),
            "--cpu-list with the CPUs of one socket, and a second gateway for the other",
        );
    }
}

fn summary(pairs: &[&Pair]) -> Option<String> {
    let least = pairs.iter().min_by_key(|pair| pair.one_way_ns)?;
    let most = pairs.iter().max_by_key(|pair| pair.one_way_ns)?;
    let name = |pair: &Pair| format!("{}-{}", pair.cpus.0, pair.cpus.1);
    Some(if pairs.len() == 1 {
        format!("CPU {} {} ns one way", name(least), least.one_way_ns)
    } else {
        format!(
            "{} to {} ns one way over {} pairs (CPU {}, CPU {})",
            least.one_way_ns,
            most.one_way_ns,
            pairs.len(),
            name(least),
            name(most)
        )
    })
}

fn package(host: &Host, cpu: usize) -> Option<u64> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
    host.source
        .number(&format!("{folder}/physical_package_id"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{place::Place, row::Severity};

    #[test]
    fn pairs_across_sockets_are_told_apart() {
        let pair = |one, other, one_way_ns| Pair {
            cpus: (one, other),
            one_way_ns,
        };
        let row = |pairs: &[Pair]| {
            let mut draft = Draft::new(&RINGS);
            judge(&mut draft, pairs, |cpu| Some(u64::from(cpu >= 2)));
            draft.finish(&Place::default())
        };
        let near = row(&[pair(0, 1, 90)]);
        assert_eq!(
            (near.severity, near.current.as_str()),
            (Severity::Info, "CPU 0-1 90 ns one way")
        );
        let both = row(&[pair(0, 1, 90), pair(0, 2, 250), pair(1, 2, 300)]);
        assert_eq!(both.severity, Severity::Warn);
        assert!(both.current.contains("250 to 300 ns one way over 2 pairs"));
        assert_eq!(row(&[]).severity, Severity::Unseen);
    }
}
