//! The two rings between this shard and one other, what waits for room in them, and the calls open
//! over them. It moves messages and keeps the slots of calls; what a message means is not its
//! concern, and it wakes nobody.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
};

use super::{CALLS_MAX, WINDOW, message::Message};
use crate::{
    bell::Flag,
    notify::Notify,
    ring::{Consumer, Producer, ring},
};

/// A call this shard made.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Parts of the reply that came in and were not read yet.
    pub(super) chunks: RefCell<VecDeque<Vec<u8>>>,
    /// How the reply ended, once it has.
    pub(super) end: Cell<Option<End>>,
    /// Told of each part and of the end.
    pub(super) arrived: Notify,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With its last part.
    Complete,
    /// Half-way.
    Aborted,
}

/// A call this shard serves.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Parts that may be sent before the reader has written one.
    pub(super) credits: Cell<u32>,
    /// Nobody reads the reply any more.
    pub(super) is_cancelled: Cell<bool>,
    /// Told of each credit and of the cancellation.
    pub(super) changed: Notify,
}

/// The ends of a lane's rings on their way to the shard's thread.
pub(super) struct LaneSeed<R> {
    sender: Producer<Message<R>>,
    receiver: Consumer<Message<R>>,
    is_starved: Arc<Flag>,
    peer_is_starved: Arc<Flag>,
}

/// The two rings between this shard and one other.
#[derive(Debug)]
pub(super) struct Lane<R> {
    sender: RefCell<Producer<Message<R>>>,
    receiver: RefCell<Consumer<Message<R>>>,
    waiting: RefCell<VecDeque<Message<R>>>,
    /// Set by us when `waiting` is not empty: the peer rings us after it drained.
    is_starved: Arc<Flag>,
    /// The same flag of the other direction.
    peer_is_starved: Arc<Flag>,
    outgoing: RefCell<Vec<Option<Rc<Outgoing>>>>,
    outgoing_free: RefCell<Vec<u32>>,
    incoming: RefCell<Vec<Option<Rc<Incoming>>>>,
    /// Whether the peer was sent something and its bell was not rung yet.
    pub(super) is_dirty: Cell<bool>,
}

/// Makes the lane of two shards, a seed for each of them, with rings of `slots` messages.
pub(super) fn lane<R: Send>(slots: usize) -> (LaneSeed<R>, LaneSeed<R>) {
    let (a_sends, b_receives) = ring(slots);
    let (b_sends, a_receives) = ring(slots);
    let a_starved = Arc::new(Flag::new());
    let b_starved = Arc::new(Flag::new());
    let a = LaneSeed {
        sender: a_sends,
        receiver: a_receives,
        is_starved: a_starved.clone(),
        peer_is_starved: b_starved.clone(),
    };
    let b = LaneSeed {
        sender: b_sends,
        receiver: b_receives,
        is_starved: b_starved,
        peer_is_starved: a_starved,
    };
    (a, b)
}

impl<R> LaneSeed<R> {
    pub(super) fn plant(self) -> Lane<R> {
        Lane {
            sender: RefCell::new(self.sender),
            receiver: RefCell::new(self.receiver),
            waiting: RefCell::default(),
            is_starved: self.is_starved,
            peer_is_starved: self.peer_is_starved,
            outgoing: RefCell::default(),
            outgoing_free: RefCell::default(),
            incoming: RefCell::default(),
            is_dirty: Cell::new(false),
        }
    }
}

/// Messages.
impl<R> Lane<R> {
    /// Puts a message into the ring, or gives it back: nothing overtakes what waits.
    pub(super) fn try_push(&self, message: Message<R>) -> Result<(), Message<R>> {
        if self.waiting.borrow().is_empty() {
            self.sender.borrow_mut().push(message)
        } else {
            Err(message)
        }
    }

    /// Puts a message into the ring, behind all that waits, now or when there is room.
    pub(super) fn push(&self, message: Message<R>) {
        self.waiting.borrow_mut().push_back(message);
        self.flush();
    }

    /// Moves waiting messages into the ring; asks to be woken when it does not take all.
    pub(super) fn flush(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let mut sender = self.sender.borrow_mut();
        loop {
            while let Some(message) = waiting.pop_front() {
                if let Err(message) = sender.push(message) {
                    waiting.push_front(message);
                    break;
                }
            }
            if waiting.is_empty() {
                return;
            }
            // Either we see the room the peer made, or the peer sees the flag.
            self.is_starved.raise();
            if sender.is_full() {
                return;
            }
        }
    }

    /// The next message of the peer.
    pub(super) fn pop(&self) -> Option<Message<R>> {
        self.receiver.borrow_mut().pop()
    }

    /// Messages for the peer that wait for room.
    pub(super) fn arrived(&self) -> usize {
        self.receiver.borrow().waiting()
    }

    /// Messages that wait for room in the ring to the peer.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Whether the peer asked to be woken when there is room for what waits there. Asking again
    /// says no until it has asked again.
    pub(super) fn take_peer_is_starved(&self) -> bool {
        self.peer_is_starved.take()
    }

    /// The last look before this shard sleeps, its bell armed: whether the peer sent something, or
    /// there is room again for what waits. The flag is raised anew: the peer may have taken it for
    /// room that has been filled since, and then wakes nobody for the room it makes next.
    pub(super) fn has_work(&self) -> bool {
        if !self.receiver.borrow_mut().is_empty() {
            return true;
        }
        if self.waiting() == 0 {
            return false;
        }
        self.is_starved.raise();
        !self.sender.borrow_mut().is_full()
    }
}

/// Calls this shard makes.
impl<R> Lane<R> {
    /// A slot for a call; `None` while [`CALLS_MAX`] are open.
    pub(super) fn claim_slot(&self) -> Option<u32> {
        if let Some(slot) = self.outgoing_free.borrow_mut().pop() {
            return Some(slot);
        }
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.len() == CALLS_MAX {
            return None;
        }
        outgoing.push(None);
        // Bounded by CALLS_MAX.
        Some((outgoing.len() - 1) as u32)
    }

    /// Gives back a slot whose call was not sent.
    pub(super) fn free_slot(&self, slot: u32) {
        self.outgoing_free.borrow_mut().push(slot);
    }

    /// The call of a slot just claimed.
    pub(super) fn open_outgoing(&self, slot: u32) -> Rc<Outgoing> {
        let call = Rc::new(Outgoing::default());
        self.outgoing.borrow_mut()[slot as usize] = Some(call.clone());
        call
    }

    /// The open call of a slot.
    pub(super) fn outgoing(&self, slot: u32) -> Option<Rc<Outgoing>> {
        let outgoing = self.outgoing.borrow();
        outgoing.get(slot as usize).and_then(Clone::clone)
    }

    /// Ends a call; its slot is free from now on.
    pub(super) fn close_outgoing(&self, slot: u32, call: &Outgoing, end: End) {
        self.outgoing.borrow_mut()[slot as usize] = None;
        self.free_slot(slot);
        call.end.set(Some(end));
        call.arrived.notify();
    }
}

/// Calls this shard serves.
impl<R> Lane<R> {
    /// The call the peer just made in a slot of its choice.
    pub(super) fn open_incoming(&self, slot: u32) -> Rc<Incoming> {
        let call = Rc::new(Incoming {
            credits: Cell::new(WINDOW),
            is_cancelled: Cell::new(false),
            changed: Notify::default(),
        });
        let mut incoming = self.incoming.borrow_mut();
        let index = slot as usize;
        if incoming.len() <= index {
            incoming.resize_with(index + 1, || None);
        }
        debug_assert!(incoming[index].is_none(), "the caller freed this slot");
        incoming[index] = Some(call.clone());
        call
    }

    /// The open call of a slot.
    pub(super) fn incoming(&self, slot: u32) -> Option<Rc<Incoming>> {
        let incoming = self.incoming.borrow();
        incoming.get(slot as usize).and_then(Clone::clone)
    }

    /// Forgets a call whose reply has ended here.
    pub(super) fn close_incoming(&self, slot: u32) {
        self.incoming.borrow_mut()[slot as usize] = None;
    }
}
