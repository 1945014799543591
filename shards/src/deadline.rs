//! Deadlines of connections: a table the shard walks every [`TICK`], not a
//! runtime timer each.
//!
//! When a deadline passes the socket is shut down, so that the pending operation ends by itself:
//! no operation the kernel owns is ever dropped for a time limit (rule D3). Arming costs one store.

use std::{
    cell::{Cell, RefCell},
    os::fd::RawFd,
    rc::Rc,
    time::Duration,
};

use crate::{
    clock::{TICK, coarse_ms},
    counters::EngineCounters,
};

pub use crate::clock::now_ms;

const NEVER: u64 = u64::MAX;
/// The descriptor of a free place in the table.
const GONE: RawFd = -1;

#[derive(Debug, Clone, Copy)]
struct Entry {
    fd: RawFd,
    at_ms: u64,
    /// Waits for nothing but a next request: a drain may end it at once.
    is_idle: bool,
    has_passed: bool,
    /// Counts the sockets that had this place, so that a [`Cutter`] knows its own.
    generation: u32,
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
        let mut entry = Entry {
            fd,
            at_ms: NEVER,
            is_idle: false,
            has_passed: false,
            generation: 0,
        };
        let mut entries = self.inner.entries.borrow_mut();
        let index = if let Some(index) = self.inner.free.borrow_mut().pop() {
            entry.generation = entries[index as usize].generation.wrapping_add(1);
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

    /// Shuts down every connection, idle or not.
    pub(crate) fn end_all(&self) {
        for entry in self.inner.entries.borrow().iter() {
            if entry.fd != GONE {
                shut_down(entry.fd);
            }
        }
    }

    /// Connections in the table now.
    pub fn open_count(&self) -> usize {
        self.inner.entries.borrow().len() - self.inner.free.borrow().len()
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
        // The clock is as of the last tick, and rounded down: so that no limit is cut short.
        let slack_ms = TICK.as_millis() as u64 + 1;
        let at_ms = coarse_ms()
            .saturating_add(limit_ms)
            .saturating_add(slack_ms);
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

    /// Voids all cutters made so far: the connection is about to serve somebody else.
    pub fn renew(&self) {
        self.update(|entry| entry.generation = entry.generation.wrapping_add(1));
    }

    /// Lets somebody else end the connection, until it is gone or [`Deadline::renew`] is called.
    pub fn cutter(&self) -> Cutter {
        let entries = self.table.inner.entries.borrow();
        Cutter {
            table: self.table.clone(),
            index: self.index,
            generation: entries[self.index as usize].generation,
        }
    }

    /// Shuts the socket down now: pending operations end at once.
    pub fn shut_down(&self) {
        shut_down(self.table.inner.entries.borrow()[self.index as usize].fd);
    }
}

/// Ends one connection from elsewhere in its shard, as its deadline would. Does nothing once the
/// connection is gone or renewed, even when another one has its place.
#[derive(Debug)]
pub struct Cutter {
    table: Deadlines,
    index: u32,
    generation: u32,
}

impl Cutter {
    /// Shuts the connection down: its pending operations end by themselves.
    pub fn cut(&self) {
        let mut entries = self.table.inner.entries.borrow_mut();
        let entry = &mut entries[self.index as usize];
        if entry.generation == self.generation && entry.fd != GONE {
            entry.has_passed = true;
            shut_down(entry.fd);
        }
    }

    /// Whether the connection is still there.
    pub fn is_live(&self) -> bool {
        let entry = self.table.inner.entries.borrow()[self.index as usize];
        entry.generation == self.generation && entry.fd != GONE
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.update(|entry| (entry.fd, entry.at_ms, entry.is_idle) = (GONE, NEVER, false));
        self.table.inner.free.borrow_mut().push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{ErrorKind, Read, Write},
        os::{fd::AsRawFd, unix::net::UnixStream},
        sync::Arc,
    };

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A table, and sockets with a place in it.
    fn table() -> (Deadlines, Arc<EngineCounters>) {
        let counters = Arc::new(EngineCounters::default());
        (Deadlines::new(counters.clone()), counters)
    }

    struct Socket {
        deadline: Deadline,
        _ours: UnixStream,
        theirs: UnixStream,
    }

    impl Socket {
        fn open(table: &Deadlines) -> Self {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            Self {
                deadline: table.register(ours.as_raw_fd()),
                _ours: ours,
                theirs,
            }
        }

        fn is_shut_down(&mut self) -> bool {
            match self.theirs.read(&mut [0]) {
                Ok(0) => {
                    assert!(self.theirs.write(b"x").is_err());
                    true
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn only_what_is_late_is_shut_down_and_it_is_counted() {
        let (table, counters) = table();
        let [mut late, mut early, mut unarmed, mut disarmed] =
            std::array::from_fn(|_| Socket::open(&table));
        let now = now_ms();
        late.deadline.arm(HOUR);
        early.deadline.arm(HOUR * 3);
        disarmed.deadline.arm(HOUR);
        disarmed.deadline.disarm();
        table.pass(now + 3_600_000);
        assert!(!late.is_shut_down(), "a limit is never cut short");
        table.pass(now + 2 * 3_600_000);
        assert!(late.is_shut_down() && late.deadline.has_passed());
        for other in [&mut early, &mut unarmed, &mut disarmed] {
            assert!(!other.is_shut_down() && !other.deadline.has_passed());
        }
        table.pass(now + 2 * 3_600_000);
        assert_eq!(counters.deadlines_passed.value(), 1, "it passes once");
    }

    #[test]
    fn a_cutter_ends_its_own_connection_and_no_other() {
        let (table, _) = table();
        let mut first = Socket::open(&table);
        let cutter = first.deadline.cutter();
        assert!(cutter.is_live());
        cutter.cut();
        assert!(first.is_shut_down() && first.deadline.has_passed());
        first.deadline.renew();
        assert!(!cutter.is_live());
        let cutter = first.deadline.cutter();
        drop(first);
        assert!(!cutter.is_live());
        let mut second = Socket::open(&table);
        assert_eq!(
            second.deadline.index, cutter.index,
            "the place is taken again"
        );
        cutter.cut();
        assert!(!second.is_shut_down() && !second.deadline.has_passed() && !cutter.is_live());
    }

    #[test]
    fn arming_again_moves_the_limit() {
        let (table, _) = table();
        let mut socket = Socket::open(&table);
        let now = now_ms();
        socket.deadline.arm(HOUR);
        socket.deadline.arm(HOUR * 3);
        table.pass(now + 2 * 3_600_000);
        assert!(!socket.is_shut_down());
        socket.deadline.arm(Duration::MAX);
        table.pass(u64::MAX - 1);
        assert!(!socket.is_shut_down());
    }

    #[test]
    fn a_drain_ends_the_idle_now_and_later() {
        let (table, _) = table();
        let [mut idle, mut busy, mut was_idle] = std::array::from_fn(|_| Socket::open(&table));
        idle.deadline.arm_idle(HOUR);
        busy.deadline.arm(HOUR);
        was_idle.deadline.arm_idle(HOUR);
        was_idle.deadline.arm(HOUR);
        table.end_idle();
        assert!(idle.is_shut_down() && idle.deadline.has_passed());
        assert!(!busy.is_shut_down() && !was_idle.is_shut_down());
        busy.deadline.arm_idle(HOUR);
        assert!(busy.is_shut_down());
        assert!(!was_idle.is_shut_down());
    }

    #[test]
    fn a_place_is_used_again_and_knows_nothing_of_its_last_socket() {
        let (table, _) = table();
        let late = Socket::open(&table);
        late.deadline.arm_idle(Duration::ZERO);
        table.pass(now_ms() + 2 * TICK.as_millis() as u64);
        assert!(late.deadline.has_passed());
        let place = late.deadline.index;
        drop(late);
        assert_eq!(table.open_count(), 0);
        let mut next = Socket::open(&table);
        assert_eq!(next.deadline.index, place);
        assert_eq!(table.open_count(), 1);
        assert!(!next.deadline.has_passed());
        table.end_idle();
        table.pass(u64::MAX - 1);
        assert!(!next.is_shut_down());
    }

    #[test]
    fn a_dropped_deadline_touches_no_descriptor_that_took_its_number() {
        let (table, _) = table();
        let mut socket = Socket::open(&table);
        socket.deadline.arm(Duration::ZERO);
        // The descriptor stays open while its place is given up: as if the number were taken.
        let Socket { deadline, .. } = &mut socket;
        drop(std::mem::replace(deadline, table.register(GONE)));
        table.pass(u64::MAX - 1);
        table.end_all();
        assert!(!socket.is_shut_down());
    }

    #[test]
    fn the_end_of_the_shard_ends_them_all() {
        let (table, _) = table();
        let mut sockets: Vec<Socket> = (0..5).map(|_| Socket::open(&table)).collect();
        let gone = sockets.remove(2);
        drop(gone);
        table.end_all();
        assert!(sockets.iter_mut().all(Socket::is_shut_down));
        assert_eq!(table.open_count(), 4);
    }
}
