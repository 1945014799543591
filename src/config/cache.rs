//! A shard's cache of compiled user configurations.
//!
//! A warm user costs one look-up. A cold or expired one is fetched once, however many requests wait
//! (single flight). When the store cannot be reached, a warm user is served what is known, for a
//! bounded time; a configuration that cannot be read never replaces one that could.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use shards::{clock::coarse_ms, deadline::now_ms, notify::Event};

use crate::{
    auth::Principal,
    config::{
        compiled::CompiledUser,
        document::Document,
        store::{Fetched, Fingerprint, SharedStore, StoreFault, UserConfigStore},
    },
    refusal::Refusal,
    shard_state::ShardState,
};

/// Users remembered by a shard (contextforge.md 3.5).
const USERS_MAX: usize = 50_000;
/// How long a user's configuration is served that the store can no longer confirm, ms.
const STALE_MS_MAX: u64 = 3_600_000;
/// How long the store is left alone about a user after it failed, ms.
const RETRY_MS: u64 = 1_000;

/// Users remembered by a shard that the store does not know.
const UNKNOWN_MAX: usize = 4_096;
/// How long the store is not asked about them again, ms.
const UNKNOWN_MS: u64 = 1_000;

#[derive(Debug)]
struct Entry {
    user: Rc<CompiledUser>,
    fingerprint: Fingerprint,
    /// Until when it is served without asking.
    fresh_until_ms: u64,
    /// When the store last confirmed it.
    confirmed_ms: u64,
}

/// The cache and the store behind it.
#[derive(Debug)]
pub struct ConfigCache {
    store: SharedStore,
    expiry_ms: u64,
    entries: RefCell<HashMap<Box<str>, Entry, foldhash::fast::RandomState>>,
    /// Users the store does not know, and until when it is not asked again.
    unknown: RefCell<HashMap<Box<str>, u64, foldhash::fast::RandomState>>,
    flights: RefCell<HashMap<Box<str>, Rc<Flight>>>,
}

/// One fetch under way.
#[derive(Debug, Default)]
struct Flight {
    /// It has an outcome, or was given up.
    landed: Event,
    /// What it brought, for all who wait for it.
    outcome: RefCell<Option<Result<Rc<CompiledUser>, Refusal>>>,
    /// The configuration changed after it was asked for: what it brings may be the one before.
    is_outdated: Cell<bool>,
}

impl ConfigCache {
    /// An empty cache; entries are fresh for `expiry` unless the store says otherwise earlier.
    pub fn new(store: SharedStore, expiry: Duration) -> Self {
        Self {
            store,
            expiry_ms: u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX),
            entries: RefCell::default(),
            unknown: RefCell::default(),
            flights: RefCell::default(),
        }
    }

    /// The store.
    pub fn store(&self) -> &UserConfigStore {
        &self.store
    }

    /// The compiled configuration of a principal.
    pub async fn of_subject(
        &self,
        shard: &ShardState,
        principal: &Principal,
    ) -> Result<Rc<CompiledUser>, Refusal> {
        let subject = &*principal.subject;
        let now = coarse_ms();
        if let Some(entry) = self.entries.borrow().get(subject)
            && entry.fresh_until_ms > now
        {
            return Ok(entry.user.clone());
        }
        if self
            .unknown
            .borrow()
            .get(subject)
            .is_some_and(|until_ms| *until_ms > now)
        {
            return Err(Refusal::NoConfig);
        }
        Box::pin(self.refresh(shard, subject)).await
    }

    async fn refresh(
        &self,
        shard: &ShardState,
        subject: &str,
    ) -> Result<Rc<CompiledUser>, Refusal> {
        loop {
            let other = self.flights.borrow().get(subject).cloned();
            let Some(other) = other else { break };
            other.landed.wait().await;
            // Without an outcome it was given up with its request.
            if let Some(outcome) = &*other.outcome.borrow() {
                return outcome.clone();
            }
        }
        let crew = Crew::start(self, subject);
        let known = self
            .entries
            .borrow()
            .get(subject)
            .map(|entry| entry.fingerprint);
        let fetched = self.store.fetch(subject, known).await;
        let outcome = self.take_in(shard, subject, fetched);
        if crew.flight.is_outdated.get() {
            self.expire(subject);
        }
        *crew.flight.outcome.borrow_mut() = Some(outcome.clone());
        outcome
    }

    fn take_in(
        &self,
        shard: &ShardState,
        subject: &str,
        fetched: Result<Fetched, StoreFault>,
    ) -> Result<Rc<CompiledUser>, Refusal> {
        let now = now_ms();
        let fresh_until_ms = now.saturating_add(self.expiry_ms);
        let mut entries = self.entries.borrow_mut();
        match fetched {
            Ok(Fetched::Config(config, fingerprint)) => {
                shard.numbers.configs_loaded.add(1);
                if matches!(&*self.store, UserConfigStore::Redis(_)) && config.names_credentials() {
                    crate::log::credential_ignored(shard.shard.id);
                }
                if config.has_unusable_child() {
                    crate::log::stdio_refused();
                }
                if config.has_reverse() && shard.connection_gateway.is_none() {
                    crate::log::reverse_refused();
                }
                let user = Rc::new(CompiledUser::new(&config, &shard.upstream.targets));
                if entries.len() >= USERS_MAX && !entries.contains_key(subject) {
                    make_room(&mut entries);
                }
                let entry = Entry {
                    user: user.clone(),
                    fingerprint,
                    fresh_until_ms,
                    confirmed_ms: now,
                };
                entries.insert(subject.into(), entry);
                Ok(user)
            }
            Ok(Fetched::Unchanged) => match entries.get_mut(subject) {
                Some(entry) => {
                    entry.fresh_until_ms = fresh_until_ms;
                    entry.confirmed_ms = now;
                    Ok(entry.user.clone())
                }
                None => Err(Refusal::NoConfig),
            },
            Ok(Fetched::Nothing) => {
                entries.remove(subject);
                self.remember_unknown(subject, now);
                Err(Refusal::NoConfig)
            }
            Err(fault) => {
                if fault == StoreFault::Undecodable {
                    shard.numbers.configs_bad.add(1);
                    crate::log::config_unreadable(shard.shard.id);
                }
                match entries.get_mut(subject) {
                    Some(entry) if now.saturating_sub(entry.confirmed_ms) < STALE_MS_MAX => {
                        shard.numbers.configs_stale.add(1);
                        entry.fresh_until_ms = now + RETRY_MS;
                        Ok(entry.user.clone())
                    }
                    _ if fault == StoreFault::Undecodable => Err(Refusal::BadConfig),
                    // contextforge.md 4.3: the status front doors replay on.
                    _ => Err(Refusal::NoConfig),
                }
            }
        }
    }

    /// The configuration of `subject` changed: ask again at its next request. A fetch under way is
    /// not waited for by later requests any more.
    pub fn invalidate(&self, subject: &str) {
        if let Some(flight) = self.flights.borrow_mut().remove(subject) {
            flight.is_outdated.set(true);
        }
        self.expire(subject);
    }

    /// Any configuration may have changed.
    pub fn invalidate_all(&self) {
        for (_, flight) in self.flights.borrow_mut().drain() {
            flight.is_outdated.set(true);
        }
        self.unknown.borrow_mut().clear();
        for entry in self.entries.borrow_mut().values_mut() {
            entry.fresh_until_ms = 0;
        }
    }

    /// Keeps a caller without a configuration from having the store asked each time. Its first
    /// configuration is seen at once where the store tells of changes, and soon elsewhere.
    fn remember_unknown(&self, subject: &str, now_ms: u64) {
        let until_ms = now_ms + UNKNOWN_MS.min(self.expiry_ms);
        let mut unknown = self.unknown.borrow_mut();
        if unknown.len() >= UNKNOWN_MAX && !unknown.contains_key(subject) {
            unknown.retain(|_, until_ms| *until_ms > now_ms);
            if unknown.len() >= UNKNOWN_MAX {
                return;
            }
        }
        unknown.insert(subject.into(), until_ms);
    }

    fn expire(&self, subject: &str) {
        self.unknown.borrow_mut().remove(subject);
        if let Some(entry) = self.entries.borrow_mut().get_mut(subject) {
            entry.fresh_until_ms = 0;
        }
    }

    /// Swaps the file store's documents; true: other tokens are revoked than before.
    pub fn replace_document(&self, document: Arc<Document>) -> bool {
        let UserConfigStore::File(store) = &*self.store else {
            return false;
        };
        let are_others = store.revokes_others(&document);
        store.replace(document);
        self.invalidate_all();
        are_others
    }

    /// Forgets users the store has not confirmed for so long that they would not be served.
    pub fn sweep(&self, now_ms: u64) {
        self.entries
            .borrow_mut()
            .retain(|_, entry| now_ms.saturating_sub(entry.confirmed_ms) < STALE_MS_MAX);
        self.unknown
            .borrow_mut()
            .retain(|_, until_ms| *until_ms > now_ms);
    }
}

/// Drops the half of the users that was confirmed longest ago.
fn make_room(entries: &mut HashMap<Box<str>, Entry, foldhash::fast::RandomState>) {
    let mut times: Vec<u64> = entries.values().map(|entry| entry.confirmed_ms).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    entries.retain(|_, entry| entry.confirmed_ms > median);
    if entries.len() >= USERS_MAX {
        // All in the same millisecond.
        entries.clear();
    }
}

/// Who flies: the others wait until it is dropped.
struct Crew<'a> {
    cache: &'a ConfigCache,
    subject: &'a str,
    flight: Rc<Flight>,
}

impl<'a> Crew<'a> {
    fn start(cache: &'a ConfigCache, subject: &'a str) -> Self {
        let flight = Rc::new(Flight::default());
        cache
            .flights
            .borrow_mut()
            .insert(subject.into(), flight.clone());
        Self {
            cache,
            subject,
            flight,
        }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        let mut flights = self.cache.flights.borrow_mut();
        // After an invalidation another one may be under way.
        if flights
            .get(self.subject)
            .is_some_and(|flight| Rc::ptr_eq(flight, &self.flight))
        {
            flights.remove(self.subject);
        }
        drop(flights);
        self.flight.landed.fire();
    }
}
