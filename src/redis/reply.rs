//! What the server said, as owned values.
//!
//! The bytes are decoded by `redis-protocol`, one frame at a time and only after
//! [`super::resp::bounded`] has walked it. Values can hold credentials: `Debug` never shows them.

use std::fmt;

use redis_protocol::{
    resp2::{decode as resp2, types::RangeFrame as Frame2},
    resp3::{decode::complete as resp3, types::RangeFrame as Frame3},
};

use super::resp::{RespFault, RespLimits, bounded};

/// The protocol version a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Before or without `HELLO 3`.
    Resp2,
    /// After `HELLO 3`: maps, pushes, its own null.
    Resp3,
}

/// What the server said. `Debug` shows kinds and sizes, never contents: values hold credentials.
#[derive(Clone, PartialEq)]
pub enum Reply {
    /// Nothing there (`_`, `$-1`, `*-1`).
    Null,
    /// A simple string, or a number too big for 64 bits.
    Simple(String),
    /// The server refused.
    Error {
        /// Its first word, such as `WRONGPASS`; `ERR` when there is none.
        kind: String,
        /// All of it. It can quote arguments: not for logs.
        text: String,
    },
    /// Bytes.
    Bulk(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// A floating point number (RESP3).
    Double(f64),
    /// True or false (RESP3).
    Boolean(bool),
    /// A list, or a set (RESP3) in no particular order.
    Array(Vec<Self>),
    /// Pairs (RESP3), in no particular order.
    Map(Vec<(Self, Self)>),
    /// Sent without being asked (RESP3).
    Push {
        /// What it is about, such as `invalidate`.
        kind: String,
        /// What follows the kind.
        items: Vec<Self>,
    },
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Simple(text) => write!(f, "Simple({} bytes)", text.len()),
            Self::Error { kind, .. } => write!(f, "Error({kind})"),
            Self::Bulk(bytes) => write!(f, "Bulk({} bytes)", bytes.len()),
            Self::Integer(_) => f.write_str("Integer"),
            Self::Double(_) => f.write_str("Double"),
            Self::Boolean(_) => f.write_str("Boolean"),
            Self::Array(items) => write!(f, "Array({} items)", items.len()),
            Self::Map(pairs) => write!(f, "Map({} pairs)", pairs.len()),
            Self::Push { kind, items } => write!(f, "Push({kind}, {} items)", items.len()),
        }
    }
}

/// The frame at the start of `buf` and its length; `None` while it is incomplete.
pub fn decode(
    buf: &[u8],
    dialect: Dialect,
    limits: &RespLimits,
) -> Result<Option<(Reply, usize)>, RespFault> {
    let Some(length) = bounded(buf, limits)? else {
        return Ok(None);
    };
    let frame = &buf[..length];
    // Some servers keep the old nulls on RESP3 connections; the decoder takes them for streams.
    if matches!(frame, b"$-1\r\n" | b"*-1\r\n") {
        return Ok(Some((Reply::Null, length)));
    }
    let (reply, used) = match dialect {
        Dialect::Resp2 => match resp2::decode_range(frame) {
            Ok(Some((range, used))) => (from_resp2(range, frame)?, used),
            Ok(None) | Err(_) => return Err(RespFault::Malformed),
        },
        Dialect::Resp3 => match resp3::decode_range(frame) {
            Ok(Some((range, used))) => (from_resp3(range, frame)?, used),
            Ok(None) | Err(_) => return Err(RespFault::Malformed),
        },
    };
    if used != length {
        return Err(RespFault::Malformed);
    }
    Ok(Some((reply, length)))
}

fn bytes(frame: &[u8], (start, end): (usize, usize)) -> Result<&[u8], RespFault> {
    frame.get(start..end).ok_or(RespFault::Malformed)
}

fn text(frame: &[u8], range: (usize, usize)) -> Result<String, RespFault> {
    Ok(String::from_utf8_lossy(bytes(frame, range)?).into_owned())
}

fn error(frame: &[u8], range: (usize, usize)) -> Result<Reply, RespFault> {
    const KIND_BYTES_MAX: usize = 32;
    let text = text(frame, range)?;
    let word = text.split(' ').next().unwrap_or_default();
    // Only what looks like a code: anything else could be an argument quoted back.
    let is_kind = !word.is_empty()
        && word.len() <= KIND_BYTES_MAX
        && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let kind = String::from(if is_kind { word } else { "ERR" });
    Ok(Reply::Error { kind, text })
}

fn from_resp2(range: Frame2, frame: &[u8]) -> Result<Reply, RespFault> {
    Ok(match range {
        Frame2::SimpleString(range) => Reply::Simple(text(frame, range)?),
        Frame2::Error(range) => error(frame, range)?,
        Frame2::Integer(number) => Reply::Integer(number),
        Frame2::BulkString(range) => Reply::Bulk(bytes(frame, range)?.to_vec()),
        Frame2::Array(items) => Reply::Array(
            items
                .into_iter()
                .map(|item| from_resp2(item, frame))
                .collect::<Result<_, _>>()?,
        ),
        Frame2::Null => Reply::Null,
    })
}

fn from_resp3(range: Frame3, frame: &[u8]) -> Result<Reply, RespFault> {
    let list = |items: Vec<Frame3>| {
        items
            .into_iter()
            .map(|item| from_resp3(item, frame))
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(match range {
        Frame3::Null => Reply::Null,
        Frame3::SimpleString { data, .. } | Frame3::BigNumber { data, .. } => {
            Reply::Simple(text(frame, data)?)
        }
        Frame3::SimpleError { data, .. } | Frame3::BlobError { data, .. } => error(frame, data)?,
        Frame3::BlobString { data, .. } | Frame3::VerbatimString { data, .. } => {
            Reply::Bulk(bytes(frame, data)?.to_vec())
        }
        Frame3::Number { data, .. } => Reply::Integer(data),
        Frame3::Double { data, .. } => Reply::Double(data),
        Frame3::Boolean { data, .. } => Reply::Boolean(data),
        Frame3::Array { data, .. } => Reply::Array(list(data)?),
        Frame3::Set { data, .. } => Reply::Array(list(data.into_iter().collect())?),
        Frame3::Map { data, .. } => Reply::Map(
            data.into_iter()
                .map(|(key, value)| Ok((from_resp3(key, frame)?, from_resp3(value, frame)?)))
                .collect::<Result<_, _>>()?,
        ),
        Frame3::Push { data, .. } => {
            let mut items = list(data)?.into_iter();
            let kind = match items.next() {
                Some(Reply::Bulk(kind)) => String::from_utf8_lossy(&kind).into_owned(),
                Some(Reply::Simple(kind)) => kind,
                _ => return Err(RespFault::Malformed),
            };
            Reply::Push {
                kind,
                items: items.collect(),
            }
        }
        Frame3::Hello { .. } | Frame3::ChunkedString(_) => return Err(RespFault::Malformed),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::redis::resp::{
        self,
        tests::{ALPHABET, FRAMES},
    };

    fn both(frame: &[u8]) -> [Result<Option<(Reply, usize)>, RespFault>; 2] {
        [Dialect::Resp2, Dialect::Resp3]
            .map(|dialect| decode(frame, dialect, &RespLimits::default()))
    }

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn what_both_versions_share_reads_the_same() {
        let cases: [(&[u8], Reply); 9] = [
            (b"+OK\r\n", Reply::Simple(String::from("OK"))),
            (b":-42\r\n", Reply::Integer(-42)),
            (b"$0\r\n\r\n", bulk("")),
            (b"$5\r\na\r\nb\0\r\n", bulk("a\r\nb\0")),
            (b"$-1\r\n", Reply::Null),
            (b"*-1\r\n", Reply::Null),
            (b"*0\r\n", Reply::Array(Vec::new())),
            (
                b"*2\r\n$1\r\na\r\n*1\r\n:7\r\n",
                Reply::Array(vec![bulk("a"), Reply::Array(vec![Reply::Integer(7)])]),
            ),
            (
                b"-WRONGPASS no such pair\r\n",
                Reply::Error {
                    kind: String::from("WRONGPASS"),
                    text: String::from("WRONGPASS no such pair"),
                },
            ),
        ];
        for (frame, reply) in cases {
            for outcome in both(frame) {
                assert!(
                    outcome == Ok(Some((reply.clone(), frame.len()))),
                    "{frame:?}"
                );
            }
        }
    }

    #[test]
    fn the_types_of_version_3() {
        let cases: [(&[u8], Reply); 10] = [
            (b"_\r\n", Reply::Null),
            (b",3.25\r\n", Reply::Double(3.25)),
            (b",-inf\r\n", Reply::Double(f64::NEG_INFINITY)),
            (b"#f\r\n", Reply::Boolean(false)),
            (
                b"(340282366920938463463374607431768211456\r\n",
                Reply::Simple(String::from("340282366920938463463374607431768211456")),
            ),
            (b"=8\r\ntxt:mild\r\n", bulk("mild")),
            (
                b"~1\r\n+a\r\n",
                Reply::Array(vec![Reply::Simple(String::from("a"))]),
            ),
            (
                b"%1\r\n+proto\r\n:3\r\n",
                Reply::Map(vec![(
                    Reply::Simple(String::from("proto")),
                    Reply::Integer(3),
                )]),
            ),
            (
                b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
                Reply::Push {
                    kind: String::from("invalidate"),
                    items: vec![Reply::Array(vec![bulk("k")])],
                },
            ),
            (
                b"!11\r\nLOADING now\r\n",
                Reply::Error {
                    kind: String::from("LOADING"),
                    text: String::from("LOADING now"),
                },
            ),
        ];
        for (frame, reply) in cases {
            let [old, new] = both(frame);
            assert!(new == Ok(Some((reply, frame.len()))), "{frame:?}");
            assert!(old == Err(RespFault::Malformed), "{frame:?}");
        }
    }

    #[test]
    fn only_a_word_in_capitals_is_the_kind_of_an_error() {
        for (line, expected) in [
            ("-NOAUTH Authentication required.\r\n", "NOAUTH"),
            ("-unknown command\r\n", "ERR"),
            ("-\r\n", "ERR"),
            ("-SECRET1 x\r\n", "ERR"),
            ("-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA x\r\n", "ERR"),
        ] {
            let reply = decode(line.as_bytes(), Dialect::Resp3, &RespLimits::default());
            let Ok(Some((Reply::Error { kind, .. }, _))) = reply else {
                panic!("{line:?}: {reply:?}");
            };
            assert_eq!(kind, expected);
        }
    }

    #[test]
    fn what_passes_the_walk_but_not_the_decoder_is_malformed() {
        for frame in [
            ":abc\r\n",
            ":99999999999999999999\r\n",
            ",x\r\n",
            "#x\r\n",
            "=8\r\nxyz:mild\r\n",
            "%1\r\n*0\r\n+a\r\n",
            "~1\r\n*0\r\n",
            "*1\r\n$-1\r\n",
            ">0\r\n",
            ">1\r\n:1\r\n",
        ] {
            let outcome = decode(frame.as_bytes(), Dialect::Resp3, &RespLimits::default());
            assert_eq!(outcome, Err(RespFault::Malformed), "{frame:?}");
        }
    }

    #[test]
    fn twenty_thousand_nested_arrays_are_a_fault_and_not_a_crash() {
        let nested = "*1\r\n".repeat(20_000);
        for outcome in both(nested.as_bytes()) {
            assert_eq!(outcome, Err(RespFault::TooDeep));
        }
    }

    #[test]
    fn debug_shows_no_contents() {
        let secret = "hunter2";
        let replies = [
            bulk(secret),
            Reply::Simple(String::from(secret)),
            Reply::Array(vec![bulk(secret)]),
            Reply::Map(vec![(bulk(secret), bulk(secret))]),
            Reply::Error {
                kind: String::from("ERR"),
                text: String::from(secret),
            },
            Reply::Push {
                kind: String::from("invalidate"),
                items: vec![bulk(secret)],
            },
        ];
        for reply in replies {
            assert!(!format!("{reply:?}").contains(secret));
        }
    }

    /// Frames with nothing of hash order in them, so that two readings can be compared.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let frames: Vec<&[u8]> = FRAMES
            .into_iter()
            .filter(|frame| !matches!(frame[0], b'~' | b'%'))
            .collect();
        prop::collection::vec(prop::sample::select(frames), 1..8).prop_map(|list| list.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn cut_anywhere_a_stream_reads_as_it_does_whole(
            stream in stream(),
            cuts in prop::collection::vec(1..40_usize, 0..20),
        ) {
            let limits = RespLimits::default();
            let read = |sizes: &[usize]| {
                let (mut replies, mut buffer, mut rest) = (Vec::new(), Vec::new(), &stream[..]);
                let mut sizes = sizes.iter().copied();
                while !rest.is_empty() {
                    let size = sizes.next().unwrap_or(rest.len()).min(rest.len());
                    buffer.extend_from_slice(&rest[..size]);
                    rest = &rest[size..];
                    while let Some((reply, used)) =
                        decode(&buffer, Dialect::Resp3, &limits).unwrap()
                    {
                        replies.push(reply);
                        buffer.drain(..used);
                    }
                }
                assert!(buffer.is_empty());
                replies
            };
            prop_assert_eq!(read(&cuts), read(&[]));
            let single = vec![1; stream.len()];
            prop_assert_eq!(read(&single), read(&[]));
        }

        #[test]
        fn a_command_reads_back_in_both_versions(
            arguments in prop::collection::vec(
                prop::collection::vec(any::<u8>(), 0..300), 1..8,
            ),
        ) {
            let slices: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            let mut out = Vec::new();
            resp::encode(&slices, &mut out);
            let expected = Reply::Array(arguments.into_iter().map(Reply::Bulk).collect());
            for outcome in both(&out) {
                prop_assert!(outcome == Ok(Some((expected.clone(), out.len()))));
            }
        }

        #[test]
        fn any_bytes_give_a_verdict_without_panic(
            bytes in prop::collection::vec(prop::sample::select(ALPHABET), 0..200),
        ) {
            for outcome in both(&bytes) {
                if let Ok(Some((_, used))) = outcome {
                    prop_assert!(used > 0 && used <= bytes.len());
                }
            }
        }
    }
}
