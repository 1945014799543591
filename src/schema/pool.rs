//! Checking off the shards: a few threads for values that are large, or whose cost nobody can
//! tell; small ones are checked where they are.
//!
//! The queue is bounded and so is the wait. What panics in a check fails that check alone.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use tokio::sync::oneshot;

/// Steps, as [`super::Schema::cost`] counts them, up to which a check stays on its shard: some
/// hundred microseconds at the most.
pub const INLINE_STEPS_MAX: usize = 1 << 18;
/// How long a shard waits for a check.
const PATIENCE: Duration = Duration::from_secs(5);
/// Schemas that contain themselves are checked by recursion.
const STACK_BYTES: usize = 8 << 20;

/// Why a check has no outcome (dual-profile.md 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolFault {
    /// Too many checks are waiting, or this one took too long.
    #[error("Schema validation capacity is temporarily exhausted")]
    Exhausted,
    /// The check itself failed.
    #[error("Schema validation failed safely")]
    Failed,
}

/// A check's outcome and the time it took.
#[derive(Debug)]
pub struct Timed<T> {
    /// What it found.
    pub outcome: T,
    /// How long it took.
    pub took: Duration,
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads. They start with the first check that needs them, and end with the pool.
#[derive(Debug)]
pub struct Pool {
    jobs: Sender<Job>,
    waiting: Receiver<Job>,
    threads: AtomicUsize,
    threads_max: usize,
}

impl Pool {
    /// A pool with so many places in the queue, and of up to as many threads, but not more than
    /// there are cores; none has started (`maxConcurrentValidations`).
    #[must_use]
    pub fn new(validations_max: usize) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with(cores.min(validations_max), validations_max)
    }

    /// A pool of this many threads and places in the queue.
    #[must_use]
    pub fn with(threads_max: usize, waiting_max: usize) -> Arc<Self> {
        let (jobs, waiting) = bounded(waiting_max);
        Arc::new(Self {
            jobs,
            waiting,
            threads: AtomicUsize::new(0),
            threads_max,
        })
    }

    /// Runs `check` on a thread of the pool.
    ///
    /// # Errors
    /// When the queue is full, the check is too late, or it panics.
    pub async fn run<T: Send + 'static>(
        &self,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Timed<T>, PoolFault> {
        let receiver = self.submit(check)?;
        match shards::task::within(PATIENCE, receiver).await {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(PoolFault::Failed),
            None => Err(PoolFault::Exhausted),
        }
    }

    /// Puts `check` into the queue; its outcome comes over the channel.
    fn submit<T: Send + 'static>(
        &self,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<Timed<T>, PoolFault>>, PoolFault> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Nobody waits any more when the receiver is gone.
            let _ = sender.send(timed(check));
        });
        match self.jobs.try_send(job) {
            Ok(()) => {
                self.start_thread();
                Ok(receiver)
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(PoolFault::Exhausted),
        }
    }

    /// Starts one more thread, unless there are enough.
    fn start_thread(&self) {
        let count = self.threads.load(Ordering::Relaxed);
        let is_ours = count < self.threads_max
            && self
                .threads
                .compare_exchange(count, count + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_ours {
            return;
        }
        let waiting = self.waiting.clone();
        let started = std::thread::Builder::new()
            .name(format!("schema-{count}"))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // Ends when the pool has gone, and with it the last sender.
                while let Ok(job) = waiting.recv() {
                    job();
                }
            });
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Runs a check here.
///
/// # Errors
/// When it panics.
pub fn timed<T>(check: impl FnOnce() -> T) -> Result<Timed<T>, PoolFault> {
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(check)).map_err(|_| PoolFault::Failed)?;
    Ok(Timed {
        outcome,
        took: started.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_queue_is_bounded_and_drains() {
        let pool = Pool::with(1, 1);
        let (started, has_started) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let running = pool.submit(move || {
            started.send(()).unwrap();
            may_go_on.recv().unwrap();
            1
        });
        has_started.recv().unwrap();
        let waiting = pool.submit(|| 2);
        assert_eq!(pool.submit(|| 3).unwrap_err(), PoolFault::Exhausted);
        go_on.send(()).unwrap();
        for (receiver, expected) in [(running, 1), (waiting, 2)] {
            let timed = receiver.unwrap().blocking_recv().unwrap().unwrap();
            assert_eq!(timed.outcome, expected);
        }
        let timed = pool.submit(|| 4).unwrap().blocking_recv().unwrap();
        assert_eq!(timed.unwrap().outcome, 4);
        assert_eq!(pool.threads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_check_that_panics_fails_alone() {
        let pool = Pool::with(1, 4);
        let failed = pool.submit(|| -> u8 { panic!("of a test") }).unwrap();
        let sound = pool.submit(|| 1).unwrap();
        assert_eq!(
            failed.blocking_recv().unwrap().unwrap_err(),
            PoolFault::Failed
        );
        assert_eq!(sound.blocking_recv().unwrap().unwrap().outcome, 1);
        assert_eq!(
            timed(|| -> u8 { panic!("of a test") }).unwrap_err(),
            PoolFault::Failed
        );
    }
}
