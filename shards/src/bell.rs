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

/// "I am about to wait for you": raised by the side that waits, taken by the side that acts.
#[derive(Debug)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Raises the flag. What is waited for must be looked at again after this, before waiting.
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes the flag back: nothing is waited for.
    pub(crate) fn lower(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Lowers the flag, and tells whether it was up; one taker gets it. Call after the act.
    pub(crate) fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        let (is_up, is_down) = (true, false);
        self.0.load(Ordering::Relaxed)
            && self
                .0
                .compare_exchange(is_up, is_down, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}

/// One shard's doorbell, shared by all that may wake it.
#[derive(Debug)]
pub(crate) struct Bell {
    armed: Flag,
    waker: OnceLock<Waker>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            armed: Flag::new(),
            waker: OnceLock::new(),
        }
    }

    /// Names the task to wake: once, by the shard's inbox task. Later calls change nothing.
    pub(crate) fn attach(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Says that the owner is about to sleep. It must look at its rings again after this.
    pub(crate) fn arm(&self) {
        self.armed.raise();
    }

    /// Says that the owner is awake, so that nobody wakes it in vain.
    pub(crate) fn disarm(&self) {
        self.armed.lower();
    }

    /// Wakes the owner if it sleeps; true when this call did it. Call after the pushes.
    pub(crate) fn ring(&self) -> bool {
        if !self.armed.take() {
            return false;
        }
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::notify::woken::Woken;
    use std::sync::Arc;

    #[test]
    fn an_armed_bell_wakes_once_and_an_unarmed_one_never() {
        let (bell, woken) = (Bell::new(), Arc::new(Woken::default()));
        bell.attach(&woken.clone().into());
        assert!(!bell.ring());
        bell.arm();
        assert!(bell.ring());
        assert!(!bell.ring(), "one ringer wakes, the next finds it awake");
        bell.arm();
        bell.disarm();
        assert!(!bell.ring());
        assert_eq!(woken.count(), 1);
    }

    #[test]
    fn the_first_task_keeps_the_bell() {
        let bell = Bell::new();
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        bell.attach(&first.clone().into());
        bell.attach(&second.clone().into());
        bell.arm();
        bell.ring();
        assert_eq!(first.count(), 1);
        assert_eq!(second.count(), 0);
    }

    #[test]
    fn a_bell_nobody_attached_to_is_silent() {
        let bell = Bell::new();
        bell.arm();
        assert!(bell.ring());
    }
}
