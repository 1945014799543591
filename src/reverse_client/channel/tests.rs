//! Rules by examples, and one property: how the gateway's bytes are cut changes nothing.

use proptest::prelude::*;

use super::*;
use crate::websocket::frame::{BINARY, CLOSE, PING, PONG, TEXT};

/// What the gateway would read of what the channel has to say; taken as written.
fn said(channel: &mut Channel, now: Instant) -> Vec<String> {
    let mut bytes = Vec::new();
    while !channel.pending().is_empty() {
        let count = channel.pending().len();
        bytes.extend_from_slice(channel.pending());
        channel.wrote(count, now);
    }
    let mut gateway = Receiver::new(Role::Server, MESSAGE_BYTES_MAX);
    let (mut said, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (taken, event) = gateway.read(&bytes[at..]).unwrap();
        at += taken;
        said.extend(event.map(|event| match event {
            Event::Text(text) => format!("text {text}"),
            Event::Binary(_) => "binary".to_owned(),
            Event::Ping(payload) => format!("ping {}", payload.len()),
            Event::Pong(payload) => format!("pong {}", payload.len()),
            Event::Close(why) => format!("close {why:?}"),
        }));
    }
    said
}

fn from_gateway(frames: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (opcode, payload) in frames {
        write_frame(&mut bytes, *opcode, payload, Masking::Plain);
    }
    bytes
}

/// What the channel hears of all the bytes.
fn heard(channel: &mut Channel, mut bytes: &[u8], now: Instant) -> Vec<String> {
    let mut heard = Vec::new();
    while !bytes.is_empty() {
        let (taken, event) = channel.read(bytes, now);
        bytes = &bytes[taken..];
        heard.extend(event.map(|event| format!("{event:?}")));
    }
    heard
}

#[test]
fn messages_go_both_ways_and_every_key_is_another() {
    let now = Instant::now();
    let mut channel = Channel::new(now);
    let bytes = from_gateway(&[(TEXT, b"{}"), (PING, b"abc"), (PONG, b""), (TEXT, b"[]")]);
    let messages = heard(&mut channel, &bytes, now);
    assert_eq!(messages, [r#"Message("{}")"#, r#"Message("[]")"#]);
    assert_eq!(said(&mut channel, now), ["pong 3"]);
    // More than the keys that are drawn at once.
    let mut keys = std::collections::HashSet::new();
    for _ in 0..RANDOM_BYTES {
        channel.send(b"x".to_vec(), now);
        keys.insert(channel.pending()[2..6].to_vec());
        assert_eq!(said(&mut channel, now), ["text x"]);
    }
    assert!(keys.len() > RANDOM_BYTES / 2);
}

#[test]
fn a_close_is_answered_with_its_code_and_ends_all() {
    let now = Instant::now();
    let mut channel = Channel::new(now);
    let mut bytes = from_gateway(&[(CLOSE, &1001u16.to_be_bytes())]);
    bytes.extend_from_slice(b"rest");
    assert_eq!(heard(&mut channel, &bytes, now), ["Closed(Some(1001))"]);
    channel.send(b"late".to_vec(), now);
    channel.close(CloseCode::NORMAL, "", now);
    assert!(!channel.is_done());
    assert_eq!(said(&mut channel, now), [r#"close Some((1001, ""))"#]);
    assert!(channel.is_done() && !channel.is_open());
}

#[test]
fn our_close_waits_for_the_other_but_not_for_ever() {
    let now = Instant::now();
    let mut channel = Channel::new(now);
    channel.close(CloseCode::GOING_AWAY, "stopped", now);
    channel.close(CloseCode::NORMAL, "again", now);
    channel.send(b"late".to_vec(), now);
    // What was under way is not heard any more, and a ping not answered.
    let bytes = from_gateway(&[(TEXT, b"{}"), (PING, b"")]);
    assert_eq!(heard(&mut channel, &bytes, now), [""; 0]);
    assert_eq!(
        said(&mut channel, now),
        [r#"close Some((1001, "stopped"))"#]
    );
    assert_eq!(channel.tick(now), None);
    assert_eq!(channel.next_due(), now + CLOSE_PATIENCE);
    let mut other = Channel::new(now);
    other.close(CloseCode::NORMAL, "", now);
    assert_eq!(other.tick(now + CLOSE_PATIENCE), Some(Lost::Unclosed));
    heard(&mut channel, &from_gateway(&[(CLOSE, b"")]), now);
    assert!(channel.is_done());
}

#[test]
fn what_breaks_a_rule_is_told_and_ends_it() {
    let masked = {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, TEXT, b"{}", Masking::Key([1, 2, 3, 4]));
        bytes
    };
    let too_big = [
        &[0x81, 127][..],
        &(MESSAGE_BYTES_MAX as u64 + 1).to_be_bytes(),
    ];
    for (bytes, code) in [
        (masked, 1002),
        (from_gateway(&[(BINARY, b"x")]), 1003),
        (from_gateway(&[(TEXT, b"\xff")]), 1007),
        (too_big.concat(), 1009),
    ] {
        let now = Instant::now();
        let mut channel = Channel::new(now);
        let heard = heard(&mut channel, &bytes, now);
        assert!(heard[0].starts_with("Broken"), "{heard:?}");
        let said = said(&mut channel, now);
        assert_eq!(said, [format!("close Some(({code}, \"\"))")]);
        assert!(!channel.is_open());
    }
}

#[test]
fn a_silent_gateway_is_pinged_and_then_given_up() {
    let start = Instant::now();
    let mut channel = Channel::new(start);
    assert_eq!(channel.tick(start), None);
    assert_eq!(channel.next_due(), start + PING_AFTER);
    let mut now = start + PING_AFTER;
    assert_eq!(channel.tick(now), None);
    assert_eq!(said(&mut channel, now), ["ping 0"]);
    // One that answers lives on.
    heard(&mut channel, &from_gateway(&[(PONG, b"")]), now);
    let silent_since = now;
    for _ in 1..SILENCE_MAX.as_secs() / PING_AFTER.as_secs() {
        now += PING_AFTER;
        assert_eq!(channel.next_due(), now);
        assert_eq!(channel.tick(now), None);
        assert_eq!(said(&mut channel, now), ["ping 0"]);
    }
    now = silent_since + SILENCE_MAX;
    assert_eq!(channel.next_due(), now);
    assert_eq!(channel.tick(now), Some(Lost::Silent));
    // Who did not listen cannot know, but is to be known of.
    channel.is_not_listening(now);
    assert_eq!(channel.tick(now), None);
    assert_eq!(said(&mut channel, now), ["ping 0"]);
    assert_eq!(channel.next_due(), now + PING_AFTER);
}

#[test]
fn a_gateway_that_takes_nothing_is_given_up() {
    let start = Instant::now();
    let mut channel = Channel::new(start);
    let begun = start + PING_AFTER / 2;
    channel.send(b"0123456789".to_vec(), begun);
    channel.wrote(3, begun + Duration::from_secs(5));
    let due = begun + Duration::from_secs(5) + SILENCE_MAX;
    channel.is_not_listening(due);
    assert_eq!(channel.tick(due - Duration::from_millis(1)), None);
    assert_eq!(channel.tick(due), Some(Lost::Stuck));
}

#[test]
fn answers_are_bounded() {
    let now = Instant::now();
    let mut channel = Channel::new(now);
    let pings = from_gateway(&[(PING, &[b'x'; 125])]);
    let mut count = 0;
    while channel.may_read() {
        heard(&mut channel, &pings, now);
        count += 1;
    }
    assert!(channel.pending().len() <= ANSWER_BYTES_MAX + 200);
    assert_eq!(said(&mut channel, now).len(), count);
    assert!(channel.may_read());
    while channel.may_read() {
        channel.answer(vec![b'x'; 100], now);
    }
    assert!(said(&mut channel, now).len() >= ANSWER_BYTES_MAX / 200);
    assert!(channel.may_read());
    // A message of this side is no answer.
    channel.send(vec![b'x'; 1 << 20], now);
    assert!(channel.may_read());
}

#[test]
fn a_sign_of_life_passes_between_the_fragments_of_a_long_message() {
    let now = Instant::now();
    let mut channel = Channel::new(now);
    let text = "x".repeat(3 * FRAGMENT_BYTES_MAX);
    channel.send(text.clone().into_bytes(), now);
    // One fragment at a time is in frames.
    assert!(channel.pending().len() < FRAGMENT_BYTES_MAX + 20);
    heard(&mut channel, &from_gateway(&[(PING, b"1")]), now);
    channel.send(b"next".to_vec(), now);
    channel.close(CloseCode::INTERNAL, "", now);
    assert_eq!(
        said(&mut channel, now),
        [
            "pong 1".to_owned(),
            format!("text {text}"),
            "text next".to_owned(),
            r#"close Some((1011, ""))"#.to_owned()
        ]
    );
}

#[test]
fn a_close_of_the_gateway_is_answered_in_the_middle_of_a_message() {
    let now = Instant::now();
    let mut channel = Channel::new(now);
    channel.send(vec![b'x'; 3 * FRAGMENT_BYTES_MAX], now);
    heard(&mut channel, &from_gateway(&[(CLOSE, b"")]), now);
    assert_eq!(said(&mut channel, now), ["close None"]);
    assert!(channel.is_done());
}

proptest! {
    #[test]
    fn how_the_bytes_are_cut_changes_nothing(
        frames in proptest::collection::vec(
            (prop_oneof![Just(TEXT), Just(PING), Just(PONG)], "[a-z]{0,40}"), 0..20),
        cuts in proptest::collection::vec(1usize..50, 1..30),
    ) {
        let now = Instant::now();
        let frames: Vec<_> = frames.iter().map(|(code, text)| (*code, text.as_bytes())).collect();
        let bytes = from_gateway(&frames);
        let mut whole = Channel::new(now);
        let expected = (heard(&mut whole, &bytes, now), said(&mut whole, now));
        let mut channel = Channel::new(now);
        let (mut all, mut rest) = (Vec::new(), &bytes[..]);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, more) = rest.split_at((*cut).min(rest.len()));
            all.extend(heard(&mut channel, piece, now));
            rest = more;
        }
        prop_assert_eq!((all, said(&mut channel, now)), expected);
    }

    #[test]
    fn messages_of_any_length_arrive_whole_however_they_are_written(
        lengths in proptest::collection::vec(
            prop_oneof![0usize..300, 65_530usize..65_545, 131_070usize..131_075, Just(300_000)],
            1..5),
        step in 1usize..100_000,
    ) {
        let now = Instant::now();
        let mut channel = Channel::new(now);
        for (index, length) in lengths.iter().enumerate() {
            channel.send(vec![b'a' + index as u8; *length], now);
        }
        let mut bytes = Vec::new();
        while !channel.pending().is_empty() {
            let count = channel.pending().len().min(step);
            bytes.extend_from_slice(&channel.pending()[..count]);
            channel.wrote(count, now);
        }
        let mut gateway = Receiver::new(Role::Server, MESSAGE_BYTES_MAX);
        let (mut at, mut heard) = (0, Vec::new());
        while at < bytes.len() {
            let (taken, event) = gateway.read(&bytes[at..]).unwrap();
            at += taken;
            if let Some(Event::Text(text)) = event {
                heard.push((text.as_bytes().first().copied(), text.len()));
            }
        }
        let expected = lengths.iter().enumerate().map(|(index, length)| {
            ((*length > 0).then_some(b'a' + index as u8), *length)
        });
        prop_assert_eq!(heard, expected.collect::<Vec<_>>());
        prop_assert!(channel.output.is_empty());
    }

    #[test]
    fn no_bytes_make_it_panic_or_grow(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let now = Instant::now();
        let mut channel = Channel::new(now);
        heard(&mut channel, &bytes, now);
        prop_assert!(channel.pending().len() < ANSWER_BYTES_MAX);
    }
}
