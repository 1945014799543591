//! A TCP connection of a shard: owned-buffer reads and writes, a deadline, and the parcel in which
//! it moves to another shard.
//!
//! No operation is ever raced against a timer: limits go through [`Deadline`].

#![expect(
    clippy::manual_async_fn,
    reason = "an `async fn` holds its arguments twice, and a buffer in each operation of each \
              connection adds up"
)]

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use monoio::{
    buf::{IoBuf, IoBufMut, SliceMut},
    io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt},
    net::TcpStream,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::{
    busy_poll::Record,
    deadline::{Deadline, Deadlines},
    driver::{self, DriverKind},
    pace,
    task::yield_now,
};

/// Room a read has at the least, bytes. Who reserves for a whole of known length and adds this has
/// it read without a larger buffer.
pub const READ_BYTES_MIN: usize = 1024;
/// Operations in a row that did not have to wait before the shard's other tasks have a turn. The
/// epoll driver does at once what can be done at once: a peer that always has more to read, and
/// always takes more, would have the shard for itself.
const STREAK_MAX: u32 = 64;
/// Bytes the other end must have taken for its time to begin anew.
const PROGRESS_BYTES: usize = 64 * 1024;

/// An open connection. Fields drop in this order: the deadline leaves its table before the
/// descriptor closes.
#[derive(Debug)]
pub struct Stream {
    deadline: Deadline,
    tcp: TcpStream,
    habits: Habits,
    /// The last wait for input ended, and nothing was read since.
    has_been_readable: Cell<bool>,
    /// Operations go through a ring, but for those that are better done at once.
    is_ring: bool,
}

/// How the operations of a connection have gone of late.
#[derive(Debug)]
struct Habits {
    /// Operations since the last one that had to wait.
    streak: Cell<u32>,
    /// What polling for replies has brought.
    polled: Record,
}

/// An operation of a connection, counted when it did not have to wait.
struct Counted<'a, F> {
    operation: Pin<&'a mut F>,
    streak: &'a Cell<u32>,
}

/// The same of a read, which may be of a reply that is polled for.
struct CountedRead<'a, F> {
    operation: Pin<&'a mut F>,
    habits: &'a Habits,
}

impl<F: Future> Future for CountedRead<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let habits = self.habits;
        let mut counted = Counted {
            operation: self.operation.as_mut(),
            streak: &habits.streak,
        };
        let outcome = Pin::new(&mut counted).poll(cx);
        match outcome {
            Poll::Ready(_) => habits.polled.has_come(),
            Poll::Pending => habits.polled.waits(),
        }
        outcome
    }
}

impl<F: Future> Future for Counted<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let outcome = self.operation.as_mut().poll(cx);
        let streak = if outcome.is_ready() {
            self.streak.get() + 1
        } else {
            0
        };
        self.streak.set(streak);
        outcome
    }
}

/// Whether an operation that was tried at once is left to the ring.
fn is_to_be_waited_for(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// A connection on its way to another shard: nothing pending, nothing registered.
#[derive(Debug)]
pub struct Parcel {
    fd: OwnedFd,
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, deadlines: &Deadlines) -> Self {
        let deadline = deadlines.register(tcp.as_raw_fd());
        Self {
            deadline,
            tcp,
            habits: Habits {
                streak: Cell::new(0),
                polled: Record::never(),
            },
            has_been_readable: Cell::new(false),
            is_ring: driver::current() == DriverKind::IoUring,
        }
    }

    /// Connects to `address`, TCP_NODELAY set. The limit is a deadline as any other: when it passes
    /// the attempt is shut down, so neither it nor a dropped call leaves a descriptor behind.
    pub async fn connect(
        address: SocketAddr,
        limit: Duration,
        deadlines: &Deadlines,
    ) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        let mut stream = Self::new(TcpStream::from_std(socket.into())?, deadlines);
        if stream.is_ring {
            stream.habits.polled = Record::new();
        }
        stream.deadline.arm(limit);
        let waited = stream.tcp.writable(false).await;
        if stream.deadline.has_passed() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.deadline.disarm();
        // SAFETY: the descriptor is open, `stream` owns it, and it outlives this statement.
        let fd = unsafe { BorrowedFd::borrow_raw(stream.tcp.as_raw_fd()) };
        let socket = SockRef::from(&fd);
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        waited?;
        // The epoll driver wants non-blocking descriptors, io_uring blocking ones.
        socket.set_nonblocking(driver::current() == DriverKind::Epoll)?;
        Ok(stream)
    }

    /// Waits until bytes, or the end, can be read; holds no buffer meanwhile. An error is left to
    /// the read that follows. Safe to drop: no byte is lost.
    pub async fn readable(&self) {
        self.give_way().await;
        let operation = pin!(self.tcp.readable(false));
        let _ = Counted {
            operation,
            streak: &self.habits.streak,
        }
        .await;
        self.has_been_readable.set(true);
    }

    /// Lets the shard's other tasks run, after a while without a wait.
    async fn give_way(&self) {
        if self.habits.streak.get() >= STREAK_MAX {
            self.habits.streak.set(0);
            yield_now().await;
        }
    }

    /// Appends what can be read to `buffer` (its spare capacity, at least 1 KiB is made); 0 = end.
    pub fn read(
        &mut self,
        mut buffer: Vec<u8>,
    ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> {
        async move {
            self.give_way().await;
            if buffer.capacity() - buffer.len() < READ_BYTES_MIN {
                buffer.reserve(READ_BYTES_MIN.max(buffer.len()));
            }
            if self.is_ring && self.has_been_readable.replace(false) && pace::is_eager() {
                match self.receive_now(&mut buffer) {
                    Err(error) if is_to_be_waited_for(&error) => {}
                    result => {
                        self.habits.streak.set(self.habits.streak.get() + 1);
                        return (result, buffer);
                    }
                }
            }
            let (start, end) = (buffer.len(), buffer.capacity());
            let slice: SliceMut<Vec<u8>> = buffer.slice_mut(start..end);
            let operation = pin!(self.tcp.read(slice));
            let (result, slice) = CountedRead {
                operation,
                habits: &self.habits,
            }
            .await;
            (result, slice.into_inner())
        }
    }

    /// Writes all of `buffer` and gives it back.
    pub fn write_all(
        &mut self,
        buffer: Vec<u8>,
    ) -> impl Future<Output = (io::Result<()>, Vec<u8>)> {
        async move {
            self.give_way().await;
            let (written, length) = match self.send_now(&buffer) {
                Ok(written) if written == buffer.len() => {
                    self.habits.streak.set(self.habits.streak.get() + 1);
                    return (Ok(()), buffer);
                }
                Ok(written) => (written, buffer.len()),
                Err(error) => return (Err(error), buffer),
            };
            let operation = pin!(self.tcp.write_all(buffer.slice(written..length)));
            let (result, slice) = Counted {
                operation,
                streak: &self.habits.streak,
            }
            .await;
            (result.map(|_| ()), slice.into_inner())
        }
    }

    /// Sends what the kernel takes right now, and says how much that was.
    fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_ring || !pace::is_eager() {
            return Ok(0);
        }
        // SAFETY: the slice is valid for reads of its length, the descriptor is ours; with
        // MSG_DONTWAIT nothing waits whatever the descriptor's own mode.
        let count = unsafe {
            libc::send(
                self.tcp.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if is_to_be_waited_for(&error) => Ok(0),
                error => Err(error),
            },
        }
    }

    /// Appends what is there right now to the spare capacity of `buffer`.
    fn receive_now(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let spare = buffer.spare_capacity_mut();
        // SAFETY: the spare capacity is valid for writes of its length, the descriptor is ours;
        // with MSG_DONTWAIT nothing waits whatever the descriptor's own mode.
        let count = unsafe {
            libc::recv(
                self.tcp.as_raw_fd(),
                spare.as_mut_ptr().cast(),
                spare.len(),
                libc::MSG_DONTWAIT,
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has written that many bytes of the spare capacity, and no more.
        unsafe { buffer.set_len(buffer.len() + count) };
        Ok(count)
    }

    /// The same under the connection's deadline: the other end has `limit` for each 64 KiB, so one
    /// that reads slowly is not taken for one that does not read.
    pub fn write_all_within(
        &mut self,
        mut buffer: Vec<u8>,
        limit: Duration,
    ) -> impl Future<Output = (io::Result<()>, Vec<u8>)> {
        async move {
            let (mut written, length) = (0, buffer.len());
            let mut due = 0;
            let mut outcome = Ok(());
            while written < length {
                self.give_way().await;
                if written >= due {
                    due = written + PROGRESS_BYTES;
                    self.deadline.arm(limit);
                }
                let result = match self.send_now(&buffer[written..]) {
                    Ok(0) => {
                        let operation = pin!(self.tcp.write(buffer.slice(written..length)));
                        let (result, slice) = Counted {
                            operation,
                            streak: &self.habits.streak,
                        }
                        .await;
                        buffer = slice.into_inner();
                        result
                    }
                    result => {
                        self.habits.streak.set(self.habits.streak.get() + 1);
                        result
                    }
                };
                match result {
                    Ok(0) => outcome = Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => outcome = Err(error),
                }
                if outcome.is_err() {
                    break;
                }
            }
            self.deadline.disarm();
            (outcome, buffer)
        }
    }

    /// Whether something, the end included, could be read right now. For a connection that should
    /// be silent: one that has input is of no use any more. One system call, which never waits.
    pub fn has_input(&self) -> bool {
        let mut byte = 0u8;
        // SAFETY: the buffer is one valid byte, the length says so, the descriptor is ours; with
        // MSG_PEEK and MSG_DONTWAIT nothing is consumed and nothing waits.
        let count = unsafe {
            libc::recv(
                self.tcp.as_raw_fd(),
                (&raw mut byte).cast(),
                1,
                libc::MSG_PEEK | libc::MSG_DONTWAIT,
            )
        };
        count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
    }

    /// Whether the other side has closed its half or all of the connection, whatever it sent before
    /// and nobody has read yet. One system call, which never waits.
    pub fn has_hung_up(&self) -> bool {
        let mut one = libc::pollfd {
            fd: self.tcp.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: the pointer is to one valid entry, the count says so, and the time limit is none.
        let count = unsafe { libc::poll(&raw mut one, 1, 0) };
        count > 0
    }

    /// Reads what is there right now into `bytes`; `WouldBlock` when nothing is, 0 = end. One
    /// system call, which never waits, so that a call can be dropped on either side of it.
    pub fn read_now(&self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the slice is valid for writes of its length, the descriptor is ours; with
        // MSG_DONTWAIT nothing waits whatever the descriptor's own mode.
        let count = unsafe {
            libc::recv(
                self.tcp.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// The time limit of this connection.
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Says that nothing more will be written; what the other side still sends can be read.
    pub fn end_output(&self) {
        // SAFETY: plain system call on a descriptor that `self` keeps open.
        unsafe {
            libc::shutdown(self.tcp.as_raw_fd(), libc::SHUT_WR);
        }
    }

    /// The other end's address.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// Whether small writes go out at once instead of waiting for the other end's delayed
    /// acknowledgement (TCP_NODELAY): so it is for every connection, accepted or made.
    pub fn has_no_delay(&self) -> io::Result<bool> {
        // SAFETY: the descriptor is open, `self` owns it, and it outlives this call.
        let fd = unsafe { BorrowedFd::borrow_raw(self.tcp.as_raw_fd()) };
        SockRef::from(&fd).tcp_nodelay()
    }

    /// Takes the connection out of this shard. Only with no operation pending: a `readable` dropped
    /// half-way still belongs to the kernel, so such a connection must stay.
    pub fn into_parcel(self) -> io::Result<Parcel> {
        let Self { deadline, tcp, .. } = self;
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
