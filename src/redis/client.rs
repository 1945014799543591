//! The handle the gateway holds, and the task that keeps its connection alive.
//!
//! A lost connection is opened again for ever, with growing pauses, until [`RedisClient::stop`] or
//! until the last handle is gone. Calls never wait for that: without a connection they fail at
//! once. Only the very first attempt is waited for, up to the connect timeout.
//!
//! With tracking on, Redis tells of each change to a key this connection has read (once: read it
//! again to be told again). A change can be told between a reply and the moment its caller runs, so
//! a cache must note invalidations for reads under way, not only for entries it holds.

use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasher, RandomState},
    io,
    rc::Rc,
    time::Duration,
};

use futures_util::future::LocalBoxFuture;
use shards::{
    deadline::now_ms,
    notify::Event,
    spawn,
    task::{guard, within},
};

use super::{
    connection::Connection, options::RedisOptions, pipeline::Pipeline, reply::Reply,
    resp::RespFault,
};
use crate::link::Link;

/// Opens a connection to Redis, TLS included. It must limit itself in time: an attempt is never
/// dropped half-way.
pub type Connect = Rc<dyn Fn() -> LocalBoxFuture<'static, io::Result<Link>>>;
/// Told of each invalidation, on the connection's task. It must not wait.
pub type OnInvalidate = Rc<dyn Fn(Invalidated<'_>)>;

/// What no longer holds (Redis client-side caching, push kind `invalidate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalidated<'a> {
    /// This key was changed, deleted, evicted or has expired.
    Key(&'a [u8]),
    /// Everything: the database was flushed, or changes were missed while there was no connection.
    All,
}

/// Whether changes to keys are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// Yes.
    On,
    /// Connected, but this server, proxy or user cannot: entries need a lifetime.
    Unavailable,
    /// Not connected: changes are missed now; `Invalidated::All` follows when it is again.
    Disconnected,
}

/// Why a call gave no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisFault {
    /// There is no connection; nothing was sent.
    Disconnected,
    /// The connection ended before the reply: the command may have been done or not.
    Lost,
    /// No reply in time; the connection was given up, and the command may have been done or not.
    Timeout,
    /// Too many commands are under way; nothing was sent.
    Busy,
    /// The command is larger than a frame may be; nothing was sent.
    TooLarge,
    /// The reply is a value larger than a frame may be. It is passed over.
    ValueTooLarge,
    /// Redis refused. The first word of its error, such as `WRONGTYPE`, and no more: the rest can
    /// quote arguments.
    Refused(String),
    /// A reply of a type the command does not have.
    Unexpected,
}

/// Why the last connection, or attempt, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// It could not be opened.
    Unreachable(io::ErrorKind),
    /// The other side closed, or the network broke.
    Closed,
    /// A reply did not come in time.
    Timeout,
    /// Redis refused service: `NOAUTH`, `WRONGPASS`, `LOADING`, `READONLY`, `MASTERDOWN`; or the
    /// database (`ERR`).
    Refused(String),
    /// What came is not RESP, or beyond its limits.
    Protocol(RespFault),
    /// A reply nobody asked for.
    Unsolicited,
    /// A panic in our own code; it cost the connection only.
    Panicked,
    /// [`RedisClient::stop`] was called.
    Stopped,
}

/// What has happened so far.
#[derive(Debug, Default)]
pub struct RedisCounters {
    /// Reads asked for.
    pub gets: Cell<u64>,
    /// Connections made after the first.
    pub reconnects: Cell<u64>,
    /// Keys told to be changed; a flush counts as one.
    pub invalidations: Cell<u64>,
    /// Calls that ended in a fault.
    pub faults: Cell<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    First,
    Connected(Tracking),
    Disconnected,
    Stopped,
}

/// What the handles and the task share.
pub(super) struct Shared {
    pub(super) options: RedisOptions,
    pub(super) pipeline: Pipeline,
    pub(super) counters: RedisCounters,
    pub(super) stopped: Event,
    on_invalidate: OnInvalidate,
    phase: Cell<Phase>,
    first_attempt: Event,
    first_until_ms: u64,
    last_end: RefCell<Option<ConnectionEnd>>,
}

/// A handle on this shard's Redis connection. Clones share it; the last one gone ends it.
#[derive(Clone)]
pub struct RedisClient {
    life: Rc<Life>,
}

/// Stops the task when the last handle is dropped.
struct Life {
    shared: Rc<Shared>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl std::fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisClient")
            .field("options", &self.shared().options)
            .field("phase", &self.shared().phase.get())
            .finish_non_exhaustive()
    }
}

impl RedisClient {
    /// Starts the connection's task on this shard. Options with a limit of zero are the caller's
    /// fault and make every call fail, never hang.
    pub fn start(options: RedisOptions, connect: Connect, on_invalidate: OnInvalidate) -> Self {
        let first_until_ms = now_ms().saturating_add(millis(options.connect_timeout));
        let shared = Rc::new(Shared {
            options,
            pipeline: Pipeline::default(),
            counters: RedisCounters::default(),
            stopped: Event::default(),
            on_invalidate,
            phase: Cell::new(Phase::First),
            first_attempt: Event::default(),
            first_until_ms,
            last_end: RefCell::new(None),
        });
        spawn(keep_connected(shared.clone(), connect));
        spawn(check_idle(shared.clone()));
        Self {
            life: Rc::new(Life { shared }),
        }
    }

    /// The value of `key`, `None` when there is none. With tracking on, its next change is told.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RedisFault> {
        add(&self.shared().counters.gets);
        match self.command(&[b"GET", key]).await? {
            Reply::Bulk(value) => Ok(Some(value)),
            Reply::Null => Ok(None),
            _ => self.fault(RedisFault::Unexpected),
        }
    }

    /// Sets `key` to `value`, without an end of life. Our own change is told like any other, if
    /// this connection has read the key.
    pub async fn set(&self, key: &[u8], value: &[u8]) -> Result<(), RedisFault> {
        match self.command(&[b"SET", key, value]).await? {
            Reply::Simple(_) => Ok(()),
            _ => self.fault(RedisFault::Unexpected),
        }
    }

    /// Deletes `key`; whether it was there.
    pub async fn del(&self, key: &[u8]) -> Result<bool, RedisFault> {
        match self.command(&[b"DEL", key]).await? {
            Reply::Integer(count) => Ok(count > 0),
            _ => self.fault(RedisFault::Unexpected),
        }
    }

    /// Any command that has one reply and keeps the connection's state (no SUBSCRIBE, SELECT,
    /// RESET, CLIENT REPLY, blocking commands). An error reply is [`RedisFault::Refused`].
    pub async fn command(&self, arguments: &[&[u8]]) -> Result<Reply, RedisFault> {
        let outcome = self.ask(arguments).await;
        if outcome.is_err() {
            add(&self.shared().counters.faults);
        }
        outcome
    }

    async fn ask(&self, arguments: &[&[u8]]) -> Result<Reply, RedisFault> {
        let shared = self.shared();
        if shared.phase.get() == Phase::First {
            let left_ms = shared.first_until_ms.saturating_sub(now_ms());
            // When the time runs out the phase below says so.
            let _ = within(Duration::from_millis(left_ms), shared.first_attempt.wait()).await;
        }
        if !self.is_connected() {
            return Err(RedisFault::Disconnected);
        }
        shared.send(arguments)?.wait().await
    }

    fn fault<T>(&self, fault: RedisFault) -> Result<T, RedisFault> {
        add(&self.shared().counters.faults);
        Err(fault)
    }

    /// Whether there is a connection that has passed its handshake.
    pub fn is_connected(&self) -> bool {
        matches!(self.shared().phase.get(), Phase::Connected(_))
    }

    /// Whether changes are told now.
    pub fn tracking(&self) -> Tracking {
        match self.shared().phase.get() {
            Phase::Connected(tracking) => tracking,
            Phase::First | Phase::Disconnected | Phase::Stopped => Tracking::Disconnected,
        }
    }

    /// Why the last connection, or attempt to connect, ended.
    pub fn last_end(&self) -> Option<ConnectionEnd> {
        self.shared().last_end.borrow().clone()
    }

    /// What has happened so far.
    pub fn counters(&self) -> &RedisCounters {
        &self.shared().counters
    }

    /// Ends the connection and its task; calls fail from now on. A shard that drains calls this, or
    /// the end of its sockets would start a new attempt.
    pub fn stop(&self) {
        self.shared().stop();
    }

    fn shared(&self) -> &Shared {
        &self.life.shared
    }
}

impl Shared {
    fn stop(&self) {
        self.phase.set(Phase::Stopped);
        self.stopped.fire();
        self.first_attempt.fire();
        self.pipeline.wake.notify();
    }

    fn send(&self, arguments: &[&[u8]]) -> Result<Rc<super::pipeline::Waiter>, RedisFault> {
        let at_ms = now_ms().saturating_add(millis(self.options.command_timeout));
        let options = &self.options;
        let limits = (options.in_flight_max, options.limits.frame_bytes_max);
        self.pipeline.push(arguments, at_ms, limits)
    }

    /// Counts an invalidation and passes it on.
    pub(super) fn invalidate(&self, what: Invalidated<'_>) {
        add(&self.counters.invalidations);
        (self.on_invalidate)(what);
    }

    /// From here on calls are sent.
    fn rise(&self, tracking: Tracking) {
        if self.phase.get() != Phase::Stopped {
            self.phase.set(Phase::Connected(tracking));
            self.first_attempt.fire();
        }
    }

    /// From here on calls fail at once; those under way fail now.
    fn fall(&self, end: ConnectionEnd) {
        if self.phase.get() != Phase::Stopped {
            self.phase.set(Phase::Disconnected);
        }
        self.pipeline.fail(&match end {
            ConnectionEnd::Timeout => RedisFault::Timeout,
            _ => RedisFault::Lost,
        });
        *self.last_end.borrow_mut() = Some(end);
        self.first_attempt.fire();
    }
}

fn add(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The task: one connection after the other.
async fn keep_connected(shared: Rc<Shared>, connect: Connect) {
    let random = RandomState::new();
    let (mut attempt, mut attempts_total) = (0_u32, 0_u64);
    let has_connected = Cell::new(false);
    while !shared.stopped.has_fired() {
        let is_served = Cell::new(false);
        let life = live_once(&shared, &connect, &has_connected, &is_served);
        let end = guard(life).await.unwrap_or(ConnectionEnd::Panicked);
        shared.fall(end);
        // A server that lets us in only to refuse service must not be asked at full speed.
        attempt = if is_served.get() {
            0
        } else {
            attempt.saturating_add(1)
        };
        attempts_total += 1;
        let pause = shared
            .options
            .back_off(attempt.saturating_sub(1), random.hash_one(attempts_total));
        let _ = within(pause, shared.stopped.wait()).await;
    }
    // A stop during an attempt ends it without a fall.
    shared.fall(ConnectionEnd::Stopped);
}

/// One connection from its attempt to its end. Tells whether it has served a command.
async fn live_once(
    shared: &Shared,
    connect: &Connect,
    has_connected: &Cell<bool>,
    is_served: &Cell<bool>,
) -> ConnectionEnd {
    let link = match connect().await {
        Ok(link) => link,
        Err(error) => return ConnectionEnd::Unreachable(error.kind()),
    };
    let (mut connection, tracking) = match Connection::open(link, shared).await {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    if has_connected.replace(true) {
        add(&shared.counters.reconnects);
        // Before the first call, so that nothing read from now on is thrown away.
        shared.invalidate(Invalidated::All);
    }
    shared.rise(tracking);
    connection.run(shared, is_served).await
}

/// Asks a quiet connection for a sign of life: without a reply in time it is given up.
async fn check_idle(shared: Rc<Shared>) {
    let period = shared.options.idle_check.max(Duration::from_millis(1));
    let mut gets_before = 0;
    while within(period, shared.stopped.wait()).await.is_none() {
        let gets = shared.counters.gets.get();
        let is_quiet = gets == gets_before && shared.pipeline.is_idle();
        gets_before = gets;
        if is_quiet && matches!(shared.phase.get(), Phase::Connected(_)) {
            // Nobody needs the reply itself; a full pipeline is a sign of life to come.
            let _ = shared.send(&[b"PING"]);
        }
    }
}
