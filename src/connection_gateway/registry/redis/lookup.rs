//! Sessions of other nodes, as callers see them (contract 3.5).

use super::{
    Cluster, away,
    record::Record,
    script::{Script, with_state},
};
use crate::{
    connection_gateway::{
        envelope::write_number, fault::Fault, node::Node, session::Now, session_id::SessionId,
    },
    redis::{RedisFault, Reply},
};

static VIEW: Script = Script::new(
    r#"
-- KEYS: record, mailbox.
return {redis.call('GET', KEYS[1]), redis.call('XLEN', KEYS[2])}
"#,
);

static FIND: Script = Script::new(with_state!(
    r#"
-- KEYS: by-source. ARGV: now, what names of records and of mailboxes begin with.
-- The connected session that was heard last, else the one of another status.
local now = tonumber(ARGV[1])
local best, rank, seen
for _, id in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local found = state(ARGV[2] .. id)
  if not found or found[1] <= now then
    redis.call('SREM', KEYS[1], id)
  else
    local own = found[3] == 'connected' and 1 or 0
    if not best or own > rank or (own == rank and found[2] > seen) then
      best, rank, seen = id, own, found[2]
    end
  end
end
if not best then return {false, 0} end
return {redis.call('GET', ARGV[2] .. best), redis.call('XLEN', ARGV[3] .. best)}
"#
));

/// A session as Redis knows it.
#[derive(Debug)]
pub(in crate::connection_gateway) struct Seen {
    pub(in crate::connection_gateway) id: SessionId,
    /// Its node is this one, by its name.
    pub(in crate::connection_gateway) is_ours: bool,
    /// Its status view.
    pub(in crate::connection_gateway) view: Vec<u8>,
}

impl Cluster {
    /// The session with this id, if there is one.
    pub(in crate::connection_gateway) async fn look_up(
        &self,
        node: &Node,
        id: SessionId,
    ) -> Result<Option<Seen>, Fault> {
        let (record, mailbox) = (
            self.keys.session(id.as_str()),
            self.keys.mailbox(id.as_str()),
        );
        let names = [record.as_bytes(), mailbox.as_bytes()];
        seen(node, self.timed(&VIEW, &names, &[]).await)
    }

    /// The session that has a source, or had it last.
    pub(in crate::connection_gateway) async fn find_source(
        &self,
        node: &Node,
        source: &str,
    ) -> Result<Option<Seen>, Fault> {
        let now = Now::read().unix_ms.to_string();
        let arguments =
            [now.as_str(), self.keys.sessions(), self.keys.mailboxes()].map(str::as_bytes);
        let key = self.keys.source(source);
        seen(node, self.timed(&FIND, &[key.as_bytes()], &arguments).await)
    }
}

fn seen(node: &Node, outcome: Result<Reply, RedisFault>) -> Result<Option<Seen>, Fault> {
    let Reply::Array(found) = outcome.map_err(|fault| away(&fault))? else {
        return Err(Fault::RegistryAway);
    };
    let (raw, lag) = match <[Reply; 2]>::try_from(found) {
        Ok([Reply::Bulk(raw), Reply::Integer(lag)]) => (raw, u64::try_from(lag).unwrap_or(0)),
        _ => return Ok(None),
    };
    let raw = String::from_utf8(raw).unwrap_or_default();
    let now = Now::read();
    let record = Record::parse(&raw).filter(|record| record.expires_at > now.unix_ms);
    Ok(record.map(|record| {
        let is_ours = *record.node_id == *node.node_id;
        let mut view = Vec::with_capacity(raw.len() + 128);
        view.extend_from_slice(br#"{"session":"#);
        record.write_view(&mut view);
        view.extend_from_slice(br#","ownerAlive":"#);
        // Of this node, and not in it: it was of a process of this name that has ended.
        let is_alive = record.is_alive(now) && !is_ours;
        view.extend_from_slice(if is_alive { b"true" } else { b"false" });
        view.extend_from_slice(br#","mailboxLag":"#);
        write_number(&mut view, lag);
        view.extend_from_slice(br#","logs":[]}"#);
        Seen {
            id: record.id,
            is_ours,
            view,
        }
    }))
}
