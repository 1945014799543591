//! Whether a session is always itself: the numbers of a counter must follow one another.
//!
//! A server that loses a session, mixes two up or answers from a stale copy shows a number that
//! does not follow. The shard that owns the session by the published rule, and the shard of the
//! connection it came over, say where to look.

use std::fmt;

/// How a number can fail to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationKind {
    /// Numbers were left out: somebody else counted, or a call was made twice.
    Gap,
    /// The last number came again: a call was answered and not made, or from a copy.
    Repeat,
    /// The number went back: the session was made anew, or it is another one.
    Reset,
    /// The server does not know the session any more (404).
    Lost,
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gap => "gap",
            Self::Repeat => "repeat",
            Self::Reset => "reset",
            Self::Lost => "lost",
        })
    }
}

/// A number that did not follow. It names no session id: those are secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// How.
    pub kind: ViolationKind,
    /// The session's number among those of the run.
    pub session: u64,
    /// The number that had to come.
    pub expected: u64,
    /// The number that came.
    pub found: Option<u64>,
    /// Shard that owns the session.
    pub owner: Option<u16>,
    /// Shard that the connection belongs to, as far as can be told: the owner of the first session
    /// that was used over it.
    pub through: Option<u16>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: session {}", self.kind, self.session)?;
        if let Some(owner) = self.owner {
            write!(f, " of shard {owner}")?;
        }
        write!(f, " expected {}", self.expected)?;
        if let Some(found) = self.found {
            write!(f, ", got {found}")?;
        }
        match self.through {
            Some(through) if self.owner == Some(through) => write!(f, " over its own shard"),
            Some(through) => write!(f, " over a connection of shard {through}"),
            None => Ok(()),
        }
    }
}

/// The numbers of one session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count {
    last: u64,
    /// Calls whose outcome nobody knows: each may have counted.
    unsure: u64,
}

impl Count {
    /// The number that has to come next.
    pub(crate) fn expected(&self) -> u64 {
        self.last + 1
    }

    /// A call got no answer.
    pub(crate) fn unsure(&mut self) {
        self.unsure += 1;
    }

    /// Judges the next number, and goes on from it.
    pub(crate) fn take(&mut self, found: u64) -> Result<(), ViolationKind> {
        let last = std::mem::replace(&mut self.last, found);
        let skipped = found.saturating_sub(last.saturating_add(1));
        // What got no answer may also be counted later, after this call.
        if found > last && skipped <= self.unsure {
            self.unsure -= skipped;
            return Ok(());
        }
        Err(match found {
            found if found > last => ViolationKind::Gap,
            found if found == last => ViolationKind::Repeat,
            _ => ViolationKind::Reset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_follow_are_named() {
        let mut count = Count::default();
        for (found, verdict) in [
            (1, Ok(())),
            (2, Ok(())),
            (4, Err(ViolationKind::Gap)),
            (5, Ok(())),
            (5, Err(ViolationKind::Repeat)),
            (1, Err(ViolationKind::Reset)),
            (2, Ok(())),
            (0, Err(ViolationKind::Reset)),
            (u64::MAX, Err(ViolationKind::Gap)),
            (1, Err(ViolationKind::Reset)),
        ] {
            assert_eq!(count.take(found), verdict, "{found}");
        }
    }

    #[test]
    fn a_call_without_an_answer_may_have_counted_once() {
        let mut count = Count::default();
        assert_eq!(count.take(1), Ok(()));
        count.unsure();
        count.unsure();
        assert_eq!(count.take(3), Ok(()), "one of two had counted");
        assert_eq!(count.take(5), Ok(()), "the other counted late");
        assert_eq!(count.take(7), Err(ViolationKind::Gap));
    }

    #[test]
    fn a_violation_says_where() {
        let violation = Violation {
            kind: ViolationKind::Reset,
            session: 7,
            expected: 12,
            found: Some(1),
            owner: Some(2),
            through: Some(0),
        };
        assert_eq!(
            violation.to_string(),
            "reset: session 7 of shard 2 expected 12, got 1 over a connection of shard 0"
        );
    }

    proptest::proptest! {
        /// Numbers that skip no more than calls went unanswered follow; after any violation the
        /// next number in line is good again.
        #[test]
        fn numbers_in_line_follow(steps in proptest::collection::vec((0_u64..3, 0_u64..50), 1..40)) {
            let mut count = Count::default();
            let (mut last, mut unsure) = (0, 0);
            for (unanswered, jump) in steps {
                (0..unanswered).for_each(|_| count.unsure());
                unsure += unanswered;
                let found = last + jump;
                let verdict = count.take(found);
                let skipped = jump.saturating_sub(1);
                proptest::prop_assert_eq!(verdict.is_ok(), jump > 0 && skipped <= unsure);
                if verdict.is_ok() {
                    unsure -= skipped;
                }
                last = found;
            }
            proptest::prop_assert_eq!(count.expected(), last + 1);
        }
    }
}
