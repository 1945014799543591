//! A proxy that knows nothing but HTTP, on each of the engines a gateway could stand on.
//!
//! It is the floor under the gateway: the same codec and the same three operations on a connection,
//! without tokens, configuration, sessions and routing. What the gateway takes beyond it is MCP;
//! what the engines differ by is what an operator can choose.

mod framing;
#[cfg(feature = "glommio")]
mod glommio;
mod relay;
mod shard;

use std::{fmt, io, net::SocketAddr, str::FromStr};

/// What a bare proxy runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The shards, with io_uring.
    IoUring,
    /// The shards, with epoll.
    Epoll,
    /// glommio; only in builds with the feature of this name.
    Glommio,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::IoUring, Self::Epoll, Self::Glommio];

    /// Name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io-uring",
            Self::Epoll => "epoll",
            Self::Glommio => "glommio",
        }
    }

    /// Name in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::IoUring => "bare io_uring",
            Self::Epoll => "bare epoll",
            Self::Glommio => "bare glommio",
        }
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|engine| engine.name() == text);
        found.ok_or_else(|| "one of io-uring, epoll, glommio".to_owned())
    }
}

/// One listener of a bare proxy, and the backend behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where its requests go.
    pub backend: SocketAddr,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = text
            .split_once('=')
            .and_then(|(address, backend)| Some((address.parse().ok()?, backend.parse().ok()?)));
        let (address, backend) = pair.ok_or_else(|| "write LISTEN=BACKEND".to_owned())?;
        Ok(Self { address, backend })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.address, self.backend)
    }
}

/// A running proxy: one thread on one core. Dropping the handle leaves it running until the process
/// ends.
pub struct Proxy {
    running: Running,
}

enum Running {
    Shards(shard::Running),
    #[cfg(feature = "glommio")]
    Glommio(glommio::Running),
}

impl Proxy {
    /// Binds all places and starts to serve on core `cpu`.
    ///
    /// Errors: an address is taken, or the engine cannot be had here.
    pub fn start(engine: Engine, cpu: usize, places: &[Place]) -> io::Result<Self> {
        let running = match engine {
            Engine::IoUring | Engine::Epoll => Running::Shards(shard::start(engine, cpu, places)?),
            #[cfg(feature = "glommio")]
            Engine::Glommio => Running::Glommio(glommio::start(cpu, places)?),
            #[cfg(not(feature = "glommio"))]
            Engine::Glommio => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this bench was built without glommio (cargo build --features glommio)",
                ));
            }
        };
        Ok(Self { running })
    }

    /// Serves until the engine ends, which it does only when it breaks.
    pub fn join(self) -> io::Result<()> {
        match self.running {
            Running::Shards(running) => shard::join(running),
            #[cfg(feature = "glommio")]
            Running::Glommio(running) => glommio::join(running),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use loadgen::{
        backend::{Backend, BackendOptions, ReplyKind},
        run::{Check, RunOptions, run},
    };

    use super::*;

    /// The engines of this build.
    fn engines() -> impl Iterator<Item = Engine> {
        let is_built = |engine: &Engine| cfg!(feature = "glommio") || *engine != Engine::Glommio;
        Engine::ALL.into_iter().filter(is_built)
    }

    fn free_place(backend: SocketAddr) -> Place {
        let address = crate::contestant::free_address().unwrap();
        Place { address, backend }
    }

    #[test]
    fn names_are_read_back() {
        for engine in Engine::ALL {
            assert_eq!(engine.name().parse(), Ok(engine));
        }
        assert!("tokio".parse::<Engine>().is_err());
        let place: Place = "127.0.0.1:1=127.0.0.1:2".parse().unwrap();
        assert_eq!(place.to_string(), "127.0.0.1:1=127.0.0.1:2");
        assert!("127.0.0.1:1".parse::<Place>().is_err());
    }

    #[test]
    fn calls_of_all_kinds_pass() {
        for engine in engines() {
            for (reply, bytes) in [
                (ReplyKind::Json, 200),
                (ReplyKind::Json, 300 * 1024),
                (ReplyKind::Sse, 200),
                (ReplyKind::Sse, 300 * 1024),
            ] {
                let backend = Backend::start(BackendOptions {
                    reply,
                    payload_bytes: Some(bytes),
                    ..BackendOptions::default()
                })
                .unwrap();
                let place = free_place(backend.address());
                let _proxy = Proxy::start(engine, 0, &[place]).unwrap();
                let report = run(RunOptions {
                    url: format!("http://{}/mcp", place.address),
                    connections: 4,
                    calls: Some(200),
                    check: Check::Bytes(bytes),
                    ..RunOptions::default()
                })
                .unwrap();
                assert_eq!(
                    (report.error_count(), report.response.len()),
                    (0, 200),
                    "{} {reply:?} {bytes}: {:?}",
                    engine.name(),
                    report.errors
                );
            }
        }
    }

    #[test]
    fn requests_and_replies_in_pieces_pass_byte_for_byte() {
        const REPLY: [&str; 4] = [
            "HTTP/1.1 200 O",
            "K\r\ntransfer-encoding: chunked\r\n\r\n3\r",
            "\nabc\r\n0\r\n",
            "\r\n",
        ];
        for engine in engines() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let place = free_place(listener.local_addr().unwrap());
            let _proxy = Proxy::start(engine, 0, &[place]).unwrap();
            let mut client = TcpStream::connect(place.address).unwrap();
            client.set_nodelay(true).unwrap();
            let request = "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
            let (first, second) = request.split_at(30);
            client.write_all(first.as_bytes()).unwrap();
            client.write_all(second.as_bytes()).unwrap();
            let (mut upstream, _) = listener.accept().unwrap();
            let mut heard = vec![0; request.len()];
            upstream.read_exact(&mut heard).unwrap();
            assert_eq!(heard, request.as_bytes(), "{}", engine.name());
            let whole = REPLY.concat();
            for piece in REPLY {
                upstream.write_all(piece.as_bytes()).unwrap();
            }
            let mut got = vec![0; whole.len()];
            client.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8(got).unwrap(), whole, "{}", engine.name());
            // The connections are kept: the next request goes over the same two.
            client.write_all(request.as_bytes()).unwrap();
            upstream.read_exact(&mut heard).unwrap();
            // Who is not understood is left.
            upstream.write_all(b"nonsense\r\n\r\n").unwrap();
            assert_eq!(client.read(&mut [0; 16]).unwrap(), 0, "{}", engine.name());
        }
    }
}
