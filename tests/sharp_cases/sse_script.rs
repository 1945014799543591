//! Event streams of a scripted backend: any bytes, framed and cut as wanted.

use crate::support::{Asked, Wire};

/// Stands for the request's id in a script.
pub(crate) const ID: &str = "@ID@";

/// How the stream's end is marked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Framed {
    Close,
    Length,
    Chunked,
}

/// The answer to the request, with a text.
pub(crate) fn response(text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{ID},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

/// Says `stream` in pieces of `piece_bytes`.
pub(crate) fn say(
    wire: &mut Wire<'_>,
    asked: &Asked,
    stream: &[u8],
    framed: Framed,
    piece_bytes: usize,
) {
    let stream = with_id(stream, &asked.id());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n";
    match framed {
        Framed::Close => wire.send(format!("{head}connection: close\r\n\r\n")),
        Framed::Length => wire.send(format!("{head}content-length: {}\r\n\r\n", stream.len())),
        Framed::Chunked => wire.send(format!("{head}transfer-encoding: chunked\r\n\r\n")),
    }
    for piece in stream.chunks(piece_bytes) {
        match framed {
            Framed::Chunked => {
                let mut chunk = format!("{:X};x=1\r\n", piece.len()).into_bytes();
                chunk.extend_from_slice(piece);
                chunk.extend_from_slice(b"\r\n");
                wire.send(chunk);
            }
            Framed::Close | Framed::Length => wire.send(piece),
        }
    }
    match framed {
        Framed::Close => wire.close(),
        Framed::Length => {}
        Framed::Chunked => wire.send("0\r\nx-trailer: 1\r\n\r\n"),
    }
}

pub(crate) fn with_id(stream: &[u8], id: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = stream;
    while let Some(at) = rest
        .windows(ID.len())
        .position(|part| part == ID.as_bytes())
    {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(id.as_bytes());
        rest = &rest[at + ID.len()..];
    }
    out.extend_from_slice(rest);
    out
}
