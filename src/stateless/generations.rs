//! How often backends said that their lists are others now, known to all shards.
//!
//! A client that hears of a change on one connection may ask for the new list on another, at
//! another shard: what that one remembered must not be served any more. So this is one of the few
//! things shards share: a number for each of a fixed set of buckets that backends fall into. A
//! change of one backend makes lists of its bucket old, which costs a question too many and no
//! wrong answer.

use std::{
    hash::{BuildHasher, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::config::compiled::{Backend, VirtualHost};

const BUCKETS: usize = 256;

/// The numbers.
#[derive(Debug)]
pub struct Generations([AtomicU64; BUCKETS]);

impl Default for Generations {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Generations {
    /// A backend's lists are others now.
    pub fn bump(&self, backend: &Backend) {
        self.0[bucket(backend)].fetch_add(1, Ordering::Release);
    }

    /// The same for the one at this authority and path.
    pub fn bump_at(&self, authority: &str, path: &str) {
        self.0[bucket_at(authority, path)].fetch_add(1, Ordering::Release);
    }

    /// A number that changes whenever one of the virtual host's backends says so.
    pub fn of(&self, host: &VirtualHost) -> u64 {
        let own = host.backends.iter();
        let own = own.map(|backend| self.0[bucket(backend)].load(Ordering::Acquire));
        own.fold(0, u64::wrapping_add)
    }
}

fn bucket(backend: &Backend) -> usize {
    bucket_at(&backend.target.authority, &backend.path)
}

fn bucket_at(authority: &str, path: &str) -> usize {
    // The same in all shards, which have their own copies of a backend.
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    authority.hash(&mut hasher);
    path.hash(&mut hasher);
    usize::try_from(hasher.finish() % BUCKETS as u64).unwrap_or(0)
}
