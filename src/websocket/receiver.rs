//! The receiving side of a WebSocket: bytes to messages, with every rule of RFC 6455 section 5.
//!
//! A message is put together in one buffer of the receiver's own and handed out from there. What
//! breaks a rule is found as early as it can be: a length over the limit by the frame's head alone,
//! a broken letter by the piece that breaks it. After a violation, and after a Close, the rest of
//! the input means nothing any more.

use super::{
    close::CloseCode,
    frame::{self, CONTROL_BYTES_MAX, FrameHead, HEAD_BYTES_MAX},
};

/// Which side receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Frames must be masked (section 5.1).
    Server,
    /// Frames must not be masked.
    Client,
}

/// Which rule the other side broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A rule of framing, in words.
    #[error("{0}")]
    Protocol(&'static str),
    /// A text that is not UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// A message over the limit.
    #[error("message over the limit")]
    TooBig,
}

impl Violation {
    /// The code of the Close frame that answers it.
    pub fn code(self) -> CloseCode {
        match self {
            Self::Protocol(_) => CloseCode::PROTOCOL,
            Self::Utf8 => CloseCode::INVALID_DATA,
            Self::TooBig => CloseCode::TOO_BIG,
        }
    }
}

/// What the other side said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole message of text.
    Text(&'a str),
    /// A whole message of bytes.
    Binary(&'a [u8]),
    /// Is to be answered with a pong of the same payload.
    Ping(&'a [u8]),
    /// Answers a ping, or nothing.
    Pong(&'a [u8]),
    /// The end, with its code and reason if it has them.
    Close(Option<(u16, &'a str)>),
}

/// Kept for the next message at the most; what was larger is given back.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The payload that is being read.
#[derive(Debug, Clone, Copy)]
struct Payload {
    opcode: u8,
    is_final: bool,
    mask: Option<[u8; 4]>,
    length: usize,
    taken: usize,
}

/// The receiving side of one connection.
#[derive(Debug)]
pub struct Receiver {
    role: Role,
    message_bytes_max: usize,
    /// Bytes of a head that is not whole.
    head: [u8; HEAD_BYTES_MAX],
    head_count: usize,
    payload: Option<Payload>,
    /// Opcode of the message whose fragments come.
    open: Option<u8>,
    message: Vec<u8>,
    /// How much of the message is known to be UTF-8.
    checked: usize,
    control: [u8; CONTROL_BYTES_MAX],
    has_ended: bool,
}

impl Receiver {
    /// For a connection that has just been opened. A message has `message_bytes_max` bytes at the
    /// most, all its fragments together.
    pub fn new(role: Role, message_bytes_max: usize) -> Self {
        Self {
            role,
            message_bytes_max,
            head: [0; HEAD_BYTES_MAX],
            head_count: 0,
            payload: None,
            open: None,
            message: Vec::new(),
            checked: 0,
            control: [0; CONTROL_BYTES_MAX],
            has_ended: false,
        }
    }

    /// Whether a message or a frame has begun and not ended.
    pub fn is_between_messages(&self) -> bool {
        self.head_count == 0 && self.payload.is_none() && self.open.is_none()
    }

    /// Takes bytes from the front of `input`: how many, and what they complete. With nothing
    /// completed all of them were taken.
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, Option<Event<'_>>), Violation> {
        let mut taken = 0;
        if self.has_ended {
            return Ok((input.len(), None));
        }
        loop {
            let Some(mut payload) = self.payload else {
                match self.read_head(&input[taken..])? {
                    Some(count) => taken += count,
                    None => return Ok((input.len(), None)),
                }
                continue;
            };
            let piece = &input[taken..];
            let piece = &piece[..piece.len().min(payload.length - payload.taken)];
            taken += piece.len();
            let is_control = payload.opcode >= frame::CLOSE;
            self.take(piece, &payload, is_control);
            payload.taken += piece.len();
            if payload.taken < payload.length {
                self.payload = Some(payload);
                if !is_control {
                    self.check_so_far()?;
                }
                return Ok((taken, None));
            }
            self.payload = None;
            if is_control {
                return self
                    .control_event(payload)
                    .map(|event| (taken, Some(event)));
            }
            if payload.is_final {
                return self.message_event().map(|event| (taken, Some(event)));
            }
            self.check_so_far()?;
        }
    }

    /// Reads a frame's head; how many bytes of the input it took, `None`: all, and it is not whole.
    fn read_head(&mut self, input: &[u8]) -> Result<Option<usize>, Violation> {
        let before = self.head_count;
        let count = input.len().min(HEAD_BYTES_MAX - before);
        self.head[before..before + count].copy_from_slice(&input[..count]);
        let Some(head) = FrameHead::parse(&self.head[..before + count]) else {
            self.head_count = before + count;
            return Ok(None);
        };
        self.head_count = 0;
        let length = self.check(&head)?;
        if head.opcode == frame::TEXT || head.opcode == frame::BINARY {
            self.begin_message(head.opcode, length);
        }
        self.payload = Some(Payload {
            opcode: head.opcode,
            is_final: head.is_final,
            mask: head.mask,
            length,
            taken: 0,
        });
        Ok(Some(head.head_bytes - before))
    }

    fn check(&self, head: &FrameHead) -> Result<usize, Violation> {
        let wrong = |rule| Err(Violation::Protocol(rule));
        if head.reserved != 0 {
            return wrong("a reserved bit is set");
        }
        if head.mask.is_some() != (self.role == Role::Server) {
            return wrong("frames of clients are masked, those of servers are not");
        }
        if !head.is_minimal || head.length > u64::MAX / 2 {
            return wrong("a length not written as it must be");
        }
        match (head.opcode, self.open) {
            (frame::TEXT | frame::BINARY, None) | (frame::CONTINUATION, Some(_)) => {
                let so_far = if head.opcode == frame::CONTINUATION {
                    self.message.len()
                } else {
                    0
                };
                let length = usize::try_from(head.length).map_err(|_| Violation::TooBig)?;
                if length > self.message_bytes_max.saturating_sub(so_far) {
                    return Err(Violation::TooBig);
                }
                Ok(length)
            }
            (frame::TEXT | frame::BINARY, Some(_)) => wrong("a message inside a message"),
            (frame::CONTINUATION, None) => wrong("nothing to continue"),
            (frame::CLOSE | frame::PING | frame::PONG, _) => match usize::try_from(head.length) {
                Ok(length) if head.is_final && length <= CONTROL_BYTES_MAX => Ok(length),
                _ => wrong("a control frame that is long or in fragments"),
            },
            _ => wrong("an opcode nobody knows"),
        }
    }

    fn begin_message(&mut self, opcode: u8, length: usize) {
        if self.message.capacity() > KEPT_BYTES_MAX {
            self.message = Vec::new();
        }
        self.message.clear();
        // Not more on the word of a head: what never comes takes no memory.
        self.message.reserve(length.min(KEPT_BYTES_MAX));
        self.checked = 0;
        self.open = Some(opcode);
    }

    fn take(&mut self, piece: &[u8], payload: &Payload, is_control: bool) {
        let target = if is_control {
            let target = &mut self.control[payload.taken..payload.taken + piece.len()];
            target.copy_from_slice(piece);
            target
        } else {
            let start = self.message.len();
            self.message.extend_from_slice(piece);
            &mut self.message[start..]
        };
        if let Some(key) = payload.mask {
            frame::mask(target, key, payload.taken);
        }
    }

    /// Checks the text that has come; a letter may be cut in two.
    fn check_so_far(&mut self) -> Result<(), Violation> {
        if self.open != Some(frame::TEXT) {
            return Ok(());
        }
        match std::str::from_utf8(&self.message[self.checked..]) {
            Ok(text) => self.checked += text.len(),
            Err(error) if error.error_len().is_none() => self.checked += error.valid_up_to(),
            Err(_) => return Err(Violation::Utf8),
        }
        Ok(())
    }

    fn message_event(&mut self) -> Result<Event<'_>, Violation> {
        if self.open.take() == Some(frame::TEXT) {
            let text = std::str::from_utf8(&self.message).map_err(|_| Violation::Utf8)?;
            Ok(Event::Text(text))
        } else {
            Ok(Event::Binary(&self.message))
        }
    }

    fn control_event(&mut self, payload: Payload) -> Result<Event<'_>, Violation> {
        let bytes = &self.control[..payload.length];
        match payload.opcode {
            frame::PING => Ok(Event::Ping(bytes)),
            frame::PONG => Ok(Event::Pong(bytes)),
            _ => {
                self.has_ended = true;
                match bytes.split_first_chunk::<2>() {
                    None if bytes.is_empty() => Ok(Event::Close(None)),
                    None => Err(Violation::Protocol("half a close code")),
                    Some((code, reason)) => {
                        let code = u16::from_be_bytes(*code);
                        if !CloseCode::may_be_sent(code) {
                            return Err(Violation::Protocol("a close code nobody may send"));
                        }
                        let reason = std::str::from_utf8(reason).map_err(|_| Violation::Utf8)?;
                        Ok(Event::Close(Some((code, reason))))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
