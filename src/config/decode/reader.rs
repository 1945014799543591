//! MessagePack values one by one from a byte slice, with every length checked before it is used.

use std::collections::BTreeMap;

use rmp::Marker;
use serde_json::Value;

use super::DecodeFault;

/// Nesting of a value that is read whole; a schema within its own bounds fits.
const VALUE_DEPTH_MAX: usize = 128;

/// The number in up to 8 bytes.
fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// How a structure is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Field names and values.
    Map(u32),
    /// Values in the order of declaration.
    Array(u32),
}

/// A position in a document.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    items_left: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], item_count_max: usize) -> Self {
        Self {
            bytes,
            at: 0,
            items_left: item_count_max,
        }
    }

    /// Offset of the next value.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..length).ok_or(DecodeFault::Truncated)?;
        self.at += length;
        Ok(taken)
    }

    /// A big-endian number of 1, 2 or 4 bytes.
    fn number(&mut self, length: usize) -> Result<u32, DecodeFault> {
        Ok(self
            .take(length)?
            .iter()
            .fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    fn marker(&mut self) -> Result<Marker, DecodeFault> {
        let byte = self
            .take(1)?
            .first()
            .copied()
            .ok_or(DecodeFault::Truncated)?;
        Ok(Marker::from_u8(byte))
    }

    fn peek(&self) -> Option<Marker> {
        self.bytes.get(self.at).copied().map(Marker::from_u8)
    }

    pub(super) fn shape(&mut self) -> Result<Shape, DecodeFault> {
        let at = self.at;
        Ok(match self.marker()? {
            Marker::FixMap(length) => Shape::Map(u32::from(length)),
            Marker::Map16 => Shape::Map(self.number(2)?),
            Marker::Map32 => Shape::Map(self.number(4)?),
            Marker::FixArray(length) => Shape::Array(u32::from(length)),
            Marker::Array16 => Shape::Array(self.number(2)?),
            Marker::Array32 => Shape::Array(self.number(4)?),
            _ => {
                return Err(DecodeFault::UnexpectedType {
                    at,
                    expected: "a map or an array",
                });
            }
        })
    }

    pub(super) fn map_length(&mut self) -> Result<u32, DecodeFault> {
        let at = self.at;
        match self.shape() {
            Ok(Shape::Map(length)) => Ok(length),
            Err(DecodeFault::Truncated) => Err(DecodeFault::Truncated),
            _ => Err(DecodeFault::UnexpectedType {
                at,
                expected: "a map",
            }),
        }
    }

    fn array_length(&mut self) -> Result<u32, DecodeFault> {
        let at = self.at;
        match self.shape() {
            Ok(Shape::Array(length)) => Ok(length),
            Err(DecodeFault::Truncated) => Err(DecodeFault::Truncated),
            _ => Err(DecodeFault::UnexpectedType {
                at,
                expected: "an array",
            }),
        }
    }

    /// A string; binary data counts as one when it is UTF-8, as upstream's reader has it.
    pub(super) fn text(&mut self) -> Result<&'a str, DecodeFault> {
        let at = self.at;
        let length = match self.marker()? {
            Marker::FixStr(length) => u32::from(length),
            Marker::Str8 | Marker::Bin8 => self.number(1)?,
            Marker::Str16 | Marker::Bin16 => self.number(2)?,
            Marker::Str32 | Marker::Bin32 => self.number(4)?,
            _ => {
                return Err(DecodeFault::UnexpectedType {
                    at,
                    expected: "a string",
                });
            }
        };
        let bytes = self.take(length as usize)?;
        std::str::from_utf8(bytes).map_err(|_| DecodeFault::NotUtf8 { at })
    }

    fn is_at_text(&self) -> bool {
        use Marker::{Bin8, Bin16, Bin32, FixStr, Str8, Str16, Str32};
        matches!(
            self.peek(),
            Some(FixStr(_) | Str8 | Str16 | Str32 | Bin8 | Bin16 | Bin32)
        )
    }

    /// A string, or `None` when another value stood there or the bytes are no text.
    pub(super) fn text_or_skip(&mut self) -> Result<Option<&'a str>, DecodeFault> {
        if self.is_at_text() {
            return match self.text() {
                Err(DecodeFault::NotUtf8 { .. }) => Ok(None),
                other => other.map(Some),
            };
        }
        self.skip()?;
        Ok(None)
    }

    /// The name of a field; a key that is no text names no field of ours.
    pub(super) fn field_name(&mut self) -> Result<Option<&'a str>, DecodeFault> {
        self.text_or_skip()
    }

    fn item(&mut self) -> Result<String, DecodeFault> {
        self.items_left = self
            .items_left
            .checked_sub(1)
            .ok_or(DecodeFault::TooManyItems)?;
        self.text().map(str::to_owned)
    }

    /// An array of strings.
    pub(super) fn texts(&mut self) -> Result<Vec<String>, DecodeFault> {
        let length = self.array_length()?;
        // No capacity from `length`: it is a claim of the input.
        let mut texts = Vec::new();
        for _ in 0..length {
            texts.push(self.item()?);
        }
        Ok(texts)
    }

    /// A map of strings to strings.
    pub(super) fn text_map(&mut self) -> Result<BTreeMap<String, String>, DecodeFault> {
        let length = self.map_length()?;
        let mut texts = BTreeMap::new();
        for _ in 0..length {
            let key = self.item()?;
            texts.insert(key, self.text()?.to_owned());
        }
        Ok(texts)
    }

    /// A value of any type that JSON has, too.
    pub(super) fn value(&mut self) -> Result<Value, DecodeFault> {
        self.nested(VALUE_DEPTH_MAX)
    }

    fn nested(&mut self, depth_left: usize) -> Result<Value, DecodeFault> {
        let at = self.at;
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return Err(DecodeFault::TooDeep { at });
        };
        self.items_left = self
            .items_left
            .checked_sub(1)
            .ok_or(DecodeFault::TooManyItems)?;
        if self.is_at_text() {
            return self.text().map(Value::from);
        }
        let bytes = |reader: &mut Self, length| reader.take(length).map(big_endian);
        Ok(match self.marker()? {
            Marker::Null => Value::Null,
            Marker::True => true.into(),
            Marker::False => false.into(),
            Marker::FixPos(number) => number.into(),
            Marker::FixNeg(number) => number.into(),
            Marker::U8 => bytes(self, 1)?.into(),
            Marker::U16 => bytes(self, 2)?.into(),
            Marker::U32 => bytes(self, 4)?.into(),
            Marker::U64 => bytes(self, 8)?.into(),
            // The wanted half of the bits, with its sign.
            Marker::I8 => (bytes(self, 1)? as i8).into(),
            Marker::I16 => (bytes(self, 2)? as i16).into(),
            Marker::I32 => (bytes(self, 4)? as i32).into(),
            Marker::I64 => (bytes(self, 8)? as i64).into(),
            // JSON has no other numbers than finite ones: null, as JSON's writers have it.
            Marker::F32 => f32::from_bits(bytes(self, 4)? as u32).into(),
            Marker::F64 => f64::from_bits(bytes(self, 8)?).into(),
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
                self.at = at;
                let length = self.array_length()?;
                let mut elements = Vec::new();
                for _ in 0..length {
                    elements.push(self.nested(depth_left)?);
                }
                elements.into()
            }
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => {
                self.at = at;
                let length = self.map_length()?;
                let mut members = serde_json::Map::new();
                for _ in 0..length {
                    let at = self.at;
                    let name = self.text()?.to_owned();
                    if members.insert(name, self.nested(depth_left)?).is_some() {
                        return Err(DecodeFault::DuplicateField { at });
                    }
                }
                members.into()
            }
            _ => {
                return Err(DecodeFault::UnexpectedType {
                    at,
                    expected: "a value that JSON has",
                });
            }
        })
    }

    /// Passes over one value of any type and depth.
    pub(super) fn skip(&mut self) -> Result<(), DecodeFault> {
        // Every round takes at least one byte, so the input bounds the rounds.
        let mut values_left: u64 = 1;
        while values_left > 0 {
            values_left -= 1;
            let at = self.at;
            let (length, inner) = match self.marker()? {
                Marker::FixPos(_)
                | Marker::FixNeg(_)
                | Marker::Null
                | Marker::False
                | Marker::True => (0, 0),
                Marker::U8 | Marker::I8 => (1, 0),
                Marker::U16 | Marker::I16 => (2, 0),
                Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
                Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
                Marker::FixStr(length) => (u32::from(length), 0),
                Marker::Str8 | Marker::Bin8 => (self.number(1)?, 0),
                Marker::Str16 | Marker::Bin16 => (self.number(2)?, 0),
                Marker::Str32 | Marker::Bin32 => (self.number(4)?, 0),
                // The type byte of an extension is part of neither length.
                Marker::FixExt1 => (2, 0),
                Marker::FixExt2 => (3, 0),
                Marker::FixExt4 => (5, 0),
                Marker::FixExt8 => (9, 0),
                Marker::FixExt16 => (17, 0),
                Marker::Ext8 => (self.number(1)?.saturating_add(1), 0),
                Marker::Ext16 => (self.number(2)?.saturating_add(1), 0),
                Marker::Ext32 => (self.number(4)?.saturating_add(1), 0),
                Marker::FixArray(length) => (0, u64::from(length)),
                Marker::Array16 => (0, u64::from(self.number(2)?)),
                Marker::Array32 => (0, u64::from(self.number(4)?)),
                Marker::FixMap(length) => (0, 2 * u64::from(length)),
                Marker::Map16 => (0, 2 * u64::from(self.number(2)?)),
                Marker::Map32 => (0, 2 * u64::from(self.number(4)?)),
                Marker::Reserved => {
                    return Err(DecodeFault::UnexpectedType {
                        at,
                        expected: "a value",
                    });
                }
            };
            self.take(length as usize)?;
            values_left = values_left.saturating_add(inner);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(bytes: &[u8]) -> Result<usize, DecodeFault> {
        let mut reader = Reader::new(bytes, 0);
        reader.skip().map(|()| reader.position())
    }

    #[test]
    fn every_kind_of_value_is_passed_over_exactly() {
        let values: &[&[u8]] = &[
            &[0x00],
            &[0x7f],
            &[0xe0],
            &[0xc0],
            &[0xc2],
            &[0xc3],
            &[0xcc, 1],
            &[0xcd, 1, 2],
            &[0xce, 1, 2, 3, 4],
            &[0xcf, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0xd0, 1],
            &[0xd1, 1, 2],
            &[0xd2, 1, 2, 3, 4],
            &[0xd3, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0xca, 1, 2, 3, 4],
            &[0xcb, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0xa2, b'a', b'b'],
            &[0xd9, 1, b'a'],
            &[0xda, 0, 1, b'a'],
            &[0xdb, 0, 0, 0, 1, b'a'],
            &[0xc4, 1, 0xff],
            &[0xc5, 0, 1, 0xff],
            &[0xc6, 0, 0, 0, 1, 0xff],
            &[0xd4, 7, 1],
            &[0xd5, 7, 1, 2],
            &[0xd6, 7, 1, 2, 3, 4],
            &[0xc7, 1, 7, 1],
            &[0xc8, 0, 1, 7, 1],
            &[0xc9, 0, 0, 0, 1, 7, 1],
            &[0x92, 0x01, 0x81, 0xa1, b'k', 0x90],
            &[0xdc, 0, 1, 0xc0],
            &[0xdd, 0, 0, 0, 1, 0xc0],
            &[0xde, 0, 1, 0xc0, 0xc0],
            &[0xdf, 0, 0, 0, 1, 0xc0, 0xc0],
        ];
        for value in values {
            assert_eq!(skipped(value), Ok(value.len()), "{value:02x?}");
            let mut followed = value.to_vec();
            followed.push(0xc1);
            assert_eq!(skipped(&followed), Ok(value.len()), "{value:02x?}");
            let cut = &value[..value.len() - 1];
            assert_eq!(skipped(cut), Err(DecodeFault::Truncated), "{cut:02x?}");
        }
        let reserved = DecodeFault::UnexpectedType {
            at: 0,
            expected: "a value",
        };
        assert_eq!(skipped(&[0xc1]), Err(reserved));
    }

    #[test]
    fn depth_and_claimed_lengths_cost_nothing() {
        let deep = vec![0x91; 1 << 20];
        assert_eq!(skipped(&deep), Err(DecodeFault::Truncated));
        for claim in [
            [0xdd, 0xff, 0xff, 0xff, 0xff],
            [0xdf, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(skipped(&claim), Err(DecodeFault::Truncated));
        }
        let mut reader = Reader::new(&[0xdd, 0xff, 0xff, 0xff, 0xff, 0xa0], usize::MAX);
        assert_eq!(reader.texts(), Err(DecodeFault::Truncated));
        assert_eq!(
            skipped(&[0xdb, 0xff, 0xff, 0xff, 0xff]),
            Err(DecodeFault::Truncated)
        );
    }

    #[test]
    fn list_entries_are_counted_over_all_lists() {
        let bytes = [0x92, 0xa0, 0xa0, 0x81, 0xa0, 0xa0];
        let mut reader = Reader::new(&bytes, 3);
        assert_eq!(reader.texts().map(|texts| texts.len()), Ok(2));
        assert_eq!(reader.text_map().map(|texts| texts.len()), Ok(1));
        let mut reader = Reader::new(&bytes, 2);
        assert!(reader.texts().is_ok());
        assert_eq!(reader.text_map(), Err(DecodeFault::TooManyItems));
    }
}
