//! The client's side of one WebSocket without its socket: bytes in, messages out, and what is to
//! be written.
//!
//! Answers pings, pings a silent gateway, notices one that is gone, and ends in order (RFC 6455
//! section 7). A long message goes out in fragments, made one by one, so that a sign of life gets
//! through between them over a slow line. Holds one message of its caller at a time and a bounded
//! number of answers. Knows nothing of what the messages say.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use ring::rand::{SecureRandom, SystemRandom};

use super::MESSAGE_BYTES_MAX;
use crate::websocket::{
    CloseCode, Event, Masking, Receiver, Role, Violation, frame, frame::HEAD_BYTES_MAX,
    write_close, write_frame,
};

/// A gateway that says nothing for this long, or is not listened to, is pinged: three times before
/// it takes this side for gone.
const PING_AFTER: Duration = Duration::from_secs(5);
/// One that says nothing for this long, or takes nothing, is gone.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(45);
/// How long the other side has to answer a Close frame.
pub(super) const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of answers that wait before no more is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Bytes of a fragment.
const FRAGMENT_BYTES_MAX: usize = 64 << 10;
/// Random bytes that are drawn at once.
const RANDOM_BYTES: usize = 1024;

/// What the gateway said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard<'a> {
    /// A message.
    Message(&'a str),
    /// The end, with its code if it has one.
    Closed(Option<u16>),
    /// Something against the rules; it was told so.
    Broken(Violation),
}

/// Why the connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// Nothing was heard of the gateway for [`SILENCE_MAX`].
    Silent,
    /// It took nothing for as long.
    Stuck,
    /// It did not answer a Close frame.
    Unclosed,
    /// The system has no random numbers to mask frames with.
    NoRandom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Our Close frame is said; until then the other may answer.
    Closing(Instant),
    /// Both are said.
    Closed,
}

/// Keys nobody can foresee (RFC 6455 section 10.3).
#[derive(Debug)]
struct Masks {
    random: SystemRandom,
    bytes: [u8; RANDOM_BYTES],
    used: usize,
    has_failed: bool,
}

impl Masks {
    fn new() -> Self {
        Self {
            random: SystemRandom::new(),
            bytes: [0; RANDOM_BYTES],
            used: RANDOM_BYTES,
            has_failed: false,
        }
    }

    /// A new key; `None`: there are none.
    fn next(&mut self) -> Option<Masking> {
        if self.used == RANDOM_BYTES {
            self.has_failed |= self.random.fill(&mut self.bytes).is_err();
            self.used = 0;
        }
        if self.has_failed {
            return None;
        }
        let key = *self.bytes[self.used..].first_chunk()?;
        self.used += 4;
        Some(Masking::Key(key))
    }
}

/// What is to be written.
#[derive(Debug)]
struct Output {
    masks: Masks,
    /// Frames.
    bytes: Vec<u8>,
    /// Of `bytes`.
    written: usize,
    /// Not in frames yet; of the first so many bytes are.
    messages: VecDeque<Vec<u8>>,
    framed: usize,
    /// The Close frame that follows the messages.
    close: Option<(CloseCode, &'static str)>,
    /// Bytes of answers since all was written.
    answer_bytes: usize,
    /// When something was written last, or began to wait.
    moved_at: Instant,
}

impl Output {
    fn new(now: Instant) -> Self {
        Self {
            masks: Masks::new(),
            bytes: Vec::new(),
            written: 0,
            messages: VecDeque::new(),
            framed: 0,
            close: None,
            answer_bytes: 0,
            moved_at: now,
        }
    }

    fn pending(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Adds frames.
    fn add(&mut self, now: Instant, write: impl FnOnce(&mut Vec<u8>, Masking)) {
        if self.pending().is_empty() {
            self.moved_at = now;
        }
        if let Some(masking) = self.masks.next() {
            write(&mut self.bytes, masking);
        }
    }

    fn push(&mut self, message: Vec<u8>, now: Instant) {
        self.messages.push_back(message);
        if self.pending().is_empty() {
            self.frame_more(now);
        }
    }

    fn wrote(&mut self, count: usize, now: Instant) {
        self.written += count;
        self.moved_at = now;
        if self.written == self.bytes.len() {
            self.written = 0;
            self.bytes.clear();
            self.frame_more(now);
            if self.bytes.is_empty() {
                self.answer_bytes = 0;
            }
        }
    }

    /// Puts the next fragment in a frame, or what follows the messages.
    fn frame_more(&mut self, now: Instant) {
        let Some(message) = self.messages.pop_front() else {
            if let Some((code, reason)) = self.close.take() {
                self.add(now, |bytes, masking| {
                    write_close(bytes, Some((code, reason)), masking);
                });
            }
            return;
        };
        let start = self.framed;
        let end = message.len().min(start + FRAGMENT_BYTES_MAX);
        let is_last = end == message.len();
        self.add(now, |bytes, masking| {
            let opcode = if start == 0 {
                frame::TEXT
            } else {
                frame::CONTINUATION
            };
            let at = bytes.len();
            write_frame(bytes, opcode, &message[start..end], masking);
            if !is_last {
                bytes[at] &= !frame::FIN;
            }
        });
        if is_last {
            self.framed = 0;
        } else {
            self.framed = end;
            self.messages.push_front(message);
        }
    }

    /// Whether nothing is left.
    fn is_empty(&self) -> bool {
        self.pending().is_empty() && self.messages.is_empty() && self.close.is_none()
    }

    /// Forgets what is not in frames: nobody will read it.
    fn abandon(&mut self) {
        self.messages.clear();
        self.framed = 0;
        self.close = None;
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Channel {
    receiver: Receiver,
    output: Output,
    state: State,
    heard_at: Instant,
    /// When this side did not listen last, which is no silence of the other.
    deaf_at: Instant,
    pinged_at: Instant,
}

impl Channel {
    /// For a connection that was opened just now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            receiver: Receiver::new(Role::Client, MESSAGE_BYTES_MAX),
            output: Output::new(now),
            state: State::Open,
            heard_at: now,
            deaf_at: now,
            pinged_at: now,
        }
    }

    /// Takes bytes from the front of `input`: how many, and what they completed. With nothing
    /// completed there may be more in the rest.
    pub(super) fn read(&mut self, input: &[u8], now: Instant) -> (usize, Option<Heard<'_>>) {
        let is_open = self.state == State::Open;
        if self.state == State::Closed {
            return (input.len(), None);
        }
        self.heard_at = now;
        match self.receiver.read(input) {
            Ok((taken, None | Some(Event::Pong(_)))) => (taken, None),
            // After our Close frame nothing is answered any more.
            Ok((taken, Some(Event::Text(text)))) => {
                (taken, is_open.then_some(Heard::Message(text)))
            }
            Ok((taken, Some(Event::Ping(payload)))) => {
                if is_open {
                    self.output.answer_bytes += payload.len() + HEAD_BYTES_MAX;
                    self.output.add(now, |bytes, masking| {
                        write_frame(bytes, frame::PONG, payload, masking);
                    });
                }
                (taken, None)
            }
            Ok((taken, Some(Event::Close(why)))) => {
                let code = why.map(|(code, _)| code);
                self.output.abandon();
                if is_open {
                    let echoed = code.map(|code| (CloseCode(code), ""));
                    self.output.add(now, |bytes, masking| {
                        write_close(bytes, echoed, masking);
                    });
                }
                self.state = State::Closed;
                (taken, Some(Heard::Closed(code)))
            }
            Ok((taken, Some(Event::Binary(_)))) => {
                let violation = Violation::Protocol("a message that is no text");
                self.output.abandon();
                self.state
                    .close(&mut self.output, CloseCode::UNSUPPORTED, "", now);
                (taken, Some(Heard::Broken(violation)))
            }
            Err(violation) => {
                self.output.abandon();
                self.state
                    .close(&mut self.output, violation.code(), "", now);
                // The rest of the input means nothing any more.
                self.state = State::Closed;
                (input.len(), Some(Heard::Broken(violation)))
            }
        }
    }

    /// Whether more may be read: what answers it has room.
    pub(super) fn may_read(&self) -> bool {
        self.output.answer_bytes < ANSWER_BYTES_MAX
    }

    /// Nothing is read because this side does not want to.
    pub(super) fn is_not_listening(&mut self, now: Instant) {
        self.deaf_at = now;
    }

    /// Says a message. Dropped after a Close frame.
    pub(super) fn send(&mut self, message: Vec<u8>, now: Instant) {
        if self.state == State::Open {
            self.output.push(message, now);
        }
    }

    /// Says a message that answers what was just read.
    pub(super) fn answer(&mut self, message: Vec<u8>, now: Instant) {
        self.output.answer_bytes += message.len() + HEAD_BYTES_MAX;
        self.send(message, now);
    }

    /// Says a Close frame after all messages, unless one was said.
    pub(super) fn close(&mut self, code: CloseCode, reason: &'static str, now: Instant) {
        self.state.close(&mut self.output, code, reason, now);
    }

    /// What is to be written.
    pub(super) fn pending(&self) -> &[u8] {
        self.output.pending()
    }

    /// So much of [`Self::pending`] was written.
    pub(super) fn wrote(&mut self, count: usize, now: Instant) {
        self.output.wrote(count, now);
    }

    /// Whether messages may be said.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether all is said by both sides.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Closed && self.output.is_empty()
    }

    /// Does what is due; why the connection is to be given up.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Lost> {
        if self.output.masks.has_failed {
            return Some(Lost::NoRandom);
        }
        if !self.pending().is_empty() && now >= self.output.moved_at + SILENCE_MAX {
            return Some(Lost::Stuck);
        }
        match self.state {
            State::Closed => None,
            State::Closing(until) => (now >= until).then_some(Lost::Unclosed),
            State::Open if now >= self.silent_at() => Some(Lost::Silent),
            State::Open => {
                if now >= self.next_ping() {
                    self.output.add(now, |bytes, masking| {
                        write_frame(bytes, frame::PING, b"", masking);
                    });
                    self.pinged_at = now;
                }
                None
            }
        }
    }

    /// When [`Self::tick`] has something to do again.
    pub(super) fn next_due(&self) -> Instant {
        let stuck = self.output.moved_at + SILENCE_MAX;
        let due = match self.state {
            State::Closed => return stuck,
            State::Closing(until) => until,
            State::Open => self.next_ping().min(self.silent_at()),
        };
        if self.pending().is_empty() {
            due
        } else {
            due.min(stuck)
        }
    }

    fn silent_at(&self) -> Instant {
        self.heard_at.max(self.deaf_at) + SILENCE_MAX
    }

    fn next_ping(&self) -> Instant {
        self.heard_at.max(self.pinged_at) + PING_AFTER
    }
}

impl State {
    /// Open -> Closing, with a Close frame behind the messages.
    fn close(&mut self, output: &mut Output, code: CloseCode, reason: &'static str, now: Instant) {
        if *self == Self::Open {
            output.close = Some((code, reason));
            if output.messages.is_empty() {
                output.frame_more(now);
            }
            *self = Self::Closing(now + CLOSE_PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests;
