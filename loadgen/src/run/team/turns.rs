//! Whose turn it is: the next call of a closed loop or of a schedule.

use std::{
    cell::RefCell,
    future::poll_fn,
    sync::atomic::Ordering,
    task::{Poll, Waker},
    time::Duration,
};

use super::Team;
use crate::{
    arrivals::Schedule,
    run::{pace::NOT_WAITING, watch::WATCH_AHEAD},
};

/// Time that late calls have after the end of a schedule, at the least.
const GRACE_MIN: Duration = Duration::from_secs(1);

/// A call that is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(super) intended: Duration,
    /// Since when a worker was free to make it.
    pub(super) free_at: Duration,
}

/// A worker that is free, and no call is due.
pub(super) struct Waiter {
    ticket: u64,
    free_at: Duration,
    waker: Waker,
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
        if let Some(schedule) = &self.schedule {
            return self.next_due(schedule, free_at).await;
        }
        if self.end().is_some_and(|end| free_at >= end) {
            return None;
        }
        self.taken.set(self.taken.get() + 1);
        Some(Turn {
            intended: free_at,
            free_at,
        })
    }

    /// Waits until a call is due. Whoever is free takes the earliest: a worker that has just read
    /// its reply before one that first has to be woken, so that no call waits behind replies.
    async fn next_due(&self, schedule: &RefCell<Schedule>, free_at: Duration) -> Option<Turn> {
        let mut ticket = None;
        poll_fn(|context| {
            let now = self.elapsed();
            let is_full = self.taken.get() >= self.calls_max;
            let next = schedule.borrow().peek().filter(|_| !is_full);
            let Some(due) = next else {
                self.dismiss_all();
                return Poll::Ready(None);
            };
            if self.is_stopped.get() {
                // What was not due when the run was stopped was never to be sent.
                self.give_up(schedule, |due| due <= now);
                return Poll::Ready(None);
            }
            if due > now {
                if ticket.is_none() {
                    ticket = Some(self.line_up(free_at, context.waker()));
                    self.tell_due();
                }
                return Poll::Pending;
            }
            if self.end().is_some_and(|end| now > end + self.grace()) {
                self.give_up(schedule, |_| true);
                self.dismiss_all();
                return Poll::Ready(None);
            }
            self.taken.set(self.taken.get() + 1);
            schedule.borrow_mut().take();
            let longest = self.waiting.borrow().front().map(|one| one.free_at);
            if let Some(ticket) = ticket {
                self.waiting
                    .borrow_mut()
                    .retain(|waiter| waiter.ticket != ticket);
            }
            // Who else waits has the call after it, which may be due as well.
            self.wake_due();
            Poll::Ready(Some(Turn {
                intended: due,
                free_at: longest.map_or(free_at, |longest| longest.min(free_at)),
            }))
        })
        .await
    }

    /// Past its end a schedule is worked off for as long again, but no longer than one exchange
    /// may take; then the rest of it is given up.
    fn grace(&self) -> Duration {
        let length = self.common.options.length().unwrap_or_default();
        self.common.options.limit.min(length.max(GRACE_MIN))
    }

    /// Notes the calls of the schedule up to the first that is not `lost` as not sent.
    fn give_up(&self, schedule: &RefCell<Schedule>, lost: impl Fn(Duration) -> bool) {
        let mut schedule = schedule.borrow_mut();
        while self.taken.get() < self.calls_max
            && let Some(due) = schedule.peek().filter(|due| lost(*due))
        {
            schedule.take();
            self.taken.set(self.taken.get() + 1);
            let form = self.common.script.mix.draw(&mut self.random.borrow_mut());
            let slot = self.slots[form];
            self.tally.borrow_mut().recorder.unsent(slot, due);
        }
    }

    fn line_up(&self, free_at: Duration, waker: &Waker) -> u64 {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        self.waiting.borrow_mut().push_back(Waiter {
            ticket,
            free_at,
            waker: waker.clone(),
        });
        ticket
    }

    /// Wakes the worker that has waited longest when a call is due. It stays in the line until it
    /// has the call, which another worker may take before.
    pub(in crate::run) fn wake_due(&self) {
        if self.gap().is_some_and(|gap| gap.is_zero())
            && let Some(first) = self.waiting.borrow().front()
        {
            first.waker.wake_by_ref();
        }
        self.tell_due();
    }

    /// Wakes all that wait: there is nothing more to wait for.
    pub(super) fn dismiss_all(&self) {
        for waiter in self.waiting.take() {
            waiter.waker.wake();
        }
        self.tell_due();
    }

    /// When the call is due that a worker waits for.
    fn awaited(&self) -> Option<Duration> {
        let due = self.schedule.as_ref()?.borrow().peek()?;
        (!self.waiting.borrow().is_empty()).then_some(due)
    }

    /// Time until then.
    pub(in crate::run) fn gap(&self) -> Option<Duration> {
        let due = self.awaited()?;
        Some(due.saturating_sub(self.elapsed()))
    }

    /// Says when this shard is to look at its schedule: itself when that is soon, the pacer else.
    fn tell_due(&self) {
        let due_ns = self.awaited().map_or(NOT_WAITING, |due| {
            let ahead = if self.has_own_core {
                WATCH_AHEAD
            } else {
                Duration::ZERO
            };
            if self.has_own_core && due <= self.elapsed() + ahead {
                self.is_soon.notify();
                return NOT_WAITING;
            }
            due.saturating_sub(ahead).as_nanos() as u64
        });
        self.common.due[usize::from(self.shard.id)]
            .0
            .store(due_ns, Ordering::Release);
    }
}
