//! One session: whom it belongs to, what was agreed with its client, and its backend sessions.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use shards::notify::{Event, Notify};

use crate::{
    auth::Principal,
    config::compiled::{Backend, VirtualHost},
    mcp::{json, version::Version},
    request::Request,
    route::learned::Learned,
    session::{AskedTable, Calls, SessionId, Streams},
    upstream::{CallFault, Voice, mirrored::Mirrored, target::Target},
};

/// Subscriptions of one session at the most.
const SUBSCRIPTIONS_MAX: usize = 1024;

/// One backend of one state of a virtual host's configuration.
#[derive(Debug, Clone)]
pub struct Place {
    /// The virtual host.
    pub host: Rc<VirtualHost>,
    /// Index of the backend in it.
    pub index: usize,
}

impl Place {
    /// The backend.
    pub fn backend(&self) -> &Backend {
        &self.host.backends[self.index]
    }
}

/// What a session stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// A client's own, with an id it knows.
    Client,
    /// None: what a shard remembers of a virtual host for the requests of one principal that have
    /// no session. It is in no table and has no id that anybody knows.
    Standing,
    /// One request of a client without sessions to a backend that has them.
    Bridged,
}

/// A client's session.
#[derive(Debug)]
pub struct Session {
    /// What it stands for.
    pub kind: SessionKind,
    /// Its id.
    pub id: SessionId,
    /// Fingerprint of the principal that opened it.
    pub principal: [u8; 16],
    /// Name of its virtual host.
    pub virtual_host: Box<str>,
    /// Revision agreed with the client.
    pub version: Version,
    /// The client's `clientInfo`, raw, to introduce it to backends that join late.
    pub client_info: Option<Box<[u8]>>,
    /// The client's capabilities, raw: what backends may ask of it.
    pub client_capabilities: Box<[u8]>,
    /// What the gateway says to backends by itself with.
    pub voice: RefCell<Rc<Voice>>,
    /// When it was opened, ms of the shard's clock.
    pub opened_ms: u64,
    /// When it was last used.
    pub used_ms: Cell<u64>,
    /// Its backend sessions, in the virtual host's backend order.
    pub backends: RefCell<BackendSet>,
    /// Log level its client asked for; backends that open later are told it.
    pub log_level: Cell<Option<&'static str>>,
    /// Its event streams.
    pub streams: Streams,
    /// Its client's requests under way.
    pub calls: Calls,
    /// What backends have asked its client.
    pub asked: RefCell<AskedTable>,
    /// Resources its client has subscribed to: backend key, the backend's own URI.
    pub subscriptions: RefCell<Vec<(Box<str>, Box<str>)>>,
    /// Messages on their way to its backends that want no reply.
    pub saying: Cell<u32>,
    /// Requests of this session under way, without its GET streams.
    pub in_flight: Cell<u32>,
    /// A task is opening backends that were missing.
    pub is_joining: Cell<bool>,
    /// It was ended: nothing may be opened for it any more.
    pub has_ended: Cell<bool>,
    /// What the last merged lists taught.
    pub learned: RefCell<Learned>,
}

/// The backend sessions of a session, for one state of its virtual host's configuration.
#[derive(Debug)]
pub struct BackendSet {
    /// The configuration they follow.
    pub host: Rc<VirtualHost>,
    /// One for each of its backends, in order.
    pub sessions: Vec<Rc<BackendSession>>,
}

/// One backend's part of a session.
#[derive(Debug)]
pub struct BackendSession {
    /// Where it is.
    pub target: Rc<Target>,
    /// What is known of it.
    pub link: RefCell<BackendLink>,
    /// Why it is not open, if an attempt was made.
    pub last_fault: Cell<Option<CallFault>>,
    /// Somebody listens to its own event stream; fired when that is open, or cannot be.
    pub listening: RefCell<Option<Rc<Event>>>,
    /// What the listener is to listen to is another: subscriptions of a stateless backend.
    pub relisten: Notify,
    /// The id of the last event heard there, to go on from.
    pub heard: RefCell<Option<Box<[u8]>>>,
}

/// Where a backend session stands.
#[derive(Debug, Clone)]
pub enum BackendLink {
    /// Not opened, or its last attempt failed.
    Closed,
    /// It is being opened since a time (ms of the shard's clock); wait and look again.
    Opening(Rc<Event>, u64),
    /// In use.
    Open(Rc<OpenBackend>),
}

/// What was agreed with a backend.
pub struct OpenBackend {
    /// The backend's own session id, if it gave one.
    pub session_id: Option<Box<[u8]>>,
    /// Revision the backend answered with.
    pub version: Version,
    /// Its capabilities, raw JSON.
    pub capabilities: Box<[u8]>,
    /// Its instructions, raw JSON string, until the client has been told.
    pub instructions: RefCell<Option<Box<[u8]>>>,
    /// Request head up to and including `content-length: `, ready to send.
    pub head: Box<[u8]>,
    /// It has no event stream of its own.
    pub is_mute: Cell<bool>,
    /// Which arguments of its tools are mirrored in headers, as far as its lists have told.
    pub mirrored: Mirrored,
}

/// Without the head, which may hold a credential.
impl std::fmt::Debug for OpenBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenBackend")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl BackendSession {
    /// A backend session that is not open yet.
    pub fn new(target: Rc<Target>) -> Self {
        Self {
            target,
            link: RefCell::new(BackendLink::Closed),
            last_fault: Cell::new(None),
            listening: RefCell::default(),
            relisten: Notify::default(),
            heard: RefCell::default(),
        }
    }

    /// A request id no other request to its target has: sessions share connections, and a reply
    /// that is not the one to this very request must not pass for it.
    pub fn next_id(&self) -> u64 {
        self.target.next_id()
    }

    /// What was agreed, when it is open.
    pub fn open(&self) -> Option<Rc<OpenBackend>> {
        match &*self.link.borrow() {
            BackendLink::Open(open) => Some(open.clone()),
            BackendLink::Closed | BackendLink::Opening(..) => None,
        }
    }

    /// Forgets `lost`, if that is still what is in use: its session is gone at the backend.
    pub fn forget(&self, lost: &Rc<OpenBackend>) {
        let mut link = self.link.borrow_mut();
        if matches!(&*link, BackendLink::Open(open) if Rc::ptr_eq(open, lost)) {
            *link = BackendLink::Closed;
            self.heard.take();
        }
    }
}

impl Session {
    /// What the gateway says to backends by itself with.
    pub fn voice(&self) -> Rc<Voice> {
        self.voice.borrow().clone()
    }

    /// Keeps the token of a request, for backends that get the caller's: it outlives those before.
    pub fn keep_token(&self, request: &Request, principal: &Rc<Principal>, host: &VirtualHost) {
        if host.passes_tokens && !self.voice.borrow().is_of(principal) {
            let voice = self.voice().with_token(request, principal, host);
            *self.voice.borrow_mut() = Rc::new(voice);
        }
    }

    /// Whether its client has a session with us; otherwise nothing outlives a request.
    pub fn has_client(&self) -> bool {
        self.kind == SessionKind::Client
    }

    /// Whether the client can be asked with this method of a backend (mcp.md 3.2).
    pub fn can_be_asked(&self, method: &[u8]) -> bool {
        let capabilities = &*self.client_capabilities;
        let has = |name| json::member(capabilities, name).is_some();
        match method {
            b"sampling/createMessage" => has("sampling"),
            b"elicitation/create" => has("elicitation"),
            b"roots/list" => has("roots"),
            b"tasks/get" | b"tasks/result" | b"tasks/list" | b"tasks/cancel" => has("tasks"),
            // What the protocol does not know is the client's to refuse.
            _ => true,
        }
    }

    /// Remembers a subscription; false: there are too many.
    pub fn subscribe(&self, backend: &str, uri: &str) -> bool {
        let mut all = self.subscriptions.borrow_mut();
        if all
            .iter()
            .any(|(key, known)| **key == *backend && **known == *uri)
        {
            return true;
        }
        if all.len() >= SUBSCRIPTIONS_MAX {
            return false;
        }
        all.push((backend.into(), uri.into()));
        true
    }

    /// Forgets a subscription.
    pub fn unsubscribe(&self, backend: &str, uri: &str) {
        let mut all = self.subscriptions.borrow_mut();
        all.retain(|(key, known)| **key != *backend || **known != *uri);
    }

    /// Whether the client has subscribed to this resource of a backend, or to one it lies under
    /// (mcp.md 3.4, 13).
    pub fn is_subscribed(&self, backend: &str, uri: &str) -> bool {
        is_subscribed(&self.subscriptions.borrow(), backend, uri)
    }

    /// The URIs its client has subscribed to at a backend.
    pub fn subscriptions_at(&self, backend: &str) -> Vec<Box<str>> {
        let all = self.subscriptions.borrow();
        let own = all.iter().filter(|(key, _)| **key == *backend);
        own.map(|(_, uri)| uri.clone()).collect()
    }

    /// The backend sessions, brought in line with `host`, the virtual host's configuration as it is
    /// now: backends that stayed keep theirs, new ones start closed. What fell away is returned.
    pub fn follow(&self, host: &Rc<VirtualHost>) -> Vec<Rc<BackendSession>> {
        let mut set = self.backends.borrow_mut();
        if Rc::ptr_eq(&set.host, host) {
            return Vec::new();
        }
        let mut left: Vec<Option<Rc<BackendSession>>> = std::mem::take(&mut set.sessions)
            .into_iter()
            .map(Some)
            .collect();
        let old = set.host.clone();
        let sessions = host
            .backends
            .iter()
            .map(|backend| {
                let kept = old
                    .backends
                    .iter()
                    .position(|known| known.key == backend.key && known.same_target(backend))
                    .and_then(|index| left[index].take());
                kept.unwrap_or_else(|| Rc::new(BackendSession::new(backend.target.clone())))
            })
            .collect();
        *set = BackendSet {
            host: host.clone(),
            sessions,
        };
        self.learned.take();
        left.into_iter().flatten().collect()
    }

    /// The session with the backend at `index` of `host`; `None` when the configuration has changed
    /// since the caller looked at it: an index means another backend then.
    pub fn backend(&self, host: &Rc<VirtualHost>, index: usize) -> Option<Rc<BackendSession>> {
        let set = self.backends.borrow();
        let is_current = Rc::ptr_eq(&set.host, host);
        is_current.then(|| set.sessions.get(index).cloned())?
    }

    /// Whether this backend session has not fallen away with a change of the configuration.
    pub fn holds(&self, link: &Rc<BackendSession>) -> bool {
        let set = self.backends.borrow();
        set.sessions.iter().any(|held| Rc::ptr_eq(held, link))
    }

    /// All backend sessions, in order.
    pub fn all_backends(&self) -> Vec<Rc<BackendSession>> {
        self.backends.borrow().sessions.clone()
    }
}

fn is_subscribed(all: &[(Box<str>, Box<str>)], backend: &str, uri: &str) -> bool {
    all.iter().any(|(key, known)| {
        **key == *backend
            && uri.strip_prefix(&**known).is_some_and(|rest| {
                rest.is_empty() || known.ends_with('/') || rest.starts_with(['/', '#', '?'])
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a session costs while nothing happens (bytes; what it points to comes on top). A limit
    /// to be raised knowingly: every session pays.
    #[test]
    fn an_idle_session_is_small() {
        assert!(size_of::<Session>() <= 600, "{}", size_of::<Session>());
        assert!(size_of::<BackendSession>() <= 128);
        assert!(size_of::<OpenBackend>() <= 160);
    }

    #[test]
    fn updates_of_what_lies_under_a_subscription_count() {
        let all = RefCell::new(vec![(Box::from("a"), Box::from("x://dir"))]);
        let is_in = |backend, uri| is_subscribed(&all.borrow(), backend, uri);
        for uri in ["x://dir", "x://dir/file", "x://dir#part", "x://dir?q"] {
            assert!(is_in("a", uri), "{uri}");
        }
        for (backend, uri) in [("a", "x://directory"), ("b", "x://dir"), ("a", "x://")] {
            assert!(!is_in(backend, uri), "{backend} {uri}");
        }
    }
}
