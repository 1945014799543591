//! The listeners of this shard: who is told when something changes, and what waits to be told.
//!
//! A change of the configuration reaches every shard as a message of the control thread and each
//! listener once; what backends say reaches the listener that listens to them.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use shards::notify::Notify;

/// Messages that wait for one listener; more, and it does not read.
const PENDING_MAX: usize = 256;

/// One client that listens.
#[derive(Debug, Default)]
pub struct Listener {
    subject: Box<str>,
    pending: RefCell<Vec<Vec<u8>>>,
    must_look: Cell<bool>,
    is_overrun: Cell<bool>,
    changed: Notify,
}

impl Listener {
    /// One of the user with this subject.
    pub fn of(subject: &str) -> Self {
        Self {
            subject: subject.into(),
            ..Self::default()
        }
    }

    /// Something to be told. Equal messages that wait are one.
    pub fn post(&self, message: Vec<u8>) {
        let mut pending = self.pending.borrow_mut();
        if pending.contains(&message) {
            return;
        }
        if pending.len() >= PENDING_MAX {
            self.is_overrun.set(true);
        } else {
            pending.push(message);
        }
        self.changed.notify();
    }

    /// Takes what waits; `None`: there was more than could wait, and something is lost.
    pub fn take(&self) -> Option<Vec<Vec<u8>>> {
        (!self.is_overrun.get()).then(|| self.pending.take())
    }

    /// Whether the configuration may have changed since the last look.
    pub fn must_look(&self) -> bool {
        self.must_look.take()
    }

    /// Waits until there is something to do.
    pub async fn changed(&self) {
        self.changed.wait().await;
    }

    /// Wakes it.
    pub fn wake(&self) {
        self.changed.notify();
    }
}

/// All listeners of a shard.
#[derive(Debug, Default)]
pub struct Hub(RefCell<Vec<Weak<Listener>>>);

impl Hub {
    /// A listener more, for as long as somebody else holds it.
    pub fn add(&self, listener: &Rc<Listener>) {
        let mut all = self.0.borrow_mut();
        all.retain(|known| known.strong_count() > 0);
        all.push(Rc::downgrade(listener));
    }

    /// The configuration of a user, or of all, may have changed: who listens for them looks.
    pub fn look(&self, subject: Option<&str>) {
        let all = self.0.borrow();
        let own = all.iter().filter_map(Weak::upgrade);
        for listener in own.filter(|one| subject.is_none_or(|subject| *one.subject == *subject)) {
            listener.must_look.set(true);
            listener.wake();
        }
    }

    /// Wakes all: the shard drains.
    pub fn wake_all(&self) {
        for listener in self.0.borrow().iter().filter_map(Weak::upgrade) {
            listener.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_news_are_one_and_too_many_are_a_slow_reader() {
        let hub = Hub::default();
        let listener = Rc::new(Listener::of("a"));
        hub.add(&listener);
        listener.post(b"a".to_vec());
        listener.post(b"a".to_vec());
        assert_eq!(listener.take().unwrap(), [b"a".to_vec()]);
        hub.look(Some("b"));
        assert!(!listener.must_look());
        for subject in [Some("a"), None] {
            hub.look(subject);
            assert!(listener.must_look() && !listener.must_look());
        }
        for number in 0..=PENDING_MAX {
            listener.post(number.to_string().into_bytes());
        }
        assert!(listener.take().is_none());
        drop(listener);
        hub.wake_all();
        hub.add(&Rc::new(Listener::default()));
        assert_eq!(hub.0.borrow().len(), 1);
    }
}
