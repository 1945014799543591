//! A running gateway: prepared, bound, started, drained.

mod forwarded;
mod reach;
mod redis_link;

pub use reach::ConnectionGatewayAt;
pub use redis_link::redis_client;

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::SocketAddr,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use shards::{
    Arrival, Control, DriverChoice, Plan, Shard, Shards, alarm::Alarms, deadline::now_ms,
    listener::ListenerGroup, topology::Topology,
};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::{
    access::AccessRules,
    auth::{
        FingerprintKey, Principal, ResourceMetadata, TokenCache, TokenRules,
        issuers::{Issuers, KeyQuestion},
        revocation::Revocations,
    },
    bootstrap::Bootstrap,
    bridge::Bridge,
    config::{
        cache::ConfigCache,
        store::{FileStore, RedisStore, UserConfigStore},
    },
    connection_gateway::node::Outstanding,
    control::{self, IssuerNumbers, Snapshot, Tasks, View, Watched},
    http::{HeadLimits, connection},
    log,
    prepare::Prepared,
    request::Forwarded,
    route::cursor::CursorKey,
    schema::pool::Pool,
    session::{IdKeys, SessionTable, TableLimits, streams::EventBudget},
    settings::{IoDriver, Settings, StoreSource},
    shard_state::{ShardState, ToShard, WATCH_AFTER},
    stateless::{
        self, Standings, generations::Generations, held::HeldCalls, hub::Hub, permits::Permits,
    },
    telemetry::{Latency, Numbers},
    upstream::{
        Upstream,
        dial::UpstreamLimits,
        farewell::Farewells,
        open,
        resolve::{Question, Resolver},
        target::{RequestIds, Targets},
    },
};

/// How long a shard with a core of its own polls for a reply: a fast backend on the same host
/// answers in half of it.
const BUSY_POLL: Duration = Duration::from_micros(30);
/// Questions to the control thread that may wait.
const QUESTIONS_MAX: usize = 1024;
/// How often a shard looks for what is over.
const SWEEP: Duration = Duration::from_secs(1);
/// Between two looks for streams that have been silent for a heartbeat.
const HEARTBEAT_LOOK: Duration = Duration::from_millis(50);
/// How long the backends' own sessions may take to be ended.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long an idle backend connection is kept, ms.
const UPSTREAM_IDLE_MS_MAX: u64 = 55_000;

/// A running gateway.
pub struct Gateway {
    /// Where clients come to: the plain listener's address.
    pub address: Option<SocketAddr>,
    /// The TLS listener's address.
    pub tls_address: Option<SocketAddr>,
    /// The admin listener's address.
    pub admin_address: Option<SocketAddr>,
    /// Where the connection gateway is, when it is wanted.
    pub connection_gateway: Option<ConnectionGatewayAt>,
    /// What can be seen of it.
    pub view: View,
    /// Number of shards.
    pub shard_count: u16,
    /// Shards that could not be pinned.
    pub unpinned: u16,
    shards: Shards<ToShard>,
    control: Option<(oneshot::Sender<()>, JoinHandle<std::io::Result<()>>)>,
    reload: Arc<Notify>,
    bridge: Option<(Arc<Bridge>, JoinHandle<()>)>,
    drain: Duration,
}

impl Gateway {
    /// Prepares, binds and starts. The error is what to print: one line for each fault.
    pub fn start(settings: Settings) -> Result<Self, Vec<String>> {
        let watched = Watched::of(&settings);
        let prepared = Arc::new(Prepared::load(settings)?);
        let settings = prepared.settings.clone();
        if settings.connection_gateway.is_none() && prepared.document.has_reverse() {
            log::reverse_refused();
        }
        for finding in &prepared.document.findings {
            log::warn(|| finding.to_string());
        }
        let topology = Topology::read();
        shards::topology::raise_descriptor_limit();
        let (count, cpus) = cores(&settings, &topology);
        let mut groups = Vec::new();
        let take_over = settings.listen.take_over;
        let listen = |address| {
            shards::listener::listen(address, count, take_over).map_err(|fault| fault.to_string())
        };
        let mut bind = |address: Option<SocketAddr>| -> Result<Option<SocketAddr>, Vec<String>> {
            let Some(address) = address else {
                return Ok(None);
            };
            let group: ListenerGroup = listen(address).map_err(|fault| vec![fault])?;
            let bound = group.address;
            groups.push(group);
            Ok(Some(bound))
        };
        let address = bind(settings.listen.plain)?;
        let tls_address = bind(settings.listen.tls.as_ref().map(|tls| tls.address))?;
        let tls_listener = tls_address.map(|_| u8::from(address.is_some()));
        let before = u8::from(address.is_some()) + u8::from(tls_address.is_some());
        let (connection_gateway, listeners) = reach::bind(&settings, before, bind)?.unzip();
        // Of the same kind as the clients' sockets, or the next process could not take it over.
        let admin = settings
            .listen
            .admin
            .map(|address| shards::listener::listen(address, 1, take_over))
            .transpose()
            .map_err(|fault| vec![format!("admin: {fault}")])?;
        let admin_address = admin.as_ref().map(|group| group.address);
        let admin = admin.and_then(|group| group.into_listeners().pop());

        let numbers: Arc<[Arc<Numbers>]> =
            (0..count).map(|_| Arc::new(Numbers::default())).collect();
        let common = reach::Common::new(&settings, listeners, count);
        let gateway_numbers = common.numbers.clone();
        let (questions, waiting) = mpsc::channel(QUESTIONS_MAX);
        let (key_questions, unknown_keys) = mpsc::channel(QUESTIONS_MAX);
        let (issuers, issuer_tls) = (prepared.issuers.clone(), prepared.issuer_tls.clone());
        let (bridge, bridge_thread) = Bridge::start(&settings, prepared.tls.upstream.clone())
            .map_err(|error| vec![format!("cannot start the bridge thread: {error}")])?;
        bridge.register(&prepared.document);
        let plan = Plan {
            shards: count,
            driver: driver(&settings),
            busy_poll: settings.shards.busy_poll.unwrap_or(match &cpus {
                Some(_) => BUSY_POLL,
                None => Duration::ZERO,
            }),
            cpus,
            name: "shard",
        };
        let document = prepared.document.clone();
        let generations = Arc::new(Generations::default());
        let (told, door) = (generations.clone(), Arc::downgrade(&bridge));
        bridge.tells_changes_to(move |path| {
            let bridge = door.upgrade();
            if let Some(door) = bridge.as_ref().and_then(|bridge| bridge.door()) {
                told.bump_at(&door.address.to_string(), path);
            }
        });
        let shards = shards::start(&plan, groups, {
            let (numbers, bridge) = (numbers.clone(), bridge.clone());
            let schemas = Pool::new(settings.limits.validations_max);
            move |shard: Shard<Forwarded, ToShard>| {
                let ties = Ties {
                    numbers: numbers[usize::from(shard.id)].clone(),
                    questions: questions.clone(),
                    key_questions: key_questions.clone(),
                    bridge: bridge.clone(),
                    generations: generations.clone(),
                    schemas: schemas.clone(),
                    common: common.clone(),
                };
                live(shard, prepared.clone(), ties, tls_listener)
            }
        })
        .map_err(|error| vec![format!("cannot start the shards: {error}")])?;
        let handles = shards.handles().to_vec();
        bridge.wakes_with(Box::new(move |shard, line| {
            let handle = handles.get(usize::from(shard));
            handle.is_some_and(|handle| handle.post(ToShard::Line(line)).is_ok())
        }));

        let view = View {
            handles: shards.handles().to_vec(),
            engine: shards.counters.clone(),
            numbers,
            connection_gateway: connection_gateway.is_some().then_some(gateway_numbers),
            issuers: IssuerNumbers::of(&issuers),
            reverse: settings
                .connection_gateway
                .is_some()
                .then(|| bridge.numbers().clone()),
            driver: shards.driver.to_string(),
            is_draining: Arc::new(AtomicBool::new(false)),
            reloads_refused: Arc::default(),
        };
        let reload = Arc::new(Notify::new());
        let tasks = Tasks {
            view: view.clone(),
            questions: waiting,
            issuers: control::Issuers::new(issuers, unknown_keys, issuer_tls, &settings.timeouts),
            watched,
            document,
            bridge: bridge.clone(),
            reload: reload.clone(),
            admin,
        };
        let (stop, stopped) = oneshot::channel();
        let control = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || control::run(tasks, stopped))
            .map_err(|error| vec![format!("cannot start the control thread: {error}")])?;
        Ok(Self {
            address,
            tls_address,
            admin_address,
            connection_gateway,
            view,
            shard_count: count,
            unpinned: shards.unpinned,
            shards,
            control: Some((stop, control)),
            reload,
            bridge: Some((bridge, bridge_thread)),
            drain: settings.timeouts.drain,
        })
    }

    /// Why io_uring is not used although it was to be tried.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.shards.fallback_reason.as_deref()
    }

    /// Reads user configurations, the secrets they name, and certificates again.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Stops accepting, finishes what runs within the drain time-out, cuts off the rest, ends.
    /// False when a shard had died or did not end in time.
    pub fn stop(mut self) -> bool {
        self.view.is_draining.store(true, Ordering::Relaxed);
        let started = Instant::now();
        let (sender, drained) = crossbeam_channel::bounded(self.view.handles.len());
        let mut waiting = 0;
        for handle in &self.view.handles {
            match handle.post(ToShard::Drain(sender.clone())) {
                Ok(()) => waiting += 1,
                Err(_) => log::error(|| "a shard could not be told to drain".to_owned()),
            }
        }
        drop(sender);
        // No shard may end while another still waits for what it serves: a call to a shard that is
        // gone has no end.
        let deadline = started + self.drain + FAREWELL * 2;
        while waiting > 0 && drained.recv_deadline(deadline).is_ok() {
            waiting -= 1;
        }
        for handle in &self.view.handles {
            // A shard that is gone already is what is wanted.
            let _ = handle.post(ToShard::End);
        }
        let died = self.shards.join();
        if let Some((stop, thread)) = self.control.take() {
            // It may have ended by itself.
            let _ = stop.send(());
            let _ = thread.join();
        }
        let is_in_time = started.elapsed() <= self.drain + Duration::from_secs(2);
        // Last: the shards' farewells go through it.
        if let Some((bridge, thread)) = self.bridge.take() {
            bridge.stop();
            let _ = thread.join();
        }
        died == 0 && is_in_time
    }

    /// Whether every shard is still there.
    pub fn is_alive(&self) -> bool {
        self.shards.is_alive()
    }
}

/// How many shards, and on which cores.
fn cores(settings: &Settings, topology: &Topology) -> (u16, Option<Vec<usize>>) {
    let wanted = &settings.shards;
    let count = match (&wanted.count, &wanted.cpus) {
        (Some(count), _) => u16::try_from(count.get()).unwrap_or(u16::MAX),
        (None, Some(cpus)) => u16::try_from(cpus.len()).unwrap_or(u16::MAX),
        (None, None) => topology.default_shards(),
    };
    let cpus = wanted.cpus.clone().unwrap_or_else(|| topology.cpus.clone());
    // More shards than cores: pinning would put two on one while another is idle.
    let can_pin = wanted.pin && usize::from(count) <= cpus.len();
    (count, can_pin.then_some(cpus))
}

fn driver(settings: &Settings) -> DriverChoice {
    match settings.shards.driver {
        IoDriver::Auto => DriverChoice::Auto,
        IoDriver::IoUring => DriverChoice::IoUring,
        IoDriver::Epoll => DriverChoice::Epoll,
    }
}

/// What ties a shard to the other threads.
struct Ties {
    numbers: Arc<Numbers>,
    questions: mpsc::Sender<Question>,
    key_questions: mpsc::Sender<KeyQuestion>,
    bridge: Arc<Bridge>,
    generations: Arc<Generations>,
    schemas: Arc<Pool>,
    common: reach::Common,
}

/// One shard's life.
async fn live(
    shard: Shard<Forwarded, ToShard>,
    prepared: Arc<Prepared>,
    ties: Ties,
    tls_listener: Option<u8>,
) {
    let drain = prepared.settings.timeouts.drain;
    let state = build(shard, &prepared, ties, tls_listener);
    let orders = Rc::new(Orders::default());
    state.shard.take_in({
        let (state, orders) = (state.clone(), orders.clone());
        move |control| take(&state, control, &orders)
    });
    let accepting = state.shard.accept({
        let state = state.clone();
        move |stream, peer, listener| connection::accepted(&state, stream, peer, listener)
    });
    if let Err(error) = accepting {
        log::error(|| format!("shard {}: cannot accept: {error}", state.shard.id));
        return;
    }
    let beating = Rc::downgrade(&state);
    shards::spawn(async move {
        while let Some(state) = beating.upgrade() {
            let now = now_ms();
            state.heartbeats.ring(now);
            state.watches.ring(now);
            if let Some(node) = &state.connection_gateway {
                node.look(&state);
            }
            drop(state);
            shards::sleep(HEARTBEAT_LOOK).await;
        }
    });
    let sweeping = Rc::downgrade(&state);
    shards::spawn(async move {
        loop {
            shards::sleep(SWEEP).await;
            let Some(state) = sweeping.upgrade() else {
                break;
            };
            state.sweep();
        }
    });
    let asker = orders.drain.wait().await;
    drain_now(&state, drain).await;
    // The gateway waits for each shard's word and then ends all of them.
    let _ = asker.try_send(());
    orders.end.wait().await;
    // The engine waits for every connection to be gone, and nobody else closes these.
    state.upstream.targets.sweep(u64::MAX, 0);
    if let UserConfigStore::Redis(store) = state.configs.store() {
        // Otherwise the end of its socket would start a reconnect.
        store.client().stop();
    }
    if let Some(node) = &state.connection_gateway {
        node.registry.stop();
    }
}

/// What the control thread has ordered.
#[derive(Default)]
struct Orders {
    drain: Order,
    end: shards::notify::Event,
}

/// The order to drain, with whom to tell when it is done.
#[derive(Default)]
struct Order {
    given: shards::notify::Event,
    asker: RefCell<Option<crossbeam_channel::Sender<()>>>,
}

impl Order {
    fn give(&self, asker: crossbeam_channel::Sender<()>) {
        self.asker.borrow_mut().get_or_insert(asker);
        self.given.fire();
    }

    async fn wait(&self) -> crossbeam_channel::Sender<()> {
        self.given.wait().await;
        let asker = self.asker.borrow_mut().take();
        // Given once, waited for once; a closed channel says nothing to nobody.
        asker.unwrap_or_else(|| crossbeam_channel::bounded(1).0)
    }
}

/// Stops taking on, lets what runs finish, ends the sessions.
async fn drain_now(state: &Rc<ShardState>, limit: Duration) {
    let started = Instant::now();
    state.shard.gate.close();
    state.shard.stop_accepting().await;
    state.shard.deadlines.end_idle();
    for session in state.sessions.borrow().all() {
        session.streams.end();
    }
    state.hub.wake_all();
    if let Some(node) = &state.connection_gateway {
        node.drain(Outstanding::Finish);
    }
    while state.shard.gate.pass_count() > 0 && started.elapsed() < limit {
        shards::sleep(Duration::from_millis(5)).await;
    }
    if let Some(node) = &state.connection_gateway {
        node.drain(Outstanding::Fail);
    }
    state.held.clear();
    let sessions = state.sessions.borrow_mut().drain();
    for session in &sessions {
        open::end_all(state, session);
    }
    let goodbye = Instant::now();
    while state.shard.gate.pass_count() > 0 && goodbye.elapsed() < FAREWELL {
        shards::sleep(Duration::from_millis(5)).await;
    }
}

fn take(state: &Rc<ShardState>, control: Control<Forwarded, ToShard>, orders: &Orders) {
    match control {
        Control::Arrival(Arrival::Socket(socket)) => connection::moved(state, socket),
        Control::Arrival(Arrival::Call { request, reply, .. }) => {
            forwarded::serve(state, request, reply);
        }
        Control::Message(ToShard::Drain(asker)) => orders.drain.give(asker),
        Control::Message(ToShard::End) => orders.end.fire(),
        Control::Message(ToShard::Document(document)) => {
            state.replace_document(document);
            state.hub.look(None);
        }
        Control::Message(ToShard::Tls(tls)) => {
            *state.tls.borrow_mut() = tls.server;
            *state.upstream.tls.borrow_mut() = tls.upstream;
        }
        Control::Message(ToShard::Keys(news)) => {
            if state.issuers.hear(news) {
                // What a key has proved is worth no more than the key.
                state.tokens.borrow_mut().clear();
            }
        }
        Control::Message(ToShard::Line(number)) => {
            if let Some(node) = &state.connection_gateway {
                node.line_has_news(number);
            }
        }
        Control::Message(ToShard::Resolved(answer)) => state.upstream.resolver.answered(answer),
        Control::Message(ToShard::Backends(asker)) => {
            // The asker may have given up.
            let _ = asker.try_send(state.upstream.targets.health(now_ms()));
        }
        Control::Message(ToShard::Report(asker)) => {
            let targets = state.upstream.targets.all();
            let snapshot = Snapshot {
                shard: state.shard.id,
                latency: state.latency.borrow().clone(),
                sessions: state.sessions.borrow().len(),
                is_store_ready: match state.configs.store() {
                    UserConfigStore::File(_) => true,
                    UserConfigStore::Redis(store) => store.client().is_connected(),
                } && (state.connection_gateway.as_ref())
                    .is_none_or(|node| node.registry.is_ready()),
                upstream_connections: (
                    targets.iter().map(|target| target.idle_count()).sum(),
                    targets.iter().map(|target| target.opened_count.get()).sum(),
                ),
                ring_depth: state.shard.port.depth(),
            };
            // The asker may have given up.
            let _ = asker.try_send(snapshot);
        }
    }
}

/// Puts a shard's state together.
fn build(
    shard: Shard<Forwarded, ToShard>,
    prepared: &Arc<Prepared>,
    ties: Ties,
    tls_listener: Option<u8>,
) -> Rc<ShardState> {
    let Ties {
        numbers,
        questions,
        key_questions,
        bridge,
        generations,
        schemas,
        common,
    } = ties;
    let settings = &prepared.settings;
    let (limits, times) = (&settings.limits, &settings.timeouts);
    let ask = Box::new(move |question| questions.try_send(question).is_ok());
    let resolver = Rc::new(Resolver::new(shard.id, ask));
    let this: Rc<OnceCell<Weak<ShardState>>> = Rc::default();
    let store = match &settings.store.source {
        StoreSource::Redis(redis) => {
            let client = redis_client(redis, prepared.redis_tls.clone(), &shard, &resolver, &this);
            UserConfigStore::Redis(RedisStore::new(client, schemas.clone(), limits.schema))
        }
        StoreSource::File(_) | StoreSource::Empty => {
            let store = FileStore::default();
            store.replace(prepared.document.clone());
            UserConfigStore::File(store)
        }
    };
    let share = |total: usize| total.div_ceil(usize::from(shard.count)).max(1);
    let is_loopback_only = settings
        .listen
        .addresses()
        .all(|address| address.ip().is_loopback());
    let ask_for_keys = Box::new(move |question| key_questions.try_send(question).is_ok());
    // As old as the answer about a configuration may be, where an answer is asked for at all.
    let checks_revoked = settings.store.check_revoked_tokens;
    let token_age_s_max = match checks_revoked {
        true => settings.store.cache_expiry.as_secs(),
        false => u64::MAX,
    };
    let fingerprints = FingerprintKey::new(&prepared.fingerprint_secret);
    let anonymous = settings
        .access
        .allow_anonymous
        .then(|| Rc::new(Principal::anonymous(&fingerprints)));
    let connection_gateway = reach::node(prepared, common, &shard, &resolver, &bridge);
    let state = Rc::new(ShardState {
        connection_gateway,
        head_limits: HeadLimits {
            head_bytes_max: limits.head_bytes_max,
            header_count_max: limits.header_count_max,
            target_bytes_max: limits.target_bytes_max,
            body_bytes_max: limits.body_bytes_max as u64,
        },
        access: AccessRules::new(
            &settings.access.origins,
            &settings.access.hosts,
            is_loopback_only,
        ),
        keys: prepared.keys.clone(),
        token_rules: TokenRules {
            issuer: settings.auth.issuer.as_str().into(),
            audience: settings.auth.audience.as_str().into(),
            audience_is_resource: settings.auth.audience_is_resource,
            ..TokenRules::default()
        },
        issuers: Issuers::new(shard.id, prepared.issuers.clone(), ask_for_keys),
        revocations: Revocations::new(checks_revoked),
        tokens: RefCell::new(TokenCache::default().with_age_s_max(token_age_s_max)),
        fingerprints,
        anonymous,
        id_keys: IdKeys::new(&prepared.id_secret, &settings.node_id),
        cursors: CursorKey::new(&prepared.id_secret),
        heartbeats: Alarms::new(times.heartbeat_interval),
        watches: Alarms::new(WATCH_AFTER),
        events: Rc::new(EventBudget::new(
            limits.resume_bytes_max / usize::from(shard.count).max(1),
        )),
        standings: Standings::new(share(settings.protocols.lists_max)),
        stateless_requests: Rc::new(Permits::new(
            share(settings.protocols.requests_max),
            settings.protocols.requests_per_principal_max,
        )),
        subscriptions: Rc::new(Permits::new(
            share(settings.protocols.subscriptions_max),
            settings.protocols.subscriptions_per_principal_max,
        )),
        held: HeldCalls::default(),
        hub: Hub::default(),
        generations,
        bridged: Rc::new(Permits::new(
            stateless::bridge::REQUESTS_MAX.0,
            stateless::bridge::REQUESTS_MAX.1,
        )),
        sessions: RefCell::new(SessionTable::new(TableLimits {
            sessions_max: share(limits.sessions_max),
            per_principal_max: share(limits.sessions_per_principal_max),
            idle_ms_max: millis(times.session_idle),
            age_ms_max: millis(times.session_age_max),
        })),
        configs: ConfigCache::new(Rc::new(store), settings.store.cache_expiry),
        upstream: Upstream {
            targets: Targets::new(bridge, RequestIds::of(shard.id, shard.count)),
            mode: settings.upstream.mode,
            tls: RefCell::new(prepared.tls.upstream.clone()),
            limits: UpstreamLimits {
                connect: times.upstream_connect,
                first_byte: times.upstream_first_byte,
                call: times.call,
                fan_out: times.initialize,
                client_answer: times.client_answer,
                heartbeat: times.heartbeat_interval,
                in_flight_max: settings.upstream.concurrency_max,
                stateless_in_flight_max: settings.protocols.backend_calls_max,
                idle_per_target_max: settings.upstream.idle_per_backend_max,
                idle_ms_max: UPSTREAM_IDLE_MS_MAX,
                reply_bytes_max: limits.response_bytes_max,
                event_bytes_max: limits.sse_event_bytes_max,
            },
            resolver,
            deadlines: shard.deadlines.clone(),
        },
        metadata: ResourceMetadata::of(&settings.access, &settings.auth),
        schemas,
        farewells: Farewells::default(),
        fail_mode: settings.upstream.fail_mode,
        tls: RefCell::new(prepared.tls.server.clone()),
        tls_listener,
        numbers,
        latency: RefCell::new(Latency::new()),
        seed: Cell::new(
            0x9e37_79b9_7f4a_7c15 ^ (u64::from(shard.id) + 1).wrapping_mul(0xff51_afd7),
        ),
        bootstrap: prepared
            .signing
            .clone()
            .map(|(key, algorithm)| Bootstrap { key, algorithm }),
        settings: settings.clone(),
        shard,
    });
    // Set once, here.
    let _ = this.set(Rc::downgrade(&state));
    if let Some(node) = &state.connection_gateway {
        node.registry.start(&state, node);
    }
    state
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
