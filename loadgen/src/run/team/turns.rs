//! Whose turn it is: the next call of a closed loop or of a schedule.

use std::{future::poll_fn, sync::atomic::Ordering, task::Poll, time::Duration};

use super::Team;
use crate::run::pace::NOT_WAITING;

/// Time that late calls have after the end of a schedule, at the least.
const GRACE_MIN: Duration = Duration::from_secs(1);

/// A call that is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(super) intended: Duration,
    /// Since when a worker was free to make it.
    pub(super) free_at: Duration,
}

impl Team {
    /// End of the clock, warm-up included.
    pub(super) fn end(&self) -> Option<Duration> {
        let options = &self.common.options;
        options.length().map(|length| options.warm_up + length)
    }

    /// Waits for the next call's turn; `None` when there are no more.
    pub(in crate::run) async fn next_call(&self) -> Option<Turn> {
        self.started_at.get()?;
        if self.is_stopped.get() || self.taken.get() >= self.calls_max {
            return None;
        }
        let free_at = self.elapsed();
        let end = self.end();
        let Some(schedule) = &self.schedule else {
            if end.is_some_and(|end| free_at >= end) {
                return None;
            }
            self.taken.set(self.taken.get() + 1);
            return Some(Turn {
                intended: free_at,
                free_at,
            });
        };
        let due = schedule.borrow_mut().take()?;
        self.taken.set(self.taken.get() + 1);
        self.wait_until(due).await;
        let now = self.elapsed();
        if self.is_stopped.get() {
            // What was not due when the run was stopped was never to be sent.
            if due <= now {
                self.give_up(due);
            }
            return None;
        }
        if end.is_some_and(|end| now > end + self.grace()) {
            self.give_up(due);
            while let Some(due) = schedule.borrow_mut().take() {
                self.give_up(due);
            }
            return None;
        }
        Some(Turn {
            intended: due,
            free_at,
        })
    }

    /// Past its end a schedule is worked off for as long again, but no longer than one exchange
    /// may take; then the rest of it is given up.
    fn grace(&self) -> Duration {
        let length = self.common.options.length().unwrap_or_default();
        self.common.options.limit.min(length.max(GRACE_MIN))
    }

    fn give_up(&self, due: Duration) {
        let form = self.common.script.mix.draw(&mut self.random.borrow_mut());
        let slot = self.slots[form];
        self.tally.borrow_mut().recorder.unsent(slot, due);
    }

    async fn wait_until(&self, due: Duration) {
        let mut is_queued = false;
        poll_fn(|context| {
            if self.is_stopped.get() || self.elapsed() >= due {
                return Poll::Ready(());
            }
            if !is_queued {
                is_queued = true;
                let mut waiting = self.waiting.borrow_mut();
                // Calls are given out in order, so the queue is in order.
                waiting.push_back((due, context.waker().clone()));
                if waiting.len() == 1 {
                    self.publish_due(Some(due));
                }
            }
            Poll::Pending
        })
        .await;
    }

    pub(super) fn wake_due(&self) {
        let now = self.elapsed();
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, waker)) = waiting.pop_front() {
                waker.wake();
            }
        }
        self.publish_due(waiting.front().map(|(due, _)| *due));
    }

    fn publish_due(&self, due: Option<Duration>) {
        let due_ns = due.map_or(NOT_WAITING, |due| due.as_nanos() as u64);
        self.common.due[usize::from(self.shard.id)]
            .0
            .store(due_ns, Ordering::Release);
    }
}
