//! Tokens that were revoked before their time, by their `jti`.
//!
//! A local configuration file lists them itself. In Redis they are where the control plane marks
//! them; it is asked about a token when that is verified, and again when Redis tells of a change or
//! the answer has become old. When Redis cannot be asked, a token that it has not revoked a while
//! ago is still taken, for a bounded time; one that is not known is not.

use std::{cell::RefCell, collections::HashMap};

use shards::deadline::now_ms;

use crate::config::store::UserConfigStore;

/// Tokens remembered as not revoked; with more, the oldest half is forgotten.
const KNOWN_MAX: usize = 16 * 1024;
/// How long such an answer is believed when there is no newer one, ms: as long as a user's
/// configuration is.
const STALE_MS_MAX: u64 = 3_600_000;

/// What is known of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It was not revoked.
    Good,
    /// It was.
    Revoked,
    /// The store does not say.
    Unknown,
}

/// The revoked tokens as a shard sees them.
#[derive(Debug)]
pub struct Revocations {
    /// Redis is asked.
    asks_redis: bool,
    /// `jti` to when the store last said that it is good.
    good: RefCell<HashMap<Box<str>, u64, foldhash::fast::RandomState>>,
}

impl Revocations {
    /// Redis, where it is the store, is asked only if `asks_redis`.
    pub fn new(asks_redis: bool) -> Self {
        Self {
            asks_redis,
            good: RefCell::default(),
        }
    }

    /// Whether the token with this `jti` was revoked.
    pub async fn of(&self, store: &UserConfigStore, token_id: &str) -> Standing {
        match store {
            UserConfigStore::File(store) if store.is_revoked(token_id) => Standing::Revoked,
            UserConfigStore::File(_) => Standing::Good,
            UserConfigStore::Redis(_) if !self.asks_redis => Standing::Good,
            UserConfigStore::Redis(store) => {
                let said = store.is_revoked(token_id).await.ok();
                self.take_in(token_id, said, now_ms())
            }
        }
    }

    /// What follows from what the store said; `None`: nothing.
    fn take_in(&self, token_id: &str, said: Option<bool>, now_ms: u64) -> Standing {
        let mut good = self.good.borrow_mut();
        match said {
            Some(true) => {
                good.remove(token_id);
                Standing::Revoked
            }
            Some(false) => {
                if good.len() >= KNOWN_MAX && !good.contains_key(token_id) {
                    let mut ages: Vec<u64> = good.values().copied().collect();
                    let middle = ages.len() / 2;
                    let middle = *ages.select_nth_unstable(middle).1;
                    good.retain(|_, at_ms| *at_ms > middle);
                }
                good.insert(token_id.into(), now_ms);
                Standing::Good
            }
            None => match good.get(token_id) {
                Some(at_ms) if now_ms.saturating_sub(*at_ms) < STALE_MS_MAX => Standing::Good,
                _ => Standing::Unknown,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_bridged_for_tokens_that_were_good() {
        let all = Revocations::new(true);
        assert_eq!(all.take_in("a", None, 0), Standing::Unknown);
        assert_eq!(all.take_in("a", Some(false), 10), Standing::Good);
        assert_eq!(all.take_in("a", None, STALE_MS_MAX + 9), Standing::Good);
        assert_eq!(all.take_in("a", None, STALE_MS_MAX + 10), Standing::Unknown);
        assert_eq!(all.take_in("a", Some(false), 20), Standing::Good);
        assert_eq!(all.take_in("a", Some(true), 21), Standing::Revoked);
        assert_eq!(all.take_in("a", None, 22), Standing::Unknown);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let all = Revocations::new(true);
        for number in 0..KNOWN_MAX as u64 * 2 {
            all.take_in(&number.to_string(), Some(false), number);
            assert!(all.good.borrow().len() <= KNOWN_MAX);
        }
        let last = (KNOWN_MAX * 2 - 1).to_string();
        assert_eq!(
            all.take_in(&last, None, KNOWN_MAX as u64 * 2),
            Standing::Good
        );
    }
}
