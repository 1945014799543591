//! Chunked bodies (RFC 9112 section 7.1), read strictly and written plainly.
//!
//! Owns the chunk decoder for both sides: requests, where a trailer is refused, and backends'
//! replies, where a small one is read and dropped. Size lines are parsed here byte by byte because
//! every lenient reading of one is a known smuggling class (`contracts/reliability.md` section 3,
//! chunks). After an error the decoder is spent and what it wrote must not be used.

use super::head::HttpRefusal;
use super::line::is_token;
use super::target::hex_digit;

/// Ends a chunked body without a trailer.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A 64-bit size; more digits could only be leading zeros, and nobody honest sends those.
const SIZE_DIGITS_MAX: u8 = 16;
/// Chunk extensions carry nothing for us (Appendix F).
const EXTENSION_LINE_BYTES_MAX: u32 = 1 << 10;
const EXTENSION_BODY_BYTES_MAX: u32 = 4 << 10;
/// Trailers of a backend's reply are dropped, so a few are enough (Appendix F).
const TRAILER_BYTES_MAX: u32 = 4 << 10;
/// Framing bytes may come to this plus twice the body: a body of many tiny chunks is an attack on
/// the reader, a slow stream of some thousands is not.
const OVERHEAD_BYTES_FREE: u64 = 16 << 10;
const OVERHEAD_RATIO_MAX: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the digits of a size.
    Size {
        digits: u8,
    },
    /// After `;`, before the first byte of an extension name.
    ExtensionStart,
    ExtensionName,
    /// After `=`.
    ExtensionValue,
    ExtensionToken,
    ExtensionQuoted,
    /// After a backslash in a quoted string.
    ExtensionEscape,
    /// After the closing quote.
    ExtensionEnd,
    /// After the CR of a size line.
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer line or of the last blank line.
    TrailerStart,
    TrailerLine,
    TrailerLf,
    /// After the CR of the last blank line.
    LastLf,
    Done,
}

/// Whether the fields after the last chunk are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trailers {
    Refused,
    Dropped,
}

/// Decodes one chunked body as its bytes arrive.
#[derive(Debug)]
pub struct ChunkDecoder {
    state: State,
    trailers: Trailers,
    /// Size being read, then data bytes of the chunk still to come.
    remaining: u64,
    body_bytes: u64,
    body_bytes_max: u64,
    overhead_bytes: u64,
    extension_line_bytes: u32,
    extension_body_bytes: u32,
    trailer_bytes: u32,
}

impl ChunkDecoder {
    /// A decoder for a request body: any trailer field is refused.
    pub fn new(body_bytes_max: u64) -> Self {
        Self::with_trailers(body_bytes_max, Trailers::Refused)
    }

    /// A decoder for a backend's reply: trailer fields up to 4 KiB are read and dropped.
    pub fn dropping_trailers(body_bytes_max: u64) -> Self {
        Self::with_trailers(body_bytes_max, Trailers::Dropped)
    }

    fn with_trailers(body_bytes_max: u64, trailers: Trailers) -> Self {
        Self {
            state: State::Size { digits: 0 },
            trailers,
            remaining: 0,
            body_bytes: 0,
            body_bytes_max,
            overhead_bytes: 0,
            extension_line_bytes: 0,
            extension_body_bytes: 0,
            trailer_bytes: 0,
        }
    }

    /// Decodes `input` onto the end of `out`; gives the bytes consumed and whether the body ended.
    ///
    /// All of `input` is consumed unless the body ends inside it.
    pub fn decode(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, bool), HttpRefusal> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let rest = &input[at..];
                let len = usize::try_from(self.remaining)
                    .unwrap_or(rest.len())
                    .min(rest.len());
                out.extend_from_slice(&rest[..len]);
                at += len;
                self.remaining -= len as u64;
                if self.remaining == 0 {
                    self.state = State::DataCr;
                }
            } else {
                self.state = self.step(input[at])?;
                at += 1;
            }
        }
        Ok((at, self.state == State::Done))
    }

    /// Takes one framing byte.
    fn step(&mut self, byte: u8) -> Result<State, HttpRefusal> {
        self.count_overhead()?;
        match (self.state, byte) {
            (State::Size { digits }, _) => self.step_size(digits, byte),
            (State::SizeLf, b'\n') => self.start_chunk(),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size { digits: 0 }),
            (State::DataCr | State::DataLf, _) => {
                Err(HttpRefusal::bad("chunk data not followed by CRLF"))
            }
            (State::TrailerStart, b'\r') => Ok(State::LastLf),
            (State::LastLf, b'\n') => Ok(State::Done),
            (State::TrailerStart, _) if self.trailers == Trailers::Refused => {
                Err(HttpRefusal::bad("trailer fields are not taken"))
            }
            (State::TrailerStart, b' ' | b'\t' | b':') => {
                Err(HttpRefusal::bad("malformed trailer field"))
            }
            (State::TrailerStart | State::TrailerLine, _) => self.step_trailer(byte),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::SizeLf | State::LastLf | State::TrailerLf, _) => {
                Err(HttpRefusal::bad("bare CR in chunk framing"))
            }
            _ => self.step_extension(byte),
        }
    }

    /// Framing bytes are allowed in proportion to the data they frame.
    fn count_overhead(&mut self) -> Result<(), HttpRefusal> {
        self.overhead_bytes += 1;
        let allowed = self
            .body_bytes
            .saturating_mul(OVERHEAD_RATIO_MAX)
            .saturating_add(OVERHEAD_BYTES_FREE);
        if self.overhead_bytes > allowed {
            return Err(HttpRefusal::bad("chunks too small for their number"));
        }
        Ok(())
    }

    fn step_size(&mut self, digits: u8, byte: u8) -> Result<State, HttpRefusal> {
        match (hex_digit(byte), byte) {
            (Some(_), _) if digits == SIZE_DIGITS_MAX => {
                Err(HttpRefusal::bad("chunk size too long"))
            }
            (Some(value), _) => {
                self.remaining = self.remaining << 4 | u64::from(value);
                Ok(State::Size { digits: digits + 1 })
            }
            // An empty size is no size: a reader that takes it for 0 ends the body here.
            (None, b'\r') if digits > 0 => Ok(State::SizeLf),
            (None, b';') if digits > 0 => {
                self.extension_line_bytes = 0;
                self.count_extension()?;
                Ok(State::ExtensionStart)
            }
            (None, _) => Err(HttpRefusal::bad("malformed chunk size")),
        }
    }

    /// At the end of a size line: refuse before the first byte past the limit.
    fn start_chunk(&mut self) -> Result<State, HttpRefusal> {
        if self.remaining == 0 {
            return Ok(State::TrailerStart);
        }
        if self.remaining > self.body_bytes_max - self.body_bytes {
            return Err(HttpRefusal {
                status: 413,
                reason: "body over the limit",
            });
        }
        self.body_bytes += self.remaining;
        Ok(State::Data)
    }

    /// RFC 9112 section 7.1.1 without the "bad white space" it tolerates.
    fn step_extension(&mut self, byte: u8) -> Result<State, HttpRefusal> {
        let next = match (self.state, byte) {
            (State::ExtensionStart | State::ExtensionName, _) if is_token(byte) => {
                State::ExtensionName
            }
            (State::ExtensionName, b'=') => State::ExtensionValue,
            (State::ExtensionValue, b'"') => State::ExtensionQuoted,
            (State::ExtensionValue | State::ExtensionToken, _) if is_token(byte) => {
                State::ExtensionToken
            }
            (State::ExtensionQuoted, b'"') => State::ExtensionEnd,
            (State::ExtensionQuoted, b'\\') => State::ExtensionEscape,
            (State::ExtensionQuoted | State::ExtensionEscape, b'\t' | b' '..=b'~') => {
                State::ExtensionQuoted
            }
            (State::ExtensionName | State::ExtensionToken | State::ExtensionEnd, b';') => {
                State::ExtensionStart
            }
            (State::ExtensionName | State::ExtensionToken | State::ExtensionEnd, b'\r') => {
                return Ok(State::SizeLf);
            }
            _ => return Err(HttpRefusal::bad("malformed chunk extension")),
        };
        self.count_extension()?;
        Ok(next)
    }

    fn count_extension(&mut self) -> Result<(), HttpRefusal> {
        self.extension_line_bytes += 1;
        self.extension_body_bytes += 1;
        if self.extension_line_bytes > EXTENSION_LINE_BYTES_MAX
            || self.extension_body_bytes > EXTENSION_BODY_BYTES_MAX
        {
            return Err(HttpRefusal::bad("chunk extensions over the limit"));
        }
        Ok(())
    }

    fn step_trailer(&mut self, byte: u8) -> Result<State, HttpRefusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(HttpRefusal::bad("trailer fields over the limit"));
        }
        match byte {
            b'\r' => Ok(State::TrailerLf),
            0x7f => Err(HttpRefusal::bad("malformed trailer field")),
            b'\t' | b' '.. => Ok(State::TrailerLine),
            _ => Err(HttpRefusal::bad("malformed trailer field")),
        }
    }
}

/// Appends `data` as one chunk; no data, no chunk, since an empty one would end the body.
pub fn encode_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let digit_count = (usize::BITS - data.len().leading_zeros()).div_ceil(4);
    out.reserve(digit_count as usize + 4 + data.len());
    for place in (0..digit_count).rev() {
        let digit = (data.len() >> (place * 4)) & 0xf;
        out.push(b"0123456789abcdef"[digit]);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use memchr::memchr;
    use proptest::prelude::*;

    fn decode(mut decoder: ChunkDecoder, input: &[u8]) -> Result<(Vec<u8>, usize, bool), u16> {
        let mut out = Vec::new();
        match decoder.decode(input, &mut out) {
            Ok((consumed, done)) => Ok((out, consumed, done)),
            Err(refusal) => Err(refusal.status),
        }
    }

    #[test]
    fn bytes_after_the_body_are_left() {
        let input = b"3\r\nabc\r\n2;a=b;c=\"d;\\\"\"\r\nde\r\n0\r\n\r\nGET /";
        let (out, consumed, done) = decode(ChunkDecoder::new(5), input).expect("well-formed");
        assert_eq!((&out[..], done), (&b"abcde"[..], true));
        assert_eq!(&input[consumed..], b"GET /");
    }

    #[test]
    fn the_limit_is_met_and_not_passed() {
        assert!(decode(ChunkDecoder::new(3), b"3\r\nabc\r\n0\r\n\r\n").is_ok());
        assert_eq!(decode(ChunkDecoder::new(3), b"4\r\n"), Err(413));
        assert_eq!(decode(ChunkDecoder::new(3), b"3\r\nabc\r\n1\r\n"), Err(413));
        assert_eq!(
            decode(
                ChunkDecoder::new(u64::MAX),
                b"1\r\na\r\nffffffffffffffff\r\n"
            ),
            Err(413)
        );
        assert_eq!(
            decode(ChunkDecoder::new(3), b"ffffffffffffffff\r\n"),
            Err(413)
        );
    }

    #[test]
    fn a_reply_may_have_a_small_trailer_and_a_request_none() {
        let input = b"1\r\na\r\n0\r\nx-sum: 1\r\nhost: b\r\n\r\nrest";
        assert_eq!(decode(ChunkDecoder::new(9), input), Err(400));
        let (out, consumed, done) = decode(ChunkDecoder::dropping_trailers(9), input).expect("ok");
        assert_eq!(
            (&out[..], &input[consumed..], done),
            (&b"a"[..], &b"rest"[..], true)
        );
        for line in ["a\n", " a: b\r\n", ": b\r\n", "a: \0\r\n", "a: b\rc\r\n"] {
            let input = format!("0\r\n{line}\r\n");
            let verdict = decode(ChunkDecoder::dropping_trailers(9), input.as_bytes());
            assert_eq!(verdict, Err(400), "{line:?}");
        }
        let long = format!("0\r\na: {}\r\n\r\n", "b".repeat(5000));
        assert_eq!(
            decode(ChunkDecoder::dropping_trailers(9), long.as_bytes()),
            Err(400)
        );
    }

    #[test]
    fn tiny_chunks_are_bounded_by_their_overhead() {
        let few = "1\r\nx\r\n".repeat(2_000) + "0\r\n\r\n";
        assert!(decode(ChunkDecoder::new(1 << 20), few.as_bytes()).is_ok_and(|(_, _, done)| done));
        let many = "1\r\nx\r\n".repeat(100_000);
        assert_eq!(
            decode(ChunkDecoder::new(1 << 20), many.as_bytes()),
            Err(400)
        );
        let honest = "4\r\nxxxx\r\n".repeat(100_000);
        assert!(decode(ChunkDecoder::new(1 << 20), honest.as_bytes()).is_ok());
    }

    #[test]
    fn sizes_are_written_without_leading_zeros() {
        for len in [1, 15, 16, 255, 256, 4095, 4096, 65_536] {
            let mut out = Vec::new();
            encode_chunk(&mut out, &vec![b'x'; len]);
            let line_end = memchr(b'\r', &out).expect("a size line");
            assert_eq!(out[..line_end], *format!("{len:x}").as_bytes());
            assert_eq!(out.len(), line_end + 2 + len + 2);
        }
        let mut out = Vec::new();
        encode_chunk(&mut out, b"");
        assert!(out.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn what_was_encoded_is_decoded_under_any_split(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut wire = Vec::new();
            for piece in &pieces {
                encode_chunk(&mut wire, piece);
            }
            wire.extend_from_slice(LAST_CHUNK);
            let body_len = wire.len();
            wire.extend_from_slice(b"next");
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
            cuts.push(wire.len());
            cuts.sort_unstable();

            let mut decoder = ChunkDecoder::new(1 << 20);
            let mut out = Vec::new();
            let (mut consumed, mut done) = (0, false);
            for cut in cuts {
                if cut > consumed && !done {
                    let (taken, ended) = decoder.decode(&wire[consumed..cut], &mut out)?;
                    consumed += taken;
                    done = ended;
                }
            }
            prop_assert!(done);
            prop_assert_eq!(consumed, body_len);
            prop_assert_eq!(out, pieces.concat());
        }

        #[test]
        fn a_refusal_does_not_depend_on_how_bytes_arrive(
            wire in "[0-3a;=\"\r\n x]{0,40}",
        ) {
            let whole = decode(ChunkDecoder::new(100), wire.as_bytes());
            let mut decoder = ChunkDecoder::new(100);
            let mut out = Vec::new();
            let mut verdict = Ok((0, false));
            for byte in wire.as_bytes() {
                let Ok((consumed, false)) = verdict else { break };
                verdict = match decoder.decode(&[*byte], &mut out) {
                    Ok((taken, done)) => Ok((consumed + taken, done)),
                    Err(refusal) => Err(refusal.status),
                };
            }
            prop_assert_eq!(whole, verdict.map(|(consumed, done)| (out, consumed, done)));
        }
    }
}
