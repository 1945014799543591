//! Memory and descriptors of a number of sessions and connections.

use serde::Serialize;

use super::fit::non_negative;

/// Descriptors beside sockets: listeners, rings, files of libraries.
const DESCRIPTORS_REST: u64 = 64;
/// And of each shard: ring or epoll, doorbell, listeners, timers.
const DESCRIPTORS_PER_SHARD: u64 = 8;

/// Bytes of one gateway process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sizes {
    /// With nothing going on.
    pub rest: f64,
    /// A session.
    pub session: f64,
    /// A kept connection, the kernel's part included.
    pub connection: f64,
    /// Whether the session's size was measured.
    pub is_measured: bool,
}

impl Default for Sizes {
    /// The sizes the gateway promises to stay under.
    fn default() -> Self {
        Self {
            rest: f64::from(40 << 20),
            session: f64::from(6 << 10),
            connection: f64::from(8 << 10),
            is_measured: false,
        }
    }
}

/// Sessions have to differ by this factor to tell what one costs.
const SESSIONS_APART: f64 = 4.0;

impl Sizes {
    /// From resident bytes at numbers of sessions; the promised sizes where they do not tell.
    pub fn fit(points: &[(u64, u64)]) -> Self {
        let promised = Self::default();
        let least = points.iter().map(|(sessions, _)| *sessions).min();
        let most = points.iter().map(|(sessions, _)| *sessions).max();
        let is_apart = least
            .zip(most)
            .is_some_and(|(least, most)| most as f64 >= least.max(1) as f64 * SESSIONS_APART);
        if !is_apart {
            return promised;
        }
        let rows: Vec<[f64; 2]> = points
            .iter()
            .map(|(sessions, _)| [1.0, *sessions as f64])
            .collect();
        let bytes: Vec<f64> = points.iter().map(|(_, bytes)| *bytes as f64).collect();
        match non_negative(&rows, &bytes) {
            Some(([rest, session], _)) if session > 0.0 => Self {
                rest,
                session,
                is_measured: true,
                ..promised
            },
            _ => promised,
        }
    }

    /// Bytes to have: what is needed and a fifth in reserve.
    pub fn bytes(&self, sessions: u64, connections: u64) -> u64 {
        let needed =
            self.rest + self.session * sessions as f64 + self.connection * connections as f64;
        (needed * 1.25) as u64
    }
}

/// Descriptors to allow a process.
pub fn descriptors(connections: u64, upstream_connections: u64, shards: u16) -> u64 {
    connections
        + upstream_connections
        + DESCRIPTORS_REST
        + DESCRIPTORS_PER_SHARD * u64::from(shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_found_and_guesses_are_not_made_of_noise() {
        let at = |sessions: u64| (sessions, 30_000_000 + sessions * 2_500);
        let sizes = Sizes::fit(&[at(100), at(1_000), at(10_000)]);
        assert!(sizes.is_measured);
        assert!((sizes.session - 2_500.0).abs() < 1.0 && (sizes.rest - 3e7).abs() < 10.0);
        assert_eq!(sizes.bytes(10_000, 0), 68_750_000);
        assert_eq!(Sizes::fit(&[at(100), at(120)]), Sizes::default());
        assert_eq!(Sizes::fit(&[]), Sizes::default());
        // Shrinking is no slope.
        assert!(!Sizes::fit(&[(1, 900), (100, 500)]).is_measured);
    }

    #[test]
    fn each_connection_takes_a_descriptor() {
        assert_eq!(descriptors(1_000, 128, 2), 1_208);
    }
}
