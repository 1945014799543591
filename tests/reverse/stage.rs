//! A gateway whose virtual host has reverse-connected servers, and such a server: a WebSocket in
//! one of the three framings with a small MCP server behind it, on a thread.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver as Heard, Sender, channel},
    },
    thread::JoinHandle,
};

use serde_json::{Value, json};
use shardgate::{
    connection_gateway::token,
    settings::ConnectionGateway,
    websocket::{Event, Masking, Receiver, Role, frame, handshake, write_close, write_frame},
};

use crate::support::{Gateway, HOST, Limit, McpClient, PATIENCE, Plan, eventually};

/// The source of [`gateway`]'s backend `a`, and its user.
pub(crate) const SOURCE: &str = "mcp:alice:files";
pub(crate) const USER: &str = "alice";
/// One shard, and several: the connection is then not always where its callers are.
pub(crate) const SHARDS: [usize; 2] = [1, 4];
/// How a server may come.
pub(crate) const FRAMINGS: [Framing; 3] =
    [Framing::Plain, Framing::Envelopes, Framing::ContextForge];
const KEY: [u8; 16] = *b"the sample nonce";
const MASK: [u8; 4] = [1, 2, 3, 4];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Plain,
    Envelopes,
    ContextForge,
}

impl Framing {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Plain => "/reverse/v1",
            Self::Envelopes => "/connection-gateway/v1",
            Self::ContextForge => "/reverse-proxy/ws",
        }
    }
}

/// A gateway with these backends, by key and URL; callers need a token.
pub(crate) fn gateway_of(shards: usize, backends: &[(&str, &str)]) -> Gateway {
    adjusted(shards, backends, |_| {})
}

/// The same with other settings than those of [`ConnectionGateway::testing`].
pub(crate) fn adjusted(
    shards: usize,
    backends: &[(&str, &str)],
    adjust: impl FnOnce(&mut ConnectionGateway) + 'static,
) -> Gateway {
    Plan::of(backends)
        .shards(shards)
        .with_tokens()
        .settings(|settings| {
            let mut wanted = ConnectionGateway::testing();
            adjust(&mut wanted);
            settings.connection_gateway = Some(wanted);
        })
        .start()
}

/// One whose only backend is the server at [`SOURCE`].
pub(crate) fn gateway(shards: usize) -> Gateway {
    gateway_of(shards, &[("a", &url(SOURCE))])
}

pub(crate) fn url(source: &str) -> String {
    format!("reverse:{source}")
}

pub(crate) fn websocket(gateway: &Gateway) -> SocketAddr {
    let at = gateway.inner().connection_gateway.as_ref();
    at.unwrap().websocket
}

/// A client of the virtual host.
pub(crate) fn client(gateway: &Gateway) -> McpClient {
    McpClient::open_on(gateway, HOST, Some(&gateway.token("client")))
}

/// Waits until the client sees these tools.
pub(crate) fn until_tools(client: &mut McpClient, wanted: &[&str]) {
    eventually("the tools are seen", || {
        (client.tool_names() == wanted).then_some(())
    });
}

/// The claims of a connect token for a server with these sources.
pub(crate) fn claims(sources: &[&str]) -> Value {
    json!({
        "consumerType": "mcp",
        "subject": USER,
        "sessionScope": {"userId": USER, "sources": sources},
        "transport": "websocket",
        "capabilities": ["gateway.bind", "mcp"],
        "expiresAt": shards::clock::unix_ms() + 300_000,
    })
}

pub(crate) fn sign(claims: &Value) -> String {
    token::sign(&token::key(b"secret"), &claims.to_string())
}

/// The server's side of a WebSocket.
pub(crate) struct Socket {
    stream: TcpStream,
    receiver: Receiver,
    buffer: Vec<u8>,
}

/// What is heard there.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    Text(Value),
    Ping,
    Close(Option<u16>),
    End,
}

impl Socket {
    /// Opens one; the status line's code when it is refused, with the whole head.
    pub(crate) fn open(
        address: SocketAddr,
        path: &str,
        extra: &str,
    ) -> Result<Self, (u16, String)> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let request = handshake::request("localhost", path, KEY, extra);
        stream.write_all(&request).unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            assert_eq!(stream.read(&mut byte).unwrap(), 1, "{head:?}");
            head.push(byte[0]);
        }
        if handshake::is_opened(&head, KEY) {
            return Ok(Self {
                stream,
                receiver: Receiver::new(Role::Client, 64 << 20),
                buffer: Vec::new(),
            });
        }
        let head = String::from_utf8(head).unwrap();
        let status = head[9..12].parse().unwrap();
        Err((status, head))
    }

    pub(crate) fn hear(&mut self) -> Said {
        let mut at = 0;
        let mut said = None;
        while said.is_none() && at < self.buffer.len() {
            let (taken, event) = self.receiver.read(&self.buffer[at..]).unwrap();
            at += taken;
            said = event.and_then(|event| match event {
                Event::Text(text) => Some(Said::Text(serde_json::from_str(text).unwrap())),
                Event::Ping(_) => Some(Said::Ping),
                Event::Close(code) => Some(Said::Close(code.map(|(code, _)| code))),
                Event::Pong(_) => None,
                Event::Binary(_) => panic!("a binary message"),
            });
        }
        self.buffer.drain(..at);
        if let Some(said) = said {
            return said;
        }
        let mut piece = vec![0; 64 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => Said::End,
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                self.hear()
            }
            // A test has cut it, or nobody has said anything for too long.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("silence"),
            Err(_) => Said::End,
        }
    }

    pub(crate) fn text(&mut self) -> Value {
        match self.hear() {
            Said::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn say(&mut self, text: &Value) {
        send(&mut self.stream, frame::TEXT, text.to_string().as_bytes());
    }
}

fn send(stream: &mut TcpStream, opcode: u8, payload: &[u8]) {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, opcode, payload, Masking::Key(MASK));
    // The other side may have left.
    let _ = stream.write_all(&bytes);
}

/// A server that has connected.
pub(crate) struct Server {
    framing: Framing,
    session: Value,
    stream: Arc<Mutex<TcpStream>>,
    heard: Heard<Value>,
    thread: Option<JoinHandle<Option<u16>>>,
}

impl Server {
    /// One with tools that does what they say, at [`SOURCE`].
    pub(crate) fn connect(gateway: &Gateway, framing: Framing) -> Self {
        Self::named(gateway, framing, "files")
    }

    /// The same under another name: its source is `mcp:alice:NAME`.
    pub(crate) fn named(gateway: &Gateway, framing: Framing, name: &str) -> Self {
        let source = format!("mcp:{USER}:{name}");
        let extra = match framing {
            Framing::Plain => {
                let token = sign(&claims(&[&source]));
                format!("Authorization: Bearer {token}\r\n")
            }
            Framing::Envelopes => String::new(),
            Framing::ContextForge => {
                let token = gateway.token(USER);
                format!("Authorization: Bearer {token}\r\nX-Session-ID: mine\r\n")
            }
        };
        let opened = Socket::open(websocket(gateway), framing.path(), &extra);
        let mut socket = opened.unwrap_or_else(|refused| panic!("{refused:?}"));
        let session = match framing {
            Framing::Plain => Value::Null,
            Framing::Envelopes => {
                let token = sign(&claims(&[&source]));
                socket.say(
                    &json!({"protocol": "connection-gateway.ws.v1", "type": "bind",
                    "requestId": "b", "token": token}),
                );
                let bound = socket.text();
                assert_eq!(bound["type"], "bound", "{bound}");
                bound["session"].clone()
            }
            Framing::ContextForge => {
                socket.say(&register(name));
                assert_eq!(socket.text()["type"], "register_ack");
                let complete = socket.text();
                assert_eq!(complete["status"], "success", "{complete}");
                Value::Null
            }
        };
        Self::run(socket, framing, session, name)
    }

    fn run(mut socket: Socket, framing: Framing, session: Value, name: &str) -> Self {
        let stream = Arc::new(Mutex::new(socket.stream.try_clone().unwrap()));
        let (sender, heard) = channel();
        let voice = Voice {
            framing,
            session: session.clone(),
            stream: stream.clone(),
        };
        let name = name.to_owned();
        let thread = std::thread::spawn(move || {
            loop {
                let said = match socket.hear() {
                    Said::Text(text) => text,
                    Said::Ping => {
                        send(&mut voice.stream.lock().unwrap(), frame::PONG, b"");
                        continue;
                    }
                    Said::Close(code) => return code,
                    Said::End => return None,
                };
                let message = unframed(framing, said);
                if !message.is_null() {
                    act(&voice, &name, &message, &sender);
                }
            }
        });
        Self {
            framing,
            session,
            stream,
            heard,
            thread: Some(thread),
        }
    }

    fn voice(&self) -> Voice {
        Voice {
            framing: self.framing,
            session: self.session.clone(),
            stream: self.stream.clone(),
        }
    }

    /// Says a message of its own.
    pub(crate) fn say(&self, message: &Value) {
        self.voice().say(message);
    }

    /// Waits for the next message with this method.
    pub(crate) fn wait_for(&self, method: &str) -> Value {
        let limit = Limit::begin();
        loop {
            let message = self.heard.recv_timeout(limit.left()).expect(method);
            if message["method"] == method {
                return message;
            }
        }
    }

    /// Waits for the next message.
    pub(crate) fn next(&self) -> Value {
        self.heard.recv_timeout(PATIENCE).expect("a message")
    }

    /// Waits for the answer to a question of its own.
    pub(crate) fn wait_for_answer(&self) -> Value {
        let limit = Limit::begin();
        loop {
            let message = self.heard.recv_timeout(limit.left()).expect("an answer");
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Cuts its connection.
    pub(crate) fn cut(&self) {
        let _ = self.stream.lock().unwrap().shutdown(Shutdown::Both);
    }

    /// The code it is closed with by the gateway.
    pub(crate) fn await_close(mut self) -> Option<u16> {
        let thread = self.thread.take().unwrap();
        // Pings keep it alive.
        eventually("it is closed", || thread.is_finished().then_some(()));
        let code = thread.join().unwrap();
        // Answered, as the protocol has it.
        let mut bytes = Vec::new();
        write_close(&mut bytes, None, Masking::Key(MASK));
        let _ = self.stream.lock().unwrap().write_all(&bytes);
        code
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Writes in one framing.
struct Voice {
    framing: Framing,
    session: Value,
    stream: Arc<Mutex<TcpStream>>,
}

impl Voice {
    fn say(&self, message: &Value) {
        let text = match self.framing {
            Framing::Plain => message.clone(),
            Framing::ContextForge => {
                let has_id = message.get("id").is_some();
                let kind = if has_id { "response" } else { "notification" };
                json!({"type": kind, "sessionId": "mine", "payload": message})
            }
            Framing::Envelopes => {
                // Its own request ids need not be the gateway's.
                let (kind, payload) = match (message.get("method"), message.get("id")) {
                    (Some(_), Some(_)) => {
                        ("event", json!({"kind": "mcp.message", "message": message}))
                    }
                    (Some(_), None) => ("stream", json!({"event": "chunk", "data": message})),
                    (None, _) => (
                        "response",
                        json!({"kind": "mcp.message", "message": message}),
                    ),
                };
                json!({"protocol": "connection-gateway.ws.v1", "type": "envelope", "envelope": {
                    "protocol": "connection-gateway.v1",
                    "sessionId": self.session["id"],
                    "generation": 0,
                    "requestId": "mine",
                    "type": kind,
                    "consumerType": "mcp",
                    "capability": "mcp",
                    "payload": payload,
                    "createdAt": 1,
                }})
            }
        };
        let mut stream = self.stream.lock().unwrap();
        send(&mut stream, frame::TEXT, text.to_string().as_bytes());
    }

    fn result(&self, asked: &Value, result: Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
    }

    fn text(&self, asked: &Value, text: &str) {
        self.result(asked, json!({"content": [{"type": "text", "text": text}]}));
    }
}

/// The frame by which a ContextForge proxy registers its server.
pub(crate) fn register(name: &str) -> Value {
    json!({"type": "register", "sessionId": "mine",
        "server": {"name": name, "description": "", "protocol": "mcp"}})
}

/// The message in what was heard; null: none.
fn unframed(framing: Framing, mut said: Value) -> Value {
    match framing {
        Framing::Plain => said,
        Framing::ContextForge => said["payload"].take(),
        Framing::Envelopes => {
            let mut envelope = said["envelope"].take();
            if envelope.is_object() {
                assert_eq!(envelope["type"], "request");
                assert_eq!(envelope["payload"]["kind"], "mcp.message");
            }
            envelope["payload"]["message"].take()
        }
    }
}

/// The server's tools.
pub(crate) const TOOLS: [&str; 5] = ["echo", "large", "progress", "sample", "wait"];

fn act(voice: &Voice, name: &str, message: &Value, sender: &Sender<Value>) {
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => voice.result(
            message,
            json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": {"name": name, "version": "1"},
                "instructions": format!("I am {name}."),
            }),
        ),
        "tools/list" => {
            let tools: Vec<Value> = TOOLS
                .iter()
                .map(|tool| json!({"name": tool, "inputSchema": {"type": "object"}}))
                .collect();
            voice.result(message, json!({"tools": tools}));
        }
        "tools/call" => call(voice, name, message),
        "ping" => voice.result(message, json!({})),
        _ if message.get("method").is_some() && message.get("id").is_some() => {
            voice.say(&json!({"jsonrpc": "2.0", "id": message["id"],
                "error": {"code": -32601, "message": "Method not found"}}));
        }
        _ => {}
    }
    // The test may have heard enough.
    let _ = sender.send(message.clone());
}

fn call(voice: &Voice, name: &str, message: &Value) {
    let arguments = &message["params"]["arguments"];
    match message["params"]["name"].as_str().unwrap() {
        "echo" => voice.text(message, &format!("{name}: {}", arguments["text"])),
        "large" => {
            let size = usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap();
            voice.text(message, &"x".repeat(size));
        }
        "progress" => {
            let token = &message["params"]["_meta"]["progressToken"];
            for progress in 1..=3 {
                voice.say(
                    &json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": progress}}),
                );
            }
            voice.text(message, "done");
        }
        "sample" => voice.say(&json!({"jsonrpc": "2.0", "id": message["id"],
            "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})),
        "wait" => {}
        other => panic!("no tool {other}"),
    }
}
