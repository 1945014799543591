//! Time as a shard sees it: exact when asked, or as of the last tick, which costs a load.
//!
//! Reading the clock costs a few dozen nanoseconds and a request would do it a dozen times, for
//! limits that are seconds long. A shard reads it once a tick instead.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How often a shard reads the clock and looks at its deadlines.
pub const TICK: Duration = Duration::from_millis(20);

thread_local! {
    /// This shard's monotonic milliseconds and Unix seconds at its last tick; 0: it does not tick.
    static LAST: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Milliseconds since the first call in this process, monotonic.
pub fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // The first reading is 1: 0 is for "never".
    let elapsed = START.get_or_init(Instant::now).elapsed().as_millis();
    u64::try_from(elapsed).unwrap_or(u64::MAX - 1) + 1
}

/// How far [`unix_s`] is from the system's wall clock, seconds.
static SHIFT_S: AtomicI64 = AtomicI64::new(0);

/// Seconds since 1970, wall clock. It may jump either way: what lasts is measured by [`now_ms`].
pub fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
        .saturating_add_signed(SHIFT_S.load(Ordering::Relaxed))
}

/// Moves [`unix_s`] of this whole process to `by_s` seconds after the system's wall clock, or
/// before it. For tests of clocks that jump; shards see it with their next tick.
pub fn shift_wall(by_s: i64) {
    SHIFT_S.store(by_s, Ordering::Relaxed);
}

/// Milliseconds since 1970, wall clock: for what is shown or compared with others' clocks.
pub fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

/// [`now_ms`] as of this shard's last tick; on other threads the exact time.
pub fn coarse_ms() -> u64 {
    match LAST.get() {
        (0, _) => now_ms(),
        (now_ms, _) => now_ms,
    }
}

/// [`unix_s`] as of this shard's last tick; on other threads the exact time.
pub fn coarse_unix_s() -> u64 {
    match LAST.get() {
        (0, _) => unix_s(),
        (_, unix_s) => unix_s,
    }
}

/// Reads the clock for this shard; the monotonic time.
pub(crate) fn tick() -> u64 {
    let now = now_ms();
    LAST.set((now, unix_s()));
    crate::pace::tick();
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_time_is_the_last_tick_s() {
        assert!(coarse_ms() >= 1);
        let ticked = tick();
        assert_eq!(coarse_ms(), ticked);
        let seconds = coarse_unix_s();
        while now_ms() == ticked {
            std::hint::spin_loop();
        }
        assert_eq!((coarse_ms(), coarse_unix_s()), (ticked, seconds));
        assert!(tick() > ticked);
    }

    #[test]
    fn other_threads_get_the_exact_time() {
        let first = coarse_ms();
        while coarse_ms() == first {
            std::hint::spin_loop();
        }
    }
}
