//! WebSocket frames of a client (RFC 6455 5.2): whole messages only, masked on the way out.

use std::ops::Range;

/// A message of text.
pub(super) const TEXT: u8 = 1;
/// The end.
pub(super) const CLOSE: u8 = 8;
/// Asks for a pong.
pub(super) const PING: u8 = 9;
/// Answers a ping.
pub(super) const PONG: u8 = 10;
/// Largest message taken.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes that are no frame of a server, or a message in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadFrame;

/// A frame, as positions in the buffer it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) opcode: u8,
    pub(super) payload: Range<usize>,
}

/// Appends a frame, masked with `mask`.
pub(super) fn put(out: &mut Vec<u8>, opcode: u8, mask: u32, payload: &[u8]) {
    out.push(0x80 | opcode);
    match payload.len() {
        // Below 126.
        short @ 0..=125 => out.push(0x80 | short as u8),
        // Below 65536.
        middle @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    let mask = mask.to_be_bytes();
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    for (byte, mask) in out[start..].iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// The frame that `buffer` begins with; `None`: more must come.
pub(super) fn first(buffer: &[u8]) -> Result<Option<Frame>, BadFrame> {
    let [first, second, rest @ ..] = buffer else {
        return Ok(None);
    };
    // Whole, without reserved bits; a server masks nothing.
    if first & 0xf0 != 0x80 || second & 0x80 != 0 {
        return Err(BadFrame);
    }
    let wide = match second {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let Some(digits) = rest.get(..wide) else {
        return Ok(None);
    };
    let length = if wide == 0 {
        usize::from(*second)
    } else {
        digits
            .iter()
            .fold(0_usize, |sum, digit| sum << 8 | usize::from(*digit))
    };
    if length > BYTES_MAX {
        return Err(BadFrame);
    }
    let start = 2 + wide;
    let payload = start..start + length;
    Ok((buffer.len() >= payload.end).then_some(Frame {
        opcode: first & 0x0f,
        payload,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A heartbeat of the contract (2.2).
    #[test]
    fn a_frame_has_the_bytes_of_the_contract() {
        let wanted = "81c1010203047a2073766e766c676e6e213e23616c6a6f676070686d6d296663776176637a2a\
                      76712d7230202f26757b73612338216c6463717063676270232e2170722039357c";
        let mut out = Vec::new();
        let text = br#"{"protocol":"connection-gateway.ws.v1","type":"heartbeat","ts":1}"#;
        put(&mut out, TEXT, 0x0102_0304, text);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, wanted);
    }

    #[test]
    fn what_no_server_sends_is_refused() {
        for bytes in [
            [0x01, 0x00], // in pieces
            [0xc1, 0x00], // a reserved bit
            [0x81, 0x80], // masked
        ] {
            assert_eq!(first(&bytes), Err(BadFrame));
        }
        let mut huge = vec![0x81, 127];
        huge.extend_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(first(&huge), Err(BadFrame));
    }

    proptest! {
        #[test]
        fn a_frame_is_read_when_it_is_whole(
            length in prop_oneof![0_usize..130, 65_530_usize..65_540],
            mask in any::<u32>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut out = Vec::new();
            put(&mut out, TEXT, mask, &payload);
            // As a server would have sent it: unmasked.
            let start = out.len() - length;
            for (byte, mask) in out[start..].iter_mut().zip(mask.to_be_bytes().iter().cycle()) {
                *byte ^= mask;
            }
            out.drain(start - 4..start);
            out[1] &= 0x7f;
            let frame = first(&out).unwrap().unwrap();
            prop_assert_eq!(&out[frame.payload], &payload[..]);
            let cut = cut.index(out.len());
            prop_assert_eq!(first(&out[..cut]), Ok(None));
        }
    }
}
