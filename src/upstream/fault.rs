//! What can go wrong with a backend, as facts.

/// Why an exchange with a backend gave no reply. The texts are ours: nothing a backend says, no
/// address and no name is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// The connection mode forbids plain text to backends.
    #[error("plain-text backends are not allowed by the upstream connection mode")]
    PlainTextForbidden,
    /// Its name has no address.
    #[error("the backend's host name cannot be resolved")]
    Unresolved,
    /// An address of a declared tool's server is one that no tool may lead to.
    #[error("the upstream's address is not a public one")]
    AddressForbidden,
    /// No address of it takes connections.
    #[error("the backend cannot be connected to")]
    ConnectFailed,
    /// No connection in time.
    #[error("connecting to the backend took too long")]
    ConnectTimeout,
    /// TLS failed.
    #[error("no TLS session with the backend")]
    TlsFailed,
    /// The target failed often just now.
    #[error("the backend failed repeatedly and is not asked for a while")]
    CircuitOpen,
    /// As many exchanges with the target are under way as there may be.
    #[error("the backend has too many calls under way")]
    Busy,
    /// The connection ended before a reply.
    #[error("the backend closed the connection before it answered")]
    ClosedBeforeReply,
    /// The connection ended inside the reply.
    #[error("the backend closed the connection inside its reply")]
    ClosedInReply,
    /// No first byte in time.
    #[error("the backend did not answer in time")]
    FirstByteTimeout,
    /// The reply did not end in time.
    #[error("the call took too long")]
    CallTimeout,
    /// Not HTTP, or framing in doubt.
    #[error("the backend's reply is not well-formed HTTP")]
    Malformed,
    /// The reply is over a limit.
    #[error("the backend's reply is over the configured limit")]
    TooLarge,
    /// A status that carries no answer.
    #[error("the backend answered with HTTP status {0}")]
    Status(u16),
    /// The backend does not know its session any more.
    #[error("the backend lost its session")]
    SessionLost,
    /// Neither JSON nor an event stream.
    #[error("the backend's reply is neither JSON nor an event stream")]
    ContentType,
    /// A content coding we do not decode, or data that does not decode.
    #[error("the backend's content coding is not supported or its data is damaged")]
    Encoding,
    /// Not a JSON-RPC reply to our request.
    #[error("the backend's reply is not a JSON-RPC response to the request")]
    NotAReply,
    /// The event stream ended without the response.
    #[error("the backend's event stream ended without a response")]
    NoResponse,
    /// A revision we do not speak.
    #[error("the backend chose a protocol revision that is not supported")]
    Revision,
    /// It has sessions, and the client has none.
    #[error("the backend serves no stateless calls")]
    NotStateless,
    /// It said that our headers do not say what our body says.
    #[error("the backend did not accept the request's headers")]
    HeaderMismatch,
    /// A result without what results of its revision say.
    #[error("the backend's result is not one of its protocol revision")]
    ResultType,
    /// The backend refused `initialize`.
    #[error("the backend refused to initialize")]
    InitializeRefused,
    /// The backend refused the log level.
    #[error("the backend refused the log level")]
    LevelRefused,
    /// The backend gets the caller's token, which is not meant for it.
    #[error("the caller's token is not meant for the backend")]
    NotMeant,
    /// The caller has cancelled the request.
    #[error("the request was cancelled")]
    Cancelled,
    /// The session ended meanwhile.
    #[error("the session has ended")]
    SessionEnded,
    /// The backend's configuration changed meanwhile.
    #[error("the configuration of the backend changed during the request")]
    Reconfigured,
}

impl CallFault {
    /// The JSON-RPC code of a request that ends with it.
    pub const fn code(self) -> i32 {
        match self {
            // dual-profile.md section 2.5.
            Self::NotMeant => -32000,
            _ => -32603,
        }
    }

    /// Short name for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::PlainTextForbidden => "plain_text_forbidden",
            Self::Unresolved => "unresolved",
            Self::AddressForbidden => "address_forbidden",
            Self::ConnectFailed => "connect_failed",
            Self::ConnectTimeout => "connect_timeout",
            Self::TlsFailed => "tls_failed",
            Self::CircuitOpen => "circuit_open",
            Self::Busy => "backend_busy",
            Self::ClosedBeforeReply => "closed_before_reply",
            Self::ClosedInReply => "closed_in_reply",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::CallTimeout => "call_timeout",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Status(_) => "status",
            Self::SessionLost => "session_lost",
            Self::ContentType => "content_type",
            Self::Encoding => "encoding",
            Self::NotAReply => "not_a_reply",
            Self::NoResponse => "no_response",
            Self::Revision => "revision",
            Self::NotStateless => "not_stateless",
            Self::HeaderMismatch => "header_mismatch",
            Self::ResultType => "result_type",
            Self::InitializeRefused => "initialize_refused",
            Self::LevelRefused => "level_refused",
            Self::NotMeant => "not_meant",
            Self::Cancelled => "cancelled",
            Self::SessionEnded => "session_ended",
            Self::Reconfigured => "reconfigured",
        }
    }
}
