//! A backend that is not there: its address refuses connections.

use std::net::{SocketAddr, TcpListener};

use tokio::net::TcpSocket;

/// An address that refuses connections until a backend is to be there.
pub struct Refusing {
    /// Bound, so that the port is nobody else's, and not listening.
    socket: TcpSocket,
}

impl Refusing {
    /// Takes one.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self { socket }
    }

    /// An MCP endpoint there.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.socket.local_addr().unwrap())
    }

    /// Refuses no longer.
    pub fn listen(self) -> TcpListener {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let listening = async { self.socket.listen(128).unwrap().into_std().unwrap() };
        let listener = runtime.block_on(listening);
        listener.set_nonblocking(false).unwrap();
        listener
    }
}

impl Default for Refusing {
    fn default() -> Self {
        Self::new()
    }
}
