//! What a session says in event streams: its GET streams, the streams of its calls, and the bounded
//! log a client resumes them from (`Last-Event-ID`, mcp.md 1.2).
//!
//! Each message goes to one stream only. An event id is `g3-7` or `c3-7`: the seventh event of the
//! third stream, a GET stream or a call's. What is kept for resuming is bounded in number, bytes
//! and age for a session, and in bytes for a shard; what fell out of the log is not replayed.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use shards::notify::{Event, Notify};
use smallvec::SmallVec;

use crate::http::Decimal;

/// Messages kept for a stream that does not read, or for a session without a stream; then the
/// oldest goes.
const MESSAGES_MAX: usize = 64;
/// Events of one session kept for resuming.
const EVENTS_MAX: usize = 256;
/// Bytes of them.
const EVENT_BYTES_MAX: usize = 256 * 1024;
/// How long they are kept, ms.
pub const EVENT_AGE_MS_MAX: u64 = 300_000;

/// Characters of the longest id: a letter, two numbers and a dash.
const TEXT_BYTES_MAX: usize = 24;

/// A stream of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamId {
    /// A GET stream.
    Get(u32),
    /// The stream of a call.
    Call(u32),
}

/// The id of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    /// Its stream.
    pub stream: StreamId,
    /// Its place there; 0 is before the first message.
    pub number: u32,
}

impl EventId {
    /// Reads an id; `None` when it is none of ours.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (stream, number) = text.get(1..)?.split_once('-')?;
        let stream = stream.parse().ok()?;
        let stream = match text.as_bytes()[0] {
            b'g' => StreamId::Get(stream),
            b'c' => StreamId::Call(stream),
            _ => return None,
        };
        let number = number.parse().ok()?;
        Some(Self { stream, number })
    }

    /// The id as clients see it. Each event has one, so it takes no memory of its own.
    pub fn text(self) -> SmallVec<[u8; TEXT_BYTES_MAX]> {
        let (kind, stream) = match self.stream {
            StreamId::Get(stream) => (b'g', stream),
            StreamId::Call(stream) => (b'c', stream),
        };
        let mut text = SmallVec::new();
        text.push(kind);
        text.extend_from_slice(Decimal::new(u64::from(stream)).as_bytes());
        text.push(b'-');
        text.extend_from_slice(Decimal::new(u64::from(self.number)).as_bytes());
        text
    }
}

/// Bytes kept for resuming by all sessions of a shard, and their bound.
#[derive(Debug)]
pub struct EventBudget {
    used: Cell<usize>,
    bytes_max: usize,
}

impl EventBudget {
    /// A budget of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            used: Cell::new(0),
            bytes_max,
        }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.get()
    }
}

/// The events kept for resuming.
#[derive(Debug, Default)]
struct Log {
    events: VecDeque<Logged>,
    bytes: usize,
}

#[derive(Debug)]
struct Logged {
    id: EventId,
    at_ms: u64,
    data: Rc<[u8]>,
}

impl Log {
    fn drop_oldest(&mut self, budget: &EventBudget) -> bool {
        let Some(event) = self.events.pop_front() else {
            return false;
        };
        self.bytes -= event.data.len();
        budget.used.set(budget.used.get() - event.data.len());
        true
    }
}

/// An open GET stream.
#[derive(Debug)]
pub struct GetStream {
    number: u32,
    last: Cell<u32>,
    messages: RefCell<VecDeque<Rc<[u8]>>>,
    is_closed: Cell<bool>,
    changed: Notify,
}

impl GetStream {
    /// The id of the event written last.
    pub fn last_id(&self) -> EventId {
        EventId {
            stream: StreamId::Get(self.number),
            number: self.last.get(),
        }
    }

    /// Whether nothing comes any more: the session has ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Waits until there is something to look at. Dropping the wait loses nothing.
    pub async fn changed(&self) {
        self.changed.wait().await;
    }
}

/// The stream of a call, while its backend may still speak.
#[derive(Debug)]
pub struct CallStream {
    number: u32,
    last: Cell<u32>,
    is_over: Cell<bool>,
    is_taken: Cell<bool>,
    changed: Notify,
}

impl CallStream {
    /// The id of the event written last.
    pub fn last_id(&self) -> EventId {
        EventId {
            stream: StreamId::Call(self.number),
            number: self.last.get(),
        }
    }

    /// Whether another connection has resumed it: the first one writes no more.
    pub fn is_taken(&self) -> bool {
        self.is_taken.get()
    }

    /// Whether the response, or an error in its place, was the last event.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Waits for a further event. One waiter at a time.
    pub async fn changed(&self) {
        self.changed.wait().await;
    }
}

/// A stream to go on with.
#[derive(Debug)]
pub enum Resumed {
    /// A call's; `None`: its backend has nothing more to say.
    Call(Option<Rc<CallStream>>),
    /// A GET stream.
    Get(Rc<GetStream>),
}

/// All streams of a session.
#[derive(Debug)]
pub struct Streams {
    log: RefCell<Log>,
    budget: Rc<EventBudget>,
    next: Cell<u32>,
    open: RefCell<Vec<Rc<GetStream>>>,
    calls: RefCell<Vec<Rc<CallStream>>>,
    /// Said while no GET stream was open: the next one starts with it.
    missed: RefCell<VecDeque<Rc<[u8]>>>,
    /// While a GET stream is open: fires when the last one closes.
    deserted: RefCell<Option<Rc<Event>>>,
}

impl Streams {
    /// The streams of a new session.
    pub fn new(budget: Rc<EventBudget>) -> Self {
        Self {
            log: RefCell::default(),
            budget,
            next: Cell::new(1),
            open: RefCell::default(),
            calls: RefCell::default(),
            missed: RefCell::default(),
            deserted: RefCell::default(),
        }
    }

    /// Opens a GET stream; `None` when `streams_max` are open already.
    pub fn open(&self, streams_max: usize) -> Option<Rc<GetStream>> {
        let number = self.next.replace(self.next.get().wrapping_add(1));
        self.open_numbered(number, 0, streams_max)
    }

    fn open_numbered(&self, number: u32, last: u32, streams_max: usize) -> Option<Rc<GetStream>> {
        let mut open = self.open.borrow_mut();
        if open.len() >= streams_max {
            return None;
        }
        self.deserted.borrow_mut().get_or_insert_default();
        let stream = Rc::new(GetStream {
            number,
            last: Cell::new(last),
            messages: RefCell::new(self.missed.take()),
            is_closed: Cell::new(false),
            changed: Notify::default(),
        });
        open.push(stream.clone());
        Some(stream)
    }

    /// Goes on with the stream of the event a client saw last. A stream that another connection
    /// still holds is taken from it: its client says that it is gone.
    pub fn resume(&self, seen: EventId, streams_max: usize) -> Option<Resumed> {
        match seen.stream {
            StreamId::Call(number) => {
                let calls = self.calls.borrow();
                let found = calls.iter().find(|call| call.number == number).cloned();
                if let Some(call) = &found {
                    call.is_taken.set(true);
                    call.changed.notify();
                }
                Some(Resumed::Call(found))
            }
            StreamId::Get(number) => {
                let held = {
                    let open = self.open.borrow();
                    open.iter().find(|stream| stream.number == number).cloned()
                };
                if let Some(held) = held {
                    held.is_closed.set(true);
                    held.changed.notify();
                    self.close(&held);
                }
                let newest = self.newest_of(seen.stream).unwrap_or(seen.number);
                let last = newest.max(seen.number);
                self.open_numbered(number, last, streams_max)
                    .map(Resumed::Get)
            }
        }
    }

    fn newest_of(&self, stream: StreamId) -> Option<u32> {
        let log = self.log.borrow();
        let newest = log
            .events
            .iter()
            .rev()
            .find(|event| event.id.stream == stream);
        newest.map(|event| event.id.number)
    }

    /// The events kept of this stream that follow the one a client saw last.
    pub fn events_after(&self, seen: EventId) -> Vec<(EventId, Rc<[u8]>)> {
        let log = self.log.borrow();
        let later = log
            .events
            .iter()
            .filter(|event| event.id.stream == seen.stream && event.id.number > seen.number);
        later.map(|event| (event.id, event.data.clone())).collect()
    }

    /// Takes the oldest message waiting for a GET stream, with its event id.
    pub fn pop(&self, stream: &GetStream, now_ms: u64) -> Option<(EventId, Rc<[u8]>)> {
        let data = stream.messages.borrow_mut().pop_front()?;
        stream.last.set(stream.last.get().wrapping_add(1));
        let id = stream.last_id();
        self.record(id, data.clone(), now_ms);
        Some((id, data))
    }

    /// Closes a GET stream that its client has left; what waits there waits for the next one.
    pub fn close(&self, stream: &Rc<GetStream>) {
        let mut open = self.open.borrow_mut();
        let before = open.len();
        open.retain(|known| !Rc::ptr_eq(known, stream));
        if open.len() == before {
            return;
        }
        let is_last = open.is_empty();
        drop(open);
        for message in stream.messages.take() {
            self.say(&message, false);
        }
        if is_last {
            self.desert();
        }
    }

    /// Opens the stream of a call.
    pub fn open_call(&self) -> Rc<CallStream> {
        let number = self.next.replace(self.next.get().wrapping_add(1));
        let call = Rc::new(CallStream {
            number,
            last: Cell::new(0),
            is_over: Cell::new(false),
            is_taken: Cell::new(false),
            changed: Notify::default(),
        });
        self.calls.borrow_mut().push(call.clone());
        call
    }

    /// Adds a message to a call's stream: its event id.
    pub fn add(&self, call: &CallStream, message: &[u8], now_ms: u64) -> EventId {
        call.last.set(call.last.get().wrapping_add(1));
        let id = call.last_id();
        self.record(id, message.into(), now_ms);
        if call.is_taken() {
            call.changed.notify();
        }
        id
    }

    /// Ends a call's stream.
    pub fn end_call(&self, call: &Rc<CallStream>) {
        call.is_over.set(true);
        call.changed.notify();
        self.calls
            .borrow_mut()
            .retain(|known| !Rc::ptr_eq(known, call));
    }

    /// Keeps an event for resuming, if it fits.
    fn record(&self, id: EventId, data: Rc<[u8]>, now_ms: u64) {
        let budget = &self.budget;
        let mut log = self.log.borrow_mut();
        while log.events.len() >= EVENTS_MAX || log.bytes + data.len() > EVENT_BYTES_MAX {
            if !log.drop_oldest(budget) {
                break;
            }
        }
        while budget.used.get() + data.len() > budget.bytes_max {
            if !log.drop_oldest(budget) {
                // Others have it all. It was, or is about to be, written all the same.
                return;
            }
        }
        log.bytes += data.len();
        budget.used.set(budget.used.get() + data.len());
        log.events.push_back(Logged {
            id,
            at_ms: now_ms,
            data,
        });
    }

    /// Forgets events that have been kept for long enough.
    pub fn forget_old(&self, now_ms: u64) {
        let mut log = self.log.borrow_mut();
        while let Some(oldest) = log.events.front()
            && now_ms.saturating_sub(oldest.at_ms) > EVENT_AGE_MS_MAX
        {
            log.drop_oldest(&self.budget);
        }
        if log.events.is_empty() {
            *log = Log::default();
        }
    }

    /// Whether a GET stream is open.
    pub fn is_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    /// An event that fires when the last GET stream has closed; `None` when none is open.
    pub fn deserted(&self) -> Option<Rc<Event>> {
        self.deserted.borrow().clone()
    }

    fn desert(&self) {
        if let Some(event) = self.deserted.borrow_mut().take() {
            event.fire();
        }
    }

    /// Says a message on the newest GET stream, unless an equal one still waits there; it waits for
    /// the next one when none is open. For messages that count once, however late.
    pub fn post(&self, message: &[u8]) {
        self.say(message, true);
    }

    /// Says a message on the newest GET stream, an equal one again; it waits for the next one when
    /// none is open.
    pub fn push(&self, message: &[u8]) {
        self.say(message, false);
    }

    /// Takes back a message that nobody has heard yet.
    pub fn unsay(&self, is_it: impl Fn(&[u8]) -> bool) {
        self.missed.borrow_mut().retain(|message| !is_it(message));
        for stream in self.open.borrow().iter() {
            stream
                .messages
                .borrow_mut()
                .retain(|message| !is_it(message));
        }
    }

    fn say(&self, message: &[u8], is_once: bool) {
        let open = self.open.borrow();
        let newest = open.last();
        let mut queue = match newest {
            Some(stream) => stream.messages.borrow_mut(),
            None => self.missed.borrow_mut(),
        };
        if !(is_once && queue.iter().any(|waiting| **waiting == *message)) {
            if queue.len() >= MESSAGES_MAX {
                queue.pop_front();
            }
            queue.push_back(message.into());
        }
        if let Some(stream) = newest {
            stream.changed.notify();
        }
    }

    /// Ends all GET streams.
    pub fn end(&self) {
        for stream in self.open.borrow_mut().drain(..) {
            stream.is_closed.set(true);
            stream.changed.notify();
        }
        self.desert();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let log = self.log.get_mut();
        while log.drop_oldest(&self.budget) {}
    }
}

#[cfg(test)]
mod tests;
