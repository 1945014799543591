//! The proxy itself, written once for all engines: a request whole to the backend over a kept
//! connection, the reply back as it comes.

use std::{cell::RefCell, io, net::SocketAddr, rc::Rc};

use shards::{buffer::BufferPool, stream::READ_BYTES_MIN};

use super::framing::{Rest, request_bytes};

/// Largest request; more is no business of a bench.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Replies of a known length up to this are written at once, as the gateway does; longer ones, and
/// streams, as they come.
const TOGETHER_BYTES: usize = 64 * 1024;
/// Kept connections to a backend.
const KEPT_MAX: usize = 256;

/// A buffer and how an operation on it went.
pub(super) type Done<T> = (io::Result<T>, Vec<u8>);

/// A connection of an engine: what [`shards::Stream`] can do.
pub(super) trait Wire: Sized + 'static {
    /// What connecting needs.
    type Maker: 'static;

    /// Connects.
    async fn connect(maker: &Self::Maker, to: SocketAddr) -> io::Result<Self>;
    /// Waits for bytes or the end without holding a buffer, where the engine can.
    async fn readable(&self);
    /// Appends what can be read; 0 = end.
    async fn read(&mut self, buffer: Vec<u8>) -> Done<usize>;
    /// Writes all of it.
    async fn write_all(&mut self, buffer: Vec<u8>) -> Done<()>;
}

/// A backend and the kept connections to it.
pub(super) struct Upstream<W: Wire> {
    maker: W::Maker,
    address: SocketAddr,
    idle: RefCell<Vec<W>>,
    buffers: BufferPool,
}

impl<W: Wire> Upstream<W> {
    pub(super) fn new(maker: W::Maker, address: SocketAddr, buffers: BufferPool) -> Rc<Self> {
        Rc::new(Self {
            maker,
            address,
            idle: RefCell::default(),
            buffers,
        })
    }

    async fn take(&self) -> io::Result<W> {
        let kept = self.idle.borrow_mut().pop();
        match kept {
            Some(wire) => Ok(wire),
            None => W::connect(&self.maker, self.address).await,
        }
    }

    fn put(&self, wire: W) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < KEPT_MAX {
            idle.push(wire);
        }
    }
}

/// One client's connection, from its first byte to its last; whatever is wrong ends it.
pub(super) async fn serve<W: Wire>(mut client: W, upstream: Rc<Upstream<W>>) {
    loop {
        client.readable().await;
        let buffer = upstream.buffers.take();
        match exchange(&mut client, &upstream, buffer).await {
            Ok(buffer) => upstream.buffers.put(buffer),
            // The end of a connection is what usually comes to here.
            Err(_) => return,
        }
    }
}

/// One request and its reply; the buffer is given back.
async fn exchange<W: Wire>(
    client: &mut W,
    upstream: &Upstream<W>,
    buffer: Vec<u8>,
) -> io::Result<Vec<u8>> {
    let mut buffer = request(client, buffer).await?;
    let mut wire = upstream.take().await?;
    let sent;
    (sent, buffer) = wire.write_all(buffer).await;
    sent?;
    buffer.clear();
    let mut rest = Rest::Head;
    // Bytes of the buffer that the framing knows of; none before the head is whole.
    let mut passed = 0;
    loop {
        if let Some(bytes) = rest.known() {
            // All of it by one read.
            buffer.reserve(bytes.min(TOGETHER_BYTES) + READ_BYTES_MIN);
        }
        buffer = read(&mut wire, buffer).await?;
        let is_end = rest.pass(&buffer[passed..])?;
        if matches!(rest, Rest::Head) {
            continue;
        }
        passed = buffer.len();
        let left = rest.known().filter(|_| !is_end);
        if left.is_some_and(|left| left + passed <= TOGETHER_BYTES) {
            continue;
        }
        let sent;
        (sent, buffer) = client.write_all(buffer).await;
        sent?;
        buffer.clear();
        passed = 0;
        if is_end {
            upstream.put(wire);
            return Ok(buffer);
        }
    }
}

/// Reads one request whole. The clients of a bench ask one thing at a time.
async fn request<W: Wire>(client: &mut W, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    loop {
        buffer = read(client, buffer).await?;
        match request_bytes(&buffer)? {
            Some(bytes) if bytes == buffer.len() => return Ok(buffer),
            Some(bytes) if bytes < buffer.len() => {
                return Err(io::Error::other("one request at a time"));
            }
            _ if buffer.len() > REQUEST_BYTES_MAX => return Err(io::Error::other("too large")),
            _ => {}
        }
    }
}

async fn read<W: Wire>(wire: &mut W, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    match wire.read(buffer).await {
        (Ok(0), _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (Ok(_), buffer) => Ok(buffer),
        (Err(error), _) => Err(error),
    }
}
