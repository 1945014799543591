//! A backend session's log level, as its client asked for it (`logging/setLevel`, mcp.md 2).

use std::time::Duration;

use crate::{
    config::compiled::Backend,
    mcp::json,
    session::{BackendSession, state::OpenBackend},
    shard_state::ShardState,
    upstream::{
        CallFault, FromClient,
        exchange::{Manner, Repeat},
        request,
    },
};

/// The levels of MCP's `LoggingLevel`, least severe first.
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// The level of this name.
pub fn level_of(name: &str) -> Option<&'static str> {
    LEVELS.into_iter().find(|level| *level == name)
}

/// Whether a message of this raw level is to be passed on when `least` was asked for. One without a
/// level that we know is.
pub fn is_at_least(level: Option<&[u8]>, least: &str) -> bool {
    let rank = |name: &str| LEVELS.iter().position(|known| *known == name);
    let level = level.and_then(json::unescape).and_then(|name| rank(&name));
    level.is_none_or(|level| Some(level) >= rank(least))
}

/// Whether the backend said that it logs.
pub fn is_offered(open: &OpenBackend) -> bool {
    json::member(&open.capabilities, "logging").is_some()
}

/// An open backend session.
#[derive(Debug, Clone, Copy)]
pub struct Recipient<'a> {
    /// The backend.
    pub backend: &'a Backend,
    /// Its part of the session.
    pub link: &'a BackendSession,
    /// What was agreed with it.
    pub open: &'a OpenBackend,
}

/// Tells a backend the level. `client` is the request that is the reason, or what the session says
/// by itself with.
pub async fn set(
    shard: &ShardState,
    to: Recipient<'_>,
    level: &'static str,
    client: FromClient<'_>,
    patience: Duration,
) -> Result<(), CallFault> {
    let Recipient {
        backend,
        link,
        open,
    } = to;
    let id = link.next_id().to_string();
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
    );
    let mut http = open.head.to_vec();
    request::finish_head(&mut http, body.len(), backend, client);
    http.extend_from_slice(body.as_bytes());
    let manner = Manner {
        repeat: Repeat::Harmless,
        first_byte: patience,
        is_lateness_telling: true,
        is_stateless: false,
        is_endless: false,
        cancel: None,
    };
    let answer = shard
        .upstream
        .ask(&backend.target, http, id.as_bytes(), manner)
        .await?;
    answer.result().map(drop).ok_or(CallFault::LevelRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_below_the_level_are_left_out() {
        assert!(is_at_least(Some(br#""error""#), "warning"));
        assert!(is_at_least(Some(br#""warning""#), "warning"));
        assert!(!is_at_least(Some(br#""info""#), "warning"));
        for odd in [None, Some(&br#""loud""#[..]), Some(b"7")] {
            assert!(is_at_least(odd, "emergency"));
        }
    }

    #[test]
    fn only_the_levels_of_the_protocol_are_known() {
        assert_eq!(level_of("warning"), Some("warning"));
        for other in ["", "warn", "DEBUG", "trace", "debug "] {
            assert_eq!(level_of(other), None, "{other}");
        }
    }
}
