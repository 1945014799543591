//! A gateway with the connection gateway on, its clients, and its callers.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use shardgate::{
    connection_gateway::token,
    settings::{ConnectionGateway, Settings},
    websocket::{Event, Masking, Receiver, Role, frame, write_frame},
};

use crate::support::{Ask, Connection, Gateway, Limit, PATIENCE, Plan, Response};

/// The key of [`Node::token`].
pub(crate) const SECRET: &[u8] = b"secret";
pub(crate) const PATH: &str = "/connection-gateway/v1";
/// A shard's own number of them: a caller's request is local, and usually not.
pub(crate) const SHARDS: [usize; 2] = [1, 3];
const KEY: [u8; 16] = *b"the sample nonce";
const MASK: [u8; 4] = [1, 2, 3, 4];

/// A running gateway.
pub(crate) struct Node {
    gateway: Option<Gateway>,
    pub(crate) http: SocketAddr,
    pub(crate) websocket: SocketAddr,
}

impl Node {
    pub(crate) fn start(shards: usize) -> Self {
        Self::with(shards, |_| {})
    }

    /// With other settings than those of [`ConnectionGateway::testing`].
    pub(crate) fn with(shards: usize, adjust: impl FnOnce(&mut ConnectionGateway)) -> Self {
        Self::with_all(shards, adjust, |_| {})
    }

    pub(crate) fn with_all(
        shards: usize,
        adjust: impl FnOnce(&mut ConnectionGateway),
        all: impl FnOnce(&mut Settings) + 'static,
    ) -> Self {
        let mut settings = ConnectionGateway::testing();
        adjust(&mut settings);
        let gateway = Plan::without_document()
            .shards(shards)
            .settings(move |whole| {
                whole.connection_gateway = Some(settings);
                all(whole);
            })
            .start();
        let at = gateway.inner().connection_gateway.clone().unwrap();
        Self {
            gateway: Some(gateway),
            http: at.http,
            websocket: at.websocket,
        }
    }

    /// One that a process of its own is.
    pub(crate) fn at(http: SocketAddr, websocket: SocketAddr) -> Self {
        Self {
            gateway: None,
            http,
            websocket,
        }
    }

    /// Whether it says that it can serve.
    pub(crate) fn is_ready(&self) -> bool {
        let gateway = self.gateway.as_ref().unwrap();
        gateway.inner().view.is_ready()
    }

    /// A caller's connection.
    pub(crate) fn caller(&self) -> Connection {
        Connection::open(self.http)
    }

    /// Asks on a connection of its own.
    pub(crate) fn ask(&self, ask: &Ask) -> Response {
        self.caller().ask(ask)
    }

    pub(crate) fn get(&self, target: &str) -> Response {
        self.ask(&authorized("GET", target))
    }

    pub(crate) fn status(&self, id: &str) -> Response {
        self.get(&format!("/internal/sessions/{id}/status"))
    }

    pub(crate) fn by_source(&self, source: &str) -> Response {
        self.get(&format!("/internal/sessions/by-source/{source}/status"))
    }

    pub(crate) fn delete(&self, id: &str) -> Response {
        self.ask(&authorized("DELETE", &format!("/internal/sessions/{id}")))
    }

    pub(crate) fn publish(&self, id: &str, envelope: &Value) -> Response {
        let target = format!("/internal/sessions/{id}/requests");
        self.ask(&with_body("POST", &target, &json!({"envelope": envelope})))
    }

    pub(crate) fn patch(&self, id: &str, metadata: &Value) -> Response {
        let target = format!("/internal/sessions/{id}/metadata");
        self.ask(&with_body("PATCH", &target, &json!({"metadata": metadata})))
    }

    /// Opens a streamed request; the head is read.
    pub(crate) fn stream(&self, id: &str, body: &Value) -> (Connection, Response) {
        let mut caller = self.caller();
        caller.send(stream_ask(id, body).bytes());
        let head = caller.read_head();
        (caller, head)
    }

    /// The same, when it must be streamed.
    pub(crate) fn open_stream(&self, id: &str, body: &Value) -> Connection {
        let (caller, head) = self.stream(id, body);
        assert_eq!(head.status, 200, "{head:?}");
        caller
    }

    pub(crate) fn metrics(&self) -> Value {
        self.get("/metrics").json()["data"].take()
    }

    /// A client whose WebSocket is open.
    pub(crate) fn client(&self) -> Client {
        Client::open(self.websocket)
    }

    /// A client with a session of its own source; and the session.
    pub(crate) fn bound(&self, name: &str) -> (Client, Session) {
        let mut client = self.client();
        let session = client.bind(&token_of(name), &json!({}));
        (client, session)
    }

    /// Drains and ends; true: nothing was cut off.
    pub(crate) fn stop(mut self) -> bool {
        self.gateway.take().unwrap().stop()
    }
}

/// A request with the bearer token.
pub(crate) fn authorized(method: &str, target: &str) -> Ask {
    Ask::new(method, target).header("authorization", "Bearer token")
}

pub(crate) fn with_body(method: &str, target: &str, body: &Value) -> Ask {
    let mut ask = authorized(method, target).header("content-type", "application/json");
    ask.body = Some(body.to_string().into_bytes());
    ask
}

pub(crate) fn stream_ask(id: &str, body: &Value) -> Ask {
    with_body(
        "POST",
        &format!("/internal/sessions/{id}/requests:stream"),
        body,
    )
}

/// Reads the lines of a stream to its end: each chunk must be one line.
pub(crate) fn lines(caller: &mut Connection) -> Vec<Value> {
    let mut lines = Vec::new();
    while let Some(line) = next_line(caller) {
        lines.push(line);
    }
    lines
}

pub(crate) fn next_line(caller: &mut Connection) -> Option<Value> {
    let chunk = caller.read_chunk()?;
    let text = String::from_utf8(chunk).unwrap();
    let line = text.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "more than one line in a chunk");
    Some(serde_json::from_str(line).unwrap())
}

/// The claims of a token for the user `name`, with a source of its own.
pub(crate) fn claims_of(name: &str) -> Value {
    json!({
        "consumerType": "plugin-debug",
        "subject": name,
        "sessionScope": {"userId": name, "source": format!("debug:tmbId:{name}")},
        "transport": "websocket",
        "capabilities": ["gateway.bind", "invoke"],
        "expiresAt": shards::clock::unix_ms() + 300_000,
    })
}

pub(crate) fn sign(claims: &Value) -> String {
    token::sign(&token::key(SECRET), &claims.to_string())
}

pub(crate) fn token_of(name: &str) -> String {
    sign(&claims_of(name))
}

/// A session as `bound` showed it.
#[derive(Debug, Clone)]
pub(crate) struct Session(pub(crate) Value);

impl Session {
    pub(crate) fn id(&self) -> &str {
        self.0["id"].as_str().unwrap()
    }

    /// An envelope that its callers and its client may send.
    pub(crate) fn envelope(&self, kind: &str, request_id: &str, payload: Value) -> Value {
        json!({
            "protocol": "connection-gateway.v1",
            "sessionId": self.id(),
            "generation": 0,
            "requestId": request_id,
            "type": kind,
            "consumerType": "plugin-debug",
            "capability": "invoke",
            "payload": payload,
            "createdAt": 1_796_011_801_930_u64,
        })
    }

    pub(crate) fn request(&self, request_id: &str) -> Value {
        self.envelope("request", request_id, json!({"kind": "plugin-debug.run"}))
    }

    /// A body for `requests:stream`.
    pub(crate) fn stream_body(&self, request_id: &str) -> Value {
        json!({"timeoutMs": 60_000, "envelope": self.request(request_id)})
    }
}

pub(crate) fn chunk(data: Value) -> Value {
    json!({"kind": "plugin-debug.stream", "event": "chunk", "data": data})
}

pub(crate) fn end() -> Value {
    json!({"kind": "plugin-debug.stream", "event": "end"})
}

/// What a client hears.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    Message(Value),
    Pong(Vec<u8>),
    /// A Close frame: its code, if it has one.
    Close(Option<u16>),
    /// The connection's end.
    End,
}

/// A WebSocket client that sends what it is told to.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    receiver: Receiver,
}

impl Client {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::over(Connection::open(address))
    }

    /// Over a connection that is open.
    pub(crate) fn over(mut connection: Connection) -> Self {
        let request = shardgate::websocket::handshake::request("localhost", PATH, KEY, "");
        connection.send(request);
        let head = connection.read_head();
        assert_eq!(head.status, 101, "{head:?}");
        Self::opened(connection)
    }

    /// Over a connection that is a WebSocket already.
    pub(crate) fn opened(connection: Connection) -> Self {
        Self {
            connection,
            receiver: Receiver::new(Role::Client, 64 << 20),
        }
    }

    pub(crate) fn send_frame(&mut self, opcode: u8, payload: &[u8]) {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, opcode, payload, Masking::Key(MASK));
        self.connection.send(bytes);
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.send_frame(frame::TEXT, text.as_bytes());
    }

    /// Sends a message: `protocol` is added.
    pub(crate) fn send(&mut self, mut message: Value) {
        message["protocol"] = "connection-gateway.ws.v1".into();
        self.send_text(&message.to_string());
    }

    pub(crate) fn send_envelope(&mut self, envelope: Value) {
        self.send(json!({"type": "envelope", "envelope": envelope}));
    }

    pub(crate) fn hear(&mut self) -> Heard {
        let buffer = &mut self.connection.buffer;
        let mut at = 0;
        let mut heard = None;
        while heard.is_none() && at < buffer.len() {
            let (taken, event) = self.receiver.read(&buffer[at..]).unwrap();
            at += taken;
            heard = event.map(|event| match event {
                Event::Text(text) => Heard::Message(serde_json::from_str(text).unwrap()),
                Event::Pong(payload) => Heard::Pong(payload.to_vec()),
                Event::Close(code) => Heard::Close(code.map(|(code, _)| code)),
                other => panic!("{other:?}"),
            });
        }
        buffer.drain(..at);
        match heard {
            Some(heard) => heard,
            None if self.connection.fill() => self.hear(),
            None => Heard::End,
        }
    }

    /// The next message, which must be one.
    pub(crate) fn message(&mut self) -> Value {
        match self.hear() {
            Heard::Message(message) => {
                assert_eq!(message["protocol"], "connection-gateway.ws.v1");
                message
            }
            other => panic!("no message: {other:?}"),
        }
    }

    /// Hears everything up to a Close frame, which must come.
    #[track_caller]
    pub(crate) fn hear_to_close(&mut self) {
        let limit = Limit::begin();
        loop {
            limit.check("a Close frame");
            match self.hear() {
                Heard::Close(_) => return,
                Heard::End => panic!("an end without a Close frame"),
                Heard::Message(_) | Heard::Pong(_) => {}
            }
        }
    }

    /// The envelope of the next message.
    pub(crate) fn envelope(&mut self) -> Value {
        let mut message = self.message();
        assert_eq!(message["type"], "envelope", "{message}");
        message["envelope"].take()
    }

    /// The code of the next message, which must be an error for this request.
    pub(crate) fn error(&mut self, request_id: Option<&str>) -> String {
        let message = self.message();
        assert_eq!(message["type"], "error", "{message}");
        assert_eq!(
            message.get("requestId").and_then(Value::as_str),
            request_id,
            "{message}"
        );
        assert!(!message["message"].as_str().unwrap().is_empty());
        let code = message["code"].as_str().unwrap();
        code.strip_prefix("connection_gateway.").unwrap().to_owned()
    }

    /// Whether the client ends here: a Close frame with this code, then the end.
    #[track_caller]
    pub(crate) fn ends_with(&mut self, code: Option<u16>) {
        assert_eq!(self.hear(), Heard::Close(code));
        self.connection.end_output();
        assert_eq!(self.hear(), Heard::End);
    }

    pub(crate) fn send_bind(&mut self, token: &str, metadata: &Value) {
        self.send(json!({
            "type": "bind", "requestId": "bind-1", "token": token, "metadata": metadata,
        }));
    }

    pub(crate) fn bind(&mut self, token: &str, metadata: &Value) -> Session {
        self.send_bind(token, metadata);
        let mut message = self.message();
        assert_eq!(message["type"], "bound", "{message}");
        assert_eq!(message["requestId"], "bind-1");
        Session(message["session"].take())
    }

    /// Whether it is still served: a heartbeat is answered, and nothing was said before.
    #[track_caller]
    pub(crate) fn is_served(&mut self) {
        self.send(json!({"type": "heartbeat", "ts": 1}));
        let message = self.message();
        assert_eq!(message["type"], "heartbeat", "{message}");
        assert!(message["ts"].as_u64().unwrap() > 1_700_000_000_000);
    }
}

/// Reached only by a failing test.
pub(crate) const LONG: Duration = PATIENCE;
