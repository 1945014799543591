//! What a session takes when it is bound and gives back when it ends: each one script, all of it or
//! nothing.

use std::{rc::Rc, time::Duration};

use shards::{deadline::now_ms, notify::Event};

use super::{
    Cluster, away,
    keys::Keys,
    record::{self, HEAD_BYTES, Record},
    script::{Script, is_unknown, with_state},
};
use crate::{
    connection_gateway::{
        fault::Fault,
        node::Node,
        registry::Patience,
        session::{Now, Session, Status},
        session_id::SessionId,
    },
    log,
    redis::{RedisFault, Reply},
    shard_state::ShardState,
};

/// Between two tries to give something back while Redis is away.
const RELEASE_PAUSE: Duration = Duration::from_millis(100);
/// How long a drain tries for.
const LAST_TRIES_MS: u64 = 1_000;

static BIND: Script = Script::new(with_state!(
    r#"
-- KEYS: record, by-subject, inbox, by-source and source-owner of each source, nonce if there is one.
-- ARGV: id, record, now, lease, time to live, sessions of a subject, sources, time to live of the
--   nonce or nothing, what names of records begin with.
local id, now, sources = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[7])
local live = 0
for _, other in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local found = state(ARGV[9] .. other)
  if not found or found[1] <= now then
    redis.call('SREM', KEYS[2], other)
  elseif found[3] == 'connected' then
    live = live + 1
  end
end
if live >= tonumber(ARGV[6]) then return {'full'} end
for i = 1, sources do
  local holder = redis.call('GET', KEYS[2 + 2 * i + 1])
  if holder and holder ~= id then
    -- A node of the original claims before it writes the record: without one it is held.
    local found = state(ARGV[9] .. holder)
    if not found or (found[1] > now and found[3] == 'connected') then return {'held', holder} end
  end
end
if ARGV[8] ~= '' and not redis.call('SET', KEYS[#KEYS], id, 'NX', 'PX', ARGV[8]) then
  return {'used'}
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[5])
redis.call('SADD', KEYS[2], id)
redis.call('PEXPIRE', KEYS[2], ARGV[5])
for i = 1, sources do
  local all = KEYS[2 + 2 * i]
  for _, other in ipairs(redis.call('SMEMBERS', all)) do
    local found = state(ARGV[9] .. other)
    if not found or found[1] <= now then redis.call('SREM', all, other) end
  end
  redis.call('SADD', all, id)
  redis.call('PEXPIRE', all, ARGV[5])
  redis.call('SET', KEYS[2 + 2 * i + 1], id, 'PX', ARGV[4])
end
redis.call('XADD', KEYS[3], '*', 'wake', '1')
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return {'bound'}
"#
));

static CLOSE: Script = Script::new(
    r#"
-- KEYS: record, by-subject, mailbox, source-owner of each source.
-- ARGV: id, fence, fence of a closed one, bytes before it, now.
for i = 4, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[1] then redis.call('DEL', KEYS[i]) end
end
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
local at = tonumber(ARGV[4])
if redis.call('GETRANGE', KEYS[1], at, at + #ARGV[2] - 1) == ARGV[2] then
  redis.call('SETRANGE', KEYS[1], at, ARGV[3])
  local expires = tonumber(redis.call('GETRANGE', KEYS[1], 13, 25))
  redis.call('PEXPIRE', KEYS[1], math.max(1, expires - tonumber(ARGV[5])))
else
  redis.call('DEL', KEYS[1])
end
return 1
"#,
);

static REMOVE: Script = Script::new(
    r#"
-- KEYS: record, by-subject, mailbox, by-source and source-owner of each source, inbox of the owner
--   if there is one. ARGV: id, sources, time to live.
redis.call('DEL', KEYS[1], KEYS[3])
redis.call('SREM', KEYS[2], ARGV[1])
local sources = tonumber(ARGV[2])
for i = 1, sources do
  redis.call('SREM', KEYS[2 + 2 * i], ARGV[1])
  local owner = KEYS[2 + 2 * i + 1]
  if redis.call('GET', owner) == ARGV[1] then redis.call('DEL', owner) end
end
local inbox = KEYS[4 + 2 * sources]
if inbox then
  redis.call('XADD', inbox, '*', 'end', ARGV[1])
  redis.call('PEXPIRE', inbox, ARGV[3])
end
return 1
"#,
);

/// What others see of a session that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection_gateway) enum Afterwards {
    /// That it is closed, until its lease would have ended.
    Closed,
    /// Nothing.
    Gone,
}

/// By-source and source-owner of each source.
fn source_keys<'a>(keys: Keys, sources: impl IntoIterator<Item = &'a Box<str>>) -> Vec<String> {
    sources
        .into_iter()
        .flat_map(|source| [keys.source(source), keys.source_owner(source)])
        .collect()
}

impl Cluster {
    /// Claims everything and writes the record. The mailbox is read from then on.
    pub(in crate::connection_gateway) async fn bind(
        self: &Rc<Self>,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        session: &Rc<Session>,
    ) -> Result<(), Fault> {
        // Before the script, whose entry in the inbox has the reader begin anew.
        let mailbox = self.keys.mailbox(session.id.as_str());
        self.streams.add_mailbox(session, mailbox);
        let outcome = self.claim((state, node), session).await;
        if outcome.is_err() {
            self.streams.remove_mailbox(session.id);
        }
        outcome
    }

    async fn claim(
        self: &Rc<Self>,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        session: &Rc<Session>,
    ) -> Result<(), Fault> {
        let max = node.settings.sessions_per_subject_max;
        let mut patience = Patience::default();
        loop {
            let until = session.lease_until();
            let (refused, holder) = match self.try_claim(node, session).await {
                Ok(Claimed::Bound) => {
                    session.shared.safe_until.set(until);
                    session.shared.renewed_ms.set(now_ms());
                    return Ok(());
                }
                Ok(Claimed::Used) => return Err(Fault::InvalidToken),
                Ok(Claimed::Full) => (
                    Fault::ResourceLimit("maxSessionsPerSubject", max as u64),
                    None,
                ),
                Ok(Claimed::Held(holder)) => (Fault::AlreadyBound, holder),
                Err(fault) => {
                    if is_unknown(&fault) {
                        // It may be bound for all that Redis knows.
                        self.release((state, node), session, Afterwards::Gone);
                    }
                    let reason = "Gateway registry is not reachable".to_owned();
                    return Err(Fault::BindFailed(reason));
                }
            };
            if !patience.wait((state, node), holder).await {
                return Err(refused);
            }
            session.begin(Now::read());
        }
    }

    async fn try_claim(&self, node: &Node, session: &Session) -> Result<Claimed, RedisFault> {
        let claims = &session.claims;
        let mut names = vec![
            self.keys.session(session.id.as_str()),
            self.keys.subject(&claims.subject),
            self.inbox.to_string(),
        ];
        names.extend(source_keys(self.keys, &claims.sources));
        let nonce = claims.nonce.as_ref();
        let nonce = nonce.filter(|_| node.settings.single_use_tokens);
        names.extend(nonce.map(|nonce| self.keys.nonce(nonce)));
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let now = Now::read();
        let (lease, kept) = self.times(session, now);
        let now = now.unix_ms;
        let text = |number: u64| number.to_string().into_bytes();
        let nonce_ms = nonce.map(|_| text(claims.expires_at.saturating_sub(now).max(1)));
        let record = record::write(session, &self.inbox);
        let now = text(now);
        let budget = text(node.settings.sessions_per_subject_max as u64);
        let sources = text(claims.sources.len() as u64);
        let arguments: [&[u8]; 9] = [
            session.id.as_str().as_bytes(),
            &record,
            &now,
            &lease,
            &kept,
            &budget,
            &sources,
            nonce_ms.as_deref().unwrap_or_default(),
            self.keys.sessions().as_bytes(),
        ];
        let Reply::Array(answer) = self.timed(&BIND, &names, &arguments).await? else {
            return Err(RedisFault::Unexpected);
        };
        let mut words = answer.into_iter().map(|word| match word {
            Reply::Bulk(word) => word,
            _ => Vec::new(),
        });
        match words.next().as_deref() {
            Some(b"bound") => Ok(Claimed::Bound),
            Some(b"full") => Ok(Claimed::Full),
            Some(b"used") => Ok(Claimed::Used),
            Some(b"held") => Ok(Claimed::Held(
                words.next().and_then(|holder| SessionId::parse(&holder)),
            )),
            _ => Err(RedisFault::Unexpected),
        }
    }

    /// Gives back what a session holds, in a task of its own, whose end is the event's.
    pub(in crate::connection_gateway) fn release(
        self: &Rc<Self>,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        session: &Rc<Session>,
        afterwards: Afterwards,
    ) -> Option<Rc<Event>> {
        self.streams.remove_mailbox(session.id);
        let releasing = node.releasing.begin(session.id);
        let done = releasing.event();
        let (cluster, session, node) = (self.clone(), session.clone(), node.clone());
        let pass = state.shard.gate.enter();
        shards::spawn(async move {
            let _held = (releasing, pass);
            let began = now_ms();
            loop {
                let outcome = match afterwards {
                    Afterwards::Closed => cluster.close(&session).await,
                    Afterwards::Gone => {
                        let claims = &session.claims;
                        let id = session.id;
                        cluster
                            .remove(id, &claims.subject, &claims.sources, None)
                            .await
                    }
                };
                let patience = match node.is_draining() {
                    true => LAST_TRIES_MS,
                    // By then the claims have ended by themselves.
                    false => cluster.limits.lease_ms,
                };
                match outcome {
                    Ok(()) => break,
                    Err(_) if now_ms().saturating_sub(began) > patience => {
                        log::warn(|| {
                            "connection gateway: a session's claims were left to end by themselves"
                                .into()
                        });
                        break;
                    }
                    Err(_) => shards::sleep(RELEASE_PAUSE).await,
                }
            }
        });
        Some(done)
    }

    async fn close(&self, session: &Session) -> Result<(), RedisFault> {
        let claims = &session.claims;
        let mut names = vec![
            self.keys.session(session.id.as_str()),
            self.keys.subject(&claims.subject),
            self.keys.mailbox(session.id.as_str()),
        ];
        names.extend(
            claims
                .sources
                .iter()
                .map(|source| self.keys.source_owner(source)),
        );
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let fence = |status| record::fence(session, &self.inbox, status);
        let (open, closed) = (fence(Status::Connected), fence(Status::Closed));
        let (at, now) = (HEAD_BYTES.to_string(), Now::read().unix_ms.to_string());
        let arguments = [session.id.as_str(), &open, &closed, &at, &now].map(str::as_bytes);
        CLOSE.run(&self.client, &names, &arguments).await.map(drop)
    }

    /// Deletes a session and all that is its own; its owner is told through `inbox`.
    async fn remove(
        &self,
        id: SessionId,
        subject: &str,
        sources: &[Box<str>],
        inbox: Option<&str>,
    ) -> Result<(), RedisFault> {
        let mut names = vec![
            self.keys.session(id.as_str()),
            self.keys.subject(subject),
            self.keys.mailbox(id.as_str()),
        ];
        names.extend(source_keys(self.keys, sources));
        names.extend(inbox.map(str::to_owned));
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let count = sources.len().to_string();
        let arguments: [&[u8]; 3] = [
            id.as_str().as_bytes(),
            count.as_bytes(),
            &self.limits.session_ttl,
        ];
        REMOVE.run(&self.client, &names, &arguments).await.map(drop)
    }

    /// Deletes a session of another node. A later renewal finds no record and does nothing; the
    /// owner, when it is one of ours, ends the connection at once.
    pub(in crate::connection_gateway) async fn delete(&self, id: SessionId) -> Result<(), Fault> {
        let raw = self.record(id).await.map_err(|fault| away(&fault))?;
        let record = raw.as_deref().and_then(Record::parse);
        let Some(record) = record else {
            return Ok(());
        };
        let inbox = (!record.inbox.is_empty()).then_some(&*record.inbox);
        let sources = record.sources();
        let outcome = self.remove(id, &record.subject, &sources, inbox).await;
        // Twice is no harm: what is not there is not deleted.
        match outcome {
            Err(fault) if is_unknown(&fault) => {
                self.remove(id, &record.subject, &sources, inbox).await
            }
            outcome => outcome,
        }
        .map_err(|fault| away(&fault))
    }
}

/// What became of a bind.
enum Claimed {
    Bound,
    /// The subject has as many sessions as it may.
    Full,
    /// A live session has one of the sources.
    Held(Option<SessionId>),
    /// The token was used before.
    Used,
}
