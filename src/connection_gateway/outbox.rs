//! What waits to be written to one WebSocket: whole frames in one buffer, counted, bounded by
//! whoever publishes. The task of the connection takes all there is and writes it.

use std::cell::{Cell, RefCell};

use shards::{Cutter, buffer::BufferPool, notify::Notify};

use super::{
    fault::Fault,
    message,
    reverse::{Framing, contextforge},
};
use crate::websocket::{CloseCode, Masking, append_text, frame, write_close, write_frame};

/// Whether a connection is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It goes on.
    Open,
    /// A Close frame is queued; nothing else is any more.
    Closing,
}

/// The frames that wait for one client.
#[derive(Debug)]
pub struct Outbox {
    framing: Framing,
    pending: RefCell<Vec<u8>>,
    /// Envelopes in `pending`.
    pending_envelopes: Cell<usize>,
    /// Bytes and envelopes that are being written.
    writing: Cell<(usize, usize)>,
    ending: Cell<Ending>,
    /// When more than the bound began to wait, monotonic ms.
    pub(super) slow_since: Cell<Option<u64>>,
    /// A session is bound to the connection.
    pub(super) is_bound: Cell<bool>,
    /// More waits elsewhere until there is room.
    pub(super) is_held_back: Cell<bool>,
    /// An MCP server is at the other end.
    pub(super) has_server: Cell<bool>,
    /// Something to write, room to read again, or the end.
    pub(super) changed: Notify,
    cutter: RefCell<Option<Cutter>>,
    buffers: BufferPool,
}

impl Outbox {
    /// Of a connection that `cutter` ends.
    pub(super) fn new(framing: Framing, cutter: Option<Cutter>, buffers: BufferPool) -> Self {
        Self {
            framing,
            pending: RefCell::default(),
            pending_envelopes: Cell::new(0),
            writing: Cell::new((0, 0)),
            ending: Cell::new(Ending::Open),
            slow_since: Cell::new(None),
            is_bound: Cell::new(false),
            is_held_back: Cell::new(false),
            has_server: Cell::new(false),
            changed: Notify::default(),
            cutter: RefCell::new(cutter),
            buffers,
        }
    }

    /// Appends to what waits, in a pooled buffer; an idle connection has none.
    fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut pending = self.pending.borrow_mut();
        if pending.capacity() == 0 {
            *pending = self.buffers.take();
        }
        write(&mut pending);
        drop(pending);
        self.changed.notify();
    }

    /// Queues a message of text.
    pub(super) fn push(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.ending.get() == Ending::Open {
            self.append(|out| append_text(out, Masking::Plain, write));
        }
    }

    /// Queues an envelope that is written already.
    pub(super) fn push_envelope(&self, envelope: &[u8]) {
        if self.ending.get() == Ending::Closing {
            return;
        }
        self.pending_envelopes.set(self.pending_envelopes.get() + 1);
        self.push(|out| message::write_envelope(out, envelope));
    }

    /// Queues an error, where the framing has one.
    pub(super) fn push_error(&self, request_id: Option<&str>, fault: &Fault) {
        match self.framing {
            Framing::Envelopes => self.push(|out| message::write_error(out, request_id, fault)),
            Framing::ContextForge => {
                self.push(|out| contextforge::write_error(out, &fault.message()));
            }
            Framing::Plain => {}
        }
    }

    /// Whether the client understands envelopes.
    pub(super) fn takes_envelopes(&self) -> bool {
        self.framing == Framing::Envelopes
    }

    /// Queues a ping.
    pub(super) fn push_ping(&self) {
        if self.ending.get() == Ending::Open {
            self.append(|out| write_frame(out, frame::PING, b"", Masking::Plain));
        }
    }

    /// Queues the pong to a ping.
    pub(super) fn push_pong(&self, payload: &[u8]) {
        self.push_frame(frame::PONG, payload);
    }

    /// Queues a frame of any kind but Close.
    pub(super) fn push_frame(&self, opcode: u8, payload: &[u8]) {
        if self.ending.get() == Ending::Open {
            self.append(|out| write_frame(out, opcode, payload, Masking::Plain));
        }
    }

    /// Queues the end: an empty Close frame, or one with a code and a reason.
    pub(super) fn close(&self, code: Option<(CloseCode, &str)>) {
        if self.ending.replace(Ending::Closing) == Ending::Open {
            self.append(|out| write_close(out, code, Masking::Plain));
        }
    }

    /// Queues an error and the end that follows it.
    pub(super) fn fail(&self, request_id: Option<&str>, fault: &Fault) {
        self.push_error(request_id, fault);
        self.close(Some((fault.close_code(), "")));
    }

    /// Drops what has not begun to be written, for an error and the end in its place.
    pub(super) fn give_up(&self, fault: &Fault) -> usize {
        self.pending.borrow_mut().clear();
        let dropped = self.pending_envelopes.take();
        self.fail(None, fault);
        dropped
    }

    /// Cuts the connection, whatever waits.
    pub(super) fn cut(&self) {
        if let Some(cutter) = self.cutter.take() {
            cutter.cut();
        }
    }

    /// Whether the end is queued.
    pub(super) fn is_closing(&self) -> bool {
        self.ending.get() == Ending::Closing
    }

    /// Takes all that waits, to write it.
    pub(super) fn take(&self) -> Vec<u8> {
        let taken = std::mem::take(&mut *self.pending.borrow_mut());
        self.writing
            .set((taken.len(), self.pending_envelopes.take()));
        taken
    }

    /// What was taken is written, or never will be; how many envelopes that were.
    pub(super) fn written(&self, buffer: Vec<u8>) -> usize {
        self.buffers.put(buffer);
        self.writing.take().1
    }

    /// Whether nothing waits to be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.borrow().is_empty()
    }

    /// Whether a write is under way.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.get().0 > 0
    }

    /// Bytes not yet taken by the kernel.
    pub(super) fn bytes(&self) -> usize {
        self.pending.borrow().len() + self.writing.get().0
    }

    /// Envelopes not yet taken by the kernel.
    pub(super) fn envelopes(&self) -> usize {
        self.pending_envelopes.get() + self.writing.get().1
    }
}

#[cfg(test)]
impl Outbox {
    /// Of no connection.
    pub(super) fn of_nobody() -> Self {
        Self::new(Framing::Envelopes, None, BufferPool::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_end_is_queued_nothing_else_is() {
        let outbox = Outbox::of_nobody();
        outbox.push_envelope(b"{}");
        outbox.push_envelope(b"{}");
        assert_eq!(outbox.envelopes(), 2);
        let taken = outbox.take();
        assert!(outbox.is_writing() && outbox.bytes() == taken.len());
        outbox.push_envelope(b"{}");
        // What is being written stays whole; what waits gives way to the reason.
        assert_eq!(outbox.give_up(&Fault::SlowConsumer), 1);
        outbox.push_envelope(b"{}");
        outbox.push_pong(b"");
        outbox.close(None);
        assert_eq!(outbox.written(taken), 2);
        let rest = outbox.take();
        assert!(memchr::memmem::find(&rest, b"slow_consumer").is_some());
        assert!(memchr::memmem::find(&rest, b"\"envelope\"").is_none());
        assert_eq!(rest[rest.len() - 4..], [0x88, 2, 0x03, 0xf0]);
    }
}
