//! The table of a shard's sessions: caps in total and per principal, idle and absolute limits.

use std::{collections::HashMap, rc::Rc};

use crate::session::{Session, SessionId};

/// Bounds of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableLimits {
    /// Sessions of this shard at the most.
    pub sessions_max: usize,
    /// Sessions of one principal on this shard at the most.
    pub per_principal_max: usize,
    /// A session unused for this long ends, ms.
    pub idle_ms_max: u64,
    /// A session older than this ends, ms.
    pub age_ms_max: u64,
}

/// Why no session could be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionCap {
    /// The table is full.
    Total,
    /// The principal has its share.
    Principal,
}

/// A shard's sessions.
#[derive(Debug)]
pub struct SessionTable {
    by_id: HashMap<SessionId, Rc<Session>, foldhash::fast::RandomState>,
    per_principal: HashMap<[u8; 16], usize, foldhash::fast::RandomState>,
    limits: TableLimits,
}

impl SessionTable {
    /// An empty table.
    pub fn new(limits: TableLimits) -> Self {
        Self {
            by_id: HashMap::default(),
            per_principal: HashMap::default(),
            limits,
        }
    }

    /// Number of live sessions.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whether `principal` may open one more.
    pub fn admit(&self, principal: &[u8; 16]) -> Result<(), SessionCap> {
        if self.by_id.len() >= self.limits.sessions_max {
            return Err(SessionCap::Total);
        }
        let own = self.per_principal.get(principal).copied().unwrap_or(0);
        if own >= self.limits.per_principal_max {
            return Err(SessionCap::Principal);
        }
        Ok(())
    }

    /// Adds a session that `admit` let in.
    pub fn insert(&mut self, session: Rc<Session>) {
        *self.per_principal.entry(session.principal).or_default() += 1;
        self.by_id.insert(session.id, session);
        self.check_invariants();
    }

    /// The live session with this id that belongs to `principal` and `virtual_host`, touched at
    /// `now_ms`. Foreign, expired and unknown look the same.
    pub fn touch(
        &self,
        id: &SessionId,
        principal: &[u8; 16],
        virtual_host: &str,
        now_ms: u64,
    ) -> Option<Rc<Session>> {
        let session = self.by_id.get(id)?;
        // The fingerprint is a keyed hash, so an early exit tells an attacker nothing he can use.
        let is_owner = session.principal == *principal && *session.virtual_host == *virtual_host;
        if !is_owner || self.is_idle(session, now_ms) || self.is_old(session, now_ms) {
            return None;
        }
        session.used_ms.set(now_ms);
        Some(session.clone())
    }

    /// Takes a session out.
    pub fn remove(&mut self, id: &SessionId) -> Option<Rc<Session>> {
        let session = self.by_id.remove(id)?;
        if let Some(count) = self.per_principal.get_mut(&session.principal) {
            *count -= 1;
            if *count == 0 {
                self.per_principal.remove(&session.principal);
            }
        }
        session.has_ended.set(true);
        self.check_invariants();
        Some(session)
    }

    /// Takes out all sessions whose time is over at `now_ms`.
    pub fn expire(&mut self, now_ms: u64) -> Vec<Rc<Session>> {
        for session in self.by_id.values() {
            session.streams.forget_old(now_ms);
        }
        let over: Vec<SessionId> = self
            .by_id
            .values()
            .filter(|session| {
                self.is_idle(session, now_ms)
                    || (session.in_flight.get() == 0 && self.is_old(session, now_ms))
            })
            .map(|session| session.id)
            .collect();
        over.iter().filter_map(|id| self.remove(id)).collect()
    }

    /// All sessions.
    pub fn all(&self) -> impl Iterator<Item = &Rc<Session>> {
        self.by_id.values()
    }

    /// All sessions, taken out.
    pub fn drain(&mut self) -> Vec<Rc<Session>> {
        let ids: Vec<SessionId> = self.by_id.keys().copied().collect();
        ids.iter().filter_map(|id| self.remove(id)).collect()
    }

    /// A session in use, or listened to, is not idle.
    fn is_idle(&self, session: &Session, now_ms: u64) -> bool {
        session.in_flight.get() == 0
            && !session.streams.is_open()
            && now_ms.saturating_sub(session.used_ms.get()) > self.limits.idle_ms_max
    }

    /// However busy it is it takes no more requests; those that run are finished, and its streams
    /// end with it.
    fn is_old(&self, session: &Session, now_ms: u64) -> bool {
        now_ms.saturating_sub(session.opened_ms) > self.limits.age_ms_max
    }

    fn check_invariants(&self) {
        debug_assert_eq!(self.per_principal.values().sum::<usize>(), self.by_id.len());
        debug_assert!(self.by_id.len() <= self.limits.sessions_max);
    }
}
