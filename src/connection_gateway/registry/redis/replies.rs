//! The owner's side of requests from other nodes: they come through the session's mailbox, and what
//! the client answers goes to the inbox of whoever asked, many answers in one command.
//!
//! Answers are numbered. One whose fate is unknown is sent again, since the other side drops what
//! it has; a node of the original could not, so there the request fails instead.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
    time::Duration,
};

use hashbrown::HashMap;
use shards::{deadline::now_ms, notify::Notify};

use super::{
    Cluster,
    entry::{Entry, EntryId, Post, Wanted},
    script::{Script, is_unknown},
    shared::{Answers, Caller, Shared},
};
use crate::{
    connection_gateway::{
        envelope::{Envelope, Kind, failure_line},
        fault::Fault,
        node::Node,
        session::{Now, Session, Status},
        session_id::SessionId,
    },
    redis::{RedisFault, Reply},
    shard_state::ShardState,
};

/// Answers in one command, and their bytes.
const BATCH_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Entries of an inbox that is not read.
const INBOX_MAX: &[u8] = b"16384";
/// Entries of one mailbox that one command of a script deletes.
const TAKEN_MAX: usize = 1_000;
/// How long entries that were taken may wait to be deleted with the next answers.
const TAKEN_MS_MAX: u64 = 1_000;
/// Outstanding requests of other nodes to one session.
const CALLERS_MAX: usize = 4_096;
/// How long a request of the original's is answered; it does not say.
const ORIGINAL_MS: u64 = 600_000;
/// A request is forgotten so long after its caller's time.
const GRACE_MS: u64 = 1_000;
/// Before a command is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

static ANSWER: Script = Script::new(
    r#"
-- KEYS: inbox or reply mailbox of each answer, then each mailbox with something taken.
-- ARGV: time to live, entries of an inbox, answers; of each: call (empty: to a reply mailbox), number,
--   last, envelope; of each mailbox: how many entries, and their ids.
-- The answers whose inbox is full, by their place.
local count, at, refused = tonumber(ARGV[3]), 4, {}
for i = 1, count do
  local key, call = KEYS[i], ARGV[at]
  if call == '' then
    redis.call('XADD', key, '*', 'envelope', ARGV[at + 3])
  elseif redis.call('XLEN', key) >= tonumber(ARGV[2]) then
    refused[#refused + 1] = i
  else
    redis.call('XADD', key, '*', 'call', call, 'n', ARGV[at + 1], 'last', ARGV[at + 2],
      'envelope', ARGV[at + 3])
  end
  redis.call('PEXPIRE', key, ARGV[1])
  at = at + 4
end
for i = count + 1, #KEYS do
  local ids = tonumber(ARGV[at])
  redis.call('XDEL', KEYS[i], unpack(ARGV, at + 1, at + ids))
  at = at + 1 + ids
end
return refused
"#,
);

/// What is to be sent.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    answers: RefCell<VecDeque<Answer>>,
    taken: RefCell<HashMap<SessionId, Vec<EntryId>>>,
    taken_count: Cell<usize>,
    taken_since: Cell<u64>,
    /// There is something, or the end.
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct Answer {
    session: Rc<Session>,
    request_id: Box<str>,
    to: To,
    envelope: Vec<u8>,
}

#[derive(Debug)]
enum To {
    Inbox {
        inbox: Rc<str>,
        call: u64,
        number: u64,
        is_last: bool,
    },
    ReplyMailbox,
}

/// What goes in one command.
#[derive(Debug, Default)]
struct Batch {
    answers: Vec<Answer>,
    taken: Vec<(SessionId, Vec<EntryId>)>,
}

impl Outgoing {
    /// An entry was taken from a mailbox.
    fn taken(&self, session: SessionId, entry: EntryId, max: usize) {
        self.taken
            .borrow_mut()
            .entry(session)
            .or_default()
            .push(entry);
        if self.taken_count.replace(self.taken_count.get() + 1) == 0 {
            self.taken_since.set(now_ms());
        }
        if self.taken_count.get() >= max {
            self.changed.notify();
        }
    }

    pub(super) fn sweep(&self, now_ms: u64) {
        let age = now_ms.saturating_sub(self.taken_since.get());
        if self.taken_count.get() > 0 && age >= TAKEN_MS_MAX {
            self.changed.notify();
        }
    }

    fn batch(&self) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        let mut answers = self.answers.borrow_mut();
        while bytes < BATCH_BYTES_MAX
            && batch.answers.len() < BATCH_MAX
            && let Some(answer) = answers.pop_front()
        {
            bytes += answer.envelope.len();
            batch.answers.push(answer);
        }
        self.taken_count.set(0);
        for (session, taken) in self.taken.borrow_mut().drain() {
            let parts = taken.chunks(TAKEN_MAX);
            batch
                .taken
                .extend(parts.map(|part| (session, part.to_vec())));
        }
        (!batch.answers.is_empty() || !batch.taken.is_empty()).then_some(batch)
    }
}

impl Shared {
    /// Forgets a request that nobody waits for any more; whether there was one.
    pub(super) fn drop_caller(&self, request_id: &str, inbox: &str, call: u64) -> bool {
        let mut callers = self.callers.borrow_mut();
        let is_it = callers.get(request_id).is_some_and(|caller| {
            matches!(&caller.answers, Answers::Inbox { inbox: to, call: number, .. }
                if **to == *inbox && *number == call)
        });
        is_it && callers.remove(request_id).is_some()
    }
}

/// Sends for as long as the shard lives.
pub(super) async fn run(cluster: Rc<Cluster>, state: Weak<ShardState>) {
    loop {
        cluster.outgoing.changed.wait().await;
        let Some(state) = state.upgrade() else {
            return;
        };
        let Some(node) = state.connection_gateway.clone() else {
            return;
        };
        // A drain waits for the last answers.
        let _pass = state.shard.gate.enter();
        while let Some(batch) = cluster.outgoing.batch() {
            cluster.send(&node, batch).await;
        }
        if cluster.is_stopped() {
            return;
        }
    }
}

impl Cluster {
    /// Something for the client of a session has come through its mailbox.
    pub(super) fn posted(&self, node: &Node, session: &Rc<Session>, entry: &Entry) {
        let max = self.limits.taken_max;
        self.outgoing.taken(session.id, entry.id, max);
        let Some(post) = Post::of(entry) else {
            return;
        };
        let Some(envelope) = Envelope::parse(post.envelope) else {
            return;
        };
        if let Err(fault) = self.admit(node, session, &envelope, &post.answers) {
            if let Wanted::Inbox { inbox, call, .. } = post.answers {
                let to = To::Inbox {
                    inbox: inbox.into(),
                    call,
                    number: 0,
                    is_last: true,
                };
                self.fail(node, session, &envelope, to, &fault.message());
            }
            return;
        }
        node.push(session, post.envelope.as_bytes());
    }

    /// Whether it may go to the client, and who waits for what it answers.
    fn admit(
        &self,
        node: &Node,
        session: &Rc<Session>,
        envelope: &Envelope<'_>,
        answers: &Wanted<'_>,
    ) -> Result<(), Fault> {
        session.check_from_caller(envelope)?;
        if session.outbox.is_closing() {
            return Err(Fault::NotConnected(Status::Closed.word()));
        }
        let Some(request_id) = envelope.request_id.as_deref() else {
            return Ok(());
        };
        let (answers, for_ms) = match answers {
            Wanted::No => return Ok(()),
            Wanted::ReplyMailbox if envelope.kind != Kind::Request => return Ok(()),
            Wanted::ReplyMailbox => (Answers::ReplyMailbox, ORIGINAL_MS),
            Wanted::Inbox {
                inbox,
                call,
                for_ms,
            } => {
                let answers = Answers::Inbox {
                    inbox: (*inbox).into(),
                    call: *call,
                    next: 0,
                };
                (answers, for_ms.saturating_add(GRACE_MS))
            }
        };
        if session.exchanges.borrow().contains_key(request_id) {
            return Err(Fault::DuplicateRequest);
        }
        let mut callers = session.shared.callers.borrow_mut();
        if callers.contains_key(request_id) {
            return Err(Fault::DuplicateRequest);
        }
        if callers.len() >= CALLERS_MAX {
            return Err(Fault::ResourceLimit(
                "maxInFlightPerSession",
                node.settings.in_flight_max as u64,
            ));
        }
        let caller = Caller {
            answers,
            capability: envelope.capability.as_deref().map(Box::from),
            until_ms: now_ms().saturating_add(for_ms),
        };
        callers.insert(request_id.into(), caller);
        Ok(())
    }

    /// Hands an envelope of the client to the node that waits for it; false: none does.
    pub(in crate::connection_gateway) fn relay(
        &self,
        node: &Node,
        session: &Rc<Session>,
        envelope: &Envelope<'_>,
    ) -> bool {
        let Some(request_id) = envelope.request_id.as_deref() else {
            return false;
        };
        let mut written = Vec::with_capacity(256 + envelope.payload.map_or(0, str::len));
        let is_last = envelope.is_terminal();
        let mut callers = session.shared.callers.borrow_mut();
        let Some(caller) = callers.get_mut(request_id) else {
            return false;
        };
        envelope.write(&mut written);
        let to = caller.next(is_last);
        if is_last {
            callers.remove(request_id);
        }
        drop(callers);
        self.queue(node, session, request_id, to, written);
        true
    }

    /// Ends all requests of other nodes to a session with a line that says why.
    pub(in crate::connection_gateway) fn fail_callers(
        &self,
        node: &Node,
        session: &Rc<Session>,
        reason: &str,
    ) {
        let callers = std::mem::take(&mut *session.shared.callers.borrow_mut());
        for (request_id, mut caller) in callers {
            let to = caller.next(true);
            let capability = caller.capability.as_deref();
            let line = session_line(session, &request_id, capability, reason);
            self.queue(node, session, &request_id, to, line);
        }
    }

    /// Forgets requests whose caller has given up by now.
    pub(in crate::connection_gateway) fn forget_callers(&self, session: &Session, now_ms: u64) {
        let mut callers = session.shared.callers.borrow_mut();
        callers.retain(|_, caller| caller.until_ms > now_ms);
    }

    fn fail(
        &self,
        node: &Node,
        session: &Rc<Session>,
        envelope: &Envelope<'_>,
        to: To,
        reason: &str,
    ) {
        let request_id = envelope.request_id.as_deref().unwrap_or_default();
        let capability = envelope.capability.as_deref();
        let line = session_line(session, request_id, capability, reason);
        self.queue(node, session, request_id, to, line);
    }

    /// What waits counts as an answer that waits for a caller: too much of it, and the client
    /// waits.
    fn queue(
        &self,
        node: &Node,
        session: &Rc<Session>,
        request_id: &str,
        to: To,
        envelope: Vec<u8>,
    ) {
        node.buffer(session, envelope.len());
        let answer = Answer {
            session: session.clone(),
            request_id: request_id.into(),
            to,
            envelope,
        };
        self.outgoing.answers.borrow_mut().push_back(answer);
        self.outgoing.changed.notify();
    }

    /// Sends a batch, again and again if it must be, for the time of a lease.
    async fn send(&self, node: &Node, mut batch: Batch) {
        let began = now_ms();
        loop {
            let fault = match self.try_send(&batch).await {
                Ok(refused) => {
                    for place in refused {
                        // Its node reads nothing: it has ended, or will find what is missing.
                        if let Some(answer) = batch.answers.get(place) {
                            answer.give_up();
                        }
                    }
                    break;
                }
                Err(fault) => fault,
            };
            if is_unknown(&fault) {
                self.spare_originals(node, &mut batch);
            }
            let is_late = now_ms().saturating_sub(began) >= self.limits.lease_ms;
            if is_late || self.is_stopped() || fault == RedisFault::TooLarge {
                batch.answers.iter().for_each(Answer::give_up);
                break;
            }
            shards::sleep(RETRY_PAUSE).await;
        }
        for answer in &batch.answers {
            node.unbuffer(&answer.session, answer.envelope.len());
        }
    }

    /// Answers to nodes of the original may have arrived, and must not twice: these requests fail.
    fn spare_originals(&self, node: &Node, batch: &mut Batch) {
        let (ours, theirs): (Vec<_>, Vec<_>) = std::mem::take(&mut batch.answers)
            .into_iter()
            .partition(|answer| matches!(answer.to, To::Inbox { .. }));
        batch.answers = ours;
        for answer in theirs {
            node.unbuffer(&answer.session, answer.envelope.len());
            let caller = answer.forget();
            // Once for each request; of one that had its last line nothing more can be said.
            if let Some(caller) = caller {
                let reason = "Gateway could not tell whether an answer arrived";
                let capability = caller.capability.as_deref();
                let line = session_line(&answer.session, &answer.request_id, capability, reason);
                let id = answer.request_id.clone();
                self.queue(node, &answer.session, &id, To::ReplyMailbox, line);
            }
        }
    }

    async fn try_send(&self, batch: &Batch) -> Result<Vec<usize>, RedisFault> {
        let count = batch.answers.len();
        let mut names: Vec<String> = Vec::with_capacity(count + batch.taken.len());
        let mut texts: Vec<[Vec<u8>; 3]> = Vec::with_capacity(count);
        for answer in &batch.answers {
            let text = |number: u64| number.to_string().into_bytes();
            match &answer.to {
                To::Inbox {
                    inbox,
                    call,
                    number,
                    is_last,
                } => {
                    names.push(inbox.to_string());
                    texts.push([text(*call), text(*number), text(u64::from(*is_last))]);
                }
                To::ReplyMailbox => {
                    let id = answer.session.id;
                    names.push(self.keys.reply_mailbox(id.as_str(), &answer.request_id));
                    texts.push(Default::default());
                }
            }
        }
        let mut ids: Vec<Vec<u8>> = Vec::new();
        for (session, taken) in &batch.taken {
            names.push(self.keys.mailbox(session.as_str()));
            ids.push(taken.len().to_string().into_bytes());
            ids.extend(taken.iter().map(|entry| entry.to_bytes()));
        }
        let count = count.to_string();
        let mut arguments: Vec<&[u8]> = vec![&self.limits.session_ttl, INBOX_MAX, count.as_bytes()];
        for (answer, texts) in batch.answers.iter().zip(&texts) {
            arguments.extend(texts.iter().map(Vec::as_slice));
            arguments.push(&answer.envelope);
        }
        arguments.extend(ids.iter().map(Vec::as_slice));
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        match self.timed(&ANSWER, &names, &arguments).await? {
            Reply::Array(refused) => Ok(refused
                .into_iter()
                .filter_map(|place| match place {
                    Reply::Integer(place) => usize::try_from(place - 1).ok(),
                    _ => None,
                })
                .collect()),
            _ => Err(RedisFault::Unexpected),
        }
    }
}

impl Caller {
    /// Where the next answer goes.
    fn next(&mut self, is_last: bool) -> To {
        match &mut self.answers {
            Answers::Inbox { inbox, call, next } => {
                *next += 1;
                To::Inbox {
                    inbox: inbox.clone(),
                    call: *call,
                    number: *next - 1,
                    is_last,
                }
            }
            Answers::ReplyMailbox => To::ReplyMailbox,
        }
    }
}

impl Answer {
    /// Takes its request out of the session, if it is still there.
    fn forget(&self) -> Option<Caller> {
        let mut callers = self.session.shared.callers.borrow_mut();
        let is_it =
            callers
                .get(&self.request_id)
                .is_some_and(|caller| match (&caller.answers, &self.to) {
                    (Answers::ReplyMailbox, To::ReplyMailbox) => true,
                    (
                        Answers::Inbox { inbox, call, .. },
                        To::Inbox {
                            inbox: to,
                            call: number,
                            ..
                        },
                    ) => inbox == to && call == number,
                    _ => false,
                });
        is_it.then(|| callers.remove(&self.request_id)).flatten()
    }

    /// It does not arrive: the rest of its request is for nobody.
    fn give_up(&self) {
        self.forget();
    }
}

fn session_line(
    session: &Session,
    request_id: &str,
    capability: Option<&str>,
    reason: &str,
) -> Vec<u8> {
    failure_line(
        (
            session.id,
            session.generation,
            &session.claims.consumer_type,
        ),
        (request_id, capability),
        reason,
        Now::read().unix_ms,
    )
}
