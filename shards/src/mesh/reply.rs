//! The two ends of a forwarded call's reply: the owner writes, the shard with the client reads.
//!
//! Each end says what it does by one message; dropping an end tells the other one.

use std::rc::Rc;

use super::{
    Port,
    lane::{End, Incoming, Outgoing},
    message::Message,
};
use crate::ShardId;

/// The reply to a forwarded call was cut off: the owner's request failed half-way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted;

/// The shard that asked has given up: nobody reads the reply any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Where the owner writes the reply of a forwarded call. Dropping it without `end` aborts it.
#[derive(Debug)]
pub struct ReplySink<R: 'static> {
    pub(super) port: Port<R>,
    pub(super) peer: ShardId,
    pub(super) slot: u32,
    pub(super) call: Rc<Incoming>,
    pub(super) has_ended: bool,
}

impl<R: 'static> ReplySink<R> {
    async fn credit(&self) -> Result<(), Gone> {
        while self.call.credits.get() == 0 {
            if self.call.is_cancelled.get() {
                return Err(Gone);
            }
            self.call.changed.wait().await;
        }
        if self.call.is_cancelled.get() {
            return Err(Gone);
        }
        self.call.credits.set(self.call.credits.get() - 1);
        Ok(())
    }

    /// Sends a part of the reply; waits while [`WINDOW`](super::WINDOW) parts are under way.
    pub async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Gone> {
        self.credit().await?;
        self.port.send(
            self.peer,
            Message::Chunk {
                slot: self.slot,
                bytes,
            },
        );
        Ok(())
    }

    /// Sends the last part (it may be empty) and ends the reply.
    pub async fn end(mut self, bytes: Vec<u8>) -> Result<(), Gone> {
        self.credit().await?;
        self.close(Message::Last {
            slot: self.slot,
            bytes,
        });
        Ok(())
    }

    /// Waits until the caller gives up. Dropping the wait loses nothing.
    pub async fn cancelled(&self) {
        while !self.call.is_cancelled.get() {
            self.call.changed.wait().await;
        }
    }

    fn close(&mut self, message: Message<R>) {
        self.has_ended = true;
        if let Some(lane) = self.port.lane(self.peer) {
            lane.close_incoming(self.slot);
        }
        self.port.send(self.peer, message);
    }
}

impl<R: 'static> Drop for ReplySink<R> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.close(Message::Aborted { slot: self.slot });
        }
    }
}

/// The reply of a call this shard forwarded. Dropping it cancels the call.
#[derive(Debug)]
pub struct ReplyStream<R: 'static> {
    pub(super) port: Port<R>,
    pub(super) peer: ShardId,
    pub(super) slot: u32,
    pub(super) call: Rc<Outgoing>,
}

impl<R: 'static> ReplyStream<R> {
    /// The next part, `None` at the end. Give each part's buffer back when it is written: that is
    /// what lets the owner send more.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Aborted> {
        loop {
            if let Some(bytes) = self.call.chunks.borrow_mut().pop_front() {
                return Ok(Some(bytes));
            }
            match self.call.end.get() {
                Some(End::Complete) => return Ok(None),
                Some(End::Aborted) => return Err(Aborted),
                None => self.call.arrived.wait().await,
            }
        }
    }

    /// Whether the part just taken was the last one.
    pub fn is_at_end(&self) -> bool {
        self.call.end.get() == Some(End::Complete) && self.call.chunks.borrow().is_empty()
    }

    /// Gives a part's buffer back to the shard that made it, with the credit for one more part.
    /// After the end there is no credit to send, and for its buffer alone the owner is not woken:
    /// it stays here, as the request's buffer stayed there.
    pub fn give_back(&self, buffer: Vec<u8>) {
        if self.call.end.get().is_some() {
            self.port.inner.buffers.put(buffer);
        } else {
            let slot = self.slot;
            self.port.send(self.peer, Message::Credit { slot, buffer });
        }
    }
}

impl<R: 'static> Drop for ReplyStream<R> {
    fn drop(&mut self) {
        if self.call.end.get().is_none() {
            self.port
                .send(self.peer, Message::Cancel { slot: self.slot });
        }
    }
}
