//! The session id: opaque to clients, readable for us and for a front door.
//!
//! 52 characters of `[A-Za-z0-9_-]`: version `1`, key id (1), node id (4), 144 random bits (24),
//! and the first 128 bits of HMAC-SHA-256 over all before it (22). The node is readable so that a
//! front door can route by it. The owner is not in the id: it follows from the whole id's slot
//! ([`shards::slots`]), so the id stays valid when the number of shards changes. A forged id fails
//! its MAC; nobody can choose one.

use std::fmt;

use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};

/// Characters of an id.
pub const ID_BYTES: usize = 52;
const VERSION: u8 = b'1';
const NODE_BYTES: usize = 4;
const RANDOM_BYTES: usize = 18;
/// Characters the MAC covers: version, key id, node, random part.
const SIGNED_BYTES: usize = 2 + NODE_BYTES + RANDOM_BYTES / 3 * 4;
const MAC_BYTES: usize = 16;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn is_of_alphabet(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() | (byte == b'-') | (byte == b'_')
}

/// A session's id. Never printed: it is a secret of the client's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; ID_BYTES]);

impl SessionId {
    /// The id as it is on the wire.
    pub fn as_bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }

    /// Whether the bytes have the form of an id. Says nothing of their being genuine.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; ID_BYTES] = bytes.try_into().ok()?;
        // Every request brings one, and nearly all are well-formed: looking at all of it without a
        // branch takes a tenth of the instructions.
        let is_formed = bytes.iter().fold(bytes[0] == VERSION, |is_formed, byte| {
            is_formed & is_of_alphabet(*byte)
        });
        is_formed.then_some(Self(bytes))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(..)")
    }
}

/// The system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRandomness;

/// The keys ids are made and checked with: the same on every shard and node of one deployment.
#[derive(Clone)]
pub struct IdKeys {
    key: hmac::Key,
    key_id: u8,
    node: [u8; NODE_BYTES],
    random: SystemRandom,
}

impl IdKeys {
    /// Keys from a secret (at least 16 bytes) and the node's name, of which four characters of a
    /// hash become the readable node part unless it has exactly four of the alphabet itself.
    pub fn new(secret: &[u8], node: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let fingerprint = hmac::sign(&key, b"shardgate session key id");
        let key_id = ALPHABET[usize::from(fingerprint.as_ref()[0] & 63)];
        let mut node_part = [0; NODE_BYTES];
        if node.len() == NODE_BYTES && node.bytes().all(is_of_alphabet) {
            node_part.copy_from_slice(node.as_bytes());
        } else {
            let digest = ring::digest::digest(&ring::digest::SHA256, node.as_bytes());
            encode(&digest.as_ref()[..NODE_BYTES / 4 * 3], &mut node_part);
        }
        Self {
            key,
            key_id,
            node: node_part,
            random: SystemRandom::new(),
        }
    }

    /// A new id for which `is_ours` (asked with the id's bytes) holds: with n shards about n draws.
    pub fn mint(&self, is_ours: impl Fn(&[u8]) -> bool) -> Result<SessionId, NoRandomness> {
        let mut id = [0; ID_BYTES];
        id[0] = VERSION;
        id[1] = self.key_id;
        id[2..2 + NODE_BYTES].copy_from_slice(&self.node);
        loop {
            let mut random = [0; RANDOM_BYTES];
            self.random.fill(&mut random).map_err(|_| NoRandomness)?;
            encode(&random, &mut id[2 + NODE_BYTES..SIGNED_BYTES]);
            let tag = hmac::sign(&self.key, &id[..SIGNED_BYTES]);
            encode(&tag.as_ref()[..MAC_BYTES], &mut id[SIGNED_BYTES..]);
            if is_ours(&id) {
                return Ok(SessionId(id));
            }
        }
    }

    /// Whether the id was made with this key: constant time in the MAC.
    pub fn is_genuine(&self, id: &SessionId) -> bool {
        let tag = hmac::sign(&self.key, &id.0[..SIGNED_BYTES]);
        let mut expected = [0; ID_BYTES - SIGNED_BYTES];
        encode(&tag.as_ref()[..MAC_BYTES], &mut expected);
        let mut difference = 0;
        for (a, b) in expected.iter().zip(&id.0[SIGNED_BYTES..]) {
            difference |= a ^ b;
        }
        difference == 0
    }
}

impl fmt::Debug for IdKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdKeys(..)")
    }
}

/// URL-safe base64 without padding (RFC 4648 section 5), into exactly `out`.
fn encode(bytes: &[u8], out: &mut [u8]) {
    debug_assert_eq!(out.len(), (bytes.len() * 8).div_ceil(6));
    let mut bits: u32 = 0;
    let mut count = 0;
    let mut rest = bytes.iter();
    for place in out {
        if count < 6 {
            bits = (bits << 8) | u32::from(rest.next().copied().unwrap_or(0));
            count += 8;
        }
        count -= 6;
        *place = ALPHABET[(bits >> count) as usize & 63];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_genuine_well_formed_and_placed() {
        let keys = IdKeys::new(&[7; 32], "node");
        let table = shards::slots::SlotTable::new(8);
        for shard in 0..8 {
            let id = keys.mint(|bytes| table.owner_of(bytes) == shard).unwrap();
            assert_eq!(table.owner_of(id.as_bytes()), shard);
            assert_eq!(SessionId::parse(id.as_bytes()), Some(id));
            assert!(keys.is_genuine(&id));
            assert_eq!(&id.as_bytes()[2..6], b"node");
        }
    }

    #[test]
    fn a_changed_character_is_noticed_wherever_it_is() {
        let keys = IdKeys::new(&[7; 32], "a");
        let id = keys.mint(|_| true).unwrap();
        for position in 0..ID_BYTES {
            let mut bytes = *id.as_bytes();
            bytes[position] = if bytes[position] == b'A' { b'B' } else { b'A' };
            let forged = SessionId::parse(&bytes);
            assert!(
                forged.is_none_or(|forged| !keys.is_genuine(&forged)),
                "at {position}"
            );
        }
    }

    #[test]
    fn other_keys_refuse_it() {
        let id = IdKeys::new(&[7; 32], "a").mint(|_| true).unwrap();
        assert!(!IdKeys::new(&[8; 32], "a").is_genuine(&id));
    }

    #[test]
    fn only_the_form_parses() {
        for bad in [
            &b""[..],
            b"nope",
            &[b'1'; 51],
            &[b'1'; 53],
            &[b'2'; 52],
            b"1.",
        ] {
            assert!(SessionId::parse(bad).is_none());
        }
        let mut with_dot = [b'1'; 52];
        with_dot[20] = b'.';
        assert!(SessionId::parse(&with_dot).is_none());
    }

    #[test]
    fn base64_vectors() {
        let mut out = [0; 4];
        encode(b"\xff\xef\xfe", &mut out);
        assert_eq!(&out, b"_-_-");
        let mut out = [0; 3];
        encode(b"fo", &mut out);
        assert_eq!(&out, b"Zm8");
    }
}
