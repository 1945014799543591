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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty() {
        let pool = BufferPool::default();
        let mut buffer = pool.take();
        assert!(buffer.is_empty() && buffer.capacity() >= POOLED_BYTES);
        buffer.extend_from_slice(b"secret");
        let memory = buffer.as_ptr();
        pool.put(buffer);
        let again = pool.take();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), memory, "the same memory is used again");
    }

    #[test]
    fn too_small_and_too_large_buffers_are_freed() {
        let pool = BufferPool::default();
        pool.put(Vec::with_capacity(POOLED_BYTES - 1));
        pool.put(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        pool.put(Vec::new());
        assert!(pool.free.borrow().is_empty());
        pool.put(Vec::with_capacity(POOLED_BYTES));
        pool.put(Vec::with_capacity(KEPT_BYTES_MAX));
        assert_eq!(pool.free.borrow().len(), 2);
    }

    #[test]
    fn the_pool_is_bounded() {
        let pool = BufferPool::default();
        for _ in 0..KEPT_COUNT_MAX + 10 {
            pool.put(Vec::with_capacity(POOLED_BYTES));
        }
        assert_eq!(pool.free.borrow().len(), KEPT_COUNT_MAX);
    }

    #[test]
    fn a_lease_returns_by_itself_to_all_clones() {
        let pool = BufferPool::default();
        let clone = pool.clone();
        {
            let mut lease = pool.lease();
            lease.extend_from_slice(b"bytes");
            assert_eq!(&lease[..], b"bytes");
            assert!(clone.free.borrow().is_empty());
        }
        assert_eq!(clone.free.borrow().len(), 1);
    }
}
