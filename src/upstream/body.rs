//! The body of a backend's reply, piece by piece or whole, over a link.

use shards::stream::READ_BYTES_MIN;

use crate::{
    http::{ChunkDecoder, ResponseFraming},
    link::Link,
    upstream::CallFault,
};

/// Where a body ends, as its bytes come.
#[derive(Debug)]
enum State {
    /// So many bytes are still to come.
    Length(u64),
    Chunked(Box<ChunkDecoder>),
    UntilClose,
    Done,
}

/// Reads one body. Raw bytes already read with the head come first.
#[derive(Debug)]
pub struct BodyReader {
    state: State,
    /// Raw bytes not decoded yet: `raw[start..]`.
    raw: Vec<u8>,
    start: usize,
}

impl BodyReader {
    /// A reader over `raw[start..]` and what follows on the link.
    pub fn new(framing: ResponseFraming, raw: Vec<u8>, start: usize, bytes_max: u64) -> Self {
        let state = match framing {
            ResponseFraming::NoBody | ResponseFraming::Length(0) => State::Done,
            ResponseFraming::Length(length) => State::Length(length),
            ResponseFraming::Chunked => {
                State::Chunked(Box::new(ChunkDecoder::dropping_trailers(bytes_max)))
            }
            ResponseFraming::UntilClose => State::UntilClose,
        };
        Self { state, raw, start }
    }

    /// Whether the body has been read to its end.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether bytes follow the body: the connection must not be used again.
    pub fn has_excess(&self) -> bool {
        self.start < self.raw.len()
    }

    /// Whether the last read took all it had room for: more may have been there.
    pub fn is_full(&self) -> bool {
        self.raw.len() == self.raw.capacity()
    }

    /// Takes the read buffer out, for the pool.
    pub fn into_buffer(self) -> Vec<u8> {
        self.raw
    }

    /// The whole body where it lies, when its length is known and all of it has been read already.
    pub fn whole_in_place(&mut self) -> Option<&[u8]> {
        let State::Length(length) = self.state else {
            return None;
        };
        let end = self.start.checked_add(usize::try_from(length).ok()?)?;
        if end > self.raw.len() {
            return None;
        }
        let start = self.start;
        self.start = end;
        self.state = State::Done;
        Some(&self.raw[start..end])
    }

    /// Decodes what has been read so far onto `out`.
    fn decode(&mut self, out: &mut Vec<u8>) -> Result<(), CallFault> {
        let input = &self.raw[self.start..];
        let taken = match &mut self.state {
            State::Done => 0,
            State::Length(left) => {
                let count = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                out.extend_from_slice(&input[..count]);
                *left -= count as u64;
                if *left == 0 {
                    self.state = State::Done;
                }
                count
            }
            State::UntilClose => {
                out.extend_from_slice(input);
                input.len()
            }
            State::Chunked(decoder) => {
                let (count, is_done) = decoder.decode(input, out).map_err(|refusal| {
                    if refusal.status == 413 {
                        CallFault::TooLarge
                    } else {
                        CallFault::Malformed
                    }
                })?;
                if is_done {
                    self.state = State::Done;
                }
                count
            }
        };
        self.start += taken;
        if self.start == self.raw.len() && !matches!(self.state, State::Done) {
            self.raw.clear();
            self.start = 0;
        }
        Ok(())
    }

    /// Appends the next piece to `out`, reading from the link when nothing is left over. False at
    /// the end of the body.
    pub async fn piece(&mut self, link: &mut Link, out: &mut Vec<u8>) -> Result<bool, CallFault> {
        let before = out.len();
        loop {
            self.decode(out)?;
            if out.len() > before {
                return Ok(true);
            }
            if self.is_done() {
                return Ok(false);
            }
            if !self.fill(link).await? {
                return Ok(false);
            }
        }
    }

    /// Decodes what has been read already; what cannot be decoded leaves the body unfinished.
    pub fn take_buffered(&mut self, out: &mut Vec<u8>) {
        while !self.needs_input() && !self.is_done() {
            if self.decode(out).is_err() {
                return;
            }
        }
    }

    /// Whether the next piece needs the link.
    pub fn needs_input(&self) -> bool {
        !self.is_done() && self.start >= self.raw.len()
    }

    /// Reads more raw bytes; false when the body ended by the end of the connection.
    async fn fill(&mut self, link: &mut Link) -> Result<bool, CallFault> {
        let (result, raw) = link.read(std::mem::take(&mut self.raw)).await;
        self.raw = raw;
        match result {
            // An end of our own making is not the body's.
            Ok(0) | Err(_) if link.deadline().has_passed() => Err(CallFault::CallTimeout),
            Ok(0) if matches!(self.state, State::UntilClose) => {
                self.state = State::Done;
                Ok(false)
            }
            Ok(0) | Err(_) => Err(CallFault::ClosedInReply),
            Ok(_) => Ok(true),
        }
    }

    /// Reads all of the body, at most `bytes_max` bytes.
    pub async fn whole(&mut self, link: &mut Link, bytes_max: usize) -> Result<Vec<u8>, CallFault> {
        if let State::Length(length) = self.state {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > bytes_max {
                return Err(CallFault::TooLarge);
            }
            self.raw
                .reserve(length.saturating_sub(self.raw.len() - self.start));
        }
        let mut out = Vec::new();
        while self.piece(link, &mut out).await? {
            if out.len() > bytes_max {
                return Err(CallFault::TooLarge);
            }
        }
        Ok(out)
    }

    /// Reads until a body of known length lies whole in the buffer. False: its length is not known.
    pub async fn gather(&mut self, link: &mut Link, bytes_max: usize) -> Result<bool, CallFault> {
        let State::Length(length) = self.state else {
            return Ok(false);
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > bytes_max {
            return Err(CallFault::TooLarge);
        }
        let end = self.start + length;
        if self.raw.capacity() < end {
            // With the room a read wants, or the last one would double the buffer.
            self.raw
                .reserve_exact(end + READ_BYTES_MIN - self.raw.len());
        }
        while self.raw.len() < end {
            self.fill(link).await?;
        }
        Ok(true)
    }
}
