//! One streamed request and the answers that came for it: lines that its caller has not taken yet.

use std::cell::{Cell, RefCell};

use shards::{buffer::BufferPool, notify::Notify};

use crate::http::{LAST_CHUNK, encode_chunk};

/// How the lines reach the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// A chunk each.
    Chunked,
    /// As they are; the end of the connection is theirs.
    Plain,
}

/// An outstanding request.
#[derive(Debug)]
pub(super) struct Exchange {
    coding: Coding,
    lines: RefCell<Vec<u8>>,
    is_over: Cell<bool>,
    /// When it began, monotonic ms.
    pub(super) began_ms: u64,
    /// Its place among the timers.
    pub(super) timer: Cell<Option<(u64, u64)>>,
    /// The capability it makes use of, for the line of a failure.
    pub(super) capability: Option<Box<str>>,
    /// There are lines, or the end.
    pub(super) changed: Notify,
}

impl Exchange {
    pub(super) fn new(
        coding: Coding,
        began_ms: u64,
        capability: Option<&str>,
        buffers: &BufferPool,
    ) -> Self {
        Self {
            coding,
            lines: RefCell::new(buffers.take()),
            is_over: Cell::new(false),
            began_ms,
            timer: Cell::new(None),
            capability: capability.map(Box::from),
            changed: Notify::default(),
        }
    }

    /// Adds a line, whose end is added here; how many bytes wait more. The last one ends it.
    pub(super) fn push(&self, line: &mut Vec<u8>, is_last: bool) -> usize {
        line.push(b'\n');
        let mut lines = self.lines.borrow_mut();
        let before = lines.len();
        match self.coding {
            Coding::Chunked => encode_chunk(&mut lines, line),
            Coding::Plain => lines.extend_from_slice(line),
        }
        if is_last {
            self.is_over.set(true);
            if self.coding == Coding::Chunked {
                lines.extend_from_slice(LAST_CHUNK);
            }
        }
        self.changed.notify();
        lines.len() - before
    }

    /// Whether the last line was added.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lines.borrow().len()
    }

    /// Takes what waits, for an empty buffer.
    pub(super) fn take(&self, empty: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut *self.lines.borrow_mut(), empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_one_chunk_and_the_last_one_ends_the_body() {
        let exchange = Exchange::new(Coding::Chunked, 0, None, &BufferPool::default());
        assert_eq!(exchange.push(&mut b"{}".to_vec(), false), 8);
        exchange.push(&mut b"[1]".to_vec(), true);
        assert_eq!(
            exchange.take(Vec::new()),
            b"3\r\n{}\n\r\n4\r\n[1]\n\r\n0\r\n\r\n"
        );
        assert!(exchange.is_over() && exchange.waiting() == 0);
        let plain = Exchange::new(Coding::Plain, 0, None, &BufferPool::default());
        plain.push(&mut b"{}".to_vec(), true);
        assert_eq!(plain.take(Vec::new()), b"{}\n");
    }
}
