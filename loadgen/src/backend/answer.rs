//! Replies as bytes: heads, the two shapes of a JSON-RPC reply, errors.

use std::io::Write;

use super::ReplyKind;
use crate::era::Era;

/// How long clients without sessions may keep what is always the same.
const KEPT_MS: u32 = 60_000;

/// A request that gets a reply: its id (raw JSON), and how its client speaks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) id: &'a str,
    pub(super) era: Era,
}

impl Asked<'_> {
    /// Appends a result up to and including its brace and, without sessions, what it has to say of
    /// itself; one member at least must follow.
    pub(super) fn open_result(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(b",\"result\":{");
        if self.era == Era::Stateless {
            out.extend_from_slice(b"\"resultType\":\"complete\",");
        }
    }

    /// The same for a result that clients may keep.
    pub(super) fn open_kept_result(self, out: &mut Vec<u8>) {
        self.open_result(out);
        if self.era == Era::Stateless {
            out.extend_from_slice(b"\"ttlMs\":");
            write_number(out, KEPT_MS as usize);
            out.extend_from_slice(b",\"cacheScope\":\"public\",");
        }
    }
}

/// Appends a reply without a body; `status` may carry further header lines.
pub(super) fn write_plain(out: &mut Vec<u8>, status: &str, is_kept: bool) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_bytes());
    out.extend_from_slice(b"\r\ncontent-length: 0\r\n");
    if !is_kept {
        out.extend_from_slice(b"connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a JSON reply with any status; `status` may carry further header lines.
pub(super) fn write_json(out: &mut Vec<u8>, status: &str, body: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_bytes());
    out.extend_from_slice(b"\r\ncontent-type: application/json\r\ncontent-length: ");
    write_number(out, body.len());
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

/// Appends the 200 reply to a request, as asked of the backend. `extra` is header lines; `notes`
/// are messages that go ahead of the reply, each an event of its own, where there is a stream.
pub(super) fn write_reply(
    out: &mut Vec<u8>,
    kind: ReplyKind,
    extra: &str,
    notes: &[Vec<u8>],
    body: &[u8],
) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    out.extend_from_slice(extra.as_bytes());
    match kind {
        ReplyKind::Json => {
            out.extend_from_slice(b"content-type: application/json\r\ncontent-length: ");
            write_number(out, body.len());
            out.extend_from_slice(b"\r\n\r\n");
            out.extend_from_slice(body);
        }
        ReplyKind::Sse => {
            out.extend_from_slice(
                b"content-type: text/event-stream\r\ncache-control: no-cache\r\n\
                  transfer-encoding: chunked\r\n\r\n",
            );
            for note in notes {
                write_event(out, note);
            }
            write_event(out, body);
            out.extend_from_slice(b"0\r\n\r\n");
        }
    }
}

/// Appends one event that carries `message`, as one chunk.
fn write_event(out: &mut Vec<u8>, message: &[u8]) {
    const EVENT: &[u8] = b"event: message\ndata: ";
    const END: &[u8] = b"\n\n";
    let length = EVENT.len() + message.len() + END.len();
    // Writing to a vector cannot fail.
    let _ = write!(out, "{length:x}\r\n");
    out.extend_from_slice(EVENT);
    out.extend_from_slice(message);
    out.extend_from_slice(END);
    out.extend_from_slice(b"\r\n");
}

/// A progress notification for `token` (raw JSON): step `step` of `total`.
pub(super) fn progress(token: &str, step: u32, total: u32) -> Vec<u8> {
    format!(
        concat!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","#,
            r#""params":{{"progressToken":{token},"progress":{step},"total":{total}}}}}"#
        ),
        token = token,
        step = step,
        total = total
    )
    .into_bytes()
}

/// Appends a JSON-RPC error object for `id` (raw JSON).
pub(super) fn write_error(out: &mut Vec<u8>, id: &str, code: i32, message: &str) {
    // Writing to a vector cannot fail. The messages are ours and need no escaping.
    let _ = write!(
        out,
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#
    );
}

/// Appends a number in decimal, without the formatting machinery.
pub(super) fn write_number(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for number in [0, 7, 10, 65_535, usize::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn each_event_of_a_stream_is_one_chunk_of_the_right_length() {
        let mut out = Vec::new();
        let notes = [progress("7", 1, 2)];
        write_reply(&mut out, ReplyKind::Sse, "x: y\r\n", &notes, b"{}");
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nx: y\r\n"));
        let (note, reply) = body.split_once("19\r\n").unwrap();
        assert_eq!(reply, "event: message\ndata: {}\n\n\r\n0\r\n\r\n");
        assert_eq!("event: message\ndata: {}\n\n".len(), 0x19);
        let (size, event) = note.split_once("\r\n").unwrap();
        let event = event.strip_suffix("\r\n").unwrap();
        assert_eq!(usize::from_str_radix(size, 16).unwrap(), event.len());
        assert!(event.contains(r#""progressToken":7,"progress":1,"total":2}"#));
        // JSON has no room for what goes ahead.
        let mut out = Vec::new();
        write_reply(&mut out, ReplyKind::Json, "", &notes, b"{}");
        assert!(out.ends_with(b"content-length: 2\r\n\r\n{}"));
    }
}
