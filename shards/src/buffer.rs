//! A shard's pool of read buffers. Idle connections hold none (rule D4).

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
    rc::Rc,
};

/// Capacity of a pooled buffer, bytes: holds a usual request with its headers in one read.
pub const POOLED_BYTES: usize = 4096;
/// Buffers above this capacity are freed, not pooled.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// Buffers kept per shard at the most.
const KEPT_COUNT_MAX: usize = 256;

/// The pool. Cheap to clone: all clones are the same pool.
#[derive(Debug, Clone, Default)]
pub struct BufferPool {
    free: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl BufferPool {
    /// An empty buffer of at least [`POOLED_BYTES`] capacity.
    pub fn take(&self) -> Vec<u8> {
        self.free
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(POOLED_BYTES))
    }

    /// Gives a buffer back; its content is forgotten.
    pub fn put(&self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if !(POOLED_BYTES..=KEPT_BYTES_MAX).contains(&capacity) {
            return;
        }
        let mut free = self.free.borrow_mut();
        if free.len() < KEPT_COUNT_MAX {
            buffer.clear();
            free.push(buffer);
        }
    }

    /// A buffer that goes back by itself.
    pub fn lease(&self) -> Lease {
        Lease {
            buffer: self.take(),
            pool: self.clone(),
        }
    }
}

/// A pooled buffer on loan; dropping it returns it.
#[derive(Debug)]
pub struct Lease {
    buffer: Vec<u8>,
    pool: BufferPool,
}

impl Deref for Lease {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.buffer
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.buffer));
    }
}
