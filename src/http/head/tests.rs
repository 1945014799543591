//! Tests of request heads. Raw cases with their verdicts are in `tests/cases/http`.

use super::*;
use proptest::prelude::*;

const HEAD: &[u8] = b"POST /servers/a/mcp?x=1 HTTP/1.1\r\nHost: a.example:8080\r\n\
    Authorization: Bearer abc\r\nmcp-session-id: s-1\r\nMCP-Protocol-Version: 2025-11-25\r\n\
    Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
    Origin: http://localhost\r\nLast-Event-ID: 7\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n\
    Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n\
    X-Other: caf\xc3\xa9\r\nContent-Length: 2\r\n\r\n";

fn parse(head: &[u8]) -> Result<Parsed<RequestHead>, HttpRefusal> {
    parse_request(head, &HeadLimits::default())
}

fn complete(head: &[u8]) -> RequestHead {
    match parse(head) {
        Ok(Parsed::Complete(head)) => head,
        other => panic!("{other:?} for {}", head.escape_ascii()),
    }
}

fn refused(head: &[u8]) -> u16 {
    match parse(head) {
        Err(refusal) => refusal.status,
        other => panic!("{other:?} for {}", head.escape_ascii()),
    }
}

/// A POST with these header lines besides Host.
fn post(lines: &str) -> Vec<u8> {
    format!("POST /mcp HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

#[test]
fn every_fact_of_a_head_is_found() {
    let mut buf = HEAD.to_vec();
    buf.extend_from_slice(b"{}GET / HTTP/1.1\r\n");
    let head = complete(&buf);
    let text = |span: Option<Span>| span.map(|span| String::from_utf8_lossy(span.slice(&buf)));
    assert_eq!(head.len, HEAD.len());
    assert_eq!(head.method, Method::Post);
    assert_eq!(head.target.slice(&buf), b"/servers/a/mcp?x=1");
    assert_eq!(head.path.slice(&buf), b"/servers/a/mcp");
    assert_eq!((head.minor, head.framing), (1, Framing::Length(2)));
    assert!(head.keep_alive && !head.expect_continue && !head.upgrade);
    assert_eq!(text(head.host).as_deref(), Some("a.example:8080"));
    assert_eq!(text(head.authorization).as_deref(), Some("Bearer abc"));
    assert_eq!(text(head.session_id).as_deref(), Some("s-1"));
    assert_eq!(text(head.protocol_version).as_deref(), Some("2025-11-25"));
    assert_eq!(
        text(head.accept).as_deref(),
        Some("application/json, text/event-stream")
    );
    assert_eq!(text(head.content_type).as_deref(), Some("application/json"));
    assert_eq!(text(head.origin).as_deref(), Some("http://localhost"));
    assert_eq!(text(head.last_event_id).as_deref(), Some("7"));
    assert_eq!(text(head.mcp_method).as_deref(), Some("tools/call"));
    assert_eq!(text(head.mcp_name).as_deref(), Some("echo"));
    assert_eq!(
        text(head.access_control_request_method).as_deref(),
        Some("POST")
    );
    assert_eq!(
        text(head.access_control_request_headers).as_deref(),
        Some("content-type")
    );
    assert_eq!(headers(&buf[..head.len]).count(), 14);
    let other: Vec<&[u8]> = header_values(&buf[..head.len], "x-other").collect();
    assert_eq!(other, [b"caf\xc3\xa9"]);
}

#[test]
fn what_may_be_repeated_is_flagged_and_the_rest_is_refused() {
    for name in ["Accept", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"] {
        let buf = post(&format!("Content-Length: 0\r\n{name}: a\r\n{name}: b\r\n"));
        let head = complete(&buf);
        let flags = [
            (head.accept_repeated, head.accept),
            (head.repeated_protocol_version, head.protocol_version),
            (head.repeated_mcp_method, head.mcp_method),
            (head.repeated_mcp_name, head.mcp_name),
        ];
        let raised: Vec<_> = flags.into_iter().filter(|(flag, _)| *flag).collect();
        assert_eq!(raised.len(), 1, "{name}");
        assert_eq!(
            raised[0].1.map(|span| span.slice(&buf)),
            Some(&b"a"[..]),
            "{name}"
        );
        let values: Vec<&[u8]> = header_values(&buf, &name.to_lowercase()).collect();
        assert_eq!(values, [b"a", b"b"], "{name}");
    }
    for name in [
        "Host",
        "Authorization",
        "Mcp-Session-Id",
        "Content-Type",
        "Origin",
        "Last-Event-ID",
        "Expect",
        "Access-Control-Request-Method",
        "Access-Control-Request-Headers",
    ] {
        let lines = format!("Content-Length: 0\r\n{name}: a\r\n{name}: a\r\n");
        assert_eq!(refused(&post(&lines)), 400, "{name}");
    }
}

#[test]
fn obs_text_is_refused_only_where_we_read() {
    for name in [
        "Mcp-Name",
        "Accept",
        "Connection",
        "Upgrade",
        "Origin",
        "Authorization",
    ] {
        let mut buf = post(&format!("Content-Length: 0\r\n{name}: a?\r\n"));
        let place = buf
            .iter()
            .rposition(|&byte| byte == b'?')
            .expect("it was just written");
        buf[place] = 0xe9;
        assert_eq!(refused(&buf), 400, "{name}");
    }
    let other = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: \xe9\r\n\r\n";
    assert_eq!(complete(other).method, Method::Get);
}

#[test]
fn persistence_follows_version_connection_and_upgrade() {
    for (version, lines, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: keep-alive, Close\r\n", false),
        ("1.1", "Connection: te\r\nConnection: close\r\n", false),
        (
            "1.1",
            "Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n",
            false,
        ),
        ("1.1", "Upgrade: websocket\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let buf = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        let head = complete(buf.as_bytes());
        assert_eq!(head.keep_alive, keep_alive, "{version} {lines}");
        assert_eq!(
            head.upgrade,
            lines.contains("Upgrade:"),
            "{version} {lines}"
        );
    }
}

#[test]
fn only_a_body_that_is_still_to_come_is_waited_for() {
    let head = post("Content-Length: 2\r\nExpect: 100-Continue\r\n");
    assert!(complete(&head).expect_continue);
    let empty = post("Content-Length: 0\r\nExpect: 100-continue\r\n");
    assert!(!complete(&empty).expect_continue);
    let old = b"POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    assert!(!complete(old).expect_continue);
}

#[test]
fn a_head_at_the_limit_is_taken_and_one_byte_more_is_not() {
    let limits = HeadLimits {
        head_bytes_max: HEAD.len(),
        ..HeadLimits::default()
    };
    assert!(matches!(
        parse_request(HEAD, &limits),
        Ok(Parsed::Complete(_))
    ));
    assert_eq!(
        parse_request(&HEAD[..HEAD.len() - 1], &limits),
        Ok(Parsed::Partial)
    );
    let tight = HeadLimits {
        head_bytes_max: HEAD.len() - 1,
        ..limits
    };
    let status = parse_request(HEAD, &tight).map_err(|refusal| refusal.status);
    assert_eq!(status, Err(431));
    let short = HeadLimits {
        head_bytes_max: 10,
        ..limits
    };
    let status = parse_request(HEAD, &short).map_err(|refusal| refusal.status);
    assert_eq!(status, Err(414));
}

#[test]
fn a_head_stays_small() {
    // It is copied into every request in flight.
    assert!(
        size_of::<RequestHead>() <= 224,
        "{}",
        size_of::<RequestHead>()
    );
}

/// Heads that are mostly right and sometimes a little wrong.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        8 => "[A-Za-z-]{1,12}: [ -~]{0,20}\r\n",
        2 => Just("Host: a\r\n".to_owned()),
        2 => "Content-Length: [0-9]{1,3}\r\n",
        1 => Just("Transfer-Encoding: chunked\r\n".to_owned()),
        1 => Just("Connection: close\r\n".to_owned()),
        1 => Just("Expect: 100-continue\r\n".to_owned()),
    ];
    let method = prop_oneof![Just("POST"), Just("GET"), Just("PURGE"), Just("CONNECT")];
    let version = prop_oneof![9 => Just("1.1"), 1 => Just("1.0"), 1 => Just("1.2")];
    let lines = prop::collection::vec(line, 0..8);
    let fault = prop::option::weighted(0.5, (any::<prop::sample::Index>(), any::<u8>()));
    (method, "/[a-z/.]{0,6}", version, lines, fault).prop_map(
        |(method, path, version, lines, fault)| {
            let lines = lines.concat();
            let head = format!("{method} {path} HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
            let mut head = head.into_bytes();
            if let Some((index, byte)) = fault {
                let place = index.index(head.len());
                head[place] = byte;
            }
            head
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A prefix is partial or already has the verdict of the whole.
    #[test]
    fn the_verdict_does_not_depend_on_how_bytes_arrive(head in heads()) {
        for limits in [
            HeadLimits::default(),
            HeadLimits {
                head_bytes_max: 64,
                header_count_max: 3,
                target_bytes_max: 4,
                body_bytes_max: 50,
            },
        ] {
            let whole = parse_request(&head, &limits);
            for end in 0..=head.len() {
                match parse_request(&head[..end], &limits) {
                    Ok(Parsed::Partial) => {}
                    Ok(complete) => prop_assert_eq!(Ok(complete), whole.clone()),
                    Err(early) => {
                        let whole_status = whole.clone().map_err(|refusal| refusal.status);
                        prop_assert_eq!(whole_status, Err(early.status));
                    }
                }
            }
        }
    }

    /// httparse is the more lenient reader: what we take, it takes, with the same fields.
    #[test]
    fn httparse_reads_the_same_fields(head in heads()) {
        if let Ok(Parsed::Complete(ours)) = parse(&head) {
            let mut slots = [httparse::EMPTY_HEADER; 64];
            let mut theirs = httparse::Request::new(&mut slots);
            prop_assert_eq!(theirs.parse(&head), Ok(httparse::Status::Complete(ours.len)));
            prop_assert_eq!(theirs.path.map(str::as_bytes), Some(ours.target.slice(&head)));
            prop_assert_eq!(theirs.version, Some(ours.minor));
            let fields: Vec<_> = headers(&head[..ours.len]).collect();
            let expected: Vec<_> =
                theirs.headers.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
            prop_assert_eq!(fields, expected);
        }
    }

    /// Any bytes at all are judged without a panic.
    #[test]
    fn noise_is_judged(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&noise).is_ok();
        let mut head = b"GET / HTTP/1.1\r\n".to_vec();
        head.extend_from_slice(&noise);
        let _ = parse(&head).is_ok();
        let _ = headers(&noise).count();
    }
}
