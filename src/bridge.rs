//! Backends that do not speak Streamable HTTP: child processes (stdio), HTTP+SSE servers, and
//! servers that have connected to us ([`mod@line`]).
//!
//! Shards speak one transport. The bridge is a thread with a runtime of its own that listens on a
//! loopback port and speaks that transport to them; behind it are the others. It starts when the
//! first configuration names such a backend, so a gateway without one has neither port nor runtime.
//! The port answers only who knows the secret of this process.

pub(crate) mod backoff;
pub mod child;
mod endpoint;
mod hub;
mod ledger;
pub mod line;
mod numbers;
mod outbox;
mod peer;
pub(crate) mod remote;
mod serve;
mod stand_in;

pub use numbers::ReverseNumbers;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
};
use tokio::sync::mpsc;

use self::{
    hub::{Hub, HubLimits},
    line::{FarEnd, Hearing, Line, Waker},
    remote::Dialer,
};
use crate::{
    config::{document::Document, user_config::StdioServer},
    log,
    settings::Settings,
};

/// Carries the secret of this process.
pub const SECRET_HEADER: &str = "shardgate-bridge-secret";
/// Names the HTTP+SSE server a request is for.
pub const URL_HEADER: &str = "shardgate-bridge-url";
/// No configured or passed header may begin so.
pub const HEADER_PREFIX: &str = "shardgate-bridge-";
/// Messages of an HTTP+SSE server that wait to be taken in.
const EVENTS_MAX: usize = 64;
/// What a request may be longer by than a client's: a name made longer, another id.
const BODY_BYTES_MORE: usize = 64 << 10;
/// A call that takes longer is answered with a stream, whatever the time for a first byte.
const STREAM_AFTER_MAX: Duration = Duration::from_secs(5);
/// How long child processes have when the gateway ends.
const END_PATIENCE: Duration = Duration::from_secs(4);

/// Servers that have connected and wait to be taken in.
const ATTACHED_MAX: usize = 1024;

/// Where the bridge listens and what it wants to hear.
#[derive(Debug)]
pub struct Door {
    /// A loopback address.
    pub address: SocketAddr,
    /// Each request's value of [`SECRET_HEADER`].
    pub secret: Box<str>,
}

/// The child processes that may be started, by id.
#[derive(Debug, Default)]
struct Registry(Mutex<HashMap<Box<str>, Arc<StdioServer>>>);

impl Registry {
    fn find(&self, id: &str) -> Option<Arc<StdioServer>> {
        let servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.get(id).cloned()
    }

    fn replace(&self, servers: Vec<Arc<StdioServer>>) {
        let servers = servers
            .into_iter()
            .map(|server| (server.id.clone(), server))
            .collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }
}

/// Is told that the lists of the server with this path at the door are others.
pub type OnListChanged = Box<dyn Fn(&str) + Send + Sync>;

/// The same, once it is known.
type Changes = Arc<OnceLock<OnListChanged>>;

/// A reverse-connected server that comes: its id, and the bridge's end of its line.
type Attachment = (Box<str>, FarEnd, Hearing);

enum Order {
    Serve(std::net::TcpListener, Arc<str>),
    Stop,
}

/// The bridge as the rest of the process sees it.
pub struct Bridge {
    registry: Arc<Registry>,
    orders: mpsc::Sender<Order>,
    door: OnceLock<Option<Door>>,
    attachments: mpsc::Sender<Attachment>,
    waker: OnceLock<Arc<Waker>>,
    next_line: AtomicU64,
    numbers: Arc<ReverseNumbers>,
    changes: Changes,
    /// Servers may connect to this process.
    takes_reverse: bool,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").finish_non_exhaustive()
    }
}

impl Bridge {
    /// Starts the thread, which sleeps until the door is asked for.
    pub fn start(
        settings: &Settings,
        tls: Arc<rustls::ClientConfig>,
    ) -> std::io::Result<(Arc<Self>, JoinHandle<()>)> {
        let registry = Arc::new(Registry::default());
        let (limits, times) = (&settings.limits, &settings.timeouts);
        let hub_limits = HubLimits {
            body_bytes_max: limits.body_bytes_max.saturating_add(BODY_BYTES_MORE),
            line_bytes_max: limits.response_bytes_max,
            children_max: limits.stdio_children_max,
            sessions_max: limits.sessions_max,
            child_idle: times.session_age_max,
            remote_idle: times.session_idle,
            call: times.call,
            stream_after: (times.upstream_first_byte / 4).min(STREAM_AFTER_MAX),
            initialize: times.upstream_first_byte,
        };
        let dialer = Dialer {
            tls,
            mode: settings.upstream.mode,
            connect: times.upstream_connect,
            first_byte: times.upstream_first_byte,
            event_bytes_max: limits.sse_event_bytes_max,
            events_max: EVENTS_MAX,
        };
        let (orders, waiting) = mpsc::channel(2);
        let (attachments, attached) = mpsc::channel(ATTACHED_MAX);
        let (numbers, changes) = (Arc::new(ReverseNumbers::default()), Changes::default());
        let start = Start {
            limits: hub_limits,
            dialer,
            registry: registry.clone(),
            numbers: numbers.clone(),
            changes: changes.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("bridge".to_owned())
            .spawn(move || run(waiting, attached, start))?;
        let bridge = Self {
            registry,
            orders,
            door: OnceLock::new(),
            attachments,
            waker: OnceLock::new(),
            next_line: AtomicU64::new(1),
            numbers,
            changes,
            takes_reverse: settings.connection_gateway.is_some(),
        };
        Ok((Arc::new(bridge), thread))
    }

    /// Takes in the child processes of a document, in place of those before.
    pub fn register(&self, document: &Document) {
        self.registry.replace(document.stdio_servers());
    }

    /// Says how shards are woken; once, when they run.
    pub fn wakes_with(&self, waker: Waker) {
        // The first one stays.
        let _ = self.waker.set(Arc::new(waker));
    }

    /// Says who hears, with a server's path at the door, that its lists are others; once.
    pub fn tells_changes_to(&self, told: impl Fn(&str) + Send + Sync + 'static) {
        // The first one stays.
        let _ = self
            .changes
            .set(Box::new(move |id| told(&reverse_path(id))));
    }

    /// Whether servers may connect to this process.
    pub fn takes_reverse(&self) -> bool {
        self.takes_reverse
    }

    /// What is counted of reverse-connected servers.
    pub fn numbers(&self) -> &Arc<ReverseNumbers> {
        &self.numbers
    }

    /// Takes in a server that has connected to a shard under `source`: the shard's end of its line.
    /// `None`: too many come at once, or the process is just starting.
    pub fn attach(&self, source: &str, shard: u16) -> Option<Line> {
        self.door()?;
        let waker = self.waker.get()?.clone();
        let number = self.next_line.fetch_add(1, Ordering::Relaxed);
        let (line, far, hearing) = line::open(shard, number, waker);
        let attachment = (reverse_id(source), far, hearing);
        self.attachments.try_send(attachment).ok()?;
        Some(line)
    }

    /// Where it listens; opened when first asked for. `None`: it cannot be opened.
    pub fn door(&self) -> Option<&Door> {
        self.door.get_or_init(|| self.open()).as_ref()
    }

    fn open(&self) -> Option<Door> {
        let opened = || -> std::io::Result<_> {
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = opened()
            .map_err(|error| log::error(|| format!("the bridge cannot listen: {error}")))
            .ok()?;
        let secret: Arc<str> = new_secret()?.into();
        let order = Order::Serve(listener, secret.clone());
        self.orders.try_send(order).ok()?;
        Some(Door {
            address,
            secret: secret.as_ref().into(),
        })
    }

    /// Has the thread end, with all it has started.
    pub fn stop(&self) {
        // A full queue is one with an order to stop in it, or a thread that has died.
        let _ = self.orders.try_send(Order::Stop);
    }
}

/// The name of a reverse-connected server in the bridge: its source may be any text.
pub fn reverse_id(source: &str) -> Box<str> {
    let digest = digest(&SHA256, source.as_bytes());
    let bytes = digest.as_ref().iter();
    bytes
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>()
        .into()
}

/// The path at the door of the server with this id.
pub fn reverse_path(id: &str) -> Box<str> {
    format!("/reverse/{id}").into()
}

/// What the thread begins with.
struct Start {
    limits: HubLimits,
    dialer: Dialer,
    registry: Arc<Registry>,
    numbers: Arc<ReverseNumbers>,
    changes: Changes,
}

fn run(mut orders: mpsc::Receiver<Order>, mut attached: mpsc::Receiver<Attachment>, start: Start) {
    let Some(Order::Serve(listener, secret)) = orders.blocking_recv() else {
        return;
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            log::error(|| format!("the bridge cannot start: {error}"));
            return;
        }
    };
    runtime.block_on(async move {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                log::error(|| format!("the bridge cannot listen: {error}"));
                return;
            }
        };
        let (numbers, changes) = (start.numbers, start.changes);
        let hub = Hub::new(start.limits, start.dialer, start.registry, numbers, changes);
        tokio::spawn(serve::serve(listener, hub.clone(), secret));
        let taking_in = hub.clone();
        tokio::spawn(async move {
            while let Some((id, far, hearing)) = attached.recv().await {
                taking_in.attach(id, far, hearing);
            }
        });
        tokio::spawn(hub.clone().sweep_forever());
        // The other side going away is a reason to stop as well.
        while let Some(Order::Serve(..)) = orders.recv().await {}
        hub.end_all(END_PATIENCE).await;
    });
    // Name resolution may sit in a blocking thread: it is not waited for.
    runtime.shutdown_background();
}

/// 32 random bytes in hexadecimal; `None` when the system has none.
fn new_secret() -> Option<String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
