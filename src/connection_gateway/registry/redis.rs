//! The registry of several nodes that share one Redis, in the layout of the original (contract
//! section 4), so that its nodes may be among them.
//!
//! A shard has two connections. Over one go commands and scripts; over the other one blocking read
//! of all that concerns the shard: its inbox, the mailboxes of its sessions, and reply mailboxes
//! that nodes of the original write. So nothing is dialled for a request, and nothing is polled.
//!
//! ```text
//!   caller's shard, node B                                   owner's shard, node A
//!   publish: check, append to mailbox:{sid}   -------------> XREAD: to the client's WebSocket
//!   XREAD: a line to the caller               <------------- replies: append to B's inbox
//! ```
//!
//! * `claims`: what a session takes and gives back; `lease`: that it lives; `metadata`: of a
//!   session
//! * `lookup`: sessions of other nodes, as they are shown
//! * `calls`: requests of callers here to sessions elsewhere; `replies`: the other way round
//! * `reader`: the blocking read; `entry`, `record`, `keys`, `script`: what is in Redis

mod calls;
mod claims;
mod entry;
mod keys;
mod lease;
mod lookup;
mod metadata;
mod name;
mod reader;
mod record;
mod replies;
mod script;
mod shared;

pub(in crate::connection_gateway) use self::{calls::Call, claims::Afterwards, shared::Shared};

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use self::{calls::Calls, entry::EntryId, keys::Keys, reader::Streams, replies::Outgoing};
use super::super::{
    fault::Fault,
    node::Node,
    numbers::GatewayNumbers,
    session::{Now, Session},
};
use crate::{
    connection_gateway::node::millis,
    log,
    redis::{RedisClient, RedisFault, Reply},
    settings::ConnectionGateway,
    shard_state::ShardState,
};

/// Times and limits in the form that commands want.
#[derive(Debug)]
struct Limits {
    session_ttl: Box<[u8]>,
    session_ttl_ms: u64,
    lease_ms: u64,
    mailbox_max: Box<[u8]>,
    /// Entries that the client has been sent and that are not yet deleted.
    taken_max: usize,
    block: Box<[u8]>,
}

/// Several nodes behind one Redis, as one shard sees them.
pub struct Cluster {
    client: RedisClient,
    reading: RedisClient,
    keys: Keys,
    /// Name of the stream that others write to.
    inbox: Rc<str>,
    /// This process's own part of it.
    process: Box<str>,
    limits: Limits,
    streams: Streams,
    calls: Calls,
    outgoing: Outgoing,
    numbers: Arc<GatewayNumbers>,
    /// Until where the inbox was trimmed, and when, monotonic ms.
    trimmed: Cell<(EntryId, u64)>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// One shard's part. `client` is for commands; `reading` must let one take longer than
    /// [`block_ms`]. `process` is text that no other process has.
    pub fn new(
        (client, reading): (RedisClient, RedisClient),
        settings: &ConnectionGateway,
        (node_id, process, shard): (&str, &str, u16),
        numbers: Arc<GatewayNumbers>,
    ) -> Self {
        let number = |number: u64| number.to_string().into_bytes().into_boxed_slice();
        let keys = Keys::new(settings.hash_tag);
        Self {
            client,
            reading,
            inbox: keys.inbox(node_id, process, shard).into(),
            keys,
            process: process.into(),
            limits: Limits {
                session_ttl: number(millis(settings.session_ttl)),
                session_ttl_ms: millis(settings.session_ttl),
                lease_ms: millis(settings.lease),
                mailbox_max: number(settings.mailbox_messages_max as u64),
                taken_max: (settings.mailbox_messages_max / 4).clamp(1, 64),
                block: number(block_ms(settings)),
            },
            streams: Streams::default(),
            calls: Calls::default(),
            outgoing: Outgoing::default(),
            numbers,
            trimmed: Cell::default(),
        }
    }

    /// Starts what the shard does by itself; it ends with [`Self::stop`].
    pub(super) fn start(self: &Rc<Self>, state: &Rc<ShardState>, node: &Rc<Node>) {
        let (weak_state, weak_node) = (Rc::downgrade(state), Rc::downgrade(node));
        let cluster = self.clone();
        let reader = {
            let state = weak_state.clone();
            move || reader::run(cluster.clone(), state.clone(), weak_node.clone())
        };
        shards::spawn(keep(reader));
        let cluster = self.clone();
        shards::spawn(keep(move || {
            replies::run(cluster.clone(), weak_state.clone())
        }));
        if state.shard.id == 0 {
            shards::spawn(name::hold(self.clone(), Rc::downgrade(node)));
        }
    }

    /// Ends the connections; everything fails from now on.
    pub(super) fn stop(&self) {
        self.client.stop();
        self.reading.stop();
        self.outgoing.changed.notify();
    }

    /// Whether Redis can be asked.
    pub(super) fn is_ready(&self) -> bool {
        self.client.is_connected() && self.reading.is_connected()
    }

    fn is_stopped(&self) -> bool {
        self.client.last_end() == Some(crate::redis::ConnectionEnd::Stopped)
    }

    /// What is due some time: the inbox is trimmed, entries that were taken are deleted.
    pub(in crate::connection_gateway) fn sweep(self: &Rc<Self>, now_ms: u64) {
        const TRIM_EVERY_MS: u64 = 5_000;
        self.outgoing.sweep(now_ms);
        self.calls.sweep(now_ms);
        let read = self.streams.inbox_read();
        let (until, at_ms) = self.trimmed.get();
        if read > until && now_ms.saturating_sub(at_ms) >= TRIM_EVERY_MS && self.is_ready() {
            self.trimmed.set((read, now_ms));
            let cluster = self.clone();
            shards::spawn(async move {
                let until = read.next().to_bytes();
                let inbox = cluster.inbox.as_bytes();
                // The next time does it too.
                let _ = cluster
                    .client
                    .command(&[b"XTRIM", inbox, b"MINID", &until])
                    .await;
            });
        }
    }

    /// Has the blocking read begin anew: there are other streams.
    pub(super) fn wake(self: &Rc<Self>) {
        self.tell(self.inbox.clone(), vec![(b"wake".to_vec(), b"1".to_vec())]);
    }

    /// Appends an entry to an inbox, in a task of its own.
    fn tell(self: &Rc<Self>, inbox: Rc<str>, fields: Vec<(Vec<u8>, Vec<u8>)>) {
        static TELL: script::Script = script::Script::new(
            r#"
-- KEYS: inbox. ARGV: time to live, then the entry.
local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return id
"#,
        );
        let cluster = self.clone();
        shards::spawn(async move {
            let mut arguments: Vec<&[u8]> = vec![&cluster.limits.session_ttl];
            for (name, value) in &fields {
                arguments.extend([name.as_slice(), value.as_slice()]);
            }
            // What is told so is worth nothing any more when Redis is away.
            let _ = TELL
                .run(&cluster.client, &[inbox.as_bytes()], &arguments)
                .await;
        });
    }

    /// How long a session's lease has left, and how long its record is kept: never less than that,
    /// whatever the settings and the session's own lease are. Both in ms, as commands want them.
    fn times(&self, session: &Session, now: Now) -> (Vec<u8>, Vec<u8>) {
        let left = session.expires_at().saturating_sub(now.unix_ms).max(1);
        let kept = left.max(self.limits.session_ttl_ms);
        let text = |number: u64| number.to_string().into_bytes();
        (text(left), text(kept))
    }

    /// Runs a script that is on somebody's way, and says how long Redis took.
    async fn timed(
        &self,
        script: &script::Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Reply, RedisFault> {
        let started = shards::deadline::now_ms();
        let outcome = script.run(&self.client, keys, arguments).await;
        if outcome.is_ok() {
            let took = shards::deadline::now_ms().saturating_sub(started);
            self.numbers.saw_round_trip(took);
        }
        outcome
    }
}

/// Runs a task that the shard cannot do without until it ends; a panic costs what it was at.
async fn keep<F: Future<Output = ()>>(task: impl Fn() -> F) {
    const PAUSE: Duration = Duration::from_millis(100);
    while shards::task::guard(task()).await.is_none() {
        log::error(|| "connection gateway: a panic of the registry's; it begins anew".into());
        shards::sleep(PAUSE).await;
    }
}

/// How long one read waits, ms. Longer serves nobody, and a peer that has died is found out by it.
pub fn block_ms(settings: &ConnectionGateway) -> u64 {
    const BLOCK_MS_MAX: u64 = 60_000;
    millis(settings.mailbox_block).min(BLOCK_MS_MAX)
}

/// What a command without a reply is to whoever wanted it.
fn away(fault: &RedisFault) -> Fault {
    match script::is_unknown(fault) {
        true => Fault::OutcomeUnknown,
        false => Fault::RegistryAway,
    }
}
