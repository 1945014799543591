//! An MCP client over [`Connection`]: a session, its requests with chosen ids, its GET stream.

use std::net::SocketAddr;

use shards::slots::SlotTable;

use super::{
    Gateway, Limit,
    client::{Ask, Connection, Event, Response},
    gateway::{DECOY_HOST, HOST},
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
    /// The revision its requests name.
    pub version: String,
    /// A session of another shard, which its connections have served before its own.
    decoy: Option<String>,
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
        Self::open_over(gateway.connect(), gateway.address, host, token).spread(gateway)
    }

    /// The same over a connection that is open already, to a gateway at `address`.
    pub fn open_over(
        connection: Connection,
        address: SocketAddr,
        host: &str,
        token: Option<&str>,
    ) -> Self {
        let body = initialize_body("0", VERSION);
        Self::open_by(connection, address, host, token, &body)
    }

    /// Opens a session of this revision with these capabilities of the client.
    pub fn open_with(gateway: &Gateway, version: &str, capabilities: &str) -> Self {
        let body = initialize_body("0", version).replace(
            r#""capabilities":{}"#,
            &format!(r#""capabilities":{capabilities}"#),
        );
        let client = Self::open_by(gateway.connect(), gateway.address, HOST, None, &body);
        client.spread(gateway)
    }

    fn open_by(
        connection: Connection,
        address: SocketAddr,
        host: &str,
        token: Option<&str>,
        body: &str,
    ) -> Self {
        let mut client = Self {
            address,
            target: format!("/servers/{host}/mcp"),
            token: token.map(str::to_owned),
            session: String::new(),
            version: String::new(),
            decoy: None,
            connection,
        };
        let ask = client.authorize(Ask::post(&client.target, body));
        let response = client.connection.ask(&ask);
        assert_eq!(response.status, 200, "{}", response.text());
        let result = response.result();
        client.version = result["protocolVersion"].as_str().unwrap().to_owned();
        client.session = response.header("mcp-session-id").unwrap().to_owned();
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = client.post(notification);
        assert_eq!((response.status, response.body.len()), (202, 0));
        client
    }

    /// With [`super::Layout::Spread`]: from now on the connections are none of the owner's. One
    /// that has served a session stays with that one's owner.
    fn spread(mut self, gateway: &Gateway) -> Self {
        if gateway.is_spread {
            let slots = SlotTable::new(u16::try_from(gateway.shards).unwrap());
            let owner = slots.owner_of(self.session.as_bytes());
            let token = self.token.clone();
            let decoy = (0..1000).find_map(|_| {
                let decoy = Self::open_over(
                    gateway.connect(),
                    self.address,
                    DECOY_HOST,
                    token.as_deref(),
                );
                (slots.owner_of(decoy.session.as_bytes()) != owner).then_some(decoy.session)
            });
            self.decoy = Some(decoy.unwrap());
            self.connection = self.connect();
        }
        self
    }

    /// A new connection, on which requests of this session come as its layout has it.
    pub fn connect(&self) -> Connection {
        let mut connection = Connection::open(self.address);
        if let Some(decoy) = &self.decoy {
            let target = format!("/servers/{DECOY_HOST}/mcp");
            let ping = r#"{"jsonrpc":"2.0","id":"decoy","method":"ping"}"#;
            let ask = self.authorize(Ask::post(&target, ping));
            let response = connection.ask(&ask.header("mcp-session-id", decoy));
            assert_eq!(response.status, 200, "{}", response.text());
        }
        connection
    }

    /// The request that opens a session.
    pub fn initialize(target: &str) -> Ask {
        Ask::post(target, initialize_body("0", VERSION))
    }

    /// The same session on a connection of its own.
    pub fn again(&self) -> Self {
        self.again_over(self.connect())
    }

    /// The same session on this connection.
    pub fn again_over(&self, connection: Connection) -> Self {
        Self {
            address: self.address,
            target: self.target.clone(),
            token: self.token.clone(),
            session: self.session.clone(),
            version: self.version.clone(),
            decoy: self.decoy.clone(),
            connection,
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
            .header("mcp-protocol-version", &self.version)
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
        self.open_stream(&self.bare("GET"))
    }

    /// Goes on with the stream that an event id belongs to, behind that event.
    pub fn stream_after(&self, id: &str) -> EventStream {
        self.open_stream(&self.bare("GET").header("last-event-id", id))
    }

    /// Makes a `tools/call` whose answer is a stream, on a connection of its own.
    pub fn call_stream(&self, id: &str, name: &str, arguments: &str) -> EventStream {
        self.open_stream(&self.request(call_body(id, name, arguments)))
    }

    /// Sends a request that is answered with a stream, on a connection of its own.
    pub fn open_stream(&self, ask: &Ask) -> EventStream {
        let mut connection = self.connect();
        connection.send(ask.bytes());
        EventStream::begun(connection)
    }

    /// Answers a request of the server's with a raw result, on the client's connection.
    pub fn answer(&mut self, id: &str, result: &str) {
        let response = self.post(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ));
        assert_eq!((response.status, response.body.len()), (202, 0));
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
    /// The id of the last event that had one, a priming one included (mcp.md 1.2).
    pub last_id: Option<String>,
    text: String,
}

impl EventStream {
    /// A stream whose head was just read.
    pub fn new(connection: Connection, head: Response) -> Self {
        Self {
            connection,
            head,
            last_id: None,
            text: String::new(),
        }
    }

    /// A stream whose head is to come now.
    pub fn begun(mut connection: Connection) -> Self {
        let head = connection.read_head();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        Self::new(connection, head)
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

    /// Waits for the next event, a priming one included; `None` at the end.
    pub fn next_raw_event(&mut self) -> Option<Event> {
        let limit = Limit::begin();
        loop {
            // Comments keep it alive.
            limit.check("an event");
            if let Some(event) = Event::parse(&self.next_block()?) {
                if event.id.is_some() {
                    self.last_id.clone_from(&event.id);
                }
                return Some(event);
            }
        }
    }

    /// Waits for the next event with a message; `None` at the end.
    pub fn next_event(&mut self) -> Option<Event> {
        let limit = Limit::begin();
        loop {
            limit.check("an event with a message");
            let event = self.next_raw_event()?;
            if !event.data.is_empty() {
                return Some(event);
            }
        }
    }

    /// Waits for the next message, which there must be.
    pub fn next_message(&mut self) -> serde_json::Value {
        let event = self.next_event().unwrap();
        serde_json::from_str(&event.data).unwrap()
    }

    /// All messages up to the end, raw.
    pub fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next_event())
            .map(|event| event.data)
            .collect()
    }
}
