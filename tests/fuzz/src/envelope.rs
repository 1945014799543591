//! Messages of clients: the scanner agrees with the slow reader, on what it takes and on where the
//! members stand; an edit in place changes nothing else.

use shardgate::{
    http::Span,
    mcp::{
        envelope::{Kind, readable_id, scan},
        json::{DEPTH_MAX, splice},
    },
};

use super::{Choices, Verdict, slow_reader};

/// Scans under the product's depth and under a small one.
pub fn check(data: &[u8]) -> Verdict {
    for depth_max in [
        DEPTH_MAX,
        u16::try_from(Choices::of(data).below(6)).unwrap(),
    ] {
        let found = scan(data, depth_max).map_err(|_| ());
        assert_eq!(
            found,
            slow_reader::reference(data, depth_max),
            "depth {depth_max}"
        );
    }
    if let Some(id) = readable_id(data, DEPTH_MAX) {
        let text = std::str::from_utf8(data).unwrap();
        let top: slow_reader::Pairs<'_> = serde_json::from_str(text).unwrap();
        assert_eq!(slow_reader::only(text, &top, "id"), Ok(Some(id)));
    }
    let Ok(envelope) = scan(data, DEPTH_MAX) else {
        return Verdict::Refused;
    };
    if let (Kind::Request, Some(id), Some(params)) = (envelope.kind, envelope.id, envelope.params) {
        let edited = with_id(data, id);
        let after = scan(&edited, DEPTH_MAX).expect("still a message");
        assert_eq!(after.id.unwrap().slice(&edited), b"\"seven\"");
        assert_eq!(after.params.unwrap().slice(&edited), params.slice(data));
        assert_eq!(
            after.method.unwrap().slice(&edited),
            envelope.method.unwrap().slice(data)
        );
    }
    Verdict::Taken
}

fn with_id(data: &[u8], id: Span) -> Vec<u8> {
    let mut edited = Vec::new();
    splice(&mut edited, data, &[(id, b"\"seven\"")]);
    let (start, end) = (id.start as usize, id.end as usize);
    let expected = [&data[..start], b"\"seven\"", &data[end..]].concat();
    assert_eq!(edited, expected);
    edited
}
