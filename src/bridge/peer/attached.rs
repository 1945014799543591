//! A server that connects to us: it comes and goes, and what its sessions are told of that.

use std::{sync::Arc, time::Duration};

use hyper::HeaderMap;
use tokio::time::timeout;

use super::{Outlet, Peer, PeerKind, State, Told, sink};
use crate::{
    bridge::{
        ledger::{Abandoned, Caller, SessionKey, Ticket},
        line::{FarEnd, Hearing, Speech},
        numbers::ReverseNumbers,
        stand_in::{self, Facts},
    },
    mcp::{envelope::scan, json::DEPTH_MAX},
    refusal::rpc_error,
};

/// The gateway's own session with a server; others have numbers from 1 on.
const OWN: SessionKey = 0;

/// What is done when a list of a server is another.
pub(in crate::bridge) type OnChange = Box<dyn Fn() + Send + Sync>;

/// The server that is there.
pub(super) struct Attached {
    /// The number of its line.
    number: u64,
    /// For the number of its calls.
    speech: Speech,
    /// What it said about itself; until then it is not asked anything.
    facts: Option<Arc<Facts>>,
    numbers: Arc<ReverseNumbers>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.numbers.left();
    }
}

impl State {
    /// Tells the line how busy the server is.
    pub(super) fn count_calls(&self) {
        if let Some(attached) = &self.attached {
            attached.speech.set_calls(self.ledger.len());
        }
    }

    /// Passes on that a list is another; all else that a server says of itself could be about any
    /// caller's business.
    pub(super) fn list_changed(&self, message: &[u8]) {
        let is_known = self
            .attached
            .as_ref()
            .is_some_and(|one| one.facts.is_some());
        if let Some(family) = stand_in::family_of(message).filter(|_| is_known) {
            self.tell_changed(family);
        }
    }

    fn tell_changed(&self, family: &str) {
        if let Some(on_change) = &self.on_change {
            on_change();
        }
        let message = stand_in::changed(family, None);
        for outbox in self.sessions.values() {
            outbox.post(message.clone());
        }
    }
}

impl Peer {
    /// A place for a server that has not come yet.
    pub(in crate::bridge) fn awaited(on_change: OnChange) -> Arc<Self> {
        let peer = Self::new(PeerKind::Reverse, None, true);
        peer.state(|state| state.on_change = Some(on_change));
        Arc::new(peer)
    }

    /// Whether a server is there, greeted or not.
    pub(in crate::bridge) fn is_attached(&self) -> bool {
        self.state(|state| state.attached.is_some())
    }

    /// What the server that is there has said about itself.
    pub(in crate::bridge) fn facts(&self) -> Option<Arc<Facts>> {
        self.state(|state| state.attached.as_ref()?.facts.clone())
    }

    /// Takes a server in, until it leaves: it is greeted, within `patience`, and heard.
    pub(in crate::bridge) async fn attend(
        self: Arc<Self>,
        far: FarEnd,
        mut hearing: Hearing,
        patience: Duration,
        numbers: Arc<ReverseNumbers>,
    ) {
        let number = far.number();
        // The registry has let the next one in, so this one's end is only on its way.
        self.detach(None);
        let attached = Attached {
            number,
            speech: far.speech(),
            facts: None,
            numbers: numbers.clone(),
        };
        numbers.came();
        self.put_outlet(Some(Outlet::Reverse(far)));
        self.state(|state| state.attached = Some(attached));
        let greeting = tokio::spawn(self.clone().greet(number, patience, numbers.clone()));
        while let Some(message) = hearing.next().await {
            if !self.is_attached_as(number) {
                // What a connection has left behind says nothing to the next one.
                break;
            }
            numbers.heard();
            self.hear(message);
        }
        greeting.abort();
        self.detach(Some(number));
    }

    fn is_attached_as(&self, number: u64) -> bool {
        self.state(|state| {
            let attached = state.attached.as_ref();
            attached.is_some_and(|one| one.number == number)
        })
    }

    /// Counts a message for the server.
    pub(super) fn count_sent(&self) {
        self.state(|state| {
            if let Some(attached) = &state.attached {
                attached.numbers.sent();
            }
        });
    }

    fn put_outlet(&self, outlet: Option<Outlet>) {
        let mut place = self
            .outlet
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(std::mem::replace(&mut *place, outlet));
    }

    /// The gateway's own `initialize`; a server that does not answer it well is sent away.
    async fn greet(self: Arc<Self>, number: u64, patience: Duration, numbers: Arc<ReverseNumbers>) {
        let facts = timeout(patience, self.greeting()).await.ok().flatten();
        let Some(facts) = facts.map(Arc::new) else {
            crate::log::warn(|| {
                "a reverse-connected server did not initialize: its connection is ended".to_owned()
            });
            numbers.refused();
            self.detach(Some(number));
            return;
        };
        self.state(|state| {
            if let Some(attached) = &mut state.attached
                && attached.number == number
            {
                attached.facts = Some(facts.clone());
                for family in facts.listed() {
                    state.tell_changed(family);
                }
            }
        });
    }

    async fn greeting(self: &Arc<Self>) -> Option<Facts> {
        let (sink, mut heard) = sink();
        let body = stand_in::greeting();
        let message = scan(body.as_bytes(), DEPTH_MAX).ok()?;
        let own = Caller {
            session: OWN,
            can_be_asked: false,
        };
        let entered = self.request(own, body.as_bytes(), &message, sink);
        let (_, line) = entered.ok()?;
        self.send(line, HeaderMap::new()).await.ok()?;
        let facts = loop {
            match heard.next().await? {
                Told::Answer(document) => break Facts::read(&document)?,
                Told::Aside(_) => {}
            }
        };
        let greeted = stand_in::GREETED.to_vec();
        self.send(greeted, HeaderMap::new()).await.ok()?;
        Some(facts)
    }

    /// The server has left, or is sent away; with a number, only if it is that one. Its calls fail
    /// and its lists are empty from here on.
    pub(in crate::bridge) fn detach(&self, number: Option<u64>) {
        let gone = self.state(|state| {
            let is_it = |one: &Attached| number.is_none_or(|number| one.number == number);
            let gone = state.attached.take_if(|one| is_it(one))?;
            for call in state.ledger.fail_all() {
                let answer = stand_in::parting(&call.id, &call.method);
                if answer.is_none() {
                    gone.numbers.failed();
                }
                let failure = || rpc_error(Some(&call.id), -32603, stand_in::LEFT);
                call.sink.answer(answer.unwrap_or_else(failure));
            }
            gone.speech.set_calls(0);
            if let Some(facts) = &gone.facts {
                for family in facts.listed() {
                    state.tell_changed(family);
                }
            }
            Some(gone)
        });
        if gone.is_some() {
            self.put_outlet(None);
        }
    }

    /// Forgets a call nobody waits for any more, and tells the server.
    pub(super) fn abandon(self: &Arc<Self>, ticket: &Ticket) {
        let left = self.state(|state| {
            let left = state.ledger.abandon(ticket);
            state.count_calls();
            left
        });
        if let Some(left) = left {
            self.tell_abandoned(left);
        }
    }

    /// The same for all calls of a session that ends.
    pub(super) fn abandon_all(self: &Arc<Self>, session: SessionKey) {
        for ticket in self.state(|state| state.ledger.tickets_of(session)) {
            self.abandon(&ticket);
        }
    }

    /// Tells the server that these questions of its will not be answered.
    pub(super) fn tell_unanswered(self: &Arc<Self>, ids: Vec<Box<[u8]>>) {
        let text = "The client does not wait any more";
        for id in ids {
            self.send_soon(rpc_error(Some(&id), -32603, text));
        }
    }

    fn tell_abandoned(self: &Arc<Self>, left: Abandoned) {
        // A session may be dropped when the runtime has ended.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        self.tell_unanswered(left.unanswered);
        if let Some(message) = left.cancellation {
            self.send_soon(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::line::{self, Line, Taken};

    fn line_of(number: u64) -> (Line, FarEnd, Hearing) {
        line::open(0, number, Arc::new(Box::new(|_, _| true)))
    }

    async fn next(line: &Line) -> String {
        loop {
            match line.take() {
                Taken::Message(message) => return String::from_utf8(message).unwrap(),
                Taken::Nothing => tokio::task::yield_now().await,
                Taken::Over => panic!("it is over"),
            }
        }
    }

    const GREETING: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;

    #[tokio::test]
    async fn a_server_comes_is_greeted_and_leaves_and_its_sessions_hear_of_it() {
        let changes = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = changes.clone();
        let peer = Peer::awaited(Box::new(move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }));
        let session = Arc::new(peer.join(1, "r", 0));
        let numbers = Arc::new(ReverseNumbers::default());
        let (line, far, hearing) = line_of(1);
        let attending = tokio::spawn(peer.clone().attend(
            far,
            hearing,
            Duration::from_secs(30),
            numbers.clone(),
        ));
        assert!(next(&line).await.contains("\"initialize\""));
        assert!(peer.facts().is_none());
        line.say(GREETING.into());
        assert_eq!(next(&line).await.as_bytes(), stand_in::GREETED);
        let stream = session.outbox.open();
        let changed = stand_in::changed("tools", None);
        assert_eq!(stream.next().await, Some(changed.clone()));
        assert!(peer.facts().is_some());
        let (sink, mut heard) = sink();
        let body = br#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"t"}}"#;
        let message = scan(body, DEPTH_MAX).unwrap();
        peer.request(Caller::from(1), body, &message, sink).unwrap();
        assert!(!line.is_idle());
        drop(line);
        let Some(Told::Answer(failed)) = heard.next().await else {
            panic!("no answer");
        };
        assert!(failed.starts_with(br#"{"jsonrpc":"2.0","id":"x","error""#));
        assert_eq!(stream.next().await, Some(changed));
        attending.await.unwrap();
        assert_eq!(changes.load(std::sync::atomic::Ordering::SeqCst), 2);
        assert!(!peer.is_attached() && !peer.is_gone());
    }

    #[tokio::test]
    async fn one_that_does_not_initialize_is_sent_away() {
        let peer = Peer::awaited(Box::new(|| {}));
        let (line, far, hearing) = line_of(1);
        let numbers = Arc::new(ReverseNumbers::default());
        let patience = Duration::from_secs(30);
        tokio::spawn(peer.clone().attend(far, hearing, patience, numbers));
        next(&line).await;
        line.say(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#.to_vec());
        while line.take() != Taken::Over {
            tokio::task::yield_now().await;
        }
        assert!(!peer.is_attached());
    }
}
