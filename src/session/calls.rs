//! The requests of a session's client that are under way: which requests at backends serve them, so
//! that a cancellation and a progress notification find their one way (mcp.md 3.4, 1 to 4).
//!
//! Clients may use one id twice at a time (market.md S2); each request is an entry of its own.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use shards::notify::Notify;
use smallvec::SmallVec;

use crate::{
    mcp::json,
    session::state::{OpenBackend, Place},
    upstream::cancel::Cancel,
};

/// Messages waiting to be written to one caller's stream.
const INJECTED_MAX: usize = 64;
/// Requests at backends for one of a client's at the most; a list has one a page.
const LEGS_MAX: usize = 256;

/// One request at a backend.
#[derive(Debug, Clone)]
pub struct Leg {
    /// The backend.
    pub place: Place,
    /// What was agreed with it.
    pub open: Rc<OpenBackend>,
    /// The request's id there.
    pub upstream_id: u64,
}

/// One request of the client.
#[derive(Debug)]
pub struct ClientCall {
    id: SmallVec<[u8; 24]>,
    progress_token: SmallVec<[u8; 24]>,
    /// Whether it is given up.
    pub cancel: Cancel,
    legs: RefCell<SmallVec<[Leg; 1]>>,
    injected: RefCell<Vec<Vec<u8>>>,
    is_streamed: Cell<bool>,
    changed: Notify,
}

impl ClientCall {
    /// The progress token its caller gave, raw; empty: none.
    pub fn progress_token(&self) -> &[u8] {
        &self.progress_token
    }

    /// Remembers a request at a backend.
    pub fn add_leg(&self, leg: Leg) {
        let mut legs = self.legs.borrow_mut();
        if legs.len() < LEGS_MAX {
            legs.push(leg);
        }
    }

    /// Forgets a request at a backend: it has been answered, or never reached it.
    pub fn end_leg(&self, open: &Rc<OpenBackend>, upstream_id: u64) {
        // Each backend's ids are its own: a list has the same one at several.
        self.legs
            .borrow_mut()
            .retain(|leg| leg.upstream_id != upstream_id || !Rc::ptr_eq(&leg.open, open));
    }

    /// Its requests at backends that are not answered yet.
    pub fn legs(&self) -> SmallVec<[Leg; 1]> {
        self.legs.borrow().clone()
    }

    fn has_leg(&self, open: &Rc<OpenBackend>, token: &[u8]) -> bool {
        let legs = self.legs.borrow();
        legs.iter()
            .any(|leg| Rc::ptr_eq(&leg.open, open) && is_decimal_of(token, leg.upstream_id))
    }

    /// Says that somebody writes injected messages to the caller's stream.
    pub fn set_streamed(&self, is_streamed: bool) {
        self.is_streamed.set(is_streamed);
    }

    /// Puts a message that came another way on the caller's stream; false: it has none.
    pub fn inject(&self, message: Vec<u8>) -> bool {
        let mut injected = self.injected.borrow_mut();
        if !self.is_streamed.get() || injected.len() >= INJECTED_MAX {
            return false;
        }
        injected.push(message);
        self.changed.notify();
        true
    }

    /// Takes the injected messages.
    pub fn take_injected(&self) -> Vec<Vec<u8>> {
        self.injected.take()
    }

    /// Gives it up: no response of it is relayed from now on.
    pub fn give_up(&self) {
        self.cancel.cancel();
        self.changed.notify();
    }

    /// Waits until a message was injected or it was given up.
    pub async fn changed(&self) {
        self.changed.wait().await;
    }
}

/// The requests of one session that are under way.
#[derive(Debug, Default)]
pub struct Calls(RefCell<Vec<Rc<ClientCall>>>);

impl Calls {
    /// Adds the request with this raw id and progress token; it leaves when the guard is dropped.
    pub fn enter(&self, id: &[u8], progress_token: Option<&[u8]>) -> Entered<'_> {
        let call = Rc::new(ClientCall {
            id: SmallVec::from_slice(id),
            progress_token: SmallVec::from_slice(progress_token.unwrap_or_default()),
            cancel: Cancel::default(),
            legs: RefCell::default(),
            injected: RefCell::default(),
            is_streamed: Cell::new(false),
            changed: Notify::default(),
        });
        self.0.borrow_mut().push(call.clone());
        Entered { calls: self, call }
    }

    /// The request with this raw id; the youngest when several have it.
    pub fn find(&self, id: &[u8]) -> Option<Rc<ClientCall>> {
        let calls = self.0.borrow();
        let found = calls.iter().rev().find(|call| is_same_id(&call.id, id));
        found.cloned()
    }

    /// The request that a backend means by a progress token of ours.
    pub fn of_token(&self, open: &Rc<OpenBackend>, token: &[u8]) -> Option<Rc<ClientCall>> {
        let calls = self.0.borrow();
        let found = calls.iter().find(|call| call.has_leg(open, token));
        found.cloned()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

/// A request that is under way; leaves the table when dropped.
#[derive(Debug)]
pub struct Entered<'a> {
    calls: &'a Calls,
    /// The request.
    pub call: Rc<ClientCall>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut calls = self.calls.0.borrow_mut();
        if let Some(index) = calls.iter().position(|call| Rc::ptr_eq(call, &self.call)) {
            calls.swap_remove(index);
        }
    }
}

/// Whether two raw ids are one: same type, same value.
fn is_same_id(a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    // Only strings can be spelt in several ways.
    let is_escaped = |raw: &[u8]| raw.starts_with(b"\"") && raw.contains(&b'\\');
    (is_escaped(a) || is_escaped(b))
        && a.starts_with(b"\"")
        && b.starts_with(b"\"")
        && json::unescape(a).is_some_and(|a| json::unescape(b).is_some_and(|b| a == b))
}

/// Whether a raw token is this number in decimal.
pub fn is_decimal_of(token: &[u8], number: u64) -> bool {
    std::str::from_utf8(token).is_ok_and(|text| text.parse() == Ok(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_are_kept_apart_and_the_youngest_is_found() {
        let calls = Calls::default();
        let first = calls.enter(b"1", None);
        let text = calls.enter(b"\"1\"", None);
        let second = calls.enter(b"1", Some(b"0"));
        assert!(Rc::ptr_eq(&calls.find(b"1").unwrap(), &second.call));
        assert!(Rc::ptr_eq(&calls.find(br#""\u0031""#).unwrap(), &text.call));
        assert_eq!(second.call.progress_token(), b"0");
        drop(second);
        assert!(Rc::ptr_eq(&calls.find(b"1").unwrap(), &first.call));
        drop((first, text));
        assert!(calls.find(b"1").is_none() && calls.is_empty());
    }

    #[test]
    fn what_is_injected_waits_only_for_a_stream() {
        let calls = Calls::default();
        let entered = calls.enter(b"1", None);
        assert!(!entered.call.inject(b"a".to_vec()));
        entered.call.set_streamed(true);
        for _ in 0..INJECTED_MAX {
            assert!(entered.call.inject(b"a".to_vec()));
        }
        assert!(!entered.call.inject(b"a".to_vec()));
        assert_eq!(entered.call.take_injected().len(), INJECTED_MAX);
        assert!(entered.call.take_injected().is_empty());
    }

    #[test]
    fn tokens_are_plain_numbers() {
        assert!(is_decimal_of(b"17", 17));
        for other in [&b"\"17\""[..], b"18", b"1.7e1", b""] {
            assert!(!is_decimal_of(other, 17));
        }
    }
}
