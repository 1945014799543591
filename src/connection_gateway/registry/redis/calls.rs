//! Requests of callers of this shard to sessions of other nodes: published in one script, answered
//! through the inbox, looked after while their answers are outstanding.
//!
//! How many may be outstanding for one session is counted here, by the node that publishes. A
//! publication whose fate is unknown is never repeated: its caller is told.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use hashbrown::HashMap;
use shards::{buffer::BufferPool, deadline::now_ms};

use super::{
    Cluster, away,
    entry::{Entry, EntryId, Place, place},
    record::Record,
    script::{Script, with_state},
};
use crate::{
    connection_gateway::{
        envelope::{Envelope, failure_line},
        exchange::{Coding, Exchange},
        fault::Fault,
        node::{MessageId, Node},
        session::{Now, Status, Terms},
        session_id::SessionId,
        timers::Due,
    },
    redis::{RedisFault, Reply},
};

/// Sessions of other nodes that are remembered, and for how long after their last use.
const REMOTES_MAX: usize = 10_000;
const REMOTE_MS: u64 = 60_000;
/// A session that is closed or gone is looked at once more after so long: what its owner has said
/// last may be on its way.
const LAST_WORDS_MS: u64 = 300;
/// Looks at a session in the time of a lease.
const LOOKS: u64 = 3;

static PUBLISH: Script = Script::new(with_state!(
    r#"
-- KEYS: record, mailbox, our inbox, reply mailbox.
-- ARGV: now, entries of a mailbox, time to live, generation, envelope, our inbox or nothing, call,
--   how long it is waited for, until where our inbox was read.
local found = state(KEYS[1])
if not found or found[1] <= tonumber(ARGV[1]) then return {'gone'} end
if found[3] ~= 'connected' then return {'closed'} end
if found[4] ~= tonumber(ARGV[4]) then return {'gone'} end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then return {'full'} end
if found[5] == '' and ARGV[6] ~= '' then
  -- Its owner is a node of the original: what an earlier request of this id has left is not ours.
  redis.call('DEL', KEYS[4])
  redis.call('XADD', KEYS[3], '*', 'wake', '1')
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
end
local id = redis.call('XADD', KEYS[2], '*', 'envelope', ARGV[5], 'inbox', ARGV[6], 'call', ARGV[7],
  'timeout', ARGV[8])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('XTRIM', KEYS[3], 'MINID', ARGV[9])
return {'sent', id, found[1]}
"#
));

static LOOK: Script = Script::new(with_state!(
    r#"
-- KEYS: record. The end of its lease and its status.
local found = state(KEYS[1])
if not found then return {0, ''} end
return {found[1], found[3]}
"#
));

/// Sessions of other nodes that callers here have to do with.
#[derive(Debug, Default)]
pub(super) struct Calls {
    remotes: RefCell<HashMap<SessionId, Remote>>,
    by_number: RefCell<HashMap<u64, Rc<Call>>>,
    last_number: Cell<u64>,
}

#[derive(Debug)]
struct Remote {
    terms: Rc<Terms>,
    /// Of its owner; empty when that is a node of the original.
    inbox: Rc<str>,
    calls: HashMap<Box<str>, Rc<Call>>,
    used_ms: u64,
    /// A look at it is due or under way.
    is_watched: bool,
    /// It was found closed or gone.
    is_doubtful: bool,
    /// Until when it is known to live, monotonic ms.
    good_until: u64,
}

/// One streamed request to a session of another node.
#[derive(Debug)]
pub(in crate::connection_gateway) struct Call {
    number: u64,
    session: SessionId,
    terms: Rc<Terms>,
    inbox: Rc<str>,
    request_id: Box<str>,
    /// What its caller reads.
    pub(in crate::connection_gateway) exchange: Rc<Exchange>,
    expected: Cell<u64>,
    timeout_ms: u64,
}

impl Calls {
    /// Forgets sessions that nobody has asked for lately.
    pub(super) fn sweep(&self, now_ms: u64) {
        self.remotes.borrow_mut().retain(|_, remote| {
            !remote.calls.is_empty() || now_ms.saturating_sub(remote.used_ms) < REMOTE_MS
        });
    }

    fn take_out(&self, call: &Call) -> bool {
        let found = self.by_number.borrow_mut().remove(&call.number);
        if let Some(remote) = self.remotes.borrow_mut().get_mut(&call.session) {
            remote.calls.remove(&call.request_id);
        }
        found.is_some()
    }

    fn forget(&self, id: SessionId) {
        let mut remotes = self.remotes.borrow_mut();
        if remotes
            .get(&id)
            .is_some_and(|remote| remote.calls.is_empty())
        {
            remotes.remove(&id);
        }
    }

    fn of_session(&self, id: SessionId) -> Vec<Rc<Call>> {
        let remotes = self.remotes.borrow();
        let found = remotes.get(&id);
        found.map_or_else(Vec::new, |remote| remote.calls.values().cloned().collect())
    }
}

impl Cluster {
    /// What envelopes to a session of another node are checked against.
    pub(in crate::connection_gateway) async fn terms(
        &self,
        node: &Node,
        id: SessionId,
    ) -> Result<Rc<Terms>, Fault> {
        let now = Now::read();
        if let Some(remote) = self.calls.remotes.borrow_mut().get_mut(&id) {
            remote.used_ms = now.mono_ms;
            return Ok(remote.terms.clone());
        }
        let raw = self.record(id).await.map_err(|fault| away(&fault))?;
        let record = raw.as_deref().and_then(Record::parse);
        let record = record.filter(|record| record.expires_at > now.unix_ms);
        let record = record.ok_or(Fault::SessionNotFound)?;
        let terms = record.terms().ok_or(Fault::SessionNotFound)?;
        if record.status != Status::Connected.word() {
            return Err(Fault::NotConnected(Status::Closed.word()));
        }
        if *record.node_id == *node.node_id {
            // It was of a process of this name that has ended.
            return Err(Fault::OwnerExpired);
        }
        let mut remotes = self.calls.remotes.borrow_mut();
        if remotes.len() >= REMOTES_MAX && !remotes.contains_key(&id) {
            return Err(Fault::Busy);
        }
        let left_ms = record.expires_at.saturating_sub(now.unix_ms);
        let remote = remotes.entry(id).or_insert_with(|| Remote {
            terms: Rc::new(terms),
            inbox: (*record.inbox).into(),
            calls: HashMap::new(),
            used_ms: now.mono_ms,
            is_watched: false,
            is_doubtful: false,
            good_until: now.mono_ms.saturating_add(left_ms),
        });
        Ok(remote.terms.clone())
    }

    /// Whether the session may have one more request outstanding from here, and none of this id.
    pub(in crate::connection_gateway) fn check_in_flight(
        &self,
        node: &Node,
        id: SessionId,
        request_id: Option<&str>,
    ) -> Result<(), Fault> {
        let remotes = self.calls.remotes.borrow();
        let Some(remote) = remotes.get(&id) else {
            return Ok(());
        };
        if request_id.is_some_and(|id| remote.calls.contains_key(id)) {
            return Err(Fault::DuplicateRequest);
        }
        let max = node.settings.in_flight_max;
        if remote.calls.len() >= max {
            return Err(Fault::ResourceLimit("maxInFlightPerSession", max as u64));
        }
        Ok(())
    }

    /// Begins a streamed request, before it is published: its answers may come before the word that
    /// it was.
    pub(in crate::connection_gateway) fn begin(
        self: &Rc<Self>,
        node: &Node,
        id: SessionId,
        envelope: &Envelope<'_>,
        (coding, timeout_ms): (Coding, u64),
        buffers: &BufferPool,
    ) -> Option<Rc<Call>> {
        let request_id = envelope.request_id.as_deref()?;
        let now = now_ms();
        let number = self.calls.last_number.get() + 1;
        self.calls.last_number.set(number);
        let capability = envelope.capability.as_deref();
        let exchange = Rc::new(Exchange::new(coding, now, capability, buffers));
        let mut remotes = self.calls.remotes.borrow_mut();
        let remote = remotes.get_mut(&id)?;
        let call = Rc::new(Call {
            number,
            session: id,
            terms: remote.terms.clone(),
            inbox: remote.inbox.clone(),
            request_id: request_id.into(),
            exchange,
            expected: Cell::new(0),
            timeout_ms,
        });
        remote.calls.insert(request_id.into(), call.clone());
        remote.used_ms = now;
        let look_at = (!remote.is_watched).then(|| self.next_look(remote, now));
        remote.is_watched = true;
        drop(remotes);
        if let Some(at_ms) = look_at {
            node.timers.add(at_ms, Due::Look(id));
        }
        self.calls
            .by_number
            .borrow_mut()
            .insert(number, call.clone());
        if call.inbox.is_empty() {
            let key = self.keys.reply_mailbox(id.as_str(), request_id);
            self.streams.add_replies(number, key);
        }
        let due = Due::Call(Rc::downgrade(&call));
        let place = node.timers.add(now.saturating_add(timeout_ms), due);
        call.exchange.timer.set(Some(place));
        node.numbers.in_flight.add(1);
        Some(call)
    }

    fn next_look(&self, remote: &Remote, now_ms: u64) -> u64 {
        // Its end is seen as soon as it comes, however long that is off.
        let soon = now_ms + (self.limits.lease_ms / LOOKS).max(1);
        soon.min(remote.good_until.max(now_ms) + 1)
    }

    /// Publishes an envelope, which is written already, for nobody or for a call.
    pub(in crate::connection_gateway) async fn publish(
        &self,
        node: &Node,
        (id, generation): (SessionId, u64),
        (envelope, request_id): (&[u8], Option<&str>),
        call: Option<&Call>,
    ) -> Result<MessageId, Fault> {
        let names = [
            self.keys.session(id.as_str()),
            self.keys.mailbox(id.as_str()),
            self.inbox.to_string(),
            self.keys
                .reply_mailbox(id.as_str(), request_id.unwrap_or_default()),
        ];
        let names = names.each_ref().map(String::as_bytes);
        let read = self.streams.inbox_read();
        let (number, timeout_ms) = call.map_or((0, 0), |call| (call.number, call.timeout_ms));
        let text = |number: u64| number.to_string().into_bytes();
        let (now, generation) = (text(Now::read().unix_ms), text(generation));
        let (number, timeout, until) = (text(number), text(timeout_ms), read.next().to_bytes());
        let inbox = call.map_or(&b""[..], |_| self.inbox.as_bytes());
        let arguments: [&[u8]; 9] = [
            &now,
            &self.limits.mailbox_max,
            &self.limits.session_ttl,
            &generation,
            envelope,
            inbox,
            &number,
            &timeout,
            &until,
        ];
        let outcome = self.timed(&PUBLISH, &names, &arguments).await;
        let answer = match outcome.map_err(|fault| away(&fault))? {
            Reply::Array(answer) => answer,
            _ => return Err(Fault::RegistryAway),
        };
        self.trimmed.set((read, now_ms()));
        let mut words = answer.into_iter();
        let max = node.settings.mailbox_messages_max as u64;
        match words.next() {
            Some(Reply::Bulk(word)) if word == b"sent" => {
                node.numbers.published.add(1);
                match words.next() {
                    Some(Reply::Bulk(id)) => {
                        let id = EntryId::parse(&id).unwrap_or_default();
                        Ok((id.0, id.1))
                    }
                    _ => Ok((0, 0)),
                }
            }
            Some(Reply::Bulk(word)) if word == b"full" => {
                Err(Fault::ResourceLimit("mailboxMaxLength", max))
            }
            Some(Reply::Bulk(word)) if word == b"closed" => {
                self.calls.forget(id);
                Err(Fault::NotConnected(Status::Closed.word()))
            }
            _ => {
                self.calls.forget(id);
                Err(Fault::SessionNotFound)
            }
        }
    }

    /// An answer to a call has come through the inbox.
    pub(super) fn answered(
        self: &Rc<Self>,
        node: &Node,
        call: u64,
        number: u64,
        (envelope, is_last): (&str, bool),
    ) {
        let call = self.calls.by_number.borrow().get(&call).cloned();
        let Some(call) = call else {
            node.numbers.late_replies.add(1);
            return;
        };
        match place(number, call.expected.get()) {
            Place::Repeated => return,
            Place::AfterGap => {
                self.cancel(&call);
                self.fail_call(node, &call, "Gateway answers were lost on their way");
                return;
            }
            Place::Next => call.expected.set(number + 1),
        }
        self.hand_over(node, &call, &mut envelope.as_bytes().to_vec(), is_last);
    }

    /// The same through a reply mailbox, which a node of the original has written.
    pub(super) fn answered_by_original(self: &Rc<Self>, node: &Node, call: u64, entry: &Entry) {
        let call = self.calls.by_number.borrow().get(&call).cloned();
        let envelope = entry.text("envelope").and_then(Envelope::parse);
        let (Some(call), Some(envelope)) = (call, envelope) else {
            node.numbers.late_replies.add(1);
            return;
        };
        let mut line = Vec::new();
        envelope.write(&mut line);
        self.hand_over(node, &call, &mut line, envelope.is_terminal());
    }

    fn hand_over(self: &Rc<Self>, node: &Node, call: &Rc<Call>, line: &mut Vec<u8>, is_last: bool) {
        let bytes = call.exchange.push(line, is_last);
        node.numbers.stream_buffer_bytes.add(bytes as u64);
        node.numbers.replies.add(1);
        if is_last {
            self.call_over(node, call);
        } else if call.exchange.waiting() > node.settings.slow_consumer_bytes {
            // Its client is on another node and cannot be made to wait.
            self.cancel(call);
            self.fail_call(node, call, "Gateway caller reads too slowly");
        }
    }

    /// Ends a call with a line of the gateway's own, unless it has ended.
    pub(in crate::connection_gateway) fn fail_call(
        self: &Rc<Self>,
        node: &Node,
        call: &Rc<Call>,
        reason: &str,
    ) {
        if call.exchange.is_over() {
            return;
        }
        let terms = &call.terms;
        let mut line = failure_line(
            (call.session, terms.generation, &terms.consumer_type),
            (&call.request_id, call.exchange.capability.as_deref()),
            reason,
            Now::read().unix_ms,
        );
        let bytes = call.exchange.push(&mut line, true);
        node.numbers.stream_buffer_bytes.add(bytes as u64);
        node.numbers.exchanges_failed.add(1);
        self.call_over(node, call);
    }

    /// The time of a call is over.
    pub(in crate::connection_gateway) fn call_due(self: &Rc<Self>, node: &Node, call: &Rc<Call>) {
        if !call.exchange.is_over() {
            call.exchange.timer.set(None);
            self.cancel(call);
            let reason = "Gateway request timed out waiting for its response";
            self.fail_call(node, call, reason);
        }
    }

    /// A call was refused: nobody has heard of it.
    pub(in crate::connection_gateway) fn take_back_call(
        self: &Rc<Self>,
        node: &Node,
        call: &Rc<Call>,
    ) {
        self.end_call(node, call);
    }

    /// The caller has left, or has had its last line.
    pub(in crate::connection_gateway) fn caller_left(
        self: &Rc<Self>,
        node: &Node,
        call: &Rc<Call>,
    ) {
        let waiting = call.exchange.waiting() as u64;
        node.numbers.stream_buffer_bytes.subtract(waiting);
        if self.end_call(node, call) {
            node.numbers.exchanges_cancelled.add(1);
            self.cancel(call);
        }
    }

    /// Ends all calls of this shard.
    pub(in crate::connection_gateway) fn fail_all_calls(
        self: &Rc<Self>,
        node: &Node,
        reason: &str,
    ) {
        let all: Vec<_> = self.calls.by_number.borrow().values().cloned().collect();
        for call in all {
            self.cancel(&call);
            self.fail_call(node, &call, reason);
        }
    }

    fn call_over(self: &Rc<Self>, node: &Node, call: &Rc<Call>) {
        if self.end_call(node, call) {
            let took = now_ms().saturating_sub(call.exchange.began_ms);
            node.numbers.exchange_took(took);
        }
    }

    /// Takes a call out of everything; whether it was there.
    fn end_call(self: &Rc<Self>, node: &Node, call: &Rc<Call>) -> bool {
        if !self.calls.take_out(call) {
            return false;
        }
        if let Some(place) = call.exchange.timer.take() {
            node.timers.remove(place);
        }
        node.numbers.in_flight.subtract(1);
        if let Some(key) = self.streams.remove_replies(call.number) {
            let cluster = self.clone();
            shards::spawn(async move {
                // It ends by itself too.
                let _ = cluster.client.del(key.as_bytes()).await;
            });
        }
        true
    }

    /// Tells the owner, when it can be told, that nobody waits.
    fn cancel(self: &Rc<Self>, call: &Call) {
        if call.inbox.is_empty() {
            return;
        }
        let fields = [
            ("cancel", call.request_id.as_bytes().to_vec()),
            ("session", call.session.as_str().as_bytes().to_vec()),
            ("inbox", self.inbox.as_bytes().to_vec()),
            ("call", call.number.to_string().into_bytes()),
        ];
        let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value));
        self.tell(call.inbox.clone(), fields.into());
    }

    /// It is time to see whether a session that answers are outstanding from still lives.
    pub(in crate::connection_gateway) fn look_due(self: &Rc<Self>, node: &Rc<Node>, id: SessionId) {
        let mut remotes = self.calls.remotes.borrow_mut();
        let Some(remote) = remotes.get_mut(&id) else {
            return;
        };
        if remote.calls.is_empty() {
            remote.is_watched = false;
            return;
        }
        let (cluster, node) = (self.clone(), node.clone());
        shards::spawn(async move {
            let outcome = cluster.look(id).await;
            cluster.looked(&node, id, &outcome);
        });
    }

    async fn look(&self, id: SessionId) -> Result<(u64, bool), RedisFault> {
        let key = self.keys.session(id.as_str());
        match self.timed(&LOOK, &[key.as_bytes()], &[]).await? {
            Reply::Array(found) => match <[Reply; 2]>::try_from(found) {
                Ok([Reply::Integer(expires_at), Reply::Bulk(status)]) => Ok((
                    u64::try_from(expires_at).unwrap_or(0),
                    status == Status::Connected.word().as_bytes(),
                )),
                _ => Err(RedisFault::Unexpected),
            },
            _ => Err(RedisFault::Unexpected),
        }
    }

    fn looked(
        self: &Rc<Self>,
        node: &Node,
        id: SessionId,
        outcome: &Result<(u64, bool), RedisFault>,
    ) {
        let now = Now::read();
        let mut over = None;
        let mut remotes = self.calls.remotes.borrow_mut();
        let Some(remote) = remotes.get_mut(&id) else {
            return;
        };
        let mut at_ms = None;
        match outcome {
            Ok((expires_at, is_connected)) if *expires_at > now.unix_ms && *is_connected => {
                remote.good_until = now.mono_ms + (expires_at - now.unix_ms);
                remote.is_doubtful = false;
                at_ms = Some(self.next_look(remote, now.mono_ms));
            }
            // Its owner has died, and says nothing any more.
            Ok((_, true)) => over = Some("Gateway session owner expired"),
            Ok((_, false)) if remote.is_doubtful => over = Some("Gateway session closed"),
            Ok((_, false)) => {
                remote.is_doubtful = true;
                at_ms = Some(now.mono_ms + LAST_WORDS_MS);
            }
            // Nothing was heard of it for a whole lease and a look.
            Err(_) if now.mono_ms > remote.good_until + self.limits.lease_ms / LOOKS => {
                over = Some("Gateway session owner expired");
            }
            Err(_) => at_ms = Some(now.mono_ms + (self.limits.lease_ms / LOOKS / 4).max(1)),
        }
        remote.is_watched = at_ms.is_some();
        drop(remotes);
        if let Some(at_ms) = at_ms {
            node.timers.add(at_ms, Due::Look(id));
        }
        if let Some(reason) = over {
            for call in self.calls.of_session(id) {
                self.fail_call(node, &call, reason);
            }
            self.calls.remotes.borrow_mut().remove(&id);
        }
    }
}
