//! A connection as the protocol code sees it: plain or TLS, the same three operations.
//!
//! TLS is rustls driven by byte slices; the session can leave its socket and move with it to
//! another shard. Nothing here knows HTTP.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use shards::{Deadline, Deadlines, Parcel, Stream};

/// Ciphertext read at a time: one TLS record with its overhead fits (RFC 8446 section 5.2).
const RECORD_BYTES: usize = 17 * 1024;

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
        let mut link = TlsLink {
            stream,
            session: session.into(),
        };
        link.handshake().await?;
        Ok(Self::Tls(Box::new(link)))
    }

    /// Opens the server side of TLS on `stream`, handshake included.
    pub async fn accept_tls(stream: Stream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut link = TlsLink {
            stream,
            session: session.into(),
        };
        link.handshake().await?;
        Ok(Self::Tls(Box::new(link)))
    }

    /// Waits until something can be read, holding no buffer. Safe to drop.
    pub async fn readable(&self) {
        match self {
            Self::Plain(stream) => stream.readable().await,
            Self::Tls(link) => {
                if !link.has_plaintext() {
                    link.stream.readable().await;
                }
            }
        }
    }

    /// Appends what can be read to `buffer`; 0 = the other side has ended.
    pub async fn read(&mut self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        match self {
            Self::Plain(stream) => stream.read(buffer).await,
            Self::Tls(link) => link.read(buffer).await,
        }
    }

    /// Writes all of `buffer` and gives it back.
    pub async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        match self {
            Self::Plain(stream) => stream.write_all(buffer).await,
            Self::Tls(link) => {
                let result = link.write(&buffer).await;
                (result, buffer)
            }
        }
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
                let TlsLink { stream, session } = *link;
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
            }))),
            Some(Err(_)) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl TlsLink {
    fn has_plaintext(&self) -> bool {
        // `wants_read` is false while decrypted bytes wait to be taken.
        !self.session.is_handshaking() && !self.session.wants_read()
    }

    async fn handshake(&mut self) -> io::Result<()> {
        while self.session.is_handshaking() {
            self.flush().await?;
            if self.session.is_handshaking() && self.session.wants_read() {
                self.fill().await?;
            }
        }
        self.flush().await
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

    /// Reads some ciphertext into the session; an end without close_notify is an error only when
    /// the caller finds no plaintext (rustls reports it).
    async fn fill(&mut self) -> io::Result<()> {
        let (result, bytes) = self.stream.read(Vec::with_capacity(RECORD_BYTES)).await;
        let count = result?;
        let mut rest = &bytes[..count];
        loop {
            let taken = self.session.read_tls(&mut rest)?;
            self.session
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if taken == 0 || rest.is_empty() {
                break;
            }
        }
        if count == 0 && self.session.is_handshaking() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    async fn read(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        loop {
            let start = buffer.len();
            buffer.resize(start + 4096, 0);
            let outcome = self.session.reader().read(&mut buffer[start..]);
            buffer.truncate(start + outcome.as_ref().map_or(0, |count| *count));
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return (other, buffer),
            }
            if let Err(error) = self.flush().await {
                return (Err(error), buffer);
            }
            if let Err(error) = self.fill().await {
                return (Err(error), buffer);
            }
        }
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
