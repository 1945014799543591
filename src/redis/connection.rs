//! One connection: its handshake, then writing and reading until it ends.
//!
//! Reading and writing share one task and one link: the task waits for whichever comes first,
//! bytes to read or commands to write. Whenever it waits for the socket to take or give bytes the
//! link's deadline is armed, so that a stuck peer ends the connection and never holds a caller.

use std::cell::Cell;

use futures_util::future::{Either, select};
use shards::{deadline::now_ms, yield_now};

use super::{
    client::{ConnectionEnd, Invalidated, RedisFault, Shared, Tracking},
    reply::{Dialect, Reply, decode},
    resp::{RespFault, RespLimits, encode, oversized},
};
use crate::link::Link;

/// Name of the connection in `CLIENT LIST`.
const CLIENT_NAME: &[u8] = b"shardgate";
/// Read buffer of a quiet connection; a large value makes it grow until it has been read.
const BUFFER_BYTES: usize = 16 * 1024;

/// An open connection past its handshake.
#[derive(Debug)]
pub(super) struct Connection {
    link: Link,
    buffer: Vec<u8>,
    /// Bytes at the start of `buffer` that have been decoded.
    used: usize,
    /// Bytes still to come of a value that is passed over.
    unwanted: usize,
    dialect: Dialect,
    limits: RespLimits,
}

/// What the handshake sent, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Authenticate,
    Select,
    Name,
    Track,
    Ping,
}

impl Connection {
    /// Greets the server: version 3 with tracking, or what it can do of that.
    pub(super) async fn open(
        link: Link,
        shared: &Shared,
    ) -> Result<(Self, Tracking), ConnectionEnd> {
        let options = &shared.options;
        link.deadline().arm(options.connect_timeout);
        let mut connection = Self {
            link,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            used: 0,
            unwanted: 0,
            dialect: Dialect::Resp2,
            limits: options.limits,
        };
        let user = options.username.as_deref().map(str::as_bytes);
        let password = options.password.as_deref().map(str::as_bytes);
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = password {
            hello.extend([b"AUTH", user.unwrap_or(b"default"), password]);
        }
        let mut out = Vec::new();
        encode(&hello, &mut out);
        connection.write(out).await?;
        // Its reply is already in the new version; errors look the same in both.
        connection.dialect = Dialect::Resp3;
        let reply = connection.next_reply(shared).await?;
        connection.dialect = greeted(reply)?;
        let mut tracking = Tracking::Unavailable;
        let (steps, out) = connection.steps(shared);
        connection.write(out).await?;
        for step in steps {
            match (connection.next_reply(shared).await?, step) {
                (Reply::Error { kind, .. }, _) if is_refusal(&kind) => {
                    return Err(ConnectionEnd::Refused(kind));
                }
                // Another user, or another database, would be another truth.
                (Reply::Error { kind, .. }, Step::Authenticate | Step::Select) => {
                    return Err(ConnectionEnd::Refused(kind));
                }
                // A proxy or an ACL may forbid the rest; service goes on without.
                (Reply::Error { .. }, Step::Name | Step::Track | Step::Ping) => {}
                (_, Step::Track) => tracking = Tracking::On,
                (_, Step::Authenticate | Step::Select | Step::Name | Step::Ping) => {}
            }
        }
        connection.link.deadline().disarm();
        Ok((connection, tracking))
    }

    /// What follows the greeting, as steps and as bytes.
    fn steps(&self, shared: &Shared) -> (Vec<Step>, Vec<u8>) {
        let options = &shared.options;
        let (mut steps, mut out) = (Vec::new(), Vec::new());
        let mut add = |step, arguments: &[&[u8]]| {
            steps.push(step);
            encode(arguments, &mut out);
        };
        if let (Dialect::Resp2, Some(password)) = (self.dialect, &options.password) {
            match &options.username {
                Some(user) => add(
                    Step::Authenticate,
                    &[b"AUTH", user.as_bytes(), password.as_bytes()],
                ),
                None => add(Step::Authenticate, &[b"AUTH", password.as_bytes()]),
            }
        }
        if options.database != 0 {
            let database = options.database.to_string();
            add(Step::Select, &[b"SELECT", database.as_bytes()]);
        }
        add(Step::Name, &[b"CLIENT", b"SETNAME", CLIENT_NAME]);
        if self.dialect == Dialect::Resp3 && options.tracking == Tracking::On {
            // No NOLOOP: our own changes reach our own cache the same way as those of others.
            add(Step::Track, &[b"CLIENT", b"TRACKING", b"ON"]);
        }
        // Unlike the rest, refused while the server loads its data or has lost its master.
        add(Step::Ping, &[b"PING"]);
        (steps, out)
    }

    /// Serves the pipeline until the connection ends. Sets `is_served` once a command has got a
    /// reply that is no refusal of service.
    pub(super) async fn run(&mut self, shared: &Shared, is_served: &Cell<bool>) -> ConnectionEnd {
        match self.serve(shared, is_served).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn serve(
        &mut self,
        shared: &Shared,
        is_served: &Cell<bool>,
    ) -> Result<std::convert::Infallible, ConnectionEnd> {
        let pipeline = &shared.pipeline;
        loop {
            if shared.stopped.has_fired() {
                return Err(ConnectionEnd::Stopped);
            }
            self.arm(shared);
            let out = pipeline.take_outbox();
            if !out.is_empty() {
                let out = self.write(out).await?;
                pipeline.return_outbox(out);
            }
            if !self.is_readable_first(shared).await {
                continue;
            }
            let is_full = self.fill().await?;
            loop {
                if self.is_passing_over() {
                    break;
                }
                if self.meets_oversized() {
                    if !pipeline.fail_oldest(RedisFault::ValueTooLarge) {
                        return Err(ConnectionEnd::Unsolicited);
                    }
                    is_served.set(true);
                    continue;
                }
                let Some(reply) = self.take_reply()? else {
                    break;
                };
                match reply {
                    Reply::Push { kind, items } => pushed(&kind, &items, shared),
                    reply => {
                        let refusal = match &reply {
                            Reply::Error { kind, .. } if is_refusal(kind) => Some(kind.clone()),
                            _ => None,
                        };
                        if !pipeline.answer(reply) {
                            return Err(ConnectionEnd::Unsolicited);
                        }
                        if let Some(kind) = refusal {
                            return Err(ConnectionEnd::Refused(kind));
                        }
                        is_served.set(true);
                    }
                }
            }
            if is_full {
                // A burst of invalidations must not keep the shard from its requests.
                yield_now().await;
            }
        }
    }

    /// The oldest command sets the limit; without one there is none.
    fn arm(&self, shared: &Shared) {
        match shared.pipeline.oldest_at_ms() {
            Some(at_ms) => {
                let left_ms = at_ms.saturating_sub(now_ms());
                self.link
                    .deadline()
                    .arm(std::time::Duration::from_millis(left_ms));
            }
            None => self.link.deadline().disarm(),
        }
    }

    /// Waits for bytes (true) or for something to write (false). Both waits may be dropped.
    async fn is_readable_first(&mut self, shared: &Shared) -> bool {
        let readable = std::pin::pin!(self.link.readable());
        let wake = std::pin::pin!(shared.pipeline.wake.wait());
        matches!(select(readable, wake).await, Either::Left(_))
    }

    async fn write(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, ConnectionEnd> {
        let (outcome, bytes) = self.link.write_all(bytes).await;
        match outcome {
            Ok(()) => Ok(bytes),
            Err(_) => Err(self.broken()),
        }
    }

    /// Reads once; whether the buffer was filled, so that more is likely to wait.
    async fn fill(&mut self) -> Result<bool, ConnectionEnd> {
        self.compact();
        let buffer = std::mem::take(&mut self.buffer);
        let (outcome, buffer) = self.link.read(buffer).await;
        self.buffer = buffer;
        match outcome {
            Ok(0) | Err(_) => Err(self.broken()),
            Ok(_) => Ok(self.buffer.len() == self.buffer.capacity()),
        }
    }

    fn broken(&self) -> ConnectionEnd {
        if self.link.deadline().has_passed() {
            ConnectionEnd::Timeout
        } else {
            ConnectionEnd::Closed
        }
    }

    /// Drops what has been decoded, and the memory a large value took.
    fn compact(&mut self) {
        self.buffer.drain(..self.used);
        self.used = 0;
        if self.buffer.len() < BUFFER_BYTES {
            self.buffer.shrink_to(BUFFER_BYTES);
        }
    }

    /// Whether a value begins here that is too large to be taken. It is passed over from now on:
    /// one user's value must not cost all users the connection.
    fn meets_oversized(&mut self) -> bool {
        let Some((head, body)) = oversized(&self.buffer[self.used..], &self.limits) else {
            return false;
        };
        self.used += head;
        self.unwanted = body;
        true
    }

    /// Drops what is there of such a value; whether more of it is to come.
    fn is_passing_over(&mut self) -> bool {
        let count = self.unwanted.min(self.buffer.len() - self.used);
        self.used += count;
        self.unwanted -= count;
        self.unwanted > 0
    }

    fn take_reply(&mut self) -> Result<Option<Reply>, ConnectionEnd> {
        match decode(&self.buffer[self.used..], self.dialect, &self.limits) {
            Ok(Some((reply, length))) => {
                self.used += length;
                Ok(Some(reply))
            }
            Ok(None) => Ok(None),
            Err(fault) => Err(ConnectionEnd::Protocol(fault)),
        }
    }

    /// The next reply of the handshake.
    async fn next_reply(&mut self, shared: &Shared) -> Result<Reply, ConnectionEnd> {
        loop {
            match self.take_reply()? {
                Some(Reply::Push { kind, items }) => pushed(&kind, &items, shared),
                Some(reply) => return Ok(reply),
                None => {
                    self.fill().await?;
                }
            }
        }
    }
}

/// The version spoken after the server's reply to `HELLO 3`.
fn greeted(reply: Reply) -> Result<Dialect, ConnectionEnd> {
    match reply {
        Reply::Map(_) => Ok(Dialect::Resp3),
        Reply::Error { kind, .. } if is_refusal(&kind) => Err(ConnectionEnd::Refused(kind)),
        // Unknown command (before Redis 6), NOPROTO, NOPERM: try the old way on this connection.
        Reply::Error { .. } => Ok(Dialect::Resp2),
        _ => Err(ConnectionEnd::Protocol(RespFault::Malformed)),
    }
}

/// Errors that mean no service on this connection, whatever is asked.
fn is_refusal(kind: &str) -> bool {
    matches!(
        kind,
        "NOAUTH" | "WRONGPASS" | "LOADING" | "READONLY" | "MASTERDOWN"
    )
}

/// Handles what the server sent unasked. Only invalidations concern us.
fn pushed(kind: &str, items: &[Reply], shared: &Shared) {
    if kind != "invalidate" {
        return;
    }
    match items.first() {
        Some(Reply::Array(keys)) => {
            for key in keys {
                if let Reply::Bulk(key) = key {
                    shared.invalidate(Invalidated::Key(key));
                }
            }
        }
        // Null: the database was flushed. Anything else is unknown, so nothing can be trusted.
        _ => shared.invalidate(Invalidated::All),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: &str) -> Reply {
        Reply::Error {
            kind: String::from(kind),
            text: String::from(kind),
        }
    }

    #[test]
    fn the_greeting_decides_the_version() {
        assert_eq!(greeted(Reply::Map(Vec::new())), Ok(Dialect::Resp3));
        for kind in ["ERR", "NOPROTO", "NOPERM"] {
            assert_eq!(greeted(error(kind)), Ok(Dialect::Resp2));
        }
        for kind in ["NOAUTH", "WRONGPASS", "LOADING", "READONLY", "MASTERDOWN"] {
            let end = ConnectionEnd::Refused(String::from(kind));
            assert_eq!(greeted(error(kind)), Err(end));
        }
        assert_eq!(
            greeted(Reply::Integer(1)),
            Err(ConnectionEnd::Protocol(RespFault::Malformed))
        );
    }
}
