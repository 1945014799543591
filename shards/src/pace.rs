//! How busy this shard's connections are, which decides how their I/O is done under io_uring.
//!
//! A system call of its own has a small operation done at once, where the ring takes two more turns
//! of the runtime: that is what a call waits for when little is going on. When much is, the ring
//! takes many operations in one system call, and the other end is woken once for many.

use std::cell::Cell;

/// Operations in one tick of the clock from which on a shard is busy: as many as 13,000 calls a
/// second have, of which each reads a request and writes twice.
const BUSY_OPERATIONS: u32 = 800;

thread_local! {
    /// Operations since the last tick, and whether the tick before had many.
    static PACE: Cell<(u32, bool)> = const { Cell::new((0, false)) };
}

/// Counts an operation; true: it is to be tried with a system call of its own.
pub(crate) fn is_eager() -> bool {
    let (count, is_busy) = PACE.get();
    PACE.set((count.saturating_add(1), is_busy));
    !is_busy && count < BUSY_OPERATIONS
}

/// Whether there has been little to do of late.
pub(crate) fn is_idle() -> bool {
    let (count, is_busy) = PACE.get();
    !is_busy && count < BUSY_OPERATIONS
}

/// A tick of the clock has passed.
pub(crate) fn tick() {
    let (count, _) = PACE.get();
    PACE.set((0, count >= BUSY_OPERATIONS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_operations_of_a_tick_leave_the_next_one_to_the_ring() {
        tick();
        tick();
        let eager = |count: u32| (0..count).filter(|_| is_eager()).count();
        assert_eq!(eager(BUSY_OPERATIONS - 1), 799);
        tick();
        assert_eq!(
            eager(BUSY_OPERATIONS + 5),
            800,
            "the rest of a busy tick is not"
        );
        tick();
        assert_eq!(eager(10), 0);
        tick();
        assert_eq!(eager(10), 10);
    }
}
