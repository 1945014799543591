//! One client: a connection, and the legacy MCP session it speaks in.
//!
//! A `Connection` carries one exchange at a time; a `Session` knows its id and what its next
//! reply must be. They are apart, so that a session can go over any connection.

mod check;
mod response;
mod target;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use shards::{Deadlines, Stream};

pub(crate) use check::Expected;
use response::{Decoder, Response};
pub(crate) use target::Target;
pub use target::TargetFault;

/// Revision the client asks for.
const REVISION: &str = "2025-11-25";

/// What went wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// No connection.
    #[error("cannot connect")]
    Connect,
    /// The connection broke, or ended before the reply did.
    #[error("the connection ended")]
    Ended,
    /// The time for one exchange passed.
    #[error("no reply in time")]
    Timeout,
    /// The bytes are not an HTTP reply we can delimit, or not an event stream with our reply.
    #[error("the reply is not understood")]
    Wire,
    /// A status that is not success.
    #[error("HTTP status {0}")]
    Status(u16),
    /// `initialize` gave no session id.
    #[error("no session id")]
    NoSession,
    /// The reply carries another id.
    #[error("the reply is to another request")]
    WrongId,
    /// A JSON-RPC error.
    #[error("a JSON-RPC error")]
    RpcError,
    /// `isError` is true.
    #[error("the tool failed")]
    ToolError,
    /// The reply is not of the size expected.
    #[error("the reply has the wrong size")]
    WrongSize,
    /// The number is not the next one of its session.
    #[error("the session's number does not follow")]
    WrongSequence,
}

impl CallFault {
    /// Name for reports; statuses share one.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Ended => "ended",
            Self::Timeout => "timeout",
            Self::Wire => "wire",
            Self::Status(_) => "status",
            Self::NoSession => "no_session",
            Self::WrongId => "wrong_id",
            Self::RpcError => "rpc_error",
            Self::ToolError => "tool_error",
            Self::WrongSize => "wrong_size",
            Self::WrongSequence => "wrong_sequence",
        }
    }

    /// Whether the connection may hold bytes of an unfinished exchange.
    pub(crate) fn spoils_connection(self) -> bool {
        matches!(
            self,
            Self::Connect | Self::Ended | Self::Timeout | Self::Wire
        )
    }
}

/// What all sessions of a run send.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) target: Target,
    /// Tool name as a JSON string.
    pub(crate) tool: String,
    /// Arguments as JSON.
    pub(crate) arguments: String,
    pub(crate) token: Option<String>,
    pub(crate) expected: Expected,
    /// Time for connecting, and again for each exchange.
    pub(crate) limit: Duration,
}

/// An open connection and its buffers.
pub(crate) struct Connection {
    stream: Stream,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    decoder: Decoder,
    is_kept: bool,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(
        address: SocketAddr,
        limit: Duration,
        deadlines: &Deadlines,
    ) -> Result<Self, CallFault> {
        let stream = Stream::connect(address, limit, deadlines)
            .await
            .map_err(|_| CallFault::Connect)?;
        Ok(Self {
            stream,
            inbound: Vec::with_capacity(4096),
            outbound: Vec::with_capacity(2048),
            decoder: Decoder::default(),
            is_kept: true,
        })
    }

    /// Whether the next exchange can use this connection.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Writes what `fill` composes and reads one reply, which stays in `inbound`.
    async fn exchange(
        &mut self,
        limit: Duration,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Response, CallFault> {
        self.inbound.clear();
        self.outbound.clear();
        fill(&mut self.outbound);
        // What is not finished in time is shut down, so no operation is ever dropped.
        self.stream.deadline().arm(limit);
        let result;
        (result, self.outbound) = self
            .stream
            .write_all(std::mem::take(&mut self.outbound))
            .await;
        if result.is_err() {
            return Err(self.end());
        }
        self.decoder = Decoder::default();
        loop {
            let result;
            (result, self.inbound) = self.stream.read(std::mem::take(&mut self.inbound)).await;
            if !matches!(result, Ok(1..)) {
                return Err(self.end());
            }
            match self.decoder.decode(&mut self.inbound) {
                Ok(None) => {}
                Ok(Some(response)) => {
                    self.stream.deadline().disarm();
                    self.is_kept &= response.is_kept;
                    return Ok(response);
                }
                Err(_) => {
                    self.is_kept = false;
                    return Err(CallFault::Wire);
                }
            }
        }
    }

    fn end(&mut self) -> CallFault {
        self.is_kept = false;
        if self.stream.deadline().has_passed() {
            CallFault::Timeout
        } else {
            CallFault::Ended
        }
    }
}

/// What one call did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    pub(crate) at: Instant,
    pub(crate) bytes: usize,
}

/// A legacy session.
pub(crate) struct Session {
    /// The head of every request up to and including `content-length: `.
    head: Vec<u8>,
    next_id: u64,
    /// The last number of a counter.
    counted: u64,
}

impl Session {
    /// `initialize` and `notifications/initialized` over `connection`.
    pub(crate) async fn open(
        script: &Script,
        connection: &mut Connection,
    ) -> Result<Self, CallFault> {
        let body = format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"#,
                r#""protocolVersion":"{}","capabilities":{{}},"#,
                r#""clientInfo":{{"name":"loadgen","version":"{}"}}}}}}"#
            ),
            REVISION,
            env!("CARGO_PKG_VERSION")
        );
        let first = head_of(script, "POST", None);
        let response = connection
            .exchange(script.limit, |out| {
                put_request(out, &first, body.as_bytes())
            })
            .await?;
        let (id, revision) = check::opened(&response, &connection.inbound)?;
        let head = head_of(script, "POST", Some((&id, &revision)));
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = connection
            .exchange(script.limit, |out| put_request(out, &head, note.as_bytes()))
            .await?;
        if response.status != 202 {
            return Err(CallFault::Status(response.status));
        }
        Ok(Self {
            head,
            next_id: 1,
            counted: 0,
        })
    }

    /// One `tools/call`, its reply checked.
    pub(crate) async fn call(
        &mut self,
        script: &Script,
        connection: &mut Connection,
    ) -> Result<Called, CallFault> {
        let id = self.next_id;
        self.next_id += 1;
        let head = &self.head;
        let response = connection
            .exchange(script.limit, |out| {
                let mut digits = Digits::default();
                let id = digits.of(id);
                let fixed = CALL[0].len() + CALL[1].len() + CALL[2].len() + CALL[3].len();
                let length = fixed + id.len() + script.tool.len() + script.arguments.len();
                put_head(out, head, length);
                for part in [
                    CALL[0].as_bytes(),
                    id,
                    CALL[1].as_bytes(),
                    script.tool.as_bytes(),
                    CALL[2].as_bytes(),
                    script.arguments.as_bytes(),
                    CALL[3].as_bytes(),
                ] {
                    out.extend_from_slice(part);
                }
            })
            .await?;
        let at = Instant::now();
        let next = script
            .expected
            .check(&response, &connection.inbound, id, self.counted)?;
        self.counted = next;
        Ok(Called {
            at,
            bytes: response.used,
        })
    }

    /// DELETE; a server that keeps its sessions is left alone.
    pub(crate) async fn close(self, script: &Script, connection: &mut Connection) {
        let mut head = self.head;
        let rest = head.split_off("POST".len());
        let head = [b"DELETE".to_vec(), rest].concat();
        // The run is over: the answer changes nothing.
        let _ = connection
            .exchange(script.limit, |out| put_request(out, &head, b""))
            .await;
    }
}

/// `tools/call` between the id, the tool's name, its arguments and the end.
const CALL: [&str; 4] = [
    r#"{"jsonrpc":"2.0","id":"#,
    r#","method":"tools/call","params":{"name":"#,
    r#","arguments":"#,
    "}}",
];

fn head_of(script: &Script, method: &str, session: Option<(&str, &str)>) -> Vec<u8> {
    let mut head = format!(
        "{method} {} HTTP/1.1\r\nhost: {}\r\nuser-agent: loadgen\r\n\
         accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n",
        script.target.path, script.target.authority
    );
    if let Some(token) = &script.token {
        head.push_str(&format!("authorization: Bearer {token}\r\n"));
    }
    if let Some((id, revision)) = session {
        head.push_str(&format!(
            "mcp-session-id: {id}\r\nmcp-protocol-version: {revision}\r\n"
        ));
    }
    head.push_str("content-length: ");
    head.into_bytes()
}

fn put_head(out: &mut Vec<u8>, head: &[u8], body_bytes: usize) {
    out.extend_from_slice(head);
    let mut digits = Digits::default();
    out.extend_from_slice(digits.of(body_bytes as u64));
    out.extend_from_slice(b"\r\n\r\n");
}

fn put_request(out: &mut Vec<u8>, head: &[u8], body: &[u8]) {
    put_head(out, head, body.len());
    out.extend_from_slice(body);
}

/// A number's decimal digits, without the formatting machinery.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn of(&mut self, mut number: u64) -> &[u8] {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.0[at..];
            }
        }
    }
}
