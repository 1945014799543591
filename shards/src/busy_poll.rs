//! Staying awake for a reply that comes soon.
//!
//! A core that sleeps needs longer to wake than a fast backend next door needs to answer, above all
//! in a virtual machine. So a shard with little to do ([`pace`]) asks its driver a while for the
//! reply, over and over, before it goes to sleep; the rest of its tasks have their turns meanwhile.
//! Where that is in vain several times, as with backends a network away, it is left but for a try
//! now and then. Only one task of a shard polls: what it asks the driver for is everybody's.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{pace, task::next_turn};

/// Polls in vain, in a row, after which a connection's replies are not polled for.
const MISSES_MAX: u8 = 4;
/// Replies after which one is tried again.
const RETRY_INTERVAL: u8 = 100;
/// The connection is none that replies come over.
const NEVER: u8 = u8::MAX;

thread_local! {
    /// How long this shard polls for a reply; none: never.
    static WINDOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static IS_POLLING: Cell<bool> = const { Cell::new(false) };
}

/// Says for how long this shard polls.
pub(crate) fn set_window(window: Duration) {
    WINDOW.set(window);
}

/// What polling for the replies of one connection has brought so far.
#[derive(Debug)]
pub(crate) struct Record(Cell<u8>);

impl Record {
    /// Of a connection that somebody else made: when it will ask for something nobody can tell.
    pub(crate) fn never() -> Self {
        Self(Cell::new(NEVER))
    }

    /// Of a connection that we made.
    pub(crate) fn new() -> Self {
        Self(Cell::new(0))
    }

    /// Whether the reply that is waited for is to be polled for.
    fn is_worth_a_try(&self) -> bool {
        match self.0.get() {
            NEVER => false,
            misses if misses < MISSES_MAX => true,
            skipped if skipped < MISSES_MAX + RETRY_INTERVAL => {
                self.0.set(skipped + 1);
                false
            }
            _ => {
                self.0.set(MISSES_MAX - 1);
                true
            }
        }
    }

    fn note(&self, has_come: bool) {
        self.0.set(if has_come { 0 } else { self.0.get() + 1 });
    }
}

/// The right to poll, which one task of a shard has at a time.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    record: &'a Record,
    window: Duration,
}

impl<'a> Watch<'a> {
    /// For the reply that a connection with this record waits for next; `None`: sleep.
    pub(crate) fn begin(record: &'a Record) -> Option<Self> {
        let window = WINDOW.get();
        if window.is_zero() || IS_POLLING.get() || !pace::is_idle() || !record.is_worth_a_try() {
            return None;
        }
        IS_POLLING.set(true);
        Some(Self { record, window })
    }

    /// Runs `operation` to its end or to that of the window.
    pub(crate) async fn poll<F: Future>(self, mut operation: Pin<&mut F>) -> Option<F::Output> {
        let started_at = Instant::now();
        while started_at.elapsed() < self.window {
            let looked = poll_fn(|context| match operation.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => Poll::Ready(None),
            });
            if let Some(output) = looked.await {
                self.record.note(true);
                return Some(output);
            }
            next_turn().await;
        }
        self.record.note(false);
        None
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        IS_POLLING.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_take_long_are_polled_for_now_and_then() {
        let record = Record::new();
        let tries = |replies: u32| {
            let mut tries = 0;
            for _ in 0..replies {
                if record.is_worth_a_try() {
                    record.note(false);
                    tries += 1;
                }
            }
            tries
        };
        assert_eq!(tries(4), 4);
        assert_eq!(tries(100), 0);
        assert_eq!(tries(1010), 10, "one of each 101");
        while !record.is_worth_a_try() {}
        record.note(true);
        assert_eq!(tries(4), 4, "one that came soon makes up for it all");
    }

    #[test]
    fn nobody_polls_for_requests() {
        let record = Record::never();
        assert!((0..1000).all(|_| !record.is_worth_a_try()));
    }

    #[test]
    fn one_task_polls_at_a_time() {
        let (one, other) = (Record::new(), Record::new());
        assert!(
            Watch::begin(&one).is_none(),
            "not until it is said how long"
        );
        set_window(Duration::from_micros(30));
        let watch = Watch::begin(&one).unwrap();
        assert!(Watch::begin(&other).is_none());
        drop(watch);
        assert!(Watch::begin(&other).is_some());
    }
}
