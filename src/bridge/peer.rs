//! A server on the far side of the bridge, a child process, an HTTP+SSE stream or a connection that
//! it has opened itself, and the sessions that use it: one, or many when it is shared.

mod attached;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::HeaderMap;
use tokio::sync::mpsc;

use self::attached::Attached;
pub(super) use self::attached::OnChange;
use super::{
    child::Child,
    ledger::{Caller, Incoming, Ledger, Refused, SessionKey, Ticket},
    line::{FarEnd, Speech},
    outbox::Outbox,
    remote::{PostFault, Reading, Remote},
    stand_in,
};
use crate::{mcp::envelope::Envelope, refusal::rpc_error};

/// What waits of one call's reply, in messages and bytes: what finds no room is dropped, but the
/// answer never.
const TOLD_MAX: (usize, usize) = (64, 4 << 20);
/// How long a server may take to read a message.
const SEND_PATIENCE: Duration = Duration::from_secs(15);

/// What a caller is told.
#[derive(Debug)]
pub(super) enum Told {
    /// Something beside the answer.
    Aside(Vec<u8>),
    /// The answer: nothing follows.
    Answer(Vec<u8>),
}

/// Where what a caller is told goes.
#[derive(Debug, Clone)]
pub(super) struct Sink {
    sender: mpsc::Sender<Told>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Where a caller hears it.
#[derive(Debug)]
pub(super) struct Heard {
    receiver: mpsc::Receiver<Told>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Both ends for one caller.
pub(super) fn sink() -> (Sink, Heard) {
    let (sender, receiver) = mpsc::channel(TOLD_MAX.0);
    let waiting_bytes = Arc::new(AtomicUsize::new(0));
    let heard = Heard {
        receiver,
        waiting_bytes: waiting_bytes.clone(),
    };
    let sink = Sink {
        sender,
        waiting_bytes,
    };
    (sink, heard)
}

impl Heard {
    /// What comes next; `None`: the server is gone.
    pub(super) async fn next(&mut self) -> Option<Told> {
        let told = self.receiver.recv().await?;
        if let Told::Aside(document) = &told {
            self.waiting_bytes
                .fetch_sub(document.len(), Ordering::Relaxed);
        }
        Some(told)
    }
}

impl Sink {
    fn answer(&self, document: Vec<u8>) {
        // There is always room for it; whoever waited may have left.
        let _ = self.sender.try_send(Told::Answer(document));
    }

    /// Leaves the last place for the answer. One that is large may wait alone. False: no room.
    fn aside(&self, document: Vec<u8>) -> bool {
        let size = document.len();
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        let has_room = waiting == 0 || waiting + size <= TOLD_MAX.1;
        let is_taken = self.sender.capacity() > 1 && has_room;
        if is_taken {
            self.waiting_bytes.fetch_add(size, Ordering::Relaxed);
            // Whoever waited may have left.
            let _ = self.sender.try_send(Told::Aside(document));
        }
        is_taken
    }
}

/// A message did not reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendFault {
    /// It is gone, or does not know the session.
    Gone,
    /// It refused with an HTTP status.
    Status(u16),
    /// It did not take it in time.
    Late,
}

/// How messages reach the server.
#[derive(Debug)]
pub(super) enum Outlet {
    /// A child's standard input.
    Child(Child),
    /// POSTs to an HTTP+SSE server, for as long as its stream is read.
    Remote {
        /// Sends them.
        remote: Arc<Remote>,
        /// Held for its being dropped.
        _reading: Reading,
    },
    /// The line of a reverse-connected server, for as long as it is there.
    Reverse(FarEnd),
}

/// What a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerKind {
    /// A child process.
    Child,
    /// An HTTP+SSE server.
    Remote,
    /// One that connects to us: it comes and goes while its sessions stay.
    Reverse,
}

/// What is held while a message is sent: never what keeps the server alive.
enum Way {
    Child(mpsc::Sender<Vec<u8>>),
    Remote(Arc<Remote>),
    Reverse(Speech),
}

/// A server.
pub(super) struct Peer {
    /// Several sessions use it.
    pub(super) is_shared: bool,
    /// What it is.
    pub(super) kind: PeerKind,
    outlet: Mutex<Option<Outlet>>,
    state: Mutex<State>,
    /// The raw result of the first `initialize`, when it is shared.
    pub(super) handshake: tokio::sync::Mutex<Option<Vec<u8>>>,
    /// It was told `notifications/initialized`.
    pub(super) is_initialized: AtomicBool,
}

struct State {
    ledger: Ledger<Sink>,
    sessions: HashMap<SessionKey, Arc<Outbox>>,
    empty_since: Instant,
    is_gone: bool,
    /// The reverse-connected server that is there.
    attached: Option<Attached>,
    /// Called when one of its lists is another, before its sessions are told.
    on_change: Option<OnChange>,
}

/// A session of the bridge.
pub(super) struct Session {
    /// Its server.
    pub(super) peer: Arc<Peer>,
    /// Its number.
    pub(super) key: SessionKey,
    /// The path it was opened under.
    pub(super) route: Box<str>,
    /// What waits for its GET stream.
    pub(super) outbox: Arc<Outbox>,
    /// Milliseconds of the bridge's clock when it was last used.
    pub(super) used_ms: AtomicU64,
}

impl Session {
    /// Ends it, and a server of its own with it.
    pub(super) fn end(&self) {
        self.outbox.close();
        self.peer.leave(self.key);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

impl Peer {
    /// A server that hears through `outlet` and speaks through `lines`. `on_end` is called when it
    /// ends by itself.
    pub(super) fn start(
        outlet: Outlet,
        mut lines: mpsc::Receiver<Vec<u8>>,
        is_shared: bool,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        let kind = match &outlet {
            Outlet::Child(_) => PeerKind::Child,
            Outlet::Remote { .. } => PeerKind::Remote,
            Outlet::Reverse(_) => PeerKind::Reverse,
        };
        let peer = Arc::new(Self::new(kind, Some(outlet), is_shared));
        let known = Arc::downgrade(&peer);
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                let Some(peer) = known.upgrade() else { return };
                peer.hear(line);
            }
            if let Some(peer) = known.upgrade()
                && !peer.is_gone()
            {
                on_end();
                peer.end();
            }
        });
        peer
    }

    fn new(kind: PeerKind, outlet: Option<Outlet>, is_shared: bool) -> Self {
        Self {
            is_shared,
            kind,
            outlet: Mutex::new(outlet),
            state: Mutex::new(State {
                ledger: Ledger::new(is_shared),
                sessions: HashMap::new(),
                empty_since: Instant::now(),
                is_gone: false,
                attached: None,
                on_change: None,
            }),
            handshake: tokio::sync::Mutex::new(None),
            is_initialized: AtomicBool::new(false),
        }
    }

    fn state<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        // What is in it holds between any two statements.
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a session.
    pub(super) fn join(self: &Arc<Self>, key: SessionKey, route: &str, now_ms: u64) -> Session {
        let outbox = Arc::new(Outbox::default());
        self.state(|state| state.sessions.insert(key, outbox.clone()));
        Session {
            peer: self.clone(),
            key,
            route: route.into(),
            outbox,
            used_ms: AtomicU64::new(now_ms),
        }
    }

    fn leave(self: &Arc<Self>, key: SessionKey) {
        if self.kind == PeerKind::Reverse {
            self.abandon_all(key);
        }
        let is_last = self.state(|state| {
            state.sessions.remove(&key);
            state.ledger.forget_session(key);
            state.empty_since = Instant::now();
            state.sessions.is_empty()
        });
        if is_last && !self.is_shared {
            self.end();
        }
    }

    /// Since when no session uses it; `None`: one does.
    pub(super) fn empty_since(&self) -> Option<Instant> {
        self.state(|state| state.sessions.is_empty().then_some(state.empty_since))
    }

    /// Whether it has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.state(|state| state.is_gone)
    }

    /// Ends it: a child is killed, a stream closed. Its callers are told nothing more.
    pub(super) fn end(&self) {
        let outboxes: Vec<_> = self.state(|state| {
            state.is_gone = true;
            state.ledger.clear();
            state.sessions.values().cloned().collect()
        });
        for outbox in outboxes {
            outbox.close();
        }
        drop(
            self.outlet
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    /// Enters a request; the sink hears of it, and is dropped when the server goes.
    pub(super) fn request(
        &self,
        caller: Caller,
        body: &[u8],
        message: &Envelope,
        sink: Sink,
    ) -> Result<(Ticket, Vec<u8>), Refused> {
        self.state(|state| {
            if state.is_gone {
                return Err(Refused::Gone);
            }
            let entered = state.ledger.request(caller, body, message, sink);
            state.count_calls();
            entered
        })
    }

    /// What the server is told of a notification or a response.
    pub(super) fn other(
        self: &Arc<Self>,
        key: SessionKey,
        body: &[u8],
        message: &Envelope,
    ) -> Option<Vec<u8>> {
        let (line, unanswered) = self.state(|state| {
            let line = state.ledger.other(key, body, message);
            state.count_calls();
            (line, state.ledger.unanswered())
        });
        self.tell_unanswered(unanswered);
        line
    }

    /// Forgets a call.
    pub(super) fn forget(self: &Arc<Self>, ticket: &Ticket) {
        match self.kind {
            PeerKind::Reverse => self.abandon(ticket),
            PeerKind::Child | PeerKind::Remote => {
                self.state(|state| state.ledger.forget(ticket));
            }
        }
    }

    /// Sends a message on its way; `headers` go with it where there are any.
    pub(super) async fn send(&self, message: Vec<u8>, headers: HeaderMap) -> Result<(), SendFault> {
        let way = match &*self.outlet.lock().unwrap_or_else(PoisonError::into_inner) {
            None => return Err(SendFault::Gone),
            Some(Outlet::Child(child)) => Way::Child(child.input.clone()),
            Some(Outlet::Remote { remote, .. }) => Way::Remote(remote.clone()),
            Some(Outlet::Reverse(far)) => Way::Reverse(far.speech()),
        };
        match way {
            Way::Child(input) => {
                match tokio::time::timeout(SEND_PATIENCE, input.send(message)).await {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(_)) => Err(SendFault::Gone),
                    Err(_) => Err(SendFault::Late),
                }
            }
            Way::Reverse(speech) => {
                match tokio::time::timeout(SEND_PATIENCE, speech.send(message)).await {
                    Ok(true) => {
                        self.count_sent();
                        Ok(())
                    }
                    Ok(false) => Err(SendFault::Gone),
                    Err(_) => Err(SendFault::Late),
                }
            }
            Way::Remote(remote) => match remote.post(message, headers).await {
                Ok(()) => Ok(()),
                Err(PostFault::Status(404 | 410)) => Err(SendFault::Gone),
                Err(PostFault::Status(status)) => Err(SendFault::Status(status)),
                Err(PostFault::Late) => Err(SendFault::Late),
                Err(PostFault::Unreachable) => Err(SendFault::Status(502)),
            },
        }
    }

    /// Takes in a message of the server.
    fn hear(self: &Arc<Self>, line: Vec<u8>) {
        let answer = self.state(|state| match state.ledger.incoming(&line) {
            Incoming::Answer(sink, document) => {
                sink.answer(document);
                state.count_calls();
                None
            }
            Incoming::Progress(sink, document) => {
                sink.aside(document);
                None
            }
            Incoming::Request(true, id) => Some(pong(&id)),
            Incoming::Request(false, id) if self.kind == PeerKind::Reverse => {
                let is_asked = match state.ledger.ask(&line) {
                    Some((sink, question)) => sink.aside(question),
                    None => false,
                };
                if is_asked {
                    return None;
                }
                state.ledger.unask(&id);
                Some(rpc_error(Some(&id), -32603, stand_in::WHOM))
            }
            Incoming::Withdrawal => {
                if let Some((sink, told)) = state.ledger.withdrawn(&line) {
                    sink.aside(told);
                }
                None
            }
            Incoming::Request(false, id) if self.is_shared => {
                // It is nobody's in particular.
                Some(rpc_error(Some(&id), -32601, "Method not found"))
            }
            Incoming::Request(false, _) => {
                self.pass_request(state, line);
                None
            }
            Incoming::Notification(is_for_all) => {
                match self.kind {
                    PeerKind::Reverse => state.list_changed(&line),
                    _ if is_for_all || !self.is_shared => {
                        for outbox in state.sessions.values() {
                            outbox.push(line.clone());
                        }
                    }
                    PeerKind::Child | PeerKind::Remote => {}
                }
                None
            }
            Incoming::Nothing => None,
        });
        if let Some(answer) = answer {
            self.send_soon(answer);
        }
    }

    /// Sends a message in a task of its own.
    fn send_soon(self: &Arc<Self>, message: Vec<u8>) {
        let peer: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            if let Some(peer) = peer.upgrade() {
                // A server that does not hear its answer has its own limit.
                let _ = peer.send(message, HeaderMap::new()).await;
            }
        });
    }

    /// A request of the server goes to the session's stream. When none is open it may belong to a
    /// running call, whose stream takes it then (mcp.md 1.2).
    fn pass_request(&self, state: &State, line: Vec<u8>) {
        let Some(outbox) = state.sessions.values().next() else {
            return;
        };
        match state.ledger.newest() {
            Some(sink) if !outbox.is_open() => {
                sink.aside(line);
            }
            _ => outbox.push(line),
        }
    }

    /// Marks that `notifications/initialized` is on its way; false when it was before.
    pub(super) fn initialized(&self) -> bool {
        !self.is_initialized.swap(true, Ordering::Relaxed)
    }
}

fn pong(id: &[u8]) -> Vec<u8> {
    let mut answer = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    answer.extend_from_slice(id);
    answer.extend_from_slice(br#","result":{}}"#);
    answer
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer")
            .field("is_shared", &self.is_shared)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_answer_finds_room_whatever_waits() {
        let (sink, mut heard) = sink();
        for _ in 0..2 * TOLD_MAX.0 {
            sink.aside(vec![b'x'; 10]);
        }
        sink.answer(b"answer".to_vec());
        for _ in 1..TOLD_MAX.0 {
            assert!(matches!(heard.next().await, Some(Told::Aside(_))));
        }
        assert!(matches!(heard.next().await, Some(Told::Answer(_))));
        drop(sink);
        assert!(heard.next().await.is_none());
    }

    #[tokio::test]
    async fn what_waits_is_bounded_in_bytes() {
        let (sink, mut heard) = sink();
        // One may be larger than the bound.
        sink.aside(vec![0; TOLD_MAX.1 + 1]);
        sink.aside(vec![0; 1]);
        assert!(heard.next().await.is_some());
        sink.aside(vec![0; TOLD_MAX.1 / 2]);
        sink.aside(vec![0; TOLD_MAX.1 / 2]);
        sink.aside(vec![0; 1]);
        drop(sink);
        let mut count = 0;
        while heard.next().await.is_some() {
            count += 1;
        }
        assert_eq!(count, 2);
    }
}
