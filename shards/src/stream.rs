//! A TCP connection of a shard: owned-buffer reads and writes, a deadline, and the parcel in which
//! it moves to another shard.
//!
//! No operation is ever raced against a timer: limits go through [`Deadline`].

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd},
    time::Duration,
};

use monoio::{
    buf::{IoBufMut, SliceMut},
    io::{AsyncReadRent, AsyncWriteRentExt},
    net::TcpStream,
};

use crate::deadline::{Deadline, Deadlines};

/// An open connection. Fields drop in this order: the deadline leaves its table before the
/// descriptor closes.
#[derive(Debug)]
pub struct Stream {
    deadline: Deadline,
    tcp: TcpStream,
}

/// A connection on its way to another shard: nothing pending, nothing registered.
#[derive(Debug)]
pub struct Parcel {
    fd: OwnedFd,
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, deadlines: &Deadlines) -> Self {
        let deadline = deadlines.register(tcp.as_raw_fd());
        Self { deadline, tcp }
    }

    /// Connects to `address`, TCP_NODELAY set. The attempt is never dropped half-way: it runs as a
    /// task of its own, and when `limit` passes first its late socket is closed on arrival.
    pub async fn connect(
        address: SocketAddr,
        limit: Duration,
        deadlines: &Deadlines,
    ) -> io::Result<Self> {
        let (sender, receiver) = one_shot();
        crate::task::spawn(async move {
            sender.send(TcpStream::connect_addr(address).await);
        });
        let tcp = crate::task::within(limit, receiver.receive())
            .await
            .ok_or(io::ErrorKind::TimedOut)?
            .ok_or(io::ErrorKind::BrokenPipe)??;
        tcp.set_nodelay(true)?;
        Ok(Self::new(tcp, deadlines))
    }

    /// Waits until bytes, or the end, can be read; holds no buffer meanwhile. An error is left to
    /// the read that follows. Safe to drop: no byte is lost.
    pub async fn readable(&self) {
        let _ = self.tcp.readable(false).await;
    }

    /// Appends what can be read to `buffer` (its spare capacity, at least 1 KiB is made); 0 = end.
    pub async fn read(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        if buffer.capacity() - buffer.len() < 1024 {
            buffer.reserve(1024.max(buffer.len()));
        }
        let (start, end) = (buffer.len(), buffer.capacity());
        let slice: SliceMut<Vec<u8>> = buffer.slice_mut(start..end);
        let (result, slice) = self.tcp.read(slice).await;
        (result, slice.into_inner())
    }

    /// Writes all of `buffer` and gives it back.
    pub async fn write_all(&mut self, buffer: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        let (result, buffer) = self.tcp.write_all(buffer).await;
        (result.map(|_| ()), buffer)
    }

    /// The time limit of this connection.
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// The other end's address.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// Takes the connection out of this shard. Only with no operation pending: a `readable` dropped
    /// half-way still belongs to the kernel, so such a connection must stay.
    pub fn into_parcel(self) -> io::Result<Parcel> {
        let Self { deadline, tcp } = self;
        drop(deadline);
        // SAFETY: `into_raw_fd` gives up ownership of an open descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(tcp.into_raw_fd()) };
        Ok(Parcel { fd })
    }

    /// Unpacks a connection on the shard it was sent to.
    pub fn from_parcel(parcel: Parcel, deadlines: &Deadlines) -> io::Result<Self> {
        let tcp = TcpStream::from_std(std::net::TcpStream::from(parcel.fd))?;
        Ok(Self::new(tcp, deadlines))
    }
}

/// A value handed from one task to another of the same shard, once.
fn one_shot<T>() -> (OneSender<T>, OneReceiver<T>) {
    let shared = std::rc::Rc::new(OneShot {
        value: std::cell::RefCell::new(None),
        arrived: crate::notify::Notify::default(),
    });
    (OneSender(shared.clone()), OneReceiver(shared))
}

struct OneShot<T> {
    value: std::cell::RefCell<Option<T>>,
    arrived: crate::notify::Notify,
}

struct OneSender<T>(std::rc::Rc<OneShot<T>>);
struct OneReceiver<T>(std::rc::Rc<OneShot<T>>);

impl<T> OneSender<T> {
    fn send(self, value: T) {
        *self.0.value.borrow_mut() = Some(value);
    }
}

impl<T> Drop for OneSender<T> {
    fn drop(&mut self) {
        self.0.arrived.notify();
    }
}

impl<T> OneReceiver<T> {
    /// The value, or `None` when the sender went without one.
    async fn receive(self) -> Option<T> {
        self.0.arrived.wait().await;
        self.0.value.borrow_mut().take()
    }
}
