//! The gateway's side of the native framing, played by the test, and the client as a process.

use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};
use shardgate::websocket::{
    CloseCode, Event, Masking, Receiver, Role, frame, handshake, write_close, write_frame,
};

use crate::{
    process::{Folder, Process},
    support::{Connection, Limit, eventually, find},
};

/// What the client has to show.
pub(crate) const TOKEN: &str = "the-token";
/// Longer than any message here.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A listener that is asked for connections one by one.
pub(crate) struct Door {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// A client that has asked for a WebSocket.
pub(crate) struct Knock {
    connection: Connection,
    /// Its request, whole.
    pub(crate) head: String,
}

/// A connection that is open.
pub(crate) struct Socket {
    pub(crate) connection: Connection,
    receiver: Receiver,
    id: u64,
}

/// What a client says.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Message(Value),
    Ping,
    Pong(Vec<u8>),
    Close(Option<u16>),
    End,
}

impl Door {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    /// The same at an address that was one before.
    pub(crate) fn open_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, address }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// The next client, whose request is read.
    pub(crate) fn knock(&self) -> Knock {
        let stream = eventually("a client that connects", || {
            self.listener.accept().ok().map(|(stream, _)| stream)
        });
        stream.set_nonblocking(false).unwrap();
        let mut connection = Connection::over(stream);
        let end = loop {
            if let Some(at) = find(&connection.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            assert!(connection.fill(), "no whole request");
        };
        let head = String::from_utf8(connection.buffer.drain(..end).collect()).unwrap();
        Knock { connection, head }
    }

    /// The next client, taken in.
    pub(crate) fn enter(&self) -> Socket {
        self.knock().take_in()
    }

    /// Whether nobody is waiting to be let in.
    pub(crate) fn is_quiet(&self) -> bool {
        self.listener.accept().is_err()
    }
}

impl Knock {
    /// The value of a header line.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn refuse(mut self, status: u16, headers: &str) {
        let answer = format!("HTTP/1.1 {status} Refused\r\n{headers}content-length: 0\r\n\r\n");
        self.connection.send(answer);
    }

    pub(crate) fn answer(mut self, bytes: &[u8]) {
        self.connection.send(bytes);
    }

    pub(crate) fn take_in(self) -> Socket {
        self.take_in_with(&[])
    }

    /// The same, with bytes right behind the head.
    pub(crate) fn take_in_with(mut self, more: &[u8]) -> Socket {
        let accept = handshake::accept_for(self.header("sec-websocket-key").unwrap().as_bytes());
        let mut bytes = handshake::accepted(&accept);
        bytes.extend_from_slice(more);
        self.connection.send(bytes);
        Socket {
            connection: self.connection,
            receiver: Receiver::new(Role::Server, MESSAGE_BYTES_MAX),
            id: 0,
        }
    }
}

/// A frame of the gateway.
pub(crate) fn frame_of(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, opcode, payload, Masking::Plain);
    bytes
}

impl Socket {
    pub(crate) fn send_frame(&mut self, opcode: u8, payload: &[u8]) {
        self.connection.send(frame_of(opcode, payload));
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.send_frame(frame::TEXT, message.to_string().as_bytes());
    }

    pub(crate) fn close(&mut self, code: u16) {
        let mut bytes = Vec::new();
        write_close(&mut bytes, Some((CloseCode(code), "")), Masking::Plain);
        self.connection.send(bytes);
    }

    pub(crate) fn hear(&mut self) -> Heard {
        let buffer = &mut self.connection.buffer;
        let (mut at, mut heard) = (0, None);
        while heard.is_none() && at < buffer.len() {
            let (taken, event) = self.receiver.read(&buffer[at..]).unwrap();
            at += taken;
            heard = event.map(|event| match event {
                Event::Text(text) => Heard::Message(serde_json::from_str(text).unwrap()),
                Event::Ping(_) => Heard::Ping,
                Event::Pong(payload) => Heard::Pong(payload.to_vec()),
                Event::Close(why) => Heard::Close(why.map(|(code, _)| code)),
                Event::Binary(_) => panic!("no text"),
            });
        }
        buffer.drain(..at);
        match heard {
            Some(heard) => heard,
            None if self.connection.fill() => self.hear(),
            None => Heard::End,
        }
    }

    /// The next message, which must be one; pings are answered.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Value {
        let limit = Limit::begin();
        loop {
            limit.check("a message");
            match self.hear() {
                Heard::Message(message) => return message,
                Heard::Ping => self.send_frame(frame::PONG, b""),
                other => panic!("no message: {other:?}"),
            }
        }
    }

    /// Sends a request; its id.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.id += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}));
        self.id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request and gives the next message, which must be its response.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        let message = self.message();
        assert_eq!(message["id"], id, "{message}");
        message
    }

    #[track_caller]
    pub(crate) fn initialize(&mut self) -> Value {
        let mut response = self.request(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "gateway", "version": "1"},
            }),
        );
        assert!(response["result"].is_object(), "{response}");
        self.notify("notifications/initialized", json!({}));
        response["result"].take()
    }

    pub(crate) fn ask_tool(&mut self, name: &str, arguments: Value) -> u64 {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// Calls a tool and gives its text.
    #[track_caller]
    pub(crate) fn call(&mut self, name: &str, arguments: Value) -> String {
        let response = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        text_of(&response)
    }

    /// Whether it ends here: a Close frame with this code, answered, and the end.
    #[track_caller]
    pub(crate) fn ends_with(&mut self, code: Option<u16>) {
        assert_eq!(self.hear(), Heard::Close(code));
        if let Some(code) = code {
            self.close(code);
        }
        assert_eq!(self.hear(), Heard::End);
    }
}

/// The one text of a tool's answer.
#[track_caller]
pub(crate) fn text_of(response: &Value) -> String {
    let text = response["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{response}")).to_owned()
}

/// The code of an error.
#[track_caller]
pub(crate) fn code_of(response: &Value) -> i64 {
    let code = response["error"]["code"].as_i64();
    code.unwrap_or_else(|| panic!("{response}"))
}

/// A running client.
pub(crate) struct Client {
    pub(crate) process: Process,
    pub(crate) home: Folder,
}

impl Client {
    /// Before a local server named by these arguments.
    pub(crate) fn start(to: &str, more: &[&str]) -> Self {
        Self::start_in(Folder::new(), to, more)
    }

    pub(crate) fn start_in(home: Folder, to: &str, more: &[&str]) -> Self {
        let arguments = [&["reverse", "--to", to], more].concat();
        let variables = [
            ("SHARDGATE_REVERSE_TOKEN", TOKEN),
            // What makes the child a server.
            ("SHARDGATE_TEST_CHILD", "from the environment"),
        ];
        let process = Process::start_with(&home, &variables, &arguments);
        Self { process, home }
    }

    /// Before the small stdio server.
    pub(crate) fn stdio(door: &Door, more: &[&str]) -> Self {
        let command = command();
        let mut arguments = more.to_vec();
        arguments.push("--");
        arguments.extend(command.iter().map(String::as_str));
        Self::start(&door.url(), &arguments)
    }
}

/// What starts the small stdio server.
pub(crate) fn command() -> Vec<String> {
    let entry = crate::child::entry(json!({}));
    let arguments = entry["args"].as_array().unwrap();
    std::iter::once(&entry["command"])
        .chain(arguments)
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

/// Waits until there is no process of this number, or only a dead one.
pub(crate) fn until_gone(pid: &str) {
    eventually("the process is gone", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let is_gone = status.map_or(true, |status| {
            let (_, rest) = status.rsplit_once(')').unwrap();
            rest.trim_start().starts_with('Z')
        });
        is_gone.then_some(())
    });
}
