//! Refusals counted by reason. Reasons are fixed words of the program, so there are few; they are
//! found by being met, so that no list of them has to be kept.

use std::sync::OnceLock;

use shards::counters::Counter;

use crate::refusal::Refusal;

/// More reasons than there are words; what would not fit is counted under none of its own.
const REASONS_MAX: usize = 96;
/// What that is called.
const OTHER: &str = "other";

/// Counters of one shard, by reason. One writer, as all of them.
#[derive(Debug)]
pub struct Refused {
    reasons: [(OnceLock<&'static str>, Counter); REASONS_MAX],
    other: Counter,
}

impl Default for Refused {
    fn default() -> Self {
        Self {
            reasons: std::array::from_fn(|_| Default::default()),
            other: Counter::default(),
        }
    }
}

impl Refused {
    /// Counts one. Only the owning shard may call this.
    pub fn count(&self, refusal: &Refusal) {
        self.count_word(refusal.label());
    }

    fn count_word(&self, reason: &'static str) {
        let slot = self
            .reasons
            .iter()
            .find(|(word, _)| *word.get_or_init(|| reason) == reason);
        slot.map_or(&self.other, |(_, counter)| counter).add(1);
    }

    /// Every reason met so far and its number.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let named = self.reasons.iter();
        let named = named.filter_map(|(word, counter)| Some((*word.get()?, counter.value())));
        let other = Some((OTHER, self.other.value())).filter(|(_, count)| *count > 0);
        named.chain(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_apart_and_never_more_than_there_is_room_for() {
        let refused = Refused::default();
        refused.count(&Refusal::Origin);
        refused.count(&Refusal::Busy);
        refused.count(&Refusal::Origin);
        assert_eq!(refused.all(), [("origin", 2), ("busy", 1)]);
        for number in 0..2 * REASONS_MAX {
            refused.count_word(format!("word {number}").leak());
        }
        let all = refused.all();
        assert_eq!(all.len(), REASONS_MAX + 1);
        assert_eq!(all[REASONS_MAX].0, OTHER);
        assert_eq!(
            all.iter().map(|(_, count)| count).sum::<u64>(),
            3 + 2 * REASONS_MAX as u64
        );
    }
}
