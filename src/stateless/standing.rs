//! What a shard remembers of a virtual host for one principal's stateless requests: which backends
//! answer and what they can do, the merged lists, what names mean.
//!
//! All of it is what backends said, none of it what a client did: it may be dropped at any time and
//! nobody notices but by the time a request takes. It belongs to one state of the configuration,
//! one principal and one set of passed-on headers, and is dropped with them; it never outlives what
//! was advertised (dual-profile.md 1.8).

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    hash::BuildHasher,
    rc::Rc,
};

use futures_util::future::join_all;
use shards::{clock::coarse_ms, deadline::now_ms};

use crate::{
    mcp::version::Version,
    method::initialize::{NewSession, new_session},
    refusal::Refusal,
    request::Caller,
    route::family::Family,
    session::{
        Session,
        state::{OpenBackend, SessionKind},
    },
    shard_state::ShardState,
    stateless::bridge,
    upstream::{CallFault, open, request::passed_head},
};

/// Bytes of all lists that one shard keeps.
const LIST_BYTES_MAX: usize = 64 << 20;
/// Bytes of one list that is kept.
const ONE_LIST_BYTES_MAX: usize = 8 << 20;
/// Pages kept of one virtual host for one principal.
const PAGES_MAX: usize = 32;

/// What is remembered for one principal of one virtual host.
#[derive(Debug)]
pub struct Standing {
    /// Backends, names and requests under way.
    pub session: Rc<Session>,
    until_ms: u64,
    used_ms: Cell<u64>,
    is_known: Cell<bool>,
    pages: RefCell<Vec<Page>>,
    /// What backends with sessions can do for clients that have none, by index.
    bridged: RefCell<Vec<(usize, Rc<OpenBackend>)>>,
}

#[derive(Debug)]
struct Page {
    family: Family,
    cursor: Option<Box<[u8]>>,
    until_ms: u64,
    /// Whose lists were what then.
    generation: u64,
    result: Rc<[u8]>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    host: usize,
    principal: [u8; 16],
    passed: u64,
    /// The backends that get the caller's token and that it is meant for.
    meant: Box<[usize]>,
}

/// All that one shard remembers.
#[derive(Debug)]
pub struct Standings {
    known: RefCell<HashMap<Key, Rc<Standing>, foldhash::fast::RandomState>>,
    count_max: usize,
    list_bytes: Cell<usize>,
    hasher: foldhash::fast::RandomState,
}

impl Standings {
    /// Nothing remembered; at most `count_max` later.
    pub fn new(count_max: usize) -> Self {
        Self {
            known: RefCell::default(),
            count_max,
            list_bytes: Cell::new(0),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.borrow().is_empty()
    }

    /// What is remembered for a caller; made when it is not there, or is too old.
    pub fn of(&self, shard: &ShardState, caller: &Caller<'_>) -> Result<Rc<Standing>, Refusal> {
        let passed = passed_head(caller.host.backends.iter(), caller.request.head_bytes());
        let key = Key {
            host: Rc::as_ptr(&caller.host) as usize,
            principal: caller.principal.fingerprint,
            passed: match passed.is_empty() {
                true => 0,
                false => self.hasher.hash_one(&passed),
            },
            meant: meant_for(caller),
        };
        // To 20 ms, which no lifetime here is as short as.
        let now = coarse_ms();
        if let Some(known) = self.known.borrow().get(&key)
            && known.until_ms > now
            && *known.session.voice().head() == *passed
        {
            known.used_ms.set(now);
            known
                .session
                .keep_token(caller.request, &caller.principal, &caller.host);
            return Ok(known.clone());
        }
        let session = new_session(
            shard,
            caller,
            NewSession {
                kind: SessionKind::Standing,
                version: Version::V2026_07_28,
                client_info: None,
                client_capabilities: b"{}",
            },
        )?;
        let standing = Rc::new(Standing {
            session,
            until_ms: now + caller.protocols(shard).discover_ttl_ms,
            used_ms: Cell::new(now),
            is_known: Cell::new(true),
            pages: RefCell::default(),
            bridged: RefCell::default(),
        });
        self.remember(key, standing.clone());
        Ok(standing)
    }

    fn remember(&self, key: Key, standing: Rc<Standing>) {
        let mut known = self.known.borrow_mut();
        if known.len() >= self.count_max {
            self.make_room(&mut known);
        }
        if let Some(old) = known.insert(key, standing) {
            self.give_back(&old);
        }
    }

    /// Drops what is too old, and of the rest the part that was not used for longest.
    fn make_room(&self, known: &mut HashMap<Key, Rc<Standing>, foldhash::fast::RandomState>) {
        let now = now_ms();
        let mut used: Vec<u64> = known.values().map(|one| one.used_ms.get()).collect();
        let part = used.len() / 16;
        let (_, oldest, _) = used.select_nth_unstable(part);
        let limit_ms = *oldest;
        known.retain(|_, one| {
            let stays = one.until_ms > now && one.used_ms.get() > limit_ms;
            if !stays {
                self.give_back(one);
            }
            stays
        });
    }

    fn give_back(&self, standing: &Standing) {
        let bytes: usize = standing
            .pages
            .borrow()
            .iter()
            .map(|page| page.result.len())
            .sum();
        self.list_bytes.set(self.list_bytes.get() - bytes);
        standing.pages.borrow_mut().clear();
        standing.is_known.set(false);
    }

    /// Drops what is too old.
    pub fn sweep(&self) {
        let now = now_ms();
        self.known.borrow_mut().retain(|_, one| {
            let stays = one.until_ms > now;
            if !stays {
                self.give_back(one);
            }
            stays
        });
    }

    /// Keeps a list for as long as it was advertised.
    pub fn keep(
        &self,
        standing: &Standing,
        family: Family,
        cursor: Option<&[u8]>,
        (result, generation): (Rc<[u8]>, u64),
        ttl_ms: u64,
    ) {
        let now = now_ms();
        let mut pages = standing.pages.borrow_mut();
        let bytes_before: usize = pages.iter().map(|page| page.result.len()).sum();
        pages.retain(|page| page.until_ms > now && !page.is_of(family, cursor));
        let bytes_kept: usize = pages.iter().map(|page| page.result.len()).sum();
        let total = self.list_bytes.get() - (bytes_before - bytes_kept);
        self.list_bytes.set(total);
        let fits = result.len() <= ONE_LIST_BYTES_MAX
            && total + result.len() <= LIST_BYTES_MAX
            && pages.len() < PAGES_MAX;
        // One that is forgotten meanwhile would never give the bytes back.
        let is_known = standing.is_known.get() && standing.until_ms > now;
        if fits && is_known && ttl_ms > 0 {
            self.list_bytes.set(total + result.len());
            pages.push(Page {
                family,
                cursor: cursor.map(Box::from),
                until_ms: now + ttl_ms,
                generation,
                result,
            });
        }
    }
}

/// The backends that get the caller's token and that it is meant for: what another token of the
/// same caller may not see must not be what is remembered for this one.
fn meant_for(caller: &Caller<'_>) -> Box<[usize]> {
    if !caller.host.passes_tokens {
        return Box::default();
    }
    let backends = caller.host.backends.iter().enumerate();
    let meant = backends.filter(|(_, backend)| {
        backend.caller_resource.is_some() && backend.admit(&caller.principal).is_ok()
    });
    meant.map(|(index, _)| index).collect()
}

impl Page {
    fn is_of(&self, family: Family, cursor: Option<&[u8]>) -> bool {
        self.family == family && self.cursor.as_deref() == cursor
    }
}

impl Standing {
    /// A list that is still as advertised.
    pub fn page(&self, family: Family, cursor: Option<&[u8]>, generation: u64) -> Option<Rc<[u8]>> {
        let now = now_ms();
        let pages = self.pages.borrow();
        let found = pages.iter().find(|page| {
            page.until_ms > now && page.generation == generation && page.is_of(family, cursor)
        });
        found.map(|page| page.result.clone())
    }

    /// What the backend at `index`, which has sessions, can do for clients that have none.
    ///
    /// # Errors
    /// Why it could not be asked.
    pub async fn bridged(
        &self,
        shard: &Rc<ShardState>,
        caller: &Caller<'_>,
        index: usize,
    ) -> Result<Rc<OpenBackend>, CallFault> {
        let is_it = |(at, _): &&(usize, Rc<OpenBackend>)| *at == index;
        let known = self
            .bridged
            .borrow()
            .iter()
            .find(is_it)
            .map(|(_, open)| open.clone());
        if let Some(open) = known {
            return Ok(open);
        }
        let open = bridge::capabilities(shard, caller, index).await?;
        self.bridged.borrow_mut().push((index, open.clone()));
        Ok(open)
    }

    /// What every backend can do, in order; each is asked that has not said it.
    pub async fn all_open(
        &self,
        shard: &Rc<ShardState>,
        caller: &Caller<'_>,
    ) -> Vec<Result<Rc<OpenBackend>, CallFault>> {
        let patience = shard.upstream.limits.fan_out;
        let host = &caller.host;
        let links = self.session.all_backends();
        let all = links.iter().enumerate().map(|(index, link)| async move {
            open::ensure(shard, &self.session, (host, index), link, patience).await
        });
        join_all(all).await
    }
}
