//! A session's metadata, which any node may replace: the record is compared and swapped, so that no
//! change of anybody else is undone (contract D9).

use std::rc::Rc;

use super::{Cluster, away, entry::EntryId, record::Record, script::Script};
use crate::{
    connection_gateway::{
        fault::Fault,
        session::{Now, Session},
        session_id::SessionId,
    },
    redis::{RedisFault, Reply},
};

/// Tries of one change against changes of others. Leases are renewed seldom, so each try has good
/// prospects.
const TRIES_MAX: usize = 64;

static SWAP: Script = Script::new(
    r#"
-- KEYS: record, inbox of the owner if it is to be told. ARGV: old, new, time to live, then what it
--   is told. Nothing when the record is gone, the record when it is another one.
local raw = redis.call('GET', KEYS[1])
if raw ~= ARGV[1] then return raw end
redis.call('SET', KEYS[1], ARGV[2], 'PX',
  math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])))
if not KEYS[2] then return {''} end
local id = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {id}
"#,
);

/// What became of a swap.
pub(super) enum Swapped {
    /// It was done; the id of the entry in the inbox.
    Done(EntryId),
    /// The record is another one.
    Other(Vec<u8>),
    /// There is no record.
    Gone,
}

impl Cluster {
    /// The record of a session.
    pub(super) async fn record(&self, id: SessionId) -> Result<Option<String>, RedisFault> {
        let key = self.keys.session(id.as_str());
        let raw = self.client.get(key.as_bytes()).await?;
        Ok(raw.and_then(|raw| String::from_utf8(raw).ok()))
    }

    /// Swaps a record; `told` is an inbox and what is appended to it.
    pub(super) async fn swap(
        &self,
        id: SessionId,
        old: &[u8],
        new: &[u8],
        told: Option<(&str, &[&[u8]])>,
    ) -> Result<Swapped, RedisFault> {
        let key = self.keys.session(id.as_str());
        let mut names = vec![key.as_bytes()];
        let mut arguments: Vec<&[u8]> = vec![old, new, &self.limits.session_ttl];
        if let Some((inbox, fields)) = told {
            names.push(inbox.as_bytes());
            arguments.extend(fields);
        }
        match self.timed(&SWAP, &names, &arguments).await? {
            Reply::Null => Ok(Swapped::Gone),
            Reply::Bulk(other) => Ok(Swapped::Other(other)),
            Reply::Array(mut done) => {
                let id = match done.pop() {
                    Some(Reply::Bulk(id)) => EntryId::parse(&id),
                    _ => None,
                };
                Ok(Swapped::Done(id.unwrap_or_default()))
            }
            _ => Err(RedisFault::Unexpected),
        }
    }

    /// Replaces the metadata in a record, whoever owns it; the new record and the entry's id, or
    /// nothing when there is none. The owner is told `fields`, and what they are if it is us.
    async fn replace(
        &self,
        id: SessionId,
        metadata: &str,
        fields: &[&[u8]],
    ) -> Result<Option<(String, EntryId)>, RedisFault> {
        let mut raw = self.record(id).await?;
        for _ in 0..TRIES_MAX {
            let Some(old) = &raw else {
                return Ok(None);
            };
            let record = Record::parse(old).filter(|record| record.is_alive(Now::read()));
            let Some(record) = record else {
                return Ok(None);
            };
            let Some(new) = record.with_metadata(metadata) else {
                return Ok(None);
            };
            let told = (!record.inbox.is_empty()).then_some((&*record.inbox, fields));
            match self.swap(id, old.as_bytes(), new.as_bytes(), told).await? {
                Swapped::Done(entry) => return Ok(Some((new, entry))),
                Swapped::Gone => return Ok(None),
                Swapped::Other(other) => raw = String::from_utf8(other).ok(),
            }
        }
        Err(RedisFault::Busy)
    }

    /// Replaces the metadata of a session of another node; its record as callers see it.
    pub(in crate::connection_gateway) async fn patch(
        &self,
        id: SessionId,
        metadata: &str,
    ) -> Result<Vec<u8>, Fault> {
        let fields: [&[u8]; 4] = [
            b"metadata",
            metadata.as_bytes(),
            b"session",
            id.as_str().as_bytes(),
        ];
        let outcome = self.replace(id, metadata, &fields).await;
        let (raw, _) = outcome
            .map_err(|fault| away(&fault))?
            .ok_or(Fault::SessionNotFound)?;
        let mut view = Vec::with_capacity(raw.len());
        if let Some(record) = Record::parse(&raw) {
            record.write_view(&mut view);
        }
        Ok(view)
    }

    /// Writes the metadata that a session of this shard was given; others see them when this has
    /// returned. What cannot be written now is with the next renewal.
    pub(in crate::connection_gateway) async fn write_metadata(self: &Rc<Self>, session: &Session) {
        let shared = &session.shared;
        let under_way = shared.writing.borrow().clone();
        if let Some(written) = under_way {
            // Whoever writes them writes these too.
            written.wait().await;
            return;
        }
        let _writing = shared.begin_writing();
        while let Some(metadata) = shared.take_change(|| session.metadata()) {
            let told: [&[u8]; 2] = [b"wake", b"1"];
            match self.replace(session.id, &metadata, &told).await {
                Ok(Some((_, entry))) if shared.metadata_as_of.get() < entry => {
                    shared.metadata_as_of.set(entry);
                    if !shared.has_change() {
                        // What another node wrote before is undone, here as there.
                        session.set_metadata(Some(&metadata));
                    }
                }
                // Later ones are there already; or the session is gone, and its renewal says so.
                Ok(_) => {}
                Err(_) => {
                    shared.is_dirty.set(true);
                    break;
                }
            }
        }
    }

    /// Another node has replaced the metadata of a session of this shard. A change of this node's
    /// that is still to be written is the later one.
    pub(super) fn replaced(&self, session: &Session, metadata: &str, entry: EntryId) {
        if session.shared.metadata_as_of.get() < entry {
            session.shared.metadata_as_of.set(entry);
            if session.shared.change.borrow().is_none() {
                session.set_metadata(Some(metadata));
            }
            let text = "Gateway session metadata updated";
            session.note(Now::read(), "info", text, None);
        }
    }
}
