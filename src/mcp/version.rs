//! The protocol revisions spoken in sessions, and how one is agreed (mcp.md 1.2).

/// A revision with `initialize` and sessions.
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
}

/// The stateless revision, which has no sessions.
pub const STATELESS: &str = "2026-07-28";

impl Version {
    /// All, oldest first.
    pub const ALL: [Self; 4] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];
    /// The newest.
    pub const LATEST: Self = Self::V2025_11_25;

    /// The revision's name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// The revision with this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.name().as_bytes() == name)
    }

    /// What we answer to a client that asks for `requested`: the same when we speak it, else our
    /// newest (never the stateless one: clients that ask for it in `initialize` expect that).
    pub fn agreed(requested: &[u8]) -> Self {
        Self::from_name(requested).unwrap_or(Self::LATEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation() {
        for version in Version::ALL {
            assert_eq!(Version::agreed(version.name().as_bytes()), version);
        }
        for other in [&b"2026-07-28"[..], b"", b"1999-01-01"] {
            assert_eq!(Version::agreed(other), Version::LATEST);
        }
    }
}
