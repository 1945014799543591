//! Tasks of a shard. Every task is guarded: a panic ends that task and nothing else (rule D13).

use std::{
    cell::Cell,
    future::Future,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::FutureExt;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Number of tasks of this process that ended by a panic since it started.
pub fn panic_count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs `future` as a task of this shard. A panic in it is caught, counted and reported by the
/// panic hook; its destructors run, so whoever waits for it sees it gone.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    drop(monoio::spawn(guard(future)));
}

/// Runs `future` to its end; `None` when it panicked. Not an `async fn`, which would hold the
/// future twice: as its argument and while it waits.
pub fn guard<T>(future: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    AssertUnwindSafe(future).catch_unwind().map(counted)
}

/// Runs `call`; `None` when it panicked.
pub(crate) fn guard_call<T>(call: impl FnOnce() -> T) -> Option<T> {
    counted(std::panic::catch_unwind(AssertUnwindSafe(call)))
}

fn counted<T>(outcome: std::thread::Result<T>) -> Option<T> {
    if outcome.is_err() {
        PANICS.fetch_add(1, Ordering::Relaxed);
    }
    outcome.ok()
}

/// Waits for `duration` (resolution 1 ms). For rare, short waits; deadlines of connections go
/// through [`crate::deadline`].
///
/// The timer is boxed: it has 640 bytes, aligned to 128, and whatever may wait for one, each
/// connection at each of its operations, would be that much larger all the time.
pub fn sleep(duration: Duration) -> impl Future<Output = ()> {
    Box::pin(monoio::time::sleep(duration))
}

/// Turns in a row that may end with more work queued. While any is, the runtime looks neither at
/// its timers nor (io_uring) at wake-ups from other threads, so after that many it must run dry.
pub(crate) const BUSY_TURNS_MAX: u32 = 64;
/// How long a busy task steps back to let the runtime run dry: its timers' resolution.
pub(crate) const STEP_BACK: Duration = Duration::from_millis(1);

/// Lets every other ready task run once. (A self-wake would put this task at the queue's front.)
/// Every 64th call of a shard waits 1 ms, so that tasks that yield in a loop hold up no timer and
/// no message.
pub async fn yield_now() {
    thread_local! {
        static TURNS: Cell<u32> = const { Cell::new(0) };
    }
    let turns = TURNS.get() + 1;
    TURNS.set(turns % BUSY_TURNS_MAX);
    if turns == BUSY_TURNS_MAX {
        sleep(STEP_BACK).await;
    } else {
        next_turn().await;
    }
}

/// Lets every other ready task run once and the driver take in what is complete, and never waits.
/// For a task that polls because a sleep would be too coarse. While it does, the shard has no
/// timers (see [`yield_now`]): it has to wait for something now and then.
pub async fn next_turn() {
    monoio::spawn(async {}).await;
}

/// Runs `future` for at most `limit`; `None` when the time ran out first, and the future is
/// dropped. Only for futures that own no socket operation (rule D3).
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let future = std::pin::pin!(future);
    match futures_util::future::select(future, sleep(limit)).await {
        futures_util::future::Either::Left((value, _)) => Some(value),
        futures_util::future::Either::Right(_) => None,
    }
}
