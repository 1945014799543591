//! Starting the shards: one pinned thread each, its runtime, its port, its accept loops.
//!
//! All rings of the I/O driver are built before any shard runs; listeners come already bound. A
//! shard whose main future ends ends its thread; one that dies of a panic is reported by
//! [`Shards::join`], because a half-dead SO_REUSEPORT group would swallow its share of connections.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, RawFd},
    panic::{AssertUnwindSafe, resume_unwind},
    rc::Rc,
    sync::{Arc, Barrier, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use futures_util::FutureExt;

use crate::{
    Arrival, Deadlines, DriverChoice, DriverKind, EngineCounters, Port, ShardId, Stream,
    bell::Bell,
    buffer::BufferPool,
    busy_poll,
    clock::{self, TICK},
    driver::ShardRuntime,
    gate::Gate,
    heap::allocations,
    listener::ListenerGroup,
    mesh::{PortSeed, mesh},
    slots::SlotTable,
    task::{guard_call, sleep, spawn, yield_now},
    topology,
};

/// Control messages a shard may have waiting. They are rare; a sender that finds this many is told.
const CONTROLS_MAX: usize = 1024;
/// Pause after an accept error such as descriptor shortage.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);

/// Looks at the queue of a listener, 1 ms apart, before it is closed whatever it holds.
const STOP_TURNS_MAX: u32 = 2_000;
/// Turns, 1 ms each, that connections still open at a shard's end have to notice it.
const END_TURNS_MAX: u32 = 500;

/// How to start the shards.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of shards, at least 1.
    pub shards: u16,
    /// Cores to pin to, shard i to the i-th (modulo the length); `None`: no pinning.
    pub cpus: Option<Vec<usize>>,
    /// I/O driver asked for.
    pub driver: DriverChoice,
    /// How long a shard with little to do polls for a reply over a connection it made, before it
    /// sleeps (io_uring only); zero: never.
    pub busy_poll: Duration,
    /// Prefix of the thread names.
    pub name: &'static str,
}

/// What a shard's own code gets. `R` is what it forwards, `C` what others tell it.
#[derive(Debug)]
pub struct Shard<R: 'static, C> {
    /// This shard.
    pub id: ShardId,
    /// Number of shards.
    pub count: u16,
    /// The driver in use.
    pub driver: DriverKind,
    /// Rings to the others.
    pub port: Port<R>,
    /// Deadlines of this shard's connections.
    pub deadlines: Deadlines,
    /// Read buffers.
    pub buffers: BufferPool,
    /// Work under way, for the drain.
    pub gate: Gate,
    /// Who owns what.
    pub slots: Rc<SlotTable>,
    /// All shards' counters; ours is at our id.
    pub counters: Arc<[Arc<EngineCounters>]>,
    listeners: RefCell<Vec<std::net::TcpListener>>,
    listening: Rc<RefCell<Vec<RawFd>>>,
    is_stopping: Rc<Cell<bool>>,
    accepting: Gate,
    controls: Receiver<C>,
}

/// What arrives at a shard outside its own connections.
#[derive(Debug)]
pub enum Control<R: 'static, C> {
    /// From another shard, over a ring.
    Arrival(Arrival<R>),
    /// From the control thread.
    Message(C),
}

impl<R: 'static, C: 'static> Shard<R, C> {
    /// This shard's counters.
    pub fn own_counters(&self) -> &EngineCounters {
        &self.counters[usize::from(self.id)]
    }

    /// Starts to take in arrivals and control messages. `handle` must not wait.
    pub fn take_in(&self, handle: impl Fn(Control<R, C>) + 'static) {
        let handle = Rc::new(handle);
        let for_controls = handle.clone();
        let controls = self.controls.clone();
        spawn(self.port.clone().take_in(
            move |arrival| handle(Control::Arrival(arrival)),
            move || {
                for _ in 0..32 {
                    match controls.try_recv() {
                        Ok(message) => {
                            guard_call(|| for_controls(Control::Message(message)));
                        }
                        Err(_) => return false,
                    }
                }
                true
            },
        ));
    }

    /// Starts to accept on all listeners; `handle` gets each connection, its peer and the index of
    /// its listener group. It must not wait.
    pub fn accept(&self, handle: impl Fn(Stream, SocketAddr, u8) + 'static) -> io::Result<()> {
        let handle = Rc::new(handle);
        for (index, listener) in (0u8..).zip(self.listeners.borrow_mut().drain(..)) {
            // The epoll driver wants non-blocking descriptors, io_uring blocking ones.
            listener.set_nonblocking(self.driver == DriverKind::Epoll)?;
            self.listening.borrow_mut().push(listener.as_raw_fd());
            let listener = monoio::net::TcpListener::from_std(listener)?;
            let handle = handle.clone();
            let deadlines = self.deadlines.clone();
            let counters = self.counters[usize::from(self.id)].clone();
            let is_stopping = self.is_stopping.clone();
            let pass = self.accepting.enter();
            spawn(async move {
                let _pass = pass;
                loop {
                    match listener.accept().await {
                        Ok((tcp, peer)) => {
                            counters.accepted.add(1);
                            let stream = Stream::new(tcp, &deadlines);
                            // A panic in the shard's own code costs one connection, not the loop.
                            guard_call(|| handle(stream, peer, index));
                        }
                        Err(_) if is_stopping.get() => break,
                        // The client left while it was queued: nothing is short.
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                            counters.accept_errors.add(1);
                        }
                        Err(_) => {
                            counters.accept_errors.add(1);
                            sleep(ACCEPT_BACK_OFF).await;
                        }
                    }
                }
            });
        }
        Ok(())
    }

    /// Stops accepting: first takes what the kernel has queued, so that no client sees a reset,
    /// then closes the listeners. When it returns, every accepted connection has been handled.
    pub async fn stop_accepting(&self) {
        let mut quiet_turns = 0;
        // A stream of new clients must not hold up the drain for ever.
        for _ in 0..STOP_TURNS_MAX {
            let is_pending = self.listening.borrow().iter().any(|fd| has_pending(*fd));
            quiet_turns = if is_pending { 0 } else { quiet_turns + 1 };
            if quiet_turns == 3 {
                // No pause between this look and the close: what comes in between is reset.
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.is_stopping.set(true);
        for fd in self.listening.borrow_mut().drain(..) {
            // SAFETY: plain system call; the accept task still owns this listening descriptor,
            // and only ends, closing it, because of this call.
            unsafe {
                libc::shutdown(fd, libc::SHUT_RDWR);
            }
        }
        self.accepting.close();
        self.accepting.emptied().await;
    }

    /// The less loaded of this shard and one other, drawn by `random`; this one when equal.
    pub fn less_loaded(&self, random: u64) -> ShardId {
        if self.count < 2 {
            return self.id;
        }
        // Both below the number of shards.
        let step = 1 + (random % u64::from(self.count - 1)) as u16;
        let other = (self.id + step) % self.count;
        let load = |id: ShardId| self.counters[usize::from(id)].load.value();
        if load(other) < load(self.id) {
            other
        } else {
            self.id
        }
    }
}

fn has_pending(fd: RawFd) -> bool {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry, count 1, and a zero timeout: the call does not wait.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}

/// The running shards, as the starting thread sees them.
#[derive(Debug)]
pub struct Shards<C> {
    /// The driver all shards use.
    pub driver: DriverKind,
    /// Why io_uring is not used although `Auto` was asked for.
    pub fallback_reason: Option<String>,
    /// Counters, by shard.
    pub counters: Arc<[Arc<EngineCounters>]>,
    /// Number of shards that could not be pinned.
    pub unpinned: u16,
    handles: Vec<ShardHandle<C>>,
    threads: Vec<JoinHandle<()>>,
}

/// Sends control messages to one shard, from any thread.
#[derive(Debug)]
pub struct ShardHandle<C> {
    id: ShardId,
    sender: Sender<C>,
    bells: Arc<[Bell]>,
}

impl<C> Clone for ShardHandle<C> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            sender: self.sender.clone(),
            bells: self.bells.clone(),
        }
    }
}

impl<C> ShardHandle<C> {
    /// Sends `message` and wakes the shard. Given back when the shard has ended or is so far behind
    /// that 1024 messages wait.
    pub fn post(&self, message: C) -> Result<(), C> {
        self.sender.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        })?;
        self.bells[usize::from(self.id)].ring();
        Ok(())
    }
}

impl<C> Shards<C> {
    /// A handle for each shard.
    pub fn handles(&self) -> &[ShardHandle<C>] {
        &self.handles
    }

    /// Whether every shard's thread still runs.
    pub fn is_alive(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Waits for all shards to end. The number of those that died of a panic.
    pub fn join(self) -> usize {
        self.threads
            .into_iter()
            .map(JoinHandle::join)
            .filter(Result::is_err)
            .count()
    }
}

/// Starts the shards. `main` is called on each shard's thread and its future is that shard's life.
///
/// Errors: the driver asked for cannot be built, or a thread cannot be started.
pub fn start<R, C, F, Fut>(
    plan: &Plan,
    listeners: Vec<ListenerGroup>,
    main: F,
) -> io::Result<Shards<C>>
where
    R: Send + 'static,
    C: Send + 'static,
    F: Fn(Shard<R, C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()>,
{
    let count = plan.shards.max(1);
    let counters: Arc<[Arc<EngineCounters>]> = (0..count)
        .map(|_| Arc::new(EngineCounters::default()))
        .collect();
    let (seeds, bells) = mesh::<R>(count);
    let mut by_shard: Vec<Vec<std::net::TcpListener>> = (0..count).map(|_| Vec::new()).collect();
    for group in listeners {
        for (shard, socket) in by_shard.iter_mut().zip(group.sockets) {
            shard.push(socket);
        }
    }
    let ladder = Arc::new(Ladder::new(count, plan.driver));
    let main = Arc::new(main);
    let (reports, outcomes) = bounded(usize::from(count));
    let mut threads = Vec::new();
    let mut handles = Vec::new();
    for ((id, seed), listeners) in (0..count).zip(seeds).zip(by_shard) {
        let (sender, controls) = bounded(CONTROLS_MAX);
        handles.push(ShardHandle {
            id,
            sender,
            bells: bells.clone(),
        });
        let birth = Birth {
            busy_poll: plan.busy_poll,
            id,
            count,
            seed,
            listeners,
            controls,
            counters: counters.clone(),
            cpu: plan
                .cpus
                .as_ref()
                .filter(|cpus| !cpus.is_empty())
                .map(|cpus| cpus[usize::from(id) % cpus.len()]),
        };
        let (main, ladder, reports) = (main.clone(), ladder.clone(), reports.clone());
        threads.push(
            std::thread::Builder::new()
                .name(format!("{}-{id}", plan.name))
                .spawn(move || birth.live(&ladder, &reports, &*main))?,
        );
    }
    drop(reports);
    let mut unpinned = 0;
    let mut driver = DriverKind::Epoll;
    for _ in 0..count {
        match outcomes.recv() {
            Ok(Ok((kind, is_pinned))) => {
                driver = kind;
                unpinned += u16::from(!is_pinned);
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(io::Error::other("a shard ended while it started")),
        }
    }
    let fallback_reason = ladder.reason();
    Ok(Shards {
        driver,
        fallback_reason,
        counters,
        unpinned,
        handles,
        threads,
    })
}

/// How all shards agree on one driver: each builds its ring, then all look at the verdict.
struct Ladder {
    choice: DriverChoice,
    barrier: Barrier,
    failure: Mutex<Option<(io::ErrorKind, String)>>,
}

impl Ladder {
    fn new(count: u16, choice: DriverChoice) -> Self {
        Self {
            choice,
            barrier: Barrier::new(usize::from(count)),
            failure: Mutex::new(None),
        }
    }

    fn reason(&self) -> Option<String> {
        let failure = self
            .failure
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.as_ref().map(|(_, text)| text.clone())
    }

    fn build(&self) -> io::Result<(DriverKind, ShardRuntime)> {
        let first = match self.choice {
            DriverChoice::Epoll => None,
            DriverChoice::Auto | DriverChoice::IoUring => {
                Some(ShardRuntime::build(DriverKind::IoUring))
            }
        };
        if let Some(Err(error)) = &first {
            let mut failure = self
                .failure
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            failure.get_or_insert((
                error.kind(),
                format!("io_uring is not usable here: {error}"),
            ));
        }
        self.barrier.wait();
        match (first, self.reason()) {
            (Some(Ok(runtime)), None) => Ok((DriverKind::IoUring, runtime)),
            (Some(_), Some(reason)) if self.choice == DriverChoice::IoUring => {
                Err(io::Error::other(reason))
            }
            _ => Ok((DriverKind::Epoll, ShardRuntime::build(DriverKind::Epoll)?)),
        }
    }
}

struct Birth<R, C> {
    id: ShardId,
    count: u16,
    seed: PortSeed<R>,
    listeners: Vec<std::net::TcpListener>,
    controls: Receiver<C>,
    counters: Arc<[Arc<EngineCounters>]>,
    cpu: Option<usize>,
    busy_poll: Duration,
}

impl<R: Send + 'static, C: Send + 'static> Birth<R, C> {
    fn live<F, Fut>(
        self,
        ladder: &Ladder,
        reports: &Sender<io::Result<(DriverKind, bool)>>,
        main: &F,
    ) where
        F: Fn(Shard<R, C>) -> Fut,
        Fut: Future<Output = ()>,
    {
        let is_pinned = self.cpu.is_none_or(topology::pin);
        if let Some(thread) = topology::own_thread() {
            self.counters[usize::from(self.id)].thread.add(thread);
        }
        let (driver, mut runtime) = match ladder.build() {
            Ok(built) => built,
            Err(error) => {
                let _ = reports.send(Err(error));
                return;
            }
        };
        let outcome = runtime.block_on(async {
            let own = self.counters[usize::from(self.id)].clone();
            let buffers = BufferPool::default();
            let port = self.seed.plant(own.clone(), buffers.clone());
            let deadlines = Deadlines::new(own.clone());
            let ticking = deadlines.clone();
            let has_ended = Rc::new(Cell::new(false));
            let is_last_tick = has_ended.clone();
            clock::tick();
            spawn(async move {
                while !is_last_tick.get() {
                    sleep(TICK).await;
                    ticking.pass(clock::tick());
                    let counted = own.allocations.value();
                    own.allocations.add(allocations().wrapping_sub(counted));
                }
            });
            if driver == DriverKind::IoUring && !self.busy_poll.is_zero() {
                spawn(busy_poll::keep_awake(self.busy_poll));
            }
            spawn(port.clone().ring_bells());
            let (open, inbox) = (deadlines.clone(), port.clone());
            let shard = Shard {
                id: self.id,
                count: self.count,
                driver,
                port,
                deadlines,
                buffers,
                gate: Gate::default(),
                slots: Rc::new(SlotTable::new(self.count)),
                counters: self.counters,
                listeners: RefCell::new(self.listeners),
                listening: Rc::default(),
                is_stopping: Rc::default(),
                accepting: Gate::default(),
                controls: self.controls,
            };
            let _ = reports.send(Ok((driver, is_pinned)));
            let outcome = AssertUnwindSafe(main(shard)).catch_unwind().await;
            // A socket must not be dropped outside its runtime, so the tasks that hold one end now.
            open.end_all();
            for _ in 0..END_TURNS_MAX {
                if open.open_count() == 0 {
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
            has_ended.set(true);
            inbox.end();
            yield_now().await;
            outcome
        });
        drop(runtime);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }
}
