//! HTTP replies out of the bytes read so far: by length or chunked, chunks joined in place.

use std::ops::Range;

/// Largest reply head taken.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Headers of a reply, at the most.
const HEADER_COUNT_MAX: usize = 64;
/// Largest reply body taken.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The bytes are no reply whose end can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAReply;

/// A complete reply, as positions in the buffer it was read into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Whether the body is an event stream.
    pub(crate) is_stream: bool,
    pub(crate) session: Option<Range<usize>>,
    pub(crate) body: Range<usize>,
    /// Bytes received for it.
    pub(crate) used: usize,
    pub(crate) is_kept: bool,
}

/// What is known of a reply that is still arriving.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decoder {
    head: Option<Head>,
}

#[derive(Debug, Clone)]
struct Head {
    status: u16,
    is_stream: bool,
    session: Option<Range<usize>>,
    is_kept: bool,
    body_start: usize,
    framing: Framing,
}

#[derive(Debug, Clone)]
enum Framing {
    Length(usize),
    /// Where the next chunk's size begins, and where its data goes.
    Chunked {
        read_at: usize,
        write_at: usize,
    },
}

impl Decoder {
    /// Continues with what has arrived; `None`: more must come.
    pub(crate) fn decode(&mut self, buffer: &mut [u8]) -> Result<Option<Response>, NotAReply> {
        let mut head = match self.head.take() {
            Some(head) => head,
            None => match read_head(buffer)? {
                Some(head) => head,
                None => return Ok(None),
            },
        };
        let end = match &mut head.framing {
            Framing::Length(length) => {
                let end = head.body_start + *length;
                (buffer.len() >= end).then_some((end, end))
            }
            Framing::Chunked { read_at, write_at } => join(buffer, read_at, write_at)?,
        };
        let Some((body_end, used)) = end else {
            self.head = Some(head);
            return Ok(None);
        };
        // One exchange at a time: bytes past the reply belong to nobody.
        if used != buffer.len() {
            return Err(NotAReply);
        }
        Ok(Some(Response {
            status: head.status,
            is_stream: head.is_stream,
            session: head.session,
            body: head.body_start..body_end,
            used,
            is_kept: head.is_kept,
        }))
    }
}

impl Decoder {
    /// Whether a chunk of the body has come.
    pub(crate) fn has_chunk(&self) -> bool {
        self.head.as_ref().is_some_and(|head| match head.framing {
            Framing::Length(_) => false,
            Framing::Chunked { write_at, .. } => write_at > head.body_start,
        })
    }
}

/// Status of a reply that goes on as a stream, and where its body begins; `None`: more must come.
pub(super) fn stream_start(buffer: &[u8]) -> Result<Option<(u16, usize)>, NotAReply> {
    let head = read_head(buffer)?;
    Ok(head.map(|head| (head.status, head.body_start)))
}

fn read_head(buffer: &[u8]) -> Result<Option<Head>, NotAReply> {
    let mut storage = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut reply = httparse::Response::new(&mut storage);
    let body_start = match reply.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if buffer.len() <= HEAD_BYTES_MAX => return Ok(None),
        _ => return Err(NotAReply),
    };
    let status = reply.code.ok_or(NotAReply)?;
    let (mut length, mut is_chunked, mut is_stream, mut session) = (None, false, false, None);
    let mut is_kept = reply.version == Some(1);
    for header in reply.headers.iter() {
        let (name, value) = (header.name, header.value);
        if name.eq_ignore_ascii_case("content-length") {
            let digits = std::str::from_utf8(value).map_err(|_| NotAReply)?;
            let number: usize = digits.parse().map_err(|_| NotAReply)?;
            if length.replace(number).is_some() || number > BODY_BYTES_MAX {
                return Err(NotAReply);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.eq_ignore_ascii_case(b"chunked");
            if !is_chunked {
                return Err(NotAReply);
            }
        } else if name.eq_ignore_ascii_case("content-type") {
            is_stream = value.to_ascii_lowercase().starts_with(b"text/event-stream");
        } else if name.eq_ignore_ascii_case("connection") {
            is_kept &= !value.eq_ignore_ascii_case(b"close");
        } else if name.eq_ignore_ascii_case("mcp-session-id") {
            let start = value.as_ptr() as usize - buffer.as_ptr() as usize;
            session = Some(start..start + value.len());
        }
    }
    let framing = match (is_chunked, length) {
        (true, None) => Framing::Chunked {
            read_at: body_start,
            write_at: body_start,
        },
        (false, Some(length)) => Framing::Length(length),
        // RFC 9112 section 6.3: these have no body.
        (false, None) if status == 204 || status == 304 => Framing::Length(0),
        // Until the end of the connection, or two lengths: neither is for a kept connection.
        _ => return Err(NotAReply),
    };
    Ok(Some(Head {
        status,
        is_stream,
        session,
        is_kept,
        body_start,
        framing,
    }))
}

/// Moves the data of complete chunks together. The end of the data and of the reply, when it is
/// all here.
fn join(
    buffer: &mut [u8],
    read_at: &mut usize,
    write_at: &mut usize,
) -> Result<Option<(usize, usize)>, NotAReply> {
    loop {
        let rest = &buffer[*read_at..];
        let (line, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete((line, size))) => (line, size),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(NotAReply),
        };
        let size = usize::try_from(size).map_err(|_| NotAReply)?;
        if size > BODY_BYTES_MAX {
            return Err(NotAReply);
        }
        if size == 0 {
            let trailer = &rest[line..];
            if trailer.starts_with(b"\r\n") {
                return Ok(Some((*write_at, *read_at + line + 2)));
            }
            let end = memchr::memmem::find(trailer, b"\r\n\r\n");
            return Ok(end.map(|at| (*write_at, *read_at + line + at + 4)));
        }
        let data = *read_at + line;
        let Some(after) = buffer.get(data + size..data + size + 2) else {
            return Ok(None);
        };
        if after != b"\r\n" {
            return Err(NotAReply);
        }
        buffer.copy_within(data..data + size, *write_at);
        *write_at += size;
        *read_at = data + size + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the text byte by byte; it must be complete at its last byte and not before.
    fn decode(text: &str) -> Result<(Response, String), NotAReply> {
        let mut decoder = Decoder::default();
        let mut buffer = Vec::new();
        for (index, byte) in text.bytes().enumerate() {
            buffer.push(byte);
            if let Some(response) = decoder.decode(&mut buffer)? {
                assert_eq!(index + 1, text.len(), "complete too early");
                let body = String::from_utf8(buffer[response.body.clone()].to_vec()).unwrap();
                return Ok((response, body));
            }
        }
        panic!("never complete: {text}");
    }

    #[test]
    fn by_length_and_chunked_in_any_pieces() {
        let (response, body) =
            decode("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nMcp-Session-Id: ab\r\n\r\nxyz")
                .unwrap();
        assert_eq!(
            (response.status, body.as_str(), response.is_kept),
            (200, "xyz", true)
        );
        assert_eq!(response.session, Some(52..54));
        let chunked = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; x\r\n\
            transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0a;e=1\r\n0123456789\r\n0\r\n\r\n";
        let (response, body) = decode(chunked).unwrap();
        assert_eq!(body, "abc0123456789");
        assert!(response.is_stream);
        let trailer = chunked.replace("0\r\n\r\n", "0\r\na: b\r\n\r\n");
        assert_eq!(decode(&trailer).unwrap().1, "abc0123456789");
    }

    #[test]
    fn no_body_and_closing() {
        assert_eq!(decode("HTTP/1.1 204 No Content\r\n\r\n").unwrap().1, "");
        let closing = "HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert!(!decode(closing).unwrap().0.is_kept);
    }

    #[test]
    fn what_has_no_certain_end_is_refused() {
        for text in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "nonsense nonsense\r\n\r\n",
        ] {
            assert_eq!(decode(text).unwrap_err(), NotAReply, "{text}");
        }
        let mut two = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab".to_vec();
        assert_eq!(Decoder::default().decode(&mut two), Err(NotAReply));
    }
}
