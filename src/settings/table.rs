//! Every setting once: its flag, variables, file key, default and meaning.
//!
//! The flags of the command line, the reading of the environment and of the file, the help text
//! and `docs/settings.md` are all made from this table, so they cannot disagree. The rows marked
//! with names of their own keep those of the ContextForge data plane (contract contextforge 1.1
//! to 1.6). It says nothing of what a value must look like: that is `read.rs`.

use Section::{
    Access, Auth, Limits, Listen, Process, Protocols, Shards, Store, Telemetry, Timeouts, Upstream,
};
use Shape::{Many, One, Secret, Switch};

/// The group of a setting: a heading of the help and a table of the settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Where the process listens.
    Listen,
    /// Cores, pinning and I/O.
    Shards,
    /// Token keys and claims.
    Auth,
    /// Who may come in without a token, and from where.
    Access,
    /// Where user configurations come from.
    Store,
    /// The way to the backends.
    Upstream,
    /// The protocol profiles, and what the stateless one may use.
    Protocols,
    /// Bounds in bytes and counts.
    Limits,
    /// Bounds in time.
    Timeouts,
    /// Logs and export.
    Telemetry,
    /// The process itself.
    Process,
}

impl Section {
    /// Every section, in the order of the help.
    pub const ALL: [Self; 11] = [
        Self::Listen,
        Self::Shards,
        Self::Auth,
        Self::Access,
        Self::Store,
        Self::Upstream,
        Self::Protocols,
        Self::Limits,
        Self::Timeouts,
        Self::Telemetry,
        Self::Process,
    ];

    /// The heading in the help text.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Listen => "Listeners",
            Self::Shards => "Shards",
            Self::Auth => "Auth",
            Self::Access => "Access",
            Self::Store => "Config store",
            Self::Upstream => "Upstream",
            Self::Protocols => "Protocols",
            Self::Limits => "Limits",
            Self::Timeouts => "Timeouts",
            Self::Telemetry => "Telemetry",
            Self::Process => "Process",
        }
    }

    /// The table's name in the settings file.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Shards => "shards",
            Self::Auth => "auth",
            Self::Access => "access",
            Self::Store => "store",
            Self::Upstream => "upstream",
            Self::Protocols => "protocols",
            Self::Limits => "limits",
            Self::Timeouts => "timeouts",
            Self::Telemetry => "telemetry",
            Self::Process => "process",
        }
    }
}

/// What a setting's value looks like on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false`; the bare flag means `true`.
    Switch,
    /// One value; the text names it in the help.
    One(&'static str),
    /// Several values, comma separated or by repeating the flag.
    Many(&'static str),
    /// One value that is never printed.
    Secret,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The group it belongs to.
    pub section: Section,
    /// The flag without its dashes; also the name by which the program asks for it.
    pub flag: &'static str,
    /// Another flag of the same meaning.
    pub alias: Option<&'static str>,
    /// Names after a prefix of the environment; empty for the flag in upper case.
    pub suffixes: &'static [&'static str],
    /// Variables without a prefix that are also read, last.
    pub bare_names: &'static [&'static str],
    /// What its value looks like.
    pub shape: Shape,
    /// The text that stands when nobody says anything; read like any other text.
    pub default: Option<&'static str>,
    /// How the default is described where it is found at run time.
    pub default_shown: Option<&'static str>,
    /// What it is for, in one sentence or two.
    pub help: &'static str,
}

impl Setting {
    /// The row of a flag.
    pub fn find(flag: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.flag == flag)
    }

    /// Names after a prefix of the environment, in the order they are looked up.
    pub fn suffixes(&self) -> Vec<String> {
        if self.suffixes.is_empty() {
            vec![self.upper_flag()]
        } else {
            self.suffixes
                .iter()
                .map(|&suffix| suffix.to_owned())
                .collect()
        }
    }

    /// The flag as a variable would spell it.
    pub(super) fn upper_flag(&self) -> String {
        self.flag.replace('-', "_").to_ascii_uppercase()
    }

    /// The dotted key in the settings file; none for the flag that names the file.
    pub fn file_key(&self) -> Option<String> {
        (self.flag != SETTINGS_FILE)
            .then(|| format!("{}.{}", self.section.key(), self.flag.replace('-', "_")))
    }

    /// The default as the help and the book show it.
    pub fn default_text(&self) -> Option<&'static str> {
        self.default_shown.or(self.default)
    }

    const fn env(mut self, suffixes: &'static [&'static str]) -> Self {
        self.suffixes = suffixes;
        self
    }

    const fn bare(mut self, names: &'static [&'static str]) -> Self {
        self.bare_names = names;
        self
    }

    const fn alias(mut self, flag: &'static str) -> Self {
        self.alias = Some(flag);
        self
    }

    const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    const fn or_found(mut self, shown: &'static str) -> Self {
        self.default_shown = Some(shown);
        self
    }
}

/// The flag that names the settings file.
pub(super) const SETTINGS_FILE: &str = "settings";

const fn row(section: Section, flag: &'static str, shape: Shape, help: &'static str) -> Setting {
    Setting {
        section,
        flag,
        alias: None,
        suffixes: &[],
        bare_names: &[],
        shape,
        default: None,
        default_shown: None,
        help,
    }
}

const SOCKET: Shape = One("IP:PORT");
const PEM: Shape = One("PEM");
const SIZE: Shape = One("SIZE");
const TIME: Shape = One("TIME");
const COUNT: Shape = One("N");
const NAME: Shape = One("NAME");

/// Every setting, in the order of the help.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    row(Listen, "address", SOCKET, "Plain HTTP listener; every shard accepts on it.")
        .or_found("127.0.0.1:8001 when no listener is given"),
    row(Listen, "tls-address", SOCKET,
        "TLS listener; needs --server-certificate and --server-private-key."),
    row(Listen, "server-certificate", PEM, "Certificate chain of the TLS listener.")
        .env(&["TLS_SERVER_CERTIFICATE"]),
    row(Listen, "server-private-key", PEM, "Private key of the TLS listener.")
        .env(&["TLS_SERVER_PRIVATE_KEY"]),
    row(Listen, "admin-address", One("IP:PORT|none"),
        "Health, metrics and debug pages; keep it on loopback, it asks for no token.")
        .or("127.0.0.1:9901"),
    row(Listen, "take-over", Switch,
        "Share the addresses with a process that listens there already, which then has to be \
         stopped.").or("false"),

    row(Shards, "shards", COUNT,
        "How many shards to run, one core each.").alias("number-of-cpus")
        .env(&["SHARDS", "NUMBER_OF_CPUS", "GATEWAY_CPUS"])
        .or_found("the CPUs this process may use, by affinity, cpuset and quota"),
    row(Shards, "cpu-list", One("LIST"),
        "Which CPUs to pin shards to, as 0-3,6; also sets the number of shards.")
        .or_found("all usable CPUs"),
    row(Shards, "no-pin", Switch,
        "Let the kernel move shards between CPUs; for shared hosts and CI.").or("false"),
    row(Shards, "io-driver", One("DRIVER"),
        "How shards do I/O: auto, io-uring or epoll. Auto tries io_uring and says what it took.")
        .or("auto"),
    row(Shards, "busy-poll-us", COUNT,
        "How many microseconds a shard with little to do stays awake for a backend's reply before \
         it sleeps; with io_uring only.").or_found("30; 0 when shards have no cores of their own"),
    row(Shards, "single-runtime", Switch,
        "Accepted for ContextForge command lines and ignored: each shard is its own runtime.")
        .or("true"),

    row(Auth, "token-verification-public-key", PEM,
        "Public key that checks tokens: RSA for RS256/384/512, P-256 for ES256, P-384 for ES384, \
         Ed25519 for EdDSA."),
    row(Auth, "token-verification-secret", Secret,
        "Shared secret that checks HS256/384/512 tokens: file:PATH, env:NAME or the secret itself.")
        .env(&["TOKEN_SECRET"]),
    row(Auth, "token-verification-private-key", PEM,
        "RSA private key that signs tokens, for `token mint` and --bootstrap-helpers."),
    row(Auth, "token-issuer", NAME, "The `iss` every token must name.").or("mcpgateway"),
    row(Auth, "token-audience", NAME, "The `aud` every token must name.").or("mcpgateway-api"),
    row(Auth, "resource-audience", Switch,
        "The `aud` must instead be the endpoint's own address: --public-url and its path.")
        .or("false"),
    row(Auth, "trusted-issuer", Many("ISSUER"),
        "Another issuer, as \"https://idp.example jwks=https://idp.example/keys audience=mcp\"; \
         see the book."),
    row(Auth, "issuer-trust-bundle", PEM,
        "Root certificates for fetching issuers' keys, added to the default ones."),
    row(Auth, "enforce-scopes", Switch,
        "Hold tokens to what they are restricted to: permissions, server, addresses, hours, teams.")
        .or("false"),

    row(Access, "allow-anonymous", Switch,
        "Serve requests without a token as the anonymous principal.").or("false"),
    row(Access, "allow-anonymous-remote", Switch,
        "Permit --allow-anonymous on an address that is not loopback.").or("false"),
    row(Access, "bootstrap-helpers", Switch,
        "Serve the token and configuration helper endpoints; loopback listeners only.").or("false"),
    row(Access, "mcp-allowed-origins", Many("ORIGIN"),
        "Browser origins that may call besides those on loopback, as https://app.example."),
    row(Access, "mcp-allowed-hosts", Many("HOST"),
        "Host names requests may be for; without port: any port. None: loopback names \
         if all listeners are, else any."),
    row(Access, "public-url", One("URL"),
        "Scheme and host clients know this gateway by, as https://mcp.example; for tokens and where \
         to get them."),
    row(Access, "authorization-server", Many("URL"),
        "Where clients get tokens: a 401 points to a document that says so (RFC 9728). Default: \
         the trusted issuers."),
    row(Access, "default-virtual-host", NAME,
        "The virtual host of requests whose path names none."),

    row(Store, "config-file", One("PATH"),
        "User configurations from a JSON file, or a folder of them; watched and swapped whole."),
    row(Store, "redis-address", One("HOST"),
        "Host name or IP of the Redis with the control plane's user configurations.")
        .env(&["REDIS_HOSTNAME"]),
    row(Store, "redis-port", One("PORT"), "Port of Redis."),
    row(Store, "redis-mode", One("MODE"), "How to connect to Redis: plain-text, tls or mtls.")
        .env(&["REDIS_CONNECTION_MODE"]),
    row(Store, "redis-tls-trust-bundle", PEM, "Root certificates for Redis; for tls and mtls.")
        .env(&["REDIS_TLS_REDIS_TRUST_BUNDLE"]),
    row(Store, "redis-tls-client-certificate", PEM, "Client certificate for Redis; for mtls.")
        .env(&["REDIS_TLS_REDIS_CLIENT_CERTIFICATE"]),
    row(Store, "redis-tls-client-private-key", PEM, "Client private key for Redis; for mtls.")
        .env(&["REDIS_TLS_REDIS_CLIENT_PRIVATE_KEY"]),
    row(Store, "redis-username", NAME, "User name for Redis AUTH; needs a password."),
    row(Store, "redis-password", Secret,
        "Password for Redis AUTH: file:PATH, env:NAME or the password itself."),
    row(Store, "redis-password-file", One("PATH"), "File that holds the password for Redis AUTH."),
    row(Store, "redis-database", COUNT, "Number of the Redis database.").or("0"),
    row(Store, "user-config-cache-expiry-seconds", COUNT,
        "How long a shard may serve a user configuration from memory; 0 reads the store each time.")
        .or("60"),
    row(Store, "check-revoked-tokens", Switch,
        "Ask Redis whether the control plane has revoked a token, by its `jti`.").or("false"),

    row(Upstream, "upstream-connection-mode", One("MODE"),
        "Which backend URLs are called and how: tls-only, plain-text-or-tls, plain-text-or-m-tls \
         or mtls-only.")
        .or("tls-only"),
    row(Upstream, "upstream-trust-bundle", PEM,
        "Root certificates for backends, added to the default ones.")
        .env(&["TLS_UPSTREAM_TRUST_BUNDLE"]),
    row(Upstream, "upstream-certificate", PEM,
        "Client certificate for backends; for the m-tls modes.")
        .env(&["TLS_UPSTREAM_CERTIFICATE"]),
    row(Upstream, "upstream-private-key", PEM,
        "Client private key for backends; for the m-tls modes.")
        .env(&["TLS_UPSTREAM_PRIVATE_KEY"]),
    row(Upstream, "upstream-concurrency-max", COUNT,
        "Requests one shard has under way to one backend; more fail at once. Its event streams do \
         not count.").or("1024"),
    row(Upstream, "upstream-idle-per-backend-max", COUNT,
        "Idle connections one shard keeps to one backend.").or("64"),
    row(Upstream, "fail-mode", One("MODE"),
        "When some backends of a virtual host fail: open serves the others, closed refuses the \
         request.")
        .or("open"),
    row(Upstream, "allow-stdio", Switch,
        "Start the child processes (`command`) of local configuration files; never those of Redis.")
        .or("false"),
    row(Upstream, "runtime-plugins-enabled", Switch,
        "Run plugins from the plugin document in Redis.")
        .or("false"),

    row(Protocols, "stateless-enabled", Switch,
        "Serve revision 2026-07-28, which knows no sessions, beside the others.").or("true"),
    row(Protocols, "legacy-enabled", Switch,
        "Serve the revisions with initialize and sessions.").or("true"),
    row(Protocols, "legacy-versions", Many("REVISION"),
        "Which of them; a client that asks for another one gets the newest of these.")
        .or("2025-11-25,2025-06-18,2025-03-26,2024-11-05"),
    row(Protocols, "discover-ttl-ms", COUNT,
        "How long stateless clients may keep what server/discover told them.").or("30000"),
    row(Protocols, "tools-list-ttl-ms", COUNT,
        "How long stateless clients, and each shard, may keep a list.").or("30000"),
    row(Protocols, "max-tools-list-cache-entries", COUNT,
        "Lists that the shards keep for stateless clients, of the whole process.").or("4096"),
    row(Protocols, "max-tools-list-items", COUNT,
        "Items of a list for stateless clients; more is an error.").or("1024"),
    row(Protocols, "max-concurrent-requests", COUNT,
        "Stateless requests under way in the whole process; more is 429.").or("1024"),
    row(Protocols, "max-concurrent-requests-per-principal", COUNT,
        "Those of one token's principal on one shard; more is 429.").or("32"),
    row(Protocols, "max-concurrent-backend-calls-per-target", COUNT,
        "Requests one shard has under way to one stateless backend; more fail at once.")
        .or("1024"),
    row(Protocols, "max-subscriptions", COUNT,
        "Open subscriptions/listen streams of the whole process; more is 429.").or("10000"),
    row(Protocols, "max-subscriptions-per-principal", COUNT,
        "Those of one principal on one shard; more is 429.").or("4"),
    row(Protocols, "max-subscription-duration-ms", COUNT,
        "How long a subscriptions/listen stream may last.").or("900000"),

    row(Limits, "head-bytes-max", SIZE, "Request line and headers; more is 431.").or("16KiB"),
    row(Limits, "header-count-max", COUNT, "Headers of a request; more is 431.").or("64"),
    row(Limits, "target-bytes-max", SIZE, "Request target; more is 414.").or("4KiB"),
    row(Limits, "body-bytes-max", SIZE, "Request body; more is 413.").or("4MiB"),
    row(Limits, "json-depth-max", COUNT,
        "Objects and arrays inside each other in a request; more is 400.").or("128"),
    row(Limits, "max-schema-bytes", SIZE,
        "Schema of a declared tool, as compact JSON; more refuses the tool.").or("1MiB"),
    row(Limits, "max-schema-depth", COUNT,
        "Objects and arrays inside each other in such a schema.").or("64"),
    row(Limits, "max-subschemas", COUNT, "Schemas within such a schema, itself included.")
        .or("4096"),
    row(Limits, "max-composition-branches", COUNT,
        "Branches of allOf, anyOf and oneOf within reach of its root.").or("256"),
    row(Limits, "max-schema-graph-visits", COUNT,
        "Steps to everything within reach of its root, references followed.").or("4096"),
    row(Limits, "max-concurrent-validations", COUNT,
        "Checks against schemas that wait for a thread, and such threads; more is an error.")
        .or("32"),
    row(Limits, "response-bytes-max", SIZE, "JSON reply of a backend.").or("16MiB"),
    row(Limits, "sse-event-bytes-max", SIZE, "One event of a backend's event stream.").or("16MiB"),
    row(Limits, "page-items-max", COUNT,
        "Items of one page of a list; 0 means all of them on one page.").or("0"),
    row(Limits, "resume-bytes-max", SIZE,
        "Events of the whole process kept for clients that resume a stream.").or("128MiB"),
    row(Limits, "connections-max", COUNT, "Client connections of the whole process.").or("65536"),
    row(Limits, "sessions-max", COUNT, "Live sessions of the whole process.").or("10000"),
    row(Limits, "sessions-per-principal-max", COUNT, "Live sessions of one principal.").or("1000"),
    row(Limits, "stdio-children-max", COUNT, "Child processes of stdio backends.").or("128"),
    row(Limits, "mcp-standard-header-max-count", COUNT,
        "Mcp-* headers of a request; 0 means the default.").or("32"),
    row(Limits, "mcp-standard-header-max-value-bytes", SIZE,
        "Longest value of an Mcp-* header; 0 means the default.").or("8192"),
    row(Limits, "mcp-standard-header-max-total-bytes", SIZE,
        "Names and values of all Mcp-* headers together; 0 means the default.").or("65536"),

    row(Timeouts, "head-timeout", TIME, "For a whole request head, from its first byte.").or("10s"),
    row(Timeouts, "body-timeout", TIME, "Between two reads of a request body.").or("15s"),
    row(Timeouts, "idle-timeout", TIME, "For a kept connection between two requests.").or("60s"),
    row(Timeouts, "write-timeout", TIME, "For a client that does not read its reply.").or("15s"),
    row(Timeouts, "validation-watchdog-ms", COUNT,
        "For a check of a value against a schema: one that takes longer is counted.").or("50"),
    row(Timeouts, "initialize-timeout", TIME, "For a backend's initialize.").or("5s"),
    row(Timeouts, "upstream-connect-timeout", TIME,
        "For a connection to a backend, with TLS.").or("2s"),
    row(Timeouts, "upstream-first-byte-timeout", TIME, "For the first byte of a backend's reply.")
        .or("60s"),
    row(Timeouts, "call-timeout", TIME, "For a whole call, its stream included.").or("300s"),
    row(Timeouts, "client-answer-timeout", TIME,
        "For a client to answer what a backend asks it.").or("300s"),
    row(Timeouts, "heartbeat-interval", TIME,
        "Between comments on a quiet event stream.").or("15s"),
    row(Timeouts, "session-idle-timeout", TIME, "For a session nobody uses.").or("30m"),
    row(Timeouts, "session-age-max", TIME, "For a session however busy it is.").or("24h"),
    row(Timeouts, "drain-timeout", TIME,
        "For requests in flight when the process is asked to stop.")
        .or("30s"),
    row(Timeouts, "jwks-age-max", TIME,
        "For keys of a trusted issuer before they are fetched again; the issuer may say less.")
        .or("1h"),
    row(Timeouts, "jwks-stale-max", TIME,
        "For keys of a trusted issuer that cannot be fetched again, since they last were.")
        .or("24h"),

    row(Telemetry, "log-level", One("LEVEL"),
        "What is logged to standard error: off, error, warn, info, debug or trace.").or("info"),
    row(Telemetry, "log-name", One("FILE"), "Log file in the working directory.")
        .bare(&["CONTEXTFORGE_GATEWAY_LOG_NAME"]),
    row(Telemetry, "log-rotation", One("PERIOD"),
        "When to begin a new log file: minutely, hourly, daily or never.")
        .bare(&["CONTEXTFORGE_GATEWAY_LOG_ROTATION"]).or("hourly"),
    row(Telemetry, "enable-open-telemetry", Switch, "Export traces with OTLP.").or("false"),
    row(Telemetry, "enable-otel-metrics", Switch, "Export metrics with OTLP.").or("false"),
    row(Telemetry, "otlp-protocol", One("PROTOCOL"), "How OTLP travels: grpc or http-protobuf.")
        .env(&["OTEL_EXPORTER_OTLP_PROTOCOL"]).or("grpc"),
    row(Telemetry, "otlp-endpoint", One("URL"), "Where traces go; for http-protobuf the full URL.")
        .env(&["OTEL_EXPORTER_OTLP_ENDPOINT"])
        .or_found("http://127.0.0.1:4317, or http://127.0.0.1:4318/v1/traces for http-protobuf"),
    row(Telemetry, "otlp-metrics-endpoint", One("URL"),
        "Where metrics go; for http-protobuf the full URL.")
        .env(&["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"])
        .or_found("http://127.0.0.1:4317, or http://127.0.0.1:4318/v1/metrics for http-protobuf"),
    row(Telemetry, "otlp-headers", Secret, "Headers of the export, as name=value,name=value.")
        .env(&["OTEL_EXPORTER_OTLP_HEADERS"]),
    row(Telemetry, "otlp-service-name", NAME, "The `service.name` of what is exported.")
        .env(&["OTEL_SERVICE_NAME"]).or("shardgate"),

    row(Process, SETTINGS_FILE, One("FILE"),
        "Settings file (TOML): the keys of this list, one table for each heading."),
    row(Process, "state-dir", One("PATH"),
        "Folder for generated keys.")
        .or_found("$XDG_STATE_HOME/shardgate, or ~/.local/state/shardgate"),
    row(Process, "node-id", NAME,
        "Name of this node inside session ids: 1 to 8 letters and digits, unique among nodes that \
         share sessions.")
        .or("n0"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_name_stands_twice() {
        let mut flags = BTreeSet::new();
        let mut suffixes = BTreeSet::new();
        for setting in SETTINGS {
            assert!(flags.insert(setting.flag), "{}", setting.flag);
            if let Some(alias) = setting.alias {
                assert!(flags.insert(alias), "{alias}");
            }
            for suffix in setting.suffixes() {
                assert!(suffixes.insert(suffix.clone()), "{suffix}");
            }
        }
    }

    #[test]
    fn every_help_text_is_a_sentence() {
        for setting in SETTINGS {
            assert!(setting.help.ends_with('.'), "{}", setting.flag);
            assert!(setting.help.len() <= 120, "{}", setting.flag);
        }
    }
}
