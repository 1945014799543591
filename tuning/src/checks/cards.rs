//! Checks 5, 8 and 9: the network cards, their memory, their interrupts, their queues.
//!
//! A card is an interface with a device behind it. Containers and loopback have none, and then the
//! host's cards decide, which cannot be seen from inside.

use std::collections::{BTreeMap, BTreeSet};

use shards::topology::parse_cpu_list;

use crate::{
    host::Host,
    plan::cpu_list,
    row::{Draft, Row, Scope, Subject},
    source::Unseen,
};

const CARDS: &str = "/sys/class/net";
const NODES: &str = "/sys/devices/system/node";
/// Commands that are told one by one.
const COMMANDS_TOLD: usize = 8;
const NO_CARD: &str = "no network card here: only loopback or virtual interfaces";

/// Interfaces that stand for hardware, or for what a hypervisor gives instead.
fn cards(host: &Host) -> Result<Vec<String>, Unseen> {
    let mut names = host.source.names(CARDS)?;
    names.retain(|name| host.source.has(&format!("{CARDS}/{name}/device")));
    Ok(names)
}

/// Reads what a card's device has; a virtio device leaves it to the PCI device it is a child of.
fn of_device<T>(
    host: &Host,
    card: &str,
    entry: &str,
    read: impl Fn(&str) -> Result<T, Unseen>,
) -> Result<T, Unseen> {
    let device = format!("{CARDS}/{card}/device");
    debug_assert!(host.source.has(&device));
    let own = read(&format!("{device}/{entry}"));
    own.or_else(|missing| read(&format!("{device}/../{entry}")).map_err(|_| missing))
}

static NODE: Subject = Subject {
    number: 5,
    name: "NUMA node",
    wanted: "card and shards on one node",
    why: "packets of a card on the other socket cross the link between the sockets twice for each \
          call",
    scope: Scope::Process,
};

/// 5: the memory node of the cards and of the shards' cores.
pub(super) fn numa_node(host: &Host) -> Row {
    let mut draft = Draft::new(&NODE);
    match nodes(host) {
        Err(reason) => draft.unseen(reason),
        Ok(nodes) if nodes.len() < 2 => draft.ok("one node"),
        Ok(nodes) => judge_nodes(&mut draft, host, &nodes),
    }
    draft.finish(&host.place)
}

fn judge_nodes(draft: &mut Draft, host: &Host, nodes: &BTreeMap<u32, Vec<usize>>) {
    if host.plan.cpus.is_empty() {
        draft.unseen("the shards would not be pinned, so they have no node of their own");
        return;
    }
    let used: Vec<u32> = nodes
        .iter()
        .filter(|(_, cpus)| host.plan.cpus.iter().any(|cpu| cpus.contains(cpu)))
        .map(|(node, _)| *node)
        .collect();
    let mut wanted = None;
    match cards(host) {
        Err(reason) => draft.unseen(reason),
        Ok(names) if names.is_empty() => draft.unseen(NO_CARD),
        Ok(names) => {
            for name in names {
                match of_device(host, &name, "numa_node", |path| host.source.text(path)) {
                    Err(reason) => draft.unseen(reason),
                    Ok(text) => match text.parse::<u32>() {
                        // -1: the firmware does not say.
                        Err(_) => draft.unseen(format!("the node of {name} (numa_node {text})")),
                        Ok(node) => {
                            wanted = wanted.or(Some(node));
                            let found = format!("{name} on node {node}");
                            if used == [node] {
                                draft.ok(found);
                            } else {
                                draft.warn(found, node_advice(host, nodes, node));
                            }
                        }
                    },
                }
            }
        }
    }
    let list: Vec<String> = used.iter().map(ToString::to_string).collect();
    let found = format!("shards on node {}", list.join(" and "));
    if used.len() > 1 {
        let node = wanted.or(used.first().copied()).unwrap_or(0);
        draft.warn(found, node_advice(host, nodes, node));
    } else {
        draft.ok(found);
    }
}

fn node_advice(host: &Host, nodes: &BTreeMap<u32, Vec<usize>>, node: u32) -> String {
    let usable = |cpu: &&usize| {
        host.usable_cpus
            .as_ref()
            .map_or(true, |usable| usable.contains(cpu))
    };
    let cpus: Vec<usize> = nodes.get(&node).map_or_else(Vec::new, |cpus| {
        cpus.iter().filter(usable).copied().collect()
    });
    if cpus.is_empty() {
        return format!("a cpuset with CPUs of node {node}");
    }
    let list = cpu_list(&cpus);
    if cpus.len() < usize::from(host.plan.shards) {
        format!("--cpu-list {list}, and a second gateway for the other node")
    } else {
        format!("--cpu-list within {list}")
    }
}

/// The CPUs of each node; none when the kernel knows no nodes.
fn nodes(host: &Host) -> Result<BTreeMap<u32, Vec<usize>>, Unseen> {
    let mut nodes = BTreeMap::new();
    for name in host.source.names(NODES)? {
        let Some(number) = name
            .strip_prefix("node")
            .and_then(|digits| digits.parse::<u32>().ok())
        else {
            continue;
        };
        let path = format!("{NODES}/{name}/cpulist");
        let list = host.source.text(&path)?;
        // A node of memory alone has no CPUs.
        if !list.is_empty() {
            nodes.insert(
                number,
                parse_cpu_list(&list).map_err(|_| Unseen::Odd(path))?,
            );
        }
    }
    Ok(nodes)
}

static INTERRUPTS: Subject = Subject {
    number: 8,
    name: "interrupts",
    wanted: "one for each shard, or on no shard's core",
    why: "the shard whose core takes all packets of a card is slower than the others, and its \
          sessions with it",
    scope: Scope::Host,
};

/// 8: the CPUs that take the cards' interrupts.
pub(super) fn interrupts(host: &Host) -> Row {
    let mut draft = Draft::new(&INTERRUPTS);
    match cards(host) {
        Err(reason) => draft.unseen(reason),
        Ok(names) if names.is_empty() => draft.unseen(NO_CARD),
        Ok(_) if host.plan.cpus.is_empty() => {
            draft.unseen("the shards would not be pinned, so no core is a shard's");
        }
        Ok(names) => {
            for name in names {
                judge_card(&mut draft, host, &name);
            }
        }
    }
    draft.finish(&host.place)
}

fn judge_card(draft: &mut Draft, host: &Host, name: &str) {
    let (all, targets) = match active_interrupts(host, name) {
        Ok(found) => found,
        Err(reason) => return draft.unseen(reason),
    };
    let cpus: Vec<usize> = targets.iter().copied().collect();
    let found = format!("{} of {name} on CPU {}", all.len(), cpu_list(&cpus));
    let on_shards = on_shards(host, &targets);
    if is_even(host, on_shards) {
        return draft.ok(found);
    }
    let found = format!(
        "{found}; {on_shards} of {} shards there",
        host.plan.cpus.len()
    );
    let moves = spread(host, &all);
    if moves.is_empty() {
        return draft.warn(
            found,
            "spread the packets by RPS (9), or leave a CPU to the card",
        );
    }
    let commands: Vec<String> = moves
        .iter()
        .take(COMMANDS_TOLD)
        .map(|(path, cpu)| format!("echo {cpu} > {path}"))
        .collect();
    let more = if moves.len() > COMMANDS_TOLD {
        ", and so on"
    } else {
        ""
    };
    draft.warn(
        found,
        format!("irqbalance off, then {}{more}", commands.join(", ")),
    );
}

/// Shards whose core takes interrupts of the card.
fn on_shards(host: &Host, targets: &BTreeSet<usize>) -> usize {
    let is_target = |cpu: &&usize| targets.contains(cpu);
    host.plan.cpus.iter().filter(is_target).count()
}

fn is_even(host: &Host, on_shards: usize) -> bool {
    on_shards == 0 || on_shards == host.plan.cpus.len()
}

/// Where interrupts belong: on CPUs without a shard, else one on each shard's. Nothing when the
/// only interrupt has no CPU of its own to go to.
fn spread(host: &Host, interrupts: &[u32]) -> Vec<(String, usize)> {
    let spare: Vec<usize> = host
        .usable_cpus
        .iter()
        .flatten()
        .copied()
        .filter(|cpu| !host.plan.cpus.contains(cpu))
        .collect();
    let cpus = match (spare.as_slice(), interrupts) {
        ([], [_]) => return Vec::new(),
        ([], _) => &host.plan.cpus,
        (spare, _) => spare,
    };
    interrupts
        .iter()
        .zip(cpus.iter().cycle())
        .map(|(number, cpu)| (format!("/proc/irq/{number}/smp_affinity_list"), *cpu))
        .collect()
}

/// Where the interrupts of uneven cards belong.
pub(crate) fn interrupt_moves(host: &Host) -> Vec<(String, usize)> {
    let mut moves = Vec::new();
    if host.plan.cpus.is_empty() {
        return moves;
    }
    for name in cards(host).unwrap_or_default() {
        if let Ok((all, targets)) = active_interrupts(host, &name)
            && !is_even(host, on_shards(host, &targets))
        {
            moves.extend(spread(host, &all));
        }
    }
    moves
}

/// The card's interrupts that have come, and the CPUs they are sent to.
fn active_interrupts(host: &Host, name: &str) -> Result<(Vec<u32>, BTreeSet<usize>), Unseen> {
    let names = of_device(host, name, "msi_irqs", |path| host.source.names(path))?;
    let table = host.source.text("/proc/interrupts")?;
    let mut active: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    active.retain(|number| count_of(&table, *number) > 0);
    active.sort_unstable();
    if active.is_empty() {
        return Err(Unseen::Odd(format!("/proc/interrupts (nothing of {name})")));
    }
    let mut cpus = BTreeSet::new();
    for number in &active {
        let folder = format!("/proc/irq/{number}");
        let list = host
            .source
            .text(&format!("{folder}/effective_affinity_list"))
            .or_else(|_| host.source.text(&format!("{folder}/smp_affinity_list")))?;
        cpus.extend(parse_cpu_list(&list).map_err(|_| Unseen::Odd(folder))?);
    }
    Ok((active, cpus))
}

/// How often an interrupt has come on all CPUs; proc_interrupts: a line `N: COUNT... NAME`.
fn count_of(table: &str, number: u32) -> u64 {
    let label = format!("{number}:");
    table
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next()? == label).then_some(words))
        .map_or(0, |words| {
            words
                .map_while(|word| word.parse::<u64>().ok())
                .fold(0, u64::saturating_add)
        })
}

static QUEUES: Subject = Subject {
    number: 9,
    name: "packet spreading",
    wanted: "a queue for each shard, or RPS over their cores",
    why: "with fewer queues than shards a few cores handle the packets of all",
    scope: Scope::Host,
};

/// 9: receive and send queues, and their software replacements.
pub(super) fn queues(host: &Host) -> Row {
    let mut draft = Draft::new(&QUEUES);
    match cards(host) {
        Err(reason) => draft.unseen(reason),
        Ok(names) if names.is_empty() => draft.unseen(NO_CARD),
        Ok(names) => {
            for name in names {
                if let Err(reason) = judge_queues(&mut draft, host, &name) {
                    draft.unseen(reason);
                }
            }
        }
    }
    draft.finish(&host.place)
}

fn judge_queues(draft: &mut Draft, host: &Host, name: &str) -> Result<(), Unseen> {
    let folder = format!("{CARDS}/{name}/queues");
    let queues = host.source.names(&folder)?;
    let of = |prefix: &str| -> Vec<&String> {
        queues
            .iter()
            .filter(|name| name.starts_with(prefix))
            .collect()
    };
    let (receive, send) = (of("rx-"), of("tx-"));
    let shards = usize::from(host.plan.shards);
    let found = format!("{name} {} receive, {} send", receive.len(), send.len());
    if receive.len() >= shards {
        draft.ok(found);
        return Ok(());
    }
    let without = without_rps(host, name)?;
    if without.is_empty() {
        draft.ok(format!("{found}, RPS on all"));
        let entries = host.setting_number("net.core.rps_sock_flow_entries");
        if entries == Ok(0) {
            draft.info("no RFS: rps_sock_flow_entries 0");
        }
        return Ok(());
    }
    let mask = mask(&host.plan.cpus);
    let commands: Vec<String> = without
        .iter()
        .take(COMMANDS_TOLD)
        .map(|path| format!("echo {mask} > {path}"))
        .collect();
    let fix = if host.plan.cpus.is_empty() {
        "more queues (ethtool -L), or RPS over the cores in use".to_owned()
    } else {
        format!(
            "ethtool -L {name} combined {shards} if it can, else {}",
            commands.join(", ")
        )
    };
    draft.warn(
        format!("{found} for {shards} shards, RPS off on {}", without.len()),
        fix,
    );
    Ok(())
}

/// Receive queues whose packets stay on the CPU of their interrupt.
fn without_rps(host: &Host, name: &str) -> Result<Vec<String>, Unseen> {
    let folder = format!("{CARDS}/{name}/queues");
    let mut without = Vec::new();
    for queue in host.source.names(&folder)? {
        let path = format!("{folder}/{queue}/rps_cpus");
        if queue.starts_with("rx-") && is_zero(&host.source.text(&path)?) {
            without.push(path);
        }
    }
    Ok(without)
}

/// The masks of cards with fewer queues than shards: path and value.
pub(crate) fn rps_masks(host: &Host) -> Vec<(String, String)> {
    let mut masks = Vec::new();
    for name in cards(host).unwrap_or_default() {
        let queues = host.source.names(&format!("{CARDS}/{name}/queues"));
        let queues = queues.unwrap_or_default();
        let receive = queues.iter().filter(|name| name.starts_with("rx-")).count();
        if receive < host.plan.cpus.len() {
            let paths = without_rps(host, &name).unwrap_or_default();
            masks.extend(paths.into_iter().map(|path| (path, mask(&host.plan.cpus))));
        }
    }
    masks
}

/// Whether a mask of CPUs (hexadecimal, commas between groups of 32) has no bit.
fn is_zero(mask: &str) -> bool {
    mask.chars().all(|digit| matches!(digit, '0' | ','))
}

/// The mask of some CPUs, as the kernel reads it.
fn mask(cpus: &[usize]) -> String {
    let groups = cpus.iter().max().map_or(1, |last| last / 32 + 1);
    let words: Vec<String> = (0..groups)
        .rev()
        .map(|group| {
            let bits = cpus
                .iter()
                .filter(|cpu| **cpu / 32 == group)
                .fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32));
            if groups == 1 {
                format!("{bits:x}")
            } else {
                format!("{bits:08x}")
            }
        })
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_the_kernels() {
        assert_eq!(mask(&[0, 1, 3]), "b");
        assert_eq!(mask(&[]), "0");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
        assert!(is_zero("00000000,00000000") && !is_zero("00000000,00000004"));
    }

    #[test]
    fn counts_of_an_interrupt_are_added_and_names_are_not() {
        let table = "      CPU0  CPU1\n 24: 1 20 IO-APIC 5-edge x\n 124: 7 7 x\nNMI: 3 3 y";
        assert_eq!(count_of(table, 24), 21);
        assert_eq!(count_of(table, 4), 0);
        assert_eq!(count_of(table, 124), 14);
    }
}
