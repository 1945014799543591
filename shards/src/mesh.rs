//! All rings between the shards, and what travels on them: sockets that move to their owner, and
//! requests forwarded to it whose replies stream back.
//!
//! A shard drains its inbound rings without ever waiting, so a full ring always empties. Replies
//! are bounded by credits ([`WINDOW`] chunks a call, [`CALLS_MAX`] calls a lane) and wait in a
//! side queue of the same bound when the ring is full; calls and sockets are refused instead.
//! Buffers go back to the shard that allocated them.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    EngineCounters, Parcel, ShardId,
    bell::{Bell, Flag},
    buffer::BufferPool,
    notify::Notify,
    ring::{Consumer, Producer, ring},
    task::{BUSY_TURNS_MAX, STEP_BACK, guard_call, sleep, spawn},
};

/// Reply chunks of one call that may be under way before the reader has written one.
pub const WINDOW: u32 = 4;
/// Forwarded calls from one shard to another that may be open at a time.
pub const CALLS_MAX: usize = 256;
/// Messages taken from one ring before the next one has its turn.
const BATCH: usize = 32;

/// Slots of a ring: 1024 up to four shards, 256 up to sixteen, 64 above, to bound the mesh's size.
fn ring_slots(shards: u16) -> usize {
    match shards {
        0..=4 => 1024,
        5..=16 => 256,
        _ => 64,
    }
}

/// A connection on its way to the shard that owns its session.
#[derive(Debug)]
pub struct MovedSocket {
    /// The connection.
    pub parcel: Parcel,
    /// Bytes already read from it, in order; the receiver starts with them.
    pub bytes: Vec<u8>,
    /// Protocol state that belongs to the connection (a TLS session), opaque to this crate.
    pub baggage: Option<Box<dyn std::any::Any + Send>>,
    /// The client's address.
    pub peer: SocketAddr,
    /// Which listener group accepted it.
    pub listener: u8,
    /// Times it has moved.
    pub moves: u8,
}

/// What comes in over the rings for the shard's own code to handle.
#[derive(Debug)]
pub enum Arrival<R: 'static> {
    /// A connection this shard now owns.
    Socket(MovedSocket),
    /// A request to serve for another shard.
    Call {
        /// The shard that has the client's connection.
        from: ShardId,
        /// The request.
        request: R,
        /// Where its reply goes.
        reply: ReplySink<R>,
    },
}

#[derive(Debug)]
enum Message<R> {
    Socket(Box<MovedSocket>),
    Call { slot: u32, request: R },
    Chunk { slot: u32, bytes: Vec<u8> },
    Last { slot: u32, bytes: Vec<u8> },
    Aborted { slot: u32 },
    Credit { slot: u32, buffer: Vec<u8> },
    Return { buffer: Vec<u8> },
    Cancel { slot: u32 },
}

/// A call this shard made.
#[derive(Debug, Default)]
struct Outgoing {
    chunks: RefCell<VecDeque<Vec<u8>>>,
    end: Cell<Option<End>>,
    arrived: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Aborted,
}

/// A call this shard serves.
#[derive(Debug)]
struct Incoming {
    credits: Cell<u32>,
    is_cancelled: Cell<bool>,
    changed: Notify,
}

/// The two rings between this shard and one other.
#[derive(Debug)]
struct Lane<R> {
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
    is_dirty: Cell<bool>,
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
    lanes: Vec<Option<Lane<R>>>,
    bells: Arc<[Bell]>,
    counters: Arc<EngineCounters>,
    buffers: BufferPool,
    dirty: RefCell<Vec<ShardId>>,
    turn_end: Notify,
    has_ended: Cell<bool>,
}

/// What a shard thread needs to make its [`Port`]: the rings' ends, still `Send`.
pub(crate) struct PortSeed<R> {
    me: ShardId,
    lanes: Vec<Option<LaneSeed<R>>>,
    bells: Arc<[Bell]>,
}

struct LaneSeed<R> {
    sender: Producer<Message<R>>,
    receiver: Consumer<Message<R>>,
    is_starved: Arc<Flag>,
    peer_is_starved: Arc<Flag>,
}

/// Makes the mesh of `shards` shards: a seed for each, and the doorbells.
pub(crate) fn mesh<R: Send>(shards: u16) -> (Vec<PortSeed<R>>, Arc<[Bell]>) {
    let count = usize::from(shards);
    let bells: Arc<[Bell]> = (0..count).map(|_| Bell::new()).collect();
    let mut lanes: Vec<Vec<Option<LaneSeed<R>>>> = (0..count)
        .map(|_| (0..count).map(|_| None).collect())
        .collect();
    for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
        let (a_sends, b_receives) = ring(ring_slots(shards));
        let (b_sends, a_receives) = ring(ring_slots(shards));
        let a_starved = Arc::new(Flag::new());
        let b_starved = Arc::new(Flag::new());
        lanes[a][b] = Some(LaneSeed {
            sender: a_sends,
            receiver: a_receives,
            is_starved: a_starved.clone(),
            peer_is_starved: b_starved.clone(),
        });
        lanes[b][a] = Some(LaneSeed {
            sender: b_sends,
            receiver: b_receives,
            is_starved: b_starved,
            peer_is_starved: a_starved,
        });
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
        let lanes = self
            .lanes
            .into_iter()
            .map(|seed| {
                seed.map(|seed| Lane {
                    sender: RefCell::new(seed.sender),
                    receiver: RefCell::new(seed.receiver),
                    waiting: RefCell::default(),
                    is_starved: seed.is_starved,
                    peer_is_starved: seed.peer_is_starved,
                    outgoing: RefCell::default(),
                    outgoing_free: RefCell::default(),
                    incoming: RefCell::default(),
                    is_dirty: Cell::new(false),
                })
            })
            .collect();
        Port {
            inner: Rc::new(Inner {
                me: self.me,
                lanes,
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

impl<R: 'static> Port<R> {
    fn lane(&self, peer: ShardId) -> Option<&Lane<R>> {
        self.inner
            .lanes
            .get(usize::from(peer))
            .and_then(Option::as_ref)
    }

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
        let slot = match lane.outgoing_free.borrow_mut().pop() {
            Some(slot) => slot,
            None if lane.outgoing.borrow().len() < CALLS_MAX => {
                let mut outgoing = lane.outgoing.borrow_mut();
                outgoing.push(None);
                // Bounded by CALLS_MAX.
                (outgoing.len() - 1) as u32
            }
            None => {
                self.inner.counters.ring_full.add(1);
                return Err(request);
            }
        };
        match self.try_send(owner, lane, Message::Call { slot, request }) {
            Ok(()) => {
                let call = Rc::new(Outgoing::default());
                lane.outgoing.borrow_mut()[slot as usize] = Some(call.clone());
                self.inner.counters.forwarded.add(1);
                Ok(ReplyStream {
                    port: self.clone(),
                    peer: owner,
                    slot,
                    call,
                })
            }
            Err(Message::Call { request, .. }) => {
                lane.outgoing_free.borrow_mut().push(slot);
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
        let result = if lane.waiting.borrow().is_empty() {
            lane.sender.borrow_mut().push(message)
        } else {
            Err(message)
        };
        match &result {
            Ok(()) => self.mark_dirty(peer, lane),
            Err(_) => self.inner.counters.ring_full.add(1),
        }
        result
    }

    /// Sends now or when the ring has room: only for messages that credits and call slots bound.
    fn send(&self, peer: ShardId, message: Message<R>) {
        let Some(lane) = self.lane(peer) else { return };
        lane.waiting.borrow_mut().push_back(message);
        self.flush(lane);
        self.mark_dirty(peer, lane);
    }

    /// Moves waiting messages into the ring; asks to be woken when it does not take all.
    fn flush(&self, lane: &Lane<R>) {
        let mut waiting = lane.waiting.borrow_mut();
        let mut sender = lane.sender.borrow_mut();
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
            lane.is_starved.raise();
            if sender.is_full() {
                return;
            }
        }
    }

    fn mark_dirty(&self, peer: ShardId, lane: &Lane<R>) {
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
                    if self.inner.bells[usize::from(*peer)].ring() {
                        self.inner.counters.doorbells.add(1);
                    }
                }
            }
        }
    }

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
                has_more = outside() || self.has_work();
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

    /// Ends the two tasks above. The other shards' open calls to this one must be over: who calls
    /// it after this waits for ever.
    pub(crate) fn end(&self) {
        self.inner.has_ended.set(true);
        self.inner.bells[usize::from(self.inner.me)].ring();
        self.inner.turn_end.notify();
    }

    /// Whether a ring has something for us, or room again for what waits. The second is as needed
    /// as the first: a peer that made the room before the bell was armed woke nobody.
    fn has_work(&self) -> bool {
        self.inner.lanes.iter().flatten().any(|lane| {
            !lane.receiver.borrow_mut().is_empty()
                || (!lane.waiting.borrow().is_empty() && !lane.sender.borrow_mut().is_full())
        })
    }

    /// One turn over all rings; true when one of them may hold more.
    fn drain(&self, handle: &mut impl FnMut(Arrival<R>)) -> bool {
        let mut has_more = false;
        for (peer, lane) in self.inner.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            // Bounded by the number of shards.
            let peer = peer as ShardId;
            let mut taken = 0;
            while taken < BATCH {
                let Some(message) = lane.receiver.borrow_mut().pop() else {
                    break;
                };
                taken += 1;
                // A panic in the shard's own code costs what it was about, not the inbox.
                guard_call(|| self.take(peer, lane, message, handle));
            }
            has_more |= taken == BATCH;
            if taken > 0
                && lane.peer_is_starved.take()
                && self.inner.bells[usize::from(peer)].ring()
            {
                self.inner.counters.doorbells.add(1);
            }
            if !lane.waiting.borrow().is_empty() {
                self.flush(lane);
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
                let call = Rc::new(Incoming {
                    credits: Cell::new(WINDOW),
                    is_cancelled: Cell::new(false),
                    changed: Notify::default(),
                });
                {
                    let mut incoming = lane.incoming.borrow_mut();
                    let index = slot as usize;
                    if incoming.len() <= index {
                        incoming.resize_with(index + 1, || None);
                    }
                    debug_assert!(incoming[index].is_none(), "the caller freed this slot");
                    incoming[index] = Some(call.clone());
                }
                let reply = ReplySink {
                    port: self.clone(),
                    peer,
                    slot,
                    call,
                    has_ended: false,
                };
                handle(Arrival::Call {
                    from: peer,
                    request,
                    reply,
                });
            }
            Message::Chunk { slot, bytes } => {
                if let Some(call) = outgoing(lane, slot) {
                    call.chunks.borrow_mut().push_back(bytes);
                    debug_assert!(call.chunks.borrow().len() <= WINDOW as usize);
                    call.arrived.notify();
                }
            }
            Message::Last { slot, bytes } => {
                if let Some(call) = outgoing(lane, slot) {
                    call.chunks.borrow_mut().push_back(bytes);
                    self.finish(lane, slot, &call, End::Complete);
                }
            }
            Message::Aborted { slot } => {
                if let Some(call) = outgoing(lane, slot) {
                    self.finish(lane, slot, &call, End::Aborted);
                }
            }
            Message::Credit { slot, buffer } => {
                self.inner.buffers.put(buffer);
                if let Some(Some(call)) = lane.incoming.borrow().get(slot as usize) {
                    call.credits.set(call.credits.get() + 1);
                    call.changed.notify();
                }
            }
            Message::Return { buffer } => self.inner.buffers.put(buffer),
            Message::Cancel { slot } => {
                if let Some(Some(call)) = lane.incoming.borrow().get(slot as usize) {
                    call.is_cancelled.set(true);
                    call.changed.notify();
                }
            }
        }
    }

    fn finish(&self, lane: &Lane<R>, slot: u32, call: &Rc<Outgoing>, end: End) {
        lane.outgoing.borrow_mut()[slot as usize] = None;
        lane.outgoing_free.borrow_mut().push(slot);
        call.end.set(Some(end));
        call.arrived.notify();
    }
}

fn outgoing<R>(lane: &Lane<R>, slot: u32) -> Option<Rc<Outgoing>> {
    lane.outgoing
        .borrow()
        .get(slot as usize)
        .and_then(Clone::clone)
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

/// The reply to a forwarded call was cut off: the owner's request failed half-way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted;

/// The shard that asked has given up: nobody reads the reply any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Where the owner writes the reply of a forwarded call. Dropping it without `end` aborts it.
#[derive(Debug)]
pub struct ReplySink<R: 'static> {
    port: Port<R>,
    peer: ShardId,
    slot: u32,
    call: Rc<Incoming>,
    has_ended: bool,
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

    /// Sends a part of the reply; waits while [`WINDOW`] parts are under way.
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
            lane.incoming.borrow_mut()[self.slot as usize] = None;
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
    port: Port<R>,
    peer: ShardId,
    slot: u32,
    call: Rc<Outgoing>,
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
    pub fn give_back(&self, buffer: Vec<u8>) {
        let message = match self.call.end.get() {
            Some(_) => Message::Return { buffer },
            None => Message::Credit {
                slot: self.slot,
                buffer,
            },
        };
        self.port.send(self.peer, message);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriverKind, driver::ShardRuntime, task::yield_now};

    /// Ports of `shards` shards, all on this thread.
    fn ports(shards: u16) -> Vec<Port<u32>> {
        let (seeds, _) = mesh(shards);
        let plant = |seed: PortSeed<u32>| seed.plant(Arc::default(), BufferPool::default());
        seeds.into_iter().map(plant).collect()
    }

    fn on_a_runtime(test: impl Future<Output = ()>) {
        ShardRuntime::build(DriverKind::Epoll)
            .unwrap()
            .block_on(test);
    }

    async fn turns() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    /// The peer makes room after we found the ring full and before our bell is armed, so it wakes
    /// nobody: only our own last look can find the room.
    #[test]
    fn room_made_before_the_bell_is_armed_is_found() {
        on_a_runtime(async {
            let ports = ports(3);
            let [full, caller, ours] = [0, 1, 2].map(|id: usize| ports[id].clone());
            for _ in 0..ring_slots(3) + 5 {
                ours.send(0, Message::Return { buffer: Vec::new() });
            }
            let waiting = |port: &Port<u32>| port.lane(0).unwrap().waiting.borrow().len();
            assert_eq!(waiting(&ours), 5);
            let _reply = caller.call(2, 7).unwrap();
            // Lane 0 comes first: it is flushed, in vain, before the call of lane 1 is handled.
            let make_room = move |_: Arrival<u32>| while full.drain(&mut drop) {};
            spawn(ours.clone().take_in(make_room, || false));
            turns().await;
            assert_eq!(waiting(&ours), 0, "they wait although there is room");
        });
    }

    /// What waits keeps its order, and nothing overtakes it.
    #[test]
    fn a_call_does_not_overtake_what_waits() {
        on_a_runtime(async {
            let ports = ports(2);
            let credit = |slot| Message::Credit {
                slot,
                buffer: Vec::new(),
            };
            for slot in 0..ring_slots(2) as u32 + 2 {
                ports[0].send(1, credit(slot));
            }
            let lane = ports[1].lane(0).unwrap();
            assert!(matches!(
                lane.receiver.borrow_mut().pop(),
                Some(Message::Credit { slot: 0, .. })
            ));
            // There is room for one, but two wait.
            assert_eq!(ports[0].call(1, 9).err(), Some(9));
            ports[0].flush(ports[0].lane(1).unwrap());
            for expected in 1..ring_slots(2) as u32 + 1 {
                let next = lane.receiver.borrow_mut().pop();
                assert!(matches!(next, Some(Message::Credit { slot, .. }) if slot == expected));
            }
            assert!(lane.receiver.borrow_mut().pop().is_none());
            assert_eq!(ports[0].call(1, 9).err(), Some(9), "one waits still");
            ports[0].flush(ports[0].lane(1).unwrap());
            assert!(ports[0].call(1, 9).is_ok());
        });
    }

    /// The owner's buffers go back to its pool, with the credit and after the end.
    #[test]
    fn buffers_return_to_the_shard_that_made_them() {
        on_a_runtime(async {
            let ports = ports(2);
            let mut reply = ports[0].call(1, 1).unwrap();
            let sink = Rc::new(Cell::new(None));
            let taken = sink.clone();
            ports[1].drain(&mut |arrival| {
                if let Arrival::Call { reply, .. } = arrival {
                    taken.set(Some(reply));
                }
            });
            let mut sink = sink.take().unwrap();
            // Known again by their capacities.
            let made = [5_000, 6_000].map(Vec::with_capacity);
            let [first, last] = made;
            sink.send(first).await.unwrap();
            sink.end(last).await.unwrap();
            ports[0].drain(&mut drop);
            while let Some(bytes) = reply.next().await.unwrap() {
                reply.give_back(bytes);
            }
            ports[1].drain(&mut drop);
            let mut back = [(); 2].map(|()| ports[1].inner.buffers.take().capacity());
            back.sort_unstable();
            assert_eq!(back, [5_000, 6_000]);
        });
    }
}
