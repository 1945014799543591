//! An MCP client over [`Connection`]: a session, its requests with chosen ids, its GET stream.

use std::net::SocketAddr;

use super::{
    Gateway,
    client::{Ask, Connection, Event, Response},
    gateway::HOST,
};

/// The revision the client asks for.
pub const VERSION: &str = "2025-11-25";

/// A client in a session, with one kept connection.
pub struct McpClient {
    /// Where the gateway is.
    pub address: SocketAddr,
    /// Request target.
    pub target: String,
    /// Bearer token.
    pub token: Option<String>,
    /// The session's id.
    pub session: String,
    /// Its connection.
    pub connection: Connection,
}

impl McpClient {
    /// Opens a session on the virtual host `main` without a token.
    pub fn open(gateway: &Gateway) -> Self {
        Self::open_on(gateway, HOST, None)
    }

    /// Opens a session: `initialize` and `notifications/initialized`.
    pub fn open_on(gateway: &Gateway, host: &str, token: Option<&str>) -> Self {
        Self::open_over(gateway.connect(), gateway.address, host, token)
    }

    /// The same over a connection that is open already, to a gateway at `address`.
    pub fn open_over(
        connection: Connection,
        address: SocketAddr,
        host: &str,
        token: Option<&str>,
    ) -> Self {
        let target = format!("/servers/{host}/mcp");
        let mut client = Self {
            address,
            target,
            token: token.map(str::to_owned),
            session: String::new(),
            connection,
        };
        let response = client
            .connection
            .ask(&client.authorize(Self::initialize(&client.target)));
        assert_eq!(response.status, 200, "{}", response.text());
        response.result();
        client.session = response.header("mcp-session-id").unwrap().to_owned();
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = client.post(notification);
        assert_eq!((response.status, response.body.len()), (202, 0));
        client
    }

    /// The request that opens a session.
    pub fn initialize(target: &str) -> Ask {
        Ask::post(target, initialize_body("0", VERSION))
    }

    /// The same session on a connection of its own.
    pub fn again(&self) -> Self {
        Self {
            address: self.address,
            target: self.target.clone(),
            token: self.token.clone(),
            session: self.session.clone(),
            connection: Connection::open(self.address),
        }
    }

    /// Adds the token, if there is one.
    pub fn authorize(&self, ask: Ask) -> Ask {
        match &self.token {
            Some(token) => ask.with("authorization", &format!("Bearer {token}")),
            None => ask,
        }
    }

    /// A POST of this session, to be changed or sent.
    pub fn request(&self, body: impl AsRef<[u8]>) -> Ask {
        self.authorize(Ask::post(&self.target, body))
            .header("mcp-session-id", &self.session)
            .header("mcp-protocol-version", VERSION)
    }

    /// Posts a message and reads the answer.
    pub fn post(&mut self, body: impl AsRef<[u8]>) -> Response {
        let ask = self.request(body);
        self.connection.ask(&ask)
    }

    /// `tools/call` with a raw id and raw arguments.
    pub fn call(&mut self, id: &str, name: &str, arguments: &str) -> Response {
        self.post(call_body(id, name, arguments))
    }

    /// Sends a `tools/call` without reading its answer.
    pub fn send_call(&mut self, id: &str, name: &str, arguments: &str) {
        let ask = self.request(call_body(id, name, arguments));
        self.connection.send(ask.bytes());
    }

    /// The names `tools/list` shows, in order.
    pub fn tool_names(&mut self) -> Vec<String> {
        let result = self.list().result();
        let tools = result["tools"].as_array().unwrap();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// `tools/list`.
    pub fn list(&mut self) -> Response {
        self.post(r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#)
    }

    /// A request of this session without a body.
    pub fn bare(&self, method: &str) -> Ask {
        let mut ask = self.request("").without("content-type");
        ask.method = method.to_owned();
        ask.body = None;
        ask
    }

    /// DELETE.
    pub fn delete(&mut self) -> Response {
        let ask = self.bare("DELETE");
        self.connection.ask(&ask)
    }

    /// Opens the GET stream on a connection of its own.
    pub fn stream(&self) -> EventStream {
        let mut connection = Connection::open(self.address);
        connection.send(self.bare("GET").bytes());
        let head = connection.read_head();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        EventStream::new(connection, head)
    }
}

/// The body of an `initialize`.
pub fn initialize_body(id: &str, version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"test","version":"1"}}}}}}"#
    )
}

/// The body of a `tools/call`.
pub fn call_body(id: &str, name: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}}}"#
    )
}

/// A chunked event stream that is read as it comes.
pub struct EventStream {
    /// Its connection.
    pub connection: Connection,
    /// The answer's head.
    pub head: Response,
    text: String,
}

impl EventStream {
    /// A stream whose head was just read.
    pub fn new(connection: Connection, head: Response) -> Self {
        Self {
            connection,
            head,
            text: String::new(),
        }
    }

    /// Waits for the next block of lines, a comment included; `None` at the end.
    pub fn next_block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let chunk = self.connection.read_chunk()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Waits for the next event; `None` at the end.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = Event::parse(&self.next_block()?) {
                return Some(event);
            }
        }
    }
}
