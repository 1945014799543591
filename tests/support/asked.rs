//! One request to a scripted backend: read off its connection, and what a test asks of it.

use std::{collections::HashMap, io::Read, net::TcpStream};

use serde_json::{Value, value::RawValue};

use super::head::{Headers, read_head};

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// HTTP method.
    pub method: String,
    /// Request target.
    pub target: String,
    /// Headers in order, names in lower case.
    pub headers: Headers,
    /// Body.
    pub body: Vec<u8>,
    /// Number of its connection, from 0.
    pub connection: usize,
}

impl Asked {
    /// The value of a header that stands once at the most.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.only(name)
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

    /// Whether it is an answer to a request of the backend.
    pub fn is_answer(&self) -> bool {
        self.rpc_method().is_none()
            && (self.member("result").is_some() || self.member("error").is_some())
    }

    /// A member of its parameters, raw.
    pub fn param(&self, name: &str) -> Option<String> {
        let mut params: HashMap<String, Box<RawValue>> =
            serde_json::from_str(self.member("params")?.get()).ok()?;
        Some(params.remove(name)?.get().to_owned())
    }

    /// The tool a `tools/call` is for.
    pub fn tool(&self) -> Option<String> {
        let name = serde_json::from_str(&self.param("name")?).ok()?;
        self.is("tools/call").then_some(name)
    }
}

/// `None` when the connection has ended.
pub(super) fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    connection: usize,
) -> Option<Asked> {
    let (line, headers) = read_head(buffer, |buffer| fill(stream, buffer).is_some())?;
    let mut words = line.split(' ');
    let mut asked = Asked {
        method: words.next().unwrap().to_owned(),
        target: words.next().unwrap().to_owned(),
        headers,
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
