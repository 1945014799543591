//! The proxy on glommio: one executor, pinned as a shard is, with the same operations.
//!
//! glommio cannot wait for input without a buffer, so an idle connection holds one of its own; it
//! reads into initialised memory, so what it reads is copied once more.

use std::{io, net::SocketAddr, rc::Rc, sync::mpsc, thread::JoinHandle};

use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
use glommio::{
    GlommioError, LocalExecutorBuilder, Placement,
    net::{TcpListener, TcpStream},
    spawn_local,
};
use shards::buffer::BufferPool;

use super::{
    Place,
    relay::{Done, Upstream, Wire, serve},
};

/// Bytes of one read: a 16 KiB reply and its head.
const READ_BYTES: usize = 20 * 1024;

/// The executor's thread.
pub(super) type Running = JoinHandle<io::Result<()>>;

struct GlommioWire {
    tcp: TcpStream,
    room: Box<[u8]>,
}

impl GlommioWire {
    fn new(tcp: TcpStream) -> io::Result<Self> {
        tcp.set_nodelay(true).map_err(plain)?;
        Ok(Self {
            tcp,
            room: vec![0; READ_BYTES].into(),
        })
    }
}

impl Wire for GlommioWire {
    type Maker = ();

    async fn connect((): &(), to: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect(to).await.map_err(plain)?)
    }

    async fn readable(&self) {}

    async fn read(&mut self, mut buffer: Vec<u8>) -> Done<usize> {
        let result = self.tcp.read(&mut self.room).await;
        if let Ok(count) = result {
            buffer.extend_from_slice(&self.room[..count]);
        }
        (result, buffer)
    }

    async fn write_all(&mut self, buffer: Vec<u8>) -> Done<()> {
        let result = self.tcp.write_all(&buffer).await;
        (result, buffer)
    }
}

fn plain<T: std::fmt::Debug>(error: GlommioError<T>) -> io::Error {
    io::Error::other(format!("glommio: {error}"))
}

/// Starts one executor on core `cpu`.
pub(super) fn start(cpu: usize, places: &[Place]) -> io::Result<Running> {
    let places = places.to_vec();
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("bare-glommio".to_owned())
        .spawn(move || {
            let executor = LocalExecutorBuilder::new(Placement::Fixed(cpu)).make();
            let executor = match executor {
                Ok(executor) => executor,
                Err(error) => return Err(plain(error)),
            };
            executor.run(live(places, ready))
        })?;
    // Nobody holds the other end once the thread has ended without a word.
    if is_ready.recv().is_ok() {
        return Ok(thread);
    }
    join(thread)?;
    Err(io::Error::other("glommio ended while it started"))
}

/// Waits for the executor's end.
pub(super) fn join(running: Running) -> io::Result<()> {
    let outcome = running.join();
    outcome.unwrap_or_else(|_| Err(io::Error::other("the executor died")))
}

async fn live(places: Vec<Place>, ready: mpsc::Sender<()>) -> io::Result<()> {
    let buffers = BufferPool::default();
    let mut tasks = Vec::new();
    for place in places {
        let listener = TcpListener::bind(place.address).map_err(plain)?;
        let upstream = Upstream::<GlommioWire>::new((), place.backend, buffers.clone());
        tasks.push(spawn_local(accept(listener, upstream)));
    }
    // The starting thread waits for this and nothing else.
    let _ = ready.send(());
    for task in tasks {
        task.await?;
    }
    Ok(())
}

async fn accept(listener: TcpListener, upstream: Rc<Upstream<GlommioWire>>) -> io::Result<()> {
    loop {
        let tcp = listener.accept().await.map_err(plain)?;
        spawn_local(serve(GlommioWire::new(tcp)?, upstream.clone())).detach();
    }
}
