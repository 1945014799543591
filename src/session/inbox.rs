//! What a session has to say outside any reply: messages waiting for its GET streams.
//!
//! Each message goes to one stream only (mcp.md 1.2). The queue is bounded; `list_changed`
//! messages of one kind collapse into one.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use shards::notify::{Event, Notify};

/// Messages kept for a stream that does not read; then the oldest goes.
const MESSAGES_MAX: usize = 64;
/// Kinds of messages kept for a stream that is not open yet.
const MISSED_MAX: usize = 8;

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
    /// Posted while no stream was open: the next one starts with it.
    missed: RefCell<Vec<Rc<[u8]>>>,
    /// While a stream is open: fires when the last one closes.
    deserted: RefCell<Option<Rc<Event>>>,
}

impl Inbox {
    /// Opens a stream; `None` when `streams_max` are open already.
    pub fn open(&self, streams_max: usize) -> Option<Rc<StreamQueue>> {
        let mut streams = self.streams.borrow_mut();
        if streams.len() >= streams_max {
            return None;
        }
        self.deserted.borrow_mut().get_or_insert_default();
        let queue = Rc::new(StreamQueue::default());
        queue.messages.borrow_mut().extend(self.missed.take());
        streams.push(queue.clone());
        Some(queue)
    }

    /// Closes a stream that its client has left.
    pub fn close(&self, queue: &Rc<StreamQueue>) {
        self.streams
            .borrow_mut()
            .retain(|known| !Rc::ptr_eq(known, queue));
        if self.streams.borrow().is_empty() {
            self.desert();
        }
    }

    /// Whether a stream is open.
    pub fn is_open(&self) -> bool {
        !self.streams.borrow().is_empty()
    }

    /// An event that fires when the last stream has closed; `None` when none is open.
    pub fn deserted(&self) -> Option<Rc<Event>> {
        self.deserted.borrow().clone()
    }

    fn desert(&self) {
        if let Some(event) = self.deserted.borrow_mut().take() {
            event.fire();
        }
    }

    /// Sends a message on the newest open stream, unless an equal one still waits there. When no
    /// stream is open, the next one starts with it: it is of a kind that counts once, however late.
    pub fn post(&self, message: &[u8]) {
        if self.send(message, true) {
            return;
        }
        let mut missed = self.missed.borrow_mut();
        if missed.len() < MISSED_MAX && !missed.iter().any(|known| **known == *message) {
            missed.push(message.into());
        }
    }

    /// Sends a message on the newest open stream, an equal one again. False when no stream is open.
    pub fn push(&self, message: &[u8]) -> bool {
        self.send(message, false)
    }

    fn send(&self, message: &[u8], is_once: bool) -> bool {
        let streams = self.streams.borrow();
        let Some(queue) = streams.last() else {
            return false;
        };
        let mut messages = queue.messages.borrow_mut();
        if !(is_once && messages.iter().any(|waiting| &**waiting == message)) {
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
        self.desert();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_one_stream_and_equal_ones_collapse() {
        let inbox = Inbox::default();
        let (first, second) = (inbox.open(2).unwrap(), inbox.open(2).unwrap());
        assert!(inbox.open(2).is_none());
        for message in [b"a", b"a", b"b"] {
            inbox.post(message);
        }
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
    fn what_was_posted_to_nobody_waits_for_the_next_stream_once() {
        let inbox = Inbox::default();
        inbox.post(b"a");
        inbox.post(b"a");
        let first = inbox.open(2).unwrap();
        assert_eq!(first.pop().as_deref(), Some(&b"a"[..]));
        assert!(first.pop().is_none() && inbox.open(2).unwrap().pop().is_none());
    }

    #[test]
    fn what_is_pushed_is_repeated() {
        let inbox = Inbox::default();
        let queue = inbox.open(1).unwrap();
        assert!(inbox.push(b"a") && inbox.push(b"a"));
        assert!(queue.pop().is_some() && queue.pop().is_some() && queue.pop().is_none());
    }

    #[test]
    fn the_last_one_to_leave_is_noticed() {
        let inbox = Inbox::default();
        assert!(inbox.deserted().is_none());
        let (first, second) = (inbox.open(2).unwrap(), inbox.open(2).unwrap());
        let deserted = inbox.deserted().unwrap();
        inbox.close(&first);
        assert!(!deserted.has_fired());
        inbox.close(&second);
        assert!(deserted.has_fired() && inbox.deserted().is_none());
        let _third = inbox.open(1).unwrap();
        let deserted = inbox.deserted().unwrap();
        assert!(!deserted.has_fired());
        inbox.end();
        assert!(deserted.has_fired());
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
