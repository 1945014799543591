//! Backends that do not speak Streamable HTTP: child processes (stdio) and HTTP+SSE servers.
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
mod outbox;
mod peer;
pub(crate) mod remote;
mod serve;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::mpsc;

use self::{
    hub::{Hub, HubLimits},
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

enum Order {
    Serve(std::net::TcpListener, Arc<str>),
    Stop,
}

/// The bridge as the rest of the process sees it.
pub struct Bridge {
    registry: Arc<Registry>,
    orders: mpsc::Sender<Order>,
    door: OnceLock<Option<Door>>,
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
        let known = registry.clone();
        let thread = std::thread::Builder::new()
            .name("bridge".to_owned())
            .spawn(move || run(waiting, hub_limits, dialer, known))?;
        let bridge = Self {
            registry,
            orders,
            door: OnceLock::new(),
        };
        Ok((Arc::new(bridge), thread))
    }

    /// Takes in the child processes of a document, in place of those before.
    pub fn register(&self, document: &Document) {
        self.registry.replace(document.stdio_servers());
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

fn run(
    mut orders: mpsc::Receiver<Order>,
    limits: HubLimits,
    dialer: Dialer,
    registry: Arc<Registry>,
) {
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
        let hub = Hub::new(limits, dialer, registry);
        tokio::spawn(serve::serve(listener, hub.clone(), secret));
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
