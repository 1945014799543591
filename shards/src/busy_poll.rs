//! Staying awake for a reply that comes soon.
//!
//! A core that sleeps needs longer to wake than a fast backend next door needs to answer, above all
//! in a virtual machine. So a shard with little to do ([`pace`]) asks its driver a while for the
//! reply, over and over, before it goes to sleep; the rest of its tasks have their turns meanwhile.
//! Where that is in vain several times, as with backends a network away, it is left but for a try
//! now and then. Only one task of a shard polls: what it asks the driver for is everybody's.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use crate::{notify::Notify, pace, task::next_turn};

/// Polls in vain, in a row, after which a connection's replies are not polled for.
const MISSES_MAX: u8 = 4;
/// Replies after which one is tried again.
const RETRY_INTERVAL: u8 = 100;
/// The connection is none that replies come over.
const NEVER: u8 = u8::MAX;

thread_local! {
    /// What keeps this shard awake; none where it never polls.
    static KEEPER: Keeper = const { Keeper::new() };
}

/// The one of a shard who polls, and for whom.
struct Keeper {
    window: Cell<Duration>,
    /// Where the record is of the connection that it polls for; 0: none.
    polls_for: Cell<usize>,
    /// Until when, and not beyond.
    until: Cell<Option<Instant>>,
    is_wanted: Notify,
}

impl Keeper {
    const fn new() -> Self {
        Self {
            window: Cell::new(Duration::ZERO),
            polls_for: Cell::new(0),
            until: Cell::new(None),
            is_wanted: Notify::new(),
        }
    }

    fn is_polling(&self) -> bool {
        self.until.get().is_some()
    }
}

/// Polls whenever a reply is waited for that may come within `window`; ends never.
pub(crate) async fn keep_awake(window: Duration) {
    KEEPER.with(|keeper| keeper.window.set(window));
    loop {
        std::future::poll_fn(|context| KEEPER.with(|keeper| keeper.is_wanted.poll(context))).await;
        while KEEPER.with(|keeper| {
            keeper
                .until
                .get()
                .is_some_and(|until| Instant::now() < until)
        }) {
            next_turn().await;
        }
        KEEPER.with(|keeper| keeper.until.set(None));
    }
}

/// What polling for the replies of one connection has brought so far.
#[derive(Debug)]
pub(crate) struct Record {
    misses: Cell<u8>,
    /// The reply that is waited for now was polled for.
    is_tried: Cell<bool>,
}

impl Record {
    /// Of a connection that somebody else made: when it will ask for something nobody can tell.
    pub(crate) fn never() -> Self {
        Self::with(NEVER)
    }

    /// Of a connection that we made.
    pub(crate) fn new() -> Self {
        Self::with(0)
    }

    fn with(misses: u8) -> Self {
        Self {
            misses: Cell::new(misses),
            is_tried: Cell::new(false),
        }
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// A reply is waited for.
    pub(crate) fn waits(&self) {
        if self.misses.get() == NEVER || self.is_tried.get() {
            return;
        }
        KEEPER.with(|keeper| {
            let window = keeper.window.get();
            if window.is_zero() || keeper.is_polling() || !pace::is_idle() {
                return;
            }
            if self.is_worth_a_try() {
                self.is_tried.set(true);
                keeper.polls_for.set(self.place());
                keeper.until.set(Some(Instant::now() + window));
                keeper.is_wanted.notify();
            }
        });
    }

    /// It has come, or will not.
    pub(crate) fn has_come(&self) {
        if !self.is_tried.replace(false) {
            return;
        }
        KEEPER.with(|keeper| {
            let is_ours = keeper.polls_for.get() == self.place();
            self.note(is_ours && keeper.is_polling());
            if is_ours {
                keeper.polls_for.set(0);
                keeper.until.set(None);
            }
        });
    }

    /// Whether the reply that is waited for is to be polled for.
    fn is_worth_a_try(&self) -> bool {
        match self.misses.get() {
            NEVER => false,
            misses if misses < MISSES_MAX => true,
            skipped if skipped < MISSES_MAX + RETRY_INTERVAL => {
                self.misses.set(skipped + 1);
                false
            }
            _ => {
                self.misses.set(MISSES_MAX - 1);
                true
            }
        }
    }

    fn note(&self, was_worth_it: bool) {
        let misses = if was_worth_it {
            0
        } else {
            self.misses.get() + 1
        };
        self.misses.set(misses);
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
    fn one_connection_is_polled_for_at_a_time() {
        let (one, other) = (Record::new(), Record::new());
        let polls_for =
            || KEEPER.with(|keeper| keeper.is_polling().then(|| keeper.polls_for.get()));
        one.waits();
        assert_eq!(polls_for(), None, "not until it is said how long");
        KEEPER.with(|keeper| keeper.window.set(Duration::from_secs(3600)));
        one.waits();
        other.waits();
        assert_eq!(polls_for(), Some(one.place()));
        other.has_come();
        assert_eq!(polls_for(), Some(one.place()));
        one.has_come();
        assert_eq!((polls_for(), one.misses.get()), (None, 0));
        other.waits();
        assert_eq!(polls_for(), Some(other.place()));
        // Its time is over.
        KEEPER.with(|keeper| keeper.until.set(None));
        other.waits();
        assert_eq!(polls_for(), None, "once for each reply");
        other.has_come();
        assert_eq!(other.misses.get(), 1);
    }
}
