//! From texts to values, group by group.
//!
//! Asks the reader for each setting of the table once, with the bounds it must keep, and builds
//! the groups. A group that cannot be built from what was said leaves a fault behind; what it
//! answers then is thrown away with everything else.

use super::checks::{folder, readable_tree};
use super::groups::{
    Access, Auth, ClientCertificate, FailMode, IoDriver, Limits, Listen, LogLevel, Otlp,
    OtlpProtocol, Protocols, Redis, RedisConnection, Shards, Store, StoreSource, Telemetry,
    Timeouts, TlsListen, Upstream, UpstreamMode,
};
use super::issuer::trusted_issuer;
use super::reader::Reader;
use super::secret::Secret;
use super::table::SETTINGS;
use super::values::{
    cpu_list, headers, host, host_pattern, list, name, node_id, origin, path, public_url,
    session_versions, socket, socket_or_none, url, whole, word,
};
use super::{Purpose, Settings};
use crate::mcp::json::DEPTH_MAX;
use crate::schema::SchemaLimits;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// More shards than this is a typing mistake; the slot table has 4096 entries.
const SHARDS_MAX: u64 = 1024;

/// Longer than this a sleep costs less than it saves.
const BUSY_POLL_US_MAX: u64 = 1000;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

impl Settings {
    /// Reads every setting of the table.
    pub(super) fn read(reader: &mut Reader<'_>, purpose: Purpose) -> Self {
        Self {
            listen: listen(reader),
            shards: shards(reader),
            auth: auth(reader),
            access: access(reader),
            store: store(reader, purpose),
            upstream: upstream(reader),
            protocols: protocols(reader),
            limits: limits(reader),
            timeouts: timeouts(reader),
            telemetry: telemetry(reader),
            state_dir: state_dir(reader, purpose),
            node_id: reader.value("node-id", node_id),
            // Has variables of its own.
            connection_gateway: None,
        }
    }
}

fn listen(reader: &mut Reader<'_>) -> Listen {
    let mut plain = reader.optional("address", socket);
    let address = reader.optional("tls-address", socket);
    let certificate = reader.file("server-certificate");
    let private_key = reader.file("server-private-key");
    if !reader.is_said("address") && !reader.is_said("tls-address") {
        plain = Some(SocketAddr::from(([127, 0, 0, 1], 8001)));
    }
    if reader.is_said("tls-address") {
        for flag in ["server-certificate", "server-private-key"] {
            if !reader.is_said(flag) {
                reader.fault(flag, "required by --tls-address");
            }
        }
    }
    let tls = match (address, certificate, private_key) {
        (Some(address), Some(certificate), Some(private_key)) => Some(TlsListen {
            address,
            certificate,
            private_key,
        }),
        _ => None,
    };
    let admin = reader.value("admin-address", socket_or_none);
    Listen {
        plain,
        tls,
        admin,
        take_over: reader.switch("take-over"),
    }
}

fn shards(reader: &mut Reader<'_>) -> Shards {
    let said = reader.optional("shards", |text| whole(text, 1..=SHARDS_MAX));
    let count = said.and_then(|count| NonZeroUsize::new(usize::try_from(count).ok()?));
    let cpus = reader.optional("cpu-list", cpu_list);
    let pin = !reader.switch("no-pin");
    // Checked like any switch; what it says is noted elsewhere and changes nothing.
    reader.switch("single-runtime");
    if let Some(cpus) = &cpus {
        if !pin {
            reader.fault(
                "cpu-list",
                "says where to pin, and --no-pin not to pin: give one of them",
            );
        }
        if let Some(count) = count
            && count.get() > cpus.len()
        {
            let problem = format!("names {} CPUs, too few for {count} shards", cpus.len());
            reader.fault("cpu-list", problem);
        }
    }
    let count = count.or_else(|| NonZeroUsize::new(cpus.as_ref()?.len()));
    let driver = [
        ("auto", IoDriver::Auto),
        ("io-uring", IoDriver::IoUring),
        ("epoll", IoDriver::Epoll),
    ];
    let busy_poll_us = reader.optional("busy-poll-us", |text| whole(text, 0..=BUSY_POLL_US_MAX));
    Shards {
        count,
        cpus,
        pin,
        driver: reader.value("io-driver", word(&driver)),
        busy_poll: busy_poll_us.map(Duration::from_micros),
    }
}

fn auth(reader: &mut Reader<'_>) -> Auth {
    Auth {
        public_key: reader.file("token-verification-public-key"),
        secret: reader.secret("token-verification-secret"),
        signing_key: reader.file("token-verification-private-key"),
        issuer: reader.value("token-issuer", name),
        audience: reader.value("token-audience", name),
        audience_is_resource: reader.switch("resource-audience"),
        trusted_issuers: reader
            .optional("trusted-issuer", list(trusted_issuer))
            .unwrap_or_default(),
        issuer_trust_bundle: reader.file("issuer-trust-bundle"),
        enforce_scopes: reader.switch("enforce-scopes"),
    }
}

fn access(reader: &mut Reader<'_>) -> Access {
    Access {
        allow_anonymous: reader.switch("allow-anonymous"),
        allow_anonymous_remote: reader.switch("allow-anonymous-remote"),
        bootstrap_helpers: reader.switch("bootstrap-helpers"),
        origins: reader
            .optional("mcp-allowed-origins", list(origin))
            .unwrap_or_default(),
        hosts: reader
            .optional("mcp-allowed-hosts", list(host_pattern))
            .unwrap_or_default(),
        public_url: reader.optional("public-url", public_url),
        authorization_servers: reader
            .optional("authorization-server", list(url))
            .unwrap_or_default(),
        default_virtual_host: reader.optional("default-virtual-host", |text| match name(text) {
            Ok(name) if !name.contains('/') => Ok(name),
            _ => Err("must not be empty nor hold blanks or slashes".into()),
        }),
    }
}

fn store(reader: &mut Reader<'_>, purpose: Purpose) -> Store {
    let file = reader.optional("config-file", |text| {
        let path = path(text)?;
        readable_tree(&path).map(|()| path)
    });
    let redis_said = SETTINGS
        .iter()
        .find(|setting| setting.flag.starts_with("redis-") && reader.is_said(setting.flag));
    let redis = redis(reader, redis_said.is_some());
    let source = match (reader.is_said("config-file"), redis_said) {
        (true, Some(setting)) => {
            let problem = format!(
                "user configurations come from one place: give --config-file or the redis \
                 options, not both; --{} is given too",
                setting.flag
            );
            reader.fault("config-file", problem);
            None
        }
        (true, None) => file.map(StoreSource::File),
        (false, Some(_)) => redis.map(StoreSource::Redis),
        (false, None) => {
            if !matches!(purpose, Purpose::Token | Purpose::Connect) {
                reader.fault(
                    "config-file",
                    "no user configurations: give --config-file with a JSON file or folder, or \
                     --redis-address, --redis-port and --redis-mode (`shardgate demo` needs \
                     neither)",
                );
            }
            None
        }
    };
    let seconds = reader.count("user-config-cache-expiry-seconds", 0..=YEAR.as_secs());
    let cache_expiry = Duration::from_secs(seconds as u64);
    Store {
        source: source.unwrap_or(StoreSource::Empty),
        cache_expiry,
        check_revoked_tokens: reader.switch("check-revoked-tokens"),
    }
}

/// How a Redis connection is made, before its files are known.
#[derive(Clone, Copy)]
enum RedisMode {
    PlainText,
    Tls,
    Mtls,
}

/// Contract contextforge 1.2 and 1.7: host, port and mode are required, tls needs a bundle, mtls
/// a client certificate too.
fn redis(reader: &mut Reader<'_>, is_wanted: bool) -> Option<Redis> {
    if is_wanted {
        for flag in ["redis-address", "redis-port", "redis-mode"] {
            if !reader.is_said(flag) {
                reader.fault(flag, "required when any redis option is given");
            }
        }
    }
    let host = reader.optional("redis-address", host);
    let port = reader.optional("redis-port", |text| whole(text, 1..=65535));
    let modes = [
        ("plain-text", RedisMode::PlainText),
        ("tls", RedisMode::Tls),
        ("mtls", RedisMode::Mtls),
    ];
    let mode = reader.optional("redis-mode", word(&modes));
    let connection = redis_connection(reader, mode);
    let (username, password) = redis_login(reader);
    let database = reader.value("redis-database", |text| {
        whole(text, 0..=u64::from(u32::MAX))
    });
    Some(Redis {
        host: host?,
        port: u16::try_from(port?).ok()?,
        connection: connection?,
        username,
        password,
        database: u32::try_from(database).ok()?,
    })
}

fn redis_connection(reader: &mut Reader<'_>, mode: Option<RedisMode>) -> Option<RedisConnection> {
    const BUNDLE: &str = "redis-tls-trust-bundle";
    const PAIR: [&str; 2] = [
        "redis-tls-client-certificate",
        "redis-tls-client-private-key",
    ];
    let trust_bundle = reader.file(BUNDLE);
    let client = client_certificate(reader, PAIR);
    let (needed, unused): (&[&str], &[&str]) = match mode? {
        RedisMode::PlainText => (&[], &[BUNDLE, PAIR[0], PAIR[1]]),
        RedisMode::Tls => (&[BUNDLE], &PAIR),
        RedisMode::Mtls => (&[BUNDLE, PAIR[0], PAIR[1]], &[]),
    };
    for flag in needed {
        if !reader.is_said(flag) {
            reader.fault(flag, "required by this --redis-mode");
        }
    }
    for flag in unused {
        if reader.is_said(flag) {
            reader.note(flag, "not used by this --redis-mode");
        }
    }
    match mode? {
        RedisMode::PlainText => Some(RedisConnection::PlainText),
        RedisMode::Tls => Some(RedisConnection::Tls {
            trust_bundle: trust_bundle?,
        }),
        RedisMode::Mtls => Some(RedisConnection::Mtls {
            trust_bundle: trust_bundle?,
            client: client?,
        }),
    }
}

fn redis_login(reader: &mut Reader<'_>) -> (Option<String>, Option<Secret>) {
    let username = reader.optional("redis-username", name);
    let password = reader.secret("redis-password");
    let from_file = reader.optional("redis-password-file", |text| {
        Secret::from_file(&path(text)?).map_err(|problem| format!("is no password file: {problem}"))
    });
    let said = ["redis-password", "redis-password-file"].map(|flag| reader.is_said(flag));
    if said == [true, true] {
        reader.fault(
            "redis-password-file",
            "give it or --redis-password, not both",
        );
    }
    if said == [false, false] && reader.is_said("redis-username") {
        reader.fault(
            "redis-username",
            "needs --redis-password or --redis-password-file",
        );
    }
    (username, password.or(from_file))
}

fn client_certificate(
    reader: &mut Reader<'_>,
    [certificate, private_key]: [&'static str; 2],
) -> Option<ClientCertificate> {
    let (certificate, private_key) = (reader.file(certificate), reader.file(private_key));
    Some(ClientCertificate {
        certificate: certificate?,
        private_key: private_key?,
    })
}

fn upstream(reader: &mut Reader<'_>) -> Upstream {
    let modes = [
        ("tls-only", UpstreamMode::TlsOnly),
        ("plain-text-or-tls", UpstreamMode::PlainTextOrTls),
        ("plain-text-or-m-tls", UpstreamMode::PlainTextOrMtls),
        ("mtls-only", UpstreamMode::MtlsOnly),
    ];
    let fail_modes = [("open", FailMode::Open), ("closed", FailMode::Closed)];
    Upstream {
        mode: reader.value("upstream-connection-mode", word(&modes)),
        trust_bundle: reader.file("upstream-trust-bundle"),
        client: client_certificate(reader, ["upstream-certificate", "upstream-private-key"]),
        concurrency_max: u32::try_from(reader.count("upstream-concurrency-max", 1..=1_000_000))
            .unwrap_or(u32::MAX),
        idle_per_backend_max: reader.count("upstream-idle-per-backend-max", 0..=65_536),
        fail_mode: reader.value("fail-mode", word(&fail_modes)),
        allow_stdio: reader.switch("allow-stdio"),
        plugins: reader.switch("runtime-plugins-enabled"),
    }
}

fn protocols(reader: &mut Reader<'_>) -> Protocols {
    let count_max = 10_000_000;
    let mut milliseconds = |flag| reader.value(flag, |text| whole(text, 1..=86_400_000));
    let discover_ttl_ms = milliseconds("discover-ttl-ms");
    let list_ttl_ms = milliseconds("tools-list-ttl-ms");
    let duration_ms = milliseconds("max-subscription-duration-ms");
    Protocols {
        stateless: reader.switch("stateless-enabled"),
        legacy: reader.switch("legacy-enabled"),
        legacy_versions: reader.value("legacy-versions", session_versions),
        discover_ttl_ms,
        list_ttl_ms,
        lists_max: reader.count("max-tools-list-cache-entries", 1..=count_max),
        list_items_max: reader.count("max-tools-list-items", 1..=count_max),
        requests_max: reader.count("max-concurrent-requests", 1..=count_max),
        requests_per_principal_max: reader
            .count("max-concurrent-requests-per-principal", 1..=count_max),
        backend_calls_max: u32::try_from(
            reader.count("max-concurrent-backend-calls-per-target", 1..=1_000_000),
        )
        .unwrap_or(u32::MAX),
        subscriptions_max: reader.count("max-subscriptions", 1..=count_max),
        subscriptions_per_principal_max: reader
            .count("max-subscriptions-per-principal", 1..=count_max),
        subscription_duration: Duration::from_millis(duration_ms),
    }
}

fn limits(reader: &mut Reader<'_>) -> Limits {
    Limits {
        head_bytes_max: reader.size("head-bytes-max", KIB..=MIB),
        header_count_max: reader.count("header-count-max", 8..=1024),
        target_bytes_max: reader.size("target-bytes-max", 128..=MIB),
        body_bytes_max: reader.size("body-bytes-max", KIB..=1024 * MIB),
        json_depth_max: u16::try_from(reader.count("json-depth-max", 1..=u64::from(DEPTH_MAX)))
            .unwrap_or(DEPTH_MAX),
        schema: SchemaLimits {
            // No document with tools is longer, or nests deeper.
            bytes_max: reader.size("max-schema-bytes", 1..=4 * MIB),
            depth_max: reader.count("max-schema-depth", 1..=u64::from(DEPTH_MAX)),
            subschemas_max: reader.count("max-subschemas", 1..=1_000_000),
            branches_max: reader.count("max-composition-branches", 1..=1_000_000),
            visits_max: reader.count("max-schema-graph-visits", 1..=1_000_000),
        },
        validations_max: reader.count("max-concurrent-validations", 1..=1024),
        response_bytes_max: reader.size("response-bytes-max", KIB..=1024 * MIB),
        sse_event_bytes_max: reader.size("sse-event-bytes-max", KIB..=1024 * MIB),
        page_items_max: reader.count("page-items-max", 0..=1_000_000),
        resume_bytes_max: reader.size("resume-bytes-max", 0..=64 * 1024 * MIB),
        connections_max: reader.count("connections-max", 1..=10_000_000),
        sessions_max: reader.count("sessions-max", 1..=10_000_000),
        sessions_per_principal_max: reader.count("sessions-per-principal-max", 1..=10_000_000),
        stdio_children_max: reader.count("stdio-children-max", 1..=100_000),
        standard_header_count_max: or_default(
            reader.count("mcp-standard-header-max-count", 0..=1024),
            32,
        ),
        standard_header_value_bytes_max: or_default(
            reader.size("mcp-standard-header-max-value-bytes", 0..=MIB),
            8192,
        ),
        standard_header_total_bytes_max: or_default(
            reader.size("mcp-standard-header-max-total-bytes", 0..=MIB),
            65_536,
        ),
    }
}

/// Contract contextforge 1.6: zero means the default in these three, and not "none at all".
fn or_default(value: usize, default: usize) -> usize {
    if value == 0 { default } else { value }
}

fn timeouts(reader: &mut Reader<'_>) -> Timeouts {
    let watchdog_ms = reader.count("validation-watchdog-ms", 1..=60_000) as u64;
    Timeouts {
        head: reader.time("head-timeout", MS..=HOUR),
        body: reader.time("body-timeout", MS..=HOUR),
        idle: reader.time("idle-timeout", MS..=24 * HOUR),
        write: reader.time("write-timeout", MS..=HOUR),
        validation_watchdog: Duration::from_millis(watchdog_ms),
        initialize: reader.time("initialize-timeout", MS..=HOUR),
        upstream_connect: reader.time("upstream-connect-timeout", MS..=HOUR),
        upstream_first_byte: reader.time("upstream-first-byte-timeout", MS..=24 * HOUR),
        call: reader.time("call-timeout", MS..=24 * HOUR),
        client_answer: reader.time("client-answer-timeout", 100 * MS..=24 * HOUR),
        heartbeat_interval: reader.time("heartbeat-interval", 100 * MS..=HOUR),
        session_idle: reader.time("session-idle-timeout", SECOND..=YEAR),
        session_age_max: reader.time("session-age-max", SECOND..=YEAR),
        drain: reader.time("drain-timeout", Duration::ZERO..=24 * HOUR),
        jwks_age_max: reader.time("jwks-age-max", 60 * SECOND..=24 * HOUR),
        jwks_stale_max: reader.time("jwks-stale-max", 60 * SECOND..=30 * 24 * HOUR),
    }
}

fn telemetry(reader: &mut Reader<'_>) -> Telemetry {
    let protocols = [
        ("grpc", OtlpProtocol::Grpc),
        ("http-protobuf", OtlpProtocol::HttpProtobuf),
    ];
    let protocol = reader.value("otlp-protocol", word(&protocols));
    let (traces_url, metrics_url) = match protocol {
        OtlpProtocol::Grpc => ("http://127.0.0.1:4317", "http://127.0.0.1:4317"),
        OtlpProtocol::HttpProtobuf => (
            "http://127.0.0.1:4318/v1/traces",
            "http://127.0.0.1:4318/v1/metrics",
        ),
    };
    // Log files are not written yet; a period that makes no sense is still a fault.
    let periods = ["minutely", "hourly", "daily", "never"].map(|period| (period, ()));
    reader.value("log-rotation", word(&periods));
    reader.optional("log-name", name);
    let endpoint = reader.optional("otlp-endpoint", url);
    let metrics_endpoint = reader.optional("otlp-metrics-endpoint", url);
    Telemetry {
        log_level: log_level(reader),
        traces: reader.switch("enable-open-telemetry"),
        metrics: reader.switch("enable-otel-metrics"),
        otlp: Otlp {
            protocol,
            endpoint: endpoint.unwrap_or_else(|| traces_url.to_owned()),
            metrics_endpoint: metrics_endpoint.unwrap_or_else(|| metrics_url.to_owned()),
            headers: reader.optional("otlp-headers", headers).unwrap_or_default(),
            service_name: reader.value("otlp-service-name", name),
        },
    }
}

/// Contract contextforge 1.5 has `RUST_LOG`: a plain level in it stands in for a setting nobody
/// gave. Its finer directives have no counterpart here and must not stop the start.
fn log_level(reader: &mut Reader<'_>) -> LogLevel {
    const VARIABLE: &str = "RUST_LOG";
    let level = word(&[
        ("off", LogLevel::Off),
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ]);
    let setting = reader.value("log-level", &level);
    let variable = reader
        .environment
        .value(VARIABLE)
        .filter(|_| !reader.is_said("log-level"));
    match variable.map(level) {
        Some(Ok(stand_in)) => stand_in,
        Some(Err(_)) => {
            reader.note_variable(
                VARIABLE,
                "more than a plain level, ignored: use --log-level",
            );
            setting
        }
        None => setting,
    }
}

/// The XDG base directory rules: a relative `XDG_STATE_HOME` counts as unset.
fn state_dir(reader: &mut Reader<'_>, purpose: Purpose) -> PathBuf {
    let said = reader.optional("state-dir", |text| {
        let path = path(text)?;
        folder(&path).map(|()| path)
    });
    if let Some(path) = said {
        return path;
    }
    let home = |name: &str| reader.environment.value(name).map(PathBuf::from);
    let found = home("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(home("HOME")?.join(".local/state")));
    match found {
        Some(path) => path.join("shardgate"),
        None => {
            if matches!(purpose, Purpose::Serve | Purpose::Connect) && !reader.is_said("state-dir")
            {
                let problem = "neither XDG_STATE_HOME nor HOME is set: say where to keep state";
                reader.fault("state-dir", problem);
            }
            PathBuf::new()
        }
    }
}
