//! Event streams: any split gives the same events, which are those of a slow reader of the WHATWG
//! rules; a limit is never exceeded; what we write is read back.

use shardgate::http::sse::{Event, EventParser, write_event};

use super::{Choices, Verdict};

/// A limit that small inputs reach.
const TIGHT_BYTES: usize = 24;

/// An event that owns its fields.
#[derive(Debug, Clone, Default, PartialEq)]
struct Owned {
    name: Option<Vec<u8>>,
    data: Option<Vec<u8>>,
    id: Option<Vec<u8>>,
    retry_ms: Option<u64>,
}

impl Owned {
    fn of(event: &Event<'_>) -> Self {
        Self {
            // An absent name and an empty one mean the same.
            name: (!event.name.is_empty()).then(|| event.name.to_vec()),
            data: event.has_data.then(|| event.data.to_vec()),
            id: event.id.map(<[u8]>::to_vec),
            retry_ms: event.retry_ms,
        }
    }
}

/// Parses the stream whole and in pieces, under both limits.
pub fn check(data: &[u8]) -> Verdict {
    written_comes_back(data);
    for limit in [TIGHT_BYTES, usize::MAX] {
        let whole = parse(&[data], limit);
        assert_eq!(parse(&pieces(data), limit), whole, "split, limit {limit}");
        let bytewise: Vec<&[u8]> = data.chunks(1).take(512).collect();
        if bytewise.len() == data.len() {
            assert_eq!(
                parse(&bytewise, limit),
                whole,
                "byte by byte, limit {limit}"
            );
        }
        for event in &whole.0 {
            let fields = [&event.name, &event.data, &event.id].into_iter().flatten();
            assert!(fields.map(Vec::len).sum::<usize>() <= limit);
        }
    }
    let (events, is_whole) = parse(&[data], usize::MAX);
    assert!(is_whole);
    assert_eq!(events, slow(data));
    Verdict::taken_if(!events.is_empty())
}

/// The events, and whether all of the stream was taken.
fn parse(pieces: &[&[u8]], limit: usize) -> (Vec<Owned>, bool) {
    let mut parser = EventParser::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        if parser
            .feed(piece, |event| events.push(Owned::of(&event)))
            .is_err()
        {
            return (events, false);
        }
    }
    (events, true)
}

fn pieces(data: &[u8]) -> Vec<&[u8]> {
    let mut choices = Choices::of(data);
    let mut rest = data;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(rest.len().min(choices.below(20)));
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// WHATWG HTML section 9.2.6, line by line over the whole stream.
fn slow(data: &[u8]) -> Vec<Owned> {
    let data = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    let (mut events, mut event) = (Vec::new(), Owned::default());
    let mut is_empty = true;
    let mut rest = data;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        let line = &rest[..end];
        let is_pair = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + 1 + usize::from(is_pair)..];
        if line.is_empty() {
            if !is_empty {
                event.name = event.name.filter(|name| !name.is_empty());
                events.push(event);
            }
            (event, is_empty) = (Owned::default(), true);
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let value = colon.map_or(&b""[..], |colon| &line[colon + 1..]);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon.unwrap_or(line.len())] {
            b"event" => event.name = Some(value.to_vec()),
            b"data" => match &mut event.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                none => *none = Some(value.to_vec()),
            },
            b"id" if !value.contains(&0) => event.id = Some(value.to_vec()),
            b"retry" => {
                let text = std::str::from_utf8(value).unwrap_or_default();
                let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                match text.parse().ok().filter(|_| is_number) {
                    Some(number) => event.retry_ms = Some(number),
                    None => continue,
                }
            }
            _ => continue,
        }
        is_empty = false;
    }
    events
}

fn written_comes_back(data: &[u8]) {
    let mut wire = Vec::new();
    write_event(&mut wire, Some(b"7"), Some(50), data);
    let one_line = |byte: &u8| {
        if matches!(byte, b'\r' | b'\n') {
            b' '
        } else {
            *byte
        }
    };
    let expected = Owned {
        name: Some(b"message".to_vec()),
        data: Some(data.iter().map(one_line).collect()),
        id: Some(b"7".to_vec()),
        retry_ms: Some(50),
    };
    assert_eq!(parse(&[&wire], usize::MAX), (vec![expected], true));
}
