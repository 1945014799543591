//! Frames as bytes (RFC 6455 section 5.2): written here, their heads read here.

use super::close::CloseCode;

/// A frame that continues a message.
pub const CONTINUATION: u8 = 0;
/// A frame of text.
pub const TEXT: u8 = 1;
/// A frame of bytes.
pub const BINARY: u8 = 2;
/// Close.
pub const CLOSE: u8 = 8;
/// Ping.
pub const PING: u8 = 9;
/// Pong.
pub const PONG: u8 = 10;

/// Payload bytes of a control frame at the most (section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;
/// Bytes of the longest head: two, eight of length, four of mask.
pub const HEAD_BYTES_MAX: usize = 14;

/// Of a frame's first byte: it is the last one of its message.
pub const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;

/// How payloads are written: a client masks, with a key nobody can foresee; a server does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// As they are.
    Plain,
    /// Under this key.
    Key([u8; 4]),
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// It is the last one of its message.
    pub is_final: bool,
    /// The three reserved bits, as they stand in the first byte.
    pub reserved: u8,
    /// What it is.
    pub opcode: u8,
    /// The key of its payload.
    pub mask: Option<[u8; 4]>,
    /// Payload bytes.
    pub length: u64,
    /// Its length was written in as few bytes as there can be.
    pub is_minimal: bool,
    /// Bytes of the head itself.
    pub head_bytes: usize,
}

impl FrameHead {
    /// Reads a head from the front of `bytes`; `None`: more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[first, second], rest) = bytes.split_first_chunk::<2>()?;
        let (length, is_minimal, length_bytes) = match second & !MASKED {
            126 => {
                let length = u64::from(u16::from_be_bytes(*rest.first_chunk()?));
                (length, length > 125, 2)
            }
            127 => {
                let length = u64::from_be_bytes(*rest.first_chunk()?);
                (length, length > u64::from(u16::MAX), 8)
            }
            short => (u64::from(short), true, 0),
        };
        let rest = rest.get(length_bytes..)?;
        let (mask, mask_bytes) = if second & MASKED == 0 {
            (None, 0)
        } else {
            (Some(*rest.first_chunk()?), 4)
        };
        Some(Self {
            is_final: first & FIN != 0,
            reserved: first & 0x70,
            opcode: first & 0x0f,
            mask,
            length,
            is_minimal,
            head_bytes: 2 + length_bytes + mask_bytes,
        })
    }
}

/// Applies a mask to a piece of a payload that begins `offset` bytes into it; twice is never.
pub fn mask(bytes: &mut [u8], key: [u8; 4], offset: usize) {
    let mut turned = key;
    turned.rotate_left(offset % 4);
    let [a, b, c, d] = turned;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut pieces = bytes.chunks_exact_mut(8);
    for piece in &mut pieces {
        if let Ok(word) = <[u8; 8]>::try_from(&*piece) {
            piece.copy_from_slice(&(u64::from_ne_bytes(word) ^ wide).to_ne_bytes());
        }
    }
    let keys = turned.iter().cycle();
    for (byte, key) in pieces.into_remainder().iter_mut().zip(keys) {
        *byte ^= key;
    }
}

/// The bytes of a final frame's head, and how many there are.
fn head(opcode: u8, length: usize, masking: Masking) -> ([u8; HEAD_BYTES_MAX], usize) {
    let mut bytes = [0; HEAD_BYTES_MAX];
    bytes[0] = FIN | opcode;
    let mut count = 2;
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => bytes[1] = short,
        (_, Ok(medium)) => {
            bytes[1] = 126;
            bytes[2..4].copy_from_slice(&medium.to_be_bytes());
            count += 2;
        }
        _ => {
            bytes[1] = 127;
            bytes[2..10].copy_from_slice(&(length as u64).to_be_bytes());
            count += 8;
        }
    }
    if let Masking::Key(key) = masking {
        bytes[1] |= MASKED;
        bytes[count..count + 4].copy_from_slice(&key);
        count += 4;
    }
    (bytes, count)
}

/// Appends a whole frame.
pub fn write_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8], masking: Masking) {
    let (bytes, count) = head(opcode, payload.len(), masking);
    out.reserve(count + payload.len());
    out.extend_from_slice(&bytes[..count]);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Masking::Key(key) = masking {
        mask(&mut out[start..], key, 0);
    }
}

/// Appends a text frame whose payload `write` appends; it is copied once more only when its length
/// takes another number of bytes than those of most messages.
pub fn append_text(out: &mut Vec<u8>, masking: Masking, write: impl FnOnce(&mut Vec<u8>)) {
    // Room for the head of 126 to 65535 bytes.
    let (_, room) = head(TEXT, 126, masking);
    let start = out.len();
    out.resize(start + room, 0);
    write(out);
    let length = out.len() - start - room;
    let (bytes, count) = head(TEXT, length, masking);
    if count != room {
        let body = start + room;
        if count > room {
            out.resize(start + count + length, 0);
        }
        out.copy_within(body..body + length, start + count);
        out.truncate(start + count + length);
    }
    out[start..start + count].copy_from_slice(&bytes[..count]);
    if let Masking::Key(key) = masking {
        mask(&mut out[start + count..], key, 0);
    }
}

/// Appends a Close frame: empty, or with a code and a reason, which is cut to what fits.
pub fn write_close(out: &mut Vec<u8>, code: Option<(CloseCode, &str)>, masking: Masking) {
    let mut payload = Vec::new();
    if let Some((code, reason)) = code {
        payload.extend_from_slice(&code.0.to_be_bytes());
        let room = CONTROL_BYTES_MAX - payload.len();
        let end = (0..=reason.len().min(room)).rev();
        let end = end.into_iter().find(|end| reason.is_char_boundary(*end));
        payload.extend_from_slice(&reason.as_bytes()[..end.unwrap_or(0)]);
    }
    write_frame(out, CLOSE, &payload, masking);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_heartbeat_of_the_contract_is_written_byte_for_byte() {
        let wanted = "81c1010203047a2073766e766c676e6e213e23616c6a6f676070686d6d296663776176637a2a\
                      76712d7230202f26757b73612338216c6463717063676270232e2170722039357c";
        let text = br#"{"protocol":"connection-gateway.ws.v1","type":"heartbeat","ts":1}"#;
        let mut out = Vec::new();
        write_frame(&mut out, TEXT, text, Masking::Key([1, 2, 3, 4]));
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, wanted);
    }

    #[test]
    fn an_empty_close_is_two_bytes_and_a_long_reason_is_cut_at_a_letter() {
        let mut out = Vec::new();
        write_close(&mut out, None, Masking::Plain);
        assert_eq!(out, [0x88, 0]);
        out.clear();
        let reason = "é".repeat(100);
        write_close(&mut out, Some((CloseCode::POLICY, &reason)), Masking::Plain);
        assert_eq!(out[..4], [0x88, 2 + 122, 0x03, 0xf0]);
        assert_eq!(std::str::from_utf8(&out[4..]).unwrap(), "é".repeat(61));
    }

    proptest! {
        #[test]
        fn a_written_frame_is_read_again(
            length in prop_oneof![0usize..200, 65_500usize..65_600, Just(70_000usize)],
            key in proptest::option::of(any::<[u8; 4]>()),
            front in 0usize..3,
        ) {
            let payload: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
            let masking = key.map_or(Masking::Plain, Masking::Key);
            let mut plain = vec![b'x'; front];
            write_frame(&mut plain, TEXT, &payload, masking);
            let mut appended = vec![b'x'; front];
            append_text(&mut appended, masking, |out| out.extend_from_slice(&payload));
            prop_assert!(plain == appended);
            let head = FrameHead::parse(&plain[front..]).unwrap();
            prop_assert_eq!(head.length, length as u64);
            prop_assert!(head.is_final && head.is_minimal && head.mask == key);
            let mut body = plain[front + head.head_bytes..].to_vec();
            if let Some(key) = key {
                // In two pieces, wherever they are cut.
                let cut = length / 3;
                mask(&mut body[..cut], key, 0);
                mask(&mut body[cut..], key, cut);
            }
            prop_assert!(body == payload);
            for short in 0..head.head_bytes {
                prop_assert_eq!(FrameHead::parse(&plain[front..front + short]), None);
            }
        }
    }
}
