//! The groups of checked settings: plain values, one struct for each heading of the help.
//!
//! Says only what there is; how a text becomes one of these is `read.rs`, what must hold between
//! them is `checks.rs`. Units stand in the names or in the type.

use super::secret::Secret;
use crate::auth::IssuerRules;
use crate::mcp::version::VersionSet;
use crate::schema::SchemaLimits;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Where the process listens. At least one of `plain` and `tls` is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The plain HTTP listener.
    pub plain: Option<SocketAddr>,
    /// The TLS listener.
    pub tls: Option<TlsListen>,
    /// The admin listener; none when it was switched off.
    pub admin: Option<SocketAddr>,
    /// Whether to take the listening sockets over from a running process.
    pub take_over: bool,
}

impl Listen {
    /// The addresses clients come to, without the admin listener's.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.plain
            .into_iter()
            .chain(self.tls.as_ref().map(|tls| tls.address))
    }
}

/// The TLS listener. Its files were readable when the settings were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsListen {
    /// Where it listens.
    pub address: SocketAddr,
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub private_key: PathBuf,
}

/// Cores, pinning and I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    /// How many shards; none means one for each CPU this process may use.
    pub count: Option<NonZeroUsize>,
    /// CPUs to pin to, in order, at least `count`; none means all usable ones.
    pub cpus: Option<Vec<usize>>,
    /// Whether shards are pinned at all.
    pub pin: bool,
    /// How shards do I/O.
    pub driver: IoDriver,
    /// How long a shard with little to do polls for a reply before it sleeps; zero: never; none
    /// said: as long as is good for shards with cores of their own, never for others.
    pub busy_poll: Option<Duration>,
}

/// How shards do I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoDriver {
    /// io_uring where real rings can be built, else epoll.
    #[default]
    Auto,
    /// io_uring or refuse to start.
    IoUring,
    /// epoll.
    Epoll,
}

/// Token keys and claims. The files were readable when the settings were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// Public key, PEM: RSA, P-256, P-384 or Ed25519.
    pub public_key: Option<PathBuf>,
    /// Shared secret for HS256/384/512.
    pub secret: Option<Secret>,
    /// RSA private key, PEM, that signs tokens.
    pub signing_key: Option<PathBuf>,
    /// The `iss` every token must name (contract contextforge 2).
    pub issuer: String,
    /// The `aud` every token must name (contract contextforge 2).
    pub audience: String,
    /// `aud` of those tokens must be the address of the endpoint asked, and not `audience`.
    pub audience_is_resource: bool,
    /// Issuers whose tokens are taken besides, with published keys (mcp.md 6).
    pub trusted_issuers: Vec<IssuerRules>,
    /// Root certificates, PEM, added to the default ones for fetching keys.
    pub issuer_trust_bundle: Option<PathBuf>,
    /// What tokens are restricted to counts: permissions, server, addresses, hours, teams.
    pub enforce_scopes: bool,
}

/// Who may come in without a token, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Requests without a token are the anonymous principal's.
    pub allow_anonymous: bool,
    /// The same, on addresses other hosts can reach.
    pub allow_anonymous_remote: bool,
    /// Serve the token and configuration helper endpoints.
    pub bootstrap_helpers: bool,
    /// Serialized origins that may call; with none every request with an `Origin` is refused
    /// (contract contextforge 1.6).
    pub origins: Vec<String>,
    /// Hosts that requests may be for, lower case, any port when none is named; with none the
    /// host is not checked (contract contextforge 1.6).
    pub hosts: Vec<String>,
    /// Scheme and authority clients know the gateway by.
    pub public_url: Option<String>,
    /// Issuers clients get their tokens from.
    pub authorization_servers: Vec<String>,
    /// The virtual host of requests whose path names none.
    pub default_virtual_host: Option<String>,
}

/// Where user configurations come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The one source.
    pub source: StoreSource,
    /// How long a shard may serve one from memory; zero reads the store for each request.
    pub cache_expiry: Duration,
    /// Redis is asked whether a token was revoked.
    pub check_revoked_tokens: bool,
}

/// The source of user configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSource {
    /// No users at all: tests, and commands that need none.
    Empty,
    /// A JSON file or a folder of them; could be read when the settings were checked.
    File(PathBuf),
    /// Redis.
    Redis(Redis),
}

/// How to reach Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redis {
    /// Host name or IP address, an IPv6 address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What the connection is made of.
    pub connection: RedisConnection,
    /// User name for AUTH; never without a password.
    pub username: Option<String>,
    /// Password for AUTH.
    pub password: Option<Secret>,
    /// Number of the database.
    pub database: u32,
}

/// What a connection to Redis is made of (contract contextforge 1.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisConnection {
    /// TCP.
    PlainText,
    /// TLS that checks the server by the system's root certificates.
    SystemTls,
    /// TLS that checks the server.
    Tls {
        /// Root certificates, PEM.
        trust_bundle: PathBuf,
    },
    /// TLS that checks the server and shows a client certificate.
    Mtls {
        /// Root certificates, PEM.
        trust_bundle: PathBuf,
        /// What this client shows.
        client: ClientCertificate,
    },
}

/// A client certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub private_key: PathBuf,
}

/// The way to the backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Which URLs are called and how.
    pub mode: UpstreamMode,
    /// Root certificates, PEM, added to the default ones.
    pub trust_bundle: Option<PathBuf>,
    /// What this client shows; there in the modes that need it.
    pub client: Option<ClientCertificate>,
    /// Requests one shard has under way to one backend.
    pub concurrency_max: u32,
    /// Idle connections one shard keeps to one backend.
    pub idle_per_backend_max: usize,
    /// What happens when some backends of a virtual host fail.
    pub fail_mode: FailMode,
    /// Child processes of local configuration files are started.
    pub allow_stdio: bool,
    /// Run plugins from the plugin document.
    pub plugins: bool,
}

/// Which backend URLs are called and how (contract contextforge 1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamMode {
    /// `https` only.
    #[default]
    TlsOnly,
    /// `http` and `https`.
    PlainTextOrTls,
    /// `http`, and `https` with a client certificate.
    PlainTextOrMtls,
    /// `https` with a client certificate only.
    MtlsOnly,
}

/// What happens when some backends of a virtual host fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// The others are served.
    #[default]
    Open,
    /// The request is refused.
    Closed,
}

impl FailMode {
    /// The word in settings and configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }

    /// Reads the word.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Open, Self::Closed]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// The protocol profiles (contract dual-profile 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocols {
    /// Serve the stateless revision.
    pub stateless: bool,
    /// Serve the revisions with sessions.
    pub legacy: bool,
    /// Which of them; never empty.
    pub legacy_versions: VersionSet,
    /// How long clients may keep what `server/discover` told them, ms.
    pub discover_ttl_ms: u64,
    /// How long clients may keep a list, ms.
    pub list_ttl_ms: u64,
    /// Lists kept for stateless clients by the whole process.
    pub lists_max: usize,
    /// Items of one list for stateless clients.
    pub list_items_max: usize,
    /// Stateless requests under way in the whole process.
    pub requests_max: usize,
    /// Those of one principal on one shard.
    pub requests_per_principal_max: usize,
    /// Requests one shard has under way to one stateless backend.
    pub backend_calls_max: u32,
    /// Open `subscriptions/listen` streams of the whole process.
    pub subscriptions_max: usize,
    /// Those of one principal on one shard.
    pub subscriptions_per_principal_max: usize,
    /// How long one may last.
    pub subscription_duration: Duration,
}

impl Protocols {
    /// The revisions with sessions that are served; empty when they are switched off.
    pub fn with_sessions(&self) -> VersionSet {
        match self.legacy {
            true => self.legacy_versions,
            false => VersionSet::NONE,
        }
    }
}

/// Bounds in bytes and counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Request line and headers.
    pub head_bytes_max: usize,
    /// Headers of a request.
    pub header_count_max: usize,
    /// Request target; smaller than the head.
    pub target_bytes_max: usize,
    /// Request body.
    pub body_bytes_max: usize,
    /// Objects and arrays inside each other in a request.
    pub json_depth_max: u16,
    /// The schemas of declared tools.
    pub schema: SchemaLimits,
    /// Checks against schemas that wait for a thread, and such threads.
    pub validations_max: usize,
    /// JSON reply of a backend.
    pub response_bytes_max: usize,
    /// One event of a backend's stream.
    pub sse_event_bytes_max: usize,
    /// Items of one page of a list; 0: all of them.
    pub page_items_max: usize,
    /// Events of the whole process kept for clients that resume a stream.
    pub resume_bytes_max: usize,
    /// Client connections of the whole process.
    pub connections_max: usize,
    /// Live sessions of the whole process.
    pub sessions_max: usize,
    /// Live sessions of one principal; at most `sessions_max`.
    pub sessions_per_principal_max: usize,
    /// Child processes of stdio backends.
    pub stdio_children_max: usize,
    /// `Mcp-*` headers of a request (contract contextforge 1.6).
    pub standard_header_count_max: usize,
    /// Longest value of an `Mcp-*` header (contract contextforge 1.6).
    pub standard_header_value_bytes_max: usize,
    /// Names and values of all `Mcp-*` headers together (contract contextforge 1.6).
    pub standard_header_total_bytes_max: usize,
}

/// Bounds in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// A whole request head, from its first byte.
    pub head: Duration,
    /// Between two reads of a request body.
    pub body: Duration,
    /// A kept connection between two requests.
    pub idle: Duration,
    /// A client that does not read.
    pub write: Duration,
    /// A check against a schema that is not counted as slow.
    pub validation_watchdog: Duration,
    /// A backend's `initialize`.
    pub initialize: Duration,
    /// A connection to a backend, with TLS.
    pub upstream_connect: Duration,
    /// The first byte of a backend's reply.
    pub upstream_first_byte: Duration,
    /// A whole call, its stream included.
    pub call: Duration,
    /// A client that a backend has asked something.
    pub client_answer: Duration,
    /// Between comments on a quiet event stream.
    pub heartbeat_interval: Duration,
    /// A session nobody uses; at most `session_age_max`.
    pub session_idle: Duration,
    /// A session however busy it is.
    pub session_age_max: Duration,
    /// Requests in flight when the process is asked to stop.
    pub drain: Duration,
    /// Keys of a trusted issuer before they are fetched again.
    pub jwks_age_max: Duration,
    /// Keys of a trusted issuer that cannot be fetched again; at least `jwks_age_max`.
    pub jwks_stale_max: Duration,
}

/// Logs and export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    /// What is logged to standard error.
    pub log_level: LogLevel,
    /// Export traces.
    pub traces: bool,
    /// Export metrics.
    pub metrics: bool,
    /// Where and how to export.
    pub otlp: Otlp,
}

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What broke.
    Error,
    /// And what may break soon.
    Warn,
    /// And what an operator did or should know.
    #[default]
    Info,
    /// And what a request met.
    Debug,
    /// And every step of it.
    Trace,
}

/// Where and how to export (contract contextforge 1.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otlp {
    /// How it travels.
    pub protocol: OtlpProtocol,
    /// Where traces go.
    pub endpoint: String,
    /// Where metrics go.
    pub metrics_endpoint: String,
    /// Headers of each export request.
    pub headers: Vec<(String, Secret)>,
    /// The `service.name`.
    pub service_name: String,
}

/// How OTLP travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OtlpProtocol {
    /// gRPC.
    #[default]
    Grpc,
    /// Protobuf in HTTP POST.
    HttpProtobuf,
}
