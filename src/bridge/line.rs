//! The line between a reverse-connected server's connection, which a shard has, and the bridge: two
//! bounded queues, and a way for either thread to wake the other.
//!
//! Knows nothing of MCP or WebSockets. Neither end waits for the other: the shard reads no more
//! from its connection while its messages find no room, the bridge's tasks wait for room with a
//! limit. Whichever end goes, the other hears of it at once.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

/// Messages that wait in one direction.
const MESSAGES_MAX: usize = 64;
/// Their bytes. One that is longer waits alone.
const BYTES_MAX: usize = 4 << 20;
/// Between two tries to wake a shard that has too many orders waiting, and how many there are.
const WAKE_AGAIN: (Duration, u32) = (Duration::from_millis(10), 1_000);

/// Wakes the shard with this number for the line with that one; false: it takes no order now.
pub type Waker = Box<dyn Fn(u16, u64) -> bool + Send + Sync>;

/// A message and its place in a queue.
type Parcel = (Vec<u8>, OwnedSemaphorePermit);

/// What both ends have.
struct Shared {
    shard: u16,
    number: u64,
    waker: Arc<Waker>,
    /// The shard was woken and has not looked since.
    is_rung: AtomicBool,
    /// The shard has a message that finds no room.
    is_clogged: AtomicBool,
    /// The shard waits for the last call to be over.
    is_parting: AtomicBool,
    /// Calls the server is busy with.
    calls: AtomicUsize,
    /// The bridge has given the line up.
    is_over: AtomicBool,
}

impl Shared {
    fn wake(self: &Arc<Self>) {
        if self.is_rung.swap(true, Ordering::AcqRel) || (self.waker)(self.shard, self.number) {
            return;
        }
        // The runtime may be ending; so is the shard then.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let shared = self.clone();
        runtime.spawn(async move {
            for _ in 0..WAKE_AGAIN.1 {
                tokio::time::sleep(WAKE_AGAIN.0).await;
                if (shared.waker)(shared.shard, shared.number) {
                    return;
                }
            }
        });
    }
}

/// One direction's room and queue, at the end that fills it.
#[derive(Clone)]
struct Queue {
    sender: mpsc::Sender<Parcel>,
    room: Arc<Semaphore>,
}

impl Queue {
    fn new() -> (Self, mpsc::Receiver<Parcel>) {
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        let room = Arc::new(Semaphore::new(BYTES_MAX));
        (Self { sender, room }, receiver)
    }

    fn weight(message: &[u8]) -> u32 {
        // Within the bound, which fits.
        message.len().clamp(1, BYTES_MAX) as u32
    }

    fn offer(&self, message: Vec<u8>) -> Result<(), Vec<u8>> {
        let room = self.room.clone();
        let Ok(permit) = room.try_acquire_many_owned(Self::weight(&message)) else {
            return Err(message);
        };
        self.sender
            .try_send((message, permit))
            .map_err(|error| error.into_inner().0)
    }
}

/// What comes to the shard.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// A message for the server.
    Message(Vec<u8>),
    /// Nothing for now.
    Nothing,
    /// The bridge does not want the server any more.
    Over,
}

/// The shard's end. Dropping it tells the bridge that the server is gone.
pub struct Line {
    shared: Arc<Shared>,
    to_bridge: Queue,
    from_bridge: RefCell<mpsc::Receiver<Parcel>>,
    /// What has found no room yet, in order: no more than one read of a connection brings.
    unsent: RefCell<std::collections::VecDeque<Vec<u8>>>,
    is_parting: Cell<bool>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("number", &self.shared.number)
            .finish_non_exhaustive()
    }
}

impl Line {
    /// Its number in the process: what the shard is woken with.
    pub fn number(&self) -> u64 {
        self.shared.number
    }

    /// The shard looks: from here on it is woken again.
    pub fn look(&self) {
        self.shared.is_rung.store(false, Ordering::Release);
    }

    /// What the bridge has to say.
    pub fn take(&self) -> Taken {
        if let Ok((message, _room)) = self.from_bridge.borrow_mut().try_recv() {
            return Taken::Message(message);
        }
        match self.shared.is_over.load(Ordering::Acquire) {
            true => Taken::Over,
            false => Taken::Nothing,
        }
    }

    /// Hands a message of the server over, or keeps it until there is room.
    pub fn say(&self, message: Vec<u8>) {
        self.unsent.borrow_mut().push_back(message);
        self.is_clogged();
    }

    /// Whether messages wait for room; then the shard is woken when there is some, and should read
    /// no more.
    pub fn is_clogged(&self) -> bool {
        let mut unsent = self.unsent.borrow_mut();
        let mut is_warned = false;
        while let Some(message) = unsent.pop_front() {
            let Err(message) = self.to_bridge.offer(message) else {
                continue;
            };
            if self.to_bridge.sender.is_closed() {
                // Nobody will hear it; the line's end is told by other means.
                unsent.clear();
                return false;
            }
            unsent.push_front(message);
            if is_warned {
                return true;
            }
            // Said before the second try: room that comes after it is told.
            self.shared.is_clogged.store(true, Ordering::SeqCst);
            is_warned = true;
        }
        false
    }

    /// Whether the server is busy with no call. From the first time on the shard is woken when that
    /// becomes so.
    pub fn is_idle(&self) -> bool {
        if !self.is_parting.replace(true) {
            self.shared.is_parting.store(true, Ordering::SeqCst);
        }
        self.shared.calls.load(Ordering::SeqCst) == 0 && self.unsent.borrow().is_empty()
    }
}

/// What the bridge hears of the server, until it is gone.
pub(super) struct Hearing {
    shared: Arc<Shared>,
    receiver: mpsc::Receiver<Parcel>,
}

impl Hearing {
    /// The next message; `None`: the server is gone.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        let (message, room) = self.receiver.recv().await?;
        drop(room);
        if self.shared.is_clogged.swap(false, Ordering::SeqCst) {
            self.shared.wake();
        }
        Some(message)
    }
}

/// Sends messages to the server; holds nothing open.
#[derive(Clone)]
pub(super) struct Speech {
    shared: Arc<Shared>,
    queue: Queue,
}

impl Speech {
    /// Sends a message, when there is room; false: the server is gone.
    pub(super) async fn send(&self, message: Vec<u8>) -> bool {
        let room = self.queue.room.clone();
        let weight = Queue::weight(&message);
        let Ok(permit) = room.acquire_many_owned(weight).await else {
            return false;
        };
        let is_sent = self.queue.sender.send((message, permit)).await.is_ok();
        if is_sent {
            self.shared.wake();
        }
        is_sent
    }

    /// Says how many calls the server is busy with.
    pub(super) fn set_calls(&self, count: usize) {
        self.shared.calls.store(count, Ordering::SeqCst);
        if count == 0 && self.shared.is_parting.load(Ordering::SeqCst) {
            self.shared.wake();
        }
    }
}

/// The bridge's end. Dropping it has the shard end the connection.
pub struct FarEnd {
    speech: Speech,
}

impl std::fmt::Debug for FarEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FarEnd")
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}

impl FarEnd {
    /// The line's number.
    pub(super) fn number(&self) -> u64 {
        self.speech.shared.number
    }

    /// Its way to the server.
    pub(super) fn speech(&self) -> Speech {
        self.speech.clone()
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.speech.shared.is_over.store(true, Ordering::Release);
        self.speech.shared.wake();
    }
}

/// Both ends of the line with this number, of a connection that the shard has.
pub(super) fn open(shard: u16, number: u64, waker: Arc<Waker>) -> (Line, FarEnd, Hearing) {
    let shared = Arc::new(Shared {
        shard,
        number,
        waker,
        is_rung: AtomicBool::new(false),
        is_clogged: AtomicBool::new(false),
        is_parting: AtomicBool::new(false),
        calls: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    });
    let (to_bridge, receiver) = Queue::new();
    let (queue, from_bridge) = Queue::new();
    let line = Line {
        shared: shared.clone(),
        to_bridge,
        from_bridge: RefCell::new(from_bridge),
        unsent: RefCell::default(),
        is_parting: Cell::new(false),
    };
    let hearing = Hearing {
        shared: shared.clone(),
        receiver,
    };
    let speech = Speech { shared, queue };
    (line, FarEnd { speech }, hearing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> (Line, FarEnd, Hearing, Arc<AtomicUsize>) {
        let rung = Arc::new(AtomicUsize::new(0));
        let counted = rung.clone();
        let waker: Waker = Box::new(move |shard, number| {
            assert_eq!((shard, number), (3, 7));
            counted.fetch_add(1, Ordering::SeqCst);
            true
        });
        let (line, far, hearing) = open(3, 7, Arc::new(waker));
        (line, far, hearing, rung)
    }

    #[tokio::test]
    async fn a_shard_is_woken_once_until_it_looks() {
        let (line, far, _hearing, rung) = opened();
        assert!(far.speech().send(b"a".to_vec()).await);
        assert!(far.speech().send(b"b".to_vec()).await);
        assert_eq!(rung.load(Ordering::SeqCst), 1);
        line.look();
        assert_eq!(line.take(), Taken::Message(b"a".to_vec()));
        assert_eq!(line.take(), Taken::Message(b"b".to_vec()));
        assert_eq!(line.take(), Taken::Nothing);
        far.speech().send(b"c".to_vec()).await;
        drop(far);
        assert_eq!(rung.load(Ordering::SeqCst), 2);
        assert_eq!(line.take(), Taken::Message(b"c".to_vec()));
        assert_eq!(line.take(), Taken::Over);
    }

    #[tokio::test]
    async fn what_finds_no_room_waits_in_order_and_room_is_told() {
        let (line, _far, mut hearing, rung) = opened();
        line.say(vec![b'x'; BYTES_MAX + 1]);
        assert!(!line.is_clogged(), "a long one travels alone");
        line.say(b"a".to_vec());
        line.say(b"b".to_vec());
        assert!(line.is_clogged());
        assert_eq!(rung.load(Ordering::SeqCst), 0);
        assert_eq!(
            hearing.next().await.map(|text| text.len()),
            Some(BYTES_MAX + 1)
        );
        assert_eq!(rung.load(Ordering::SeqCst), 1);
        assert!(!line.is_clogged());
        assert_eq!(hearing.next().await, Some(b"a".to_vec()));
        assert_eq!(hearing.next().await, Some(b"b".to_vec()));
        for _ in 0..=MESSAGES_MAX {
            line.say(b"c".to_vec());
        }
        assert!(line.is_clogged(), "messages are bounded, too");
        drop(line);
        for _ in 0..MESSAGES_MAX {
            assert!(hearing.next().await.is_some());
        }
        assert_eq!(hearing.next().await, None);
    }

    #[test]
    fn a_parting_shard_hears_of_the_last_call() {
        let (line, far, _hearing, rung) = opened();
        far.speech().set_calls(1);
        assert!(!line.is_idle());
        far.speech().set_calls(0);
        assert!(line.is_idle() && rung.load(Ordering::SeqCst) == 1);
    }
}
