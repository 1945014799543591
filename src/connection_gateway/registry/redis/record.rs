//! A session as Redis has it: the original's JSON, in an order of our own.
//!
//! What changes with the lease comes first and always has the same length, so a renewal writes it
//! in place, whatever the metadata weigh (contract D26):
//!
//! ```text
//! {"expiresAt":1796011816666,"lastSeenAt":1796011801666,"status":"connected","generation":0,
//!  \--------------------- the head --------------------/\-------- the fence: owner and state -->
//!  "inbox":"...","ownerNodeId":"node-a","id":"...",...,"metadata":{...}}
//! ```
//!
//! Whoever writes to the head compares the fence first: so nothing is renewed that was deleted,
//! closed, or is another's. Readers of JSON do not mind the order, nor the member `inbox`. A node
//! of the original that changes the metadata writes its own order; the owner then puts ours back.

use std::borrow::Cow;

use crate::connection_gateway::{
    envelope::write_number,
    json,
    session::{Now, Session, Status, Terms},
    session_id::SessionId,
};

/// Bytes of the head.
pub(super) const HEAD_BYTES: usize = 53;

/// What a renewal writes.
pub(super) fn head(expires_at: u64, last_seen: u64) -> String {
    let head = format!(r#"{{"expiresAt":{expires_at:013},"lastSeenAt":{last_seen:013}"#);
    debug_assert_eq!(head.len(), HEAD_BYTES);
    head
}

/// What has to follow the head for it to be written: the session is still so, and this owner's.
pub(super) fn fence(session: &Session, inbox: &str, status: Status) -> String {
    // As long as the other word.
    let status = match status {
        Status::Connected => r#""connected""#,
        Status::Closed => r#""closed"   "#,
    };
    let mut fence = format!(
        r#","status":{status},"generation":{},"inbox":"{inbox}","ownerNodeId":"#,
        session.generation
    )
    .into_bytes();
    json::write_text(&mut fence, session.node_id());
    fence.push(b',');
    // Texts in quotes, and digits.
    String::from_utf8(fence).unwrap_or_default()
}

/// The whole record.
pub(super) fn write(session: &Session, inbox: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(head(session.expires_at(), session.last_seen()).as_bytes());
    out.extend_from_slice(fence(session, inbox, Status::Connected).as_bytes());
    let start = out.len();
    session.write_claims(&mut out);
    // The claims begin an object of their own.
    out.remove(start);
    out.extend_from_slice(br#","connectedAt":"#);
    write_number(&mut out, session.connected_at());
    session.write_metadata(&mut out);
    out.push(b'}');
    out
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record<'a> {
    raw: &'a str,
    pub(super) id: SessionId,
    pub(super) subject: Cow<'a, str>,
    pub(super) node_id: Cow<'a, str>,
    pub(super) status: Cow<'a, str>,
    pub(super) generation: u64,
    pub(super) expires_at: u64,
    /// Empty: its owner is a node of the original.
    pub(super) inbox: Cow<'a, str>,
    pub(super) metadata: Option<&'a str>,
    last_seen: u64,
    connected_at: u64,
    consumer_type: Cow<'a, str>,
    scope: &'a str,
    capabilities: &'a str,
}

impl<'a> Record<'a> {
    /// Reads a record; `None` when it is none.
    pub(super) fn parse(raw: &'a str) -> Option<Self> {
        let names = [
            "id",
            "consumerType",
            "subject",
            "sessionScope",
            "capabilities",
            "generation",
            "ownerNodeId",
            "status",
            "connectedAt",
            "lastSeenAt",
            "expiresAt",
            "metadata",
            "inbox",
        ];
        let [
            id,
            consumer_type,
            subject,
            scope,
            capabilities,
            generation,
            node_id,
            status,
            connected_at,
            last_seen,
            expires_at,
            metadata,
            inbox,
        ] = json::members(raw, names)?;
        // Records of ours pad no number but those of the head, whose length is that of today's.
        let number = |raw: Option<&str>| json::integer(raw?, 0);
        Some(Self {
            raw,
            id: SessionId::parse(json::text(id?)?.as_bytes())?,
            subject: json::text(subject?)?,
            node_id: json::text(node_id?)?,
            status: json::text(status?)?,
            generation: number(generation)?,
            expires_at: number(expires_at)?,
            inbox: inbox.and_then(json::text).unwrap_or_default(),
            metadata: metadata.filter(|raw| json::is_object(raw)),
            last_seen: number(last_seen)?,
            connected_at: number(connected_at)?,
            consumer_type: json::text(consumer_type?)?,
            scope: scope.filter(|raw| json::is_object(raw))?,
            capabilities: capabilities?,
        })
    }

    /// Whether its client is there, as far as its owner has said by `now`.
    pub(super) fn is_alive(&self, now: Now) -> bool {
        self.status == Status::Connected.word() && self.expires_at > now.unix_ms
    }

    /// What a caller's envelope is checked against.
    pub(super) fn terms(&self) -> Option<Terms> {
        let capabilities: Vec<String> = serde_json::from_str(self.capabilities).ok()?;
        Some(Terms {
            generation: self.generation,
            consumer_type: self.consumer_type.as_ref().into(),
            capabilities: capabilities.into_iter().map(Into::into).collect(),
        })
    }

    /// The sources it claims.
    pub(super) fn sources(&self) -> Vec<Box<str>> {
        let [one, more] = json::members(self.scope, ["source", "sources"]).unwrap_or_default();
        let one = one.and_then(json::text).map(Cow::into_owned);
        let more = more.and_then(|raw| serde_json::from_str::<Vec<String>>(raw).ok());
        let mut all: Vec<Box<str>> = one
            .into_iter()
            .chain(more.unwrap_or_default())
            .map(Into::into)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The same record with other metadata; everything else keeps its bytes.
    pub(super) fn with_metadata(&self, metadata: &str) -> Option<String> {
        let (before, after) = match self.metadata {
            Some(old) => {
                let start = (old.as_ptr() as usize).checked_sub(self.raw.as_ptr() as usize)?;
                (self.raw.get(..start)?, self.raw.get(start + old.len()..)?)
            }
            None => (self.raw.trim_end().strip_suffix('}')?, "}"),
        };
        let mut out = before.as_bytes().to_vec();
        if self.metadata.is_none() {
            out.extend_from_slice(br#","metadata":"#);
        }
        json::write_value(&mut out, metadata);
        out.extend_from_slice(after.as_bytes());
        String::from_utf8(out).ok()
    }

    /// Appends it as callers see it: the contract's members in its order.
    pub(super) fn write_view(&self, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, name: &str, text: &str| {
            out.extend_from_slice(name.as_bytes());
            json::write_text(out, text);
        };
        let raw = |out: &mut Vec<u8>, name: &str, raw: &str| {
            out.extend_from_slice(name.as_bytes());
            json::write_value(out, raw);
        };
        let number = |out: &mut Vec<u8>, name: &str, number: u64| {
            out.extend_from_slice(name.as_bytes());
            write_number(out, number);
        };
        text(out, r#"{"id":"#, self.id.as_str());
        text(out, r#","consumerType":"#, &self.consumer_type);
        text(out, r#","subject":"#, &self.subject);
        raw(out, r#","sessionScope":"#, self.scope);
        raw(
            out,
            r#","transport":"websocket","capabilities":"#,
            self.capabilities,
        );
        number(out, r#","generation":"#, self.generation);
        text(out, r#","ownerNodeId":"#, &self.node_id);
        text(out, r#","status":"#, &self.status);
        number(out, r#","connectedAt":"#, self.connected_at);
        number(out, r#","lastSeenAt":"#, self.last_seen);
        number(out, r#","expiresAt":"#, self.expires_at);
        if let Some(metadata) = self.metadata {
            raw(out, r#","metadata":"#, metadata);
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_gateway::session::tests::{claims, session_of};

    const NOW: Now = Now {
        mono_ms: 1_000,
        unix_ms: 1_796_011_801_666,
    };

    #[test]
    fn a_record_of_ours_is_read_back_and_its_head_is_where_the_scripts_look() {
        let session = session_of(claims(), Some(r#"{"a":[1, 2]}"#), NOW);
        let raw = String::from_utf8(write(&session, "inbox:n:p:0")).unwrap();
        let fence = fence(&session, "inbox:n:p:0", Status::Connected);
        assert_eq!(&raw[HEAD_BYTES..HEAD_BYTES + fence.len()], fence);
        assert_eq!(
            fence.len(),
            super::fence(&session, "inbox:n:p:0", Status::Closed).len()
        );
        let record = Record::parse(&raw).unwrap();
        assert_eq!(record.id, session.id);
        assert_eq!(record.inbox, "inbox:n:p:0");
        assert_eq!(record.metadata, Some(r#"{"a":[1, 2]}"#));
        assert_eq!(
            (record.last_seen, record.expires_at),
            (NOW.unix_ms, NOW.unix_ms + 100)
        );
        assert!(record.is_alive(NOW));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        session.write(&mut ours);
        record.write_view(&mut theirs);
        assert_eq!(
            String::from_utf8(theirs).unwrap(),
            String::from_utf8(ours).unwrap()
        );
    }

    #[test]
    fn other_metadata_change_nothing_else_in_whatever_order_a_record_is() {
        let session = session_of(claims(), None, NOW);
        let ours = String::from_utf8(write(&session, "i")).unwrap();
        let first = Record::parse(&ours)
            .unwrap()
            .with_metadata(r#"{"b":{}}"#)
            .unwrap();
        let second = Record::parse(&first)
            .unwrap()
            .with_metadata(r#"{"c":[]}"#)
            .unwrap();
        assert_eq!(
            second,
            ours.strip_suffix('}').unwrap().to_owned() + r#","metadata":{"c":[]}}"#
        );
        let theirs = r#"{"id":"07070707-0707-4707-8707-070707070707","consumerType":"c","subject":"u","sessionScope":{"userId":"u","sources":["b","a"],"source":"b"},"transport":"websocket","capabilities":["x"],"ownerNodeId":"n","status":"closed","expiresAt":5,"metadata":{"m":{}},"now":1,"generation":0,"connectedAt":1,"lastSeenAt":1}"#;
        let record = Record::parse(theirs).unwrap();
        assert_eq!(record.sources(), ["a".into(), "b".into()]);
        assert!(record.inbox.is_empty() && !record.is_alive(NOW));
        assert_eq!(
            record.with_metadata("{}").unwrap(),
            theirs.replace(r#"{"m":{}}"#, "{}")
        );
        assert_eq!(Record::parse("{}"), None);
    }
}
