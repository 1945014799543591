//! TLS around what the other helpers speak in plain: a client's connection, and a terminator before
//! a backend.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use rustls::{
    ClientConfig, ClientConnection, ProtocolVersion, ServerConfig, ServerConnection, StreamOwned,
};

use super::{
    certificates::client_session,
    support::{Connection, Listening, PATIENCE, Transport},
};

/// The client side of TLS, its session and its socket.
pub struct TlsClient(pub StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Connects to `address` as to the server `localhost`; the handshake happens with the first
    /// bytes that are sent.
    pub fn new(config: &Arc<ClientConfig>, address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(StreamOwned::new(
            client_session(config, "localhost"),
            socket,
        ))
    }

    /// The same as a connection.
    pub fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> Connection {
        Connection::over(Self::new(config, address))
    }
}

impl Read for TlsClient {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for TlsClient {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Transport for TlsClient {
    fn socket(&self) -> &TcpStream {
        &self.0.sock
    }

    fn tls(&mut self) -> Option<&mut ClientConnection> {
        Some(&mut self.0.conn)
    }
}

/// How a terminator passes on what its backend says; false ends the connection there and then,
/// without TLS's own end.
pub type Passing = dyn Fn(&[u8], &mut Outlet<'_>) -> bool + Send + Sync;

/// TLS in front of a plain backend; ends when dropped.
pub struct Terminator {
    shared: Arc<Shared>,
    listening: Listening,
}

struct Shared {
    backend: SocketAddr,
    config: Arc<ServerConfig>,
    passing: Box<Passing>,
    seen: Mutex<Vec<Seen>>,
}

/// One connection that came to a terminator.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The first byte, which is 22 when TLS is spoken (RFC 8446 section 5.1).
    pub first_byte: Option<u8>,
    /// The name the client asked for.
    pub server_name: Option<String>,
    /// What both agreed on, once the handshake is done.
    pub version: Option<ProtocolVersion>,
    /// What kind of handshake it was.
    pub is_resumed: bool,
    /// The client's certificates.
    pub client_chain_length: usize,
    /// Why it ended, if TLS says so.
    pub fault: Option<String>,
}

impl Terminator {
    /// One that passes everything on as it is, to the backend whose endpoint is `backend_url`.
    pub fn start(config: ServerConfig, backend_url: &str) -> Self {
        Self::passing(config, backend_url, |bytes, outlet| {
            outlet.send(bytes);
            true
        })
    }

    /// One that passes replies on in its own way.
    pub fn passing(
        config: ServerConfig,
        backend_url: &str,
        passing: impl Fn(&[u8], &mut Outlet<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = backend_url.strip_prefix("http://").unwrap();
        let shared = Arc::new(Shared {
            backend: authority.strip_suffix("/mcp").unwrap().parse().unwrap(),
            config: Arc::new(config),
            passing: Box::new(passing),
            seen: Mutex::default(),
        });
        let listening = Listening::start(listener, {
            let shared = shared.clone();
            move |socket, number| {
                shared.seen.lock().unwrap().push(Seen::default());
                let shared = shared.clone();
                move || shared.converse(number, &socket)
            }
        });
        Self { shared, listening }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.listening.address.port()
    }

    /// The MCP endpoint behind it, under the name `localhost`.
    pub fn url(&self) -> String {
        format!("https://localhost:{}/mcp", self.port())
    }

    /// The connections that came, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }
}

/// The way back to the client of a terminator.
pub struct Outlet<'a> {
    session: &'a Mutex<ServerConnection>,
    socket: &'a TcpStream,
}

impl Outlet<'_> {
    /// Makes records of `bytes`, unsent.
    pub fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut session = self.session.lock().unwrap();
        session.set_buffer_limit(None);
        session.writer().write_all(bytes).unwrap();
        unsent(&mut session)
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        // A client that has left is the test's business, not an error here.
        let _ = self.socket.write_all(bytes);
    }

    /// Sends `bytes` in TLS.
    pub fn send(&mut self, bytes: &[u8]) {
        self.send_with(|session| {
            session.set_buffer_limit(None);
            session.writer().write_all(bytes).unwrap();
        });
    }

    /// Sends `bytes` and says the end, both at once.
    pub fn send_last(&mut self, bytes: &[u8]) {
        self.send_with(|session| {
            session.set_buffer_limit(None);
            session.writer().write_all(bytes).unwrap();
            session.send_close_notify();
        });
    }

    /// Changes the keys of what follows (RFC 8446 section 4.6.3), and asks for the same.
    pub fn update_keys(&mut self) {
        self.send_with(|session| session.refresh_traffic_keys().unwrap());
    }

    /// Says the end in TLS.
    pub fn say_end(&mut self) {
        self.send_with(|session| session.send_close_notify());
    }

    /// Under one lock: records have an order.
    fn send_with(&mut self, change: impl FnOnce(&mut ServerConnection)) {
        let mut session = self.session.lock().unwrap();
        change(&mut session);
        let records = unsent(&mut session);
        let _ = self.socket.write_all(&records);
    }
}

fn unsent(session: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).unwrap();
    }
    bytes
}

impl Shared {
    fn note(&self, number: usize, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().unwrap()[number]);
    }

    fn converse(self: &Arc<Self>, number: usize, mut socket: &TcpStream) {
        let mut session = ServerConnection::new(self.config.clone()).unwrap();
        let mut first = [0];
        if socket.peek(&mut first).is_ok_and(|count| count == 1) {
            self.note(number, |seen| seen.first_byte = Some(first[0]));
        }
        while session.is_handshaking() {
            if let Err(error) = session.complete_io(&mut socket) {
                self.note(number, |seen| seen.fault = Some(error.to_string()));
                let _ = socket.shutdown(Shutdown::Both);
                return;
            }
        }
        self.note(number, |seen| {
            seen.server_name = session.server_name().map(str::to_owned);
            seen.version = session.protocol_version();
            seen.is_resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
            seen.client_chain_length = session.peer_certificates().map_or(0, <[_]>::len);
        });
        let Ok(backend) = TcpStream::connect(self.backend) else {
            return;
        };
        backend.set_nodelay(true).unwrap();
        let session = Arc::new(Mutex::new(session));
        let back = std::thread::spawn({
            let (shared, session) = (self.clone(), session.clone());
            let (socket, backend) = (socket.try_clone().unwrap(), backend.try_clone().unwrap());
            move || shared.pass_back(&session, &socket, &backend)
        });
        self.pass_on(number, &session, socket, &backend);
        let _ = backend.shutdown(Shutdown::Both);
        let _ = back.join();
    }

    /// From the client to the backend, until either ends.
    fn pass_on(
        &self,
        number: usize,
        session: &Mutex<ServerConnection>,
        mut socket: &TcpStream,
        mut backend: &TcpStream,
    ) {
        let mut bytes = [0; 16 * 1024];
        let mut count = 0;
        loop {
            let mut plain = Vec::new();
            {
                let mut session = session.lock().unwrap();
                let mut rest = &bytes[..count];
                loop {
                    while !rest.is_empty() && session.wants_read() {
                        session.read_tls(&mut rest).unwrap();
                        if let Err(error) = session.process_new_packets() {
                            self.note(number, |seen| seen.fault = Some(error.to_string()));
                            return;
                        }
                    }
                    let before = plain.len();
                    // WouldBlock when that was all.
                    let _ = session.reader().read_to_end(&mut plain);
                    if plain.len() == before {
                        break;
                    }
                }
                let answers = unsent(&mut session);
                if socket.write_all(&answers).is_err() {
                    return;
                }
            }
            if backend.write_all(&plain).is_err() {
                return;
            }
            match socket.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(more) => count = more,
            }
        }
    }

    /// From the backend to the client, until either ends.
    fn pass_back(
        &self,
        session: &Mutex<ServerConnection>,
        socket: &TcpStream,
        mut backend: &TcpStream,
    ) {
        let mut outlet = Outlet { session, socket };
        let mut bytes = vec![0; 64 * 1024];
        loop {
            match backend.read(&mut bytes) {
                Ok(0) | Err(_) => {
                    outlet.say_end();
                    break;
                }
                Ok(count) => {
                    if !(self.passing)(&bytes[..count], &mut outlet) {
                        break;
                    }
                }
            }
        }
        let _ = socket.shutdown(Shutdown::Both);
        let _ = backend.shutdown(Shutdown::Both);
    }
}
