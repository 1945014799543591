//! No two readers disagree on where a request ends (reliability contract, section 8, promise 2):
//! the case files through a real gateway with a recording backend behind it. What was refused never
//! reaches the backend and closes the connection; what was taken reaches it once, framed by us.
//!
//! Behind each stream comes one more whole call: after a refusal it must never be seen, after a
//! kept connection it must be, so a wrong end of a request shows either way.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/cases.rs"]
mod cases;
#[path = "smuggling/live.rs"]
mod live;
#[path = "support/raw.rs"]
mod raw;
#[path = "support/support.rs"]
mod support;

use std::{collections::BTreeMap, net::SocketAddr};

use cases::{Case, FILES, cases};
use live::{Live, Maker, call_body};
use raw::{exchange, statuses};
use shardgate::http::{HeadLimits, Parsed, parse_request};
use support::{Asked, Backend, Gateway, McpClient, Plan};

/// Streams up to this length also go byte by byte, every few of them.
const BYTEWISE_BYTES_MAX: usize = 2048;
const BYTEWISE_EVERY: usize = 5;
/// The limits the case files are written for.
const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 16 << 10,
    header_count_max: 64,
    target_bytes_max: 4 << 10,
    body_bytes_max: 1 << 20,
};
/// All that a backend gets to see of a request's head (`upstream/request.rs`).
const SENT_HEADERS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "content-length",
    "content-type",
    "host",
    "mcp-protocol-version",
    "mcp-session-id",
    "user-agent",
];

/// A gateway, a session in it, and what its backend has to have seen in the end.
struct Stage {
    gateway: Gateway,
    backend: Backend,
    session: String,
    address: SocketAddr,
    expected: BTreeMap<String, Vec<String>>,
}

impl Stage {
    fn new() -> Self {
        let backend = Backend::start("a", &[]);
        let mut hosts: Vec<String> = FILES.into_iter().flat_map(cases).filter_map(host).collect();
        hosts.push("a".to_owned());
        let gateway = Plan::one(&backend)
            .settings(move |settings| {
                settings.limits.head_bytes_max = LIMITS.head_bytes_max;
                settings.limits.header_count_max = LIMITS.header_count_max;
                settings.limits.target_bytes_max = LIMITS.target_bytes_max;
                settings.limits.body_bytes_max = usize::try_from(LIMITS.body_bytes_max).unwrap();
                settings.access.hosts = hosts;
            })
            .start();
        Self {
            session: McpClient::open(&gateway).session,
            address: gateway.address,
            gateway,
            backend,
            expected: BTreeMap::new(),
        }
    }

    /// The call that follows a stream, with headers that nobody behind us may see.
    fn last_call(&self, stream: &str) -> Vec<u8> {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: a\r\n{}Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\
             Keep-Alive: timeout=9\r\nTE: trailers\r\nTrailer: X-Sum\r\nProxy-Connection: close\r\n\
             Cookie: a=b\r\nX-Forwarded-For: 10.0.0.1\r\nAuthorization: Basic Og==\r\n\
             Content-Length: 555\r\n\r\n",
            Maker::new(&self.session, stream).headers()
        );
        [head.into_bytes(), call_body(stream, "last")].concat()
    }

    /// Sends a stream in these pieces, with a call behind it unless the verdict is that the stream
    /// ends inside a request, and checks what is answered.
    fn play(&mut self, stream: &str, verdict: &str, live: &Live, is_served: bool, cut: &[usize]) {
        let is_cut = verdict.ends_with("cut");
        let is_kept = verdict.starts_with("ok") && !verdict.contains('+');
        let mut bytes = live.bytes.clone();
        if !is_cut {
            bytes.extend(self.last_call(stream));
        }
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in cut.iter().copied().chain([bytes.len()]) {
            pieces.push(&bytes[from..to]);
            from = to;
        }
        let mark = format!("\"id\":\"{stream}/last\"");
        let heard = exchange(
            self.address,
            &pieces,
            is_cut,
            is_kept.then_some(mark.as_bytes()),
        );
        let statuses = statuses(&heard);
        let (taken, end) = match verdict.strip_prefix("ok") {
            None => (0, verdict),
            Some(rest) => {
                let (count, end) = rest.split_once('+').unwrap_or((rest, ""));
                (count.parse().unwrap_or(1), end)
            }
        };
        if let Ok(status) = end.parse::<u16>() {
            assert_eq!(statuses.last(), Some(&status), "{stream}: {verdict}");
            assert_eq!(statuses.len(), taken + 1, "{stream}: {verdict}");
        } else {
            let answers = taken + usize::from(is_kept);
            assert_eq!(statuses.len(), answers, "{stream}: {verdict}: {statuses:?}");
        }
        let has_last = memchr::memmem::find(&heard, mark.as_bytes()).is_some();
        assert_eq!(has_last, is_kept, "{stream}: {verdict}");
        let arrives = if is_served {
            taken.min(live.call_count)
        } else {
            0
        };
        let mut marks: Vec<String> = (0..arrives).map(|mark| mark.to_string()).collect();
        if is_kept {
            marks.push("last".to_owned());
        }
        self.expected.insert(stream.to_owned(), marks);
    }

    /// Ends the gateway, after which nothing more can come, and compares.
    fn finish(self) {
        assert!(self.gateway.stop());
        let mut found: BTreeMap<String, Vec<String>> = self
            .expected
            .keys()
            .map(|stream| (stream.clone(), Vec::new()))
            .collect();
        for asked in self.backend.seen() {
            check_framing(&asked);
            if asked.is("tools/call") {
                let mark = asked.json()["params"]["arguments"]["mark"].clone();
                let (stream, mark) = mark.as_str().unwrap().split_once('/').unwrap();
                found
                    .get_mut(stream)
                    .expect("a known stream")
                    .push(mark.to_owned());
            } else {
                let is_ours = asked.is("initialize") || asked.is("notifications/initialized");
                assert!(is_ours || asked.method == "DELETE", "{asked:?}");
            }
        }
        for (stream, marks) in &self.expected {
            assert_eq!(&found[stream], marks, "{stream}");
        }
    }
}

/// The host that a case is for, when its head is well-formed.
fn host(case: Case) -> Option<String> {
    match parse_request(&case.bytes, &LIMITS) {
        Ok(Parsed::Complete(head)) => {
            let host = head.host?.slice(&case.bytes);
            Some(std::str::from_utf8(host).unwrap().to_owned())
        }
        _ => None,
    }
}

/// The request is framed by a length and nothing else, and nothing of the client's head is in it.
fn check_framing(asked: &Asked) {
    assert_eq!(asked.target, "/mcp");
    for (name, value) in &asked.headers {
        assert!(SENT_HEADERS.contains(&name.as_str()), "{name}: {value}");
    }
    assert!(
        matches!(asked.method.as_str(), "POST" | "DELETE"),
        "{}",
        asked.method
    );
    let length = asked.header("content-length").map(str::to_owned);
    let expected = (asked.method == "POST").then(|| asked.body.len().to_string());
    assert_eq!(length, expected);
}

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
