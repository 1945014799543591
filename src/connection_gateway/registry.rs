//! The boundary between the sessions of this shard and whoever else knows of them: who holds which
//! source, how many sessions a subject has, and how an envelope reaches the node that has the
//! client.
//!
//! The rules both adapters keep: a claim is atomic and names its session; a change is made only by
//! the session that holds the claim; nothing that was accepted is dropped in silence.

mod memory;
mod redis;

pub(super) use self::redis::{Afterwards, Call, Shared};
pub use self::redis::{Cluster, block_ms};

use std::{rc::Rc, time::Duration};

use shards::notify::Event;

use super::{
    envelope::Envelope,
    fault::Fault,
    index::{Ask, answer},
    node::{End, Node},
    session::{Now, Session},
    session_id::SessionId,
};
use crate::shard_state::ShardState;

/// Where sessions are known beyond their own shard.
#[derive(Debug, Clone)]
pub enum Registry {
    /// In this process, which is the only node.
    Memory,
    /// In Redis, which other nodes share.
    Redis(Rc<Cluster>),
}

impl Registry {
    /// Starts what a shard does for it all the time.
    pub(crate) fn start(&self, state: &Rc<ShardState>, node: &Rc<Node>) {
        if let Self::Redis(cluster) = self {
            cluster.start(state, node);
        }
    }

    /// Ends its connections, for good.
    pub(crate) fn stop(&self) {
        if let Self::Redis(cluster) = self {
            cluster.stop();
        }
    }

    /// Whether it can be asked.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Memory => true,
            Self::Redis(cluster) => cluster.is_ready(),
        }
    }

    /// Claims what a session needs before it is one, or nothing; its lease begins now.
    pub(super) async fn claim(
        &self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        session: &Rc<Session>,
    ) -> Result<(), Fault> {
        match self {
            Self::Memory => {
                memory::claim((state, node), &session.claims, session.id).await?;
                session.begin(Now::read());
                Ok(())
            }
            Self::Redis(cluster) => cluster.bind((state, node), session).await,
        }
    }

    /// Gives back what a session holds, at once or in a task of its own, whose end is the event's;
    /// why it ends, and until when a closed one is still shown by its sources, monotonic ms.
    pub(super) fn release(
        &self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        session: &Rc<Session>,
        (end, shown_until): (End, u64),
    ) -> Option<Rc<Event>> {
        let claims = &session.claims;
        match self {
            Self::Memory => memory::release(
                (state, node),
                claims.subject.clone(),
                claims.sources.clone(),
                session.id,
                shown_until,
            ),
            Self::Redis(cluster) => {
                let afterwards = match end {
                    End::Closed => Afterwards::Closed,
                    End::Deleted | End::Expired => Afterwards::Gone,
                };
                cluster.release((state, node), session, afterwards)
            }
        }
    }

    /// A client was heard.
    pub(super) fn heard(&self, node: &Node, session: &Rc<Session>) {
        if let Self::Redis(cluster) = self {
            cluster.heard(node, session);
        }
    }

    /// Replaces the metadata of a session of this shard. Other nodes see them when this has
    /// returned, or as soon as Redis can be reached.
    pub(super) async fn update(&self, session: &Rc<Session>, metadata: &str) {
        session.set_metadata(Some(metadata));
        if let Self::Redis(cluster) = self {
            session.shared.changed(metadata);
            cluster.write_metadata(session).await;
        }
    }

    /// The same for a client, which does not wait for it.
    pub(super) fn update_soon(&self, session: &Rc<Session>, metadata: &str) {
        session.set_metadata(Some(metadata));
        if let Self::Redis(cluster) = self {
            session.shared.changed(metadata);
            let (cluster, session) = (cluster.clone(), session.clone());
            shards::spawn(async move { cluster.write_metadata(&session).await });
        }
    }

    /// Hands an envelope of a client to another node that waits for it; false: none does.
    pub(super) fn relay(
        &self,
        node: &Node,
        session: &Rc<Session>,
        envelope: &Envelope<'_>,
    ) -> bool {
        match self {
            Self::Memory => false,
            Self::Redis(cluster) => cluster.relay(node, session, envelope),
        }
    }

    /// Ends all requests of other nodes to a session with a line that says why.
    pub(super) fn fail_callers(&self, node: &Node, session: &Rc<Session>, reason: &str) {
        if let Self::Redis(cluster) = self {
            cluster.fail_callers(node, session, reason);
        }
    }

    /// A client has room again for what waits elsewhere.
    pub(super) fn wake(&self) {
        if let Self::Redis(cluster) = self {
            cluster.wake();
        }
    }

    /// The status view of the session that has a source, or had it last, if there is one.
    pub(super) async fn view_of_source(
        &self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        source: &str,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let here = async |id| {
            let view = memory::ask_owner(state, node, Ask::View(id)).await;
            view.ok_or(Fault::Busy)
        };
        let view = match self {
            Self::Memory => {
                let found = memory::find_source((state, node), source).await;
                match found.map_err(|()| Fault::Busy)? {
                    Some(id) => here(id).await?,
                    None => return Ok(None),
                }
            }
            Self::Redis(cluster) => {
                let Some(seen) = cluster.find_source(node, source).await? else {
                    return Ok(None);
                };
                // Who has its client knows it best.
                let own = if seen.is_ours {
                    here(seen.id).await?
                } else {
                    Vec::new()
                };
                if own.is_empty() { seen.view } else { own }
            }
        };
        Ok((!view.is_empty()).then_some(view))
    }
}

/// Ends of holders that one bind waits for.
const ENDS_MAX: usize = 4;
/// Pauses before a claim that a living session holds is tried again: the end of that session's
/// connection may have arrived with its shard not having read it yet.
const PAUSES: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(75)];

/// What a bind does about a claim that is held: a holder that is about to end is waited for.
#[derive(Debug, Default)]
struct Patience {
    ends: usize,
    pauses: usize,
}

impl Patience {
    /// Waits for what may free the claim; false: it is held.
    async fn wait(
        &mut self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        holder: Option<SessionId>,
    ) -> bool {
        if let Some(holder) = holder
            && self.ends < ENDS_MAX
        {
            self.ends += 1;
            let ended = memory::ask_owner(state, node, Ask::AwaitEnd(holder)).await;
            if ended.as_deref() == Some(answer::YES) {
                return true;
            }
        }
        let Some(pause) = PAUSES.get(self.pauses) else {
            return false;
        };
        self.pauses += 1;
        shards::sleep(*pause).await;
        true
    }
}
