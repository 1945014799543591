//! Tokens that were verified a moment ago, per shard.
//!
//! A hit costs a hash and a compare instead of a signature (engine.md section 7). The key is the
//! full token, compared byte for byte: a truncated digest would make a collision an identity. The
//! hash is keyed at random per cache. Bounded in entries and in bytes; eviction is second-chance
//! (CLOCK), so one burst of new tokens does not push out the busy ones.

use std::hash::BuildHasher as _;
use std::rc::Rc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::principal::Principal;

/// Entries of a cache built by [`TokenCache::default`].
pub const TOKEN_CACHE_ENTRIES_MAX: usize = 8192;
/// Longer tokens are verified every time: real ones have 0.3 to 1.5 KiB.
pub const CACHED_TOKEN_BYTES_MAX: usize = 4 * 1024;
/// All tokens of one cache together, whatever their number.
pub const TOKEN_CACHE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// An entry is verified anew after this time even if its token lives longer.
pub const TOKEN_CACHE_AGE_S_MAX: u64 = 300;

// An empty cache always has room for one token, or eviction would not end.
const _: () = assert!(CACHED_TOKEN_BYTES_MAX <= TOKEN_CACHE_BYTES_MAX);

/// Verified tokens of one shard.
#[derive(Debug)]
pub struct TokenCache {
    index: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    hasher: DefaultHashBuilder,
    hand: usize,
    token_bytes: usize,
    entries_max: usize,
    leeway_s: u64,
    age_s_max: u64,
    generation: u64,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    entry: Option<Entry>,
}

struct Entry {
    token: Box<[u8]>,
    principal: Rc<Principal>,
    inserted_at_unix_s: u64,
    kept_until_unix_s: u64,
    is_recent: bool,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Entry")
    }
}

impl Default for TokenCache {
    fn default() -> Self {
        Self::new(TOKEN_CACHE_ENTRIES_MAX)
    }
}

impl TokenCache {
    /// A cache of at most `entries_max` tokens (0 = nothing is kept), with the contract's leeway.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self {
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hasher: DefaultHashBuilder::default(),
            hand: 0,
            token_bytes: 0,
            // Slot numbers are 32 bits wide.
            entries_max: entries_max.min(u32::MAX as usize),
            leeway_s: super::jwt::TokenRules::default().leeway_s,
            age_s_max: TOKEN_CACHE_AGE_S_MAX,
            generation: 0,
        }
    }

    /// Sets the leeway after `exp`; it must be the one of the rules that tokens are verified by.
    #[must_use]
    pub fn with_leeway_s(mut self, leeway_s: u64) -> Self {
        self.leeway_s = leeway_s;
        self
    }

    /// Lets entries be verified anew after less than [`TOKEN_CACHE_AGE_S_MAX`]; 0: each time.
    #[must_use]
    pub fn with_age_s_max(mut self, age_s_max: u64) -> Self {
        self.age_s_max = age_s_max.min(TOKEN_CACHE_AGE_S_MAX);
        if age_s_max == 0 {
            self.entries_max = 0;
        }
        self
    }

    /// Number of tokens held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True when no token is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The principal of a token that was verified before and is still good at `now_unix_s`.
    pub fn lookup(&mut self, token: &[u8], now_unix_s: u64) -> Option<Rc<Principal>> {
        // Tokens of this length are never inserted, so they need not be hashed either.
        if token.len() > CACHED_TOKEN_BYTES_MAX {
            return None;
        }
        let hash = self.hasher.hash_one(token);
        let slot = self.find(hash, token)?;
        let entry = self.slots.get_mut(slot as usize)?.entry.as_mut()?;
        // A clock that went back must not stretch an entry's life.
        if entry.kept_until_unix_s < now_unix_s || now_unix_s < entry.inserted_at_unix_s {
            self.remove(slot);
            return None;
        }
        entry.is_recent = true;
        Some(Rc::clone(&entry.principal))
    }

    /// Remembers a token that has just been verified.
    pub fn insert(&mut self, token: &[u8], principal: Rc<Principal>, now_unix_s: u64) {
        if self.entries_max == 0 || token.len() > CACHED_TOKEN_BYTES_MAX {
            return;
        }
        let kept_until_unix_s = principal
            .expires_at_unix_s
            .saturating_add(self.leeway_s)
            .min(now_unix_s.saturating_add(self.age_s_max));
        if kept_until_unix_s < now_unix_s {
            return;
        }
        let hash = self.hasher.hash_one(token);
        if let Some(slot) = self.find(hash, token) {
            self.remove(slot);
        }
        while self.len() >= self.entries_max
            || self.token_bytes + token.len() > TOKEN_CACHE_BYTES_MAX
        {
            self.evict_one();
        }
        let entry = Entry {
            token: token.into(),
            principal,
            inserted_at_unix_s: now_unix_s,
            kept_until_unix_s,
            is_recent: false,
        };
        self.place(hash, entry);
    }

    /// How often everything was forgotten: what was found out about a token before the last time
    /// must not be inserted after it.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Forgets everything, for a change of keys or rules.
    pub fn clear(&mut self) {
        self.generation += 1;
        self.index.clear();
        self.slots.clear();
        self.free.clear();
        self.hand = 0;
        self.token_bytes = 0;
    }

    fn find(&self, hash: u64, token: &[u8]) -> Option<u32> {
        let is_same = |slot: &u32| {
            let entry = self
                .slots
                .get(*slot as usize)
                .and_then(|slot| slot.entry.as_ref());
            entry.is_some_and(|entry| *entry.token == *token)
        };
        self.index.find(hash, is_same).copied()
    }

    fn place(&mut self, hash: u64, entry: Entry) {
        self.token_bytes += entry.token.len();
        let filled = Slot {
            hash,
            entry: Some(entry),
        };
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(slot) = self.slots.get_mut(number as usize) {
                    *slot = filled;
                }
                number
            }
            None => {
                self.slots.push(filled);
                // Fits: `entries_max` does, and there are never more slots than entries.
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        let rehash = |slot: &u32| slots.get(*slot as usize).map_or(0, |slot| slot.hash);
        self.index.insert_unique(hash, number, rehash);
        debug_assert!(self.slots.len() <= self.entries_max);
        debug_assert_eq!(self.index.len() + self.free.len(), self.slots.len());
    }

    fn remove(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number as usize) else {
            return;
        };
        let Some(entry) = slot.entry.take() else {
            return;
        };
        self.token_bytes -= entry.token.len();
        if let Ok(found) = self.index.find_entry(slot.hash, |other| *other == number) {
            found.remove();
        }
        self.free.push(number);
    }

    /// Turns the hand to the first entry that was not used since the hand last passed it.
    fn evict_one(&mut self) {
        debug_assert!(
            !self.is_empty(),
            "eviction from an empty cache would never end"
        );
        // Two rounds are enough: the first clears every mark.
        for _ in 0..self.slots.len() * 2 {
            let number = self.hand % self.slots.len();
            self.hand = number + 1;
            match self
                .slots
                .get_mut(number)
                .and_then(|slot| slot.entry.as_mut())
            {
                Some(entry) if entry.is_recent => entry.is_recent = false,
                Some(_) => return self.remove(number as u32),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::jwt::Verified;
    use crate::auth::principal::FingerprintKey;
    use proptest::prelude::*;

    fn principal(subject: &str, expires_at_unix_s: u64) -> Rc<Principal> {
        let verified = Verified {
            subject: subject.into(),
            issuer: "i".into(),
            expires_at_unix_s,
            ..Verified::default()
        };
        Rc::new(Principal::from_verified(
            verified,
            &FingerprintKey::new(b"k"),
        ))
    }

    #[test]
    fn an_entry_lives_until_exp_and_leeway() {
        let mut cache = TokenCache::new(4);
        cache.insert(b"t", principal("a", 1000), 900);
        assert_eq!(&*cache.lookup(b"t", 1060).unwrap().subject, "a");
        assert!(cache.lookup(b"t", 1061).is_none());
        assert!(cache.is_empty(), "a dead entry is dropped when it is met");
    }

    #[test]
    fn an_entry_lives_five_minutes_at_most() {
        let mut cache = TokenCache::new(4).with_leeway_s(0);
        cache.insert(b"t", principal("a", u64::MAX), 1000);
        assert!(cache.lookup(b"t", 1300).is_some());
        assert!(cache.lookup(b"t", 1301).is_none());
    }

    #[test]
    fn an_entry_may_be_wanted_younger() {
        let mut cache = TokenCache::new(4).with_age_s_max(60);
        cache.insert(b"t", principal("a", u64::MAX), 1000);
        assert!(cache.lookup(b"t", 1060).is_some());
        assert!(cache.lookup(b"t", 1061).is_none());
        let mut none = TokenCache::new(4).with_age_s_max(0);
        none.insert(b"t", principal("a", u64::MAX), 1000);
        assert!(none.is_empty());
    }

    #[test]
    fn a_clock_that_went_back_makes_a_miss() {
        let mut cache = TokenCache::new(4);
        cache.insert(b"t", principal("a", 5000), 1000);
        assert!(cache.lookup(b"t", 999).is_none());
    }

    #[test]
    fn an_expired_token_is_not_kept() {
        let mut cache = TokenCache::new(4);
        cache.insert(b"t", principal("a", 1000), 1061);
        assert!(cache.is_empty());
    }

    #[test]
    fn the_whole_token_is_compared() {
        let mut cache = TokenCache::new(4);
        cache.insert(b"header.payload.signature", principal("a", 1000), 900);
        assert!(cache.lookup(b"header.payload.signaturf", 900).is_none());
        assert!(cache.lookup(b"header.payload.signatur", 900).is_none());
        assert!(cache.lookup(b"", 900).is_none());
    }

    #[test]
    fn a_busy_entry_survives_a_burst() {
        let mut cache = TokenCache::new(8);
        cache.insert(b"busy", principal("busy", 1000), 900);
        for round in 0..100u32 {
            assert!(cache.lookup(b"busy", 900).is_some(), "round {round}");
            cache.insert(&round.to_be_bytes(), principal("x", 1000), 900);
        }
        assert_eq!(cache.len(), 8);
    }

    #[test]
    fn long_tokens_and_an_empty_cache_keep_nothing() {
        let mut cache = TokenCache::new(4);
        let long = vec![b'x'; CACHED_TOKEN_BYTES_MAX + 1];
        cache.insert(&long, principal("a", 1000), 900);
        assert!(cache.lookup(&long, 900).is_none() && cache.is_empty());
        let mut none = TokenCache::new(0);
        none.insert(b"t", principal("a", 1000), 900);
        assert!(none.lookup(b"t", 900).is_none());
    }

    #[test]
    fn all_tokens_together_are_bounded() {
        let mut cache = TokenCache::new(1 << 20);
        let who = principal("a", 1000);
        let mut token = vec![b'x'; CACHED_TOKEN_BYTES_MAX];
        for number in 0..3000u32 {
            token[..4].copy_from_slice(&number.to_be_bytes());
            cache.insert(&token, Rc::clone(&who), 900);
            assert!(cache.token_bytes <= TOKEN_CACHE_BYTES_MAX);
        }
        assert_eq!(cache.len(), TOKEN_CACHE_BYTES_MAX / CACHED_TOKEN_BYTES_MAX);
        cache.clear();
        assert!(cache.is_empty() && cache.lookup(&token, 900).is_none());
    }

    #[test]
    fn a_second_insert_replaces_the_first() {
        let mut cache = TokenCache::new(4);
        cache.insert(b"t", principal("a", 1000), 900);
        cache.insert(b"t", principal("b", 1000), 900);
        assert_eq!(cache.len(), 1);
        assert_eq!(&*cache.lookup(b"t", 900).unwrap().subject, "b");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Whatever is done, a hit is always the principal last given for that token, and alive.
        #[test]
        fn a_hit_is_never_wrong(steps in proptest::collection::vec(
            (0u8..3, 0u8..12, 0u64..200), 1..200)) {
            let mut cache = TokenCache::new(5).with_leeway_s(10);
            let mut given = std::collections::BTreeMap::new();
            let mut now = 1000;
            for (kind, name, amount) in steps {
                let token = [name];
                match kind {
                    0 => {
                        let who = principal(&format!("{name}-{amount}"), now + amount);
                        cache.insert(&token, Rc::clone(&who), now);
                        given.insert(name, who);
                    }
                    1 => now += amount,
                    _ => {
                        if let Some(hit) = cache.lookup(&token, now) {
                            prop_assert_eq!(Some(&hit), given.get(&name));
                            prop_assert!(hit.expires_at_unix_s + 10 >= now);
                        }
                    }
                }
                prop_assert!(cache.len() <= 5);
            }
        }
    }
}
