//! Which shard owns what: 4096 slots, dealt to the shards.
//!
//! The slot of a name is a published hash of its bytes, the owner of a slot follows from the number
//! of shards alone, so any party can tell the owner of any name without asking. When the number of
//! shards grows from n to n+1, only 1/(n+1) of the slots move, all of them to the new shard.

use crate::ShardId;

/// Number of slots. Fixed: it is part of the published rule.
pub const SLOT_COUNT: usize = 4096;

/// The slot of a name: FNV-1a 64 over its bytes, the two halves xored, modulo 4096.
pub fn slot_of(name: &[u8]) -> u16 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let folded = hash ^ (hash >> 32);
    // The mask leaves 12 bits.
    (folded & (SLOT_COUNT as u64 - 1)) as u16
}

/// The owner of each slot.
#[derive(Clone)]
pub struct SlotTable {
    owners: Box<[ShardId; SLOT_COUNT]>,
    shards: u16,
}

impl SlotTable {
    /// The table for `shards` shards (at least 1). Built by adding one shard at a time: the new
    /// shard takes slots, in ascending order, from whichever shards own most (ties: the lowest id).
    pub fn new(shards: u16) -> Self {
        let shards = shards.max(1);
        let mut owners = Box::new([0; SLOT_COUNT]);
        let mut counts = vec![SLOT_COUNT];
        for newcomer in 1..shards {
            let share = SLOT_COUNT / (usize::from(newcomer) + 1);
            // How many slots each present owner gives: down to the new mean, most first.
            let mut give = vec![0usize; counts.len()];
            for _ in 0..share {
                let mut richest = 0;
                for owner in 1..counts.len() {
                    if counts[owner] > counts[richest] {
                        richest = owner;
                    }
                }
                counts[richest] -= 1;
                give[richest] += 1;
            }
            for owner in owners.iter_mut() {
                let given = &mut give[usize::from(*owner)];
                if *given > 0 {
                    *given -= 1;
                    *owner = newcomer;
                }
                if give.iter().all(|left| *left == 0) {
                    break;
                }
            }
            counts.push(share);
        }
        Self { owners, shards }
    }

    /// The shard that owns `slot` (taken modulo the slot count).
    pub fn owner(&self, slot: u16) -> ShardId {
        self.owners[usize::from(slot) % SLOT_COUNT]
    }

    /// The shard that owns the name.
    pub fn owner_of(&self, name: &[u8]) -> ShardId {
        self.owner(slot_of(name))
    }

    /// Number of shards the table was made for.
    pub fn shards(&self) -> u16 {
        self.shards
    }
}

impl std::fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotTable")
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_evenly() {
        for shards in [1, 2, 3, 4, 7, 8, 16, 64, 256] {
            let table = SlotTable::new(shards);
            let mut counts = vec![0usize; usize::from(shards)];
            for slot in 0..SLOT_COUNT {
                counts[usize::from(table.owner(slot as u16))] += 1;
            }
            let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(max - min <= 1, "{shards} shards: {min}..{max}");
        }
    }

    #[test]
    fn growing_moves_slots_to_the_new_shard_only() {
        for shards in 1..40u16 {
            let (before, after) = (SlotTable::new(shards), SlotTable::new(shards + 1));
            let mut moved = 0;
            for slot in 0..SLOT_COUNT as u16 {
                if before.owner(slot) != after.owner(slot) {
                    assert_eq!(after.owner(slot), shards);
                    moved += 1;
                }
            }
            assert_eq!(moved, SLOT_COUNT / (usize::from(shards) + 1));
        }
    }

    #[test]
    fn published_vectors() {
        // Anyone may compute these; changing one is a change of the published rule.
        for (name, slot) in [("", 4033), ("a", 192), ("foobar", 1689), ("session-1", 272)] {
            assert_eq!(slot_of(name.as_bytes()), slot, "{name}");
        }
        let owners = |shards| {
            ["", "a", "foobar", "session-1"]
                .map(|name| SlotTable::new(shards).owner_of(name.as_bytes()))
        };
        assert_eq!(owners(2), [0, 1, 1, 1]);
        assert_eq!(owners(4), [0, 3, 1, 3]);
        assert_eq!(owners(8), [0, 6, 1, 5]);
    }

    #[test]
    fn names_spread_over_owners() {
        let table = SlotTable::new(4);
        let mut counts = [0u32; 4];
        for n in 0..40_000 {
            counts[usize::from(table.owner_of(format!("session-{n}").as_bytes()))] += 1;
        }
        for count in counts {
            assert!((9_400..10_600).contains(&count), "{counts:?}");
        }
    }
}
