//! What comes after a connection: another one, when, and what the operator is told. Pure: time and
//! chance are given.

use std::time::{Duration, Instant};

use super::{channel::Lost, opening::OpenFault};
use crate::{bridge::backoff::Backoff, dial::DialFault, websocket::Violation};

/// Beside any other pause, so that all clients of one gateway do not come back in one instant.
const SPREAD: Duration = Duration::from_millis(500);
/// Before a refused token's file is read again.
const TOKEN_PAUSE: Duration = Duration::from_secs(1);
/// A gateway that wants more time than this is asked earlier.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// How a connection, or the attempt to have one, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was never open.
    Unopened(OpenFault),
    /// The gateway closed it, with a code if it had one.
    Closed(Option<u16>),
    /// The gateway broke a rule.
    Broken(Violation),
    /// The gateway said something that is no JSON-RPC message.
    Malformed,
    /// The network ended it.
    Cut,
    /// It was given up.
    Lost(Lost),
    /// The local server failed, with what is known of it.
    Local(Option<String>),
}

/// What is done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Another attempt would end the same way.
    Stop(String),
    /// Another attempt after a pause.
    Again(Duration, String),
}

/// The attempts so far.
#[derive(Debug, Default)]
pub(super) struct Retry {
    backoff: Backoff,
    /// Refused tokens in a row.
    refused_count: u32,
}

impl Retry {
    /// The gateway took the token.
    pub(super) fn opened(&mut self) {
        self.refused_count = 0;
    }

    /// Decides after a connection that was open for `lived`. `may_change`: the token is read anew
    /// for each attempt. `chance` is any number.
    pub(super) fn next(
        &mut self,
        ended: &Ended,
        lived: Duration,
        may_change: bool,
        now: Instant,
        chance: u16,
    ) -> Next {
        self.backoff.failed(now, lived);
        let pause = spread(self.backoff.wait(now), chance);
        let text = text(ended);
        let Ended::Unopened(OpenFault::Refused(status, retry_after)) = ended else {
            return Next::Again(pause, text);
        };
        match status {
            401 | 403 => {
                self.refused_count += 1;
                if may_change && self.refused_count == 1 {
                    Next::Again(pause.max(TOKEN_PAUSE), text)
                } else {
                    Next::Stop(text)
                }
            }
            _ => {
                let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
                let asked = if asked.is_zero() {
                    asked
                } else {
                    asked + spread(Duration::ZERO, chance)
                };
                Next::Again(pause.max(asked), text)
            }
        }
    }
}

/// Half of the pause to all of it, and a little more.
fn spread(pause: Duration, chance: u16) -> Duration {
    let share = f64::from(chance) / f64::from(u16::MAX);
    let half = pause / 2;
    half + half.mul_f64(share) + SPREAD.mul_f64(share)
}

fn text(ended: &Ended) -> String {
    match ended {
        Ended::Unopened(fault) => unopened(*fault),
        Ended::Closed(Some(1001)) => "the gateway is going away".to_owned(),
        Ended::Closed(Some(1009)) => {
            "a message was longer than the gateway takes (1009)".to_owned()
        }
        Ended::Closed(Some(code)) => format!("the gateway closed the connection with code {code}"),
        Ended::Closed(None) => "the gateway closed the connection".to_owned(),
        Ended::Broken(violation) => format!("the gateway broke the protocol: {violation}"),
        Ended::Malformed => "the gateway said something that is no JSON-RPC message".to_owned(),
        Ended::Cut => "the connection was lost".to_owned(),
        Ended::Lost(Lost::Silent) => "nothing was heard of the gateway".to_owned(),
        Ended::Lost(Lost::Stuck) => "the gateway takes no messages".to_owned(),
        Ended::Lost(Lost::Unclosed) => "the connection was closed".to_owned(),
        Ended::Lost(Lost::NoRandom) => "the system has no random numbers".to_owned(),
        Ended::Local(how) => {
            format!("the local server {}", how.as_deref().unwrap_or("ended"))
        }
    }
}

fn unopened(fault: OpenFault) -> String {
    match fault {
        OpenFault::Dial(DialFault::NoAddress) => "the gateway's name has no address".to_owned(),
        OpenFault::Dial(DialFault::Connect) => "the gateway cannot be connected to".to_owned(),
        OpenFault::Dial(DialFault::Tls) => {
            "no TLS session with the gateway; is its certificate of an authority that is trusted \
             here (--ca)?"
                .to_owned()
        }
        OpenFault::Late => "the gateway did not answer in time".to_owned(),
        OpenFault::NoWebSocket => {
            "the gateway answered with something else than a WebSocket".to_owned()
        }
        OpenFault::NoRandom => "the system has no random numbers".to_owned(),
        OpenFault::Refused(401, _) => "the gateway does not accept the token (401)".to_owned(),
        OpenFault::Refused(403, _) => {
            "the token does not allow this, or not for this source (403)".to_owned()
        }
        OpenFault::Refused(404, _) => {
            "the gateway has nothing for reverse connections at this path (404)".to_owned()
        }
        OpenFault::Refused(409, _) => {
            "the source is connected already, perhaps by another client (409)".to_owned()
        }
        OpenFault::Refused(503, _) => "the gateway has no room or is stopping (503)".to_owned(),
        OpenFault::Refused(status, _) => format!("the gateway answered with HTTP status {status}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(status: u16, after_s: Option<u64>) -> Ended {
        let after = after_s.map(Duration::from_secs);
        Ended::Unopened(OpenFault::Refused(status, after))
    }

    fn pause(next: Next) -> Duration {
        match next {
            Next::Again(pause, _) => pause,
            Next::Stop(why) => panic!("{why}"),
        }
    }

    #[test]
    fn a_refused_token_stops_it_and_one_from_a_file_is_tried_once_more() {
        let now = Instant::now();
        for status in [401, 403] {
            let ended = refused(status, None);
            let mut retry = Retry::default();
            let next = retry.next(&ended, Duration::ZERO, false, now, 7);
            assert!(matches!(next, Next::Stop(_)), "{next:?}");
            let mut retry = Retry::default();
            let next = retry.next(&ended, Duration::ZERO, true, now, 7);
            assert!(pause(next) >= TOKEN_PAUSE);
            let next = retry.next(&ended, Duration::ZERO, true, now, 7);
            assert!(matches!(next, Next::Stop(_)), "{next:?}");
            // One that was accepted meanwhile may expire again.
            let mut retry = Retry::default();
            retry.next(&ended, Duration::ZERO, true, now, 7);
            retry.opened();
            let next = retry.next(&ended, Duration::ZERO, true, now, 7);
            assert!(matches!(next, Next::Again(..)), "{next:?}");
        }
    }

    #[test]
    fn a_gateway_that_goes_away_is_come_back_to_at_once() {
        let now = Instant::now();
        let mut retry = Retry::default();
        for _ in 0..20 {
            let ended = Ended::Closed(Some(1001));
            let next = retry.next(&ended, Duration::from_secs(60), false, now, u16::MAX);
            assert!(pause(next) <= SPREAD);
        }
    }

    #[test]
    fn retry_after_is_heeded_within_bounds() {
        let now = Instant::now();
        let next = |after| {
            let ended = refused(503, after);
            pause(Retry::default().next(&ended, Duration::ZERO, false, now, 0))
        };
        assert_eq!(next(None), Duration::ZERO);
        assert_eq!(next(Some(7)), Duration::from_secs(7));
        assert_eq!(next(Some(u64::MAX)), RETRY_AFTER_MAX);
    }

    #[test]
    fn pauses_grow_and_a_steady_connection_ends_them() {
        let now = Instant::now();
        let mut retry = Retry::default();
        let ended = Ended::Unopened(OpenFault::Dial(DialFault::Connect));
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let next = retry.next(&ended, Duration::ZERO, false, now, 0);
            pauses.push(pause(next).as_millis());
        }
        assert_eq!(
            pauses,
            [0, 250, 500, 1000, 2000, 4000, 8000, 15000, 15000, 15000]
        );
        let next = retry.next(&Ended::Cut, Duration::from_secs(60), false, now, 0);
        assert_eq!(pause(next), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn no_pause_is_without_bound(
            status in 200u16..600, after in proptest::option::of(any::<u64>()),
            chance: u16, count in 1usize..40,
        ) {
            let now = Instant::now();
            let mut retry = Retry::default();
            for _ in 0..count {
                if let Next::Again(pause, text) =
                    retry.next(&refused(status, after), Duration::ZERO, false, now, chance)
                {
                    prop_assert!(pause <= RETRY_AFTER_MAX + SPREAD);
                    prop_assert!(!text.is_empty());
                }
            }
        }
    }
}
