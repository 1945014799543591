//! Chunked bodies: decoding undoes encoding, pieces decode as the whole, and what is taken has the
//! same body for a second, slow reader.

use shardgate::http::{ChunkDecoder, LAST_CHUNK, encode_chunk};

use super::{Choices, Verdict};

const BODY_BYTES_MAX: u64 = 4096;
/// A body this long may come in chunks of one byte: the framing bytes that are free suffice.
const ENCODED_BYTES_MAX: usize = 2048;

/// The outcome of decoding: bytes consumed and body, or the refusal's status.
type Decoded = Result<(usize, bool, Vec<u8>), u16>;

/// Encodes and decodes the bytes, then decodes them as they are.
pub fn check(data: &[u8]) -> Verdict {
    let mut choices = Choices::of(data);
    encoded_comes_back(&data[..data.len().min(ENCODED_BYTES_MAX)], &mut choices);
    let pieces = pieces(data, &mut choices);
    for is_request in [true, false] {
        let whole = decode(is_request, &[data]);
        assert_eq!(
            decode(is_request, &pieces),
            whole,
            "split, request: {is_request}"
        );
        let Ok((consumed, is_done, body)) = &whole else {
            continue;
        };
        assert!(*consumed <= data.len() && body.len() <= *consumed);
        assert!(body.len() as u64 <= BODY_BYTES_MAX);
        assert!(*is_done || *consumed == data.len(), "stopped early");
        if is_request && *is_done {
            let slow = slow(&data[..*consumed]).expect("a slow reader takes it too");
            assert_eq!(
                (&slow, data[..*consumed].ends_with(b"\r\n\r\n")),
                (body, true)
            );
        }
    }
    Verdict::taken_if(decode(true, &[data]).is_ok_and(|(_, is_done, _)| is_done))
}

fn encoded_comes_back(body: &[u8], choices: &mut Choices) {
    let mut wire = Vec::new();
    for piece in pieces(body, choices) {
        encode_chunk(&mut wire, piece);
    }
    wire.extend_from_slice(LAST_CHUNK);
    let length = wire.len();
    wire.extend_from_slice(b"POST ");
    for is_request in [true, false] {
        let decoded = decode(is_request, &pieces(&wire, choices));
        assert_eq!(decoded, Ok((length, true, body.to_vec())));
    }
}

/// Cuts into pieces of chosen lengths.
fn pieces<'a>(data: &'a [u8], choices: &mut Choices) -> Vec<&'a [u8]> {
    let longest = 1 + choices.below(64);
    let mut rest = data;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(rest.len().min(1 + choices.below(longest)));
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

fn decode(is_request: bool, pieces: &[&[u8]]) -> Decoded {
    let mut decoder = if is_request {
        ChunkDecoder::new(BODY_BYTES_MAX)
    } else {
        ChunkDecoder::dropping_trailers(BODY_BYTES_MAX)
    };
    let mut body = Vec::new();
    let mut consumed = 0;
    for piece in pieces {
        let (taken, is_done) = decoder
            .decode(piece, &mut body)
            .map_err(|refusal| refusal.status)?;
        consumed += taken;
        if is_done {
            return Ok((consumed, true, body));
        }
        assert_eq!(taken, piece.len());
    }
    Ok((consumed, false, body))
}

/// RFC 9112 section 7.1 by the letter, without trailers, of a whole body.
fn slow(data: &[u8]) -> Option<Vec<u8>> {
    let mut rest = data;
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, tail) = (&rest[..end], &rest[end + 2..]);
        let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
        let digits = line.split(|byte| *byte == b';').next()?;
        let is_size = digits.iter().all(u8::is_ascii_hexdigit);
        if !line.iter().all(is_text) || digits.is_empty() || !is_size {
            return None;
        }
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        if size == 0 {
            return (tail == b"\r\n").then_some(body);
        }
        body.extend_from_slice(tail.get(..size)?);
        rest = tail[size..].strip_prefix(b"\r\n")?;
    }
}
