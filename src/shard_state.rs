//! What one shard owns: everything a request needs, plain memory, nothing shared.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use shards::{
    Shard,
    alarm::{Alarm, Alarms},
    deadline::now_ms,
};

use crate::{
    access::AccessRules,
    auth::{
        FingerprintKey, Principal, ResourceMetadata, TokenCache, TokenRules, VerificationKeys,
        issuers::{Issuers, KeyNews},
        revocation::Revocations,
    },
    config::{cache::ConfigCache, compiled::VirtualHost, document::Document},
    connection_gateway::Node,
    control::Snapshot,
    http::HeadLimits,
    prepare::Tls,
    request::Forwarded,
    route::cursor::CursorKey,
    schema::pool::Pool,
    session::{IdKeys, SessionTable, streams::EventBudget},
    settings::{FailMode, Settings},
    stateless::{Standings, generations::Generations, held::HeldCalls, hub::Hub, permits::Permits},
    telemetry::{Latency, Numbers},
    upstream::{Upstream, farewell::Farewells, health::TargetHealth, resolve},
};

/// What the control thread tells a shard.
#[derive(Debug)]
pub enum ToShard {
    /// Stop taking on, finish, say so.
    Drain(crossbeam_channel::Sender<()>),
    /// End: all shards have drained.
    End,
    /// The file store's documents changed.
    Document(Arc<Document>),
    /// Certificates changed: for new connections.
    Tls(Tls),
    /// Keys of a trusted issuer, changed or not.
    Keys(KeyNews),
    /// The bridge has something for the line of a reverse-connected server with this number.
    Line(u64),
    /// A name was resolved.
    Resolved(resolve::Answer),
    /// Somebody wants to know how things are.
    Report(crossbeam_channel::Sender<Snapshot>),
    /// Or how backends are.
    Backends(crossbeam_channel::Sender<Vec<TargetHealth>>),
}

/// One shard's state.
pub struct ShardState {
    /// The engine's part.
    pub shard: Shard<Forwarded, ToShard>,
    /// The checked settings.
    pub settings: Arc<Settings>,
    /// Limits of request heads.
    pub head_limits: HeadLimits,
    /// Origin and Host rules.
    pub access: AccessRules,
    /// Keys tokens are verified with.
    pub keys: Arc<VerificationKeys>,
    /// What a token must say.
    pub token_rules: TokenRules,
    /// The trusted issuers and their keys.
    pub issuers: Issuers,
    /// Which tokens were revoked.
    pub revocations: Revocations,
    /// Verified tokens.
    pub tokens: RefCell<TokenCache>,
    /// Key of the principals' fingerprints.
    pub fingerprints: FingerprintKey,
    /// The principal of requests without a token, when they are allowed.
    pub anonymous: Option<Rc<Principal>>,
    /// Keys of session ids.
    pub id_keys: IdKeys,
    /// Key of list cursors.
    pub cursors: CursorKey,
    /// Wakes the event streams that have been silent for a heartbeat's time.
    pub heartbeats: Alarms,
    /// When calls without a session begin to watch for clients that leave.
    pub watches: Alarms,
    /// Bytes kept for clients that resume their streams.
    pub events: Rc<EventBudget>,
    /// What is remembered for requests without a session.
    pub standings: Standings,
    /// Those under way.
    pub stateless_requests: Rc<Permits>,
    /// Calls that wait for a client without a session.
    pub held: HeldCalls,
    /// Open `subscriptions/listen` streams.
    pub subscriptions: Rc<Permits>,
    /// Who listens.
    pub hub: Hub,
    /// Whose lists are others now.
    pub generations: Arc<Generations>,
    /// Those of them that are bridged to a backend with sessions.
    pub bridged: Rc<Permits>,
    /// Live sessions.
    pub sessions: RefCell<SessionTable>,
    /// User configurations.
    pub configs: ConfigCache,
    /// The backend side.
    pub upstream: Upstream,
    /// The address clients know us by and where tokens are to be had, when the settings say so.
    pub metadata: Option<ResourceMetadata>,
    /// Threads for schema validations that are too large for a shard.
    pub schemas: Arc<Pool>,
    /// Backend sessions to be ended.
    pub farewells: Farewells,
    /// What happens when some backends fail.
    pub fail_mode: FailMode,
    /// TLS of the TLS listener.
    pub tls: RefCell<Option<Arc<rustls::ServerConfig>>>,
    /// Index of the TLS listener group.
    pub tls_listener: Option<u8>,
    /// Counters.
    pub numbers: Arc<Numbers>,
    /// Histograms.
    pub latency: RefCell<Latency>,
    /// State of the pseudo-random numbers for placement and jitter.
    pub seed: Cell<u64>,
    /// Helpers of the bootstrap routes, when they are on.
    pub bootstrap: Option<crate::bootstrap::Bootstrap>,
    /// This shard's part of the connection gateway, when it is wanted.
    pub connection_gateway: Option<Rc<Node>>,
}

impl std::fmt::Debug for ShardState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardState")
            .field("id", &self.shard.id)
            .finish_non_exhaustive()
    }
}

/// How long a client without a session is not watched for leaving: most calls are over by then.
pub const WATCH_AFTER: Duration = Duration::from_millis(20);

impl ShardState {
    /// Waits until it is time to watch a client without a session. Most calls are over before, so
    /// this costs none of the runtime's timers; it may be 50 ms late.
    pub async fn before_watching(&self) {
        let alarm = Rc::<Alarm>::default();
        self.watches.set(&alarm);
        alarm.rings().await;
    }

    /// A pseudo-random number (xorshift64*): for placement and jitter, never for secrets.
    pub fn random(&self) -> u64 {
        let mut x = self.seed.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.seed.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Whether a request for all backends of `host` is refused when one of them fails.
    pub fn fails_closed(&self, host: &VirtualHost) -> bool {
        host.fail_mode.unwrap_or(self.fail_mode) == FailMode::Closed
    }

    /// The connection gateway, when this listener is that of its internal API.
    pub fn internal_api(&self, listener: u8) -> Option<&Rc<Node>> {
        let node = self.connection_gateway.as_ref()?;
        (node.listeners.http == listener).then_some(node)
    }

    /// Client connections this shard may have open: its share of the process's limit, and room for
    /// the WebSockets, which have a limit of their own.
    pub fn connections_max(&self) -> u64 {
        let share =
            (self.settings.limits.connections_max as u64).div_ceil(u64::from(self.shard.count));
        let node = self.connection_gateway.as_ref();
        share + node.map_or(0, |node| node.settings.connections_max as u64)
    }

    /// Takes in the file store's documents; tokens are looked at anew when others are revoked.
    pub fn replace_document(&self, document: Arc<Document>) {
        if self.configs.replace_document(document) {
            self.tokens.borrow_mut().clear();
        }
    }

    /// A token may have been revoked in Redis: asks again about each at its next request.
    pub fn forget_unrevoked(&self) {
        if self.settings.store.check_revoked_tokens {
            self.tokens.borrow_mut().clear();
        }
    }

    /// Says how many sessions this shard has, for placement.
    pub fn publish_load(&self) {
        let load = &self.shard.own_counters().load;
        let sessions = self.sessions.borrow().len() as u64;
        let before = load.value();
        load.add(sessions.wrapping_sub(before));
    }

    /// Ends sessions whose time is over and closes idle backend connections.
    pub fn sweep(self: &Rc<Self>) {
        let now = now_ms();
        let over = self.sessions.borrow_mut().expire(now);
        for session in &over {
            self.numbers.sessions_expired.add(1);
            crate::upstream::open::end_all(self, session);
        }
        if !over.is_empty() {
            self.publish_load();
        }
        self.upstream
            .targets
            .sweep(now, self.upstream.limits.idle_ms_max);
        self.configs.sweep(now);
        self.standings.sweep();
        self.held.sweep(now);
        if let Some(node) = &self.connection_gateway {
            node.sweep();
        }
    }
}
