//! An HTTP/1.1 client that sends exactly the bytes it is told to and hides nothing of the answer.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};

use super::{
    PATIENCE,
    head::{Headers, read_head},
};

/// What carries a connection's bytes.
pub trait Transport: Read + Write + Send {
    /// The socket below.
    fn socket(&self) -> &TcpStream;

    /// The TLS session in between, if there is one.
    fn tls(&mut self) -> Option<&mut rustls::ClientConnection> {
        None
    }
}

impl Transport for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

/// One connection.
pub struct Connection {
    stream: Box<dyn Transport>,
    /// Bytes read and not used yet.
    pub buffer: Vec<u8>,
}

/// One answer, whole.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers in order, names in lower case.
    pub headers: Headers,
    /// Body without its transfer coding.
    pub body: Vec<u8>,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `event`, if it was there.
    pub name: Option<String>,
    /// `id`, if it was there.
    pub id: Option<String>,
    /// `retry`, if it was there.
    pub retry_ms: Option<u64>,
    /// The data lines, joined.
    pub data: String,
}

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// Connects with little room for what is not read yet.
    pub fn open_narrow(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(32 * 1024).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(TcpStream::from(socket))
    }

    /// A connection over what is open already.
    pub fn over(stream: impl Transport + 'static) -> Self {
        let socket = stream.socket();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream: Box::new(stream),
            buffer: Vec::new(),
        }
    }

    /// The TLS session it is in.
    pub fn tls(&mut self) -> &mut rustls::ClientConnection {
        self.stream.tls().unwrap()
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes to a peer that may have closed already.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends what the transport holds back, or has to say for itself.
    pub fn flush(&mut self) {
        self.stream.flush().unwrap();
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, ask: &Ask) -> Response {
        self.send(ask.bytes());
        self.read_response_to(&ask.method)
    }

    /// Reads the answer to a request that was not HEAD.
    pub fn read_response(&mut self) -> Response {
        self.read_response_to("POST")
    }

    /// Reads the answer to a request of this method.
    pub fn read_response_to(&mut self, method: &str) -> Response {
        let head = self.read_head();
        self.read_body(method, head)
    }

    /// Reads the body behind a head that was read, the answer to a request of this method.
    pub fn read_body(&mut self, method: &str, head: Response) -> Response {
        let mut response = head;
        if method == "HEAD" || matches!(response.status, 100..200 | 204 | 304) {
            return response;
        }
        if response.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.read_chunk() {
                response.body.extend_from_slice(&chunk);
            }
        } else if let Some(length) = response.header("content-length") {
            let length: usize = length.parse().unwrap();
            self.fill_to(length);
            response.body = self.buffer.drain(..length).collect();
        } else {
            while self.fill() {}
            response.body = std::mem::take(&mut self.buffer);
        }
        response
    }

    /// Reads a head only; the body is left in the connection.
    pub fn read_head(&mut self) -> Response {
        let mut buffer = std::mem::take(&mut self.buffer);
        let head = read_head(&mut buffer, |buffer| self.fill_into(buffer));
        self.buffer = buffer;
        let (line, headers) = head.unwrap_or_else(|| {
            let rest = String::from_utf8_lossy(&self.buffer);
            panic!("the connection ended inside a head: {rest:?}")
        });
        let status = line.strip_prefix("HTTP/1.1 ").unwrap();
        Response {
            status: status[..3].parse().unwrap(),
            headers,
            body: Vec::new(),
        }
    }

    /// Reads one chunk's data; `None`: it was the last.
    pub fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                break at;
            }
            assert!(self.fill(), "the connection ended inside a chunked body");
        };
        let size = std::str::from_utf8(&self.buffer[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        self.fill_to(end + 2 + size + 2);
        let chunk = self.buffer[end + 2..end + 2 + size].to_vec();
        assert_eq!(&self.buffer[end + 2 + size..end + 4 + size], b"\r\n");
        self.buffer.drain(..end + 4 + size);
        (size > 0).then_some(chunk)
    }

    /// Whether the peer closes, or resets, without another byte.
    pub fn is_closed(&mut self) -> bool {
        assert!(
            self.buffer.is_empty(),
            "unread: {:?}",
            String::from_utf8_lossy(&self.buffer)
        );
        !self.fill()
    }

    /// Ends it with a reset.
    pub fn reset(self) {
        let socket = SockRef::from(self.stream.socket());
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Closes the sending half.
    pub fn end_output(&self) {
        // The peer may have closed both already.
        let _ = self.stream.socket().shutdown(Shutdown::Write);
    }

    /// Reads more; false at the end.
    pub fn fill(&mut self) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let has_more = self.fill_into(&mut buffer);
        self.buffer = buffer;
        has_more
    }

    fn fill_into(&mut self, buffer: &mut Vec<u8>) -> bool {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(count) => {
                buffer.extend_from_slice(&piece[..count]);
                count > 0
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                false
            }
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Whether something has come, or comes within a time.
    pub fn has_input_within(&mut self, time: Duration) -> bool {
        self.stream.socket().set_read_timeout(Some(time)).unwrap();
        let mut piece = [0; 16 * 1024];
        let outcome = self.stream.read(&mut piece);
        self.stream
            .socket()
            .set_read_timeout(Some(PATIENCE))
            .unwrap();
        match outcome {
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                true
            }
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    fn fill_to(&mut self, length: usize) {
        while self.buffer.len() < length {
            assert!(self.fill(), "the connection ended inside a body");
        }
    }
}

impl Response {
    /// The value of a header that stands once at the most.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.only(name)
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The events of a stream body.
    pub fn events(&self) -> Vec<Event> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let mut text = self.text();
        let mut events = Vec::new();
        while let Some((block, rest)) = text.split_once("\n\n") {
            events.extend(Event::parse(block));
            text = rest;
        }
        assert_eq!(text, "", "the stream ends inside an event");
        events
    }

    /// The raw JSON-RPC messages it carries, in order: a JSON body's one or a stream's all.
    pub fn messages(&self) -> Vec<String> {
        if self.header("content-type") == Some("text/event-stream") {
            let events = self.events().into_iter().map(|event| event.data);
            // A priming event has no message (mcp.md 1.2).
            events.filter(|data| !data.is_empty()).collect()
        } else {
            vec![self.text().to_owned()]
        }
    }

    /// The JSON-RPC response it carries, raw: the last message.
    pub fn raw_message(&self) -> String {
        self.messages().pop().unwrap()
    }

    /// The JSON-RPC response it carries.
    pub fn message(&self) -> Value {
        serde_json::from_str(&self.raw_message()).unwrap()
    }

    /// The result of the JSON-RPC response it carries, which must be one.
    pub fn result(&self) -> Value {
        let mut message = self.message();
        assert!(message["result"].is_object(), "no result: {message}");
        message["result"].take()
    }

    /// The code of the JSON-RPC error it carries, which must be one.
    pub fn error_code(&self) -> i64 {
        let message = self.message();
        message["error"]["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("no error: {message}"))
    }
}

impl Event {
    /// Reads one event's lines; a block of comments only is none.
    pub fn parse(block: &str) -> Option<Self> {
        let (mut name, mut id, mut retry_ms) = (None, None, None);
        let mut data = None::<String>;
        for line in block.split('\n') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match field {
                "" => {}
                "event" => name = Some(value),
                "id" => id = Some(value),
                "retry" => retry_ms = Some(value.parse().unwrap()),
                "data" => match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&value);
                    }
                    None => data = Some(value),
                },
                other => panic!("a field we do not send: {other:?}"),
            }
        }
        data.map(|data| Self {
            name,
            id,
            retry_ms,
            data,
        })
    }
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Method.
    pub method: String,
    /// Target as it stands in the request line.
    pub target: String,
    /// Headers in order.
    pub headers: Vec<(String, String)>,
    /// Body; its `Content-Length` is written unless a header already frames it.
    pub body: Option<Vec<u8>>,
}

impl Ask {
    /// A request with nothing but a `Host`.
    pub fn new(method: &str, target: &str) -> Self {
        let host = ("host".to_owned(), "localhost".to_owned());
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![host],
            body: None,
        }
    }

    /// A POST as MCP clients send it.
    pub fn post(target: &str, body: impl AsRef<[u8]>) -> Self {
        let mut ask = Self::new("POST", target)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        ask.body = Some(body.as_ref().to_vec());
        ask
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a header out.
    pub fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Puts a header in the place of one of the same name.
    pub fn with(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        let is_framed = self.headers.iter().any(|(name, _)| {
            name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
        });
        if let Some(body) = &self.body
            && !is_framed
        {
            bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// Where `needle` starts in `bytes`.
pub fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
}
