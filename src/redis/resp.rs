//! RESP without sockets: one bounded frame in, one command out.
//!
//! `redis-protocol` recurses without a cap (20 000 nested arrays overflow the stack of the thread:
//! reliability.md section 0), so [`bounded`] walks each frame first, without recursion and without
//! allocating what a length announces. What it passes is complete, shallow and small and goes to
//! [`super::reply`]; what it does not pass ends the connection.
//!
//! Source: the Redis serialization protocol specification, RESP2 and RESP3.

use std::fmt;

use memchr::memchr2;

/// Most levels of arrays, maps, sets and pushes inside each other that limits can allow.
const DEPTH_CEILING: usize = 16;

/// Bounds of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RespLimits {
    /// Bytes of the whole frame.
    pub frame_bytes_max: usize,
    /// Bytes of one line: a length, a number, a simple string or error.
    pub line_bytes_max: usize,
    /// Aggregates inside each other (16 at most).
    pub depth_max: usize,
    /// Items of the frame, all levels together: each costs far more memory than wire.
    pub items_max: usize,
}

impl Default for RespLimits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 4 * 1024 * 1024,
            line_bytes_max: 64 * 1024,
            depth_max: 8,
            items_max: 65_536,
        }
    }
}

/// Why bytes of the server are not a frame we take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RespFault {
    /// More aggregates inside each other than `depth_max`.
    TooDeep,
    /// Larger, or announced to be larger, than `frame_bytes_max`.
    TooLong,
    /// A line longer than `line_bytes_max`.
    LineTooLong,
    /// More items, or announced to be more, than `items_max`.
    TooManyItems,
    /// A type byte we do not take: unknown, an attribute, a streamed part, or a push in the middle
    /// of a frame (RESP3 allows it only between frames).
    Unsupported(u8),
    /// A length that is not a plain decimal number, a lone CR or LF, a missing line end.
    Malformed,
}

impl fmt::Display for RespFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => f.write_str("nested too deep"),
            Self::TooLong => f.write_str("frame too long"),
            Self::LineTooLong => f.write_str("line too long"),
            Self::TooManyItems => f.write_str("too many items"),
            Self::Unsupported(kind) => write!(f, "type byte 0x{kind:02x} not taken"),
            Self::Malformed => f.write_str("not RESP"),
        }
    }
}

impl std::error::Error for RespFault {}

/// The length of the frame at the start of `buf`; `None` while it is incomplete. A fault is told as
/// soon as a length announces it, before the bytes are there. Holds no matter which version is
/// spoken: what the decoder of the version refuses beyond this is [`RespFault::Malformed`].
pub fn bounded(buf: &[u8], limits: &RespLimits) -> Result<Option<usize>, RespFault> {
    // Items still to come on each open level.
    let mut open = [0_usize; DEPTH_CEILING];
    let mut depth = 0;
    let mut items = 1_usize;
    let mut at = 0;
    loop {
        let Some(&kind) = buf.get(at) else {
            return Ok(None);
        };
        if !b"+-:,#_($!=*~>%".contains(&kind) || (kind == b'>' && depth > 0) {
            return Err(RespFault::Unsupported(kind));
        }
        let Some(line_length) = line(&buf[at + 1..], limits.line_bytes_max)? else {
            return Ok(None);
        };
        let text = &buf[at + 1..at + 1 + line_length];
        at += line_length + 3;
        if at > limits.frame_bytes_max {
            return Err(RespFault::TooLong);
        }
        // RESP2 nulls have a length of -1.
        let is_null = matches!(kind, b'$' | b'*') && text == b"-1";
        match kind {
            b'$' | b'!' | b'=' if !is_null => {
                let length = decimal(text, limits.frame_bytes_max)?;
                // A verbatim string starts with three letters and a colon.
                if kind == b'=' && length < 4 {
                    return Err(RespFault::Malformed);
                }
                let end = at + length;
                if end + 2 > limits.frame_bytes_max {
                    return Err(RespFault::TooLong);
                }
                match buf.get(end..end + 2) {
                    Some(b"\r\n") => at = end + 2,
                    Some(_) => return Err(RespFault::Malformed),
                    None => return Ok(None),
                }
            }
            b'*' | b'~' | b'>' | b'%' if !is_null => {
                let count = decimal(text, limits.frame_bytes_max)?;
                let count = if kind == b'%' { count * 2 } else { count };
                items += count;
                if items > limits.items_max {
                    return Err(RespFault::TooManyItems);
                }
                // The smallest item, a null, has three bytes.
                if at + count * 3 > limits.frame_bytes_max {
                    return Err(RespFault::TooLong);
                }
                if depth == limits.depth_max.min(DEPTH_CEILING) {
                    return Err(RespFault::TooDeep);
                }
                if count > 0 {
                    open[depth] = count;
                    depth += 1;
                    continue;
                }
            }
            _ => {}
        }
        // One item is complete, and with it perhaps the levels around it.
        loop {
            if depth == 0 {
                return Ok(Some(at));
            }
            open[depth - 1] -= 1;
            if open[depth - 1] > 0 {
                break;
            }
            depth -= 1;
        }
    }
}

/// Bytes before the CR LF that ends the line at the start of `buf`; `None` while it is not there.
fn line(buf: &[u8], bytes_max: usize) -> Result<Option<usize>, RespFault> {
    let seen = &buf[..buf.len().min(bytes_max.saturating_add(1))];
    match memchr2(b'\r', b'\n', seen) {
        None if seen.len() > bytes_max => Err(RespFault::LineTooLong),
        None => Ok(None),
        Some(index) => match (buf[index], buf.get(index + 1)) {
            (b'\r', Some(b'\n')) => Ok(Some(index)),
            (b'\r', None) => Ok(None),
            _ => Err(RespFault::Malformed),
        },
    }
}

/// The longest value there is: what Redis itself allows, unless told otherwise.
const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Whether `buf` starts with a value too large for a frame that Redis may hold all the same: the
/// bytes that announce it, and those of the value with its line end.
pub fn oversized(buf: &[u8], limits: &RespLimits) -> Option<(usize, usize)> {
    let rest = buf.strip_prefix(b"$")?;
    let text = &rest[..line(rest, limits.line_bytes_max).ok()??];
    let length = decimal(text, VALUE_BYTES_MAX).ok()?;
    let (head, body) = (text.len() + 3, length + 2);
    (head + body > limits.frame_bytes_max).then_some((head, body))
}

/// A plain decimal number of at most 10 digits; above `max` the frame cannot be taken.
fn decimal(text: &[u8], max: usize) -> Result<usize, RespFault> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(RespFault::Malformed);
    }
    let mut value = 0_usize;
    for digit in text {
        value = value * 10 + usize::from(digit - b'0');
        if value > max {
            return Err(RespFault::TooLong);
        }
    }
    Ok(value)
}

/// Bytes that [`encode`] adds for `arguments`, at most.
#[must_use]
pub fn encoded_bytes_max(arguments: &[&[u8]]) -> usize {
    // A type byte, up to 20 digits and two line ends for each.
    let payload: usize = arguments.iter().map(|argument| argument.len()).sum();
    payload + (arguments.len() + 1) * 25
}

/// Appends the command `arguments` to `out`: an array of bulk strings.
pub fn encode(arguments: &[&[u8]], out: &mut Vec<u8>) {
    out.reserve(encoded_bytes_max(arguments));
    header(b'*', arguments.len(), out);
    for argument in arguments {
        header(b'$', argument.len(), out);
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

fn header(kind: u8, mut number: usize, out: &mut Vec<u8>) {
    out.push(kind);
    let start = out.len();
    loop {
        // A remainder of ten fits a byte.
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out[start..].reverse();
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
pub(in crate::redis) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(bytes: impl AsRef<[u8]>) -> Result<Option<usize>, RespFault> {
        bounded(bytes.as_ref(), &RespLimits::default())
    }

    /// Bytes that often make up something like a frame.
    pub(in crate::redis) const ALPHABET: &[u8] = b"+-:,#_($!=*~>%0123459?txt \r\n\r\n\r\n\xff";

    /// Frames of every kind, each complete.
    pub(in crate::redis) const FRAMES: [&[u8]; 24] = [
        b"+OK\r\n",
        b"+\r\n",
        b"-WRONGPASS invalid username-password pair\r\n",
        b":-42\r\n",
        b",3.25\r\n",
        b",inf\r\n",
        b"#t\r\n",
        b"_\r\n",
        b"(3492890328409238509324850943850943825024385\r\n",
        b"$0\r\n\r\n",
        b"$5\r\na\r\nb\0\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"!9\r\nERR wrong\r\n",
        b"=8\r\ntxt:mild\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:7\r\n",
        b"~2\r\n+a\r\n+b\r\n",
        b"%2\r\n+server\r\n$5\r\nredis\r\n+proto\r\n:3\r\n",
        b"%0\r\n",
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
        b">2\r\n+invalidate\r\n_\r\n",
        b"*8\r\n*1\r\n*1\r\n*1\r\n*1\r\n_\r\n_\r\n_\r\n_\r\n_\r\n_\r\n_\r\n_\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n_\r\n",
    ];

    #[test]
    fn a_frame_is_complete_at_its_last_byte_and_not_before() {
        for frame in FRAMES {
            for end in 0..frame.len() {
                assert_eq!(scan(&frame[..end]), Ok(None), "{end} of {frame:?}");
            }
            assert_eq!(scan(frame), Ok(Some(frame.len())), "{frame:?}");
            let followed = [frame, b"+next\r\n"].concat();
            assert_eq!(scan(followed), Ok(Some(frame.len())), "{frame:?}");
        }
    }

    #[test]
    fn nesting_is_refused_before_anything_recurses() {
        for opener in ["*1\r\n", "~1\r\n", "%1\r\n_\r\n"] {
            let nested = opener.repeat(20_000);
            assert_eq!(scan(&nested), Err(RespFault::TooDeep), "{opener:?}");
        }
        let nine = ["*1\r\n".repeat(9), String::from("_\r\n")].concat();
        assert_eq!(scan(nine), Err(RespFault::TooDeep));
    }

    #[test]
    fn the_depth_limit_has_a_ceiling() {
        let limits = RespLimits {
            depth_max: usize::MAX,
            ..RespLimits::default()
        };
        let nested = "*1\r\n".repeat(17);
        assert_eq!(bounded(nested.as_bytes(), &limits), Err(RespFault::TooDeep));
    }

    #[test]
    fn a_value_too_large_for_a_frame_is_told_from_what_is_none() {
        let limits = RespLimits::default();
        let told = |text: &str| oversized(text.as_bytes(), &limits);
        assert_eq!(told("$4194304\r\nabc"), Some((10, 4_194_306)));
        assert_eq!(told("$536870912\r\n"), Some((12, 536_870_914)));
        // Head, body and line end together are what a frame has at the most.
        assert_eq!(told("$4194292\r\n"), None);
        assert_eq!(told("$4194293\r\n"), Some((10, 4_194_295)));
        for none in [
            "$536870913\r\n",
            "$4194304\r",
            "$41943x4\r\n",
            "!4194304\r\n",
            "$-1\r\n",
        ] {
            assert_eq!(told(none), None, "{none:?}");
        }
    }

    #[test]
    fn lengths_are_refused_as_soon_as_they_are_announced() {
        let cases: [(&str, RespFault); 22] = [
            ("$4194305\r\n", RespFault::TooLong),
            ("$4194304\r\n", RespFault::TooLong),
            ("$99999999999999999999999\r\n", RespFault::TooLong),
            ("!99999999999\r\n", RespFault::TooLong),
            ("=18446744073709551615\r\n", RespFault::TooLong),
            ("*65536\r\n", RespFault::TooManyItems),
            ("%40000\r\n", RespFault::TooManyItems),
            ("*2\r\n*65534\r\n", RespFault::TooManyItems),
            ("*9223372036854775807\r\n", RespFault::TooLong),
            (">1000000\r\n", RespFault::TooManyItems),
            ("$-2\r\n", RespFault::Malformed),
            ("$+1\r\n", RespFault::Malformed),
            ("$ 1\r\n", RespFault::Malformed),
            ("$\r\n", RespFault::Malformed),
            ("$?\r\n", RespFault::Malformed),
            ("!-1\r\n", RespFault::Malformed),
            ("%-1\r\n", RespFault::Malformed),
            ("=3\r\ntxt\r\n", RespFault::Malformed),
            ("$1\r\nabc", RespFault::Malformed),
            ("+a\rb\r\n", RespFault::Malformed),
            ("+a\nb\r\n", RespFault::Malformed),
            (":1\n", RespFault::Malformed),
        ];
        for (text, fault) in cases {
            assert_eq!(scan(text), Err(fault), "{text:?}");
        }
    }

    #[test]
    fn the_largest_bulk_fits_exactly() {
        let limits = RespLimits {
            frame_bytes_max: 20,
            ..RespLimits::default()
        };
        // Header 5, payload 13, end 2.
        let frame = b"$13\r\n0123456789abc\r\n";
        assert_eq!(bounded(frame, &limits), Ok(Some(20)));
        assert_eq!(bounded(b"$14\r\n", &limits), Err(RespFault::TooLong));
        assert_eq!(bounded(b"$3\r\nabc\r\n", &limits), Ok(Some(9)));
    }

    #[test]
    fn an_endless_line_is_refused() {
        let limits = RespLimits::default();
        let mut line = vec![b'a'; limits.line_bytes_max + 1];
        line[0] = b'+';
        assert_eq!(scan(&line), Ok(None));
        line.push(b'a');
        assert_eq!(scan(&line), Err(RespFault::LineTooLong));
    }

    #[test]
    fn other_types_and_pushes_inside_are_refused() {
        for kind in (0..=255_u8).filter(|kind| !b"+-:,#_($!=*~>%".contains(kind)) {
            assert_eq!(scan([kind]), Err(RespFault::Unsupported(kind)));
        }
        assert_eq!(
            scan("*1\r\n>1\r\n+a\r\n"),
            Err(RespFault::Unsupported(b'>'))
        );
    }

    #[test]
    fn a_command_is_an_array_of_bulks() {
        let mut out = Vec::new();
        encode(&[b"SET", b"k\r\n", b""], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\nk\r\n\r\n$0\r\n\r\n");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn a_command_is_one_whole_frame_no_larger_than_said(
            arguments in prop::collection::vec(
                prop::collection::vec(any::<u8>(), 0..1_200), 1..12,
            ),
        ) {
            let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            let mut out = Vec::new();
            encode(&arguments, &mut out);
            prop_assert!(out.len() <= encoded_bytes_max(&arguments));
            prop_assert_eq!(scan(&out), Ok(Some(out.len())));
        }

        #[test]
        fn bytes_never_panic_and_a_verdict_never_changes(
            bytes in prop::collection::vec(prop::sample::select(ALPHABET), 0..200),
        ) {
            let whole = scan(&bytes);
            for end in 0..bytes.len() {
                // More bytes can complete a frame, but not change a verdict.
                match scan(&bytes[..end]) {
                    Ok(None) => {}
                    verdict => {
                        prop_assert_eq!(verdict, whole);
                        break;
                    }
                }
            }
        }
    }
}
