//! The thing a drain waits for: work enters with a pass, closing waits until all passes are back.

use std::{cell::Cell, rc::Rc};

use crate::notify::Event;

/// Counts what runs, and tells when nothing does after it was closed.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    inner: Rc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    passes: Cell<usize>,
    is_closed: Cell<bool>,
    empty: Event,
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
        if self.inner.passes.get() == 0 {
            self.inner.empty.fire();
        }
    }

    /// Waits until the gate is closed and no pass is out.
    pub async fn emptied(&self) {
        self.inner.empty.wait().await;
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let left = self.inner.passes.get() - 1;
        self.inner.passes.set(left);
        if left == 0 && self.inner.is_closed.get() {
            self.inner.empty.fire();
        }
    }
}
