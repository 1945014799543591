//! Listening sockets: one per shard on the same address (SO_REUSEPORT).
//!
//! All are opened, in shard order, by the starting thread before any shard runs. SO_REUSEPORT would
//! let a second process of the same user take a share of the connections in silence; so a socket
//! without it is bound first, which fails when anyone is there.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel queues for us before it drops them (capped by `net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// The sockets of one address, one for each shard.
#[derive(Debug)]
pub struct ListenerGroup {
    /// The address bound, with its real port.
    pub address: SocketAddr,
    pub(crate) sockets: Vec<TcpListener>,
}

impl ListenerGroup {
    /// The sockets, for a caller that accepts by other means than shards.
    pub fn into_listeners(self) -> Vec<TcpListener> {
        self.sockets
    }
}

/// Why an address could not be listened on.
#[derive(Debug)]
pub enum ListenFault {
    /// Somebody listens there already.
    InUse(SocketAddr),
    /// The system refused.
    Refused(SocketAddr, io::Error),
}

impl std::fmt::Display for ListenFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse(address) => write!(
                f,
                "{address} is in use by another process; stop it, choose another address, or give \
                 --take-over to share the address with it"
            ),
            Self::Refused(address, error) => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl std::error::Error for ListenFault {}

/// Opens `count` listening sockets on `address` (port 0: any free port, the same for all). Unless
/// `take_over`, an address somebody else listens on is refused.
pub fn listen(
    address: SocketAddr,
    count: u16,
    take_over: bool,
) -> Result<ListenerGroup, ListenFault> {
    let refused = |error| ListenFault::Refused(address, error);
    if !take_over && address.port() != 0 {
        let probe = socket(address).map_err(refused)?;
        match probe.bind(&address.into()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(ListenFault::InUse(address));
            }
            Err(error) => return Err(ListenFault::Refused(address, error)),
        }
    }
    let mut bound = address;
    let mut sockets = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let socket = socket(address).map_err(refused)?;
        socket.set_reuse_port(true).map_err(refused)?;
        // Accepted sockets inherit it: a reply is never held back for an acknowledgement.
        socket.set_tcp_nodelay(true).map_err(refused)?;
        socket.bind(&bound.into()).map_err(refused)?;
        let listener: TcpListener = socket.into();
        bound = listener.local_addr().map_err(refused)?;
        sockets.push(listener);
    }
    for socket in &sockets {
        socket2::SockRef::from(socket)
            .listen(BACKLOG)
            .map_err(refused)?;
    }
    Ok(ListenerGroup {
        address: bound,
        sockets,
    })
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Addresses in TIME_WAIT after a restart are no reason to refuse.
    socket.set_reuse_address(true)?;
    socket.set_cloexec(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_listener_on_the_address_is_refused_unless_it_takes_over() {
        let first = listen(([127, 0, 0, 1], 0).into(), 2, false).unwrap();
        assert_eq!(first.sockets.len(), 2);
        assert!(matches!(
            listen(first.address, 1, false),
            Err(ListenFault::InUse(_))
        ));
        assert!(listen(first.address, 1, true).is_ok());
    }

    #[test]
    fn the_address_is_free_again_afterwards() {
        let first = listen(([127, 0, 0, 1], 0).into(), 1, false).unwrap();
        let address = first.address;
        drop(first);
        assert!(listen(address, 3, false).is_ok());
    }
}
