//! A connection as the protocol code sees it: plain or TLS, the same three operations.
//!
//! TLS is rustls driven by byte slices; the session can leave its socket and move with it to
//! another shard. Nothing here knows HTTP.

use std::{
    io::{self, BufRead, Read, Write},
    sync::Arc,
    time::Duration,
};

use futures_util::future::Either;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use shards::{Deadline, Deadlines, Parcel, Stream};

/// Room made for a read at the least, as a plain stream does.
const READ_BYTES_MIN: usize = 1024;
/// What the other side must take within a limit.
const WRITE_BYTES: usize = 64 * 1024;

/// An open connection.
#[derive(Debug)]
pub enum Link {
    /// Bytes as they are.
    Plain(Stream),
    /// Bytes inside TLS.
    Tls(Box<TlsLink>),
}

/// A TLS session on a socket.
#[derive(Debug)]
pub struct TlsLink {
    stream: Stream,
    session: Connection,
    /// The last read of ciphertext took all it had room for: more is likely to be there.
    has_more: bool,
}

/// A TLS session on its way to another shard.
#[derive(Debug)]
struct Baggage(Connection);

impl Link {
    /// Opens the client side of TLS on `stream`, handshake included.
    pub async fn connect_tls(
        stream: Stream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Self::open_tls(stream, session.into()).await
    }

    /// Opens the server side of TLS on `stream`, handshake included.
    pub async fn accept_tls(stream: Stream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Self::open_tls(stream, session.into()).await
    }

    async fn open_tls(stream: Stream, session: Connection) -> io::Result<Self> {
        // Boxed before the first wait, or whoever may wait here would be that much larger.
        let mut link = Box::new(TlsLink {
            stream,
            session,
            has_more: false,
        });
        link.handshake().await?;
        Ok(Self::Tls(link))
    }

    /// Waits until a read would not: for bytes, the end, or a fault. What TLS says to itself
    /// (tickets, key updates, a part of a record) is taken in here and does not count. Holds no
    /// buffer meanwhile. Safe to drop: no byte is lost.
    pub async fn readable(&mut self) {
        match self {
            Self::Plain(stream) => stream.readable().await,
            Self::Tls(link) => {
                while !link.is_ready() {
                    link.stream.readable().await;
                    if link.take_in().is_err() {
                        // The session keeps its fault, the socket its end: the read meets them.
                        break;
                    }
                }
            }
        }
    }

    /// Whether something, the end included, can be read right now. For a connection that should be
    /// silent: one that has input is of no use any more. Never waits.
    pub fn has_input(&mut self) -> bool {
        match self {
            Self::Plain(stream) => stream.has_input(),
            Self::Tls(link) => loop {
                if link.is_ready() {
                    break true;
                }
                match link.take_in() {
                    Ok(true) => {}
                    Ok(false) => break false,
                    Err(_) => break true,
                }
            },
        }
    }

    /// Whether something is left that was received and not read yet: TLS decrypts by the record, a
    /// read takes what it has room for. No system call.
    pub fn holds_input(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(link) => link.is_ready(),
        }
    }

    /// Appends what can be read to `buffer`; 0 = the other side has ended.
    pub fn read(&mut self, buffer: Vec<u8>) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> {
        // Boxed, or all connections would have the room that those in TLS need. So below.
        match self {
            Self::Plain(stream) => Either::Left(stream.read(buffer)),
            Self::Tls(link) => Either::Right(Box::pin(link.read(buffer))),
        }
    }

    /// Writes all of `buffer` and gives it back.
    pub fn write_all(
        &mut self,
        buffer: Vec<u8>,
    ) -> impl Future<Output = (io::Result<()>, Vec<u8>)> {
        match self {
            Self::Plain(stream) => Either::Left(stream.write_all(buffer)),
            Self::Tls(link) => Either::Right(Box::pin(async move {
                let result = link.write(&buffer).await;
                (result, buffer)
            })),
        }
    }

    /// The same under the connection's deadline: the other side has `limit` for each 64 KiB.
    pub fn write_all_within(
        &mut self,
        buffer: Vec<u8>,
        limit: Duration,
    ) -> impl Future<Output = (io::Result<()>, Vec<u8>)> {
        match self {
            Self::Plain(stream) => Either::Left(stream.write_all_within(buffer, limit)),
            Self::Tls(link) => Either::Right(Box::pin(async move {
                let result = link.write_within(&buffer, limit).await;
                (result, buffer)
            })),
        }
    }

    /// Says that nothing more will be written: in TLS by its own word first, without which the
    /// other side could not tell this end from a cut (RFC 8446 section 6.1).
    pub async fn end_output(&mut self) {
        if let Self::Tls(link) = self {
            link.session.send_close_notify();
            // Who does not take it any more does not need it.
            let _ = link.flush().await;
        }
        self.stream().end_output();
    }

    /// The connection's time limit.
    pub fn deadline(&self) -> &Deadline {
        self.stream().deadline()
    }

    /// The socket below.
    pub fn stream(&self) -> &Stream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(link) => &link.stream,
        }
    }

    /// Takes the connection apart for another shard: the socket and, for TLS, its session.
    pub fn into_parcel(self) -> io::Result<(Parcel, Option<Box<dyn std::any::Any + Send>>)> {
        match self {
            Self::Plain(stream) => Ok((stream.into_parcel()?, None)),
            Self::Tls(link) => {
                let TlsLink {
                    stream, session, ..
                } = *link;
                Ok((stream.into_parcel()?, Some(Box::new(Baggage(session)))))
            }
        }
    }

    /// Puts a connection together that came from another shard.
    pub fn from_parcel(
        parcel: Parcel,
        baggage: Option<Box<dyn std::any::Any + Send>>,
        deadlines: &Deadlines,
    ) -> io::Result<Self> {
        let stream = Stream::from_parcel(parcel, deadlines)?;
        match baggage.map(Box::<dyn std::any::Any + Send>::downcast::<Baggage>) {
            None => Ok(Self::Plain(stream)),
            Some(Ok(baggage)) => Ok(Self::Tls(Box::new(TlsLink {
                stream,
                session: baggage.0,
                has_more: false,
            }))),
            Some(Err(_)) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Reads what the socket has right now: `WouldBlock` when that is nothing.
struct Now<'a> {
    stream: &'a Stream,
    is_full: bool,
}

impl Read for Now<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read_now(bytes)?;
        self.is_full = count == bytes.len();
        Ok(count)
    }
}

impl TlsLink {
    /// Whether a read would not wait for the socket: `wants_read` is false while decrypted bytes
    /// wait to be taken, and after the other side's last word.
    fn is_ready(&self) -> bool {
        !self.session.is_handshaking() && !self.session.wants_read()
    }

    async fn handshake(&mut self) -> io::Result<()> {
        let mut outcome = Ok(());
        while outcome.is_ok() && self.session.is_handshaking() {
            self.flush().await?;
            if self.session.is_handshaking() && self.session.wants_read() {
                outcome = self.fill().await;
            }
        }
        // After a failure this is the alert that tells the other side why.
        let flushed = self.flush().await;
        outcome.and(flushed)
    }

    /// Writes all ciphertext the session has ready.
    async fn flush(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut out)?;
        }
        if out.is_empty() {
            return Ok(());
        }
        self.stream.write_all(out).await.0
    }

    /// Waits for some ciphertext and takes it in.
    async fn fill(&mut self) -> io::Result<()> {
        if !self.has_more {
            self.stream.readable().await;
        }
        self.take_in().map(drop)
    }

    /// Takes in the ciphertext that is there; false: none is. Only while no plaintext waits, of
    /// which the session holds no more than one such step gives. An end without the session's own
    /// is an error for who reads next, when all plaintext is taken.
    fn take_in(&mut self) -> io::Result<bool> {
        let mut source = Now {
            stream: &self.stream,
            is_full: false,
        };
        let outcome = self.session.read_tls(&mut source);
        self.has_more = source.is_full;
        let count = match outcome {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(false);
            }
            other => other?,
        };
        self.process()?;
        if count == 0 {
            // While handshaking nobody reads who would be told.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(true)
    }

    /// Has the session work on what it has; a fault it has met once is met each time.
    fn process(&mut self) -> io::Result<()> {
        self.session
            .process_new_packets()
            .map(drop)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    async fn read(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        loop {
            match self.take_plaintext(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return (other, buffer),
            }
            // Answers to key updates, or the alert of a fault that `readable` has met.
            let mut outcome = self.flush().await.and_then(|()| self.process());
            if outcome.is_ok() {
                outcome = self.fill().await;
                if outcome.is_err() {
                    let _ = self.flush().await;
                }
            }
            if let Err(error) = outcome {
                return (Err(error), buffer);
            }
        }
    }

    /// Appends decrypted bytes to `buffer`, as many as it has room for.
    fn take_plaintext(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        if buffer.capacity() - buffer.len() < READ_BYTES_MIN {
            buffer.reserve(READ_BYTES_MIN.max(buffer.len()));
        }
        let start = buffer.len();
        loop {
            let room = buffer.capacity() - buffer.len();
            let mut reader = self.session.reader();
            let count = match reader.fill_buf() {
                Ok(bytes) => {
                    let count = bytes.len().min(room);
                    buffer.extend_from_slice(&bytes[..count]);
                    count
                }
                Err(error) if buffer.len() == start => return Err(error),
                // That is for the next read.
                Err(_) => 0,
            };
            if count == 0 {
                return Ok(buffer.len() - start);
            }
            reader.consume(count);
        }
    }

    async fn write_within(&mut self, bytes: &[u8], limit: Duration) -> io::Result<()> {
        let mut result = Ok(());
        for part in bytes.chunks(WRITE_BYTES) {
            self.stream.deadline().arm(limit);
            result = self.write(part).await;
            if result.is_err() {
                break;
            }
        }
        self.stream.deadline().disarm();
        result
    }

    async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.session.writer().write(bytes)?;
            bytes = &bytes[taken..];
            self.flush().await?;
        }
        Ok(())
    }
}
