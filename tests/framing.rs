//! The HTTP/1.1 framing table: every case of `cases/http` whole, split at every byte, and in two
//! halves, driven through head and body as a connection drives them.

#[path = "support/cases.rs"]
mod cases;

use std::fs;

use cases::{Case, FILES, cases};
use shardgate::http::{
    ChunkDecoder, Framing, HeadLimits, Method, Parsed, RequestHead, parse_request,
};

/// Cases up to this length also arrive one byte at a time; longer ones in three pieces.
const BYTEWISE_BYTES_MAX: usize = 2048;
const NEXT_REQUEST: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// One downstream connection, from the reader's side.
struct Reader {
    limits: HeadLimits,
    buf: Vec<u8>,
    start: usize,
    body: Option<Body>,
    bodies: Vec<Vec<u8>>,
    end: Option<End>,
}

/// A body being read.
struct Body {
    keep_alive: bool,
    bytes: Vec<u8>,
    source: Source,
}

enum Source {
    Length { remaining: u64 },
    Chunked(Box<ChunkDecoder>),
}

/// Why nothing more is read.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Refused(u16),
    Closed,
}

impl Reader {
    fn new() -> Self {
        // The limits of the case files, see `cases/http/limits.txt`.
        let limits = HeadLimits {
            body_bytes_max: 1 << 20,
            ..HeadLimits::default()
        };
        Self {
            limits,
            buf: Vec::new(),
            start: 0,
            body: None,
            bodies: Vec::new(),
            end: None,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
        while self.end.is_none() && self.step() {}
    }

    /// Reads one head or one piece of a body; false when more bytes are needed.
    fn step(&mut self) -> bool {
        let input = &self.buf[self.start..];
        let Some(mut body) = self.body.take() else {
            return match parse_request(input, &self.limits) {
                Ok(Parsed::Partial) => false,
                Ok(Parsed::Complete(head)) => {
                    self.start += head.len;
                    self.begin_body(&head);
                    true
                }
                Err(refusal) => self.stop(End::Refused(refusal.status)),
            };
        };
        let (consumed, done) = match &mut body.source {
            Source::Length { remaining } => {
                let len = input
                    .len()
                    .min(usize::try_from(*remaining).unwrap_or(usize::MAX));
                body.bytes.extend_from_slice(&input[..len]);
                *remaining -= len as u64;
                (len, *remaining == 0)
            }
            Source::Chunked(decoder) => match decoder.decode(input, &mut body.bytes) {
                Ok(progress) => progress,
                Err(refusal) => return self.stop(End::Refused(refusal.status)),
            },
        };
        self.start += consumed;
        if done {
            self.finish_body(body);
        } else {
            self.body = Some(body);
        }
        done
    }

    fn begin_body(&mut self, head: &RequestHead) {
        if matches!(head.method, Method::Patch | Method::Other) {
            self.end = Some(End::Refused(405));
            return;
        }
        let source = match head.framing {
            Framing::NoBody => Source::Length { remaining: 0 },
            Framing::Length(remaining) => Source::Length { remaining },
            Framing::Chunked => {
                Source::Chunked(Box::new(ChunkDecoder::new(self.limits.body_bytes_max)))
            }
        };
        self.body = Some(Body {
            keep_alive: head.keep_alive,
            bytes: Vec::new(),
            source,
        });
    }

    fn finish_body(&mut self, body: Body) {
        self.bodies.push(body.bytes);
        if !body.keep_alive {
            self.end = Some(End::Closed);
        }
    }

    fn stop(&mut self, end: End) -> bool {
        self.end = Some(end);
        false
    }

    /// The verdict, in the words of the case files, once the peer has sent all it had.
    fn verdict(&self) -> String {
        let words = match &self.bodies[..] {
            [] => String::new(),
            [body] => format!("ok:{}", body.escape_ascii()),
            bodies => format!("ok{}", bodies.len()),
        };
        let end = match self.end {
            Some(End::Refused(status)) => status.to_string(),
            Some(End::Closed) => "close".to_owned(),
            None if self.start < self.buf.len() || self.body.is_some() => "cut".to_owned(),
            None => String::new(),
        };
        let plus = if words.is_empty() || end.is_empty() {
            ""
        } else {
            "+"
        };
        words + plus + &end
    }
}

fn read<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut reader = Reader::new();
    for piece in pieces {
        reader.feed(piece);
    }
    reader.verdict()
}

/// The verdict once a well-formed request is pipelined behind the case.
fn with_next(verdict: &str) -> Option<String> {
    match verdict.strip_prefix("ok") {
        // What a cut case continues with would become part of it.
        _ if verdict.ends_with("cut") => None,
        None => Some(verdict.to_owned()),
        Some(rest) if rest.contains('+') => Some(verdict.to_owned()),
        Some(rest) if rest.starts_with(':') => Some("ok2".to_owned()),
        Some(count) => Some(format!("ok{}", count.parse::<usize>().ok()? + 1)),
    }
}

fn check_file(name: &str) {
    let mut failures = Vec::new();
    for Case {
        place,
        verdict,
        bytes,
        ..
    } in cases(name)
    {
        let mut judge = |way: &str, found: String, expected: &str| {
            if found != expected {
                failures.push(format!("{place} {way}: {found}, expected {expected}"));
            }
        };
        judge("whole", read([&bytes[..]]), &verdict);
        let third = bytes.len() / 3;
        let (front, middle, back) = (
            &bytes[..third],
            &bytes[third..2 * third],
            &bytes[2 * third..],
        );
        judge("in three pieces", read([front, middle, back]), &verdict);
        let halves = bytes.split_at(bytes.len() / 2);
        judge("in two halves", read([halves.0, halves.1]), &verdict);
        if bytes.len() <= BYTEWISE_BYTES_MAX {
            judge("byte by byte", read(bytes.chunks(1)), &verdict);
        }
        if let Some(expected) = with_next(&verdict) {
            judge(
                "with a next request",
                read([&bytes[..], NEXT_REQUEST]),
                &expected,
            );
            let joined = [&bytes[..], NEXT_REQUEST].concat();
            judge(
                "with a next request in one piece",
                read([&joined[..]]),
                &expected,
            );
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn content_length_cases_have_their_verdicts() {
    check_file("content-length.txt");
}

#[test]
fn transfer_encoding_cases_have_their_verdicts() {
    check_file("transfer-encoding.txt");
}

#[test]
fn chunk_cases_have_their_verdicts() {
    check_file("chunks.txt");
}

#[test]
fn line_cases_have_their_verdicts() {
    check_file("lines.txt");
}

#[test]
fn request_line_cases_have_their_verdicts() {
    check_file("request-line.txt");
}

#[test]
fn host_cases_have_their_verdicts() {
    check_file("host.txt");
}

#[test]
fn limit_cases_have_their_verdicts() {
    check_file("limits.txt");
}

#[test]
fn pipelining_cases_have_their_verdicts() {
    check_file("pipelining.txt");
}

#[test]
fn a_case_can_be_split_anywhere_in_two() {
    for name in [
        "content-length.txt",
        "transfer-encoding.txt",
        "chunks.txt",
        "pipelining.txt",
    ] {
        for Case {
            place,
            verdict,
            bytes,
            ..
        } in cases(name)
        {
            if bytes.len() <= 512 {
                for cut in 0..=bytes.len() {
                    let (front, back) = bytes.split_at(cut);
                    assert_eq!(read([front, back]), verdict, "{place} cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn every_case_file_is_run() {
    let mut names: Vec<String> = fs::read_dir(cases::folder())
        .expect("the case folder")
        .map(|entry| {
            entry
                .expect("a readable entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    assert_eq!(names, FILES);
}
