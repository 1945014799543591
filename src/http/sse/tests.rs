//! Tests of event streams.

use super::*;
use proptest::prelude::*;

/// An event that owns its fields: name, data if any, id, retry.
type Owned = (String, Option<String>, Option<String>, Option<u64>);

fn owned(event: Event<'_>) -> Owned {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(event.has_data || event.data.is_empty());
    let data = event.has_data.then(|| text(event.data));
    (text(event.name), data, event.id.map(text), event.retry_ms)
}

/// All events of these pieces, and whether one was cut off.
fn parse<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
    limit: usize,
) -> Result<(Vec<Owned>, bool), TooLarge> {
    let mut parser = EventParser::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        parser.feed(piece, |event| events.push(owned(event)))?;
    }
    Ok((events, parser.finish()))
}

fn whole(stream: &str) -> (Vec<Owned>, bool) {
    parse([stream.as_bytes()], 1 << 20).expect("no event is large")
}

fn data(text: &str) -> Owned {
    (String::new(), Some(text.to_owned()), None, None)
}

#[test]
fn fields_are_read_as_the_standard_says() {
    for (stream, events) in [
        ("data: a\n\n", vec![data("a")]),
        ("data:a\r\rdata: b\r\n\r\n", vec![data("a"), data("b")]),
        ("data:  a\n\n", vec![data(" a")]),
        ("data: a\ndata:b\ndata\n\n", vec![data("a\nb\n")]),
        ("data\n\n", vec![data("")]),
        ("data:\n\n", vec![data("")]),
        ("data\ndata\n\n", vec![data("\n")]),
        ("\n\n\n: hi\n\n\n", vec![]),
        ("Data: a\n data: b\nfoo: c\ndatax: d\n\n", vec![]),
        (
            "id: 7\n\n",
            vec![(String::new(), None, Some("7".into()), None)],
        ),
        (
            "id\n\n",
            vec![(String::new(), None, Some(String::new()), None)],
        ),
        ("id: a\0b\ndata: c\n\n", vec![data("c")]),
        (
            "retry: 100\n\n",
            vec![(String::new(), None, None, Some(100))],
        ),
        (
            "retry: 1x\nretry:\nretry: -1\nretry: 99999999999999999999\n\n",
            vec![],
        ),
        (
            "event: a\nevent: ping\nid: 1\nid: 2\ndata: d\n\n",
            vec![("ping".into(), Some("d".into()), Some("2".into()), None)],
        ),
        (
            "event: ping\n\ndata: a\n\n",
            vec![("ping".into(), None, None, None), data("a")],
        ),
        ("\u{feff}data: a\n\n", vec![data("a")]),
        ("\u{feff}\u{feff}data: a\n\n", vec![]),
        ("data: a\n\n\u{feff}data: b\n\n", vec![data("a")]),
    ] {
        assert_eq!(whole(stream), (events, false), "{stream:?}");
    }
}

#[test]
fn an_event_without_its_blank_line_is_told_and_not_handed_out() {
    for (stream, is_cut) in [
        ("", false),
        ("data: a", true),
        ("data: a\n", true),
        ("data: a\n\n", false),
        ("data: a\r\n\r", false),
        ("data: a\n\n: bye", false),
        ("data: a\n\nid: 4\n", true),
        ("data: a\n\nx", true),
        (": hi\n", false),
    ] {
        assert_eq!(whole(stream).1, is_cut, "{stream:?}");
    }
}

#[test]
fn the_dialects_of_market_s5_are_one_message() {
    let pieces: [&[u8]; 4] = [
        b"\xef\xbb\xbf: hi\r\n\r\nevent:message\r\nid:9\r",
        b"\ndata:{\"jsonrpc\":\"2.0\",\r\ndata: \"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\
          \"text\":\"\xc3",
        b"\xa9",
        b"\"}]}}\r\n\r\n",
    ];
    let message = "{\"jsonrpc\":\"2.0\",\n\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\
        \"text\":\"é\"}]}}";
    let event = (
        "message".to_owned(),
        Some(message.to_owned()),
        Some("9".to_owned()),
        None,
    );
    assert_eq!(parse(pieces, 1 << 20), Ok((vec![event], false)));
}

#[test]
fn an_event_inside_one_slice_is_not_copied() {
    let stream = b"event: message\nid: 1\ndata: {\"a\":1}\n\ndata: b\n\n";
    let range = stream.as_ptr_range();
    let mut parser = EventParser::new(100);
    let mut count = 0;
    let fed = parser.feed(stream, |event| {
        count += 1;
        for field in [event.name, event.data, event.id.unwrap_or_default()] {
            assert!(field.is_empty() || range.contains(&field.as_ptr()));
        }
    });
    assert_eq!((fed, count), (Ok(()), 2));
    assert_eq!(parser.held.data.capacity() + parser.line.capacity(), 0);
}

#[test]
fn the_limit_is_on_the_field_lines_of_one_event() {
    let at_limit = "data: 1234\n\ndata: 56\nx:\nid\n\n";
    assert!(parse([at_limit.as_bytes()], 10).is_ok());
    assert_eq!(parse([&b"data: 12345"[..]], 10), Err(TooLarge));
    assert_eq!(
        parse([&b"data: 123\n\ndata: 12\ndata"[..]], 10),
        Err(TooLarge)
    );
    // Comments between events are not an event, however many come.
    let heartbeats = ": beat\n".repeat(100);
    assert_eq!(parse([heartbeats.as_bytes()], 10), Ok((vec![], false)));
    let mut parser = EventParser::new(10);
    assert_eq!(
        parser.feed(b"data: 123456789\n\n", |_| panic!("too large")),
        Err(TooLarge)
    );
    assert_eq!(
        parser.feed(b"\n\ndata: 1\n\n", |_| panic!("broken")),
        Err(TooLarge)
    );
}

#[test]
fn a_large_event_does_not_keep_its_buffers() {
    let line = format!("data: {}", "x".repeat(1 << 20));
    let pieces = [&line.as_bytes()[..1000], &line.as_bytes()[1000..], b"\n\n"];
    let mut parser = EventParser::new(2 << 20);
    let mut data_len = 0;
    for piece in pieces {
        parser
            .feed(piece, |event| data_len += event.data.len())
            .expect("under the limit");
    }
    assert_eq!(data_len, 1 << 20);
    assert!(parser.line.capacity() + parser.held.data.capacity() <= 2 * KEPT_BYTES_MAX);
}

#[test]
fn what_is_written_is_one_data_line() {
    let mut out = Vec::new();
    write_event(&mut out, Some(b"s-7"), Some(1500), b"{\"a\":\r\n1}");
    write_event(&mut out, Some(b"a\nb"), None, b"");
    write_comment(&mut out, b"ok\nevent: x");
    let expected = "event: message\nid: s-7\nretry: 1500\ndata: {\"a\":  1}\n\n\
        event: message\ndata: \n\n: ok event: x\n\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
    let read = parse([&out[..]], 100).expect("short events");
    assert_eq!(read.0.len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn events_do_not_depend_on_how_bytes_arrive(
        lines in prop::collection::vec(
            (
                prop_oneof![
                    4 => "data:? ?[a-z:é]{0,6}",
                    3 => Just(String::new()),
                    1 => "(event|id|retry|:|x): ?[0-9a]{0,3}",
                ],
                prop_oneof![Just("\n"), Just("\r"), Just("\r\n")],
            ),
            0..20,
        ),
        bom in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        limit in prop_oneof![Just(1_usize << 20), 8..24_usize],
    ) {
        let mut stream = if bom { BOM.to_vec() } else { Vec::new() };
        for (line, end) in &lines {
            stream.extend_from_slice(line.as_bytes());
            stream.extend_from_slice(end.as_bytes());
        }
        let expected = parse([&stream[..]], limit);
        let bytes = parse(stream.chunks(1), limit);
        prop_assert_eq!(&bytes, &expected);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
        prop_assert_eq!(&parse(pieces, limit), &expected);
    }

    #[test]
    fn what_was_written_is_read(
        data in prop::collection::vec(any::<u8>(), 0..60),
        retry_ms in prop::option::of(any::<u64>()),
    ) {
        let mut out = Vec::new();
        write_event(&mut out, Some(b"1"), retry_ms, &data);
        let plain: Vec<u8> = data
            .iter()
            .map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte })
            .collect();
        let mut count = 0;
        EventParser::new(1000).feed(&out, |event| {
            count += 1;
            assert_eq!((event.data, event.retry_ms), (&plain[..], retry_ms));
            assert_eq!(event.id, Some(&b"1"[..]));
        })?;
        prop_assert_eq!(count, 1);
    }
}
