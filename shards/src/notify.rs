//! Wake-ups inside one shard: a one-slot waker for tasks that wait for a plain memory event.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    task::{Poll, Waker},
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

    /// Waits for a notification and consumes it. One waiter at a time: a second one replaces the
    /// first. Dropping the wait loses nothing.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.is_set.take() {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
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
