//! What a session's server says outside calls, waiting for the session's GET stream.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// Messages kept, and their bytes; then the oldest go.
const MESSAGES_MAX: usize = 256;
const BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Default)]
struct Inner {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Counts streams: the newest one has the session's messages.
    stream: u64,
    is_open: bool,
    is_closed: bool,
}

impl Inner {
    fn pop(&mut self) -> Option<Vec<u8>> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.len();
        Some(message)
    }
}

/// One session's messages.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    inner: Mutex<Inner>,
    changed: Notify,
}

impl Outbox {
    fn with<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        // What is in it holds between any two statements.
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a message.
    pub(super) fn push(&self, message: Vec<u8>) {
        self.with(|inner| {
            inner.bytes += message.len();
            inner.messages.push_back(message);
            // The newest is kept however large it is.
            while inner.messages.len() > MESSAGES_MAX
                || (inner.bytes > BYTES_MAX && inner.messages.len() > 1)
            {
                inner.pop();
            }
        });
        self.changed.notify_waiters();
    }

    /// Adds a message that counts once, however often it is said before it is taken.
    pub(super) fn post(&self, message: Vec<u8>) {
        if !self.with(|inner| inner.messages.contains(&message)) {
            self.push(message);
        }
    }

    /// Whether a stream takes them.
    pub(super) fn is_open(&self) -> bool {
        self.with(|inner| inner.is_open)
    }

    /// Ends the streams, for good.
    pub(super) fn close(&self) {
        self.with(|inner| inner.is_closed = true);
        self.changed.notify_waiters();
    }

    /// Opens a stream; one that was open ends.
    pub(super) fn open(self: &Arc<Self>) -> Stream {
        let number = self.with(|inner| {
            inner.is_open = true;
            inner.stream += 1;
            inner.stream
        });
        self.changed.notify_waiters();
        Stream {
            outbox: self.clone(),
            number,
        }
    }
}

/// The open stream of a session.
#[derive(Debug)]
pub(super) struct Stream {
    outbox: Arc<Outbox>,
    number: u64,
}

impl Stream {
    /// Waits for the next message; `None`: the session has ended, or another stream was opened.
    pub(super) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            let mut changed = std::pin::pin!(self.outbox.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            let found = self.outbox.with(|inner| {
                if inner.stream != self.number {
                    return Some(None);
                }
                match inner.pop() {
                    Some(message) => Some(Some(message)),
                    None => inner.is_closed.then_some(None),
                }
            });
            match found {
                Some(outcome) => return outcome,
                None => changed.await,
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.outbox.with(|inner| {
            if inner.stream == self.number {
                inner.is_open = false;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_wait_for_the_newest_stream() {
        let outbox = Arc::new(Outbox::default());
        outbox.push(b"a".to_vec());
        assert!(!outbox.is_open());
        let first = outbox.open();
        assert_eq!(first.next().await.as_deref(), Some(&b"a"[..]));
        let second = outbox.open();
        assert_eq!(first.next().await, None);
        drop(first);
        assert!(outbox.is_open(), "the newest one counts");
        outbox.push(b"b".to_vec());
        outbox.close();
        assert_eq!(second.next().await.as_deref(), Some(&b"b"[..]));
        assert_eq!(second.next().await, None);
        drop(second);
        assert!(!outbox.is_open());
    }

    #[tokio::test]
    async fn the_oldest_message_makes_room() {
        let outbox = Arc::new(Outbox::default());
        for number in 0..=MESSAGES_MAX {
            outbox.push(number.to_string().into_bytes());
        }
        assert_eq!(outbox.open().next().await, Some(b"1".to_vec()));
        for size in [BYTES_MAX / 2, BYTES_MAX, 1] {
            outbox.push(vec![0; size]);
        }
        assert_eq!(outbox.open().next().await, Some(vec![0]), "only the newest");
        for message in [b"a", b"b", b"a"] {
            outbox.post(message.to_vec());
        }
        let stream = outbox.open();
        outbox.close();
        assert_eq!(stream.next().await, Some(b"a".to_vec()));
        assert_eq!(stream.next().await, Some(b"b".to_vec()));
        assert_eq!(stream.next().await, None);
    }
}
