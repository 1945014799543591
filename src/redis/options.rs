//! Whom the client talks to, and its limits.

use std::{fmt, time::Duration};

use super::{client::Tracking, resp::RespLimits};

/// One Redis server and how to speak to it. `Debug` masks the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// Host name or address. The connection itself is made by the caller's connect function.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// ACL user (Redis 6 and later); `None`: the user `default`.
    pub username: Option<String>,
    /// Password; `None`: no authentication.
    pub password: Option<String>,
    /// Database number, selected when it is not 0. The control plane writes to 0
    /// (contextforge.md section 1.2).
    pub database: u32,
    /// From a call to its reply. When it passes the connection is given up, because the fate of
    /// what was sent is unknown. Default 500 ms (contextforge.md section 3.5).
    pub command_timeout: Duration,
    /// From an open connection to the end of its handshake, and the longest a call waits for the
    /// very first connection. Default 1 s (contextforge.md section 3.5).
    pub connect_timeout: Duration,
    /// Commands without a reply at one time; more are refused with `Busy`.
    pub in_flight_max: usize,
    /// Pause before the first attempt to connect again.
    pub back_off_min: Duration,
    /// Longest pause between attempts, jitter included. Below 1 s, so that service is back within
    /// a second of Redis (reliability.md section 8, row 17).
    pub back_off_max: Duration,
    /// Whether changes of keys that were read are to be told ([`Tracking::On`]), or would be for
    /// nobody.
    pub tracking: Tracking,
    /// Bounds of one frame, of a reply and of a command alike.
    pub limits: RespLimits,
    /// A connection that has been quiet this long is asked for a sign of life: a dead peer sends no
    /// invalidation, and stale entries would pass for fresh ones.
    pub idle_check: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            host: String::from("127.0.0.1"),
            port: 6379,
            username: None,
            password: None,
            database: 0,
            command_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(1),
            in_flight_max: 1024,
            back_off_min: Duration::from_millis(50),
            back_off_max: Duration::from_millis(800),
            tracking: Tracking::On,
            limits: RespLimits::default(),
            idle_check: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("database", &self.database)
            .field("command_timeout", &self.command_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("in_flight_max", &self.in_flight_max)
            .field("back_off_min", &self.back_off_min)
            .field("back_off_max", &self.back_off_max)
            .field("tracking", &self.tracking)
            .field("limits", &self.limits)
            .field("idle_check", &self.idle_check)
            .finish()
    }
}

impl RedisOptions {
    /// The pause before attempt `attempt` (0 = the first after a loss): doubled each time up to the
    /// maximum, of which `random` takes up to a half away, so that shards do not come in step.
    #[must_use]
    pub fn back_off(&self, attempt: u32, random: u64) -> Duration {
        let doubled = self
            .back_off_min
            .checked_mul(1 << attempt.min(20))
            .map_or(self.back_off_max, |pause| pause.min(self.back_off_max));
        let half_us = u64::try_from(doubled.as_micros() / 2).unwrap_or(u64::MAX - 1);
        doubled.saturating_sub(Duration::from_micros(random % (half_us + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_masks_the_password() {
        let options = RedisOptions {
            password: Some(String::from("open sesame")),
            ..RedisOptions::default()
        };
        let text = format!("{options:?}");
        assert!(!text.contains("sesame"), "{text}");
        assert!(text.contains("***"), "{text}");
    }

    #[test]
    fn the_pause_doubles_up_to_its_maximum_and_jitter_takes_at_most_half() {
        let options = RedisOptions::default();
        let pauses: Vec<u128> = (0..6)
            .map(|attempt| options.back_off(attempt, 0).as_millis())
            .collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 800]);
        for attempt in [0, 1, 5, 31, u32::MAX] {
            let whole = options.back_off(attempt, 0);
            for random in [1, 7_777, 25_000, 399_999, u64::MAX] {
                let pause = options.back_off(attempt, random);
                assert!(pause <= whole && pause >= whole / 2, "{attempt} {random}");
            }
        }
    }

    #[test]
    fn extreme_settings_do_not_overflow() {
        let options = RedisOptions {
            back_off_min: Duration::MAX,
            back_off_max: Duration::MAX,
            ..RedisOptions::default()
        };
        assert!(options.back_off(u32::MAX, u64::MAX) <= Duration::MAX);
        let none = RedisOptions {
            back_off_min: Duration::ZERO,
            ..RedisOptions::default()
        };
        assert_eq!(none.back_off(3, 5), Duration::ZERO);
    }
}
