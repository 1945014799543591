//! All rings between the shards, and what travels on them: sockets that move to their owner, and
//! requests forwarded to it whose replies stream back.
//!
//! A shard drains its inbound rings without ever waiting, so a full ring always empties. Replies
//! are bounded by credits ([`WINDOW`] chunks a call, [`CALLS_MAX`] calls a lane) and wait in a
//! side queue of the same bound when the ring is full; calls and sockets are refused instead.
//! Buffers of parts go back with the credits; those of requests and of last parts change places.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

mod inbox;
mod lane;
mod message;
mod outbox;
mod reply;

pub use message::{Arrival, MovedSocket};
pub use reply::{Aborted, Gone, ReplySink, ReplyStream};

use crate::{EngineCounters, ShardId, bell::Bell, buffer::BufferPool, notify::Notify};
use lane::{Lane, LaneSeed, lane};

/// Reply chunks of one call that may be under way before the reader has written one.
pub const WINDOW: u32 = 4;
/// Forwarded calls from one shard to another that may be open at a time.
pub const CALLS_MAX: usize = 256;

/// Slots of a ring: 1024 up to four shards, 256 up to sixteen, 64 above, to bound the mesh's size.
fn ring_slots(shards: u16) -> usize {
    match shards {
        0..=4 => 1024,
        5..=16 => 256,
        _ => 64,
    }
}

/// One shard's place in the mesh. Cheap to clone: all clones are the same port.
#[derive(Debug)]
pub struct Port<R> {
    inner: Rc<Inner<R>>,
}

impl<R> Clone for Port<R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

#[derive(Debug)]
struct Inner<R> {
    me: ShardId,
    /// By peer; `None` at our own place.
    lanes: Vec<Option<Lane<R>>>,
    bells: Arc<[Bell]>,
    counters: Arc<EngineCounters>,
    buffers: BufferPool,
    /// Peers that were sent something since their bells were rung.
    dirty: RefCell<Vec<ShardId>>,
    turn_end: Notify,
    has_ended: Cell<bool>,
}

impl<R> Port<R> {
    fn lane(&self, peer: ShardId) -> Option<&Lane<R>> {
        self.inner
            .lanes
            .get(usize::from(peer))
            .and_then(Option::as_ref)
    }

    /// Messages of all peers that were not taken in yet.
    pub fn depth(&self) -> usize {
        let lanes = self.inner.lanes.iter().flatten();
        lanes.map(Lane::arrived).sum()
    }

    /// Ends the port's two tasks, `ring_bells` and `take_in`. The other shards' open calls to this
    /// one must be over: who calls it after this waits for ever.
    pub(crate) fn end(&self) {
        self.inner.has_ended.set(true);
        self.inner.bells[usize::from(self.inner.me)].ring();
        self.inner.turn_end.notify();
    }
}

/// What a shard thread needs to make its [`Port`]: the rings' ends, still `Send`.
pub(crate) struct PortSeed<R> {
    me: ShardId,
    lanes: Vec<Option<LaneSeed<R>>>,
    bells: Arc<[Bell]>,
}

/// Makes the mesh of `shards` shards: a seed for each, and the doorbells.
pub(crate) fn mesh<R: Send>(shards: u16) -> (Vec<PortSeed<R>>, Arc<[Bell]>) {
    let count = usize::from(shards);
    let bells: Arc<[Bell]> = (0..count).map(|_| Bell::new()).collect();
    let mut lanes: Vec<Vec<Option<LaneSeed<R>>>> = (0..count)
        .map(|_| (0..count).map(|_| None).collect())
        .collect();
    for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
        let (of_a, of_b) = lane(ring_slots(shards));
        lanes[a][b] = Some(of_a);
        lanes[b][a] = Some(of_b);
    }
    let seeds = (0..shards)
        .zip(lanes)
        .map(|(me, lanes)| PortSeed {
            me,
            lanes,
            bells: bells.clone(),
        })
        .collect();
    (seeds, bells)
}

impl<R> PortSeed<R> {
    pub(crate) fn plant(self, counters: Arc<EngineCounters>, buffers: BufferPool) -> Port<R> {
        let lanes = self.lanes.into_iter();
        Port {
            inner: Rc::new(Inner {
                me: self.me,
                lanes: lanes.map(|seed| seed.map(LaneSeed::plant)).collect(),
                bells: self.bells,
                counters,
                buffers,
                dirty: RefCell::default(),
                turn_end: Notify::default(),
                has_ended: Cell::new(false),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
