//! No two readers disagree on where a request ends (reliability contract, section 8, promise 2):
//! the case files through a real gateway with a recording backend behind it. What was refused never
//! reaches the backend and closes the connection; what was taken reaches it once, framed by us.
//!
//! Behind each stream comes one more whole call: after a refusal it must never be seen, after a
//! kept connection it must be, so a wrong end of a request shows either way.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/cases.rs"]
mod cases;
#[path = "smuggling/live.rs"]
mod live;
#[path = "support/raw.rs"]
mod raw;
#[path = "smuggling/stage.rs"]
mod stage;
#[path = "support/support.rs"]
mod support;

use cases::cases;
use live::{Live, Maker};
use shardgate::http::{Parsed, parse_request};
use stage::{LIMITS, Stage};

/// Streams up to this length also go byte by byte, every few of them.
const BYTEWISE_BYTES_MAX: usize = 2048;
const BYTEWISE_EVERY: usize = 5;
/// Whether a taken request of this stream is a POST to the endpoint.
fn is_served(live: &Live) -> bool {
    match parse_request(&live.bytes, &LIMITS) {
        Ok(Parsed::Complete(head)) => {
            let path = head.path.slice(&live.bytes);
            live.call_count > 0 && matches!(path, b"/mcp" | b"/mcp/")
        }
        _ => false,
    }
}

/// Whether the stream's first request is of HTTP/1.0, whose connections we always close.
fn is_old(live: &Live) -> bool {
    matches!(parse_request(&live.bytes, &LIMITS), Ok(Parsed::Complete(head)) if head.minor == 0)
}

fn play_files(names: &[&str], bytewise_from: usize) {
    let mut stage = Stage::new();
    let (mut taken, mut refused) = (0, 0);
    let session = stage.session.clone();
    for (number, case) in names.iter().copied().flat_map(cases).enumerate() {
        let label = case.place.replace([':', '.'], "-");
        for way in ["whole", "halves", "bytes"] {
            let stream = format!("{label}-{way}");
            // Limits are exact: one more header line would be about something else.
            let mut live = if case.place.starts_with("limits") {
                Live {
                    bytes: case.bytes.clone(),
                    call_count: 0,
                }
            } else {
                Maker::new(&session, &stream).case(&case.bytes)
            };
            let is_ok = |bytes: &[u8]| parse_request(bytes, &LIMITS).is_ok();
            if is_ok(&live.bytes) != is_ok(&case.bytes) {
                // The line has headers of its own that ours would repeat.
                live = Live {
                    bytes: case.bytes.clone(),
                    call_count: 0,
                };
            }
            let length = live.bytes.len();
            let cuts: Vec<usize> = match way {
                "whole" => Vec::new(),
                "halves" => vec![length / 2],
                _ if length > BYTEWISE_BYTES_MAX || number % BYTEWISE_EVERY != bytewise_from => {
                    continue;
                }
                _ => (1..=length).collect(),
            };
            if way != "whole" && length > 64 << 10 {
                continue;
            }
            let is_served = is_served(&live);
            let mut verdict = case.verdict.clone();
            if is_old(&live) && verdict.starts_with("ok") && !verdict.contains('+') {
                // It may stay, but we need not let it.
                verdict.push_str("+close");
            }
            stage.play(&stream, &verdict, &live, is_served, &cuts);
            let is_refused = !case.verdict.starts_with("ok") && case.verdict != "cut";
            taken += usize::from(is_served && case.verdict.starts_with("ok"));
            refused += usize::from(is_refused && live.call_count > 0);
        }
    }
    stage.finish();
    println!("{names:?}: {taken} calls taken, {refused} refused for their framing alone");
    // Not every file has both, but each has streams that would have been calls.
    assert!(taken + refused > 20, "{taken} taken, {refused} refused");
}

#[test]
fn length_cases_reach_the_backend_as_their_verdicts_say() {
    play_files(&["content-length.txt", "pipelining.txt"], 0);
}

#[test]
fn coding_cases_reach_the_backend_as_their_verdicts_say() {
    play_files(&["transfer-encoding.txt", "chunks.txt"], 1);
}

#[test]
fn line_cases_reach_the_backend_as_their_verdicts_say() {
    play_files(&["lines.txt", "limits.txt"], 2);
}

#[test]
fn target_and_host_cases_reach_the_backend_as_their_verdicts_say() {
    play_files(&["request-line.txt", "host.txt"], 3);
}

/// The known shapes of smuggling, each with a whole call hidden where a lax reader would find one.
#[test]
fn a_hidden_request_is_never_found() {
    let mut stage = Stage::new();
    let session = stage.session.clone();
    let hidden = Maker::new(&session, "hidden").request();
    let size = format!("{:x}", hidden.len());
    let length = hidden.len();
    let chunked = "Transfer-Encoding: chunked";
    let attempts: [(&str, &str, String, &str); 22] = [
        (
            "cl-te",
            "400",
            format!("Content-Length: {}\r\n{chunked}", length + 5),
            "0\r\n\r\n@",
        ),
        (
            "te-cl",
            "400",
            format!("{chunked}\r\nContent-Length: 4"),
            "{n}\r\n@\r\n0\r\n\r\n",
        ),
        (
            "te-te",
            "400",
            format!("{chunked}\r\n{chunked}"),
            "0\r\n\r\n@",
        ),
        (
            "te-identity",
            "400",
            format!("{chunked}\r\nTransfer-Encoding: identity"),
            "0\r\n\r\n@",
        ),
        (
            "te-list",
            "400",
            "Transfer-Encoding: identity, chunked".to_owned(),
            "0\r\n\r\n@",
        ),
        (
            "te-tab",
            "400",
            "Transfer-Encoding\t: chunked".to_owned(),
            "0\r\n\r\n@",
        ),
        (
            "te-fold",
            "400",
            "X: y\r\n Transfer-Encoding: chunked".to_owned(),
            "0\r\n\r\n@",
        ),
        (
            "te-underscore",
            "400",
            "Transfer_Encoding: chunked".to_owned(),
            "0\r\n\r\n@",
        ),
        (
            "te-vt",
            "400",
            "Transfer-Encoding: \x0bchunked".to_owned(),
            "0\r\n\r\n@",
        ),
        (
            "te-hop",
            "400",
            format!("{chunked}\r\nConnection: transfer-encoding"),
            "0\r\n\r\n@",
        ),
        (
            "cl-hop",
            "400",
            format!("Content-Length: {length}\r\nConnection: content-length"),
            "@",
        ),
        (
            "cl-cl",
            "400",
            format!("Content-Length: 0\r\nContent-Length: {length}"),
            "@",
        ),
        ("cl-plus", "400", "Content-Length: +0".to_owned(), "@"),
        (
            "cl-list",
            "400",
            format!("Content-Length: 0, {length}"),
            "@",
        ),
        (
            "cl-lf",
            "400",
            format!("X: y\nContent-Length: {length}"),
            "@",
        ),
        (
            "cl-cr",
            "400",
            format!("X: y\rContent-Length: {length}"),
            "@",
        ),
        ("cl-nul", "400", "Content-Length: 0\0".to_owned(), "@"),
        ("none", "411", "X: y".to_owned(), "@"),
        ("chunk-size", "400", chunked.to_owned(), "0x0\r\n\r\n@"),
        ("chunk-end", "400", chunked.to_owned(), "1\r\nx0\r\n\r\n@"),
        ("chunk-lf", "400", chunked.to_owned(), "0;\n\r\n@"),
        (
            "chunk-trailer",
            "400",
            chunked.to_owned(),
            "0\r\nX: y\r\n\r\n@",
        ),
    ];
    for (name, verdict, lines, body) in attempts {
        let mut bytes = format!(
            "POST /mcp HTTP/1.1\r\nHost: a\r\n{}{lines}\r\n\r\n",
            Maker::new(&session, name).headers()
        )
        .into_bytes();
        for piece in body.replace("{n}", &size).split_inclusive('@') {
            let (text, has_hidden) = match piece.strip_suffix('@') {
                Some(text) => (text, true),
                None => (piece, false),
            };
            bytes.extend_from_slice(text.as_bytes());
            if has_hidden {
                bytes.extend_from_slice(&hidden);
            }
        }
        let live = Live {
            bytes,
            call_count: 0,
        };
        for cut in [
            vec![],
            vec![live.bytes.len() / 2],
            (1..live.bytes.len()).collect(),
        ] {
            let stream = format!("{name}-{}", cut.len());
            stage.play(&stream, verdict, &live, false, &cut);
        }
    }
    // Inside a body that is framed well a request is a body, which is no message.
    for (name, head, end) in [
        ("in-length", format!("Content-Length: {length}\r\n\r\n"), ""),
        (
            "in-chunk",
            format!("{chunked}\r\n\r\n{size}\r\n"),
            "\r\n0\r\n\r\n",
        ),
    ] {
        let headers = Maker::new(&session, name).headers();
        let start = format!("POST /mcp HTTP/1.1\r\nHost: a\r\n{headers}{head}");
        let bytes = [start.as_bytes(), &hidden, end.as_bytes()].concat();
        let live = Live {
            bytes,
            call_count: 0,
        };
        stage.play(name, "ok:", &live, false, &[]);
    }
    // A hidden call that had arrived would be of a stream that nothing is expected of.
    stage.expected.insert("hidden".to_owned(), Vec::new());
    stage.finish();
}
