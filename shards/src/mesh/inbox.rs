//! What this shard receives: one task drains all inbound rings, a bounded batch of each in turn,
//! and never waits for anything but its doorbell. It sleeps only after a last look at every ring.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    Port, WINDOW,
    lane::{End, Lane},
    message::{Arrival, Message},
    reply::ReplySink,
};
use crate::{
    ShardId,
    task::{BUSY_TURNS_MAX, STEP_BACK, guard_call, sleep, spawn},
};

/// Messages taken from one ring before the next one has its turn.
const BATCH: usize = 32;

impl<R: 'static> Port<R> {
    /// Takes in what the other shards send, and calls `handle` for each arrival; `outside` is asked
    /// on every wake-up and says whether it still has work. Runs for the shard's life. Neither
    /// closure may wait.
    pub(crate) async fn take_in(
        self,
        mut handle: impl FnMut(Arrival<R>),
        mut outside: impl FnMut() -> bool,
    ) {
        let mut busy_turns = 0;
        poll_fn(move |cx| {
            let bell = &self.inner.bells[usize::from(self.inner.me)];
            bell.attach(cx.waker());
            bell.disarm();
            if self.inner.has_ended.get() {
                // What still came in is dropped, which aborts the calls in it.
                while self.drain(&mut drop) {}
                return Poll::Ready(());
            }
            let mut has_more = outside();
            has_more |= self.drain(&mut handle);
            if !has_more {
                bell.arm();
                has_more = outside() || self.inner.lanes.iter().flatten().any(Lane::has_work);
                if !has_more {
                    busy_turns = 0;
                    return Poll::Pending;
                }
                bell.disarm();
            }
            busy_turns += 1;
            if busy_turns == BUSY_TURNS_MAX {
                busy_turns = 0;
                // Whoever sends more ends the pause at once.
                bell.arm();
                wake_after(cx, STEP_BACK);
            } else {
                wake_later(cx);
            }
            Poll::Pending
        })
        .await;
    }

    /// One turn over all rings; true when one of them may hold more.
    pub(super) fn drain(&self, handle: &mut impl FnMut(Arrival<R>)) -> bool {
        let mut has_more = false;
        for (peer, lane) in self.inner.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            // Bounded by the number of shards.
            let peer = peer as ShardId;
            let mut taken = 0;
            while taken < BATCH {
                let Some(message) = lane.pop() else { break };
                taken += 1;
                // A panic in the shard's own code costs what it was about, not the inbox.
                guard_call(|| self.take(peer, lane, message, handle));
            }
            has_more |= taken == BATCH;
            if taken > 0 && lane.take_peer_is_starved() {
                self.ring(peer);
            }
            if lane.waiting() > 0 {
                lane.flush();
                self.mark_dirty(peer, lane);
            }
        }
        has_more
    }

    fn take(
        &self,
        peer: ShardId,
        lane: &Lane<R>,
        message: Message<R>,
        handle: &mut impl FnMut(Arrival<R>),
    ) {
        match message {
            Message::Socket(socket) => {
                self.inner.counters.received.add(1);
                handle(Arrival::Socket(*socket));
            }
            Message::Call { slot, request } => {
                self.inner.counters.served.add(1);
                let reply = ReplySink {
                    port: self.clone(),
                    peer,
                    slot,
                    call: lane.open_incoming(slot),
                    has_ended: false,
                };
                handle(Arrival::Call {
                    from: peer,
                    request,
                    reply,
                });
            }
            Message::Chunk { slot, bytes } => {
                if let Some(call) = lane.outgoing(slot) {
                    call.chunks.borrow_mut().push_back(bytes);
                    debug_assert!(call.chunks.borrow().len() <= WINDOW as usize);
                    call.arrived.notify();
                }
            }
            Message::Last { slot, bytes } => {
                if let Some(call) = lane.outgoing(slot) {
                    call.chunks.borrow_mut().push_back(bytes);
                    lane.close_outgoing(slot, &call, End::Complete);
                }
            }
            Message::Aborted { slot } => {
                if let Some(call) = lane.outgoing(slot) {
                    lane.close_outgoing(slot, &call, End::Aborted);
                }
            }
            Message::Credit { slot, buffer } => {
                self.inner.buffers.put(buffer);
                if let Some(call) = lane.incoming(slot) {
                    call.credits.set(call.credits.get() + 1);
                    call.changed.notify();
                }
            }
            Message::Cancel { slot } => {
                if let Some(call) = lane.incoming(slot) {
                    call.is_cancelled.set(true);
                    call.changed.notify();
                }
            }
        }
    }
}

/// Wakes the polled task behind all that are ready now; a plain self-wake would run it first and
/// starve them.
fn wake_later(cx: &Context<'_>) {
    let waker = cx.waker().clone();
    drop(monoio::spawn(async move { waker.wake() }));
}

/// Wakes the polled task after a pause in which the runtime can look at everything else.
fn wake_after(cx: &Context<'_>, pause: Duration) {
    let waker = cx.waker().clone();
    spawn(async move {
        sleep(pause).await;
        waker.wake();
    });
}
