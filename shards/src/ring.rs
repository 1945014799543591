//! A bounded single-producer single-consumer ring: the only memory two shards share on a request's
//! path.
//!
//! Indices only grow (wrapping at `usize`), sit on cache lines of their own, and each side keeps a
//! copy of the other's, so that an operation touches shared memory only when the copy says "full"
//! or "empty". It owns no wake-up: the doorbell does that. Invariant, checked in debug builds:
//! `0 <= tail - head <= capacity`.

use std::mem::MaybeUninit;

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
#[cfg(not(loom))]
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[cfg(not(loom))]
use plain::UnsafeCell;

/// `loom`'s closure interface over the standard cell, so that both builds run the same lines.
#[cfg(not(loom))]
mod plain {
    #[derive(Debug)]
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }
        pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }
        pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

/// A cache line pair of its own (adjacent-line prefetch makes 128 bytes the unit to keep apart).
#[repr(align(128))]
struct Line<T>(T);

struct Inner<T> {
    /// Next position to read; written by the consumer only.
    head: Line<AtomicUsize>,
    /// Next position to write; written by the producer only.
    tail: Line<AtomicUsize>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by one side at a time: by the producer while its position is outside
// `head..tail`, by the consumer while inside; the Release store / Acquire load of the index that
// moves it across hands the memory over. `T: Send` lets the value itself cross.
unsafe impl<T: Send> Sync for Inner<T> {}
// SAFETY: as above; dropping `Inner` on another thread drops `T`s there, which `T: Send` allows.
unsafe impl<T: Send> Send for Inner<T> {}

impl<T> Inner<T> {
    fn slot(&self, position: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // The length is a power of two, so the mask is a bounds proof too.
        &self.slots[position & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        let mut head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: positions in `head..tail` hold initialised values, and `&mut self` proves
            // that neither side exists any more.
            self.slot(head)
                .with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// The writing end. One owner, not cloneable.
pub struct Producer<T> {
    inner: Arc<Inner<T>>,
    tail: usize,
    head_seen: usize,
}

/// The reading end. One owner, not cloneable.
pub struct Consumer<T> {
    inner: Arc<Inner<T>>,
    head: usize,
    tail_seen: usize,
}

/// Makes a ring of `capacity` slots, rounded up to a power of two, at least 1.
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let slots = (0..capacity)
        .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
        .collect();
    let inner = Arc::new(Inner {
        head: Line(AtomicUsize::new(0)),
        tail: Line(AtomicUsize::new(0)),
        slots,
    });
    (
        Producer {
            inner: inner.clone(),
            tail: 0,
            head_seen: 0,
        },
        Consumer {
            inner,
            head: 0,
            tail_seen: 0,
        },
    )
}

impl<T> Producer<T> {
    /// Appends `value`, or gives it back when the ring is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let capacity = self.inner.slots.len();
        if self.tail.wrapping_sub(self.head_seen) == capacity {
            self.head_seen = self.inner.head.0.load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head_seen) == capacity {
                return Err(value);
            }
        }
        debug_assert!(self.tail.wrapping_sub(self.head_seen) < capacity);
        // SAFETY: `tail` is outside `head..tail`, so this slot belongs to the producer (see Sync).
        self.inner.slot(self.tail).with_mut(|slot| unsafe {
            (*slot).write(value);
        });
        self.tail = self.tail.wrapping_add(1);
        self.inner.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Whether a push would fail now.
    pub fn is_full(&mut self) -> bool {
        self.head_seen = self.inner.head.0.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head_seen) == self.inner.slots.len()
    }

    /// Number of slots.
    pub fn capacity(&self) -> usize {
        self.inner.slots.len()
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest value, if there is one.
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            self.tail_seen = self.inner.tail.0.load(Ordering::Acquire);
            if self.head == self.tail_seen {
                return None;
            }
        }
        // SAFETY: `head` is inside `head..tail`, so the slot is initialised and ours; moving the
        // index on afterwards makes sure it is read once.
        let value = self
            .inner
            .slot(self.head)
            .with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.inner.head.0.store(self.head, Ordering::Release);
        Some(value)
    }

    /// Values in the ring now; more may be on their way.
    pub fn waiting(&self) -> usize {
        let tail = self.inner.tail.0.load(Ordering::Acquire);
        tail.wrapping_sub(self.head)
    }

    /// Whether a pop would give nothing now.
    pub fn is_empty(&mut self) -> bool {
        if self.head != self.tail_seen {
            return false;
        }
        self.tail_seen = self.inner.tail.0.load(Ordering::Acquire);
        self.head == self.tail_seen
    }
}

impl<T> std::fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer")
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}
