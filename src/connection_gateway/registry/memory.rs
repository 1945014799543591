//! The registry of a node that is alone: each shard keeps the keys that fall to it
//! ([`crate::connection_gateway::index`]) and answers the others over the rings.

use std::{rc::Rc, time::Duration};

use shards::{ShardId, notify::Event};

use super::Patience;
use crate::{
    connection_gateway::{
        fault::Fault,
        index::{Ask, answer},
        node::Node,
        session_id::SessionId,
        token::Claims,
    },
    log,
    request::Forwarded,
    shard_state::ShardState,
};

/// Tries to give a claim back while the rings are full, [`RELEASE_PAUSE`] apart.
const RELEASE_TRIES_MAX: usize = 500;
const RELEASE_PAUSE: Duration = Duration::from_millis(20);

/// Why a claim was not had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// Somebody else has it, or there is no room.
    Held,
    /// Nobody could be asked.
    Busy,
}

/// Claims a place of the subject, the nonce of a token that is good once, and all sources, or
/// nothing. Sources are claimed in their order, so of two sessions that want some of the same one
/// wins.
pub(super) async fn claim(
    (state, node): (&Rc<ShardState>, &Rc<Node>),
    claims: &Claims,
    id: SessionId,
) -> Result<(), Fault> {
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
    if let (None, true, Some(nonce)) = (&fault, node.settings.single_use_tokens, &claims.nonce) {
        // Nobody gives a nonce back: there is nothing to wait for.
        let ask = Ask::ClaimNonce(nonce.clone(), claims.expires_at);
        fault = match ask_owner(state, node, ask).await.as_deref() {
            Some(answer::YES) => None,
            Some(_) => Some(Fault::InvalidToken),
            None => Some(busy()),
        };
    }
    match fault {
        None => Ok(()),
        Some(fault) => {
            release((state, node), claims.subject.clone(), claimed, id, 0);
            Err(fault)
        }
    }
}

/// Gives back what a session holds: at once what falls to this shard, the rest in a task of its
/// own, whose end is the event's.
pub(super) fn release(
    (state, node): (&Rc<ShardState>, &Rc<Node>),
    subject: Box<str>,
    sources: Vec<Box<str>>,
    id: SessionId,
    shown_until: u64,
) -> Option<Rc<Event>> {
    let mut asks: Vec<Ask> = sources
        .into_iter()
        .map(|source| Ask::ReleaseSource(source, id, shown_until))
        .collect();
    asks.push(Ask::ReleaseSubject(subject, id));
    asks.retain(|ask| {
        let is_ours = owner(state, ask) == state.shard.id;
        if is_ours {
            node.index.borrow_mut().apply(ask.clone());
        }
        !is_ours
    });
    if asks.is_empty() {
        return None;
    }
    let releasing = node.releasing.begin(id);
    let done = releasing.event();
    let (state, node) = (state.clone(), node.clone());
    shards::spawn(async move {
        // Whatever ends the task, nobody waits for it any more.
        let _releasing = releasing;
        for ask in asks {
            let mut tries = 0;
            while ask_owner(&state, &node, ask.clone()).await.is_none() {
                tries += 1;
                if tries == RELEASE_TRIES_MAX {
                    log::error(|| "connection gateway: a claim could not be given back".into());
                    break;
                }
                shards::sleep(RELEASE_PAUSE).await;
            }
        }
    });
    Some(done)
}

/// The session that has a source, or had it last; `Err`: nobody could be asked.
pub(super) async fn find_source(
    (state, node): (&Rc<ShardState>, &Rc<Node>),
    source: &str,
) -> Result<Option<SessionId>, ()> {
    let found = ask_owner(state, node, Ask::FindSource(source.into())).await;
    found.map(|text| SessionId::parse(&text)).ok_or(())
}

fn owner(state: &ShardState, ask: &Ask) -> ShardId {
    state.shard.slots.owner_of(ask.key())
}

/// Claims one thing. One that a session holds which is about to end is waited for.
async fn claim_one(state: &Rc<ShardState>, node: &Rc<Node>, ask: Ask) -> Result<(), Refused> {
    let mut patience = Patience::default();
    loop {
        match ask_owner(state, node, ask.clone()).await.as_deref() {
            Some(answer::YES) => return Ok(()),
            Some(holder) => {
                let holder = SessionId::parse(holder);
                if !patience.wait((state, node), holder).await {
                    return Err(Refused::Held);
                }
            }
            None => return Err(Refused::Busy),
        }
    }
}

/// Asks the shard that knows; `None`: its ring is full, or it has ended.
pub(super) async fn ask_owner(
    state: &Rc<ShardState>,
    node: &Rc<Node>,
    ask: Ask,
) -> Option<Vec<u8>> {
    let owner = owner(state, &ask);
    if owner == state.shard.id {
        return Some(match ask {
            Ask::AwaitEnd(id) => node.await_end(id).await,
            ask => node.answer(ask),
        });
    }
    let call = Forwarded::Ask(Box::new(ask));
    let mut parts = state.shard.port.call(owner, call).ok()?;
    parts.next().await.ok()?
}
