//! Requests to a running gateway: by curl, and raw over a fresh connection each.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use shardgate::auth::{MintRequest, SignatureAlgorithm, SigningKey, mint};

use crate::process::{PATIENCE, until};

/// The shared secret of these tests' tokens.
pub(crate) const SECRET: &str = "a secret of these tests, long enough";
/// The `initialize` of a client of the newest session revision.
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"walker","version":"1"}}}"#;
/// What follows it.
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// A request for the merged list.
pub(crate) const LIST: &str = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;

/// Seconds since 1970.
pub(crate) fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// A token of `subject`, minted at `at_unix_s` for `lifetime_s`.
pub(crate) fn token_at(subject: &str, at_unix_s: u64, lifetime_s: u64) -> String {
    let key = SigningKey::from_secret(SECRET.as_bytes()).unwrap();
    let request = MintRequest {
        lifetime_s,
        ..MintRequest::bootstrap(subject, subject, SignatureAlgorithm::Hs256, &key)
    };
    mint(&request, at_unix_s).unwrap()
}

/// A token of `subject` for an hour.
pub(crate) fn token(subject: &str) -> String {
    token_at(subject, now_unix_s(), 3600)
}

/// A `tools/call`.
pub(crate) fn call(name: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}}}"#
    )
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Without its transfer coding.
    pub(crate) body: String,
}

impl Answer {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let (status_line, fields) = head.split_once("\r\n").unwrap();
        let headers = fields
            .lines()
            .map(|line| line.split_once(": ").unwrap_or((line, "")))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Self {
            status: status_line.split(' ').nth(1).unwrap().parse().unwrap(),
            headers,
            body: body.to_owned(),
        }
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// Its JSON: the body, or the data of its last event.
    pub(crate) fn json(&self) -> Value {
        let is_stream = self.header("content-type") == Some("text/event-stream");
        let text = if is_stream {
            let mut data = self.body.lines().filter_map(|l| l.strip_prefix("data: "));
            data.next_back()
                .unwrap_or_else(|| panic!("no event in {self:?}"))
        } else {
            &*self.body
        };
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The text a tool answered with.
    pub(crate) fn tool_text(&self) -> String {
        let json = self.json();
        let text = json["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no tool's answer: {self:?}"))
            .to_owned()
    }

    /// The names of a merged list.
    pub(crate) fn tool_names(&self) -> Vec<String> {
        let json = self.json();
        let tools = json["result"]["tools"].as_array();
        let tools = tools.unwrap_or_else(|| panic!("no list: {self:?}"));
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    /// Asserts a plain-text answer, byte for byte.
    pub(crate) fn assert_plain(&self, status: u16, body: &str) {
        assert_eq!((self.status, &*self.body), (status, body), "{self:?}");
        assert_eq!(self.header("content-type"), Some("text/plain"), "{self:?}");
    }
}

/// Runs curl, an HTTP client nobody here wrote; it gives up after half a minute.
pub(crate) fn curl(arguments: &[&str]) -> Answer {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "30"])
        .args(["--noproxy", "*", "--header", "Expect:"])
        .args(arguments)
        .output()
        .expect("these tests need curl on the path");
    assert!(output.status.success(), "curl {arguments:?}: {output:?}");
    Answer::read(&String::from_utf8(output.stdout).unwrap())
}

/// Somebody with a token who sends each request over a connection of its own.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The gateway.
    pub(crate) address: SocketAddr,
    /// The endpoint's path.
    pub(crate) path: String,
    /// The bearer token, if any.
    pub(crate) token: Option<String>,
    /// The session id, if any.
    pub(crate) session: Option<String>,
}

impl Caller {
    /// Somebody without a session.
    pub(crate) fn new(address: SocketAddr, path: &str, token: Option<String>) -> Self {
        Self {
            address,
            path: path.to_owned(),
            token,
            session: None,
        }
    }

    /// Opens a session and says so.
    pub(crate) fn open(&mut self) -> Answer {
        self.session = None;
        let answer = self.post(INITIALIZE);
        assert_eq!(answer.status, 200, "{answer:?}");
        self.session = answer.header("mcp-session-id").map(str::to_owned);
        assert!(self.session.is_some(), "{answer:?}");
        let accepted = self.post(INITIALIZED);
        assert_eq!((accepted.status, &*accepted.body), (202, ""));
        answer
    }

    /// The head of a request up to its framing.
    pub(crate) fn head(&self, method: &str) -> String {
        let mut head = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nAccept: application/json, text/event-stream\r\n",
            self.path, self.address
        );
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if let Some(session) = &self.session {
            head.push_str(&format!("Mcp-Session-Id: {session}\r\n"));
        }
        head
    }

    /// A whole POST that keeps its connection.
    pub(crate) fn post_bytes(&self, body: &str) -> String {
        format!(
            "{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.head("POST"),
            body.len()
        )
    }

    /// POST.
    pub(crate) fn post(&self, body: &str) -> Answer {
        let framing = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.last(&format!(
            "{}Content-Type: application/json\r\nConnection: close\r\n{framing}",
            self.head("POST")
        ))
    }

    /// POST with a chunked body.
    pub(crate) fn post_chunked(&self, body: &str) -> Answer {
        let framing = format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        self.last(&format!(
            "{}Content-Type: application/json\r\nConnection: close\r\n{framing}",
            self.head("POST")
        ))
    }

    /// GET, read to the end.
    pub(crate) fn get(&self) -> Answer {
        self.last(&format!("{}Connection: close\r\n\r\n", self.head("GET")))
    }

    /// DELETE.
    pub(crate) fn delete(&self) -> Answer {
        self.last(&format!("{}Connection: close\r\n\r\n", self.head("DELETE")))
    }

    /// A request with any `Authorization` instead of the token; none when it is empty.
    pub(crate) fn with_authorization(&self, method: &str, value: &str) -> Answer {
        let bare = Self {
            token: None,
            ..self.clone()
        };
        let mut request = bare.head(method);
        if !value.is_empty() {
            request.push_str(&format!("Authorization: {value}\r\n"));
        }
        if method == "POST" {
            request.push_str("Content-Type: application/json\r\nContent-Length: 0\r\n");
        }
        self.last(&format!("{request}Connection: close\r\n\r\n"))
    }

    fn last(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let mut answer = Answer::read(&text);
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = unchunked(&answer.body);
        }
        answer
    }

    /// A connection to the gateway.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }
}

/// A chunked body without its coding; it must be whole.
pub(crate) fn unchunked(mut coded: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, rest) = coded.split_once("\r\n").expect("a chunk's size");
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            assert_eq!(rest, "\r\n", "what follows the last chunk");
            return body;
        }
        body.push_str(&rest[..size]);
        coded = rest[size..].strip_prefix("\r\n").expect("a chunk's end");
    }
}

/// The sum of a metric over all shards.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> u64 {
    let answer = curl(&[&format!("http://{admin}/metrics")]);
    assert_eq!(answer.status, 200);
    let values: Vec<u64> = answer
        .body
        .lines()
        .filter(|line| line.starts_with(&format!("{name}{{")))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(!values.is_empty(), "no metric {name}");
    values.iter().sum()
}

/// Waits until the gateway says that it is ready.
pub(crate) fn await_ready(admin: SocketAddr) {
    until("ready", || {
        let answer = curl(&[&format!("http://{admin}/readyz")]);
        (answer.status == 200).then_some(())
    });
}
