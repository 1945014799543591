//! A kept connection that carries one exchange at a time.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use shards::{Deadlines, Stream};

use super::{
    CallFault, Called,
    response::{Decoder, Response},
};

/// An open connection and its buffers.
pub(crate) struct Connection {
    stream: Stream,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    decoder: Decoder,
    is_kept: bool,
    first_byte_at: Option<Instant>,
    first_chunk_at: Option<Instant>,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(
        address: SocketAddr,
        limit: Duration,
        deadlines: &Deadlines,
    ) -> Result<Self, CallFault> {
        let stream = Stream::connect(address, limit, deadlines)
            .await
            .map_err(|_| CallFault::Connect)?;
        Ok(Self {
            stream,
            inbound: Vec::with_capacity(4096),
            outbound: Vec::with_capacity(2048),
            decoder: Decoder::default(),
            is_kept: true,
            first_byte_at: None,
            first_chunk_at: None,
        })
    }

    /// Whether the next exchange can use this connection.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Writes what `fill` composes and reads one reply, which stays in `inbound`.
    pub(crate) async fn exchange(
        &mut self,
        limit: Duration,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Response, CallFault> {
        self.inbound.clear();
        self.outbound.clear();
        fill(&mut self.outbound);
        // What is not finished in time is shut down, so no operation is ever dropped.
        self.stream.deadline().arm(limit);
        let result;
        (result, self.outbound) = self
            .stream
            .write_all(std::mem::take(&mut self.outbound))
            .await;
        if result.is_err() {
            return Err(self.end());
        }
        self.decoder = Decoder::default();
        self.first_byte_at = None;
        self.first_chunk_at = None;
        loop {
            let result;
            (result, self.inbound) = self.stream.read(std::mem::take(&mut self.inbound)).await;
            if !matches!(result, Ok(1..)) {
                return Err(self.end());
            }
            match self.decoder.decode(&mut self.inbound) {
                Ok(None) => {
                    // A reply of one piece needs no second look at the clock.
                    self.first_byte_at.get_or_insert_with(Instant::now);
                    if self.decoder.has_chunk() {
                        self.first_chunk_at.get_or_insert_with(Instant::now);
                    }
                }
                Ok(Some(response)) => {
                    self.stream.deadline().disarm();
                    self.is_kept &= response.is_kept;
                    return Ok(response);
                }
                Err(_) => {
                    self.is_kept = false;
                    return Err(CallFault::Wire);
                }
            }
        }
    }

    /// The bytes of the last reply.
    pub(crate) fn inbound(&self) -> &[u8] {
        &self.inbound
    }

    /// What the exchange that just ended did.
    pub(crate) fn called(&self, response: &Response) -> Called {
        let at = Instant::now();
        Called {
            at,
            first_byte_at: response.is_stream.then(|| self.first_byte_at.unwrap_or(at)),
            bytes: response.used,
        }
    }

    /// The same, of a reply that came chunk by chunk: its first bytes are those of the first chunk,
    /// not of the head before it.
    pub(crate) fn called_by_chunks(&self, response: &Response) -> Called {
        let called = self.called(response);
        Called {
            first_byte_at: Some(self.first_chunk_at.unwrap_or(called.at)),
            ..called
        }
    }

    /// Gives up its parts for a stream of events.
    pub(super) fn into_stream(self) -> (Stream, Vec<u8>, Vec<u8>) {
        (self.stream, self.inbound, self.outbound)
    }

    fn end(&mut self) -> CallFault {
        self.is_kept = false;
        if self.stream.deadline().has_passed() {
            CallFault::Timeout
        } else {
            CallFault::Ended
        }
    }
}
