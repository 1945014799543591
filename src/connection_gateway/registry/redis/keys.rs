//! Names in Redis. Those of sessions and mailboxes are the original's (contract section 4), so that
//! its nodes and ours share one Redis; inboxes, node names and nonces are ours.
//!
//! The names have no hash tags, as the original's have none: several of one session are in
//! different slots, and a script needs them together. So it is one Redis and not a Redis Cluster.

/// What all names begin with.
macro_rules! prefix {
    () => {
        "fastgpt-plugin:connection-gateway:"
    };
}

/// What names of records begin with.
pub(super) const SESSIONS: &str = concat!(prefix!(), "sessions:by-id:");
/// What names of mailboxes begin with.
pub(super) const MAILBOXES: &str = concat!(prefix!(), "mailbox:");

/// The record of a session: a text, its JSON.
pub(super) fn session(id: &str) -> String {
    format!("{SESSIONS}{id}")
}

/// The sessions of a subject: a set of ids.
pub(super) fn subject(subject: &str) -> String {
    format!(concat!(prefix!(), "sessions:by-subject:{}"), subject)
}

/// The sessions that a source has and had: a set of ids.
pub(super) fn source(source: &str) -> String {
    format!(concat!(prefix!(), "sessions:by-source:{}"), source)
}

/// The session that has a source: a text, its id.
pub(super) fn source_owner(source: &str) -> String {
    format!(concat!(prefix!(), "sessions:source-owner:{}"), source)
}

/// What is to be sent to the client of a session: a stream.
pub(super) fn mailbox(id: &str) -> String {
    format!("{MAILBOXES}{id}")
}

/// What the client has answered, for a node of the original: a stream.
pub(super) fn reply_mailbox(id: &str, request_id: &str) -> String {
    format!("{MAILBOXES}reply:{id}:{request_id}")
}

/// What one shard of a node is told by others: a stream. The name has a part that is this process's
/// own, so that two of the same node name do not read each other's, and letters that need no escape
/// in JSON and Lua.
pub(super) fn inbox(node_id: &str, process: &str, shard: u16) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let node: String = node_id
        .chars()
        .map(|letter| if is_plain(letter) { letter } else { '_' })
        .take(64)
        .collect();
    format!(concat!(prefix!(), "inbox:{}:{}:{}"), node, process, shard)
}

/// The process that has the name of a node: a text, what is its own of [`inbox`].
pub(super) fn node(node_id: &str) -> String {
    format!(concat!(prefix!(), "nodes:{}"), node_id)
}

/// That a token was used: a text.
pub(super) fn nonce(nonce: &str) -> String {
    format!(concat!(prefix!(), "nonces:{}"), nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_contract() {
        let prefix = "fastgpt-plugin:connection-gateway:";
        for (name, wanted) in [
            (session("s"), "sessions:by-id:s"),
            (subject("u"), "sessions:by-subject:u"),
            (source("debug:tmbId:a"), "sessions:by-source:debug:tmbId:a"),
            (source_owner("x"), "sessions:source-owner:x"),
            (mailbox("s"), "mailbox:s"),
            (reply_mailbox("s", "r"), "mailbox:reply:s:r"),
            (inbox("a\"b", "p", 3), "inbox:a_b:p:3"),
        ] {
            assert_eq!(name, format!("{prefix}{wanted}"));
        }
    }
}
