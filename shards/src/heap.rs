//! How often a thread asks the heap for memory: counted where it asks, for one addition each time.
//!
//! Every request of a shard should find its memory in pools and in what it has kept. What it still
//! allocates shows in a counter, in production too.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
};

thread_local! {
    /// Without a destructor and made at compile time: usable in an allocator, at any time.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// An allocator that counts, per thread, how often it is asked; otherwise the one inside.
#[derive(Debug)]
pub struct Counted<A>(pub A);

/// How often this thread has asked for memory, if the program's allocator is [`Counted`].
pub fn allocations() -> u64 {
    ASKED.get()
}

fn count() {
    ASKED.set(ASKED.get().wrapping_add(1));
}

// SAFETY: each call is passed on unchanged to an allocator that keeps the contract; counting
// allocates nothing and does not panic.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { self.0.realloc(memory, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    #[test]
    fn each_request_for_memory_counts_on_its_own_thread() {
        let heap = Counted(System);
        let layout = Layout::new::<u64>();
        let before = allocations();
        // SAFETY: the layout is not empty, and the memory goes back as the contract says.
        unsafe {
            let first = heap.alloc(layout);
            let second = heap.alloc_zeroed(layout);
            assert_eq!(*second.cast::<u64>(), 0);
            let first = heap.realloc(first, layout, 64);
            assert_eq!(allocations() - before, 3);
            let grown = Layout::from_size_align(64, layout.align()).unwrap();
            heap.dealloc(first, grown);
            heap.dealloc(second, layout);
        }
        assert_eq!(allocations() - before, 3, "giving back is not asking");
        let elsewhere = std::thread::spawn(allocations).join().unwrap();
        assert_eq!(elsewhere, 0);
    }
}
