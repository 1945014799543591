//! What is due when: one queue a shard, looked at a few times a second, instead of a runtime's
//! timer for each session and request.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Weak,
};

use super::{
    exchange::Exchange, outbox::Outbox, registry::Call, session::Session, session_id::SessionId,
};

/// What happens when its time has come.
#[derive(Debug)]
pub(super) enum Due {
    /// The lease of a session may be over.
    Lease(Weak<Session>),
    /// A streamed request has had its time.
    Exchange(Weak<Session>, Box<str>, Weak<Exchange>),
    /// A connection should be bound by now.
    Bind(Weak<Outbox>),
    /// A client has read too slowly for so long.
    Slow(Weak<Outbox>),
    /// A client was told that it ends, and should have.
    Cut(Weak<Outbox>),
    /// A closed session is not shown any more.
    Forget(SessionId),
    /// Others are to be told that a session lives.
    Renewal(Weak<Session>),
    /// A session of another node may have ended while answers of it are outstanding.
    Look(SessionId),
    /// A request to a session of another node has had its time.
    Call(Weak<Call>),
    /// A connection is asked for a sign of life.
    Ping(Weak<Outbox>),
}

/// The queue. A place in it is its time and a number.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: RefCell<BTreeMap<(u64, u64), Due>>,
    next: Cell<u64>,
}

impl Timers {
    /// Adds something for `at_ms`, monotonic; its place.
    pub(super) fn add(&self, at_ms: u64, due: Due) -> (u64, u64) {
        let number = self.next.get();
        self.next.set(number + 1);
        self.queue.borrow_mut().insert((at_ms, number), due);
        (at_ms, number)
    }

    /// Takes something out before its time.
    pub(super) fn remove(&self, place: (u64, u64)) {
        self.queue.borrow_mut().remove(&place);
    }

    /// The next thing whose time has come.
    pub(super) fn pop(&self, now_ms: u64) -> Option<Due> {
        let mut queue = self.queue.borrow_mut();
        let first = queue.first_entry()?;
        (first.key().0 <= now_ms).then(|| first.remove())
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_order_and_what_was_taken_out_does_not() {
        let timers = Timers::default();
        let forget = |number| Due::Forget(SessionId::of([number; 16]));
        timers.add(20, forget(2));
        let gone = timers.add(15, forget(9));
        timers.add(10, forget(1));
        timers.add(10, forget(3));
        timers.remove(gone);
        let mut seen = Vec::new();
        while let Some(Due::Forget(id)) = timers.pop(20) {
            seen.push(id);
        }
        assert_eq!(seen, [1, 3, 2].map(|number| SessionId::of([number; 16])));
        timers.add(30, forget(4));
        assert!(timers.pop(29).is_none() && timers.len() == 1);
    }
}
