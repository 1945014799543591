//! A sample MCP server: legacy streamable HTTP, plain HTTP/1.1, one or more shards.
//!
//! It is the backend of the bench and of tests, so it is fast (one read, one write per call, no
//! lock for a session this shard knows), deterministic, and strict about what it is sent. It keeps
//! no more of a session than a number. It offers no stream of its own (GET is 405), no TLS, and no
//! JSON-RPC batches.

mod answer;
mod dispatch;
mod request;
mod session;
mod tools;

use std::{io, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use shards::{
    Control, DriverChoice, DriverKind, Plan, Shard, Shards, Stream,
    counters::Counter,
    listener::{ListenFault, listen},
    notify::Event,
};

use dispatch::{Dispatcher, Outcome};
use request::{Parsed, parse};
use session::SharedSessions;

/// How long a stopping shard waits for calls that sleep.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// Buffers that grew above this are given up after the reply.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Which tools the backend offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendKind {
    /// `increment`, `value`, `reset` on a number that each session has for itself.
    Counter,
    /// `echo`, `payload`, `sleep`.
    #[default]
    Echo,
}

/// How requests are answered (mcp.md 1.2); refusals are always plain JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyKind {
    /// `application/json`.
    #[default]
    Json,
    /// `text/event-stream` with one event, chunked.
    Sse,
}

/// What the backend shall be.
#[derive(Debug, Clone)]
pub struct BackendOptions {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Number of shards.
    pub shards: u16,
    /// Cores to pin the shards to; `None`: not pinned.
    pub cpus: Option<Vec<usize>>,
    /// I/O driver.
    pub driver: DriverChoice,
    /// Tools on offer.
    pub kind: BackendKind,
    /// `serverInfo.name`.
    pub name: String,
    /// How requests are answered.
    pub reply: ReplyKind,
    /// Exact size of the JSON of an `echo` result, reached by padding its text. A text that is
    /// already longer stays as it is.
    pub payload_bytes: Option<usize>,
    /// Wait before every `tools/call` is answered; rounded to milliseconds.
    pub delay: Option<Duration>,
    /// Filler tools `tool_001`... listed (and callable) beside the real ones.
    pub tool_count: u32,
}

impl Default for BackendOptions {
    fn default() -> Self {
        Self {
            address: ([127, 0, 0, 1], 0).into(),
            shards: 1,
            cpus: None,
            driver: DriverChoice::Auto,
            kind: BackendKind::default(),
            name: "sample".to_owned(),
            reply: ReplyKind::default(),
            payload_bytes: None,
            delay: None,
            tool_count: 0,
        }
    }
}

/// Why the backend did not start.
#[derive(Debug, thiserror::Error)]
pub enum BackendFault {
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenFault),
    /// The shards cannot be started.
    #[error("cannot start the backend's shards: {0}")]
    Start(#[from] io::Error),
}

/// What the control thread tells a shard of the backend.
enum Order {
    /// End all connections, then the shard.
    Stop,
}

/// A running backend. Dropping the handle leaves it running until the process ends.
pub struct Backend {
    address: SocketAddr,
    calls: Arc<[Counter]>,
    shards: Shards<Order>,
}

impl Backend {
    /// Binds and starts the shards.
    pub fn start(options: BackendOptions) -> Result<Self, BackendFault> {
        let count = options.shards.max(1);
        let group = listen(options.address, count, false)?;
        let address = group.address;
        let plan = Plan {
            shards: count,
            cpus: options.cpus.clone(),
            driver: options.driver,
            name: "backend",
        };
        let calls: Arc<[Counter]> = (0..count).map(|_| Counter::default()).collect();
        let shared = SharedSessions::default();
        let options = Arc::new(options);
        let for_shards = calls.clone();
        let shards = shards::start::<(), Order, _, _>(&plan, vec![group], move |shard| {
            let dispatcher = Dispatcher::new(&options, shared.clone());
            live(shard, Rc::new(dispatcher), for_shards.clone())
        })?;
        Ok(Self {
            address,
            calls,
            shards,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its MCP endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The I/O driver in use.
    pub fn driver(&self) -> DriverKind {
        self.shards.driver
    }

    /// `tools/call` requests answered so far.
    pub fn calls(&self) -> u64 {
        self.calls.iter().map(Counter::value).sum()
    }

    /// Stops accepting, closes all connections and waits for the shards. The number of shards that
    /// had died of a panic.
    pub fn stop(self) -> usize {
        for handle in self.shards.handles() {
            // Refused only by a shard that has ended already.
            let _ = handle.post(Order::Stop);
        }
        self.join()
    }

    /// Waits for the shards, which end only by a panic. The number of those that did.
    pub fn join(self) -> usize {
        self.shards.join()
    }
}

async fn live(shard: Shard<(), Order>, dispatcher: Rc<Dispatcher>, calls: Arc<[Counter]>) {
    let stopping = Rc::new(Event::default());
    let on_order = stopping.clone();
    shard.take_in(move |control| match control {
        Control::Message(Order::Stop) => on_order.fire(),
        // The backend forwards nothing, so nothing can arrive.
        Control::Arrival(_) => {}
    });
    let (gate, id) = (shard.gate.clone(), usize::from(shard.id));
    let accepting = shard.accept(move |stream, _peer, _group| {
        let pass = gate.enter();
        // A stop ends every connection, whatever it waits for.
        stream.deadline().arm_idle(Duration::MAX);
        let (dispatcher, calls) = (dispatcher.clone(), calls.clone());
        shards::spawn(async move {
            serve(stream, &dispatcher, &calls[id]).await;
            drop(pass);
        });
    });
    if accepting.is_err() {
        return;
    }
    stopping.wait().await;
    shard.stop_accepting().await;
    shard.deadlines.end_idle();
    shard.gate.close();
    let _ = shards::task::within(STOP_LIMIT, shard.gate.emptied()).await;
}

/// One connection from its first byte to its last.
async fn serve(mut stream: Stream, dispatcher: &Dispatcher, calls: &Counter) {
    let mut inbound = Vec::with_capacity(4096);
    let mut outbound = Vec::with_capacity(4096);
    loop {
        let result;
        (result, inbound) = stream.read(inbound).await;
        if !matches!(result, Ok(1..)) {
            return;
        }
        let mut used = 0;
        let mut is_open = true;
        // All complete requests of this read are answered by one write (pipelining).
        while is_open {
            let request = match parse(&inbound[used..]) {
                Parsed::Partial => break,
                Parsed::Refused(refused) => {
                    refused.write(&mut outbound);
                    is_open = false;
                    break;
                }
                Parsed::Request(request) => request,
            };
            used += request.used;
            is_open = request.is_kept;
            match dispatcher.answer(&request, &mut outbound) {
                Outcome::Answered => {}
                Outcome::Called => calls.add(1),
                Outcome::CalledAfter(delay) => {
                    calls.add(1);
                    shards::sleep(delay).await;
                }
            }
        }
        inbound.drain(..used);
        if !outbound.is_empty() {
            let result;
            (result, outbound) = stream.write_all(outbound).await;
            if result.is_err() {
                return;
            }
            outbound.clear();
            outbound.shrink_to(KEPT_BYTES_MAX);
        }
        if !is_open {
            return;
        }
    }
}
