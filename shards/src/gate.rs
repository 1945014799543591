//! The thing a drain waits for: work enters with a pass, closing waits until all passes are back.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

/// Counts what runs, and tells when nothing does after it was closed.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    inner: Rc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    passes: Cell<usize>,
    is_closed: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// Proof that one piece of work is under way; dropping it ends the work.
#[derive(Debug)]
pub struct Pass {
    inner: Rc<Inner>,
}

impl Gate {
    /// A pass for one piece of work. Given after `close` too: what a live connection asks is
    /// finished, the caller decides what it still takes on.
    pub fn enter(&self) -> Pass {
        self.inner.passes.set(self.inner.passes.get() + 1);
        Pass {
            inner: self.inner.clone(),
        }
    }

    /// Whether `close` was called.
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed.get()
    }

    /// Passes given out now.
    pub fn pass_count(&self) -> usize {
        self.inner.passes.get()
    }

    /// Marks the gate closed, without waiting.
    pub fn close(&self) {
        self.inner.is_closed.set(true);
        self.inner.tell_if_empty();
    }

    /// Waits until the gate is closed and no pass is out. A pass given out after that counts
    /// again: a later call waits for it too.
    pub async fn emptied(&self) {
        poll_fn(|cx| {
            if self.inner.is_empty() {
                return Poll::Ready(());
            }
            let mut waiting = self.inner.waiting.borrow_mut();
            if !waiting.iter().any(|known| known.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Inner {
    fn is_empty(&self) -> bool {
        self.is_closed.get() && self.passes.get() == 0
    }

    fn tell_if_empty(&self) {
        if self.is_empty() {
            let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
            for waker in waiting {
                waker.wake();
            }
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.inner.passes.set(self.inner.passes.get() - 1);
        self.inner.tell_if_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::woken::Woken;
    use futures_util::FutureExt;
    use std::{sync::Arc, task::Context};

    fn is_ready(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        future.now_or_never().is_some()
    }

    #[test]
    fn an_open_gate_is_never_emptied() {
        let gate = Gate::default();
        let mut emptied = std::pin::pin!(gate.emptied());
        assert!(!is_ready(emptied.as_mut()));
        drop(gate.enter());
        assert!(!is_ready(emptied.as_mut()));
        gate.close();
        assert!(is_ready(emptied));
    }

    #[test]
    fn a_closed_gate_waits_for_every_pass() {
        let gate = Gate::default();
        let (first, second) = (gate.enter(), gate.enter());
        gate.close();
        assert!(gate.is_closed());
        let mut emptied = std::pin::pin!(gate.emptied());
        drop(first);
        assert_eq!(gate.pass_count(), 1);
        assert!(!is_ready(emptied.as_mut()));
        drop(second);
        assert!(is_ready(emptied));
    }

    #[test]
    fn a_pass_given_out_after_the_gate_was_emptied_counts_again() {
        let gate = Gate::default();
        gate.close();
        assert!(gate.emptied().now_or_never().is_some());
        let late = gate.enter();
        assert!(gate.emptied().now_or_never().is_none());
        drop(late);
        assert!(gate.emptied().now_or_never().is_some());
    }

    #[test]
    fn every_waiter_is_woken_once_and_not_before() {
        let gate = Gate::default();
        let (first, second) = (gate.enter(), gate.enter());
        let woken: Vec<Arc<Woken>> = (0..3).map(|_| Arc::default()).collect();
        let mut waits: Vec<_> = woken.iter().map(|_| Box::pin(gate.emptied())).collect();
        for (wait, woken) in waits.iter_mut().zip(&woken) {
            let waker = woken.clone().into();
            let mut cx = Context::from_waker(&waker);
            assert!(wait.as_mut().poll(&mut cx).is_pending());
            assert!(wait.as_mut().poll(&mut cx).is_pending());
        }
        gate.close();
        drop(first);
        assert!(woken.iter().all(|woken| woken.count() == 0));
        drop(second);
        assert!(woken.iter().all(|woken| woken.count() == 1));
    }
}
