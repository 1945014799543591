//! Where a request belongs: a pure decision from its session id and what its connection has done.
//!
//! The first request that belongs elsewhere moves the whole connection; a connection that then
//! names yet another owner is mixed (a front proxy's pool), and its foreign requests cross the ring
//! one by one. Without a session id a request runs where it arrived.

use shards::{ShardId, slots::SlotTable};

use crate::session::SessionId;

/// What a connection has done so far that bears on steering.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionHistory {
    /// Times the connection moved to another shard.
    pub moves: u8,
    /// Requests with a session id that were served.
    pub owned_requests: bool,
    /// It named more than one owner: it stays where it is.
    pub is_mixed: bool,
}

/// Where to serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Here.
    Local,
    /// On its owner, and the connection with it.
    Move(ShardId),
    /// On its owner; the connection stays.
    Forward(ShardId),
}

/// Decides for a request whose `Mcp-Session-Id` header is `session` (`None`: it has none, or not
/// one of ours, which then is refused here). `can_move`: nothing hinders the socket from leaving.
pub fn decide(
    me: ShardId,
    slots: &SlotTable,
    session: Option<&SessionId>,
    history: &mut ConnectionHistory,
    can_move: bool,
) -> Decision {
    let Some(session) = session else {
        return Decision::Local;
    };
    let owner = slots.owner_of(session.as_bytes());
    if owner == me {
        history.owned_requests = true;
        return Decision::Local;
    }
    if history.moves > 0 || history.owned_requests {
        history.is_mixed = true;
    }
    if history.is_mixed || !can_move {
        return Decision::Forward(owner);
    }
    Decision::Move(owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::IdKeys;

    fn id_of(owner: ShardId, slots: &SlotTable) -> SessionId {
        IdKeys::new(&[1; 32], "test")
            .mint(|bytes| slots.owner_of(bytes) == owner)
            .unwrap()
    }

    #[test]
    fn the_ladder() {
        let slots = SlotTable::new(4);
        let (own, foreign, third) = (id_of(0, &slots), id_of(2, &slots), id_of(3, &slots));
        let mut fresh = ConnectionHistory::default();
        assert_eq!(decide(0, &slots, None, &mut fresh, true), Decision::Local);
        assert_eq!(
            decide(0, &slots, Some(&foreign), &mut fresh, true),
            Decision::Move(2)
        );

        // After the move, at shard 2: local for its own, mixed from the first foreign one on.
        let mut moved = ConnectionHistory {
            moves: 1,
            ..Default::default()
        };
        assert_eq!(
            decide(2, &slots, Some(&foreign), &mut moved, true),
            Decision::Local
        );
        assert_eq!(
            decide(2, &slots, Some(&third), &mut moved, true),
            Decision::Forward(3)
        );
        assert_eq!(
            decide(2, &slots, Some(&own), &mut moved, true),
            Decision::Forward(0)
        );
        assert_eq!(
            decide(2, &slots, Some(&foreign), &mut moved, true),
            Decision::Local
        );
        assert!(moved.is_mixed);
    }

    #[test]
    fn a_connection_that_served_its_own_shard_does_not_move() {
        let slots = SlotTable::new(4);
        let (own, foreign) = (id_of(0, &slots), id_of(2, &slots));
        let mut history = ConnectionHistory::default();
        assert_eq!(
            decide(0, &slots, Some(&own), &mut history, true),
            Decision::Local
        );
        assert_eq!(
            decide(0, &slots, Some(&foreign), &mut history, true),
            Decision::Forward(2)
        );
    }

    #[test]
    fn what_cannot_move_is_forwarded_without_being_mixed() {
        let slots = SlotTable::new(2);
        let foreign = id_of(1, &slots);
        let mut history = ConnectionHistory::default();
        assert_eq!(
            decide(0, &slots, Some(&foreign), &mut history, false),
            Decision::Forward(1)
        );
        assert!(!history.is_mixed);
    }
}
