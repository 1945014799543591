//! The stream of a GET, event by event.

use std::time::{Duration, Instant};

use shards::Stream;

use super::{CallFault, Connection, Script, Session, request::put_request, response::stream_start};

/// An open stream.
pub(crate) struct Events {
    stream: Stream,
    inbound: Vec<u8>,
    counter: EventCounter,
}

impl Events {
    /// GET in a session: the connection belongs to the stream from here on.
    pub(crate) async fn open(
        session: &Session,
        script: &Script,
        connection: Connection,
    ) -> Result<(Self, Instant), CallFault> {
        let (mut stream, mut inbound, mut outbound) = connection.into_stream();
        inbound.clear();
        outbound.clear();
        put_request(&mut outbound, &session.head_for("GET"), b"");
        stream.deadline().arm(script.limit);
        if stream.write_all(outbound).await.0.is_err() {
            return Err(CallFault::Ended);
        }
        loop {
            let result;
            (result, inbound) = stream.read(inbound).await;
            if !matches!(result, Ok(1..)) {
                return Err(if stream.deadline().has_passed() {
                    CallFault::Timeout
                } else {
                    CallFault::Ended
                });
            }
            let Some((status, body_start)) = stream_start(&inbound).map_err(|_| CallFault::Wire)?
            else {
                continue;
            };
            let opened_at = Instant::now();
            if status != 200 {
                return Err(CallFault::Status(status));
            }
            // It may be silent for ever; the end of the run ends it.
            stream.deadline().disarm();
            stream.deadline().arm_idle(Duration::MAX);
            inbound.drain(..body_start);
            let events = Self {
                stream,
                inbound,
                counter: EventCounter::default(),
            };
            return Ok((events, opened_at));
        }
    }

    /// Waits for the next events; how many came at once, `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<u64> {
        loop {
            let count = self.counter.count(&self.inbound);
            self.inbound.clear();
            if count > 0 {
                return Some(count);
            }
            let result;
            (result, self.inbound) = self.stream.read(std::mem::take(&mut self.inbound)).await;
            if !matches!(result, Ok(1..)) {
                return None;
            }
        }
    }
}

/// Counts lines that begin with `data:`. Chunk sizes stand on lines of their own and do not
/// disturb it, unless a chunk ends inside a line, which only makes the count too small.
#[derive(Debug, Default)]
struct EventCounter {
    /// Bytes of `data:` matched so far; `None`: inside a line.
    matched: Option<usize>,
    has_begun: bool,
}

impl EventCounter {
    fn count(&mut self, bytes: &[u8]) -> u64 {
        const MARK: &[u8] = b"data:";
        if !std::mem::replace(&mut self.has_begun, true) {
            self.matched = Some(0);
        }
        let mut count = 0;
        for byte in bytes {
            self.matched = match self.matched {
                _ if *byte == b'\n' => Some(0),
                Some(at) if MARK[at] == *byte && at + 1 == MARK.len() => {
                    count += 1;
                    None
                }
                Some(at) if MARK[at] == *byte => Some(at + 1),
                _ => None,
            };
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_in_any_pieces() {
        let text = b"1b\r\nevent: message\ndata: {}\n\n\r\n9\r\ndata:data:\n\r\n: data:\n";
        for split in 0..text.len() {
            let mut counter = EventCounter::default();
            let (one, other) = text.split_at(split);
            assert_eq!(counter.count(one) + counter.count(other), 2, "{split}");
        }
    }
}
