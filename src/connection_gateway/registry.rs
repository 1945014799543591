//! The boundary between the sessions of this shard and whoever else knows of them: who holds which
//! source, how many sessions a subject has, and how an envelope reaches the node that has the
//! client.
//!
//! The rules all adapters keep: a claim is atomic and names its session; a change is made only by
//! the session that holds the claim; nothing that was accepted is dropped in silence.

mod memory;

use std::{rc::Rc, time::Duration};

use shards::notify::Event;

use super::{
    fault::Fault,
    index::{Ask, answer},
    node::Node,
    session::{Now, Session},
    session_id::SessionId,
};
use crate::shard_state::ShardState;

/// Where sessions are known beyond their own shard.
#[derive(Debug, Clone)]
pub enum Registry {
    /// In this process, which is the only node.
    Memory,
}

impl Registry {
    /// Claims what a session needs before it is one, or nothing.
    pub(super) async fn claim(
        &self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        session: &Session,
    ) -> Result<(), Fault> {
        let Self::Memory = self;
        memory::claim((state, node), &session.claims, session.id).await
    }

    /// Gives back what a session holds, at once or in a task of its own, whose end is the event's;
    /// until when the session is still shown by its sources, monotonic ms.
    pub(super) fn release(
        &self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        session: &Session,
        shown_until: u64,
    ) -> Option<Rc<Event>> {
        let Self::Memory = self;
        let claims = &session.claims;
        memory::release(
            (state, node),
            claims.subject.clone(),
            claims.sources.clone(),
            session.id,
            shown_until,
        )
    }

    /// The lease of a session begins anew: two stores.
    pub(super) fn renew(&self, session: &Session, now: Now) {
        let Self::Memory = self;
        session.renew(now);
    }

    /// Replaces a session's metadata.
    pub(super) fn update(&self, session: &Session, metadata: &str) {
        let Self::Memory = self;
        session.set_metadata(Some(metadata));
    }

    /// The session that has a source, or had it last; `Err`: nobody could be asked.
    pub(super) async fn find_source(
        &self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        source: &str,
    ) -> Result<Option<SessionId>, ()> {
        let Self::Memory = self;
        memory::find_source((state, node), source).await
    }

    /// The status view of a session, empty when there is none; `Err`: nobody could be asked.
    /// Callers are steered to the owner first, so only a session found by its source may be
    /// elsewhere.
    pub(super) async fn view(
        &self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        id: SessionId,
    ) -> Result<Vec<u8>, ()> {
        let Self::Memory = self;
        memory::ask_owner(state, node, Ask::View(id))
            .await
            .ok_or(())
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
