//! Ids of sessions: UUIDs, as the contract has them, drawn until one belongs to the shard that has
//! the client's connection. So the owner of any id is known from its text, and no connection moves.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};
use shards::{ShardId, slots::SlotTable};

const TEXT_BYTES: usize = 36;

/// Draws before giving up; with 1024 shards one draw in a million series fails.
const DRAWS_MAX: usize = 16 * 1024;

/// The id of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; TEXT_BYTES]);

impl SessionId {
    /// A random id that `shard` owns; `None` when the system gives no random bytes.
    pub fn draw(slots: &SlotTable, shard: ShardId) -> Option<Self> {
        let random = SystemRandom::new();
        let mut bytes = [0; 16];
        for _ in 0..DRAWS_MAX {
            random.fill(&mut bytes).ok()?;
            let id = Self::of(bytes);
            if slots.owner_of(&id.0) == shard {
                return Some(id);
            }
        }
        None
    }

    /// A random id, whosever it is; `None` when the system gives no random bytes.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self::of(bytes))
    }

    /// A version 4 UUID of these bytes.
    pub fn of(mut bytes: [u8; 16]) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = [b'-'; TEXT_BYTES];
        let mut at = 0;
        for (index, byte) in bytes.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = HEX[usize::from(byte >> 4)];
            text[at + 1] = HEX[usize::from(byte & 15)];
            at += 2;
        }
        Self(text)
    }

    /// The id with this text, if it has the form of one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: [u8; TEXT_BYTES] = text.try_into().ok()?;
        let is_fine = text.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        is_fine.then_some(Self(text))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        // Digits, letters and hyphens, by construction.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_and_belongs_to_the_shard_that_drew_it() {
        let slots = SlotTable::new(5);
        for shard in 0..5 {
            let id = SessionId::draw(&slots, shard).unwrap();
            assert_eq!(slots.owner_of(id.as_str().as_bytes()), shard);
            assert_eq!(SessionId::parse(id.as_str().as_bytes()), Some(id));
        }
        let id = SessionId::of([0xff; 16]);
        assert_eq!(id.as_str(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert!(!format!("{id:?}").contains("ffff"));
        for wrong in ["", "nope", "FFFFFFFF-ffff-4fff-bfff-ffffffffffff"] {
            assert_eq!(SessionId::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
