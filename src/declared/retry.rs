//! When a call may be sent again (dual-profile.md 2.6): only what is declared harmless, and never
//! on a guess.

use std::time::Duration;

use serde_json::Value;

use crate::upstream::CallFault;

/// Attempts at the most.
const ATTEMPTS_MAX: u64 = 5;
/// Pause between them at the most, ms.
const PAUSE_MS_MAX: u64 = 1_000;
/// Statuses that may be tried again.
const STATUSES: [u16; 7] = [408, 425, 429, 500, 502, 503, 504];

/// `toolMetadata.runtime.retry`, as far as it is heeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, 2 to 5.
    pub attempts: u32,
    /// Pause before each but the first.
    pub pause: Duration,
    /// Statuses that are tried again.
    pub statuses: Vec<u16>,
    /// Replies that are late are tried again.
    pub on_timeout: bool,
    /// Connections that fail are tried again.
    pub on_connect: bool,
    /// Only when the arguments have an idempotency key: the tool destroys something.
    pub needs_key: bool,
}

impl RetryPolicy {
    /// Reads the policy of a tool; `None`: it is never tried again.
    #[must_use]
    pub fn read(retry: &Value, is_idempotent: bool, is_destructive: bool) -> Option<Self> {
        let flag = |name: &str| retry.get(name).and_then(Value::as_bool) == Some(true);
        let number = |names: [&str; 2]| {
            let mut values = names.iter().filter_map(|name| retry.get(*name)?.as_u64());
            values.next()
        };
        let list = |names: [&str; 2]| {
            let lists = names
                .into_iter()
                .filter_map(|name| retry.get(name)?.as_array());
            lists.flatten().collect::<Vec<_>>()
        };
        let statuses: Vec<u16> = list(["retryStatusCodes", "statusCodes"])
            .into_iter()
            .filter_map(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()))
            .filter_map(|code| u16::try_from(code).ok())
            .filter(|code| STATUSES.contains(code))
            .collect();
        let events = list(["retryOn", "events"]);
        let has = |word: &str| events.iter().any(|event| event.as_str() == Some(word));
        let policy = Self {
            attempts: u32::try_from(number(["maxAttempts", "attempts"])?.min(ATTEMPTS_MAX)).ok()?,
            pause: Duration::from_millis(
                number(["backoffMs", "delayMs"])
                    .unwrap_or(0)
                    .min(PAUSE_MS_MAX),
            ),
            statuses,
            on_timeout: flag("retryOnTimeout") || has("timeout"),
            on_connect: flag("retryOnConnect") || has("connect") || has("connection"),
            needs_key: is_destructive,
        };
        let has_reason = !policy.statuses.is_empty() || policy.on_timeout || policy.on_connect;
        (flag("enabled") && is_idempotent && policy.attempts >= 2 && has_reason).then_some(policy)
    }

    /// Whether a call with these arguments may be tried again at all.
    #[must_use]
    pub fn covers(&self, arguments: &Value) -> bool {
        !self.needs_key || has_idempotency_key(arguments)
    }

    /// Whether a reply with this status is tried again.
    #[must_use]
    pub fn is_for_status(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }

    /// Whether a call that failed so is tried again.
    #[must_use]
    pub fn is_for(&self, fault: CallFault) -> bool {
        match fault {
            CallFault::FirstByteTimeout | CallFault::CallTimeout => self.on_timeout,
            CallFault::ConnectFailed
            | CallFault::ConnectTimeout
            | CallFault::ClosedBeforeReply
            | CallFault::TlsFailed
            | CallFault::Unresolved => self.on_connect,
            _ => false,
        }
    }
}

/// A key named `idempotencyKey`, however it is spelled, at any depth.
fn has_idempotency_key(arguments: &Value) -> bool {
    let is_key = |name: &str| {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        let folded: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
        folded == "idempotencykey"
    };
    let mut left = vec![arguments];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(members) => {
                if members
                    .iter()
                    .any(|(name, value)| is_key(name) && !value.is_null())
                {
                    return true;
                }
                left.extend(members.values());
            }
            Value::Array(elements) => left.extend(elements),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_declared_harmless_is_tried_again() {
        let sound = json!({"enabled": true, "maxAttempts": 3, "backoffMs": 20,
            "retryStatusCodes": [503, 200, "502"], "retryOn": ["timeout"]});
        let policy = RetryPolicy::read(&sound, true, false).unwrap();
        assert_eq!((policy.attempts, &*policy.statuses), (3, &[503, 502][..]));
        assert!(policy.is_for(CallFault::FirstByteTimeout));
        assert!(!policy.is_for(CallFault::ConnectFailed));
        assert!(!policy.is_for(CallFault::TooLarge));
        assert!(policy.covers(&json!({})));
        assert_eq!(RetryPolicy::read(&sound, false, false), None);
        for (member, value) in [
            ("enabled", json!(false)),
            ("maxAttempts", json!(1)),
            ("maxAttempts", json!("many")),
        ] {
            let mut other = sound.clone();
            other[member] = value;
            assert_eq!(RetryPolicy::read(&other, true, false), None, "{other}");
        }
        let reasonless = json!({"enabled": true, "maxAttempts": 3, "retryStatusCodes": [404],
            "retryOn": ["502"]});
        assert_eq!(RetryPolicy::read(&reasonless, true, false), None);
    }

    #[test]
    fn limits_hold() {
        let eager = json!({"enabled": true, "maxAttempts": 99, "delayMs": 99_999,
            "retryOnConnect": true});
        let policy = RetryPolicy::read(&eager, true, false).unwrap();
        assert_eq!((policy.attempts, policy.pause.as_millis()), (5, 1000));
    }

    #[test]
    fn what_destroys_needs_a_key() {
        let retry = json!({"enabled": true, "maxAttempts": 2, "retryOnTimeout": true});
        let policy = RetryPolicy::read(&retry, true, true).unwrap();
        assert!(!policy.covers(&json!({"id": 1, "idempotency_key": null})));
        assert!(policy.covers(&json!({"id": 1, "o": [{"Idempotency-Key": "k"}]})));
    }
}
