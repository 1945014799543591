//! A scenario: what to run, as flags or as a TOML file, in the words people use.
//!
//! Every flag of `loadgen run` is a key of the file, by the same name and with the same values;
//! `[[operation]]` tables say more than `--mix` can. A flag wins over the file. Tokens are not for
//! files that are shared: the file names where they are.

mod exchanges;
mod resolve;

use std::{fmt, fs, path::PathBuf, str::FromStr};

use clap::Args;
use serde::{Deserialize, Deserializer, de};

use crate::{exchange::Secret, operation::Operation};
pub use resolve::{Load, Resolved};

/// A scenario file with every key explained.
pub const EXAMPLE: &str = include_str!("scenario/example.toml");

/// A value as text: `duration = 30` and `duration = "30s"` are both taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(pub String);

impl FromStr for Text {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number")
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Text, E> {
                Ok(Text(value.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// An `[[operation]]` of a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OperationEntry {
    /// Method, as `tools/call`.
    pub method: String,
    /// Name in reports; the method when not given.
    pub name: Option<String>,
    /// Of `tools/call`.
    pub tool: Option<String>,
    /// Of `prompts/get`.
    pub prompt: Option<String>,
    /// Of `resources/read`.
    pub uri: Option<String>,
    /// Of a tool or a prompt.
    pub arguments: Option<toml::Table>,
    /// Bytes of the argument `text`.
    pub payload: Option<Text>,
    /// What the reply must be.
    pub expect: Option<Text>,
    /// How often, against the others.
    pub weight: Option<f64>,
}

macro_rules! plan {
    ($($(#[$meta:meta])* $field:ident: $type:ty,)*) => {
        /// What to run, as it was written. Nothing is checked yet, and what is missing has its
        /// default later.
        #[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Plan {
            $($(#[$meta])* pub $field: Option<$type>,)*
            /// What callers do.
            #[arg(skip)]
            pub operation: Vec<OperationEntry>,
        }

        impl Plan {
            /// This plan, and `base` where it says nothing.
            pub fn over(mut self, base: Self) -> Self {
                $(self.$field = self.$field.or(base.$field);)*
                if self.operation.is_empty() && self.mix.is_none() && self.tool.is_none() {
                    self.operation = base.operation;
                }
                self
            }
        }
    };
}

plan! {
    /// The endpoint, http://HOST:PORT/PATH.
    url: String,

    /// Callers: how many calls may be under way at once. Default 1; with a rate 64, with
    /// --find-max 256.
    #[arg(long, short, help_heading = "Load")]
    callers: u32,
    /// Calls per second, whatever the server does (open loop); none: each caller calls again when
    /// its reply has come (closed loop).
    #[arg(long, short, help_heading = "Load")]
    rate: f64,
    /// How the calls of a rate follow one another: constant or poisson.
    #[arg(long, help_heading = "Load")]
    arrivals: Text,
    /// A rate that rises or falls in a straight line over the duration, FROM:TO.
    #[arg(long, help_heading = "Load", value_name = "FROM:TO")]
    ramp: Text,
    /// A rate in steps of equal length, FROM:TO:STEP; the report has a row for each.
    #[arg(long, help_heading = "Load", value_name = "FROM:TO:STEP")]
    step: Text,
    /// A rate that jumps in the middle third of the duration, BASE:PEAK.
    #[arg(long, help_heading = "Load", value_name = "BASE:PEAK")]
    spike: Text,
    /// Run for an hour (or the duration), and fail when the last tenth is slower than the first.
    #[arg(long, help_heading = "Load", num_args = 0, default_missing_value = "true")]
    soak: bool,
    /// Search for the highest rate that meets the objective of --slo.
    #[arg(long, help_heading = "Load", num_args = 0, default_missing_value = "true")]
    find_max: bool,
    /// Length of a probe of the search. Default 5s.
    #[arg(long, help_heading = "Load")]
    probe: Text,
    /// Highest rate the search tries.
    #[arg(long, help_heading = "Load")]
    rate_max: f64,
    /// How long to measure, as 30s. Default 10s.
    #[arg(long, short, help_heading = "Load")]
    duration: Text,
    /// Calls to make, instead of a duration.
    #[arg(long, help_heading = "Load")]
    calls: u64,
    /// Time before measuring starts. Default 0s.
    #[arg(long, help_heading = "Load")]
    warm_up: Text,
    /// Thinking between the calls of a caller (closed loop): 1s, uniform:1s..5s, exponential:2s,
    /// lognormal:2s,0.8.
    #[arg(long, help_heading = "Load")]
    think: Text,
    /// steady, or agent: looks at the tools, then bursts of 2 to 5 calls with thinking between
    /// them (closed loop).
    #[arg(long, help_heading = "Load")]
    profile: Text,

    /// Tool to call. Default echo; increment with --check-affinity.
    #[arg(long, help_heading = "What callers do")]
    tool: String,
    /// Its arguments, a JSON object. Default {"text":"hello"}.
    #[arg(long, help_heading = "What callers do")]
    arguments: String,
    /// Methods and their weights: tools/call=90,tools/list=5,initialize=5.
    #[arg(long, help_heading = "What callers do")]
    mix: Text,
    /// Bytes of the argument `text` of calls: 200, 16k, or 64..64k (evenly over the magnitudes).
    #[arg(long, help_heading = "What callers do")]
    payload: Text,
    /// How callers speak: legacy (initialize and sessions), or stateless (revision 2026-07-28:
    /// every request for itself). Default legacy.
    #[arg(long, help_heading = "What callers do")]
    era: Text,
    /// What replies of tools must be: success, echo (the text that was sent), counter (the number
    /// after the session's last), or a size in bytes, give or take 32. Default success.
    #[arg(long, help_heading = "What callers do")]
    expect: Text,

    /// sticky: a connection for each session; spread: never the session's own, so that a gateway
    /// has to forward; pooled: the next free one; fresh: a new one for each call. Default sticky;
    /// spread with --check-affinity.
    #[arg(long, help_heading = "Sessions and connections")]
    connections: Text,
    /// Sessions, when they share connections. Default twice the callers.
    #[arg(long, help_heading = "Sessions and connections")]
    sessions: u32,
    /// Operations in the life of a session; then it is ended (DELETE) and another one opened.
    #[arg(long, help_heading = "Sessions and connections")]
    session_life: u32,
    /// Further sessions that hold a GET stream open.
    #[arg(long, help_heading = "Sessions and connections")]
    streams: u32,
    /// Shards of the target: tells which of them owns a session, and makes `spread` exact.
    #[arg(long, help_heading = "Sessions and connections")]
    target_shards: u16,
    /// File with bearer tokens, one a line; sessions take turns.
    #[arg(long, help_heading = "Sessions and connections")]
    token_file: PathBuf,
    /// File with a secret (HS256) or an RSA private key (RS256) to mint a token for each user.
    #[arg(long, help_heading = "Sessions and connections")]
    jwt_key_file: PathBuf,
    /// Virtual users with a token of their own. Default 1.
    #[arg(long, help_heading = "Sessions and connections")]
    users: u32,
    /// Subject of minted tokens; the letter n in braces stands for the user's number. Default user-
    /// and the number.
    #[arg(long, help_heading = "Sessions and connections")]
    jwt_subject: String,
    /// Issuer of minted tokens. Default mcpgateway.
    #[arg(long, help_heading = "Sessions and connections")]
    jwt_issuer: String,
    /// Audience of minted tokens. Default mcpgateway-api.
    #[arg(long, help_heading = "Sessions and connections")]
    jwt_audience: String,

    /// URL is the internal API of a connection gateway, http://HOST:PORT, of this node or another:
    /// here its clients bind, ws://HOST:PORT/PATH, and answer what callers request. --sessions are
    /// the clients (default 16, no more than callers), --payload the bytes of a request's text.
    #[arg(long, help_heading = "Connection gateway", value_name = "WS_URL")]
    clients_at: String,
    /// Parts of an answer, between its first line and its end. Default 3.
    #[arg(long, help_heading = "Connection gateway")]
    chunks: u32,
    /// Bytes of the text of each part, as 64 or 16k. Default 64.
    #[arg(long, help_heading = "Connection gateway")]
    chunk_bytes: Text,
    /// Share of the answers before which a client sends a heartbeat, as 10%. Every five seconds it
    /// does so anyway. Default 0%.
    #[arg(long, help_heading = "Connection gateway", value_name = "SHARE")]
    heartbeats: Text,
    /// File with the secret that signs connect tokens, the gateway's JWT_SECRET.
    #[arg(long, help_heading = "Connection gateway", value_name = "FILE")]
    connect_secret_file: PathBuf,

    /// What has to hold: p99=5ms,errors=0.1%; of one operation as tools/call.p99=5ms. Default
    /// errors=0%.
    #[arg(long, help_heading = "Verdict")]
    slo: Text,
    /// Call a counter tool and fail on every number that does not follow in its session.
    #[arg(long, help_heading = "Verdict", num_args = 0, default_missing_value = "true")]
    check_affinity: bool,

    /// Shards of the generator. Default 1.
    #[arg(long, help_heading = "Generator")]
    shards: u16,
    /// CPUs to pin its shards to, as 0-3,6; none: not pinned.
    #[arg(long, help_heading = "Generator")]
    cpu_list: Text,
    /// auto, io-uring or epoll.
    #[arg(long, help_heading = "Generator")]
    io_driver: Text,
    /// Time that a connect or an exchange may take. Default 10s.
    #[arg(long, help_heading = "Generator")]
    timeout: Text,
    /// Of everything drawn. Default 1.
    #[arg(long, help_heading = "Generator")]
    seed: u64,
    /// Start at this second since 1970, so that several generators start together.
    #[arg(long, help_heading = "Generator")]
    start_at: u64,
}

/// What is no part of a scenario, because it is secret: from the command line or the environment.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// Bearer token.
    pub token: Option<String>,
    /// Signs connect tokens.
    pub connect: Option<Secret>,
}

/// Why a scenario cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioFault(pub(crate) String);

impl Plan {
    /// Reads a scenario file.
    pub fn read(path: &std::path::Path) -> Result<Self, ScenarioFault> {
        let text = fs::read_to_string(path)
            .map_err(|fault| ScenarioFault(format!("{}: {fault}", path.display())))?;
        Self::parse(&text).map_err(|fault| ScenarioFault(format!("{}: {fault}", path.display())))
    }

    /// Reads the text of a scenario file. Faults name line and column.
    pub fn parse(text: &str) -> Result<Self, ScenarioFault> {
        toml::from_str(text).map_err(|fault| {
            // The library's own text shows the line, but over several lines.
            let place = fault.span().map(|span| place_of(text, span.start));
            let message = fault.message();
            ScenarioFault(place.map_or_else(
                || message.to_owned(),
                |(line, column)| format!("line {line}, column {column}: {message}"),
            ))
        })
    }
}

fn place_of(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (line, column)
}

/// The operations of a file, checked.
fn operations(entries: &[OperationEntry]) -> Result<Vec<Operation>, ScenarioFault> {
    let entries = entries.iter().zip(1..);
    entries
        .map(|(entry, number)| {
            resolve::operation(entry)
                .map_err(|fault| ScenarioFault(format!("[[operation]] {number}: {fault}")))
        })
        .collect()
}
