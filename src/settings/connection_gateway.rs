//! The connection gateway's settings: the environment variables of FastGPT-Plugin's own gateway,
//! with their names, defaults and rules, and a few more of ours under the same prefix.
//!
//! They have no flags and no place in the settings file, because the programs around this gateway
//! are configured by the same variables. An empty variable counts as unset. All faults are found at
//! once and each names its variable; none shows a secret.

use super::environment::Environment;
use super::fault::{Fault, Note, Origin, quoted};
use super::groups::Redis;
use super::redis_url;
use super::secret::Secret;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The variables with their defaults as texts; those without one have another rule.
pub const CONNECTION_GATEWAY_VARIABLES: [(&str, Option<&str>); 23] = [
    ("NODE_ENV", Some("development")),
    ("AUTH_TOKEN", None),
    ("JWT_SECRET", None),
    ("REDIS_URL", None),
    ("CONNECTION_GATEWAY_PORT", Some("3010")),
    ("CONNECTION_GATEWAY_WS_PORT", Some("3011")),
    ("CONNECTION_GATEWAY_WS_PATH", Some("/connection-gateway/v1")),
    ("CONNECTION_GATEWAY_NODE_ID", None),
    ("CONNECTION_GATEWAY_SESSION_TTL_MS", Some("60000")),
    ("CONNECTION_GATEWAY_OWNER_LEASE_TTL_MS", Some("15000")),
    ("CONNECTION_GATEWAY_MAILBOX_MAXLEN", Some("1000")),
    ("CONNECTION_GATEWAY_MAILBOX_BLOCK_MS", Some("5000")),
    ("CONNECTION_GATEWAY_MAX_CONNECTIONS", Some("5000")),
    ("CONNECTION_GATEWAY_MAX_SESSIONS_PER_SUBJECT", Some("5")),
    ("CONNECTION_GATEWAY_MAX_IN_FLIGHT_PER_SESSION", Some("50")),
    ("CONNECTION_GATEWAY_MAX_ENVELOPE_BYTES", Some("1048576")),
    (
        "CONNECTION_GATEWAY_SLOW_CONSUMER_BUFFER_BYTES",
        Some("8388608"),
    ),
    ("CONNECTION_GATEWAY_HOST", Some("0.0.0.0")),
    ("CONNECTION_GATEWAY_BIND_TIMEOUT_MS", Some("10000")),
    ("CONNECTION_GATEWAY_SLOW_CONSUMER_MS", Some("10000")),
    ("CONNECTION_GATEWAY_REQUIRE_CAPABILITY", Some("false")),
    ("CONNECTION_GATEWAY_SINGLE_USE_TOKENS", Some("false")),
    ("CONNECTION_GATEWAY_REDIS_HASH_TAG", Some("false")),
];

/// Key of tokens when none is said; never in production.
const JWT_SECRET_DEFAULT: &str = "fastgpt-plugin-secret";
/// Bearer token of the internal API when none is said; never in production.
const AUTH_TOKEN_DEFAULT: &str = "token";
/// Bearer tokens nobody may have in production.
const AUTH_TOKENS_WEAK: [&str; 5] = ["token", "changeme", "password", "secret", "default"];
/// Characters of a bearer token in production at the least.
const AUTH_TOKEN_CHARS_MIN: usize = 32;
/// The largest whole number that every reader of JSON numbers has exactly.
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Settings of the connection gateway. Prints without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionGateway {
    /// Where the internal HTTP API listens.
    pub http: SocketAddr,
    /// Where WebSockets come to.
    pub websocket: SocketAddr,
    /// The path of WebSockets.
    pub path: String,
    /// Name of this node in sessions; made up at the start when nobody said one.
    pub node_id: Option<String>,
    /// Bearer token of the internal API.
    pub auth_token: Secret,
    /// Key of connect tokens.
    pub jwt_secret: Secret,
    /// Redis that several nodes share; without one the node is alone.
    pub redis: Option<Redis>,
    /// Names in Redis have a hash tag, for a Redis Cluster: not those of the original then.
    pub hash_tag: bool,
    /// Time of a streamed request whose caller says none.
    pub session_ttl: Duration,
    /// A session nobody hears of ends after this time.
    pub lease: Duration,
    /// Envelopes that wait for one client at the most.
    pub mailbox_messages_max: usize,
    /// One read of a mailbox in Redis waits this long at the most.
    pub mailbox_block: Duration,
    /// WebSockets of the process.
    pub connections_max: usize,
    /// Live sessions of one subject.
    pub sessions_per_subject_max: usize,
    /// Requests of one session whose answers are outstanding.
    pub in_flight_max: usize,
    /// Bytes of a WebSocket message, and of an envelope over HTTP.
    pub envelope_bytes_max: usize,
    /// Bytes that wait for one client, or for the callers of one session, before something is done.
    pub slow_consumer_bytes: usize,
    /// How long a client may have more than that waiting.
    pub slow_consumer_time: Duration,
    /// How long a WebSocket may stay unbound.
    pub bind_timeout: Duration,
    /// Envelopes must name a capability, so that leaving it out does not skip the check.
    pub require_capability: bool,
    /// A token with a nonce binds once.
    pub single_use_tokens: bool,
    /// Every message of a WebSocket is sent back as it came and no session is bound: what suites
    /// for RFC 6455 speak to. No variable sets it.
    pub echoes: bool,
}

impl ConnectionGateway {
    /// Settings for tests: loopback, free ports, the secrets `secret` and `token`, the node
    /// `node-a`.
    pub fn testing() -> Self {
        let environment = Environment::from_pairs([
            ("JWT_SECRET", "secret"),
            ("CONNECTION_GATEWAY_NODE_ID", "node-a"),
        ]);
        let mut reader = Reader::new(&environment);
        let mut settings = reader.settings();
        let free_port = SocketAddr::from(([127, 0, 0, 1], 0));
        (settings.http, settings.websocket) = (free_port, free_port);
        settings
    }

    /// Whether the environment asks for the connection gateway beside the MCP gateway: it names one
    /// of its ports.
    pub fn is_wanted(environment: &Environment) -> bool {
        ["CONNECTION_GATEWAY_PORT", "CONNECTION_GATEWAY_WS_PORT"]
            .iter()
            .any(|name| environment.value(name).is_some())
    }

    /// Reads and checks all variables; every fault, not only the first.
    pub fn read(environment: &Environment) -> Result<(Self, Vec<Note>), Vec<Fault>> {
        let mut reader = Reader::new(environment);
        let settings = reader.settings();
        if reader.faults.is_empty() {
            Ok((settings, reader.notes))
        } else {
            Err(reader.faults)
        }
    }
}

/// Reads variables and gathers what is wrong with them.
struct Reader<'a> {
    environment: &'a Environment,
    faults: Vec<Fault>,
    notes: Vec<Note>,
}

impl<'a> Reader<'a> {
    fn new(environment: &'a Environment) -> Self {
        Self {
            environment,
            faults: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn settings(&mut self) -> ConnectionGateway {
        let is_production = self.is_production();
        let auth_token = self.auth_token(is_production);
        let jwt_secret = self.jwt_secret(is_production);
        let host = self.host();
        let faults_before = self.faults.len();
        let mut port = |name| {
            let port = self.whole(name, 1024, 65_535);
            SocketAddr::new(host, u16::try_from(port).unwrap_or(0))
        };
        let (http, websocket) = (
            port("CONNECTION_GATEWAY_PORT"),
            port("CONNECTION_GATEWAY_WS_PORT"),
        );
        if http == websocket && self.faults.len() == faults_before {
            let problem = "is the port of CONNECTION_GATEWAY_PORT too".to_owned();
            self.fault("CONNECTION_GATEWAY_WS_PORT", problem);
        }
        let redis = match self.said("REDIS_URL").map(redis_url::parse) {
            Some(Err(problem)) => {
                self.fault("REDIS_URL", problem.to_owned());
                None
            }
            Some(Ok(redis)) => Some(redis),
            None => None,
        };
        ConnectionGateway {
            http,
            websocket,
            path: self.text("CONNECTION_GATEWAY_WS_PATH"),
            node_id: self
                .said("CONNECTION_GATEWAY_NODE_ID")
                .or_else(|| self.said("SERVICE_INSTANCE_ID"))
                .map(str::to_owned),
            auth_token,
            jwt_secret,
            redis,
            hash_tag: self.switch("CONNECTION_GATEWAY_REDIS_HASH_TAG"),
            session_ttl: self.time("CONNECTION_GATEWAY_SESSION_TTL_MS"),
            lease: self.time("CONNECTION_GATEWAY_OWNER_LEASE_TTL_MS"),
            mailbox_messages_max: self.count("CONNECTION_GATEWAY_MAILBOX_MAXLEN"),
            mailbox_block: self.time("CONNECTION_GATEWAY_MAILBOX_BLOCK_MS"),
            connections_max: self.count("CONNECTION_GATEWAY_MAX_CONNECTIONS"),
            sessions_per_subject_max: self.count("CONNECTION_GATEWAY_MAX_SESSIONS_PER_SUBJECT"),
            in_flight_max: self.count("CONNECTION_GATEWAY_MAX_IN_FLIGHT_PER_SESSION"),
            envelope_bytes_max: self.count("CONNECTION_GATEWAY_MAX_ENVELOPE_BYTES"),
            slow_consumer_bytes: self.count("CONNECTION_GATEWAY_SLOW_CONSUMER_BUFFER_BYTES"),
            slow_consumer_time: self.time("CONNECTION_GATEWAY_SLOW_CONSUMER_MS"),
            bind_timeout: self.time("CONNECTION_GATEWAY_BIND_TIMEOUT_MS"),
            require_capability: self.switch("CONNECTION_GATEWAY_REQUIRE_CAPABILITY"),
            single_use_tokens: self.switch("CONNECTION_GATEWAY_SINGLE_USE_TOKENS"),
            echoes: false,
        }
    }

    fn fault(&mut self, name: &str, problem: String) {
        self.faults.push(Fault {
            origin: Origin::Environment(name.to_owned()),
            problem,
        });
    }

    fn said(&self, name: &str) -> Option<&'a str> {
        self.environment.value(name)
    }

    /// What was said, or the default of the table.
    fn text(&self, name: &str) -> String {
        let default = CONNECTION_GATEWAY_VARIABLES
            .iter()
            .find_map(|(known, default)| default.filter(|_| *known == name));
        self.said(name).or(default).unwrap_or_default().to_owned()
    }

    fn is_production(&mut self) -> bool {
        let text = self.text("NODE_ENV");
        if !["development", "production", "test"].contains(&text.as_str()) {
            let problem = format!("{} must be development, production or test", quoted(&text));
            self.fault("NODE_ENV", problem);
        }
        text == "production"
    }

    fn auth_token(&mut self, is_production: bool) -> Secret {
        let said = self.said("AUTH_TOKEN").map(str::trim).unwrap_or_default();
        if is_production {
            let is_weak = AUTH_TOKENS_WEAK.contains(&said.to_ascii_lowercase().as_str());
            if said.is_empty() {
                self.fault("AUTH_TOKEN", "must be said in production".to_owned());
            } else if is_weak || said.chars().count() < AUTH_TOKEN_CHARS_MIN {
                let problem = "too weak for production: 32 characters at the least, and no word \
                               anybody would try";
                self.fault("AUTH_TOKEN", problem.to_owned());
            }
        }
        Secret::new(if said.is_empty() {
            AUTH_TOKEN_DEFAULT
        } else {
            said
        })
    }

    fn jwt_secret(&mut self, is_production: bool) -> Secret {
        let said = self.said("JWT_SECRET");
        if is_production && said.is_none_or(|said| said == JWT_SECRET_DEFAULT) {
            let problem = "must be said in production, and not be the default everybody knows";
            self.fault("JWT_SECRET", problem.to_owned());
        }
        Secret::new(said.unwrap_or(JWT_SECRET_DEFAULT))
    }

    fn host(&mut self) -> IpAddr {
        let text = self.text("CONNECTION_GATEWAY_HOST");
        text.parse().unwrap_or_else(|_| {
            let problem = format!("{} is not an IP address", quoted(&text));
            self.fault("CONNECTION_GATEWAY_HOST", problem);
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        })
    }

    fn whole(&mut self, name: &str, min: u64, max: u64) -> u64 {
        let text = self.text(name);
        match number(&text) {
            Some(number) if (min..=max).contains(&number) => number,
            _ => {
                let allowed = if max > 65_535 {
                    "must be a whole number above 0".to_owned()
                } else {
                    format!("must be a whole number from {min} to {max}")
                };
                self.fault(name, format!("{} {allowed}", quoted(&text)));
                min
            }
        }
    }

    fn count(&mut self, name: &str) -> usize {
        usize::try_from(self.whole(name, 1, u64::MAX)).unwrap_or(usize::MAX)
    }

    fn time(&mut self, name: &str) -> Duration {
        Duration::from_millis(self.whole(name, 1, u64::MAX))
    }

    /// True for the exact text `true`, as the other variables of these programs are.
    fn switch(&self, name: &str) -> bool {
        self.text(name) == "true"
    }
}

/// A whole number as JavaScript's `Number` reads one: blanks around it, another base, an exponent.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    for (prefix, base) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        let digits = text
            .get(..2)
            .filter(|front| front.eq_ignore_ascii_case(prefix));
        if digits.is_some() {
            let number = u64::from_str_radix(&text[2..], base).ok()?;
            return (number as f64 <= INTEGER_MAX).then_some(number);
        }
    }
    // Words that Rust takes for numbers and JavaScript does not.
    if text
        .bytes()
        .any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E'))
    {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    // Whole and within the range that both sides hold exactly.
    (number.fract() == 0.0 && (0.0..=INTEGER_MAX).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<ConnectionGateway, Vec<String>> {
        ConnectionGateway::read(&Environment::from_pairs(pairs.iter().copied()))
            .map(|(settings, _)| settings)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nothing_said_is_what_the_contract_says() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.http, "0.0.0.0:3010".parse().unwrap());
        assert_eq!(settings.websocket, "0.0.0.0:3011".parse().unwrap());
        assert_eq!(settings.path, "/connection-gateway/v1");
        assert_eq!(settings.auth_token, Secret::new("token"));
        assert_eq!(settings.jwt_secret, Secret::new("fastgpt-plugin-secret"));
        assert_eq!(settings.session_ttl, Duration::from_secs(60));
        assert_eq!(settings.lease, Duration::from_secs(15));
        assert_eq!(settings.mailbox_block, Duration::from_secs(5));
        let counts = [
            settings.mailbox_messages_max,
            settings.connections_max,
            settings.sessions_per_subject_max,
            settings.in_flight_max,
            settings.envelope_bytes_max,
            settings.slow_consumer_bytes,
        ];
        assert_eq!(counts, [1000, 5000, 5, 50, 1 << 20, 8 << 20]);
        assert!(!settings.require_capability && !settings.single_use_tokens);
        // An empty text is no text.
        assert_eq!(read(&[("CONNECTION_GATEWAY_PORT", "")]).unwrap(), settings);
    }

    #[test]
    fn numbers_are_read_as_javascript_reads_them() {
        for (text, wanted) in [
            ("0x10", Some(16)),
            (" 1e3 ", Some(1000)),
            ("1024.0", Some(1024)),
            ("0b11", Some(3)),
            ("+7", Some(7)),
            ("9007199254740991", Some(9_007_199_254_740_991)),
            ("9007199254740993", None),
            ("1.5", None),
            ("-1", None),
            ("ten", None),
            ("inf", None),
            ("NaN", None),
            ("0x", None),
            ("1_000", None),
        ] {
            assert_eq!(number(text), wanted, "{text}");
        }
    }

    #[test]
    fn every_fault_is_told_at_once_and_names_its_variable() {
        let faults = read(&[
            ("NODE_ENV", "staging"),
            ("CONNECTION_GATEWAY_PORT", "80"),
            ("CONNECTION_GATEWAY_WS_PORT", "65536"),
            ("CONNECTION_GATEWAY_HOST", "localhost"),
            ("CONNECTION_GATEWAY_MAX_CONNECTIONS", "0"),
            ("CONNECTION_GATEWAY_MAILBOX_MAXLEN", "many"),
            ("CONNECTION_GATEWAY_OWNER_LEASE_TTL_MS", "1.5"),
            ("REDIS_URL", "localhost"),
        ])
        .unwrap_err();
        let named: Vec<&str> = faults
            .iter()
            .map(|fault| fault.strip_prefix("environment variable ").unwrap())
            .map(|fault| fault.split(':').next().unwrap())
            .collect();
        let wanted = [
            "NODE_ENV",
            "CONNECTION_GATEWAY_HOST",
            "CONNECTION_GATEWAY_PORT",
            "CONNECTION_GATEWAY_WS_PORT",
            "REDIS_URL",
            "CONNECTION_GATEWAY_OWNER_LEASE_TTL_MS",
            "CONNECTION_GATEWAY_MAILBOX_MAXLEN",
            "CONNECTION_GATEWAY_MAX_CONNECTIONS",
        ];
        assert_eq!(named, wanted);
        assert!(
            read(&[("CONNECTION_GATEWAY_PORT", "3011")]).is_err(),
            "one port for two"
        );
    }

    #[test]
    fn production_takes_no_secret_anybody_knows() {
        let long = "0123456789abcdef0123456789abcdef";
        let wrong = |auth: &str, jwt: &str| {
            let pairs = [
                ("NODE_ENV", "production"),
                ("AUTH_TOKEN", auth),
                ("JWT_SECRET", jwt),
            ];
            read(&pairs).map_or_else(|faults| faults.len(), |_| 0)
        };
        assert_eq!(wrong(long, "a key"), 0);
        assert_eq!(wrong("", ""), 2);
        assert_eq!(wrong("ChangeMe", "a key"), 1);
        assert_eq!(wrong(&format!("  {}  ", &long[..31]), "a key"), 1);
        assert_eq!(wrong(long, "fastgpt-plugin-secret"), 1);
    }

    #[test]
    fn a_node_has_the_first_name_it_is_given_and_switches_are_on_for_one_word_alone() {
        let named = |pairs: &[(&str, &str)]| read(pairs).unwrap().node_id;
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[("SERVICE_INSTANCE_ID", "b")]).as_deref(), Some("b"));
        let both = [
            ("SERVICE_INSTANCE_ID", "b"),
            ("CONNECTION_GATEWAY_NODE_ID", "a"),
        ];
        assert_eq!(named(&both).as_deref(), Some("a"));
        for (text, wanted) in [
            ("true", true),
            ("True", false),
            ("1", false),
            ("yes", false),
        ] {
            let name = "CONNECTION_GATEWAY_SINGLE_USE_TOKENS";
            assert_eq!(read(&[(name, text)]).unwrap().single_use_tokens, wanted);
        }
        let settings = read(&[
            ("CONNECTION_GATEWAY_WS_PATH", "/ws"),
            ("AUTH_TOKEN", "  hunter2 "),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.path, "/ws");
        assert_eq!(settings.auth_token, Secret::new("hunter2"));
    }

    #[test]
    fn secrets_are_not_printed() {
        let settings = read(&[
            ("AUTH_TOKEN", "hunter2"),
            ("REDIS_URL", "redis://:hunter2@r"),
        ]);
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
