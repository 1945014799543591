//! The boundary between the sessions of this node and whoever else knows of them: who holds which
//! source, how many sessions a subject has, and how an envelope reaches the node that has the
//! client.
//!
//! One adapter so far, [`Registry::Memory`]: the node is alone, each shard keeps the keys that fall
//! to it ([`super::index`]) and answers the others over the rings. What another adapter (Redis,
//! several nodes) has to do stands with each operation. The rules all adapters keep: a claim is
//! atomic and names its session; a change is made only by the session that holds the claim; nothing
//! that was accepted is dropped in silence.

use std::rc::Rc;

use shards::ShardId;

use super::{
    fault::Fault,
    index::{Ask, answer},
    node::Node,
    session::{Now, Session},
    session_id::SessionId,
    token::Claims,
};
use crate::{log, request::Forwarded, shard_state::ShardState};

/// Tries to give a claim back while the rings are full, 20 ms apart.
const RELEASE_TRIES_MAX: usize = 500;

/// Where sessions are known beyond their own shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registry {
    /// In this process, which is the only node.
    Memory,
}

/// Why a claim was not had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// Somebody else has it, or there is no room.
    Held,
    /// Nobody could be asked.
    Busy,
}

impl Registry {
    /// Claims a place of the subject, the nonce of a token that is good once, and all sources, or
    /// nothing. Sources are claimed in their order, so of two sessions that want some of the same
    /// one wins. Another adapter claims in one script, with the lease as the claims' time to live.
    pub(super) async fn claim(
        self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        claims: &Claims,
        id: SessionId,
    ) -> Result<(), Fault> {
        let Self::Memory = self;
        let max = node.settings.sessions_per_subject_max;
        let busy = || Fault::BindFailed("Gateway is busy".to_owned());
        let one = |ask| claim_one(state, node, ask);
        one(Ask::ClaimSubject(claims.subject.clone(), id, max))
            .await
            .map_err(|refused| match refused {
                Refused::Held => Fault::ResourceLimit("maxSessionsPerSubject", max as u64),
                Refused::Busy => busy(),
            })?;
        let mut claimed = Vec::with_capacity(claims.sources.len());
        let mut fault = None;
        for source in &claims.sources {
            match one(Ask::ClaimSource(source.clone(), id)).await {
                Ok(()) => claimed.push(source.clone()),
                Err(Refused::Held) => fault = Some(Fault::AlreadyBound),
                Err(Refused::Busy) => fault = Some(busy()),
            }
            if fault.is_some() {
                break;
            }
        }
        // Last, so that a token whose bind failed for another reason is still good.
        if let (None, true, Some(nonce)) = (&fault, node.settings.single_use_tokens, &claims.nonce)
        {
            fault = match one(Ask::ClaimNonce(nonce.clone(), claims.expires_at)).await {
                Ok(()) => None,
                Err(Refused::Held) => Some(Fault::InvalidToken),
                Err(Refused::Busy) => Some(busy()),
            };
        }
        match fault {
            None => Ok(()),
            Some(fault) => {
                self.release((state, node), claims.subject.clone(), claimed, id, 0);
                Err(fault)
            }
        }
    }

    /// Gives back what a session holds, in a task of its own; until when it is still shown by its
    /// sources, monotonic ms. Another adapter deletes a key only while it names this session.
    pub(super) fn release(
        self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        subject: Box<str>,
        sources: Vec<Box<str>>,
        id: SessionId,
        shown_until: u64,
    ) {
        let Self::Memory = self;
        let mut asks: Vec<Ask> = sources
            .into_iter()
            .map(|source| Ask::ReleaseSource(source, id, shown_until))
            .collect();
        asks.push(Ask::ReleaseSubject(subject, id));
        // What falls to this shard needs no task.
        asks.retain(|ask| {
            let is_ours = owner(state, ask) == state.shard.id;
            if is_ours {
                node.index.borrow_mut().apply(ask.clone());
            }
            !is_ours
        });
        if asks.is_empty() {
            return;
        }
        let (state, node) = (state.clone(), node.clone());
        shards::spawn(async move {
            for ask in asks {
                let mut tries = 0;
                while ask_owner(&state, &node, ask.clone()).await.is_none() {
                    tries += 1;
                    if tries == RELEASE_TRIES_MAX {
                        log::error(|| "connection gateway: a claim could not be given back".into());
                        break;
                    }
                    shards::sleep(std::time::Duration::from_millis(20)).await;
                }
            }
        });
    }

    /// The lease of a session begins anew. In process it is the session's own and costs two stores;
    /// another adapter writes once a third of the lease, whatever comes, and compares the
    /// generation.
    pub(super) fn renew(self, session: &Session, now: Now) {
        let Self::Memory = self;
        session.renew(now);
    }

    /// Replaces a session's metadata. Another adapter keeps them in a key of their own, so that no
    /// renewal writes them and none undoes this.
    pub(super) fn update(self, session: &Session, metadata: &str) {
        let Self::Memory = self;
        session.set_metadata(Some(metadata));
    }

    /// The session that has a source, or had it last; `Err`: nobody could be asked.
    pub(super) async fn find_source(
        self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        source: &str,
    ) -> Result<Option<SessionId>, ()> {
        let Self::Memory = self;
        let found = ask_owner(state, node, Ask::FindSource(source.into())).await;
        found.map(|text| SessionId::parse(&text)).ok_or(())
    }

    /// The status view of a session, empty when there is none; `Err`: nobody could be asked.
    /// Callers are steered to the owner first, so only a session found by its source may be
    /// elsewhere.
    pub(super) async fn view(
        self,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        id: SessionId,
    ) -> Result<Vec<u8>, ()> {
        let Self::Memory = self;
        ask_owner(state, node, Ask::View(id)).await.ok_or(())
    }
}

fn owner(state: &ShardState, ask: &Ask) -> ShardId {
    state.shard.slots.owner_of(ask.key())
}

async fn claim_one(state: &Rc<ShardState>, node: &Rc<Node>, ask: Ask) -> Result<(), Refused> {
    match ask_owner(state, node, ask).await.as_deref() {
        Some(answer::YES) => Ok(()),
        Some(_) => Err(Refused::Held),
        None => Err(Refused::Busy),
    }
}

/// Asks the shard that knows; `None`: its ring is full, or it has ended.
async fn ask_owner(state: &Rc<ShardState>, node: &Rc<Node>, ask: Ask) -> Option<Vec<u8>> {
    let owner = owner(state, &ask);
    if owner == state.shard.id {
        return Some(node.answer(ask));
    }
    let call = Forwarded::Ask(Box::new(ask));
    let mut parts = state.shard.port.call(owner, call).ok()?;
    parts.next().await.ok()?
}
