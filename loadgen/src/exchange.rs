//! Load for a connection gateway (connection-gateway.md 1 to 3 and 7): clients that hold a
//! WebSocket and answer, callers that request over the internal API and read the answer line by
//! line.
//!
//! Both sides are of one run, so whether an answer is to its request, whole and in order is known.
//! Here is what is said on either side, as bytes; `run` has the sockets.

mod answer;
mod caller;
mod frame;
mod greeting;
mod token;
mod words;

use crate::{
    client::{Target, TargetFault},
    operation::Sizes,
};
pub(crate) use answer::{Answerer, Heard};
pub(crate) use caller::{check, common_lines, put_request};
pub(crate) use greeting::{Bound, Greeting};

/// What an exchange is called in reports.
pub const OPERATION: &str = "exchange";
/// Clients, when nobody says how many; no more than callers.
pub const CLIENTS: u32 = 16;
/// Parts of an answer, when nobody says how many.
pub const CHUNKS: u32 = 3;
/// Parts of an answer, at the most.
pub const CHUNKS_MAX: u32 = 100_000;
/// Bytes of a part's text, when nobody says how many.
pub const CHUNK_BYTES: usize = 64;

/// The secret that signs connect tokens; shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// What is exchanged, with whom.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeOptions {
    /// Where clients bind, `ws://HOST[:PORT]/PATH`; callers go to the URL of the run.
    pub clients_at: String,
    /// Signs the clients' connect tokens: the gateway's `JWT_SECRET`.
    pub secret: Secret,
    /// Parts of an answer between its `accepted` and its `end`.
    pub chunks: u32,
    /// Bytes of each part's text.
    pub chunk_bytes: usize,
    /// Bytes of a request's text.
    pub request: Sizes,
    /// Share of the requests before whose answer the client sends a heartbeat, 0 to 1.
    pub heartbeats: f64,
}

impl Default for ExchangeOptions {
    fn default() -> Self {
        Self {
            clients_at: String::new(),
            secret: Secret(Vec::new()),
            chunks: CHUNKS,
            chunk_bytes: CHUNK_BYTES,
            request: Sizes { min: 5, max: 5 },
            heartbeats: 0.0,
        }
    }
}

/// What all exchanges of a run share.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) options: ExchangeOptions,
    /// Where clients bind.
    pub(crate) target: Target,
    /// Names this run, so that its clients are nobody else's.
    pub(crate) run: String,
}

impl Plan {
    /// Resolves where clients bind; blocks.
    pub(crate) fn new(options: ExchangeOptions) -> Result<Self, TargetFault> {
        let target = Target::parse_as("ws", &options.clients_at)?;
        let run = format!("{:x}-{:x}", shards::clock::unix_ms(), std::process::id());
        Ok(Self {
            options,
            target,
            run,
        })
    }
}
