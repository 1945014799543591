//! The gateway's own pagination cursor: where each backend's list goes on.
//!
//! URL-safe base64 without padding over a version byte, the positions, and the first 128 bits of
//! HMAC-SHA-256 over those, the family, the principal and the virtual host. So a cursor is good
//! for nobody else, for no other list, and cannot be made up. It says nothing secret: keys and the
//! backends' own cursors can be read by who holds it.
//! Never: remembers a cursor, or judges what a backend's cursor means.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;

use crate::route::family::Family;

/// Longest cursor that is given out or read, in characters.
pub const CURSOR_BYTES_MAX: usize = 8192;
/// Most positions of a cursor.
pub const POSITIONS_MAX: usize = 256;
const VERSION: u8 = 1;
const MAC_BYTES: usize = 16;

/// Where one backend's list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The backend's key.
    pub key: Box<str>,
    /// Its own cursor, a JSON string as it gave it; `None` stands for its first page.
    pub cursor: Option<Box<[u8]>>,
    /// Elements of that page that were given out already.
    pub skip: u32,
}

/// Whom and what a cursor is for.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The list.
    pub family: Family,
    /// Fingerprint of the principal.
    pub principal: &'a [u8; 16],
    /// Name of the virtual host.
    pub host: &'a str,
}

/// What cursors are sealed with: the same on every shard and node of one deployment.
#[derive(Clone)]
pub struct CursorKey(hmac::Key);

impl CursorKey {
    /// Derives the key from a secret of the state folder, so that it differs from its other uses.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = hmac::sign(&root, b"shardgate list cursor v1");
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// The cursor that says these positions. `None` when it would be too long to be taken back:
    /// backends may give cursors of any length.
    #[must_use]
    pub fn seal(&self, scope: Scope<'_>, positions: &[Position]) -> Option<String> {
        if positions.len() > POSITIONS_MAX {
            return None;
        }
        let mut bytes = vec![VERSION];
        for position in positions {
            put_part(&mut bytes, position.key.as_bytes())?;
            match &position.cursor {
                Some(cursor) => {
                    bytes.push(1);
                    put_part(&mut bytes, cursor)?;
                }
                None => bytes.push(0),
            }
            bytes.extend_from_slice(&position.skip.to_be_bytes());
        }
        let tag = self.tag(scope, &bytes);
        bytes.extend_from_slice(&tag);
        let text = URL_SAFE_NO_PAD.encode(bytes);
        (text.len() <= CURSOR_BYTES_MAX).then_some(text)
    }

    /// What a cursor of ours says; `None` for anything that was not sealed for this scope.
    #[must_use]
    pub fn open(&self, scope: Scope<'_>, text: &str) -> Option<Vec<Position>> {
        if text.len() > CURSOR_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (signed, given) = bytes.split_last_chunk::<MAC_BYTES>()?;
        let expected = self.tag(scope, signed);
        // Every byte is looked at, so that the time tells nothing.
        let pairs = expected.iter().zip(given);
        if pairs.fold(0, |all, (a, b)| all | (a ^ b)) != 0 {
            return None;
        }
        let mut rest = signed.strip_prefix(&[VERSION])?;
        let mut positions = Vec::new();
        while !rest.is_empty() {
            positions.push(take_position(&mut rest)?);
        }
        Some(positions)
    }

    fn tag(&self, scope: Scope<'_>, signed: &[u8]) -> [u8; MAC_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        // Lengths first: no part can be taken for the beginning of the next.
        for part in [
            scope.family.method().as_bytes(),
            scope.principal,
            scope.host.as_bytes(),
            signed,
        ] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let tag = context.sign();
        let mut short = [0; MAC_BYTES];
        for (to, from) in short.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        short
    }
}

impl fmt::Debug for CursorKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CursorKey")
    }
}

/// Appends a part with its length; `None` when no cursor can hold it.
fn put_part(bytes: &mut Vec<u8>, part: &[u8]) -> Option<()> {
    if part.len() > CURSOR_BYTES_MAX {
        return None;
    }
    let len = u16::try_from(part.len()).ok()?;
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(part);
    Some(())
}

fn take_position(rest: &mut &[u8]) -> Option<Position> {
    let key = std::str::from_utf8(take_part(rest)?).ok()?.into();
    let cursor = match take::<1>(rest)? {
        [0] => None,
        _ => Some(take_part(rest)?.into()),
    };
    let skip = u32::from_be_bytes(take::<4>(rest)?);
    Some(Position { key, cursor, skip })
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u16::from_be_bytes(take::<2>(rest)?);
    let (part, left) = rest.split_at_checked(usize::from(len))?;
    *rest = left;
    Some(part)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCOPE: Scope<'_> = Scope {
        family: Family::Tools,
        principal: &[7; 16],
        host: "v",
    };

    fn key() -> CursorKey {
        CursorKey::new(&[1; 32])
    }

    fn position(key: &str, cursor: Option<&str>, skip: u32) -> Position {
        Position {
            key: key.into(),
            cursor: cursor.map(|text| text.as_bytes().into()),
            skip,
        }
    }

    #[test]
    fn a_cursor_is_for_its_scope_alone() {
        let positions = [position("a", Some(r#""c""#), 3), position("b", None, 0)];
        let text = key().seal(SCOPE, &positions).unwrap();
        assert_eq!(key().open(SCOPE, &text).unwrap(), positions);
        let others = [
            Scope {
                principal: &[8; 16],
                ..SCOPE
            },
            Scope { host: "w", ..SCOPE },
            Scope { host: "", ..SCOPE },
        ];
        let families = Family::ALL.map(|family| Scope { family, ..SCOPE });
        let families = families
            .into_iter()
            .filter(|scope| scope.family != SCOPE.family);
        for other in others.into_iter().chain(families) {
            assert_eq!(key().open(other, &text), None, "{other:?}");
        }
        assert_eq!(CursorKey::new(&[2; 32]).open(SCOPE, &text), None);
    }

    #[test]
    fn cursors_are_bounded() {
        let sealed = |len: usize| {
            let long = "x".repeat(len);
            key().seal(SCOPE, &[position("a", Some(&long), 0)])
        };
        let longest = (0..).find(|len| sealed(len + 1).is_none()).unwrap();
        let text = sealed(longest).unwrap();
        assert!(text.len() <= CURSOR_BYTES_MAX && text.len() + 2 > CURSOR_BYTES_MAX);
        assert!(key().open(SCOPE, &text).is_some());
        assert_eq!(sealed(1 << 20), None);
        let many = vec![position("", None, 0); POSITIONS_MAX + 1];
        assert_eq!(key().seal(SCOPE, &many), None);
        assert!(key().seal(SCOPE, &many[1..]).is_some());
    }

    #[test]
    fn what_was_never_sealed_opens_nothing() {
        for text in ["", "AQ", "=", "é", "AAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(key().open(SCOPE, text), None, "{text}");
        }
        let empty = key().seal(SCOPE, &[]).unwrap();
        assert_eq!(key().open(SCOPE, &empty), Some(Vec::new()));
        assert_eq!(key().open(SCOPE, &format!("{empty}=")), None);
    }

    proptest! {
        #[test]
        fn positions_come_back_and_no_character_may_change(
            positions in prop::collection::vec(
                ("\\PC{0,9}", prop::option::of("\\PC{0,30}"), any::<u32>()), 0..5),
            place: prop::sample::Index,
            other in "[A-Za-z0-9_-]",
        ) {
            let positions: Vec<Position> = positions
                .iter()
                .map(|(key, cursor, skip)| position(key, cursor.as_deref(), *skip))
                .collect();
            let text = key().seal(SCOPE, &positions).unwrap();
            let opened = key().open(SCOPE, &text);
            prop_assert_eq!(opened, Some(positions));
            let at = place.index(text.len());
            let mut forged = text.clone();
            forged.replace_range(at..=at, &other);
            prop_assert_eq!(key().open(SCOPE, &forged).is_some(), forged == text);
            let mut shorter = text;
            shorter.remove(at);
            prop_assert_eq!(key().open(SCOPE, &shorter), None);
        }

        #[test]
        fn no_byte_may_flip(place: prop::sample::Index, bit in 0u8..8) {
            let text = key().seal(SCOPE, &[position("a", Some("c"), 1)]).unwrap();
            let mut bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
            let at = place.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let forged = URL_SAFE_NO_PAD.encode(bytes);
            prop_assert_eq!(key().open(SCOPE, &forged), None);
        }

        #[test]
        fn any_text_is_only_refused(text in "\\PC*") {
            prop_assert_eq!(key().open(SCOPE, &text), None);
        }
    }
}
