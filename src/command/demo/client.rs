//! A small blocking MCP client over one kept connection, for the demo's round trip. It reads its
//! replies with the gateway's own codec.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

use crate::http::{
    ChunkDecoder, ContentKind, Parsed, ResponseFraming, parse_response, sse::EventParser,
};

const PATIENCE: Duration = Duration::from_secs(10);
const BYTES_MAX: usize = 1 << 20;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("no plain listener")]
    NoListener,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the reply is not HTTP as expected")]
    Http,
    #[error("HTTP status {0}")]
    Status(u16),
    #[error("the reply is not the JSON expected")]
    Json,
    #[error("JSON-RPC error {0}")]
    Rpc(Value),
}

pub(super) struct Client {
    stream: TcpStream,
    path: String,
    token: String,
    session: Option<String>,
    next_id: u64,
}

impl Client {
    pub(super) fn open(address: SocketAddr, path: &str, token: &str) -> Result<Self, Fault> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            path: path.to_owned(),
            token: token.to_owned(),
            session: None,
            next_id: 1,
        })
    }

    /// Opens the session; the server's name and version.
    pub(super) fn initialize(&mut self) -> Result<String, Fault> {
        let result = self.ask(
            "initialize",
            serde_json::json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "shardgate-demo", "version": env!("CARGO_PKG_VERSION")},
            }),
        )?;
        let notification =
            serde_json::json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let (status, _) = self.exchange("POST", Some(&notification))?;
        if status != 202 {
            return Err(Fault::Status(status));
        }
        let info = &result["serverInfo"];
        match (info["name"].as_str(), info["version"].as_str()) {
            (Some(name), Some(version)) => Ok(format!("{name} {version}")),
            _ => Err(Fault::Json),
        }
    }

    /// The names of the tools.
    pub(super) fn tools(&mut self) -> Result<Vec<String>, Fault> {
        let result = self.ask("tools/list", serde_json::json!({}))?;
        let tools = result["tools"].as_array().ok_or(Fault::Json)?;
        Ok(tools
            .iter()
            .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
            .collect())
    }

    /// The first text of a tool's result.
    pub(super) fn call(&mut self, name: &str, arguments: &Value) -> Result<String, Fault> {
        let params = serde_json::json!({"name": name, "arguments": arguments});
        let result = self.ask("tools/call", params)?;
        result["content"][0]["text"]
            .as_str()
            .map(str::to_owned)
            .ok_or(Fault::Json)
    }

    /// Ends the session.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.exchange("DELETE", None)? {
            (200..300, _) => Ok(()),
            (status, _) => Err(Fault::Status(status)),
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value, Fault> {
        let id = self.next_id;
        self.next_id += 1;
        let request =
            serde_json::json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let (status, body) = self.exchange("POST", Some(&request))?;
        if status != 200 {
            return Err(Fault::Status(status));
        }
        let mut reply: Value = serde_json::from_slice(&body).map_err(|_| Fault::Json)?;
        if reply["id"] != id {
            return Err(Fault::Json);
        }
        match reply.get("error") {
            Some(error) => Err(Fault::Rpc(error.clone())),
            None => Ok(reply["result"].take()),
        }
    }

    /// One request; status and body, of an event stream the last message.
    fn exchange(&mut self, method: &str, body: Option<&Value>) -> Result<(u16, Vec<u8>), Fault> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut request = format!(
            "{method} {} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             accept: application/json, text/event-stream\r\n",
            self.path, self.token
        );
        if let Some(session) = &self.session {
            request += &format!("mcp-session-id: {session}\r\n");
        }
        if method == "POST" {
            request += &format!(
                "content-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            );
        }
        request += "\r\n";
        request += &body;
        self.stream.write_all(request.as_bytes())?;
        self.read_reply()
    }

    fn read_reply(&mut self) -> Result<(u16, Vec<u8>), Fault> {
        let mut bytes = Vec::new();
        let head = loop {
            match parse_response(&bytes, BYTES_MAX) {
                Ok(Parsed::Complete(head)) => break head,
                Ok(Parsed::Partial) => self.read_more(&mut bytes)?,
                Err(_) => return Err(Fault::Http),
            }
        };
        if let Some(session) = head.session_id {
            let session = String::from_utf8_lossy(session.slice(&bytes));
            self.session = Some(session.into_owned());
        }
        let mut rest = bytes.split_off(head.len);
        let body = match head.framing {
            ResponseFraming::NoBody => Vec::new(),
            ResponseFraming::Length(length) => {
                let length = usize::try_from(length).map_err(|_| Fault::Http)?;
                while rest.len() < length {
                    self.read_more(&mut rest)?;
                }
                rest
            }
            ResponseFraming::Chunked => {
                let mut decoder = ChunkDecoder::new(BYTES_MAX as u64);
                let mut body = Vec::new();
                loop {
                    let (_, is_done) = decoder.decode(&rest, &mut body).map_err(|_| Fault::Http)?;
                    if is_done {
                        break body;
                    }
                    rest.clear();
                    self.read_more(&mut rest)?;
                }
            }
            ResponseFraming::UntilClose => return Err(Fault::Http),
        };
        if head.content != ContentKind::EventStream {
            return Ok((head.status, body));
        }
        let mut last = Vec::new();
        EventParser::new(BYTES_MAX)
            .feed(&body, |event| last = event.data.to_vec())
            .map_err(|_| Fault::Http)?;
        Ok((head.status, last))
    }

    fn read_more(&mut self, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let mut piece = [0; 4096];
        let count = self.stream.read(&mut piece)?;
        if count == 0 || bytes.len() > BYTES_MAX {
            return Err(Fault::Http);
        }
        bytes.extend_from_slice(&piece[..count]);
        Ok(())
    }
}
