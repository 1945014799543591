//! The sessions of a backend: a number each, found by id from any shard.
//!
//! The table is shared, because a connection may land on any shard; each shard also keeps those it
//! has met, so that only the first request of a session on a shard takes the lock.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// A shard forgets ended sessions when it knows this many.
const KNOWN_COUNT_SWEPT: usize = 4096;

/// The table all shards share.
pub(super) type SharedSessions = Arc<Mutex<HashMap<u128, Arc<Session>>>>;

/// One client's session.
#[derive(Debug, Default)]
pub(super) struct Session {
    value: AtomicU64,
    /// Calls of a counter that is to repeat itself.
    turns: AtomicU64,
    has_ended: AtomicBool,
}

impl Session {
    pub(super) fn increment(&self) -> u64 {
        self.value.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// True for every 50th call.
    pub(super) fn is_odd_turn(&self) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed) % 50 == 49
    }

    pub(super) fn reset(&self) {
        self.value.store(0, Ordering::Relaxed);
    }
}

/// The sessions as one shard sees them.
pub(super) struct Sessions {
    shared: SharedSessions,
    known: RefCell<HashMap<u128, Arc<Session>>>,
    random: RandomState,
    drawn: Cell<u64>,
}

impl Sessions {
    pub(super) fn new(shared: SharedSessions) -> Self {
        Self {
            shared,
            known: RefCell::default(),
            random: RandomState::new(),
            drawn: Cell::new(0),
        }
    }

    /// Opens a session; its id is 32 hexadecimal digits.
    pub(super) fn open(&self) -> String {
        let session = Arc::new(Session::default());
        // Keyed SipHash of a counter: no client guesses another one's id.
        let draw = || {
            self.drawn.set(self.drawn.get() + 1);
            u128::from(self.random.hash_one(self.drawn.get()))
        };
        let key = draw() << 64 | draw();
        self.known.borrow_mut().insert(key, session.clone());
        self.shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, session);
        self.sweep();
        format!("{key:032x}")
    }

    /// The live session of this id.
    pub(super) fn find(&self, id: &[u8]) -> Option<Arc<Session>> {
        let key = parse_key(id)?;
        if let Some(session) = self.known.borrow().get(&key)
            && !session.has_ended.load(Ordering::Acquire)
        {
            return Some(session.clone());
        }
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let session = shared.get(&key)?.clone();
        self.known.borrow_mut().insert(key, session.clone());
        Some(session)
    }

    /// Ends the session; false when there is none.
    pub(super) fn end(&self, id: &[u8]) -> bool {
        let Some(key) = parse_key(id) else {
            return false;
        };
        self.known.borrow_mut().remove(&key);
        let ended = self
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&key);
        if let Some(session) = &ended {
            session.has_ended.store(true, Ordering::Release);
        }
        ended.is_some()
    }

    fn sweep(&self) {
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_COUNT_SWEPT && known.len().is_power_of_two() {
            known.retain(|_, session| !session.has_ended.load(Ordering::Relaxed));
        }
    }
}

fn parse_key(id: &[u8]) -> Option<u128> {
    if id.len() != 32 || !id.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(id).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_one_on_all_shards_until_one_ends_it() {
        let shared = SharedSessions::default();
        let (one, other) = (Sessions::new(shared.clone()), Sessions::new(shared));
        let id = one.open();
        assert_eq!(one.find(id.as_bytes()).unwrap().increment(), 1);
        assert_eq!(other.find(id.as_bytes()).unwrap().increment(), 2);
        assert_eq!(one.find(id.as_bytes()).unwrap().value(), 2);
        assert!(one.end(id.as_bytes()));
        assert!(other.find(id.as_bytes()).is_none());
        assert!(!other.end(id.as_bytes()));
    }

    #[test]
    fn ids_differ_and_others_are_unknown() {
        let sessions = Sessions::new(SharedSessions::default());
        let (one, other) = (sessions.open(), sessions.open());
        assert_ne!(one, other);
        assert_eq!(one.len(), 32);
        for id in [
            "",
            "x",
            "+0000000000000000000000000000001",
            "0000000000000000000000000000000g",
        ] {
            assert!(sessions.find(id.as_bytes()).is_none(), "{id}");
        }
    }
}
