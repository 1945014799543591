//! The one blocking read of a shard: its inbox, the mailboxes of its sessions, and the reply
//! mailboxes that nodes of the original write for it.
//!
//! It goes on where it was after every interruption, so an entry is lost only with Redis, and none
//! is taken twice. A set of streams that changes while it waits is told through the inbox by the
//! script that changes it. A mailbox whose client has enough to take is left alone until there is
//! room.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::Duration,
};

use hashbrown::HashMap;

use super::{
    Cluster,
    entry::{Entry, EntryId, Letter, streams},
};
use crate::{
    connection_gateway::{
        message,
        node::{End, Node},
        session::Session,
        session_id::SessionId,
    },
    redis::{ConnectionEnd, RedisFault, RespFault},
    shard_state::ShardState,
};

/// Entries of one stream in one read.
const ENTRIES_MAX: &[u8] = b"16";
/// Streams in one read, with one entry each, after a reply that was too large, until there is
/// nothing more.
const NARROW: usize = 4;
/// Before reading again when Redis is away.
const AWAY_PAUSE: Duration = Duration::from_millis(20);

/// What is read, and how far.
#[derive(Debug, Default)]
pub(super) struct Streams {
    inbox: Cell<EntryId>,
    mailboxes: RefCell<HashMap<SessionId, Mailbox>>,
    replies: RefCell<HashMap<u64, Position>>,
}

#[derive(Debug)]
struct Mailbox {
    session: Rc<Session>,
    position: Position,
}

#[derive(Debug)]
struct Position {
    key: Rc<str>,
    read: EntryId,
}

/// Whose stream it is.
#[derive(Debug, Clone)]
enum Owner {
    Inbox,
    Mailbox(Rc<Session>),
    /// The call that the answers are for.
    Replies(u64),
}

impl Streams {
    /// Until where the inbox was read.
    pub(super) fn inbox_read(&self) -> EntryId {
        self.inbox.get()
    }

    pub(super) fn add_mailbox(&self, session: &Rc<Session>, key: String) {
        let position = Position {
            key: key.into(),
            read: EntryId::default(),
        };
        let mailbox = Mailbox {
            session: session.clone(),
            position,
        };
        self.mailboxes.borrow_mut().insert(session.id, mailbox);
    }

    pub(super) fn remove_mailbox(&self, id: SessionId) {
        self.mailboxes.borrow_mut().remove(&id);
    }

    pub(super) fn add_replies(&self, call: u64, key: String) {
        let position = Position {
            key: key.into(),
            read: EntryId::default(),
        };
        self.replies.borrow_mut().insert(call, position);
    }

    /// The name of what is not read any more.
    pub(super) fn remove_replies(&self, call: u64) -> Option<Rc<str>> {
        let removed = self.replies.borrow_mut().remove(&call);
        removed.map(|position| position.key)
    }

    /// All that is to be read now.
    fn all(&self, inbox: &Rc<str>, node: &Node) -> Vec<(Rc<str>, EntryId, Owner)> {
        let mailboxes = self.mailboxes.borrow();
        let replies = self.replies.borrow();
        let mut all = Vec::with_capacity(1 + mailboxes.len() + replies.len());
        all.push((inbox.clone(), self.inbox.get(), Owner::Inbox));
        for mailbox in mailboxes.values() {
            if node.has_room(&mailbox.session.outbox) {
                let Position { key, read } = &mailbox.position;
                all.push((key.clone(), *read, Owner::Mailbox(mailbox.session.clone())));
            } else {
                mailbox.session.outbox.is_held_back.set(true);
            }
        }
        for (call, Position { key, read }) in &*replies {
            all.push((key.clone(), *read, Owner::Replies(*call)));
        }
        all
    }

    /// Remembers that an entry was read; false: nobody wants it any more.
    fn advance(&self, owner: &Owner, entry: EntryId) -> bool {
        match owner {
            Owner::Inbox => {
                self.inbox.set(self.inbox.get().max(entry));
                true
            }
            Owner::Mailbox(session) => {
                let mut mailboxes = self.mailboxes.borrow_mut();
                let found = mailboxes.get_mut(&session.id);
                found.is_some_and(|mailbox| mailbox.position.advance(entry))
            }
            Owner::Replies(call) => {
                let mut replies = self.replies.borrow_mut();
                let found = replies.get_mut(call);
                found.is_some_and(|position| position.advance(entry))
            }
        }
    }
}

impl Position {
    fn advance(&mut self, entry: EntryId) -> bool {
        let is_new = self.read < entry;
        self.read = self.read.max(entry);
        is_new
    }
}

/// Reads for as long as the shard lives.
pub(super) async fn run(cluster: Rc<Cluster>, state: Weak<ShardState>, node: Weak<Node>) {
    let mut is_narrow = false;
    while let (Some(state), Some(node)) = (state.upgrade(), node.upgrade()) {
        if cluster.is_stopped() {
            return;
        }
        let all = cluster.streams.all(&cluster.inbox, &node);
        // A read that waits must not keep the shard from its end.
        let (weak_state, weak_node) = (Rc::downgrade(&state), Rc::downgrade(&node));
        drop((state, node));
        let width = if is_narrow { NARROW } else { all.len() };
        let mut outcome = Ok(());
        let mut count = 0;
        for streams in all.chunks(width) {
            let read = cluster
                .read(streams, is_narrow, (&weak_state, &weak_node))
                .await;
            outcome = read.map(|taken| count += taken);
            if outcome.is_err() {
                break;
            }
        }
        match outcome {
            Ok(()) => is_narrow = is_narrow && count > 0,
            Err(fault) => {
                let end = cluster.reading.last_end();
                // And stays so while the next connection is made.
                is_narrow |= fault == RedisFault::Lost
                    && matches!(end, Some(ConnectionEnd::Protocol(fault)) if is_size(fault));
                shards::sleep(AWAY_PAUSE).await;
            }
        }
    }
}

fn is_size(fault: RespFault) -> bool {
    matches!(fault, RespFault::TooLong | RespFault::TooManyItems)
}

impl Cluster {
    /// Reads once; how many entries there were.
    async fn read(
        self: &Rc<Self>,
        wanted: &[(Rc<str>, EntryId, Owner)],
        is_narrow: bool,
        (state, node): (&Weak<ShardState>, &Weak<Node>),
    ) -> Result<usize, RedisFault> {
        let ids: Vec<Vec<u8>> = wanted.iter().map(|(_, id, _)| id.to_bytes()).collect();
        let mut command: Vec<&[u8]> = Vec::with_capacity(6 + 2 * wanted.len());
        if is_narrow {
            command.extend([&b"XREAD"[..], b"COUNT", b"1", b"STREAMS"]);
        } else {
            command.extend([&b"XREAD"[..], b"COUNT", ENTRIES_MAX, b"BLOCK"]);
            command.extend([&*self.limits.block, b"STREAMS"]);
        }
        command.extend(wanted.iter().map(|(key, ..)| key.as_bytes()));
        command.extend(ids.iter().map(Vec::as_slice));
        let reply = self.reading.command(&command).await?;
        let (Some(state), Some(node)) = (state.upgrade(), node.upgrade()) else {
            return Ok(0);
        };
        let mut count = 0;
        for (key, entries) in streams(reply) {
            let found = wanted.iter().find(|(name, ..)| name.as_bytes() == key);
            let Some((_, _, owner)) = found else {
                continue;
            };
            for entry in entries {
                count += 1;
                if self.streams.advance(owner, entry.id) {
                    self.take((&state, &node), owner, &entry);
                }
            }
        }
        Ok(count)
    }

    fn take(
        self: &Rc<Self>,
        (state, node): (&Rc<ShardState>, &Rc<Node>),
        owner: &Owner,
        entry: &Entry,
    ) {
        match owner {
            Owner::Mailbox(session) => self.posted(node, session, entry),
            Owner::Replies(call) => self.answered_by_original(node, *call, entry),
            Owner::Inbox => match Letter::of(entry) {
                Some(Letter::Answer {
                    call,
                    number,
                    is_last,
                    envelope,
                }) => self.answered(node, call, number, (envelope, is_last)),
                Some(Letter::End(id)) => {
                    if let Some(session) = node.session(id) {
                        // Nobody here waits for its claims, which are free already.
                        let _ = node.end(state, &session, End::Deleted);
                        session.outbox.close(None);
                    }
                }
                Some(Letter::Metadata(id, metadata)) => {
                    if let Some(session) = node.session(id) {
                        self.replaced(&session, metadata, entry.id);
                    }
                }
                Some(Letter::Cancel {
                    session,
                    request_id,
                    inbox,
                    call,
                }) => {
                    if let Some(session) = node.session(session)
                        && session.shared.drop_caller(request_id, inbox, call)
                        && session.can_cancel()
                    {
                        session
                            .outbox
                            .push(|out| message::write_cancel(out, request_id));
                    }
                }
                Some(Letter::Wake) | None => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_gateway::session::tests::{NOW, claims, session_of};

    #[test]
    fn what_was_read_once_is_not_taken_again_and_what_has_ended_is_not_taken_at_all() {
        let streams = Streams::default();
        let session = Rc::new(session_of(claims(), None, NOW));
        let owner = Owner::Mailbox(session.clone());
        assert!(!streams.advance(&owner, EntryId(5, 0)));
        streams.add_mailbox(&session, "mailbox".to_owned());
        assert!(streams.advance(&owner, EntryId(5, 0)));
        assert!(!streams.advance(&owner, EntryId(5, 0)));
        assert!(streams.advance(&owner, EntryId(5, 1)));
        streams.remove_mailbox(session.id);
        assert!(!streams.advance(&owner, EntryId(6, 0)));
        streams.add_replies(3, "k".to_owned());
        assert!(streams.advance(&Owner::Replies(3), EntryId(1, 0)));
        assert_eq!(streams.remove_replies(3).as_deref(), Some("k"));
        assert!(!streams.advance(&Owner::Replies(3), EntryId(2, 0)));
    }
}
