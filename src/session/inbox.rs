//! What a session has to say outside any reply: messages waiting for its GET streams.
//!
//! Each message goes to one stream only (mcp.md 1.2). The queue is bounded; `list_changed`
//! messages of one kind collapse into one.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use shards::notify::Notify;

/// Messages kept for a stream that does not read; then the oldest goes.
const MESSAGES_MAX: usize = 64;

/// One GET stream's queue.
#[derive(Debug, Default)]
pub struct StreamQueue {
    messages: RefCell<VecDeque<Rc<[u8]>>>,
    is_closed: Cell<bool>,
    changed: Notify,
}

impl StreamQueue {
    /// Takes the oldest message.
    pub fn pop(&self) -> Option<Rc<[u8]>> {
        self.messages.borrow_mut().pop_front()
    }

    /// Whether the session has ended: nothing comes any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Waits until there is something to look at. Dropping the wait loses nothing.
    pub async fn changed(&self) {
        self.changed.wait().await;
    }
}

/// All GET streams of a session.
#[derive(Debug, Default)]
pub struct Inbox {
    streams: RefCell<Vec<Rc<StreamQueue>>>,
}

impl Inbox {
    /// Opens a stream; `None` when `streams_max` are open already.
    pub fn open(&self, streams_max: usize) -> Option<Rc<StreamQueue>> {
        let mut streams = self.streams.borrow_mut();
        if streams.len() >= streams_max {
            return None;
        }
        let queue = Rc::new(StreamQueue::default());
        streams.push(queue.clone());
        Some(queue)
    }

    /// Closes a stream that its client has left.
    pub fn close(&self, queue: &Rc<StreamQueue>) {
        self.streams
            .borrow_mut()
            .retain(|known| !Rc::ptr_eq(known, queue));
    }

    /// Sends a message on the newest open stream. An equal message that still waits there is not
    /// repeated. False when no stream is open.
    pub fn post(&self, message: &[u8]) -> bool {
        let streams = self.streams.borrow();
        let Some(queue) = streams.last() else {
            return false;
        };
        let mut messages = queue.messages.borrow_mut();
        if !messages.iter().any(|waiting| &**waiting == message) {
            if messages.len() >= MESSAGES_MAX {
                messages.pop_front();
            }
            messages.push_back(message.into());
        }
        queue.changed.notify();
        true
    }

    /// Ends all streams.
    pub fn end(&self) {
        for queue in self.streams.borrow_mut().drain(..) {
            queue.is_closed.set(true);
            queue.changed.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_one_stream_and_equal_ones_collapse() {
        let inbox = Inbox::default();
        assert!(!inbox.post(b"a"));
        let (first, second) = (inbox.open(2).unwrap(), inbox.open(2).unwrap());
        assert!(inbox.open(2).is_none());
        assert!(inbox.post(b"a") && inbox.post(b"a") && inbox.post(b"b"));
        assert!(first.pop().is_none());
        assert_eq!(second.pop().as_deref(), Some(&b"a"[..]));
        assert_eq!(second.pop().as_deref(), Some(&b"b"[..]));
        assert!(second.pop().is_none());
        inbox.close(&second);
        inbox.post(b"c");
        assert_eq!(first.pop().as_deref(), Some(&b"c"[..]));
        inbox.end();
        assert!(first.is_closed());
    }

    #[test]
    fn a_queue_is_bounded() {
        let inbox = Inbox::default();
        let queue = inbox.open(1).unwrap();
        for n in 0..1000u32 {
            inbox.post(&n.to_be_bytes());
        }
        let mut count = 0;
        while queue.pop().is_some() {
            count += 1;
        }
        assert_eq!(count, MESSAGES_MAX);
    }
}
