//! One request to a scripted backend: read off its connection, and what a test asks of it.

use std::{collections::HashMap, io::Read, net::TcpStream};

use serde_json::{Value, value::RawValue};

use super::client::find;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// HTTP method.
    pub method: String,
    /// Request target.
    pub target: String,
    /// Headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// Number of its connection, from 0.
    pub connection: usize,
}

impl Asked {
    /// The value of a header that stands once at the most.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} stands twice");
        value
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON; `Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// A member of the message, raw: what does not fit a number type is a value all the same.
    fn member(&self, name: &str) -> Option<Box<RawValue>> {
        let mut members: HashMap<String, Box<RawValue>> =
            serde_json::from_slice(&self.body).ok()?;
        members.remove(name)
    }

    /// The JSON-RPC method.
    pub fn rpc_method(&self) -> Option<String> {
        serde_json::from_str(self.member("method")?.get()).ok()
    }

    /// Whether it is this JSON-RPC method.
    pub fn is(&self, method: &str) -> bool {
        self.rpc_method().as_deref() == Some(method)
    }

    /// The JSON-RPC id, raw.
    pub fn id(&self) -> String {
        let id = self.member("id");
        id.map_or_else(|| "null".to_owned(), |id| id.get().to_owned())
    }

    /// The tool a `tools/call` is for.
    pub fn tool(&self) -> Option<String> {
        let mut params: HashMap<String, Box<RawValue>> =
            serde_json::from_str(self.member("params")?.get()).ok()?;
        let name = serde_json::from_str(params.remove("name")?.get()).ok()?;
        self.is("tools/call").then_some(name)
    }
}

/// `None` when the connection has ended.
pub(super) fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    connection: usize,
) -> Option<Asked> {
    let end = loop {
        if let Some(at) = find(buffer, b"\r\n\r\n") {
            break at + 4;
        }
        fill(stream, buffer)?;
    };
    let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let mut words = lines.next().unwrap().split(' ');
    let mut asked = Asked {
        method: words.next().unwrap().to_owned(),
        target: words.next().unwrap().to_owned(),
        headers: lines
            .map(|line| {
                let (name, value) = line.split_once(':').unwrap();
                (name.to_ascii_lowercase(), value.trim().to_owned())
            })
            .collect(),
        body: Vec::new(),
        connection,
    };
    assert_eq!(asked.header("transfer-encoding"), None);
    let length = asked
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    while buffer.len() < length {
        fill(stream, buffer)?;
    }
    asked.body = buffer.drain(..length).collect();
    Some(asked)
}

fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 16 * 1024];
    let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
    buffer.extend_from_slice(&piece[..count]);
    Some(())
}
