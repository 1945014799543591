//! Wake-ups inside one shard: a one-slot waker for tasks that wait for a plain memory event.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    task::{Context, Poll, Waker},
};

/// Lets one task wait until another task of the same shard notifies it. A notification that comes
/// first is kept (once), so none is lost.
#[derive(Debug, Default)]
pub struct Notify {
    is_set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Notify {
    /// Wakes the waiting task, or lets the next wait return at once.
    pub fn notify(&self) {
        self.is_set.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nothing notified yet.
    pub const fn new() -> Self {
        Self {
            is_set: Cell::new(false),
            waker: RefCell::new(None),
        }
    }

    /// Waits for a notification and consumes it. One waiter at a time: a second one replaces the
    /// first. Dropping the wait loses nothing.
    pub async fn wait(&self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    /// One look of [`Notify::wait`].
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_set.take() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Lets any number of tasks of one shard wait for one event; all wake when it comes.
#[derive(Debug, Default)]
pub struct Event {
    happened: Cell<bool>,
    wakers: RefCell<Vec<Waker>>,
}

impl Event {
    /// Wakes all waiters; later waits return at once.
    pub fn fire(&self) {
        self.happened.set(true);
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether the event has happened.
    pub fn has_fired(&self) -> bool {
        self.happened.get()
    }

    /// Waits for the event. Dropping the wait loses nothing.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.happened.get() {
                return Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|known| known.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
pub(crate) mod woken;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::woken::Woken;
    use futures_util::FutureExt;
    use std::{sync::Arc, task::Context};

    #[test]
    fn a_notification_that_comes_first_is_kept_once() {
        let notify = Notify::default();
        assert!(notify.wait().now_or_never().is_none());
        notify.notify();
        notify.notify();
        assert!(notify.wait().now_or_never().is_some());
        assert!(notify.wait().now_or_never().is_none());
    }

    #[test]
    fn the_waiting_task_is_woken_and_a_dropped_wait_loses_nothing() {
        let (notify, woken) = (Notify::default(), Arc::new(Woken::default()));
        let waker = woken.clone().into();
        {
            let mut wait = std::pin::pin!(notify.wait());
            let mut cx = Context::from_waker(&waker);
            assert!(wait.as_mut().poll(&mut cx).is_pending());
            notify.notify();
            assert_eq!(woken.count(), 1);
            // Dropped unpolled.
        }
        assert!(notify.wait().now_or_never().is_some());
    }

    #[test]
    fn an_event_wakes_every_waiter_and_stays() {
        let event = Event::default();
        let woken: [Arc<Woken>; 3] = Default::default();
        let mut waits = [(); 3].map(|()| Box::pin(event.wait()));
        for (wait, woken) in waits.iter_mut().zip(&woken) {
            let waker = woken.clone().into();
            let mut cx = Context::from_waker(&waker);
            assert!(wait.as_mut().poll(&mut cx).is_pending());
            assert!(wait.as_mut().poll(&mut cx).is_pending());
        }
        assert!(!event.has_fired());
        event.fire();
        assert!(event.has_fired());
        assert!(woken.iter().all(|woken| woken.count() == 1));
        assert!(event.wait().now_or_never().is_some());
        assert!(event.wait().now_or_never().is_some());
    }
}
