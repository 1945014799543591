//! Times of one kind: a histogram over the whole run, and one for each interval.
//!
//! The whole is always the sum of the intervals, so a log of the intervals holds everything.
//! Intervals at rest are packed in HdrHistogram's own V2 encoding: a few kilobytes, not 260.

use std::{collections::BTreeMap, fmt, io::Read, ops::Range};

use flate2::read::ZlibDecoder;
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer, V2Serializer},
};

/// Longest time a histogram tells apart, in nanoseconds: one hour.
pub const TIME_NS_MAX: u64 = 3_600_000_000_000;
/// Decimal digits that a histogram keeps.
pub const DIGITS: u8 = 3;
/// Times that anything of ours holds: numbers above lose digits in JSON, and sums of such numbers
/// stay far from what a counter holds.
pub(crate) const COUNT_MAX: u64 = 1 << 53;
/// Bytes of a packed histogram with a count in every bucket, and more.
const PACKED_BYTES_MAX: u64 = 1 << 20;
/// Cookie and length.
const HEAD_BYTES: usize = 8;
/// Cookie, payload length, offset, digits, low, high and ratio.
const HEADER_BYTES: usize = 40;
/// Place of the offset by which counts are turned in an array: we and all others turn none.
const OFFSET: Range<usize> = 8..12;
/// Place of the factor between recorded and real values: always one.
const RATIO: Range<usize> = 32..40;
/// What the JavaScript implementation writes there, and means no turn and a factor of one.
const OTHER_OFFSET: [u8; 4] = [0, 0, 0, 1];
/// The same.
const OTHER_RATIO: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];
/// First four bytes of an encoded, and of a compressed histogram.
const COOKIES: [[u8; 4]; 2] = [[0x1c, 0x84, 0x93, 0x13], [0x1c, 0x84, 0x93, 0x14]];

/// A histogram of times in nanoseconds with the bounds that all recordings share.
pub fn histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constant and valid")]
    Histogram::new_with_bounds(1, TIME_NS_MAX, DIGITS).expect("bounds of the histogram")
}

/// Why bytes are not one of our histograms.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PackedFault {
    /// No V2 encoding, compressed or not, or a damaged one.
    #[error("not a readable V2 histogram")]
    Encoding,
    /// Other bounds or digits: it could not be merged without loss.
    #[error("a histogram with other bounds or digits than ours")]
    Bounds,
}

/// A histogram at rest, in the V2 encoding without compression.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed(Box<[u8]>);

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.0.len())
    }
}

impl Packed {
    /// Packs a histogram that [`histogram`] made.
    pub fn of(times: &Histogram<u64>) -> Self {
        let mut bytes = Vec::new();
        // Writing to memory cannot fail.
        let written = V2Serializer::new().serialize(times, &mut bytes);
        debug_assert!(written.is_ok());
        Self(bytes.into_boxed_slice())
    }

    /// The histogram again.
    pub fn unpack(&self) -> Histogram<u64> {
        // Both ways in, `of` and `from_log`, have made sure that it reads.
        Deserializer::new()
            .deserialize(&mut &*self.0)
            .unwrap_or_else(|_| histogram())
    }

    /// The bytes of the V2 encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// From what a log holds: V2, compressed or not. Trusts no length in it.
    pub fn from_log(bytes: &[u8]) -> Result<Self, PackedFault> {
        let cookie = bytes.first_chunk::<4>().ok_or(PackedFault::Encoding)?;
        let mut plain = if *cookie == COOKIES[1] {
            let compressed = bytes.get(HEAD_BYTES..).ok_or(PackedFault::Encoding)?;
            if length(bytes) != Some(compressed.len()) {
                return Err(PackedFault::Encoding);
            }
            let mut plain = Vec::new();
            ZlibDecoder::new(compressed)
                .take(PACKED_BYTES_MAX + 1)
                .read_to_end(&mut plain)
                .map_err(|_| PackedFault::Encoding)?;
            plain
        } else {
            bytes.to_vec()
        };
        let payload = length(&plain);
        if !plain.starts_with(&COOKIES[0])
            || plain.len() as u64 > PACKED_BYTES_MAX
            || payload.is_none()
            || payload != plain.len().checked_sub(HEADER_BYTES)
        {
            return Err(PackedFault::Encoding);
        }
        let empty = Self::of(&histogram());
        let ours = &empty.0[HEAD_BYTES..HEADER_BYTES];
        if plain[OFFSET] == OTHER_OFFSET && plain[RATIO] == OTHER_RATIO {
            plain[OFFSET].fill(0);
            plain[RATIO].copy_from_slice(&empty.0[RATIO]);
        }
        // Everything between the length and the counts must be as we write it.
        if plain[HEAD_BYTES..HEADER_BYTES] != *ours {
            return Err(PackedFault::Bounds);
        }
        let read = Deserializer::new().deserialize::<u64, _>(&mut plain.as_slice());
        let read = read.map_err(|_| PackedFault::Encoding)?;
        if read.len() > COUNT_MAX {
            return Err(PackedFault::Encoding);
        }
        Ok(Self(plain.into_boxed_slice()))
    }
}

/// The length that follows a cookie.
fn length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(4..HEAD_BYTES)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

/// Times of one kind over a run.
#[derive(Clone)]
pub struct Series {
    whole: Histogram<u64>,
    intervals: BTreeMap<u32, Packed>,
}

/// Tens of thousands of buckets tell nobody anything.
impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, intervals) = (self.whole.len(), self.intervals.len());
        write!(f, "Series({count} times in {intervals} intervals)")
    }
}

impl Default for Series {
    fn default() -> Self {
        Self {
            whole: histogram(),
            intervals: BTreeMap::new(),
        }
    }
}

impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        self.whole == other.whole && self.intervals == other.intervals
    }
}

impl Series {
    /// All times of the run.
    pub fn whole(&self) -> &Histogram<u64> {
        &self.whole
    }

    /// The intervals in which something was recorded, by number.
    pub fn intervals(&self) -> &BTreeMap<u32, Packed> {
        &self.intervals
    }

    /// Adds what one interval recorded.
    pub fn add(&mut self, index: u32, times: &Histogram<u64>) {
        if times.is_empty() {
            return;
        }
        add(&mut self.whole, times);
        self.put(index, times);
    }

    /// Adds another series, its intervals moved by `shift`.
    pub(super) fn merge(&mut self, other: &Self, shift: u32) {
        add(&mut self.whole, &other.whole);
        for (index, packed) in &other.intervals {
            self.put(index.saturating_add(shift), &packed.unpack());
        }
    }

    /// Makes intervals `factor` times as long.
    pub(super) fn widen(&mut self, factor: u32) {
        for (index, packed) in std::mem::take(&mut self.intervals) {
            self.put(index / factor, &packed.unpack());
        }
    }

    fn put(&mut self, index: u32, times: &Histogram<u64>) {
        let packed = match self.intervals.get(&index) {
            None => Packed::of(times),
            Some(there) => {
                let mut sum = there.unpack();
                add(&mut sum, times);
                Packed::of(&sum)
            }
        };
        self.intervals.insert(index, packed);
    }
}

/// Adds a histogram of the same bounds, exactly.
pub(crate) fn add(ours: &mut Histogram<u64>, theirs: &Histogram<u64>) {
    let added = ours.add(theirs);
    // Same bounds, so nothing is out of range.
    debug_assert!(added.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: &[u64]) -> Histogram<u64> {
        let mut times = histogram();
        of.iter().for_each(|time| times.saturating_record(*time));
        times
    }

    #[test]
    fn a_packed_histogram_is_the_same_again() {
        for recorded in [&[][..], &[0], &[1, 1, 5_000_000, TIME_NS_MAX, u64::MAX]] {
            let recorded = times(recorded);
            assert_eq!(Packed::of(&recorded).unpack(), recorded);
        }
    }

    #[test]
    fn the_whole_is_the_sum_of_the_intervals() {
        let mut series = Series::default();
        series.add(0, &times(&[5, 70]));
        series.add(1, &times(&[9]));
        series.add(4, &times(&[1_000_000]));
        series.add(5, &times(&[]));
        let mut twice = series.clone();
        twice.merge(&series, 2);
        assert_eq!(twice.whole().len(), 8);
        let indexes: Vec<_> = twice.intervals().keys().copied().collect();
        assert_eq!(indexes, [0, 1, 2, 3, 4, 6]);
        twice.widen(4);
        let mut sum = histogram();
        for packed in twice.intervals().values() {
            add(&mut sum, &packed.unpack());
        }
        assert_eq!((&sum, twice.intervals().len()), (twice.whole(), 2));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let ours = Packed::of(&times(&[1, 2, 3]));
        assert_eq!(Packed::from_log(ours.as_bytes()), Ok(ours.clone()));
        let other = Histogram::<u64>::new_with_bounds(1, 1 << 40, 2).unwrap();
        let other = Packed::of(&other);
        assert_eq!(Packed::from_log(other.as_bytes()), Err(PackedFault::Bounds));
        let whole = ours.as_bytes();
        for length in 0..whole.len() {
            assert!(Packed::from_log(&whole[..length]).is_err(), "{length}");
        }
        let mut long = whole.to_vec();
        long[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(Packed::from_log(&long), Err(PackedFault::Encoding));
    }
}
