//! Lua scripts, each one atomic step in Redis: asked for by their digest, sent once when Redis does
//! not know them.

use std::sync::OnceLock;

use ring::digest;

use crate::redis::{RedisClient, RedisFault, Reply};

/// Reads the state of a session's record: `state(key)` is nil when there is none, else the end of
/// its lease, when it was heard last, its status, its generation, and the inbox of its owner, which
/// is empty when the owner is a node of the original. The records that this gateway writes have all
/// of it at their beginning (`super::record`), so that metadata cost nothing.
macro_rules! with_state {
    ($text:literal) => {
        concat!(
            r#"
local function state(key)
  local head = redis.call('GETRANGE', key, 0, 511)
  if head == '' then return nil end
  local expires, seen, status, generation, inbox = string.match(head,
    '^{"expiresAt":(%d+),"lastSeenAt":(%d+),"status":"(%a+)" *,"generation":(%d+),"inbox":"([^"]*)"')
  if expires then
    return {tonumber(expires), tonumber(seen), status, tonumber(generation), inbox}
  end
  local ok, record = pcall(cjson.decode, redis.call('GET', key))
  if not ok or type(record) ~= 'table' then return nil end
  return {tonumber(record.expiresAt) or 0, tonumber(record.lastSeenAt) or 0,
    tostring(record.status), tonumber(record.generation) or 0, ''}
end
"#,
            $text
        )
    };
}
pub(super) use with_state;

/// One script.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    digest: OnceLock<String>,
}

impl Script {
    pub(super) const fn new(text: &'static str) -> Self {
        Self {
            text,
            digest: OnceLock::new(),
        }
    }

    /// SHA-1, as Redis names scripts.
    fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            let bytes = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.text.as_bytes());
            bytes
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        })
    }

    /// Runs it. A fault but [`RedisFault::Lost`] and [`RedisFault::Timeout`] means that nothing was
    /// done.
    pub(super) async fn run(
        &self,
        client: &RedisClient,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Reply, RedisFault> {
        let count = keys.len().to_string();
        let mut command: Vec<&[u8]> = Vec::with_capacity(3 + keys.len() + arguments.len());
        command.extend([&b"EVALSHA"[..], self.digest().as_bytes(), count.as_bytes()]);
        command.extend_from_slice(keys);
        command.extend_from_slice(arguments);
        match client.command(&command).await {
            Err(RedisFault::Refused(kind)) if kind == "NOSCRIPT" => {
                (command[0], command[1]) = (b"EVAL", self.text.as_bytes());
                client.command(&command).await
            }
            outcome => outcome,
        }
    }
}

/// Whether a command may have been done although there is no reply.
pub(super) fn is_unknown(fault: &RedisFault) -> bool {
    matches!(fault, RedisFault::Lost | RedisFault::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_redis_makes_of_the_text() {
        // `SCRIPT LOAD "return 1"`.
        let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(Script::new("return 1").digest(), digest);
    }
}
