//! That a session lives: written at most once a third of its lease, however much its client says,
//! and in place, so that the cost does not depend on its metadata (contract D25, D26).

use std::rc::Rc;

use shards::deadline::now_ms;

use super::{
    Cluster,
    metadata::Swapped,
    record::{self, HEAD_BYTES, Record},
    script::Script,
};
use crate::{
    connection_gateway::{
        node::Node,
        session::{Now, Session, Status},
        timers::Due,
    },
    redis::Reply,
    shard_state::ShardState,
};

/// A renewal that failed is tried again after this part of the lease.
const RETRY_PART: u64 = 15;
/// Renewals a lease.
const RENEWALS: u64 = 3;

static RENEW: Script = Script::new(
    r#"
-- KEYS: record, by-subject, by-source and source-owner of each source.
-- ARGV: fence, its place, head, id, time to live, lease.
local at = tonumber(ARGV[2])
if redis.call('GETRANGE', KEYS[1], at, at + #ARGV[1] - 1) ~= ARGV[1] then
  return redis.call('GET', KEYS[1])
end
for i = 4, #KEYS, 2 do
  local holder = redis.call('GET', KEYS[i])
  if holder and holder ~= ARGV[4] then return false end
end
redis.call('SETRANGE', KEYS[1], 0, ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('SADD', KEYS[2], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
for i = 4, #KEYS, 2 do
  redis.call('SADD', KEYS[i - 1], ARGV[4])
  redis.call('PEXPIRE', KEYS[i - 1], ARGV[5])
  redis.call('SET', KEYS[i], ARGV[4], 'PX', ARGV[6])
end
return 1
"#,
);

impl Cluster {
    /// The client was heard: Redis is told so in its time.
    pub(in crate::connection_gateway) fn heard(&self, node: &Node, session: &Rc<Session>) {
        if !session.shared.is_renewal_due.replace(true) {
            let at_ms = session.shared.renewed_ms.get() + self.limits.lease_ms / RENEWALS;
            node.timers.add(at_ms, Due::Renewal(Rc::downgrade(session)));
        }
    }

    /// That time has come.
    pub(in crate::connection_gateway) fn renewal_due(
        self: &Rc<Self>,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        session: &Rc<Session>,
    ) {
        if session.status() != Status::Connected {
            return;
        }
        let (cluster, session) = (self.clone(), session.clone());
        let (state, node) = (state.clone(), node.clone());
        shards::spawn(async move { cluster.renew(&state, &node, &session).await });
    }

    async fn renew(
        self: &Rc<Self>,
        state: &Rc<ShardState>,
        node: &Rc<Node>,
        session: &Rc<Session>,
    ) {
        let began = now_ms();
        let (until, outcome) = self.try_renew(session).await;
        if session.status() != Status::Connected {
            return;
        }
        let shared = &session.shared;
        match outcome {
            Outcome::Renewed => {
                shared.safe_until.set(until);
                shared.renewed_ms.set(began);
                shared.is_renewal_due.set(false);
                if session.lease_until_heard() > until {
                    // It was heard while Redis was asked.
                    self.heard(node, session);
                }
                if shared.is_dirty.get() {
                    let (cluster, session) = (self.clone(), session.clone());
                    shards::spawn(async move { cluster.write_metadata(&session).await });
                }
            }
            Outcome::Lost => node.lose(state, session),
            Outcome::Unreachable => {
                let pause = (self.limits.lease_ms / RETRY_PART).max(1);
                let due = Due::Renewal(Rc::downgrade(session));
                node.timers.add(now_ms() + pause, due);
            }
        }
    }

    /// Renews once; until when the session then lives.
    async fn try_renew(self: &Rc<Self>, session: &Rc<Session>) -> (u64, Outcome) {
        let until = session.lease_until_heard();
        let now = Now::read();
        let claims = &session.claims;
        let mut names = vec![
            self.keys.session(session.id.as_str()),
            self.keys.subject(&claims.subject),
        ];
        for source in &claims.sources {
            names.extend([self.keys.source(source), self.keys.source_owner(source)]);
        }
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let fence = record::fence(session, &self.inbox, Status::Connected);
        let head = record::head(session.expires_at(), session.last_seen());
        let at = HEAD_BYTES.to_string();
        let (lease, kept) = self.times(session, now);
        let arguments: [&[u8]; 6] = [
            fence.as_bytes(),
            at.as_bytes(),
            head.as_bytes(),
            session.id.as_str().as_bytes(),
            &kept,
            &lease,
        ];
        let outcome = match self.timed(&RENEW, &names, &arguments).await {
            Ok(Reply::Integer(_)) => Outcome::Renewed,
            Ok(Reply::Null) => Outcome::Lost,
            Ok(Reply::Bulk(raw)) => self.take_back(session, &raw).await,
            Ok(_) | Err(_) => Outcome::Unreachable,
        };
        (until, outcome)
    }

    /// The record is another one than ours. When a node of the original has only changed the
    /// metadata, they are taken over and our order is put back, with the new lease.
    async fn take_back(self: &Rc<Self>, session: &Rc<Session>, raw: &[u8]) -> Outcome {
        let text = std::str::from_utf8(raw).unwrap_or_default();
        let is_ours = |record: &Record<'_>| {
            record.id == session.id
                && record.status == Status::Connected.word()
                && *record.node_id == *session.node_id()
                && record.generation == session.generation
        };
        let Some(record) = Record::parse(text).filter(is_ours) else {
            return Outcome::Lost;
        };
        if !session.shared.has_change() {
            session.set_metadata(record.metadata);
        }
        let ours = record::write(session, &self.inbox);
        match self.swap(session.id, raw, &ours, None).await {
            Ok(Swapped::Done(_)) => Outcome::Renewed,
            Ok(Swapped::Gone) => Outcome::Lost,
            // Changed once more: the next time.
            Ok(Swapped::Other(_)) | Err(_) => Outcome::Unreachable,
        }
    }
}

/// What became of a renewal.
enum Outcome {
    Renewed,
    /// The session was deleted, is another's, or is closed: it is over.
    Lost,
    /// Redis could not be asked.
    Unreachable,
}
