//! WebSocket frames, of clients and of servers: read whole, in pieces, and by a plain reader, they
//! say the same; and whoever is spoken to in the other's frames refuses them.

use shardgate::websocket::{CloseCode, Event, Receiver, Role};

use super::{Verdict, cuts};

const MESSAGE_BYTES_MAX: usize = 512;

/// What was heard, and the code of the rule that was broken at last.
type Heard = (Vec<String>, Option<u16>);

/// What a receiver in this role hears of these pieces.
fn heard<'a>(role: Role, pieces: impl IntoIterator<Item = &'a [u8]>) -> Heard {
    let mut receiver = Receiver::new(role, MESSAGE_BYTES_MAX);
    let mut events = Vec::new();
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() {
            match receiver.read(&piece[at..]) {
                Ok((taken, event)) => {
                    assert!(taken > 0, "no step forward");
                    at += taken;
                    events.extend(event.map(|event| format!("{event:?}")));
                }
                Err(violation) => return (events, Some(violation.code().0)),
            }
        }
    }
    (events, None)
}

/// RFC 6455 section 5, one frame after the other, each only when it is there as a whole.
fn plainly(role: Role, bytes: &[u8]) -> Heard {
    let mut events = Vec::new();
    let mut open: Option<(u8, Vec<u8>)> = None;
    let mut rest = bytes;
    let code = loop {
        let [first, second, tail @ ..] = rest else {
            break None;
        };
        let (length, length_bytes) = match second & 127 {
            126 if tail.len() >= 2 => (u64::from(tail[0]) << 8 | u64::from(tail[1]), 2),
            127 if tail.len() >= 8 => (
                tail[..8]
                    .iter()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte)),
                8,
            ),
            126 | 127 => break None,
            short => (u64::from(short), 0),
        };
        let mask_bytes = usize::from(second >> 7) * 4;
        if tail.len() < length_bytes + mask_bytes {
            break None;
        }
        let (is_final, opcode) = (first >> 7 == 1, first & 15);
        let is_minimal = match length_bytes {
            2 => length > 125,
            8 => length > 65_535,
            _ => true,
        };
        let is_control = opcode > 7;
        let is_in_order = match opcode {
            0 => open.is_some(),
            1 | 2 => open.is_none(),
            8..=10 => is_final && length < 126,
            _ => false,
        };
        let so_far = open.as_ref().map_or(0, |(_, message)| message.len());
        let is_masked_rightly = (mask_bytes > 0) == (role == Role::Server);
        if first & 0x70 != 0
            || !is_masked_rightly
            || !is_minimal
            || length >> 63 == 1
            || !is_in_order
        {
            break Some(1002);
        }
        if !is_control && length > (MESSAGE_BYTES_MAX - so_far) as u64 {
            break Some(1009);
        }
        let body = &tail[length_bytes + mask_bytes..];
        let key = &tail[length_bytes..length_bytes + mask_bytes];
        let present = body.len().min(usize::try_from(length).unwrap());
        let mut payload = body[..present].to_vec();
        for (byte, key) in payload.iter_mut().zip(key.iter().cycle()) {
            *byte ^= key;
        }
        let is_whole = present as u64 == length;
        if is_control {
            if !is_whole {
                break None;
            }
            match opcode {
                9 => events.push(format!("{:?}", Event::Ping(&payload))),
                10 => events.push(format!("{:?}", Event::Pong(&payload))),
                _ => break close(&payload, &mut events),
            }
        } else {
            let (kind, mut message) = open.take().unwrap_or((opcode, Vec::new()));
            message.extend_from_slice(&payload);
            let is_over = is_whole && is_final;
            if kind == 1 {
                match std::str::from_utf8(&message) {
                    Ok(text) if is_over => events.push(format!("{:?}", Event::Text(text))),
                    Ok(_) => {}
                    // A letter whose end may come yet.
                    Err(error) if error.error_len().is_none() && !is_over => {}
                    Err(_) => break Some(1007),
                }
            } else if is_over {
                events.push(format!("{:?}", Event::Binary(&message)));
            }
            if !is_over {
                open = Some((kind, message));
            }
            if !is_whole {
                break None;
            }
        }
        rest = &body[present..];
    };
    (events, code)
}

fn close(payload: &[u8], events: &mut Vec<String>) -> Option<u16> {
    let event = match payload {
        [] => Event::Close(None),
        [_] => return Some(1002),
        [high, low, reason @ ..] => {
            let code = u16::from(*high) << 8 | u16::from(*low);
            if !CloseCode::may_be_sent(code) {
                return Some(1002);
            }
            let Ok(reason) = std::str::from_utf8(reason) else {
                return Some(1007);
            };
            events.push(format!("{:?}", Event::Close(Some((code, reason)))));
            return None;
        }
    };
    events.push(format!("{event:?}"));
    None
}

/// Reads the bytes in one role, in every way.
fn check_as(role: Role, data: &[u8]) -> Heard {
    let whole = heard(role, [data]);
    assert_eq!(whole, plainly(role, data));
    for cut in cuts(data.len(), 16) {
        let pieces = [&data[..cut], &data[cut..]];
        assert_eq!(heard(role, pieces), whole, "cut at {cut}");
    }
    assert_eq!(heard(role, data.chunks(1)), whole);
    whole
}

/// Reads the bytes as what a client sends after its handshake, and as what a server sends.
pub fn check(data: &[u8]) -> Verdict {
    let both = [Role::Server, Role::Client].map(|role| check_as(role, data));
    // The first frame is masked, or it is not.
    let has_spoken = both.iter().filter(|(events, _)| !events.is_empty());
    assert!(
        has_spoken.count() < 2,
        "one frame was taken from both sides"
    );
    let is_taken = |(events, code): &Heard| code.is_none() && !events.is_empty();
    Verdict::taken_if(both.iter().any(is_taken))
}
