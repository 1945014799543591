//! The proxy on a shard: the facade the gateway stands on, over monoio's io_uring or epoll.

use std::{io, net::SocketAddr, time::Duration};

use shards::{
    Control, Deadlines, DriverChoice, Plan, Shard, Shards, Stream, listener::listen,
    start as start_shards,
};

use super::{
    Engine, Place,
    relay::{Done, Upstream, Wire, serve},
};

/// Time for a connect to a backend.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The shard.
pub(super) type Running = Shards<()>;

impl Wire for Stream {
    type Maker = Deadlines;

    async fn connect(deadlines: &Deadlines, to: SocketAddr) -> io::Result<Self> {
        Self::connect(to, CONNECT_LIMIT, deadlines).await
    }

    async fn readable(&self) {
        self.readable().await;
    }

    async fn read(&mut self, buffer: Vec<u8>) -> Done<usize> {
        self.read(buffer).await
    }

    async fn write_all(&mut self, buffer: Vec<u8>) -> Done<()> {
        self.write_all(buffer).await
    }
}

/// Starts one shard on core `cpu`.
pub(super) fn start(engine: Engine, cpu: usize, places: &[Place]) -> io::Result<Running> {
    let plan = Plan {
        shards: 1,
        cpus: Some(vec![cpu]),
        driver: if engine == Engine::IoUring {
            DriverChoice::IoUring
        } else {
            DriverChoice::Epoll
        },
        busy_poll: Duration::ZERO,
        name: "bare",
    };
    let (mut groups, mut backends) = (Vec::new(), Vec::new());
    for place in places {
        groups.push(listen(place.address, 1, false).map_err(io::Error::other)?);
        backends.push(place.backend);
    }
    start_shards::<(), (), _, _>(&plan, groups, move |shard| live(shard, backends.clone()))
}

/// Waits for the shard's end.
pub(super) fn join(running: Running) -> io::Result<()> {
    match running.join() {
        0 => Ok(()),
        _ => Err(io::Error::other("the shard died")),
    }
}

async fn live(shard: Shard<(), ()>, backends: Vec<SocketAddr>) {
    // Nothing is sent to it; what it takes in are its own deadlines and bells.
    shard.take_in(|control| match control {
        Control::Arrival(_) | Control::Message(()) => {}
    });
    let upstreams: Vec<_> = backends
        .into_iter()
        .map(|backend| {
            Upstream::<Stream>::new(shard.deadlines.clone(), backend, shard.buffers.clone())
        })
        .collect();
    let accepting = shard.accept(move |stream, _peer, group| {
        if let Some(upstream) = upstreams.get(usize::from(group)) {
            shards::spawn(serve(stream, upstream.clone()));
        }
    });
    if accepting.is_ok() {
        // The process is ended by a signal.
        std::future::pending::<()>().await;
    }
}
