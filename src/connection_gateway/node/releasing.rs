//! Sessions whose claims are being given back, so that whoever wants one of them can wait for it.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    time::Duration,
};

use hashbrown::HashMap;
use shards::{notify::Event, task::within};

use super::Node;
use crate::connection_gateway::{index::answer, session::Status, session_id::SessionId};

/// How long the end of a session is waited for that is about to end: longer than its client may
/// take to go once it was told.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The sessions of one shard that this is so for.
#[derive(Debug, Default)]
pub(in crate::connection_gateway) struct Releasing {
    sessions: Rc<RefCell<HashMap<SessionId, Rc<Event>>>>,
}

/// One of them; dropped when its claims are free, or never will be.
#[derive(Debug)]
pub(in crate::connection_gateway) struct Release {
    id: SessionId,
    done: Rc<Event>,
    all: Weak<RefCell<HashMap<SessionId, Rc<Event>>>>,
}

impl Releasing {
    /// From now on, until what is given back is dropped.
    pub(in crate::connection_gateway) fn begin(&self, id: SessionId) -> Release {
        let done = Rc::new(Event::default());
        self.sessions.borrow_mut().insert(id, done.clone());
        Release {
            id,
            done,
            all: Rc::downgrade(&self.sessions),
        }
    }

    fn of(&self, id: SessionId) -> Option<Rc<Event>> {
        self.sessions.borrow().get(&id).cloned()
    }
}

impl Release {
    /// Fires when it is over.
    pub(in crate::connection_gateway) fn event(&self) -> Rc<Event> {
        self.done.clone()
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(all) = self.all.upgrade() {
            all.borrow_mut().remove(&self.id);
        }
        self.done.fire();
    }
}

impl Node {
    /// Waits for the end of a session of this shard that is about to end, and for its claims to be
    /// free: [`answer::YES`]. One that goes on, or is not known, is [`answer::NO`], at once.
    pub async fn await_end(&self, id: SessionId) -> Vec<u8> {
        let session = self.session(id);
        if let Some(session) = &session
            && session.status() == Status::Connected
        {
            let is_ending = session.outbox.is_closing();
            if !is_ending || within(END_PATIENCE, session.ended.wait()).await.is_none() {
                return answer::NO.to_vec();
            }
        }
        let is_free = match self.releasing.of(id) {
            Some(done) => within(END_PATIENCE, done.wait()).await.is_some(),
            None => session.is_some(),
        };
        if is_free { answer::YES } else { answer::NO }.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_given_back_is_known_until_it_is() {
        let releasing = Releasing::default();
        let id = SessionId::of([1; 16]);
        let release = releasing.begin(id);
        let done = release.event();
        assert!(releasing.of(id).is_some() && !done.has_fired());
        drop(release);
        assert!(releasing.of(id).is_none() && done.has_fired());
    }
}
