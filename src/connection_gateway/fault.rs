//! Everything the connection gateway says no to, with its code, its words, and what follows: an
//! HTTP status for callers, a close code for clients.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::websocket::CloseCode;

/// One reason to say no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Form, signature or header of the token; or another consumer type than the session's.
    InvalidToken,
    /// The token's time is over.
    TokenExpired,
    /// The token or the session does not have the capability.
    CapabilityDenied,
    /// The source is held by a live session, or the connection has one.
    AlreadyBound,
    /// A limit: which one, and what it is.
    ResourceLimit(&'static str, u64),
    /// The token's claims are wrong, or the registry could not be asked: why.
    BindFailed(String),
    /// The connection did not bind in time.
    BindTimeout,
    /// The connection has no session.
    Unbound,
    /// No such session.
    SessionNotFound,
    /// The session is not what it was: its status.
    NotConnected(&'static str),
    /// Nothing was heard of the client for the time of the lease.
    OwnerExpired,
    /// The envelope names another session.
    SessionMismatch,
    /// The envelope is of another generation: that of the session, and its own.
    StaleGeneration(u64, u64),
    /// The envelope is over the limit, which is the first number.
    EnvelopeTooLarge(usize, usize),
    /// An envelope that a client may not send: why.
    InvalidEnvelope(&'static str),
    /// A text that is no message, or a frame that breaks a rule: why.
    InvalidMessage(String),
    /// A request with this id is outstanding.
    DuplicateRequest,
    /// The client reads too slowly.
    SlowConsumer,
    /// The gateway ends.
    Draining,
    /// There is more to do than can be done.
    Busy,
    /// Redis cannot be asked, and the session is not this node's.
    RegistryAway,
    /// Redis was told and has not answered: it may be done or not.
    OutcomeUnknown,
}

impl Fault {
    /// Its code on the wire.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidToken => "connection_gateway.invalid_token",
            Self::TokenExpired => "connection_gateway.token_expired",
            Self::CapabilityDenied => "connection_gateway.capability_denied",
            Self::AlreadyBound => "connection_gateway.session_already_bound",
            Self::ResourceLimit(..) => "connection_gateway.resource_limit_exceeded",
            Self::BindFailed(_) => "connection_gateway.bind_failed",
            Self::BindTimeout => "connection_gateway.bind_timeout",
            Self::Unbound => "connection_gateway.unbound",
            Self::SessionNotFound => "connection_gateway.session_not_found",
            Self::NotConnected(_) | Self::OwnerExpired => {
                "connection_gateway.session_owner_expired"
            }
            Self::SessionMismatch => "connection_gateway.session_mismatch",
            Self::StaleGeneration(..) => "connection_gateway.stale_generation",
            Self::EnvelopeTooLarge(..) => "connection_gateway.envelope_too_large",
            Self::InvalidEnvelope(_) => "connection_gateway.invalid_envelope",
            Self::InvalidMessage(_) => "connection_gateway.invalid_message",
            Self::DuplicateRequest => "connection_gateway.duplicate_request",
            Self::SlowConsumer => "connection_gateway.slow_consumer",
            Self::Draining => "connection_gateway.draining",
            Self::Busy => "INTERNAL_ERROR",
            Self::RegistryAway => "connection_gateway.registry_unavailable",
            Self::OutcomeUnknown => "connection_gateway.outcome_unknown",
        }
    }

    /// Its words.
    pub fn message(&self) -> Cow<'static, str> {
        let text = match self {
            Self::InvalidToken => "Invalid connection token",
            Self::TokenExpired => "Connection token expired",
            Self::CapabilityDenied => "Connection token capability denied",
            Self::AlreadyBound => "Gateway session already bound",
            Self::ResourceLimit(..) => "Gateway resource limit exceeded",
            Self::BindFailed(reason) => return Cow::Owned(reason.clone()),
            Self::BindTimeout => "Gateway WebSocket connection did not bind in time",
            Self::Unbound => "Gateway WebSocket connection is not bound",
            Self::SessionNotFound => "Gateway session not found",
            Self::NotConnected(status) => {
                return Cow::Owned(format!("Gateway session is {status}"));
            }
            Self::OwnerExpired => "Gateway session owner expired",
            Self::SessionMismatch => "Gateway envelope session does not match bound connection",
            Self::StaleGeneration(..) => "Stale gateway generation",
            Self::EnvelopeTooLarge(..) => "Gateway envelope too large",
            Self::InvalidEnvelope(reason) => reason,
            Self::InvalidMessage(reason) => return Cow::Owned(reason.clone()),
            Self::DuplicateRequest => "Gateway request id is already in flight",
            Self::SlowConsumer => "Gateway client reads too slowly",
            Self::Draining => "Gateway is shutting down",
            Self::Busy => "Gateway is busy",
            Self::RegistryAway => "Gateway registry is not reachable",
            Self::OutcomeUnknown => "Gateway could not tell whether it was done",
        };
        Cow::Borrowed(text)
    }

    /// The HTTP status that callers see.
    pub fn status(&self) -> u16 {
        match self {
            Self::InvalidToken | Self::TokenExpired => 401,
            Self::CapabilityDenied => 403,
            Self::SessionNotFound => 404,
            Self::AlreadyBound
            | Self::NotConnected(_)
            | Self::OwnerExpired
            | Self::StaleGeneration(..)
            | Self::DuplicateRequest => 409,
            Self::EnvelopeTooLarge(..) => 413,
            Self::ResourceLimit(..) => 429,
            Self::Draining | Self::Busy | Self::RegistryAway | Self::OutcomeUnknown => 503,
            Self::BindFailed(_)
            | Self::BindTimeout
            | Self::Unbound
            | Self::SessionMismatch
            | Self::InvalidEnvelope(_)
            | Self::InvalidMessage(_)
            | Self::SlowConsumer => 500,
        }
    }

    /// The code of the Close frame when the connection ends with it.
    pub fn close_code(&self) -> CloseCode {
        match self {
            Self::ResourceLimit(..) => CloseCode::TRY_LATER,
            Self::Draining => CloseCode::GOING_AWAY,
            _ => CloseCode::POLICY,
        }
    }

    /// `data` of the error, for callers.
    pub(super) fn data(&self) -> Option<Value> {
        match self {
            Self::NotConnected(status) => Some(json!({"status": status})),
            Self::StaleGeneration(expected, actual) => {
                Some(json!({"expectedGeneration": expected, "actualGeneration": actual}))
            }
            Self::EnvelopeTooLarge(max, actual) => Some(json!({"max": max, "actual": actual})),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fixed messages of the contract (3.1) and the codes of its binds (2.6).
    #[test]
    fn words_and_statuses_are_the_contract_s() {
        for (fault, status, code, message) in [
            (
                Fault::InvalidToken,
                401,
                "invalid_token",
                "Invalid connection token",
            ),
            (
                Fault::TokenExpired,
                401,
                "token_expired",
                "Connection token expired",
            ),
            (
                Fault::CapabilityDenied,
                403,
                "capability_denied",
                "Connection token capability denied",
            ),
            (
                Fault::StaleGeneration(0, 1),
                409,
                "stale_generation",
                "Stale gateway generation",
            ),
            (
                Fault::SessionNotFound,
                404,
                "session_not_found",
                "Gateway session not found",
            ),
            (
                Fault::AlreadyBound,
                409,
                "session_already_bound",
                "Gateway session already bound",
            ),
            (
                Fault::OwnerExpired,
                409,
                "session_owner_expired",
                "Gateway session owner expired",
            ),
            (
                Fault::NotConnected("closed"),
                409,
                "session_owner_expired",
                "Gateway session is closed",
            ),
            (
                Fault::ResourceLimit("maxInFlightPerSession", 1),
                429,
                "resource_limit_exceeded",
                "Gateway resource limit exceeded",
            ),
            (
                Fault::EnvelopeTooLarge(1, 2),
                413,
                "envelope_too_large",
                "Gateway envelope too large",
            ),
        ] {
            assert_eq!(fault.status(), status, "{code}");
            assert_eq!(fault.code(), format!("connection_gateway.{code}"));
            assert_eq!(fault.message(), message);
        }
    }

    #[test]
    fn each_end_has_its_close_code() {
        for (fault, code) in [
            (Fault::InvalidToken, CloseCode::POLICY),
            (Fault::SlowConsumer, CloseCode::POLICY),
            (
                Fault::ResourceLimit("maxSessionsPerSubject", 5),
                CloseCode::TRY_LATER,
            ),
            (Fault::Draining, CloseCode::GOING_AWAY),
        ] {
            assert_eq!(fault.close_code(), code, "{fault:?}");
        }
    }
}
