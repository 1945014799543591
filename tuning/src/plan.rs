//! The load the host is judged against: shards, their cores, connections, sessions.
//!
//! What the operator does not say is what `shardgate serve` would take for itself.

use serde::Serialize;
use shards::topology::{Topology, parse_cpu_list};

use crate::{
    cgroup::Cgroups,
    check::Options,
    source::{Source, Unseen, field},
};

/// `connections_max` of the gateway when nothing is set (docs/settings.md).
const CONNECTIONS: u32 = 65_536;
/// `sessions_max` of the gateway when nothing is set.
const SESSIONS: u32 = 10_000;
/// `upstream_idle_per_backend_max` of the gateway when nothing is set, for each shard.
const UPSTREAM_CONNECTIONS_PER_SHARD: u32 = 64;

/// What the gateway is expected to do on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Shards to start.
    pub shards: u16,
    /// The core of each shard; empty when there are not enough cores to pin to.
    pub cpus: Vec<usize>,
    /// Client connections.
    pub connections: u32,
    /// Whether the operator named the connections, or they are only the gateway's bound.
    pub connections_are_named: bool,
    /// Connections to one backend.
    pub upstream_connections: u32,
    /// Live sessions.
    pub sessions: u32,
}

impl Plan {
    pub(crate) fn new(
        options: &Options,
        usable_cpus: &Result<Vec<usize>, Unseen>,
        cgroups: &Cgroups,
    ) -> Self {
        let named = options.cpus.clone();
        let candidates = named.clone().or_else(|| usable_cpus.clone().ok());
        let candidates = candidates.unwrap_or_default();
        let by_host = || match named {
            Some(cpus) => u16::try_from(cpus.len()).unwrap_or(u16::MAX),
            None => Topology {
                cpus: candidates.clone(),
                quota_cpus: cgroups.quota_cpus().ok().flatten(),
            }
            .default_shards(),
        };
        let shards = options.shards.unwrap_or_else(by_host).max(1);
        let per_shard = UPSTREAM_CONNECTIONS_PER_SHARD;
        Self {
            shards,
            // With fewer cores than shards the gateway does not pin.
            cpus: candidates
                .get(..usize::from(shards))
                .map_or_else(Vec::new, <[usize]>::to_vec),
            connections: options.connections.unwrap_or(CONNECTIONS),
            connections_are_named: options.connections.is_some(),
            upstream_connections: options
                .upstream_connections
                .unwrap_or(u32::from(shards) * per_shard),
            sessions: options.sessions.unwrap_or(SESSIONS),
        }
    }
}

/// The cores this process may run on: its affinity, which the cpuset has already narrowed.
pub(crate) fn usable_cpus(source: &Source) -> Result<Vec<usize>, Unseen> {
    let path = "/proc/self/status";
    let status = source.text(path)?;
    field(&status, "Cpus_allowed_list")
        .and_then(|list| parse_cpu_list(list).ok())
        .ok_or_else(|| Unseen::Odd(path.to_owned()))
}

/// Writes cores as `0-3,6`.
pub(crate) fn cpu_list(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let ranges: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    ranges.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn a_cpu_list_reads_back(cpus in proptest::collection::btree_set(0_usize..64, 1..20)) {
            let cpus: Vec<usize> = cpus.into_iter().collect();
            prop_assert_eq!(parse_cpu_list(&cpu_list(&cpus)), Ok(cpus));
        }
    }

    #[test]
    fn shards_without_a_core_each_are_not_pinned() {
        let cgroups = Cgroups::read(&Source::new("/nowhere-at-all"));
        let plan = |shards, cpus: Option<Vec<usize>>| {
            let options = Options {
                shards,
                cpus,
                ..Options::default()
            };
            Plan::new(&options, &Ok(vec![0, 1, 2]), &cgroups)
        };
        assert_eq!(plan(None, None).cpus, [0, 1, 2]);
        assert_eq!(plan(Some(2), None).cpus, [0, 1]);
        assert!(plan(Some(4), None).cpus.is_empty());
        assert_eq!(plan(None, Some(vec![4, 5])).shards, 2);
        assert_eq!(plan(None, Some(vec![4, 5])).upstream_connections, 128);
    }
}
