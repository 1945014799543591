//! Who holds what: the part of the registry that one shard keeps, as plain memory.
//!
//! A source, a subject and a nonce each belong to the shard that their text falls to, so a claim is
//! one step on one thread and two claims of the same thing cannot both win. Whoever claims names
//! the session; only the same session gives up its claim. What a claim takes is bounded by the live
//! sessions of the node, and closed ones are forgotten in time.

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};

use super::session_id::SessionId;

/// What is asked of the shard that a key falls to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A place among the subject's live sessions, which are so many at the most.
    ClaimSubject(Box<str>, SessionId, usize),
    /// Gives the place back.
    ReleaseSubject(Box<str>, SessionId),
    /// The source, for this session alone; the one that has it says its id when it is another.
    ClaimSource(Box<str>, SessionId),
    /// Gives the source back; until when the closed session is shown, monotonic ms, 0: no more.
    ReleaseSource(Box<str>, SessionId, u64),
    /// Which session has the source, or had it last.
    FindSource(Box<str>),
    /// The nonce of a token that ends then, ms since 1970, for the first that says it.
    ClaimNonce(Box<str>, u64),
    /// The status view of a session of that shard.
    View(SessionId),
    /// Whether a session of that shard has ended and holds nothing; one that is about to end is
    /// waited for.
    AwaitEnd(SessionId),
}

impl Ask {
    /// The text whose hash says which shard knows.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::ClaimSubject(key, ..)
            | Self::ReleaseSubject(key, _)
            | Self::ClaimSource(key, _)
            | Self::ReleaseSource(key, ..)
            | Self::FindSource(key)
            | Self::ClaimNonce(key, _) => key.as_bytes(),
            Self::View(id) | Self::AwaitEnd(id) => id.as_str().as_bytes(),
        }
    }
}

/// What is answered, as bytes that travel over a ring.
pub mod answer {
    /// So it is.
    pub const YES: &[u8] = b"+";
    /// Somebody else has it, or there is no room.
    pub const NO: &[u8] = b"-";
}

/// A source that somebody has or had.
#[derive(Debug)]
struct Source {
    /// Who has it.
    holder: Option<SessionId>,
    /// Who had it last, and until when that is worth knowing.
    last: Option<(SessionId, u64)>,
}

/// One shard's part of the registry.
#[derive(Debug, Default)]
pub struct Index {
    sources: HashMap<Box<str>, Source>,
    subjects: HashMap<Box<str>, HashSet<SessionId>>,
    nonces: HashSet<Box<str>>,
    nonces_by_end: BTreeSet<(u64, Box<str>)>,
}

impl Index {
    /// Answers; but for [`Ask::View`] and [`Ask::AwaitEnd`], which are about a session and not
    /// about the index.
    pub fn apply(&mut self, ask: Ask) -> Vec<u8> {
        let is_done = match ask {
            Ask::ClaimSubject(subject, id, max) => self.claim_subject(subject, id, max),
            Ask::ReleaseSubject(subject, id) => self.release_subject(&subject, id),
            Ask::ClaimSource(source, id) => match self.claim_source(source, id) {
                Ok(()) => true,
                Err(holder) => return holder.as_str().as_bytes().to_vec(),
            },
            Ask::ReleaseSource(source, id, until) => self.release_source(&source, id, until),
            Ask::ClaimNonce(nonce, end) => self.claim_nonce(nonce, end),
            Ask::FindSource(source) => {
                let found = self.find_source(&source);
                return found.map_or_else(Vec::new, |id| id.as_str().as_bytes().to_vec());
            }
            Ask::View(_) | Ask::AwaitEnd(_) => false,
        };
        if is_done { answer::YES } else { answer::NO }.to_vec()
    }

    fn claim_subject(&mut self, subject: Box<str>, id: SessionId, max: usize) -> bool {
        let held = self.subjects.entry(subject).or_default();
        if held.len() >= max && !held.contains(&id) {
            return false;
        }
        held.insert(id);
        true
    }

    fn release_subject(&mut self, subject: &str, id: SessionId) -> bool {
        let Some(held) = self.subjects.get_mut(subject) else {
            return false;
        };
        let was_held = held.remove(&id);
        if held.is_empty() {
            self.subjects.remove(subject);
        }
        was_held
    }

    /// The error is the holder.
    fn claim_source(&mut self, source: Box<str>, id: SessionId) -> Result<(), SessionId> {
        let entry = self.sources.entry(source).or_insert(Source {
            holder: None,
            last: None,
        });
        match entry.holder {
            Some(holder) if holder != id => Err(holder),
            _ => {
                entry.holder = Some(id);
                Ok(())
            }
        }
    }

    fn release_source(&mut self, source: &str, id: SessionId, until_ms: u64) -> bool {
        let Some(entry) = self.sources.get_mut(source) else {
            return false;
        };
        let was_held = entry.holder == Some(id);
        if was_held {
            entry.holder = None;
            entry.last = (until_ms > 0).then_some((id, until_ms));
        } else if until_ms == 0 && entry.last.is_some_and(|(last, _)| last == id) {
            entry.last = None;
        }
        if entry.holder.is_none() && entry.last.is_none() {
            self.sources.remove(source);
        }
        was_held
    }

    fn find_source(&self, source: &str) -> Option<SessionId> {
        let entry = self.sources.get(source)?;
        entry.holder.or(entry.last.map(|(id, _)| id))
    }

    fn claim_nonce(&mut self, nonce: Box<str>, end_ms: u64) -> bool {
        let is_new = self.nonces.insert(nonce.clone());
        if is_new {
            self.nonces_by_end.insert((end_ms, nonce));
        }
        is_new
    }

    /// Forgets what is over: closed sessions at `mono_ms`, nonces of tokens that ended by
    /// `unix_ms`.
    pub fn sweep(&mut self, mono_ms: u64, unix_ms: u64) {
        self.sources.retain(|_, entry| {
            if entry.last.is_some_and(|(_, until)| until <= mono_ms) {
                entry.last = None;
            }
            entry.holder.is_some() || entry.last.is_some()
        });
        while self
            .nonces_by_end
            .first()
            .is_some_and(|(end, _)| *end <= unix_ms)
        {
            if let Some((_, nonce)) = self.nonces_by_end.pop_first() {
                self.nonces.remove(&nonce);
            }
        }
    }

    /// Entries of all kinds.
    pub fn len(&self) -> usize {
        self.sources.len() + self.subjects.len() + self.nonces.len()
    }

    /// Whether it knows nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u8) -> SessionId {
        SessionId::of([number; 16])
    }

    fn does(index: &mut Index, ask: Ask) -> bool {
        match index.apply(ask).as_slice() {
            answer::YES => true,
            answer::NO => false,
            holder => {
                assert!(SessionId::parse(holder).is_some(), "{holder:?}");
                false
            }
        }
    }

    #[test]
    fn a_source_has_one_holder_and_is_free_when_that_one_gives_it_back() {
        let mut index = Index::default();
        let claim = |number| Ask::ClaimSource("s".into(), id(number));
        assert!(does(&mut index, claim(1)) && does(&mut index, claim(1)));
        assert!(!does(&mut index, claim(2)));
        assert!(!does(&mut index, Ask::ReleaseSource("s".into(), id(2), 0)));
        assert!(!does(&mut index, claim(2)), "only its holder gives it back");
        assert!(does(&mut index, Ask::ReleaseSource("s".into(), id(1), 500)));
        let find = || Ask::FindSource("s".into());
        assert_eq!(
            index.apply(find()),
            id(1).as_str().as_bytes(),
            "the last one is shown"
        );
        assert!(does(&mut index, claim(2)));
        assert_eq!(index.apply(find()), id(2).as_str().as_bytes());
        index.sweep(500, 0);
        assert!(does(&mut index, Ask::ReleaseSource("s".into(), id(2), 0)));
        assert!(index.is_empty() && index.apply(find()).is_empty());
    }

    #[test]
    fn a_subject_has_so_many_places_and_no_more() {
        let mut index = Index::default();
        let claim = |number| Ask::ClaimSubject("u".into(), id(number), 2);
        assert!(does(&mut index, claim(1)) && does(&mut index, claim(2)));
        assert!(!does(&mut index, claim(3)));
        assert!(does(&mut index, Ask::ReleaseSubject("u".into(), id(1))));
        assert!(!does(&mut index, Ask::ReleaseSubject("u".into(), id(1))));
        assert!(does(&mut index, claim(3)));
    }

    #[test]
    fn a_nonce_is_good_once_and_forgotten_with_its_token() {
        let mut index = Index::default();
        let claim = || Ask::ClaimNonce("n".into(), 1000);
        assert!(does(&mut index, claim()) && !does(&mut index, claim()));
        index.sweep(0, 999);
        assert!(!does(&mut index, claim()));
        index.sweep(0, 1000);
        assert!(index.is_empty());
    }

    proptest! {
        #[test]
        fn whatever_is_asked_no_source_has_two_holders_and_nothing_stays_behind(
            steps in proptest::collection::vec((0u8..4, 0u8..3, 0u8..3), 0..60),
        ) {
            let mut index = Index::default();
            let mut holders: HashMap<Box<str>, u8> = HashMap::new();
            for (what, source, number) in steps {
                let name: Box<str> = format!("s{source}").into();
                match what {
                    0 | 1 => {
                        let wins = does(&mut index, Ask::ClaimSource(name.clone(), id(number)));
                        let held = *holders.entry(name).or_insert(number);
                        prop_assert_eq!(wins, held == number);
                    }
                    _ => {
                        let ask = Ask::ReleaseSource(name.clone(), id(number), u64::from(what));
                        let gives = does(&mut index, ask);
                        prop_assert_eq!(gives, holders.get(&name) == Some(&number));
                        if gives {
                            holders.remove(&name);
                        }
                    }
                }
            }
            index.sweep(u64::MAX, 0);
            prop_assert_eq!(index.len(), holders.len());
        }
    }
}
