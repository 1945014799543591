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
    /// Nobody waits for it, or it is no message.
    Nothing,
}

struct Call<T> {
    number: u64,
    session: SessionKey,
    id: Box<[u8]>,
    token: Option<Token>,
    sink: T,
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
}

impl<T: Clone> Ledger<T> {
    /// An empty one, of a server that several sessions share or not.
    pub(super) fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            next: 1,
            calls: HashMap::new(),
        }
    }

    /// Enters a request of a session: its ticket, and the message for the server.
    pub(super) fn request(
        &mut self,
        session: SessionKey,
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
        let call = Call {
            number,
            session,
            id: id.into(),
            token,
            sink,
        };
        self.calls.insert(wire_id.clone(), call);
        Ok((Ticket { wire_id, number }, out))
    }

    /// What the server is told of a notification or a response of a session; `None`: nothing.
    pub(super) fn other(
        &self,
        session: SessionKey,
        body: &[u8],
        message: &Envelope,
    ) -> Option<Vec<u8>> {
        let is = |name: &[u8]| message.method.is_some_and(|at| at.slice(body) == name);
        if !self.is_shared {
            return Some(body.to_vec());
        }
        if message.kind == Kind::Response {
            // It was asked nothing.
            return None;
        }
        if !is(b"notifications/cancelled") {
            return Some(body.to_vec());
        }
        let at = message.request_id?;
        let (wire_id, _) = self
            .calls
            .iter()
            .find(|(_, call)| call.session == session && *call.id == *at.slice(body))?;
        let mut out = Vec::new();
        json::splice(&mut out, body, &[(at, &**wire_id)]);
        Some(out)
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

    /// Forgets the calls of a session that has ended.
    pub(super) fn forget_session(&mut self, session: SessionKey) {
        self.calls.retain(|_, call| call.session != session);
    }

    /// Forgets all: the server is gone.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
    }
}

/// Where `params.progressToken` stands.
fn token_of(data: &[u8], scan: &ReplyScan) -> Option<Span> {
    let params = scan.params?;
    let inner = json::member(params.slice(data), "progressToken")?;
    Some(json::within(params, inner))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mcp::envelope::scan;
    use crate::mcp::json::DEPTH_MAX;

    fn enter(ledger: &mut Ledger<u32>, session: u64, body: &str, sink: u32) -> (Ticket, String) {
        let message = scan(body.as_bytes(), DEPTH_MAX).unwrap();
        let (ticket, line) = ledger
            .request(session, body.as_bytes(), &message, sink)
            .unwrap();
        (ticket, String::from_utf8(line).unwrap())
    }

    fn call(id: &str, token: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","params":{{"_meta":{{"progressToken":{token}}}}},"id":{id},"method":"tools/call"}}"#
        )
    }

    fn answer(id: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    }

    fn progress(token: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        )
    }

    #[test]
    fn one_session_is_passed_through_as_it_is() {
        let mut ledger = Ledger::new(false);
        let body = call("\"a\"", "\"t\"");
        let (_, line) = enter(&mut ledger, 7, &body, 1);
        assert_eq!(line, body);
        let message = scan(body.as_bytes(), DEPTH_MAX).unwrap();
        let again = ledger.request(7, body.as_bytes(), &message, 2);
        assert_eq!(again.unwrap_err(), Refused::Duplicate);
        let told = progress("\"t\"");
        assert_eq!(
            ledger.incoming(told.as_bytes()),
            Incoming::Progress(1, told.clone().into())
        );
        let said = answer("\"a\"");
        assert_eq!(
            ledger.incoming(said.as_bytes()),
            Incoming::Answer(1, said.clone().into())
        );
        // The call is over: its second answer is nobody's, and its progress is the session's.
        assert_eq!(ledger.incoming(said.as_bytes()), Incoming::Nothing);
        assert_eq!(
            ledger.incoming(told.as_bytes()),
            Incoming::Notification(false)
        );
    }

    #[test]
    fn equal_ids_of_two_sessions_are_told_apart() {
        let mut ledger = Ledger::new(true);
        let body = call("0", "0");
        let (_, first) = enter(&mut ledger, 1, &body, 10);
        let (_, second) = enter(&mut ledger, 2, &body, 20);
        assert_eq!((first, second), (call("1", "1"), call("2", "2")));
        let told = ledger.incoming(progress("2").as_bytes());
        assert_eq!(told, Incoming::Progress(20, progress("0").into()));
        let said = ledger.incoming(answer("2").as_bytes());
        assert_eq!(said, Incoming::Answer(20, answer("0").into()));
        let said = ledger.incoming(answer("1").as_bytes());
        assert_eq!(said, Incoming::Answer(10, answer("0").into()));
    }

    #[test]
    fn a_cancellation_names_the_call_of_its_own_session() {
        let mut ledger = Ledger::new(true);
        enter(&mut ledger, 1, &call("5", "5"), 0);
        enter(&mut ledger, 2, &call("6", "6"), 0);
        let cancel = |id: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            )
        };
        let told = |ledger: &Ledger<u32>, session, body: &str| {
            let message = scan(body.as_bytes(), DEPTH_MAX).unwrap();
            let line = ledger.other(session, body.as_bytes(), &message);
            line.map(|line| String::from_utf8(line).unwrap())
        };
        assert_eq!(told(&ledger, 2, &cancel("6")), Some(cancel("2")));
        assert_eq!(told(&ledger, 1, &cancel("6")), None);
        assert_eq!(
            told(&ledger, 1, &answer("1")),
            None,
            "a shared one asks nobody"
        );
    }

    #[test]
    fn what_is_forgotten_is_only_what_was_meant() {
        let mut ledger = Ledger::new(false);
        let (old, _) = enter(&mut ledger, 1, &call("1", "1"), 1);
        ledger.incoming(answer("1").as_bytes());
        enter(&mut ledger, 1, &call("1", "1"), 2);
        ledger.forget(&old);
        assert_eq!(ledger.newest(), Some(2));
        ledger.forget_session(1);
        assert_eq!(ledger.newest(), None);
    }

    #[test]
    fn other_messages_are_sorted() {
        let mut ledger = Ledger::<u32>::new(false);
        let mut sorted = |text: &str| ledger.incoming(text.as_bytes());
        assert_eq!(
            sorted(r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#),
            Incoming::Request(true, b"\"x\"".to_vec())
        );
        assert_eq!(
            sorted(r#"{"method":"roots/list","id":0}"#),
            Incoming::Request(false, b"0".to_vec())
        );
        assert_eq!(
            sorted(r#"{"method":"notifications/tools/list_changed"}"#),
            Incoming::Notification(true)
        );
        assert_eq!(
            sorted(r#"{"method":"notifications/message"}"#),
            Incoming::Notification(false)
        );
        for junk in ["", "Server started", "[]", "{}", "{\"id\":1}"] {
            assert_eq!(sorted(junk), Incoming::Nothing, "{junk}");
        }
    }

    proptest! {
        #[test]
        fn every_answer_finds_its_call(
            calls in prop::collection::vec((0u64..4, 0u32..6, any::<bool>()), 1..40)
        ) {
            let mut ledger = Ledger::new(true);
            let mut lines = Vec::new();
            for (index, (session, id, is_text)) in (0u32..).zip(&calls) {
                let id = if *is_text { format!("\"{id}\"") } else { id.to_string() };
                let (_, line) = enter(&mut ledger, *session, &call(&id, &id), index);
                lines.push((index, id, line));
            }
            // Answered in the other order.
            for (index, id, line) in lines.iter().rev() {
                let message = scan(line.as_bytes(), DEPTH_MAX).unwrap();
                let wire = |at: Span| std::str::from_utf8(at.slice(line.as_bytes())).unwrap();
                let token = wire(message.progress_token.unwrap());
                let told = ledger.incoming(progress(token).as_bytes());
                prop_assert_eq!(told, Incoming::Progress(*index, progress(id).into()));
                let said = ledger.incoming(answer(wire(message.id.unwrap())).as_bytes());
                prop_assert_eq!(said, Incoming::Answer(*index, answer(id).into()));
            }
            prop_assert_eq!(ledger.newest(), None);
        }

        #[test]
        fn no_bytes_of_a_server_are_too_strange(data in prop::collection::vec(any::<u8>(), 0..200)) {
            Ledger::<u32>::new(true).incoming(&data);
        }
    }
}
