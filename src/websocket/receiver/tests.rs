//! Every rule by an example, and one property: how the bytes are cut changes nothing.

use super::*;
use crate::websocket::frame::{
    BINARY, CLOSE, CONTINUATION, Masking, PING, PONG, TEXT, write_frame,
};
use proptest::prelude::*;

const KEY: Masking = Masking::Key([7, 11, 13, 17]);

/// What a receiver says to all of the bytes, given in pieces of this size.
fn heard(role: Role, max: usize, bytes: &[u8], piece: usize) -> Vec<String> {
    let mut receiver = Receiver::new(role, max);
    let mut said = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        let mut at = 0;
        while at < piece.len() {
            match receiver.read(&piece[at..]) {
                Ok((taken, event)) => {
                    assert!(taken > 0 || event.is_some(), "no step forward");
                    at += taken;
                    said.extend(event.map(|event| format!("{event:?}")));
                }
                Err(violation) => {
                    said.push(format!("{violation:?}"));
                    return said;
                }
            }
        }
    }
    said
}

/// A frame that need not be allowed.
fn raw(first: u8, payload: &[u8]) -> Vec<u8> {
    raw_as(Role::Server, first, payload)
}

/// The same, for a receiver in this role.
fn raw_as(role: Role, first: u8, payload: &[u8]) -> Vec<u8> {
    let masking = match role {
        Role::Server => KEY,
        Role::Client => Masking::Plain,
    };
    let mut out = Vec::new();
    write_frame(&mut out, 0, payload, masking);
    out[0] = first;
    out
}

fn server(frames: &[Vec<u8>]) -> Vec<String> {
    let bytes = frames.concat();
    let whole = heard(Role::Server, 1000, &bytes, usize::MAX);
    for piece in 1..8 {
        assert_eq!(heard(Role::Server, 1000, &bytes, piece), whole);
    }
    whole
}

#[test]
fn messages_pings_and_the_end_are_heard() {
    let said = server(&[
        raw(0x80 | TEXT, "hé".as_bytes()),
        raw(0x80 | PING, b"p"),
        raw(0x80 | PONG, b""),
        raw(0x80 | BINARY, b"\x00\xff"),
        raw(0x80 | CLOSE, b"\x03\xe8bye"),
        // After the end nothing means anything.
        raw(0xff, b"?"),
    ]);
    let wanted = [
        r#"Text("hé")"#,
        "Ping([112])",
        "Pong([])",
        "Binary([0, 255])",
        r#"Close(Some((1000, "bye")))"#,
    ];
    assert_eq!(said, wanted);
    assert_eq!(server(&[raw(0x88, b"")]), ["Close(None)"]);
}

#[test]
fn fragments_make_one_message_and_control_frames_may_stand_between_them() {
    // The two bytes of the letter are in two frames.
    let said = server(&[
        raw(TEXT, b"h\xc3"),
        raw(0x80 | PING, b""),
        raw(CONTINUATION, b""),
        raw(0x80 | CONTINUATION, b"\xa9!"),
        raw(0x80 | TEXT, b""),
    ]);
    assert_eq!(said, ["Ping([])", r#"Text("hé!")"#, r#"Text("")"#]);
}

#[test]
fn each_broken_rule_has_its_code() {
    let unmasked = {
        let mut out = Vec::new();
        write_frame(&mut out, TEXT, b"x", Masking::Plain);
        out
    };
    let cases: [(&str, Vec<Vec<u8>>, u16); 18] = [
        ("reserved bit 1", vec![raw(0xc1, b"x")], 1002),
        ("reserved bit 3", vec![raw(0x91, b"x")], 1002),
        ("unmasked", vec![unmasked], 1002),
        ("opcode 3", vec![raw(0x83, b"x")], 1002),
        ("opcode 11", vec![raw(0x8b, b"x")], 1002),
        ("continues nothing", vec![raw(0x80, b"x")], 1002),
        (
            "message in a message",
            vec![raw(1, b"x"), raw(0x81, b"y")],
            1002,
        ),
        ("ping in fragments", vec![raw(0x09, b"x")], 1002),
        ("long ping", vec![raw(0x89, &[b'x'; 126])], 1002),
        ("half a close code", vec![raw(0x88, b"\x03")], 1002),
        ("close code 1005", vec![raw(0x88, b"\x03\xed")], 1002),
        ("close code 999", vec![raw(0x88, b"\x03\xe7")], 1002),
        ("close reason", vec![raw(0x88, b"\x03\xe8\xff")], 1007),
        ("text", vec![raw(0x81, b"a\xff")], 1007),
        ("text cut off", vec![raw(0x81, b"a\xc3")], 1007),
        ("text in a fragment", vec![raw(1, b"a\xff")], 1007),
        ("too big", vec![raw(0x81, &[b'x'; 1001])], 1009),
        (
            "too big in all",
            vec![raw(1, &[b'x'; 600]), raw(0x80, &[b'x'; 401])],
            1009,
        ),
    ];
    for (name, frames, code) in cases {
        let bytes = frames.concat();
        for piece in [1, 3, usize::MAX] {
            let mut receiver = Receiver::new(Role::Server, 1000);
            let outcome = bytes.chunks(piece.min(bytes.len())).find_map(|piece| {
                let mut at = 0;
                while at < piece.len() {
                    match receiver.read(&piece[at..]) {
                        Ok((taken, _)) => at += taken,
                        Err(violation) => return Some(violation.code().0),
                    }
                }
                None
            });
            assert_eq!(outcome, Some(code), "{name}");
        }
    }
}

#[test]
fn a_length_is_judged_by_its_head_alone_and_must_be_minimal() {
    let verdict = |bytes: &[u8]| {
        Receiver::new(Role::Server, 1 << 20)
            .read(bytes)
            .unwrap_err()
    };
    // 1 MiB and one byte, of which none has come.
    let mut over = vec![0x81, 0xff];
    over.extend_from_slice(&((1u64 << 20) + 1).to_be_bytes());
    over.extend_from_slice(&[0; 4]);
    assert_eq!(verdict(&over), Violation::TooBig);
    let mut huge = vec![0x81, 0xff];
    huge.extend_from_slice(&(1u64 << 63).to_be_bytes());
    huge.extend_from_slice(&[0; 4]);
    assert_eq!(verdict(&huge).code(), CloseCode::PROTOCOL);
    let long_form = [0x81, 0xfe, 0, 60, 0, 0, 0, 0];
    assert_eq!(verdict(&long_form).code(), CloseCode::PROTOCOL);
}

#[test]
fn a_message_of_exactly_the_limit_passes() {
    assert_eq!(
        heard(Role::Server, 5, &raw(0x81, b"12345"), 3),
        [r#"Text("12345")"#]
    );
}

#[test]
fn a_client_hears_plain_frames_and_refuses_masked_ones() {
    let mut out = Vec::new();
    write_frame(&mut out, TEXT, b"hi", Masking::Plain);
    assert_eq!(heard(Role::Client, 10, &out, 1), [r#"Text("hi")"#]);
    let said = heard(Role::Client, 10, &raw(0x81, b"hi"), 1);
    assert!(said[0].starts_with("Protocol"), "{said:?}");
}

#[test]
fn a_head_that_announces_much_takes_little_memory() {
    let mut receiver = Receiver::new(Role::Server, 1 << 30);
    let mut head = vec![0x81, 0xff];
    head.extend_from_slice(&(1u64 << 30).to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    receiver.read(&head).unwrap();
    assert!(!receiver.is_between_messages());
    assert!(receiver.message.capacity() <= 2 * KEPT_BYTES_MAX);
}

proptest! {
    #[test]
    fn how_bytes_are_cut_changes_nothing(
        frames in proptest::collection::vec(
            (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..200)), 0..6),
        piece in 1usize..64,
        is_client in any::<bool>(),
    ) {
        let role = if is_client { Role::Client } else { Role::Server };
        let raw = |first, payload: &[u8]| raw_as(role, first, payload);
        // Mostly frames that are allowed, or nothing would be read beyond the first.
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|(choice, payload)| match choice % 8 {
                0 => raw(*choice, payload),
                1 | 2 => raw(0x80 | BINARY, payload),
                3 => raw(0x80 | PING, &payload[..payload.len().min(125)]),
                4 => raw(0x80 | TEXT, String::from_utf8_lossy(payload).as_bytes()),
                5 => [raw(BINARY, payload), raw(0x80, payload)].concat(),
                6 => raw(0x80 | TEXT, payload),
                _ => raw(0x80 | PONG, b""),
            })
            .collect();
        let whole = heard(role, 300, &bytes, usize::MAX);
        prop_assert_eq!(heard(role, 300, &bytes, piece), whole);
    }
}
