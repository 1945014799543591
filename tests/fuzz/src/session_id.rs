//! Session ids: only what was minted is genuine, and every well-formed id has one owner.

use shardgate::session::id::{ID_BYTES, IdKeys, SessionId};
use shards::slots::SlotTable;

use super::{Choices, Verdict};

/// Reads the bytes as an id, and as what is done to a genuine one.
pub fn check(data: &[u8]) -> Verdict {
    // A key for each input: with one for all, a fuzzer that looks into comparisons would learn
    // genuine ids.
    let keys = IdKeys::new(&[b"a key for ", data].concat(), "fuzz");
    let genuine = keys.mint(|_| true).unwrap();
    assert!(keys.is_genuine(&genuine));
    let mut changed = *genuine.as_bytes();
    for (place, byte) in changed.iter_mut().zip(data) {
        *place ^= byte;
    }
    if let Some(id) = SessionId::parse(&changed) {
        assert_eq!(keys.is_genuine(&id), changed == *genuine.as_bytes());
    }
    let mut moved = genuine.as_bytes().to_vec();
    moved.rotate_left(Choices::of(data).below(ID_BYTES));
    if let Some(id) = SessionId::parse(&moved) {
        assert_eq!(keys.is_genuine(&id), moved == genuine.as_bytes());
    }
    let is_form = data.len() == ID_BYTES
        && data[0] == b'1'
        && data
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    let parsed = SessionId::parse(data);
    assert_eq!(parsed.is_some(), is_form);
    let Some(id) = parsed else {
        return Verdict::Refused;
    };
    assert_eq!(id.as_bytes()[..], *data);
    assert!(!keys.is_genuine(&id), "a forged id");
    for count in [1, 2, 7] {
        assert!(SlotTable::new(count).owner_of(id.as_bytes()) < count);
    }
    Verdict::Taken
}
