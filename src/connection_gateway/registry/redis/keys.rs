//! Names in Redis. Those of sessions and mailboxes are the original's (contract section 4), so that
//! its nodes and ours share one Redis; inboxes, node names and nonces are ours.
//!
//! The original's names have no hash tags: several of one session are in different slots of a Redis
//! Cluster, and a script needs them together. Where no node of the original takes part, all names
//! may have one tag, and so one slot.

/// How names begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keys {
    sessions: &'static str,
    subjects: &'static str,
    sources: &'static str,
    owners: &'static str,
    mailboxes: &'static str,
    inboxes: &'static str,
    nodes: &'static str,
    nonces: &'static str,
}

macro_rules! keys {
    ($prefix:literal) => {
        Keys {
            sessions: concat!($prefix, "sessions:by-id:"),
            subjects: concat!($prefix, "sessions:by-subject:"),
            sources: concat!($prefix, "sessions:by-source:"),
            owners: concat!($prefix, "sessions:source-owner:"),
            mailboxes: concat!($prefix, "mailbox:"),
            inboxes: concat!($prefix, "inbox:"),
            nodes: concat!($prefix, "nodes:"),
            nonces: concat!($prefix, "nonces:"),
        }
    };
}

impl Keys {
    /// The original's names.
    const ORIGINAL: Self = keys!("fastgpt-plugin:connection-gateway:");
    /// The same with one hash tag.
    const TAGGED: Self = keys!("{fastgpt-plugin:connection-gateway}:");

    /// Names with a hash tag or as the original has them.
    pub(super) fn new(are_tagged: bool) -> Self {
        match are_tagged {
            true => Self::TAGGED,
            false => Self::ORIGINAL,
        }
    }

    /// What names of records begin with.
    pub(super) fn sessions(self) -> &'static str {
        self.sessions
    }

    /// What names of mailboxes begin with.
    pub(super) fn mailboxes(self) -> &'static str {
        self.mailboxes
    }

    /// The record of a session: a text, its JSON.
    pub(super) fn session(self, id: &str) -> String {
        [self.sessions, id].concat()
    }

    /// The sessions of a subject: a set of ids.
    pub(super) fn subject(self, subject: &str) -> String {
        [self.subjects, subject].concat()
    }

    /// The sessions that a source has and had: a set of ids.
    pub(super) fn source(self, source: &str) -> String {
        [self.sources, source].concat()
    }

    /// The session that has a source: a text, its id.
    pub(super) fn source_owner(self, source: &str) -> String {
        [self.owners, source].concat()
    }

    /// What is to be sent to the client of a session: a stream.
    pub(super) fn mailbox(self, id: &str) -> String {
        [self.mailboxes, id].concat()
    }

    /// What the client has answered, for a node of the original: a stream.
    pub(super) fn reply_mailbox(self, id: &str, request_id: &str) -> String {
        [self.mailboxes, "reply:", id, ":", request_id].concat()
    }

    /// What one shard of a node is told by others: a stream. The name has a part that is this
    /// process's own, so that two of the same node name do not read each other's, and letters that
    /// need no escape in JSON and Lua.
    pub(super) fn inbox(self, node_id: &str, process: &str, shard: u16) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let node: String = node_id
            .chars()
            .map(|letter| if is_plain(letter) { letter } else { '_' })
            .take(64)
            .collect();
        format!("{}{node}:{process}:{shard}", self.inboxes)
    }

    /// The process that has the name of a node: a text, what is its own of [`Self::inbox`].
    pub(super) fn node(self, node_id: &str) -> String {
        [self.nodes, node_id].concat()
    }

    /// That a token was used: a text.
    pub(super) fn nonce(self, nonce: &str) -> String {
        [self.nonces, nonce].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_contract_and_may_have_one_tag() {
        for (keys, prefix) in [
            (Keys::new(false), "fastgpt-plugin:connection-gateway:"),
            (Keys::new(true), "{fastgpt-plugin:connection-gateway}:"),
        ] {
            for (name, wanted) in [
                (keys.session("s"), "sessions:by-id:s"),
                (keys.subject("u"), "sessions:by-subject:u"),
                (
                    keys.source("debug:tmbId:a"),
                    "sessions:by-source:debug:tmbId:a",
                ),
                (keys.source_owner("x"), "sessions:source-owner:x"),
                (keys.mailbox("s"), "mailbox:s"),
                (keys.reply_mailbox("s", "r"), "mailbox:reply:s:r"),
                (keys.inbox("a\"b", "p", 3), "inbox:a_b:p:3"),
                (keys.node("n"), "nodes:n"),
                (keys.nonce("o"), "nonces:o"),
            ] {
                assert_eq!(name, format!("{prefix}{wanted}"));
            }
        }
    }
}
