//! The doorbell of a shard: wakes it when it sleeps, costs a load when it does not.
//!
//! Sleeper: `arm` (flag up, full fence), look at every ring once more, then sleep. Ringer: push,
//! full fence, then take the flag; whoever takes it wakes, once. The two fences order the ring's
//! store against the flag's load on both sides; release/acquire alone would lose wake-ups.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

use std::{sync::OnceLock, task::Waker};

/// One shard's doorbell, shared by all that may wake it.
#[derive(Debug)]
pub(crate) struct Bell {
    armed: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            armed: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }

    /// Names the task to wake: once, by the shard's inbox task. Later calls change nothing.
    pub(crate) fn attach(&self, waker: &Waker) {
        let _ = self.waker.set(waker.clone());
    }

    /// Says that the owner is about to sleep. It must look at its rings again after this.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the owner is awake, so that nobody wakes it in vain.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Wakes the owner if it sleeps; true when this call did it. Call after the pushes.
    pub(crate) fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        if !self.armed.load(Ordering::Relaxed) || !self.armed.swap(false, Ordering::AcqRel) {
            return false;
        }
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
        true
    }
}
