//! Deadlines of connections: a table the shard walks every [`TICK`], not a runtime timer each.
//!
//! When a deadline passes the socket is shut down, so that the pending operation ends by itself:
//! no operation the kernel owns is ever dropped for a time limit (rule D3). Arming costs one store.

use std::{
    cell::{Cell, RefCell},
    os::fd::RawFd,
    rc::Rc,
    sync::OnceLock,
    time::{Duration, Instant},
};

use crate::counters::EngineCounters;

/// How often a shard looks at its deadlines: they end late by at most this.
pub const TICK: Duration = Duration::from_millis(20);

const NEVER: u64 = u64::MAX;

/// Milliseconds since the first call in this process, monotonic.
pub fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(NEVER)
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    fd: RawFd,
    at_ms: u64,
    /// Waits for nothing but a next request: a drain may end it at once.
    is_idle: bool,
    has_passed: bool,
}

/// The deadlines of one shard. Cheap to clone: all clones are the same table.
#[derive(Debug, Clone)]
pub struct Deadlines {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: RefCell<Vec<Entry>>,
    free: RefCell<Vec<u32>>,
    is_draining: Cell<bool>,
    counters: std::sync::Arc<EngineCounters>,
}

impl Deadlines {
    pub(crate) fn new(counters: std::sync::Arc<EngineCounters>) -> Self {
        Self {
            inner: Rc::new(Inner {
                entries: RefCell::default(),
                free: RefCell::default(),
                is_draining: Cell::new(false),
                counters,
            }),
        }
    }

    /// A place in the table for the socket `fd`, unarmed. It must not outlive the descriptor.
    pub(crate) fn register(&self, fd: RawFd) -> Deadline {
        let entry = Entry {
            fd,
            at_ms: NEVER,
            is_idle: false,
            has_passed: false,
        };
        let mut entries = self.inner.entries.borrow_mut();
        let index = if let Some(index) = self.inner.free.borrow_mut().pop() {
            entries[index as usize] = entry;
            index
        } else {
            entries.push(entry);
            u32::try_from(entries.len() - 1).unwrap_or(u32::MAX)
        };
        Deadline {
            table: self.clone(),
            index,
        }
    }

    /// Ends every connection that is idle, now and from now on.
    pub fn end_idle(&self) {
        self.inner.is_draining.set(true);
        self.pass(now_ms());
    }

    /// Shuts down every socket whose deadline is at or before `now_ms`.
    pub(crate) fn pass(&self, now_ms: u64) {
        let is_draining = self.inner.is_draining.get();
        for entry in self.inner.entries.borrow_mut().iter_mut() {
            if entry.at_ms <= now_ms || (is_draining && entry.is_idle) {
                entry.at_ms = NEVER;
                entry.is_idle = false;
                entry.has_passed = true;
                self.inner.counters.deadlines_passed.add(1);
                shut_down(entry.fd);
            }
        }
    }
}

fn shut_down(fd: RawFd) {
    // SAFETY: plain system call on a number; `Deadline` is dropped before the descriptor closes,
    // so `fd` is the socket it was registered for.
    unsafe {
        libc::shutdown(fd, libc::SHUT_RDWR);
    }
}

/// One connection's deadline. Dropping it leaves the table.
#[derive(Debug)]
pub struct Deadline {
    table: Deadlines,
    index: u32,
}

impl Deadline {
    fn update(&self, change: impl FnOnce(&mut Entry)) {
        change(&mut self.table.inner.entries.borrow_mut()[self.index as usize]);
    }

    /// The connection is shut down unless this is called again, or `disarm`, within `limit`.
    pub fn arm(&self, limit: Duration) {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(NEVER);
        let at_ms = now_ms().saturating_add(limit_ms);
        self.update(|entry| (entry.at_ms, entry.is_idle) = (at_ms, false));
    }

    /// As `arm`, and says that the connection waits for nothing but a next request.
    pub fn arm_idle(&self, limit: Duration) {
        self.arm(limit);
        self.update(|entry| entry.is_idle = true);
        if self.table.inner.is_draining.get() {
            self.table.pass(0);
        }
    }

    /// No limit until the next `arm`.
    pub fn disarm(&self) {
        self.update(|entry| (entry.at_ms, entry.is_idle) = (NEVER, false));
    }

    /// Whether the deadline passed, and the socket was shut down for it.
    pub fn has_passed(&self) -> bool {
        self.table.inner.entries.borrow()[self.index as usize].has_passed
    }

    /// Shuts the socket down now: pending operations end at once.
    pub fn shut_down(&self) {
        shut_down(self.table.inner.entries.borrow()[self.index as usize].fd);
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.disarm();
        self.table.inner.free.borrow_mut().push(self.index);
    }
}
