//! The lines of `tests/cases/http`: bytes of a client, and the verdict they must get.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use std::{fs, path::PathBuf};

/// The case files, all of them (`tests/framing.rs` checks that).
pub const FILES: [&str; 8] = [
    "chunks.txt",
    "content-length.txt",
    "host.txt",
    "limits.txt",
    "lines.txt",
    "pipelining.txt",
    "request-line.txt",
    "transfer-encoding.txt",
];

/// One line of a case file.
pub struct Case {
    /// File and line.
    pub place: String,
    /// The verdict in the words of the case files.
    pub verdict: String,
    /// What the client sends, escaped.
    pub text: String,
    /// What the client sends.
    pub bytes: Vec<u8>,
}

/// The folder of the case files.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/http")
}

/// The cases of one file.
pub fn cases(name: &str) -> Vec<Case> {
    let text =
        fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'));
    let cases: Vec<Case> = lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            let place = format!("{name}:{}", index + 1);
            let columns: Vec<&str> = line.split('\t').collect();
            let [verdict, text, reason] = columns[..] else {
                panic!("{place}: three columns")
            };
            assert!(!reason.is_empty(), "{place}: a reason");
            let bytes = unescape(text).unwrap_or_else(|| panic!("{place}: an escape"));
            Case {
                place,
                verdict: verdict.to_owned(),
                text: text.to_owned(),
                bytes,
            }
        })
        .collect();
    assert!(!cases.is_empty(), "{name}: no cases");
    cases
}

/// `\r \n \t \\ \xNN`, and `{repeat:N:x}` where `x` is escaped text without `}`.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(repeat) = rest.strip_prefix("{repeat:") {
            let (count, tail) = repeat.split_once(':')?;
            let (piece, tail) = tail.split_once('}')?;
            bytes.extend(unescape(piece)?.repeat(count.parse().ok()?));
            rest = tail;
        } else if let Some(escape) = rest.strip_prefix('\\') {
            let (byte, len) = match *escape.as_bytes().first()? {
                b'r' => (b'\r', 1),
                b'n' => (b'\n', 1),
                b't' => (b'\t', 1),
                b'\\' => (b'\\', 1),
                b'x' => (u8::from_str_radix(escape.get(1..3)?, 16).ok()?, 3),
                _ => return None,
            };
            bytes.push(byte);
            rest = &escape[len..];
        } else {
            bytes.extend_from_slice(&rest.as_bytes()[..first.len_utf8()]);
            rest = &rest[first.len_utf8()..];
        }
    }
    Some(bytes)
}
