//! What the bridge has: its sessions, their servers, the child processes that may be started.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::HeaderMap;
use tokio::sync::Semaphore;
use url::Url;

use super::{
    Changes, Registry,
    backoff::Backoff,
    child,
    line::{FarEnd, Hearing},
    new_secret,
    numbers::ReverseNumbers,
    peer::{Outlet, Peer, PeerKind, Session},
    remote::{self, Dialer, OpenFault},
};
use crate::{config::user_config::StdioServer, log};

/// How often the hub looks for what is over: at least and at most.
const SWEEP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a shared child, or the place of a reverse-connected server, is kept without sessions.
const SHARED_IDLE: Duration = Duration::from_secs(300);
/// The longest pause before a start that a caller waits through.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Bounds of the bridge.
#[derive(Debug, Clone)]
pub(super) struct HubLimits {
    /// Bytes of a request.
    pub(super) body_bytes_max: usize,
    /// Bytes of a child's line.
    pub(super) line_bytes_max: usize,
    /// Child processes.
    pub(super) children_max: usize,
    /// Sessions.
    pub(super) sessions_max: usize,
    /// A session with a child that nobody uses: longer than any of the gateway's own lives, because
    /// its caller may be busy with other backends and the child's memory must not go.
    pub(super) child_idle: Duration,
    /// A session with an HTTP+SSE server that nobody uses. A shard does not end one that fell away
    /// with a change of the configuration; one that is still wanted is opened again.
    pub(super) remote_idle: Duration,
    /// A whole call.
    pub(super) call: Duration,
    /// When a call without an answer becomes a stream: a shard waits for a first byte only so long.
    pub(super) stream_after: Duration,
    /// `initialize`, the start of a server included.
    pub(super) initialize: Duration,
}

/// Why a session is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unopened {
    /// No server of that name is configured.
    Unknown,
    /// A limit is reached, or the server fails too often.
    Busy,
    /// It cannot be started or reached.
    Failed,
    /// It refused with an HTTP status.
    Status(u16),
    /// It took too long.
    Late,
}

/// All of it.
pub(super) struct Hub {
    /// Bounds.
    pub(super) limits: HubLimits,
    dialer: Dialer,
    registry: Arc<Registry>,
    children: Arc<Semaphore>,
    sessions: Mutex<HashMap<Box<str>, Arc<Session>>>,
    shared: Mutex<HashMap<Box<str>, Arc<Peer>>>,
    /// Reverse-connected servers, and the places of those that are away.
    reverse: Mutex<HashMap<Box<str>, Arc<Peer>>>,
    /// What is counted of them.
    pub(super) numbers: Arc<ReverseNumbers>,
    /// Who is told that their lists are others.
    changes: Changes,
    failures: Mutex<HashMap<Box<str>, Backoff>>,
    next_key: AtomicU64,
    started: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps hold between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// One without sessions.
    pub(super) fn new(
        limits: HubLimits,
        dialer: Dialer,
        registry: Arc<Registry>,
        numbers: Arc<ReverseNumbers>,
        changes: Changes,
    ) -> Arc<Self> {
        Arc::new(Self {
            children: Arc::new(Semaphore::new(limits.children_max)),
            limits,
            dialer,
            registry,
            sessions: Mutex::default(),
            shared: Mutex::default(),
            reverse: Mutex::default(),
            numbers,
            changes,
            failures: Mutex::default(),
            next_key: AtomicU64::new(1),
            started: Instant::now(),
        })
    }

    /// The bridge's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The session with this id, opened under `route`.
    pub(super) fn session(&self, route: &str, id: &str) -> Option<Arc<Session>> {
        let session = lock(&self.sessions).get(id).cloned()?;
        if *session.route != *route || session.peer.is_gone() {
            return None;
        }
        session.used_ms.store(self.now_ms(), Ordering::Relaxed);
        Some(session)
    }

    /// Enters a session: its id. `None`: there are too many.
    pub(super) fn enter(&self, session: Arc<Session>) -> Option<Box<str>> {
        let id: Box<str> = new_secret()?.into();
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= self.limits.sessions_max {
            return None;
        }
        sessions.insert(id.clone(), session);
        Some(id)
    }

    /// Ends a session; false when there is none.
    pub(super) fn end(&self, route: &str, id: &str) -> bool {
        let mut sessions = lock(&self.sessions);
        if sessions.get(id).is_none_or(|known| *known.route != *route) {
            return false;
        }
        let session = sessions.remove(id);
        drop(sessions);
        if let Some(session) = session {
            session.end();
        }
        true
    }

    /// Drops a session whose server does not know it any more.
    pub(super) fn forget(&self, session: &Arc<Session>) {
        lock(&self.sessions).retain(|_, known| !Arc::ptr_eq(known, session));
        session.end();
    }

    fn join(&self, peer: &Arc<Peer>, route: &str) -> Arc<Session> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        Arc::new(peer.join(key, route, self.now_ms()))
    }

    /// A session with the child process of this id: with one of its own, or the shared one.
    pub(super) async fn open_child(
        self: &Arc<Self>,
        route: &str,
        id: &str,
    ) -> Result<Arc<Session>, Unopened> {
        let server = self.registry.find(id).ok_or(Unopened::Unknown)?;
        let pause = {
            let failures = lock(&self.failures);
            failures
                .get(id)
                .map_or(Duration::ZERO, |backoff| backoff.wait(Instant::now()))
        };
        if pause > PAUSE_MAX {
            return Err(Unopened::Busy);
        }
        tokio::time::sleep(pause).await;
        if !server.is_shared {
            let peer = self.start_child(&server)?;
            return Ok(self.join(&peer, route));
        }
        let mut shared = lock(&self.shared);
        let known = shared.get(id).filter(|peer| !peer.is_gone()).cloned();
        let peer = match known {
            Some(peer) => peer,
            None => {
                let peer = self.start_child(&server)?;
                shared.insert(id.into(), peer.clone());
                peer
            }
        };
        // Joined under the lock: the sweep does not end it in between.
        Ok(self.join(&peer, route))
    }

    /// A reverse-connected server with this id has come.
    pub(super) fn attach(&self, id: Box<str>, far: FarEnd, hearing: Hearing) {
        let mut reverse = lock(&self.reverse);
        let known = reverse.get(&id).cloned();
        let peer = known.unwrap_or_else(|| self.awaited(&mut reverse, &id));
        drop(reverse);
        let (patience, numbers) = (self.limits.initialize, self.numbers.clone());
        tokio::spawn(peer.attend(far, hearing, patience, numbers));
    }

    fn awaited(&self, reverse: &mut HashMap<Box<str>, Arc<Peer>>, id: &str) -> Arc<Peer> {
        let (changes, own) = (self.changes.clone(), Box::<str>::from(id));
        let peer = Peer::awaited(Box::new(move || {
            if let Some(told) = changes.get() {
                told(&own);
            }
        }));
        reverse.insert(id.into(), peer.clone());
        peer
    }

    /// A session with the reverse-connected server of this id, whether it is there or not.
    pub(super) fn join_reverse(&self, id: &str) -> Arc<Session> {
        let mut reverse = lock(&self.reverse);
        let known = reverse.get(id).cloned();
        let peer = known.unwrap_or_else(|| self.awaited(&mut reverse, id));
        // Joined under the lock: the sweep does not end it in between.
        self.join(&peer, id)
    }

    fn start_child(self: &Arc<Self>, server: &Arc<StdioServer>) -> Result<Arc<Peer>, Unopened> {
        let label = &server.label;
        let Ok(permit) = self.children.clone().try_acquire_owned() else {
            log::warn(|| format!("stdio server {label}: not started, too many child processes"));
            return Err(Unopened::Busy);
        };
        match child::start(server, self.limits.line_bytes_max, permit) {
            Ok((child, lines)) => {
                let (hub, id, started) = (Arc::downgrade(self), server.id.clone(), Instant::now());
                Ok(Peer::start(
                    Outlet::Child(child),
                    lines,
                    server.is_shared,
                    move || {
                        if let Some(hub) = hub.upgrade() {
                            hub.failed(&id, started.elapsed());
                        }
                    },
                ))
            }
            Err(error) => {
                let kind = error.kind();
                log::warn(|| format!("stdio server {label}: cannot be started: {kind}"));
                self.failed(&server.id, Duration::ZERO);
                Err(Unopened::Failed)
            }
        }
    }

    fn failed(&self, id: &str, lived: Duration) {
        let mut failures = lock(&self.failures);
        failures
            .entry(id.into())
            .or_default()
            .failed(Instant::now(), lived);
    }

    /// A session with the HTTP+SSE server at `url`.
    pub(super) async fn open_remote(
        &self,
        route: &str,
        url: &str,
        headers: HeaderMap,
    ) -> Result<Arc<Session>, Unopened> {
        let url = Url::parse(url).map_err(|_| Unopened::Unknown)?;
        match remote::open(&self.dialer, &url, headers).await {
            Ok((remote, reading, events)) => {
                let outlet = Outlet::Remote {
                    remote,
                    _reading: reading,
                };
                let peer = Peer::start(outlet, events, false, || {});
                Ok(self.join(&peer, route))
            }
            Err(fault) => {
                let host = url.host_str().unwrap_or_default();
                log::info(|| format!("no session with the HTTP+SSE backend at {host}: {fault}"));
                Err(match fault {
                    OpenFault::Status(status) => Unopened::Status(status),
                    OpenFault::Late => Unopened::Late,
                    _ => Unopened::Failed,
                })
            }
        }
    }

    /// Ends what is over, again and again.
    pub(super) async fn sweep_forever(self: Arc<Self>) {
        let shorter = self.limits.child_idle.min(self.limits.remote_idle);
        let pause = (shorter / 4).clamp(SWEEP.0, SWEEP.1);
        loop {
            tokio::time::sleep(pause).await;
            self.sweep();
        }
    }

    fn sweep(&self) {
        let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let (child_ms, remote_ms) = (
            millis(self.limits.child_idle),
            millis(self.limits.remote_idle),
        );
        let now_ms = self.now_ms();
        let is_over = |session: &Session| {
            let idle = now_ms.saturating_sub(session.used_ms.load(Ordering::Relaxed));
            // Its entry may have fallen away with a change of the documents.
            let is_child = session.peer.kind == PeerKind::Child;
            let is_disowned = is_child && self.registry.find(&session.route).is_none();
            let idle_ms = if is_child { child_ms } else { remote_ms };
            session.peer.is_gone() || is_disowned || (idle > idle_ms && !session.outbox.is_open())
        };
        let mut over = Vec::new();
        lock(&self.sessions).retain(|_, session| {
            let is_over = is_over(session);
            if is_over {
                over.push(session.clone());
            }
            !is_over
        });
        for session in over {
            session.end();
        }
        let mut unused = Vec::new();
        lock(&self.shared).retain(|id, peer| {
            let is_unused = peer.empty_since().is_some_and(|since| {
                since.elapsed() > SHARED_IDLE || self.registry.find(id).is_none()
            });
            if is_unused || peer.is_gone() {
                unused.push(peer.clone());
                return false;
            }
            true
        });
        for peer in unused {
            peer.end();
        }
        lock(&self.reverse).retain(|_, peer| {
            let idle = peer.empty_since().map(|since| since.elapsed());
            peer.is_attached() || idle.is_none_or(|idle| idle <= SHARED_IDLE)
        });
        lock(&self.failures).retain(|id, _| self.registry.find(id).is_some());
    }

    /// Ends all servers and waits until the child processes are gone, `patience` at the most.
    pub(super) async fn end_all(&self, patience: Duration) {
        let sessions: Vec<_> = lock(&self.sessions).drain().collect();
        for (_, session) in sessions {
            session.end();
        }
        let shared: Vec<_> = lock(&self.shared).drain().collect();
        let reverse: Vec<_> = lock(&self.reverse).drain().collect();
        for (_, peer) in shared.into_iter().chain(reverse) {
            peer.end();
        }
        let all = u32::try_from(self.limits.children_max).unwrap_or(u32::MAX);
        let gone = self.children.acquire_many(all);
        if tokio::time::timeout(patience, gone).await.is_err() {
            log::warn(|| "child processes were left behind".to_owned());
        }
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}
