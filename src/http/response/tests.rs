//! Tests of response heads.

use super::*;
use proptest::prelude::*;

const LIMIT: usize = 32 << 10;

/// Status line and header lines, line ends added.
fn reply(lines: &str) -> Result<Parsed<ResponseHead>, ResponseFault> {
    parse_response(
        format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).as_bytes(),
        LIMIT,
    )
}

fn complete(lines: &str) -> ResponseHead {
    match reply(lines) {
        Ok(Parsed::Complete(head)) => head,
        other => panic!("{other:?} for {lines}"),
    }
}

#[test]
fn every_fact_of_a_head_is_found() {
    let buf = b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON; charset=utf-8\r\n\
        Content-Length: 2\r\nMcp-Session-Id: s-1\r\nRetry-After: 3\r\nContent-Encoding: gzip\r\n\
        WWW-Authenticate: Bearer\r\n\r\n{}";
    let Ok(Parsed::Complete(head)) = parse_response(buf, LIMIT) else {
        panic!("complete")
    };
    assert_eq!(head.len, buf.len() - 2);
    assert_eq!(
        (head.status, head.framing),
        (200, ResponseFraming::Length(2))
    );
    assert_eq!(
        (head.content, head.encoding),
        (ContentKind::Json, Encoding::Gzip)
    );
    assert!(head.keep_alive);
    let text = |span: Option<Span>| span.map(|span| span.slice(buf));
    assert_eq!(text(head.session_id), Some(&b"s-1"[..]));
    assert_eq!(text(head.retry_after), Some(&b"3"[..]));
    assert_eq!(text(head.www_authenticate), Some(&b"Bearer"[..]));
}

#[test]
fn the_end_of_a_reply_is_certain_or_the_reply_is_a_fault() {
    use ResponseFault as Fault;
    use ResponseFraming as End;
    for (lines, verdict) in [
        (
            "HTTP/1.1 200 OK\nContent-Length: 5",
            Ok((End::Length(5), true)),
        ),
        (
            "HTTP/1.1 200\nContent-Length: 0",
            Ok((End::Length(0), true)),
        ),
        (
            "HTTP/1.1 200 \nTransfer-Encoding: Chunked",
            Ok((End::Chunked, true)),
        ),
        (
            "HTTP/1.1 200 caf\u{e9}\nContent-Length: 0",
            Ok((End::Length(0), true)),
        ),
        ("HTTP/1.1 200 OK", Ok((End::UntilClose, false))),
        (
            "HTTP/1.0 200 OK\nContent-Length: 5",
            Ok((End::Length(5), false)),
        ),
        (
            "HTTP/1.0 200 OK\nConnection: keep-alive\nContent-Length: 5",
            Ok((End::Length(5), true)),
        ),
        (
            "HTTP/1.0 200 OK\nConnection: keep-alive",
            Ok((End::UntilClose, false)),
        ),
        (
            "HTTP/1.1 200 OK\nConnection: x, close\nContent-Length: 5",
            Ok((End::Length(5), false)),
        ),
        ("HTTP/1.1 100 Continue", Ok((End::NoBody, true))),
        ("HTTP/1.1 103 Early Hints\nLink: a", Ok((End::NoBody, true))),
        ("HTTP/1.1 204 No Content", Ok((End::NoBody, true))),
        (
            "HTTP/1.1 204 No Content\nContent-Length: 0",
            Ok((End::NoBody, true)),
        ),
        (
            "HTTP/1.1 204 No Content\nContent-Length: 5",
            Ok((End::NoBody, false)),
        ),
        (
            "HTTP/1.1 204 No Content\nTransfer-Encoding: chunked",
            Ok((End::NoBody, false)),
        ),
        (
            "HTTP/1.1 304 Not Modified\nContent-Length: 5",
            Ok((End::NoBody, true)),
        ),
        (
            "HTTP/1.1 302 Found\nLocation: /\nContent-Length: 0",
            Ok((End::Length(0), true)),
        ),
        (
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 5",
            Err(Fault::TwoFramings),
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: 5\nTransfer-Encoding: gzip",
            Err(Fault::TwoFramings),
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 5",
            Err(Fault::ContentLength),
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: 5, 5",
            Err(Fault::ContentLength),
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: -1",
            Err(Fault::ContentLength),
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length:",
            Err(Fault::ContentLength),
        ),
        (
            "HTTP/1.1 200 OK\nTransfer-Encoding: gzip",
            Err(Fault::TransferEncoding),
        ),
        (
            "HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked",
            Err(Fault::TransferEncoding),
        ),
        (
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked",
            Err(Fault::TransferEncoding),
        ),
        (
            "HTTP/1.0 200 OK\nTransfer-Encoding: chunked",
            Err(Fault::TransferEncoding),
        ),
    ] {
        let found = reply(lines).map(|parsed| match parsed {
            Parsed::Complete(head) => (head.framing, head.keep_alive),
            Parsed::Partial => panic!("{lines} is complete"),
        });
        assert_eq!(found, verdict, "{lines}");
    }
}

#[test]
fn a_malformed_head_is_named() {
    use ResponseFault as Fault;
    for (bytes, fault) in [
        ("HTTP/1.1  200 OK\r\n", Fault::StatusLine),
        ("HTTP/1.1 20x OK\r\n", Fault::StatusLine),
        ("HTTP/1.1 099 OK\r\n", Fault::StatusLine),
        ("HTTP/1.1 600 OK\r\n", Fault::StatusLine),
        ("HTTP/1.1 2000 OK\r\n", Fault::StatusLine),
        ("HTTP/1.1 200 OK\n", Fault::StatusLine),
        ("HTTP/1.1 200 OK\rX", Fault::StatusLine),
        ("\r\nHTTP/1.1 200 OK\r\n", Fault::StatusLine),
        ("ICY 200 OK\r\n", Fault::StatusLine),
        ("HTTP/2.0 200 OK\r\n", Fault::Version),
        ("HTTP/1.2 200 OK\r\n", Fault::Version),
        ("HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", Fault::HeaderLine),
        ("HTTP/1.1 200 OK\r\n A: b\r\n\r\n", Fault::HeaderLine),
        (
            "HTTP/1.1 200 OK\r\nMcp-Session-Id: a b\r\n\r\n",
            Fault::SessionId,
        ),
        (
            "HTTP/1.1 200 OK\r\nMcp-Session-Id:\r\n\r\n",
            Fault::SessionId,
        ),
        (
            "HTTP/1.1 200 OK\r\nMcp-Session-Id: a\r\nMcp-Session-Id: a\r\n\r\n",
            Fault::RepeatedHeader,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: a\r\nContent-Type: a\r\n",
            Fault::RepeatedHeader,
        ),
    ] {
        assert_eq!(
            parse_response(bytes.as_bytes(), LIMIT),
            Err(fault),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_head_over_its_limits_is_a_fault() {
    let head = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(1 << 20));
    let verdict = parse_response(head.as_bytes(), LIMIT);
    assert_eq!(verdict, Err(ResponseFault::HeadTooLong));
    assert!(matches!(
        parse_response(head.as_bytes(), head.len()),
        Ok(Parsed::Complete(_))
    ));
    let lines = format!(
        "HTTP/1.1 200 OK\r\n{}\r\n",
        "a: b\r\n".repeat(HEADER_COUNT_MAX + 1)
    );
    let verdict = parse_response(lines.as_bytes(), LIMIT);
    assert_eq!(verdict, Err(ResponseFault::TooManyHeaders));
}

#[test]
fn content_and_coding_are_told_apart() {
    for (value, kind) in [
        ("text/event-stream", ContentKind::EventStream),
        ("text/event-stream;charset=utf-8", ContentKind::EventStream),
        ("application/json", ContentKind::Json),
        ("application/json-rpc", ContentKind::Other),
        ("", ContentKind::Other),
    ] {
        let head = complete(&format!("HTTP/1.1 200 OK\nContent-Type: {value}"));
        assert_eq!(head.content, kind, "{value}");
    }
    assert_eq!(complete("HTTP/1.1 200 OK").content, ContentKind::Missing);
    for (value, coding) in [
        ("identity", Encoding::Identity),
        ("x-gzip", Encoding::Gzip),
        ("GZIP", Encoding::Gzip),
        ("deflate", Encoding::Deflate),
        ("br", Encoding::Brotli),
        ("zstd", Encoding::Unknown),
        ("gzip, br", Encoding::Unknown),
        ("gzip\nContent-Encoding: gzip", Encoding::Unknown),
    ] {
        let head = complete(&format!("HTTP/1.1 200 OK\nContent-Encoding: {value}"));
        assert_eq!(head.encoding, coding, "{value}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_verdict_does_not_depend_on_how_bytes_arrive(
        reason in "( [ -~]{0,8})?",
        lines in prop::collection::vec(
            prop_oneof![
                6 => "[A-Za-z-]{1,8}: [ -~]{0,12}\r\n",
                1 => "Content-Length: [0-9x]{1,3}\r\n",
                1 => Just("Transfer-Encoding: chunked\r\n".to_owned()),
            ],
            0..5,
        ),
        fault in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut head = format!("HTTP/1.1 200{reason}\r\n{}\r\n", lines.concat()).into_bytes();
        if let Some((index, byte)) = fault {
            let place = index.index(head.len());
            head[place] = byte;
        }
        for limit in [LIMIT, 40] {
            let whole = parse_response(&head, limit);
            for end in 0..=head.len() {
                let early = parse_response(&head[..end], limit);
                if early != Ok(Parsed::Partial) {
                    prop_assert_eq!(&early, &whole);
                }
            }
        }
    }
}
