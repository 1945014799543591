//! Which call a message of a server belongs to. Pure: bytes in, bytes and decisions out.
//!
//! A server of one session gets every message as its client wrote it, and the ledger only matches.
//! A server that several sessions share gets ids and progress tokens of the ledger's own, because
//! those of its clients clash; in what it answers the client's own stand again, byte for byte.

use std::collections::HashMap;

use crate::http::Span;
use crate::mcp::envelope::{Envelope, Kind};
use crate::mcp::json;
use crate::mcp::reply_scan::{ReplyKind, ReplyScan, scan_reply};

/// Calls one server may be busy with.
const CALLS_MAX: usize = 1024;
/// Questions of one server that wait for an answer.
const ASKED_MAX: usize = 256;

/// A session of the bridge.
pub(super) type SessionKey = u64;

/// Names one call for as long as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ticket {
    wire_id: Box<[u8]>,
    number: u64,
}

/// Why a request is not sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// A call with the same id is under way in the session.
    Duplicate,
    /// The server is busy with too many.
    TooMany,
    /// It is no request.
    NoRequest,
    /// The server has ended.
    Gone,
}

/// What a message of the server is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming<T> {
    /// Answers a call, which is over: where it goes and what it says there.
    Answer(T, Vec<u8>),
    /// Tells of a running call.
    Progress(T, Vec<u8>),
    /// Asks the client; `true`: a ping. The raw id.
    Request(bool, Vec<u8>),
    /// Tells the client; `true`: that a list has changed.
    Notification(bool),
    /// Withdraws a request to the client.
    Withdrawal,
    /// Nobody waits for it, or it is no message.
    Nothing,
}

/// Who has a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller {
    /// The session it belongs to.
    pub(super) session: SessionKey,
    /// Its client can be asked something in the middle of it.
    pub(super) can_be_asked: bool,
}

impl From<SessionKey> for Caller {
    fn from(session: SessionKey) -> Self {
        Self {
            session,
            can_be_asked: true,
        }
    }
}

/// What a call that nobody waits for any more leaves to be said to the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Abandoned {
    /// The cancellation, unless its client has sent one.
    pub(super) cancellation: Option<Vec<u8>>,
    /// Questions that will not be answered: the server's own raw ids.
    pub(super) unanswered: Vec<Box<[u8]>>,
}

struct Call<T> {
    number: u64,
    caller: Caller,
    id: Box<[u8]>,
    token: Option<Token>,
    method: Box<[u8]>,
    is_cancelled: bool,
    sink: T,
}

/// A call whose server is gone.
pub(super) struct Failed<T> {
    /// Where it goes.
    pub(super) sink: T,
    /// The caller's own raw id.
    pub(super) id: Box<[u8]>,
    /// What was asked for.
    pub(super) method: Box<[u8]>,
}

/// Whether a server may ask something while it serves such a request.
fn may_ask(method: &[u8]) -> bool {
    matches!(method, b"tools/call" | b"prompts/get" | b"resources/read")
}

/// A question of the server, under way to a client.
struct Asked {
    /// Our id of it, in quotes: what its client answers.
    id: Box<[u8]>,
    /// The server's own.
    server_id: Box<[u8]>,
    session: SessionKey,
    /// The number of the call it was asked in.
    call: u64,
}

struct Token {
    wire: Box<[u8]>,
    own: Box<[u8]>,
}

/// The calls of one server.
pub(super) struct Ledger<T> {
    is_shared: bool,
    next: u64,
    calls: HashMap<Box<[u8]>, Call<T>>,
    asked: Vec<Asked>,
}

impl<T: Clone> Ledger<T> {
    /// An empty one, of a server that several sessions share or not.
    pub(super) fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            next: 1,
            calls: HashMap::new(),
            asked: Vec::new(),
        }
    }

    /// Calls under way that somebody waits for.
    pub(super) fn len(&self) -> usize {
        self.calls
            .values()
            .filter(|call| !call.is_cancelled)
            .count()
    }

    /// Enters a request of a session: its ticket, and the message for the server.
    pub(super) fn request(
        &mut self,
        caller: impl Into<Caller>,
        body: &[u8],
        message: &Envelope,
        sink: T,
    ) -> Result<(Ticket, Vec<u8>), Refused> {
        let Some(id_at) = message.id.filter(|_| message.kind == Kind::Request) else {
            return Err(Refused::NoRequest);
        };
        if self.calls.len() >= CALLS_MAX {
            return Err(Refused::TooMany);
        }
        let number = self.next;
        let id = id_at.slice(body);
        let lexeme = number.to_string().into_bytes();
        let wire_id: Box<[u8]> = if self.is_shared { &*lexeme } else { id }.into();
        if self.calls.contains_key(&wire_id) {
            return Err(Refused::Duplicate);
        }
        self.next += 1;
        let token = message.progress_token.map(|at| {
            let own = at.slice(body);
            let wire = if self.is_shared { &*lexeme } else { own };
            Token {
                wire: wire.into(),
                own: own.into(),
            }
        });
        let mut out = Vec::new();
        if self.is_shared {
            let mut edits = vec![(id_at, &*lexeme)];
            edits.extend(message.progress_token.map(|at| (at, &*lexeme)));
            edits.sort_unstable_by_key(|(at, _)| at.start);
            json::splice(&mut out, body, &edits);
        } else {
            out.extend_from_slice(body);
        }
        let method = message.method.map_or(&b""[..], |at| at.slice(body));
        let call = Call {
            number,
            caller: caller.into(),
            id: id.into(),
            token,
            method: method.into(),
            is_cancelled: false,
            sink,
        };
        self.calls.insert(wire_id.clone(), call);
        Ok((Ticket { wire_id, number }, out))
    }

    /// What the server is told of a notification or a response of a session; `None`: nothing.
    pub(super) fn other(
        &mut self,
        session: SessionKey,
        body: &[u8],
        message: &Envelope,
    ) -> Option<Vec<u8>> {
        let is = |name: &[u8]| message.method.is_some_and(|at| at.slice(body) == name);
        if !self.is_shared {
            return Some(body.to_vec());
        }
        if message.kind == Kind::Response {
            return self.answered(session, body, message);
        }
        if !is(b"notifications/cancelled") {
            return Some(body.to_vec());
        }
        let at = message.request_id?;
        let (wire_id, _) = self
            .calls
            .iter_mut()
            .find(|(_, call)| call.caller.session == session && *call.id == *at.slice(body))
            .map(|(wire_id, call)| {
                call.is_cancelled = true;
                (wire_id, call)
            })?;
        let mut out = Vec::new();
        json::splice(&mut out, body, &[(at, &**wire_id)]);
        Some(out)
    }

    /// A client's answer to a question, under the server's own id.
    fn answered(
        &mut self,
        session: SessionKey,
        body: &[u8],
        message: &Envelope,
    ) -> Option<Vec<u8>> {
        let at = message.id?;
        let is_it = |asked: &Asked| asked.session == session && *asked.id == *at.slice(body);
        let index = self.asked.iter().position(is_it)?;
        let asked = self.asked.swap_remove(index);
        let mut out = Vec::new();
        json::splice(&mut out, body, &[(at, &*asked.server_id)]);
        Some(out)
    }

    /// Finds out whom a request of a shared server is for: the newest call that it can belong to,
    /// when all of these are one session's and its client can be asked. Another choice would show
    /// one caller what another one's call is about. Where it goes, and what it says there.
    pub(super) fn ask(&mut self, data: &[u8]) -> Option<(T, Vec<u8>)> {
        let scan = scan_reply(data).ok()?;
        let id = scan.id?;
        let able = |call: &&Call<T>| may_ask(&call.method) && !call.is_cancelled;
        let mut able = self.calls.values().filter(able);
        let first = able.next()?;
        let newest = able.try_fold(first, |newest, call| {
            let newer = if call.number > newest.number {
                call
            } else {
                newest
            };
            (call.caller == first.caller).then_some(newer)
        })?;
        if !newest.caller.can_be_asked || self.asked.len() >= ASKED_MAX {
            return None;
        }
        let our_id = format!("\"s{}\"", self.next).into_bytes();
        self.next += 1;
        let mut out = Vec::new();
        json::splice(&mut out, data, &[(id, &our_id)]);
        self.asked.push(Asked {
            id: our_id.into(),
            server_id: id.slice(data).into(),
            session: newest.caller.session,
            call: newest.number,
        });
        Some((newest.sink.clone(), out))
    }

    /// A question is withdrawn by the server that asked it: whom that is told, and how.
    pub(super) fn withdrawn(&mut self, data: &[u8]) -> Option<(T, Vec<u8>)> {
        let params = scan_reply(data).ok()?.params?;
        let at = json::within(params, json::member(params.slice(data), "requestId")?);
        let is_it = |asked: &Asked| *asked.server_id == *at.slice(data);
        let index = self.asked.iter().position(is_it)?;
        let asked = self.asked.swap_remove(index);
        let mut calls = self.calls.values();
        let sink = calls.find(|call| call.number == asked.call)?.sink.clone();
        let mut out = Vec::new();
        json::splice(&mut out, data, &[(at, &*asked.id)]);
        Some((sink, out))
    }

    /// Takes out the questions of calls that were cancelled: the server's own ids.
    pub(super) fn unanswered(&mut self) -> Vec<Box<[u8]>> {
        let calls = &self.calls;
        let mut unanswered = Vec::new();
        self.asked.retain_mut(|asked| {
            let mut calls = calls.values();
            let stays = !calls.any(|call| call.is_cancelled && call.number == asked.call);
            if !stays {
                unanswered.push(std::mem::take(&mut asked.server_id));
            }
            stays
        });
        unanswered
    }

    /// A question could not be handed on.
    pub(super) fn unask(&mut self, server_id: &[u8]) {
        self.asked.retain(|asked| *asked.server_id != *server_id);
    }

    /// Sorts a message of the server.
    pub(super) fn incoming(&mut self, data: &[u8]) -> Incoming<T> {
        let Ok(scan) = scan_reply(data) else {
            return Incoming::Nothing;
        };
        let is = |name: &[u8]| scan.method.is_some_and(|at| at.slice(data) == name);
        match (scan.kind, scan.id) {
            (ReplyKind::Result | ReplyKind::Error, Some(id)) => {
                match self.calls.remove(id.slice(data)) {
                    Some(call) => {
                        self.asked.retain(|asked| asked.call != call.number);
                        let mut document = Vec::new();
                        json::splice(&mut document, data, &[(id, &*call.id)]);
                        Incoming::Answer(call.sink, document)
                    }
                    None => Incoming::Nothing,
                }
            }
            (ReplyKind::Request, Some(id)) => {
                Incoming::Request(is(b"ping"), id.slice(data).to_vec())
            }
            (ReplyKind::Notification, _) if is(b"notifications/progress") => {
                self.progress(data, &scan)
            }
            (ReplyKind::Notification, _) if self.is_shared && is(b"notifications/cancelled") => {
                Incoming::Withdrawal
            }
            (ReplyKind::Notification, _) => {
                let method = scan.method.map_or(&b""[..], |at| at.slice(data));
                Incoming::Notification(method.ends_with(b"/list_changed"))
            }
            _ => Incoming::Nothing,
        }
    }

    fn progress(&self, data: &[u8], scan: &ReplyScan) -> Incoming<T> {
        let token_at = token_of(data, scan);
        let found = token_at.and_then(|at| {
            let token = at.slice(data);
            let calls = self.calls.values();
            calls.into_iter().find_map(|call| {
                let own = call.token.as_ref().filter(|known| *known.wire == *token)?;
                Some((call, at, &*own.own))
            })
        });
        match found {
            Some((call, at, own)) => {
                let mut document = Vec::new();
                json::splice(&mut document, data, &[(at, own)]);
                Incoming::Progress(call.sink.clone(), document)
            }
            // Of a task that outlives its call (2025-11-25); a shared server's owner is unknown.
            None => Incoming::Notification(false),
        }
    }

    /// Where the newest running call goes.
    pub(super) fn newest(&self) -> Option<T> {
        let newest = self.calls.values().max_by_key(|call| call.number);
        newest.map(|call| call.sink.clone())
    }

    /// Forgets a call nobody waits for any more.
    pub(super) fn forget(&mut self, ticket: &Ticket) {
        let is_it = |call: &Call<T>| call.number == ticket.number;
        if self.calls.get(&ticket.wire_id).is_some_and(is_it) {
            self.calls.remove(&ticket.wire_id);
        }
    }

    /// Forgets a call, and says what the server is to be told of that; `None`: it was over.
    pub(super) fn abandon(&mut self, ticket: &Ticket) -> Option<Abandoned> {
        let is_it = |call: &Call<T>| call.number == ticket.number;
        self.calls.get(&ticket.wire_id).filter(|call| is_it(call))?;
        let call = self.calls.remove(&ticket.wire_id)?;
        let mut left = Abandoned::default();
        if !call.is_cancelled {
            let mut text =
                br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#
                    .to_vec();
            text.extend_from_slice(&ticket.wire_id);
            text.extend_from_slice(b"}}");
            left.cancellation = Some(text);
        }
        self.asked.retain_mut(|asked| {
            let stays = asked.call != call.number;
            if !stays {
                left.unanswered.push(std::mem::take(&mut asked.server_id));
            }
            stays
        });
        Some(left)
    }

    /// Forgets the calls of a session that has ended.
    pub(super) fn forget_session(&mut self, session: SessionKey) {
        self.calls.retain(|_, call| call.caller.session != session);
        self.asked.retain(|asked| asked.session != session);
    }

    /// The tickets of a session's calls.
    pub(super) fn tickets_of(&self, session: SessionKey) -> Vec<Ticket> {
        let own = self.calls.iter();
        own.filter(|(_, call)| call.caller.session == session)
            .map(|(wire_id, call)| Ticket {
                wire_id: wire_id.clone(),
                number: call.number,
            })
            .collect()
    }

    /// Forgets all: the server is gone.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.asked.clear();
    }

    /// The same; whom that is to be told.
    pub(super) fn fail_all(&mut self) -> Vec<Failed<T>> {
        self.asked.clear();
        let calls = self.calls.drain();
        let failed = calls.map(|(_, call)| Failed {
            sink: call.sink,
            id: call.id,
            method: call.method,
        });
        failed.collect()
    }
}

/// Where `params.progressToken` stands.
fn token_of(data: &[u8], scan: &ReplyScan) -> Option<Span> {
    let params = scan.params?;
    let inner = json::member(params.slice(data), "progressToken")?;
    Some(json::within(params, inner))
}

#[cfg(test)]
mod tests;
