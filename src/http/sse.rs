//! Event streams: the WHATWG EventSource format, parsed as it arrives and written line by line.
//!
//! Owns line ends (CR, LF, CRLF, cut anywhere), the one BOM, fields and the blank line that ends an
//! event. An event whose lines lie in one input slice is handed out borrowed from it; only what is
//! cut by a slice's end, or has several data lines, is copied. Never interprets data, never keeps
//! an event, never decides what a missing blank line means: it only tells.

use std::fmt;

use memchr::memchr2;

use super::Decimal;

/// One event, as its fields said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// `event`; empty means `message`.
    pub name: &'a [u8],
    /// `data` lines joined with LF.
    pub data: &'a [u8],
    /// There was a `data` line. EventSource dispatches nothing without one, but `id` and `retry`
    /// of such an event count.
    pub has_data: bool,
    /// `id`, if this event had one (it may be empty, which resets the last event id).
    pub id: Option<&'a [u8]>,
    /// `retry` in milliseconds.
    pub retry_ms: Option<u64>,
}

/// An event, or a line of one, was longer than the limit. The stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("event over the limit")
    }
}

impl std::error::Error for TooLarge {}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Buffers larger than this are given back after the event that needed them: streams live long.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// A field value: where it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place<'i> {
    Absent,
    /// In the slice being fed.
    Input(&'i [u8]),
    /// In the parser's own buffer of that field.
    Held,
}

impl<'i> Place<'i> {
    fn value<'a>(self, held: &'a [u8]) -> &'a [u8]
    where
        'i: 'a,
    {
        match self {
            Place::Absent => &[],
            Place::Input(value) => value,
            Place::Held => held,
        }
    }

    /// Keeps the value past the end of the slice being fed.
    fn hold(&mut self, held: &mut Vec<u8>) {
        if let Place::Input(value) = *self {
            held.clear();
            held.extend_from_slice(value);
            *self = Place::Held;
        }
    }
}

/// The fields of the event being read.
#[derive(Debug, Clone, Copy)]
struct Fields<'i> {
    name: Place<'i>,
    data: Place<'i>,
    id: Place<'i>,
    retry_ms: Option<u64>,
    /// Bytes of the lines that count towards the limit.
    bytes: usize,
}

const NO_FIELDS: Fields<'static> = Fields {
    name: Place::Absent,
    data: Place::Absent,
    id: Place::Absent,
    retry_ms: None,
    bytes: 0,
};

impl Fields<'_> {
    fn is_empty(&self) -> bool {
        self.name == Place::Absent
            && self.data == Place::Absent
            && self.id == Place::Absent
            && self.retry_ms.is_none()
    }
}

/// The buffers behind [`Place::Held`].
#[derive(Debug, Default)]
struct Held {
    name: Vec<u8>,
    data: Vec<u8>,
    id: Vec<u8>,
}

/// Parses one event stream.
#[derive(Debug)]
pub struct EventParser {
    event_bytes_max: usize,
    /// Bytes of the BOM met so far; all of them once the start of the stream is behind us.
    bom_len: usize,
    /// The last byte was a CR: an LF that follows belongs to the same line end.
    after_cr: bool,
    is_broken: bool,
    /// A line whose end has not come yet.
    line: Vec<u8>,
    fields: Fields<'static>,
    held: Held,
}

impl EventParser {
    /// A parser at the start of a stream; the limit is on the field lines of one event, each
    /// counted without its line end.
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            bom_len: 0,
            after_cr: false,
            is_broken: false,
            line: Vec::new(),
            fields: NO_FIELDS,
            held: Held::default(),
        }
    }

    /// Takes the next bytes of the stream and hands out every event that ended in them.
    ///
    /// After [`TooLarge`] the parser stays broken.
    pub fn feed(
        &mut self,
        input: &[u8],
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<(), TooLarge> {
        if self.is_broken {
            return Err(TooLarge);
        }
        let mut rest = self.skip_bom(input);
        let mut fields: Fields<'_> = self.fields;
        while !rest.is_empty() {
            if self.after_cr {
                self.after_cr = false;
                if let [b'\n', tail @ ..] = rest {
                    rest = tail;
                    continue;
                }
            }
            let end = memchr2(b'\r', b'\n', rest);
            let piece = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + piece.len() > self.event_bytes_max.saturating_sub(fields.bytes) {
                self.is_broken = true;
                return Err(TooLarge);
            }
            let Some(end) = end else {
                self.line.extend_from_slice(piece);
                break;
            };
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if self.line.is_empty() {
                if piece.is_empty() {
                    emit(&fields, &self.held, &mut on_event);
                    fields = NO_FIELDS;
                    self.give_back();
                } else {
                    read_line(&mut fields, &mut self.held, piece);
                }
            } else {
                self.line.extend_from_slice(piece);
                let mut of_line = without_input(&mut fields, &mut self.held);
                read_line(&mut of_line, &mut self.held, &self.line);
                fields = without_input(&mut of_line, &mut self.held);
                self.line.clear();
            }
        }
        self.fields = without_input(&mut fields, &mut self.held);
        Ok(())
    }

    /// Ends the stream; true when an event was cut off before its blank line.
    pub fn finish(self) -> bool {
        let is_comment = self.line.first() == Some(&b':');
        !self.fields.is_empty() || (!self.line.is_empty() && !is_comment)
    }

    /// One BOM at the start of the stream is not part of it.
    fn skip_bom<'i>(&mut self, mut input: &'i [u8]) -> &'i [u8] {
        while self.bom_len < BOM.len() {
            match input {
                [] => break,
                [first, rest @ ..] if *first == BOM[self.bom_len] => {
                    self.bom_len += 1;
                    input = rest;
                }
                _ => {
                    self.line.extend_from_slice(&BOM[..self.bom_len]);
                    self.bom_len = BOM.len();
                }
            }
        }
        input
    }

    fn give_back(&mut self) {
        for buffer in [
            &mut self.line,
            &mut self.held.name,
            &mut self.held.data,
            &mut self.held.id,
        ] {
            if buffer.capacity() > KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
    }
}

fn emit(fields: &Fields<'_>, held: &Held, on_event: &mut impl FnMut(Event<'_>)) {
    if fields.is_empty() {
        return;
    }
    on_event(Event {
        name: fields.name.value(&held.name),
        data: fields.data.value(&held.data),
        has_data: fields.data != Place::Absent,
        id: (fields.id != Place::Absent).then(|| fields.id.value(&held.id)),
        retry_ms: fields.retry_ms,
    });
}

/// The same fields with nothing borrowed from the input.
fn without_input(fields: &mut Fields<'_>, held: &mut Held) -> Fields<'static> {
    fields.name.hold(&mut held.name);
    fields.data.hold(&mut held.data);
    fields.id.hold(&mut held.id);
    let place = |place: Place<'_>| {
        if place == Place::Absent {
            Place::Absent
        } else {
            Place::Held
        }
    };
    Fields {
        name: place(fields.name),
        data: place(fields.data),
        id: place(fields.id),
        retry_ms: fields.retry_ms,
        bytes: fields.bytes,
    }
}

/// Interprets one line that is not blank.
fn read_line<'i>(fields: &mut Fields<'i>, held: &mut Held, line: &'i [u8]) {
    let (name, value) = match line.iter().position(|&byte| byte == b':') {
        None => (line, &[][..]),
        Some(colon) => {
            let value = &line[colon + 1..];
            (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
        }
    };
    match name {
        b"data" => {
            if fields.data == Place::Absent {
                fields.data = Place::Input(value);
            } else {
                fields.data.hold(&mut held.data);
                held.data.push(b'\n');
                held.data.extend_from_slice(value);
            }
        }
        b"event" => fields.name = Place::Input(value),
        b"id" if !value.contains(&0) => fields.id = Place::Input(value),
        b"retry" => match decimal(value) {
            Some(retry_ms) => fields.retry_ms = Some(retry_ms),
            None => return,
        },
        // Comments (no name), unknown fields and ids with NUL leave nothing behind.
        _ => return,
    }
    fields.bytes += line.len();
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Appends one `message` event with exactly one data line.
///
/// In JSON a raw CR or LF can only be white space between tokens, so both become spaces. An id that
/// could not be read back (CR, LF or NUL in it) is left out.
pub fn write_event(out: &mut Vec<u8>, id: Option<&[u8]>, retry_ms: Option<u64>, data: &[u8]) {
    out.reserve(data.len() + 64);
    out.extend_from_slice(b"event: message\n");
    if let Some(id) = id
        && !id.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
    {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id);
        out.push(b'\n');
    }
    if let Some(retry_ms) = retry_ms {
        out.extend_from_slice(b"retry: ");
        out.extend_from_slice(Decimal::new(retry_ms).as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    write_one_line(out, data);
    out.extend_from_slice(b"\n\n");
}

/// Appends a comment and a blank line: bytes on the wire that no reader takes for an event.
pub fn write_comment(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(b": ");
    write_one_line(out, text);
    out.extend_from_slice(b"\n\n");
}

fn write_one_line(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(line_end) = memchr2(b'\r', b'\n', rest) {
        out.extend_from_slice(&rest[..line_end]);
        out.push(b' ');
        rest = &rest[line_end + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests;
