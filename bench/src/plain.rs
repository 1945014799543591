//! The bench's own blocking HTTP: pages of the admin listener, first answers, connections to hold.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use loadgen::era::STATELESS_REVISION;

/// Time limit of every read and write.
const LIMIT: Duration = Duration::from_secs(5);

/// The whole answer to a GET that closes the connection.
pub fn read_page(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// An MCP endpoint, spoken to over connections that are held.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// Path of the endpoint.
    pub path: String,
    /// Bearer token.
    pub token: Option<String>,
    /// The `Host` header.
    pub authority: String,
}

impl Endpoint {
    /// An endpoint that is called by its address.
    pub fn new(address: SocketAddr, path: impl Into<String>, token: Option<String>) -> Self {
        Self {
            address,
            path: path.into(),
            token,
            authority: address.to_string(),
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }

    /// Opens a session over a new connection; both are given back. One write, one reply.
    pub fn initialize(&self) -> io::Result<(TcpStream, String)> {
        let mut stream = connect(self.address)?;
        let body = concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"#,
            r#""protocolVersion":"2025-11-25","capabilities":{},"#,
            r#""clientInfo":{"name":"bench","version":"1"}}}"#
        );
        let reply = self.exchange(&mut stream, "", body)?;
        let id = reply
            .head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"))
            .map(|(_, value)| value.trim().to_owned());
        Ok((
            stream,
            id.ok_or_else(|| io::Error::other("initialize gave no session id"))?,
        ))
    }

    /// A new connection that has carried one `ping` of `session`.
    pub fn connect_and_ping(&self, session: &str) -> io::Result<TcpStream> {
        let mut stream = connect(self.address)?;
        self.ask(&mut stream, session, "ping")?;
        Ok(stream)
    }

    /// A new connection for requests that need no session.
    pub fn connect(&self) -> io::Result<TcpStream> {
        connect(self.address)
    }

    /// One stateless request (mcp.md 2.1) for what `name` says, its message given; the body of the
    /// reply.
    pub fn call_stateless(
        &self,
        stream: &mut TcpStream,
        method: &str,
        name: &str,
        body: &str,
    ) -> io::Result<Vec<u8>> {
        let headers = format!(
            "mcp-protocol-version: {STATELESS_REVISION}\r\nmcp-method: {method}\r\n\
             mcp-name: {name}\r\n"
        );
        let reply = self.exchange(stream, &headers, body)?;
        Ok(reply.body)
    }

    /// One request of `session` without parameters.
    pub fn ask(&self, stream: &mut TcpStream, session: &str, method: &str) -> io::Result<()> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        self.call(stream, session, &body).map(drop)
    }

    /// One request of `session`, its message given; the body of the reply.
    pub fn call(&self, stream: &mut TcpStream, session: &str, body: &str) -> io::Result<Vec<u8>> {
        let reply = self.exchange(stream, &session_headers(session), body)?;
        Ok(reply.body)
    }

    /// Opens the GET stream of `session` over its connection, which is held by it from then on.
    pub fn open_stream(&self, stream: &mut TcpStream, session: &str) -> io::Result<()> {
        let (headers, token) = (session_headers(session), self.authorization());
        let request = format!(
            "GET {} HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n{token}{headers}\r\n",
            self.path, self.authority
        );
        stream.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        let mut piece = [0; 1024];
        while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
            match stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => bytes.extend_from_slice(&piece[..count]),
            }
        }
        if bytes.starts_with(b"HTTP/1.1 200") {
            Ok(())
        } else {
            let head = String::from_utf8_lossy(&bytes);
            Err(io::Error::other(
                head.lines().next().unwrap_or_default().to_owned(),
            ))
        }
    }

    fn authorization(&self) -> String {
        self.token
            .as_ref()
            .map(|token| format!("authorization: Bearer {token}\r\n"))
            .unwrap_or_default()
    }

    /// One POST; its reply, which must be a 200.
    fn exchange(&self, stream: &mut TcpStream, headers: &str, body: &str) -> io::Result<Reply> {
        let authorization = self.authorization();
        // Formatted first: straight into the socket it would be a system call for each part.
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\n{authorization}{headers}\
             content-length: {}\r\n\r\n{body}",
            self.path,
            self.authority,
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        read_reply(stream)
    }
}

fn session_headers(session: &str) -> String {
    format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n")
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// A reply.
struct Reply {
    head: String,
    /// As it came: chunked, when it was.
    body: Vec<u8>,
}

/// Reads one reply to its end, by length or to the last chunk; an error when its status is not 200.
fn read_reply(stream: &mut impl Read) -> io::Result<Reply> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| {
                line.strip_prefix("content-length:")?
                    .trim()
                    .parse::<usize>()
                    .ok()
            });
            let is_complete = match length {
                Some(length) => bytes.len() >= at + 4 + length,
                None => bytes.ends_with(b"0\r\n\r\n"),
            };
            if is_complete {
                if !head.starts_with("HTTP/1.1 200") {
                    return Err(io::Error::other(head.lines().next().unwrap_or_default()));
                }
                let body = bytes.split_off(at + 4);
                return Ok(Reply { head, body });
            }
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadgen::backend::{Backend, BackendOptions, ReplyKind};

    #[test]
    fn sessions_and_pings_of_both_reply_kinds() {
        for reply in [ReplyKind::Json, ReplyKind::Sse] {
            let options = BackendOptions {
                reply,
                ..BackendOptions::default()
            };
            let backend = Backend::start(options).unwrap();
            let endpoint = Endpoint::new(backend.address(), "/mcp", None);
            assert_eq!(endpoint.url(), format!("http://{}/mcp", backend.address()));
            let (_first, session) = endpoint.initialize().unwrap();
            endpoint.connect_and_ping(&session).unwrap();
            let fault = endpoint.connect_and_ping("nope").unwrap_err();
            assert_eq!(fault.to_string(), "HTTP/1.1 404 Not Found");
            let mut stream = connect(endpoint.address).unwrap();
            endpoint.ask(&mut stream, &session, "tools/list").unwrap();
            let body = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
            let reply = endpoint.call(&mut stream, &session, body).unwrap();
            let text = String::from_utf8(reply).unwrap();
            assert!(text.contains(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
            let fault = endpoint.open_stream(&mut stream, &session).unwrap_err();
            assert_eq!(fault.to_string(), "HTTP/1.1 405 Method Not Allowed");
            backend.stop();
        }
    }

    #[test]
    fn an_early_end_is_told() {
        let mut cut = &b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"[..];
        assert_eq!(
            read_reply(&mut cut).map(drop).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
