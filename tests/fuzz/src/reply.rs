//! Documents of backends: members are found where serde_json finds them, never outside the
//! document, and the two ways over a value end at the same byte.

use shardgate::{
    http::Span,
    mcp::{
        envelope::{EnvelopeFault, scan},
        json::{DEPTH_MAX, elements, members, skip_container_fast, skip_value},
        reply_scan::{ReplyKind, first_error_code, scan_reply},
    },
};

use super::{Verdict, slow_reader};

/// Scans the document, and the parts of it.
pub fn check(data: &[u8]) -> Verdict {
    if let Ok(end) = skip_container_fast(data, 0) {
        assert!(end <= data.len());
    }
    if let Ok(end) = skip_value(data, 0, DEPTH_MAX)
        && matches!(data.first(), Some(b'{' | b'['))
    {
        assert_eq!(skip_container_fast(data, 0), Ok(end));
    }
    for part in members(data).map_while(Result::ok) {
        assert!(part.0.end <= part.1.start && part.1.end as usize <= data.len());
    }
    for part in elements(data).map_while(Result::ok) {
        assert!(part.start < part.end && part.end as usize <= data.len());
    }
    let _ = first_error_code(data);
    let found = scan_reply(data);
    agrees_with_serde_json(
        data,
        found.map(|found| {
            let quoted = found.method.map(|span| Span {
                start: span.start - 1,
                end: span.end + 1,
            });
            [found.id, quoted, found.params, found.result, found.error]
        }),
    );
    let Ok(found) = found else {
        return Verdict::Refused;
    };
    if let Some(id) = found.id {
        let id = id.slice(data);
        let is_null = id == b"null" && found.kind == ReplyKind::Error;
        assert!(is_null || matches!(id.first(), Some(b'"' | b'-' | b'0'..=b'9')));
    }
    let parts = [found.result, found.error, found.method];
    let has = parts.map(|part| part.is_some());
    let expected = match found.kind {
        ReplyKind::Result => [true, false, false],
        ReplyKind::Error => [false, true, false],
        ReplyKind::Request | ReplyKind::Notification => [false, false, true],
    };
    assert_eq!(has, expected);
    Verdict::Taken
}

fn agrees_with_serde_json(data: &[u8], found: Result<[Option<Span>; 5], EnvelopeFault>) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(top) = serde_json::from_str::<slow_reader::Pairs<'_>>(text) else {
        return;
    };
    let names = ["id", "method", "params", "result", "error"];
    let spans: Result<Vec<_>, ()> = names
        .into_iter()
        .map(|name| slow_reader::only(text, &top, name))
        .collect();
    match (found, spans) {
        (Err(fault), Err(())) => assert_eq!(fault, EnvelopeFault::DuplicateKey),
        (Ok(_), Err(())) => panic!("a repeated key was taken"),
        (Ok(found), Ok(mut spans)) => {
            let is_null = |span: Option<Span>| span.is_some_and(|span| span.slice(data) == b"null");
            // `null` beside the member that applies is no member.
            if found[4].is_none() && is_null(spans[4]) {
                spans[4] = None;
            }
            if found[3].is_none() && is_null(spans[3]) {
                spans[3] = None;
            }
            assert_eq!(found.to_vec(), spans);
        }
        // What the strict scanner takes from clients, the lenient one takes from backends.
        (Err(_), Ok(_)) => assert!(scan(data, DEPTH_MAX).is_err()),
    }
}
