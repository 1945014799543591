//! The protocol revisions, and how one with sessions is agreed (mcp.md 1.2).

/// A revision. All but the newest have `initialize` and sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 2024-11-05.
    V2024_11_05,
    /// 2025-03-26: batches.
    V2025_03_26,
    /// 2025-06-18: the version header.
    V2025_06_18,
    /// 2025-11-25: polling, tasks.
    V2025_11_25,
    /// 2026-07-28: no sessions, every request says for itself what its client can do.
    V2026_07_28,
}

/// The stateless revision, which has no sessions.
pub const STATELESS: &str = "2026-07-28";

impl Version {
    /// Those with sessions, oldest first.
    pub const WITH_SESSIONS: [Self; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];
    /// The newest with sessions.
    pub const LATEST: Self = Self::V2025_11_25;

    /// The revision's name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => STATELESS,
        }
    }

    /// Whether it knows no sessions.
    pub const fn is_stateless(self) -> bool {
        matches!(self, Self::V2026_07_28)
    }

    /// The revision to ask for in `initialize` on behalf of a client that speaks this one.
    pub const fn for_session(self) -> Self {
        match self {
            Self::V2026_07_28 => Self::LATEST,
            other => other,
        }
    }

    /// The revision with sessions that has this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::WITH_SESSIONS
            .into_iter()
            .find(|version| version.name().as_bytes() == name)
    }

    /// What we answer to a client that asks for `requested`: the same when it is served, else the
    /// newest that is (never the stateless one: clients that ask for it in `initialize` expect
    /// that).
    pub fn agreed(requested: &[u8], served: VersionSet) -> Self {
        let asked = Self::from_name(requested).filter(|version| served.contains(*version));
        asked
            .or_else(|| served.newest_first().next())
            .unwrap_or(Self::LATEST)
    }
}

/// Revisions with sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VersionSet(u8);

impl VersionSet {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self((1 << Version::WITH_SESSIONS.len()) - 1);

    /// These and one more; the stateless revision is none of them.
    #[must_use]
    pub const fn with(self, version: Version) -> Self {
        Self(self.0 | (1 << version as u8) & Self::ALL.0)
    }

    /// Those that are in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Reads a list, which may be empty and names each revision once.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence about it.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut all = Self::NONE;
        for name in names {
            let version = Version::from_name(name.as_bytes())
                .filter(|version| Self::ALL.contains(*version))
                .ok_or_else(|| {
                    let known: Vec<&str> = Self::ALL.newest_first().map(Version::name).collect();
                    format!("must list revisions out of {}", known.join(", "))
                })?;
            if all.contains(version) {
                return Err(format!("holds {name} twice"));
            }
            all = all.with(version);
        }
        Ok(all)
    }

    /// Whether it is among them.
    pub const fn contains(self, version: Version) -> bool {
        self.0 & (1 << version as u8) != 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All of them, the newest first.
    pub fn newest_first(self) -> impl Iterator<Item = Version> {
        let all = Version::WITH_SESSIONS.into_iter().rev();
        all.filter(move |version| self.contains(*version))
    }
}

/// The names of the revisions that are served, in the order of preference.
pub fn names(stateless: bool, with_sessions: VersionSet) -> Vec<&'static str> {
    let newest = stateless.then_some(STATELESS);
    let with_sessions = with_sessions.newest_first().map(Version::name);
    newest.into_iter().chain(with_sessions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation() {
        for version in Version::WITH_SESSIONS {
            let agreed = Version::agreed(version.name().as_bytes(), VersionSet::ALL);
            assert_eq!(agreed, version);
        }
        for other in [&b"2026-07-28"[..], b"", b"1999-01-01"] {
            assert_eq!(Version::agreed(other, VersionSet::ALL), Version::LATEST);
        }
        let two = VersionSet::NONE
            .with(Version::V2025_03_26)
            .with(Version::V2025_06_18);
        assert_eq!(Version::agreed(b"2025-11-25", two), Version::V2025_06_18);
        assert_eq!(Version::agreed(b"2025-03-26", two), Version::V2025_03_26);
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut all = VersionSet::NONE;
        assert!(all.is_empty());
        for version in Version::WITH_SESSIONS {
            assert!(!all.contains(version));
            all = all.with(version);
            assert!(all.contains(version));
        }
        assert_eq!(all, VersionSet::ALL);
        assert_eq!(all.with(Version::V2026_07_28), all);
        assert!(!all.contains(Version::V2026_07_28));
        let served = names(true, VersionSet::NONE.with(Version::V2025_06_18));
        assert_eq!(served, ["2026-07-28", "2025-06-18"]);
        assert_eq!(names(false, all).len(), 4);
    }
}
