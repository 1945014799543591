//! A sample MCP server: streamable HTTP with sessions and without, plain HTTP/1.1, one or more
//! shards.
//!
//! It is the backend of the bench and of tests, so it is fast (one read, one write per call, no
//! lock for a session this shard knows), deterministic, and strict about what it is sent. It keeps
//! no more of a session than a number. It simulates servers that are slow, stall, fail, stream or
//! mix up their sessions; all of that is off by default, and so are resources, prompts and GET
//! streams. It has no TLS and no JSON-RPC batches.

mod answer;
mod conduct;
mod dispatch;
mod extras;
mod request;
mod session;
mod stateless;
mod stream;
mod tools;

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use shards::{
    Control, DriverChoice, DriverKind, Plan, Shard, Shards, Stream,
    counters::Counter,
    listener::{ListenFault, listen},
    notify::Event,
};

use crate::{delay::Delay, era::Era};
pub use conduct::Stall;
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
    /// All of them.
    All,
}

/// How a call fails that is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorKind {
    /// A JSON-RPC error.
    #[default]
    Rpc,
    /// A result with `isError`.
    Tool,
    /// HTTP status 500.
    Status,
}

/// What is wrong with the counters of a server that mixes up its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterFault {
    /// All sessions have one number.
    Mixed,
    /// Every 50th call of a session begins anew.
    Resets,
    /// Every 50th call of a session gives the number before once more.
    Repeats,
    /// Every 50th call of a session leaves one out.
    Skips,
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
    /// The only era served; `None`: both, at the same endpoint.
    pub era: Option<Era>,
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
    /// Further wait, drawn for each `tools/call`; resolution 1 ms.
    pub latency: Delay,
    /// Times at which the whole server answers nothing.
    pub stall: Option<Stall>,
    /// Share of calls that wait `stall_length` longer.
    pub stall_rate: f64,
    /// How long a stalled call waits.
    pub stall_length: Duration,
    /// Share of calls that fail.
    pub error_rate: f64,
    /// How they fail.
    pub error_kind: ErrorKind,
    /// Share of replies that are event streams; `None`: as `reply` says.
    pub sse_share: Option<f64>,
    /// Progress notifications ahead of the reply to a call that has a progress token and is
    /// answered by an event stream.
    pub progress_count: u32,
    /// Filler tools `tool_001`... listed (and callable) beside the real ones.
    pub tool_count: u32,
    /// Resources `sample:///resource/1`...
    pub resource_count: u32,
    /// Prompts `prompt_001`...
    pub prompt_count: u32,
    /// GET streams, with one event each time this has passed; `None`: GET is 405.
    pub stream_interval: Option<Duration>,
    /// Deliberately broken counters, to see that they are found.
    pub counter_fault: Option<CounterFault>,
    /// Of everything drawn.
    pub seed: u64,
}

impl Default for BackendOptions {
    fn default() -> Self {
        Self {
            address: ([127, 0, 0, 1], 0).into(),
            shards: 1,
            cpus: None,
            driver: DriverChoice::Auto,
            era: None,
            kind: BackendKind::default(),
            name: "sample".to_owned(),
            reply: ReplyKind::default(),
            payload_bytes: None,
            delay: None,
            latency: Delay::default(),
            stall: None,
            stall_rate: 0.0,
            stall_length: Duration::ZERO,
            error_rate: 0.0,
            error_kind: ErrorKind::default(),
            sse_share: None,
            progress_count: 0,
            tool_count: 0,
            resource_count: 0,
            prompt_count: 0,
            stream_interval: None,
            counter_fault: None,
            seed: 1,
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
            busy_poll: Duration::ZERO,
            name: "backend",
        };
        let calls: Arc<[Counter]> = (0..count).map(|_| Counter::default()).collect();
        let shared = SharedSessions::default();
        let options = Arc::new(options);
        let (for_shards, started_at) = (calls.clone(), Instant::now());
        let shards = shards::start::<(), Order, _, _>(&plan, vec![group], move |shard| {
            let dispatcher = Dispatcher::new(&options, shared.clone(), started_at, shard.id);
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
                Outcome::Streams => {
                    stream::serve(stream, outbound, dispatcher.stream_interval()).await;
                    return;
                }
            }
        }
        inbound.drain(..used);
        if !outbound.is_empty() {
            let stalled = dispatcher.stall_left();
            if !stalled.is_zero() {
                shards::sleep(stalled).await;
            }
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
