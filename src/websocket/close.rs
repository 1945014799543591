//! Why a WebSocket ends (RFC 6455 section 7.4).

/// A status code of a Close frame that this side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// All is done.
    pub const NORMAL: Self = Self(1000);
    /// This side goes away.
    pub const GOING_AWAY: Self = Self(1001);
    /// The other side broke a rule of the protocol.
    pub const PROTOCOL: Self = Self(1002);
    /// A kind of message that is not taken here.
    pub const UNSUPPORTED: Self = Self(1003);
    /// A text that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// Against the rules of the application.
    pub const POLICY: Self = Self(1008);
    /// A message over the limit.
    pub const TOO_BIG: Self = Self(1009);
    /// Something unexpected kept this side from going on.
    pub const INTERNAL: Self = Self(1011);
    /// Not now: a limit is reached.
    pub const TRY_LATER: Self = Self(1013);

    /// Whether a Close frame may carry the code (section 7.4.2: 1004 to 1006 and 1015 never stand
    /// in a frame, 1016 to 2999 are nobody's yet, below 1000 and above 4999 there are none).
    pub fn may_be_sent(code: u16) -> bool {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_that_mean_something_may_stand_in_a_frame() {
        for code in [1000, 1001, 1002, 1003, 1007, 1011, 1013, 1014, 3000, 4999] {
            assert!(CloseCode::may_be_sent(code), "{code}");
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, u16::MAX] {
            assert!(!CloseCode::may_be_sent(code), "{code}");
        }
    }
}
