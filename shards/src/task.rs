//! Tasks of a shard. Every task is guarded: a panic ends that task and nothing else (rule D13).

use std::{
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

/// Runs `future` to its end; `None` when it panicked.
pub async fn guard<T>(future: impl Future<Output = T>) -> Option<T> {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(value) => Some(value),
        Err(_) => {
            PANICS.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

/// Waits for `duration` (resolution 1 ms). For rare, short waits; deadlines of connections go
/// through [`crate::deadline`].
pub async fn sleep(duration: Duration) {
    monoio::time::sleep(duration).await;
}

/// Lets every other ready task run once. (A self-wake would put this task at the queue's front.)
pub async fn yield_now() {
    monoio::spawn(async {}).await;
}

/// Runs `future` for at most `limit`; `None` when the time ran out first, and the future is
/// dropped. Only for futures that own no socket operation (rule D3).
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let future = std::pin::pin!(future);
    let timer = std::pin::pin!(monoio::time::sleep(limit));
    match futures_util::future::select(future, timer).await {
        futures_util::future::Either::Left((value, _)) => Some(value),
        futures_util::future::Either::Right(_) => None,
    }
}
