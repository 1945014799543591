//! Which calls of the gateway the local server owes an answer, without I/O.
//!
//! Every call is answered once: by the server, or with the JSON-RPC error -32603 when it fails, is
//! gone or takes too long. What answers nothing any more is left out, so that a late answer never
//! meets another call's id. Never judges what a message says.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use crate::{
    mcp::{
        json,
        reply_scan::{ReplyKind, ReplyScan, scan_reply},
    },
    refusal::rpc_error,
};

/// Calls under way at the most.
pub(super) const CALLS_MAX: usize = 256;
/// Bytes of an id at the most.
const ID_BYTES_MAX: usize = 512;
/// Longer than any gateway waits for an answer.
pub(super) const CALL_TIME_MAX: Duration = Duration::from_secs(3600);
/// JSON-RPC: internal error, which also says that a local server failed.
const INTERNAL_ERROR: i32 = -32603;

/// The id of a call: a number as it stands, a string decoded, behind one quote. Servers write a
/// string as they like.
pub(super) type CallId = Box<[u8]>;

/// The id that a lexeme spells.
pub(super) fn call_id(lexeme: &[u8]) -> CallId {
    match json::unescape(lexeme) {
        Some(text) => [b"\"", text.as_bytes()].concat().into(),
        None => lexeme.into(),
    }
}

fn error(id: &[u8], why: &str) -> Vec<u8> {
    let quoted = id.strip_prefix(b"\"").and_then(|text| {
        let mut quoted = Vec::new();
        json::quote(&mut quoted, std::str::from_utf8(text).ok()?);
        Some(quoted)
    });
    rpc_error(Some(quoted.as_deref().unwrap_or(id)), INTERNAL_ERROR, why)
}

/// What a message of the gateway is to the local server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its `initialize`.
    Initialize(CallId),
    /// `notifications/initialized`.
    Initialized,
    /// Another request.
    Call(CallId),
    /// The request is not waited for any more.
    Cancelled(CallId),
    /// Anything else.
    Other,
}

/// What becomes of a message of the gateway.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromGateway {
    /// It goes to the local server.
    Pass(Kind),
    /// It is answered at once.
    Answer(Vec<u8>),
    /// It is no JSON-RPC message.
    Malformed,
}

/// What becomes of a message of the local server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FromLocal {
    /// It goes to the gateway.
    Pass,
    /// Nobody waits for it.
    Stray,
    /// It is no JSON-RPC message.
    Malformed,
}

/// The calls under way.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// By id, the number of the entry in `order`.
    open: HashMap<CallId, u64>,
    /// Oldest first, with those that were answered meanwhile.
    order: VecDeque<(u64, CallId, Instant)>,
    count: u64,
}

impl Calls {
    /// Takes in a message of the gateway.
    pub(super) fn hear_gateway(&mut self, message: &[u8], now: Instant) -> FromGateway {
        let Ok(scan) = scan_reply(message) else {
            return FromGateway::Malformed;
        };
        let method = scan.method.map_or(&b""[..], |span| span.slice(message));
        let id = match (scan.kind, scan.id) {
            (ReplyKind::Request, Some(id)) => id.slice(message),
            (ReplyKind::Notification, _) => {
                return FromGateway::Pass(self.notification(message, &scan, method));
            }
            _ => return FromGateway::Pass(Kind::Other),
        };
        if id.len() > ID_BYTES_MAX || id == b"null" {
            return FromGateway::Malformed;
        }
        if self.open.len() >= CALLS_MAX {
            return FromGateway::Answer(error(&call_id(id), "too many calls at once"));
        }
        let id = call_id(id);
        self.count += 1;
        self.open.insert(id.clone(), self.count);
        self.tidy();
        self.order
            .push_back((self.count, id.clone(), now + CALL_TIME_MAX));
        FromGateway::Pass(if method == b"initialize" {
            Kind::Initialize(id)
        } else {
            Kind::Call(id)
        })
    }

    fn notification(&mut self, message: &[u8], scan: &ReplyScan, method: &[u8]) -> Kind {
        match method {
            b"notifications/initialized" => Kind::Initialized,
            b"notifications/cancelled" => {
                let params = scan.params.map_or(&b""[..], |span| span.slice(message));
                let id = json::member(params, "requestId");
                let id = id.map(|span| call_id(span.slice(params)));
                match id.filter(|id| self.open.remove(id).is_some()) {
                    Some(id) => Kind::Cancelled(id),
                    None => Kind::Other,
                }
            }
            _ => Kind::Other,
        }
    }

    /// Takes in a message of the local server.
    pub(super) fn hear_local(&mut self, message: &[u8]) -> FromLocal {
        // A WebSocket's text must be UTF-8, and so must JSON.
        if std::str::from_utf8(message).is_err() {
            return FromLocal::Malformed;
        }
        let Ok(scan) = scan_reply(message) else {
            return FromLocal::Malformed;
        };
        if matches!(scan.kind, ReplyKind::Request | ReplyKind::Notification) {
            return FromLocal::Pass;
        }
        let id = scan.id.map(|span| call_id(span.slice(message)));
        if id.is_some_and(|id| self.open.remove(&id).is_some()) {
            FromLocal::Pass
        } else {
            FromLocal::Stray
        }
    }

    /// The error for a call that failed, unless it was answered.
    pub(super) fn fail(&mut self, id: &[u8], why: &str) -> Option<Vec<u8>> {
        self.open.remove(id)?;
        Some(error(id, why))
    }

    /// The errors for all calls under way, oldest first.
    pub(super) fn fail_all(&mut self, why: &str) -> Vec<Vec<u8>> {
        let order = std::mem::take(&mut self.order);
        let errors = order.into_iter().filter_map(|(number, id, _)| {
            let is_open = self.open.get(&id) == Some(&number);
            is_open.then(|| error(&id, why))
        });
        let errors = errors.collect();
        self.open.clear();
        errors
    }

    /// The errors for calls that took too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut errors = Vec::new();
        self.tidy();
        while let Some((_, id, until)) = self.order.front()
            && now >= *until
        {
            let id = id.clone();
            errors.extend(self.fail(&id, "the local server did not answer in time"));
            self.tidy();
        }
        errors
    }

    /// When [`Self::expire`] has something to do.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.order.front().map(|(_, _, until)| *until)
    }

    /// Forgets answered calls at the front, and all of them when they are many.
    fn tidy(&mut self) {
        let is_open = |open: &HashMap<CallId, u64>, entry: &(u64, CallId, Instant)| {
            open.get(&entry.1) == Some(&entry.0)
        };
        while let Some(entry) = self.order.front()
            && !is_open(&self.open, entry)
        {
            self.order.pop_front();
        }
        if self.order.len() > 2 * CALLS_MAX {
            self.order.retain(|entry| is_open(&self.open, entry));
        }
    }
}

#[cfg(test)]
mod tests;
