//! What a session has to do with other nodes: how long Redis knows it for, who calls it from there.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use hashbrown::HashMap;
use shards::notify::Event;

use super::entry::EntryId;

/// The part of a session that concerns other nodes; idle while there are none.
#[derive(Debug)]
pub(in crate::connection_gateway) struct Shared {
    /// A renewal is due or under way, so no other one is asked for.
    pub(super) is_renewal_due: Cell<bool>,
    /// When it was renewed last, monotonic ms.
    pub(super) renewed_ms: Cell<u64>,
    /// Until when Redis has it for alive, monotonic ms.
    pub(super) safe_until: Cell<u64>,
    /// Metadata that its client, or a caller of this node, has given it and that are not being
    /// written yet.
    pub(super) change: RefCell<Option<Box<str>>>,
    /// Its metadata could not be written: they are to be, with the next renewal.
    pub(super) is_dirty: Cell<bool>,
    /// They are being written, until this happens.
    pub(super) writing: RefCell<Option<Rc<Event>>>,
    /// The last change of its metadata that is in them.
    pub(super) metadata_as_of: Cell<EntryId>,
    /// Requests from other nodes whose answers are outstanding, by their ids.
    pub(super) callers: RefCell<HashMap<Box<str>, Caller>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            is_renewal_due: Cell::new(false),
            renewed_ms: Cell::new(0),
            safe_until: Cell::new(u64::MAX),
            change: RefCell::default(),
            is_dirty: Cell::new(false),
            writing: RefCell::default(),
            metadata_as_of: Cell::default(),
            callers: RefCell::default(),
        }
    }
}

impl Shared {
    /// Until when others have the session for alive, monotonic ms.
    pub(in crate::connection_gateway) fn safe_until(&self) -> u64 {
        self.safe_until.get()
    }

    /// Whether a request of this id is outstanding for another node.
    pub(in crate::connection_gateway) fn has_caller(&self, request_id: &str) -> bool {
        self.callers.borrow().contains_key(request_id)
    }

    /// Whether any is.
    pub(in crate::connection_gateway) fn has_callers(&self) -> bool {
        !self.callers.borrow().is_empty()
    }

    /// Its metadata were replaced here. Said at once, so that no word of another node's that comes
    /// before they are written takes their place.
    pub(in crate::connection_gateway) fn changed(&self, metadata: &str) {
        *self.change.borrow_mut() = Some(metadata.into());
    }

    /// Whether there are metadata that Redis does not have and nobody is writing.
    pub(super) fn has_change(&self) -> bool {
        self.is_dirty.get() || self.change.borrow().is_some()
    }

    /// Takes them; `current` are those that the session shows.
    pub(super) fn take_change(
        &self,
        current: impl FnOnce() -> Option<Box<str>>,
    ) -> Option<Box<str>> {
        let was_dirty = self.is_dirty.replace(false);
        let change = self.change.take();
        change.or_else(|| was_dirty.then(|| current().unwrap_or_else(|| "{}".into())))
    }
}

/// Metadata are being written; dropped when they are, or will not be.
pub(super) struct Writing<'a> {
    shared: &'a Shared,
    written: Rc<Event>,
}

impl Shared {
    /// Lets others wait until what is given back is dropped.
    pub(super) fn begin_writing(&self) -> Writing<'_> {
        let written = Rc::new(Event::default());
        *self.writing.borrow_mut() = Some(written.clone());
        Writing {
            shared: self,
            written,
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        *self.shared.writing.borrow_mut() = None;
        self.written.fire();
    }
}

/// A request from another node.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) answers: Answers,
    pub(super) capability: Option<Box<str>>,
    /// When it is over by itself, monotonic ms.
    pub(super) until_ms: u64,
}

/// Where the answers go.
#[derive(Debug)]
pub(super) enum Answers {
    /// To an inbox, under the number of the call; the number of the next answer.
    Inbox {
        inbox: Rc<str>,
        call: u64,
        next: u64,
    },
    /// To the reply mailbox of the request, which a node of the original reads.
    ReplyMailbox,
}
