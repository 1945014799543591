//! Entries of streams: what is in a mailbox, what is in an inbox, and how both are read from the
//! reply of `XREAD`. No I/O.

use crate::{
    connection_gateway::{envelope::write_number, session_id::SessionId},
    redis::Reply,
};

/// The id of an entry: milliseconds since 1970, and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub(super) struct EntryId(pub(super) u64, pub(super) u64);

impl EntryId {
    /// Reads `ms-number`.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (ms, number) = text.split_once('-')?;
        Some(Self(ms.parse().ok()?, number.parse().ok()?))
    }

    /// Its text.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        write_number(&mut out, self.0);
        out.push(b'-');
        write_number(&mut out, self.1);
        out
    }

    /// The one that follows.
    pub(super) fn next(self) -> Self {
        match self.1.checked_add(1) {
            Some(number) => Self(self.0, number),
            None => Self(self.0.saturating_add(1), 0),
        }
    }
}

/// One entry.
#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) id: EntryId,
    fields: Vec<Reply>,
}

impl Entry {
    /// The text of a field.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut pairs = self.fields.chunks_exact(2);
        let value = pairs.find_map(|pair| match pair {
            [Reply::Bulk(key), Reply::Bulk(value)] if key == name.as_bytes() => Some(value),
            _ => None,
        })?;
        std::str::from_utf8(value).ok()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn session(&self, name: &str) -> Option<SessionId> {
        SessionId::parse(self.text(name)?.as_bytes())
    }
}

/// The streams of a reply to `XREAD`, each with its entries; what is no such reply has none.
pub(super) fn streams(reply: Reply) -> Vec<(Vec<u8>, Vec<Entry>)> {
    let pairs: Vec<(Reply, Reply)> = match reply {
        Reply::Map(pairs) => pairs,
        // Before RESP3.
        Reply::Array(items) => items
            .into_iter()
            .filter_map(|item| match item {
                Reply::Array(pair) => <[Reply; 2]>::try_from(pair).ok().map(|[a, b]| (a, b)),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    let streams = pairs.into_iter().filter_map(|pair| match pair {
        (Reply::Bulk(key), Reply::Array(entries)) => {
            Some((key, entries.into_iter().filter_map(entry).collect()))
        }
        _ => None,
    });
    streams.collect()
}

fn entry(reply: Reply) -> Option<Entry> {
    let Reply::Array(pair) = reply else {
        return None;
    };
    match <[Reply; 2]>::try_from(pair).ok()? {
        [Reply::Bulk(id), Reply::Array(fields)] => Some(Entry {
            id: EntryId::parse(&id)?,
            fields,
        }),
        // Deleted while it was read.
        _ => None,
    }
}

/// An entry of a mailbox: something for the client of a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Post<'a> {
    pub(super) envelope: &'a str,
    pub(super) answers: Wanted<'a>,
}

/// Where what the client answers is to go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted<'a> {
    /// To nobody.
    No,
    /// To an inbox, under this number, for so many ms.
    Inbox {
        inbox: &'a str,
        call: u64,
        for_ms: u64,
    },
    /// A node of the original has published it, and reads a mailbox of the request's own.
    ReplyMailbox,
}

impl<'a> Post<'a> {
    pub(super) fn of(entry: &'a Entry) -> Option<Self> {
        let answers = match entry.text("inbox") {
            None => Wanted::ReplyMailbox,
            Some("") => Wanted::No,
            Some(inbox) => Wanted::Inbox {
                inbox,
                call: entry.number("call")?,
                for_ms: entry.number("timeout")?,
            },
        };
        Some(Self {
            envelope: entry.text("envelope")?,
            answers,
        })
    }
}

/// An entry of an inbox.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Letter<'a> {
    /// What a client has answered to a call of this shard.
    Answer {
        call: u64,
        number: u64,
        is_last: bool,
        envelope: &'a str,
    },
    /// A session of this shard was deleted.
    End(SessionId),
    /// A session of this shard has other metadata.
    Metadata(SessionId, &'a str),
    /// Nobody waits for the answers to this request any more.
    Cancel {
        session: SessionId,
        request_id: &'a str,
        inbox: &'a str,
        call: u64,
    },
    /// There are other streams to read, and no more than that.
    Wake,
}

impl<'a> Letter<'a> {
    pub(super) fn of(entry: &'a Entry) -> Option<Self> {
        if entry.text("envelope").is_some() {
            Some(Self::Answer {
                call: entry.number("call")?,
                number: entry.number("n")?,
                is_last: entry.text("last")? == "1",
                envelope: entry.text("envelope")?,
            })
        } else if entry.text("end").is_some() {
            entry.session("end").map(Self::End)
        } else if let Some(metadata) = entry.text("metadata") {
            Some(Self::Metadata(entry.session("session")?, metadata))
        } else if let Some(request_id) = entry.text("cancel") {
            Some(Self::Cancel {
                session: entry.session("session")?,
                request_id,
                inbox: entry.text("inbox")?,
                call: entry.number("call")?,
            })
        } else {
            entry.text("wake").map(|_| Self::Wake)
        }
    }
}

/// What an answer's number says about those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the next one.
    Next,
    /// It was here before: its owner could not know that.
    Repeated,
    /// One before it is missing.
    AfterGap,
}

/// Compares an answer's number with the one that is expected.
pub(super) fn place(number: u64, expected: u64) -> Place {
    match number.cmp(&expected) {
        std::cmp::Ordering::Equal => Place::Next,
        std::cmp::Ordering::Less => Place::Repeated,
        std::cmp::Ordering::Greater => Place::AfterGap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.as_bytes().to_vec())
    }

    fn raw(id: &str, fields: &[(&str, &str)]) -> Reply {
        let fields = fields
            .iter()
            .flat_map(|(name, value)| [bulk(name), bulk(value)]);
        Reply::Array(vec![bulk(id), Reply::Array(fields.collect())])
    }

    fn one(fields: &[(&str, &str)]) -> Entry {
        entry(raw("5-1", fields)).unwrap()
    }

    #[test]
    fn both_versions_of_a_reply_are_read_and_a_deleted_entry_is_none() {
        let entries = || Reply::Array(vec![raw("7-2", &[("wake", "1")]), Reply::Null]);
        let pairs = Reply::Map(vec![(bulk("k"), entries())]);
        let lists = Reply::Array(vec![Reply::Array(vec![bulk("k"), entries()])]);
        for reply in [pairs, lists] {
            let found = streams(reply);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].0, b"k");
            assert_eq!(found[0].1.len(), 1);
            assert_eq!(found[0].1[0].id, EntryId(7, 2));
        }
        assert!(streams(Reply::Null).is_empty());
    }

    #[test]
    fn a_post_says_where_its_answers_go() {
        let answers = |fields: &[(&str, &str)]| {
            let entry = one(fields);
            Post::of(&entry).map(|post| format!("{:?}", post.answers))
        };
        assert_eq!(
            answers(&[("envelope", "{}")]).unwrap(),
            format!("{:?}", Wanted::ReplyMailbox)
        );
        assert_eq!(
            answers(&[("envelope", "{}"), ("inbox", "")]).unwrap(),
            format!("{:?}", Wanted::No)
        );
        let whole = [
            ("envelope", "{}"),
            ("inbox", "i"),
            ("call", "4"),
            ("timeout", "9"),
        ];
        let wanted = Wanted::Inbox {
            inbox: "i",
            call: 4,
            for_ms: 9,
        };
        assert_eq!(answers(&whole).unwrap(), format!("{wanted:?}"));
        assert_eq!(answers(&whole[..3]), None);
        assert_eq!(answers(&[("inbox", "")]), None);
    }

    #[test]
    fn a_letter_is_what_its_fields_say() {
        let id = SessionId::of([1; 16]);
        let entry = one(&[("call", "3"), ("n", "0"), ("last", "1"), ("envelope", "{}")]);
        let wanted = Letter::Answer {
            call: 3,
            number: 0,
            is_last: true,
            envelope: "{}",
        };
        assert_eq!(Letter::of(&entry), Some(wanted));
        assert_eq!(
            Letter::of(&one(&[("end", id.as_str())])),
            Some(Letter::End(id))
        );
        let entry = one(&[("metadata", "{}"), ("session", id.as_str())]);
        assert_eq!(Letter::of(&entry), Some(Letter::Metadata(id, "{}")));
        let entry = one(&[
            ("cancel", "r"),
            ("session", id.as_str()),
            ("inbox", "i"),
            ("call", "2"),
        ]);
        assert!(matches!(
            Letter::of(&entry),
            Some(Letter::Cancel { call: 2, .. })
        ));
        assert_eq!(Letter::of(&one(&[("wake", "1")])), Some(Letter::Wake));
        assert_eq!(Letter::of(&one(&[("end", "nobody")])), None);
        assert_eq!(Letter::of(&one(&[])), None);
    }

    proptest! {
        #[test]
        fn an_id_is_read_back_and_the_next_one_is_later(ms in 0..1u64 << 60, number: u64) {
            let id = EntryId(ms, number);
            prop_assert_eq!(EntryId::parse(&id.to_bytes()), Some(id));
            prop_assert!(id.next() > id);
        }

        /// Whatever is lost and repeated, what is taken is a run from the start.
        #[test]
        fn what_is_taken_has_no_gap_and_no_repetition(numbers in proptest::collection::vec(0u64..6, 0..40)) {
            let (mut taken, mut expected) = (Vec::new(), 0);
            for number in numbers {
                match place(number, expected) {
                    Place::Next => {
                        taken.push(number);
                        expected += 1;
                    }
                    Place::Repeated => prop_assert!(taken.contains(&number)),
                    Place::AfterGap => break,
                }
            }
            prop_assert_eq!(&taken, &(0..taken.len() as u64).collect::<Vec<_>>());
        }
    }
}
