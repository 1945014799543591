//! Where messages end, by the gateway's own codec. No bytes are changed.

use std::io;

use shardgate::http::{
    ChunkDecoder, Framing,
    head::{HeadLimits, Parsed, parse_request},
    response::{ResponseFraming, parse_response},
};

/// Largest head of a reply.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Largest body of a chunked reply.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes of the whole request at the start of `bytes`, as far as they can be told yet.
pub(super) fn request_bytes(bytes: &[u8]) -> io::Result<Option<usize>> {
    let head = match parse_request(bytes, &HeadLimits::default()) {
        Ok(Parsed::Complete(head)) => head,
        Ok(Parsed::Partial) => return Ok(None),
        Err(refusal) => return Err(io::Error::other(refusal)),
    };
    let body = match head.framing {
        Framing::NoBody => 0,
        // The limit on bodies is far below what an address can be.
        Framing::Length(length) => length as usize,
        Framing::Chunked => return Err(io::Error::other("no chunked requests here")),
    };
    Ok(Some(head.len + body))
}

/// How much of a reply is to come.
#[derive(Debug)]
pub(super) enum Rest {
    /// The end of the head has not been seen.
    Head,
    /// So many bytes.
    Bytes(u64),
    /// Up to the last chunk; the second is for what the decoder gives out, which nobody needs.
    Chunks(Box<ChunkDecoder>, Vec<u8>),
}

impl Rest {
    /// Takes note of `bytes`, which follow those of the last call; with [`Rest::Head`] all since
    /// the start. Whether the reply ends with them.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        if matches!(self, Self::Head) {
            let head = match parse_response(bytes, HEAD_BYTES_MAX) {
                Ok(Parsed::Complete(head)) => head,
                Ok(Parsed::Partial) => return Ok(false),
                Err(fault) => return Err(io::Error::other(fault)),
            };
            *self = match head.framing {
                ResponseFraming::NoBody => Self::Bytes(0),
                ResponseFraming::Length(length) => Self::Bytes(length),
                ResponseFraming::Chunked => Self::Chunks(
                    Box::new(ChunkDecoder::dropping_trailers(BODY_BYTES_MAX)),
                    Vec::new(),
                ),
                ResponseFraming::UntilClose => {
                    return Err(io::Error::other("no reply without a length here"));
                }
            };
            bytes = &bytes[head.len..];
        }
        let (used, is_end) = match self {
            Self::Head => return Ok(false),
            Self::Bytes(left) => {
                let used = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= used as u64;
                (used, *left == 0)
            }
            Self::Chunks(decoder, data) => {
                data.clear();
                decoder.decode(bytes, data).map_err(io::Error::other)?
            }
        };
        if used < bytes.len() {
            return Err(io::Error::other("bytes after the end of a reply"));
        }
        Ok(is_end)
    }

    /// Bytes still to come, when it is known.
    pub(super) fn known(&self) -> Option<usize> {
        match self {
            Self::Bytes(left) => usize::try_from(*left).ok(),
            Self::Head | Self::Chunks(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_length() {
        let request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(request_bytes(request).unwrap(), Some(request.len()));
        assert_eq!(request_bytes(&request[..20]).unwrap(), None);
        let get = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        assert_eq!(request_bytes(get).unwrap(), Some(get.len()));
        let chunked = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(request_bytes(chunked).is_err());
    }

    #[test]
    fn replies_end_where_they_say_however_they_are_cut() {
        for reply in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
        ] {
            let bytes = reply.as_bytes();
            for cut in 1..bytes.len() {
                let mut rest = Rest::Head;
                assert!(!rest.pass(&bytes[..cut]).unwrap(), "{reply} {cut}");
                let start = if matches!(rest, Rest::Head) { 0 } else { cut };
                assert!(rest.pass(&bytes[start..]).unwrap(), "{reply} {cut}");
            }
            let mut rest = Rest::Head;
            let more = [bytes, b"x"].concat();
            assert!(rest.pass(&more).is_err(), "{reply}");
        }
        let open = b"HTTP/1.1 200 OK\r\n\r\nhello";
        assert!(Rest::Head.pass(open).is_err());
    }
}
