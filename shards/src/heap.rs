//! The heap of the programs, and how often a thread asks it for memory: counted where it asks, for
//! one addition each time.
//!
//! Every request of a shard should find its memory in pools and in what it has kept. What it still
//! allocates shows in a counter, in production too.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc,
    mi_zalloc_aligned,
};

/// What all of mimalloc's memory is aligned to.
const WORD: usize = align_of::<usize>();

thread_local! {
    /// Without a destructor and made at compile time: usable in an allocator, at any time.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// mimalloc, asked for aligned memory only where the alignment is more than what all of its memory
/// has: it makes aligned blocks of more than 1 KiB by a slower way, and larger than they need be.
#[derive(Debug)]
pub struct Mimalloc;

// SAFETY: memory comes from mimalloc with at least the size and the alignment asked for (its blocks
// are aligned to a word), is given back to it, and its functions neither panic nor unwind.
unsafe impl GlobalAlloc for Mimalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two will do.
        unsafe {
            match layout.align() {
                ..=WORD => mi_malloc(layout.size()),
                align => mi_malloc_aligned(layout.size(), align),
            }
        }
        .cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: the caller gives back what it got here.
        unsafe { mi_free(memory.cast()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe {
            match layout.align() {
                ..=WORD => mi_zalloc(layout.size()),
                align => mi_zalloc_aligned(layout.size(), align),
            }
        }
        .cast()
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as for `alloc`, and the caller got the memory here.
        unsafe {
            match layout.align() {
                ..=WORD => mi_realloc(memory.cast(), new_size),
                align => mi_realloc_aligned(memory.cast(), new_size, align),
            }
        }
        .cast()
    }
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
    fn memory_has_its_size_and_alignment_and_keeps_its_content() {
        for size in [1, 7, 8, 9, 24, 1000, 1025, 3000, 5000, 100_000, 3_000_000] {
            for align in [1, 2, 4, 8, 16, 64, 128, 4096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: no size is zero, all of it is written before it is read, and the memory
                // goes back with the layout it has.
                unsafe {
                    let zeroed = Mimalloc.alloc_zeroed(layout);
                    let bytes = std::slice::from_raw_parts(zeroed, size);
                    assert!(bytes.iter().all(|byte| *byte == 0), "{layout:?}");
                    let memory = Mimalloc.alloc(layout);
                    memory.write_bytes(7, size);
                    let larger = size * 2 + 1;
                    let memory = Mimalloc.realloc(memory, layout, larger);
                    for place in [zeroed, memory] {
                        assert!(place.addr().is_multiple_of(align), "{layout:?}");
                    }
                    memory.add(size).write_bytes(8, larger - size);
                    let bytes = std::slice::from_raw_parts(memory, larger);
                    let kept = bytes.iter().take_while(|byte| **byte == 7).count();
                    assert_eq!(kept, size, "{layout:?}");
                    let layout = Layout::from_size_align(larger, align).unwrap();
                    let memory = Mimalloc.realloc(memory, layout, 1);
                    assert_eq!(*memory, 7);
                    Mimalloc.dealloc(memory, Layout::from_size_align(1, align).unwrap());
                    Mimalloc.dealloc(zeroed, Layout::from_size_align(size, align).unwrap());
                }
            }
        }
    }

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
