//! One client: a connection, and the session it speaks in or, without one, as whom.
//!
//! A `Connection` carries one exchange at a time; a `Session` knows its id and what its next
//! reply must be. They are apart, so that a session can go over any connection.

mod check;
mod connection;
mod request;
mod response;
mod session;
mod stream;
mod target;

use std::time::{Duration, Instant};

use shards::slots::SlotTable;

use crate::{
    era::Era,
    operation::{Mix, Operation},
};
pub(crate) use connection::Connection;
use request::Form;
pub(crate) use session::Session;
pub(crate) use stream::Events;
pub(crate) use target::Target;
pub use target::TargetFault;

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
    /// A reply to a client without sessions gives a session id.
    #[error("a session id that nobody asked for")]
    SessionGiven,
    /// The reply carries another id.
    #[error("the reply is to another request")]
    WrongId,
    /// A JSON-RPC error.
    #[error("a JSON-RPC error")]
    RpcError,
    /// `isError` is true.
    #[error("the tool failed")]
    ToolError,
    /// A stateless result that is not complete, or does not say what it is.
    #[error("the result does not say that it is complete")]
    WrongResultType,
    /// A stateless result that does not say how long it may be kept, and by whom.
    #[error("the result does not say how long it may be kept")]
    WrongLifetime,
    /// The reply is not of the size expected.
    #[error("the reply has the wrong size")]
    WrongSize,
    /// The reply is not the text that was sent.
    #[error("the reply has the wrong content")]
    WrongContent,
    /// A client of a connection gateway was not bound.
    #[error("a client is not bound: {0}")]
    Bind(&'static str),
    /// The answer of a connection gateway ended with a line that says so.
    #[error("an error line ended the answer")]
    ErrorLine,
    /// The answer of a connection gateway lacks a part, or its parts are in another order.
    #[error("the answer is not whole")]
    Incomplete,
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
            Self::SessionGiven => "session_given",
            Self::WrongId => "wrong_id",
            Self::RpcError => "rpc_error",
            Self::ToolError => "tool_error",
            Self::WrongResultType => "wrong_result_type",
            Self::WrongLifetime => "wrong_lifetime",
            Self::WrongSize => "wrong_size",
            Self::WrongContent => "wrong_content",
            Self::WrongSequence => "wrong_sequence",
            Self::Bind(_) => "bind",
            Self::ErrorLine => "error_line",
            Self::Incomplete => "incomplete",
        }
    }

    /// Whether the reply came and was not what it had to be: no share of these can be allowed.
    pub fn is_wrong(self) -> bool {
        matches!(
            self,
            Self::Wire
                | Self::SessionGiven
                | Self::WrongId
                | Self::WrongResultType
                | Self::WrongLifetime
                | Self::WrongSize
                | Self::WrongContent
                | Self::WrongSequence
                | Self::Incomplete
        )
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
    pub(crate) era: Era,
    pub(crate) forms: Vec<Form>,
    pub(crate) mix: Mix,
    /// Bearer tokens, dealt to the sessions in turn; none: no header.
    pub(crate) tokens: Vec<String>,
    /// Further header lines.
    pub(crate) headers: Vec<String>,
    /// Who owns a session, when the number of the target's shards is known.
    pub(crate) slots: Option<SlotTable>,
    /// Time for connecting, and again for each exchange.
    pub(crate) limit: Duration,
}

impl Script {
    pub(crate) fn new(target: Target, era: Era, operations: &[Operation], limit: Duration) -> Self {
        Self {
            target,
            era,
            forms: operations
                .iter()
                .map(|operation| Form::new(operation, era))
                .collect(),
            mix: Mix::new(operations),
            tokens: Vec::new(),
            headers: Vec::new(),
            slots: None,
            limit,
        }
    }
}

/// What one call did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    /// When its last byte came.
    pub(crate) at: Instant,
    /// When its first bytes came, if the reply is an event stream.
    pub(crate) first_byte_at: Option<Instant>,
    pub(crate) bytes: usize,
}
