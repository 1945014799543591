//! What this shard sends: connections and calls at once or not at all, everything that credits and
//! call slots bound at once or later. Doorbells are rung once a turn.

use super::{
    Port,
    lane::Lane,
    message::{Message, MovedSocket},
    reply::ReplyStream,
};
use crate::ShardId;

impl<R: 'static> Port<R> {
    /// Sends a connection to its owner. Given back when the ring is full: serve it here.
    pub fn hand_over(&self, owner: ShardId, socket: MovedSocket) -> Result<(), MovedSocket> {
        let Some(lane) = self.lane(owner) else {
            return Err(socket);
        };
        match self.try_send(owner, lane, Message::Socket(Box::new(socket))) {
            Ok(()) => {
                self.inner.counters.handed_over.add(1);
                Ok(())
            }
            Err(Message::Socket(socket)) => Err(*socket),
            Err(_) => unreachable!("a refused message comes back as it was"),
        }
    }

    /// Sends a request to its owner. Given back when the ring or its call slots are full: answer
    /// that the service is busy.
    pub fn call(&self, owner: ShardId, request: R) -> Result<ReplyStream<R>, R> {
        let Some(lane) = self.lane(owner) else {
            return Err(request);
        };
        let Some(slot) = lane.claim_slot() else {
            self.inner.counters.ring_full.add(1);
            return Err(request);
        };
        match self.try_send(owner, lane, Message::Call { slot, request }) {
            Ok(()) => {
                self.inner.counters.forwarded.add(1);
                Ok(ReplyStream {
                    port: self.clone(),
                    peer: owner,
                    slot,
                    call: lane.open_outgoing(slot),
                })
            }
            Err(Message::Call { request, .. }) => {
                lane.free_slot(slot);
                Err(request)
            }
            Err(_) => unreachable!("a refused message comes back as it was"),
        }
    }

    /// Sends now or not at all.
    fn try_send(
        &self,
        peer: ShardId,
        lane: &Lane<R>,
        message: Message<R>,
    ) -> Result<(), Message<R>> {
        let result = lane.try_push(message);
        match &result {
            Ok(()) => self.mark_dirty(peer, lane),
            Err(_) => self.inner.counters.ring_full.add(1),
        }
        result
    }

    /// Sends now or when the ring has room: only for messages that credits and call slots bound.
    pub(super) fn send(&self, peer: ShardId, message: Message<R>) {
        let Some(lane) = self.lane(peer) else { return };
        lane.push(message);
        self.mark_dirty(peer, lane);
    }

    pub(super) fn mark_dirty(&self, peer: ShardId, lane: &Lane<R>) {
        if !lane.is_dirty.replace(true) {
            self.inner.dirty.borrow_mut().push(peer);
            self.inner.turn_end.notify();
        }
    }

    /// Rings the doorbells of all peers that were sent something, once a turn: it is woken by the
    /// first message and runs behind the tasks that were ready then. Runs for the shard's life.
    pub(crate) async fn ring_bells(self) {
        while !self.inner.has_ended.get() {
            self.inner.turn_end.wait().await;
            let dirty = std::mem::take(&mut *self.inner.dirty.borrow_mut());
            for peer in &dirty {
                if let Some(lane) = self.lane(*peer) {
                    lane.is_dirty.set(false);
                    self.ring(*peer);
                }
            }
        }
    }

    /// Wakes a peer that sleeps.
    pub(super) fn ring(&self, peer: ShardId) {
        if self.inner.bells[usize::from(peer)].ring() {
            self.inner.counters.doorbells.add(1);
        }
    }
}
