//! A scripted MCP server: sound by itself, and saying what the test wants where it wants something
//! else.

use std::{
    collections::HashMap,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;

use super::{
    asked::{Asked, read_request},
    eventually,
    listening::Listening,
};

/// What a test wants said: `Some(())` when it has answered, `None` for the usual answer.
pub type Script = dyn Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync;

/// A running server on a port of its own; ends when dropped.
pub struct Backend {
    shared: Arc<Shared>,
    /// Taken when it ends.
    listening: Option<Listening>,
    address: SocketAddr,
}

pub(super) struct Shared {
    script: Box<Script>,
    is_modern: bool,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    seen: Vec<Asked>,
    pages: Vec<Vec<String>>,
    live_sessions: Vec<String>,
    session_count: usize,
    connection_count: usize,
    /// Those that are open, by their numbers: one that has ended holds no descriptor here.
    connections: HashMap<usize, TcpStream>,
    pub(super) name: String,
    pub(super) capabilities: String,
    pub(super) ttl_ms: u64,
}

impl Backend {
    /// A server whose tools are `echo` and the ones named here; every tool answers with its own
    /// name, the server's name and the raw arguments it got.
    pub fn start(name: &str, tools: &[&str]) -> Self {
        Self::scripted(name, tools, |_, _| None)
    }

    /// The same, where `script` comes first.
    pub fn scripted(
        name: &str,
        tools: &[&str],
        script: impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::scripted_on(listener, name, tools, script)
    }

    /// The same on a listener of the test's choice, as [`Refusing::listen`] gives one.
    pub fn scripted_on(
        listener: TcpListener,
        name: &str,
        tools: &[&str],
        script: impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start_on(listener, name, tools, false, script)
    }

    pub(super) fn start_on(
        listener: TcpListener,
        name: &str,
        tools: &[&str],
        is_modern: bool,
        script: impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            script: Box::new(script),
            is_modern,
            state: Mutex::new(State {
                name: name.to_owned(),
                capabilities: r#"{"tools":{}}"#.to_owned(),
                pages: vec![tools.iter().map(|tool| (*tool).to_owned()).collect()],
                ..State::default()
            }),
        });
        let listening = Listening::start(listener, {
            let shared = shared.clone();
            move |stream, number| {
                let own = stream.try_clone().unwrap();
                let mut state = shared.state.lock().unwrap();
                state.connection_count += 1;
                state.connections.insert(number, own);
                drop(state);
                let shared = shared.clone();
                move || {
                    let _open = Open(number, &shared);
                    converse(stream, number, &shared);
                }
            }
        });
        Self {
            shared,
            address: listening.address,
            listening: Some(listening),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its MCP endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Says this of itself from the next `initialize` on, in place of having tools only.
    pub fn set_capabilities(&self, capabilities: &str) {
        capabilities.clone_into(&mut self.shared.state.lock().unwrap().capabilities);
    }

    /// Lets its lists be kept for this long, when it is of the stateless revision.
    pub fn set_ttl_ms(&self, ttl_ms: u64) {
        self.shared.state.lock().unwrap().ttl_ms = ttl_ms;
    }

    /// Lists its tools in these pages from now on: names, or whole tools as JSON objects.
    pub fn set_pages(&self, pages: &[&[&str]]) {
        let own = |page: &&[&str]| page.iter().map(|tool| (*tool).to_owned()).collect();
        self.shared.state.lock().unwrap().pages = pages.iter().map(own).collect();
    }

    /// Forgets its sessions, as a restart does.
    pub fn lose_sessions(&self) {
        self.shared.state.lock().unwrap().live_sessions.clear();
    }

    /// Everything it was asked so far.
    pub fn seen(&self) -> Vec<Asked> {
        self.shared.state.lock().unwrap().seen.clone()
    }

    /// What it was asked with this JSON-RPC method.
    pub fn seen_rpc(&self, method: &str) -> Vec<Asked> {
        let mut seen = self.seen();
        seen.retain(|asked| asked.rpc_method().as_deref() == Some(method));
        seen
    }

    /// The answers it got to requests of its own, in order.
    pub fn answers(&self) -> Vec<Asked> {
        let mut seen = self.seen();
        seen.retain(Asked::is_answer);
        seen
    }

    /// Waits until it has got `count` answers to requests of its own.
    pub fn await_answers(&self, count: usize) -> Vec<Asked> {
        eventually("answers to the backend", || {
            Some(self.answers()).filter(|answers| answers.len() >= count)
        })
    }

    /// Waits until it was asked `count` times with this JSON-RPC method.
    pub fn await_rpc(&self, method: &str, count: usize) -> Vec<Asked> {
        eventually(method, || {
            Some(self.seen_rpc(method)).filter(|seen| seen.len() >= count)
        })
    }

    /// Sessions that are open.
    pub fn session_count(&self) -> usize {
        self.shared.state.lock().unwrap().live_sessions.len()
    }

    /// Connections it accepted.
    pub fn connection_count(&self) -> usize {
        self.shared.state.lock().unwrap().connection_count
    }

    /// Cuts all connections.
    pub fn cut_connections(&self) {
        self.shared.cut_connections();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        drop(self.listening.take());
        self.shared.cut_connections();
    }
}

impl Shared {
    fn cut_connections(&self) {
        for connection in self.state.lock().unwrap().connections.values() {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// A connection that is open, by its number.
struct Open<'a>(usize, &'a Shared);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // A script that has panicked has poisoned nothing that this needs.
        let state = self.1.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.connections.remove(&self.0);
    }
}

fn converse(mut stream: TcpStream, number: usize, shared: &Shared) {
    let mut buffer = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut buffer, number) {
        shared.state.lock().unwrap().seen.push(asked.clone());
        let mut wire = Wire {
            stream: &mut stream,
            shared,
            must_close: false,
        };
        if (shared.script)(&asked, &mut wire).is_none() {
            wire.usual(&asked);
        }
        if wire.must_close {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// The connection a request came on.
pub struct Wire<'a> {
    stream: &'a mut TcpStream,
    pub(super) shared: &'a Shared,
    must_close: bool,
}

impl Wire<'_> {
    /// Writes bytes as they are, in one TCP write.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A client that has left is the test's business, not an error here.
        self.try_send(bytes);
    }

    /// The same; false: the other side has left.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let is_sent = self.stream.write_all(bytes.as_ref()).is_ok();
        self.must_close |= !is_sent;
        std::thread::yield_now();
        is_sent
    }

    /// Whether the other side has closed the connection.
    pub fn has_left(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let seen = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        match seen {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Waits until the other side has closed the connection.
    pub fn await_end(&mut self) {
        let mut piece = [0; 1024];
        while matches!(self.stream.read(&mut piece), Ok(count) if count > 0) {}
    }

    /// Closes the connection after this answer.
    pub fn close(&mut self) {
        self.must_close = true;
    }

    /// Answers with a status, header lines (each with its CRLF) and a body.
    pub fn answer(&mut self, status: u16, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let mut bytes = format!(
            "HTTP/1.1 {status} Scripted\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        self.send(bytes);
    }

    /// Answers 200 with a JSON document.
    pub fn json(&mut self, document: impl AsRef<[u8]>) {
        self.answer(200, "content-type: application/json\r\n", document);
    }

    /// Answers a request with this raw result.
    pub fn result(&mut self, asked: &Asked, result: &str) {
        let id = asked.id();
        self.json(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ));
    }

    /// Answers a request with a JSON-RPC error.
    pub fn error(&mut self, asked: &Asked, code: i64, message: &str) {
        let id = asked.id();
        self.json(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#
        ));
    }

    /// Answers a `tools/call` with one text.
    pub fn text(&mut self, asked: &Asked, text: &str) {
        let text = Value::from(text);
        self.result(
            asked,
            &format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#),
        );
    }

    /// Begins an event stream that ends with the connection; events follow with [`Self::send`].
    pub fn stream_head(&mut self) {
        self.must_close = true;
        self.send(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        );
    }

    /// What it says when the test wants nothing else.
    pub fn usual(&mut self, asked: &Asked) {
        if self.shared.is_modern {
            return self.modern(asked);
        }
        let session = asked.header("mcp-session-id").map(str::to_owned);
        let is_known = |session: &String| {
            let state = self.shared.state.lock().unwrap();
            state.live_sessions.contains(session)
        };
        if asked.is("initialize") {
            return self.initialize(asked);
        }
        if !session.as_ref().is_some_and(is_known) {
            let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
            return self.answer(404, "content-type: application/json\r\n", error);
        }
        if asked.method == "DELETE" {
            let mut state = self.shared.state.lock().unwrap();
            state
                .live_sessions
                .retain(|live| Some(live) != session.as_ref());
            drop(state);
            return self.answer(200, "", "");
        }
        if asked.method != "POST" {
            return self.answer(405, "allow: POST, DELETE\r\n", "");
        }
        match asked.rpc_method().as_deref() {
            Some("tools/list") => self.list(asked),
            Some("tools/call") => self.call(asked),
            Some("ping") => self.result(asked, "{}"),
            Some(method) if !method.starts_with("notifications/") => {
                self.error(asked, -32601, "Method not found");
            }
            _ => self.answer(202, "", ""),
        }
    }

    /// The usual answer to `initialize`.
    pub fn initialize(&mut self, asked: &Asked) {
        let capabilities = self.shared.state.lock().unwrap().capabilities.clone();
        self.initialize_with(asked, &capabilities);
    }

    /// The same with these capabilities.
    pub fn initialize_with(&mut self, asked: &Asked, capabilities: &str) {
        let (session, name) = {
            let mut state = self.shared.state.lock().unwrap();
            state.session_count += 1;
            let session = format!("{}-session-{}", state.name, state.session_count);
            state.live_sessions.push(session.clone());
            (session, state.name.clone())
        };
        let version = asked.json()["params"]["protocolVersion"].to_string();
        let document = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":{version},"capabilities":{capabilities},"serverInfo":{{"name":"{name}","version":"1"}}}}}}"#,
            asked.id()
        );
        let headers = format!("content-type: application/json\r\nmcp-session-id: {session}\r\n");
        self.answer(200, &headers, document);
    }

    fn list(&mut self, asked: &Asked) {
        if let Some(members) = self.page(asked) {
            self.result(asked, &format!("{{{members}}}"));
        }
    }

    /// The members of the page of its tools that is asked for; `None`: there is none, which was
    /// said.
    pub(super) fn page(&mut self, asked: &Asked) -> Option<String> {
        let state = self.shared.state.lock().unwrap();
        let (pages, name) = (state.pages.clone(), state.name.clone());
        drop(state);
        let prefix = format!("{name}-page-");
        let cursor = asked.json()["params"]["cursor"].clone();
        let index: usize = match cursor.as_str() {
            None => 0,
            Some(cursor) => match cursor.strip_prefix(&prefix).and_then(|n| n.parse().ok()) {
                Some(index) => index,
                None => {
                    self.error(asked, -32602, "Invalid cursor");
                    return None;
                }
            },
        };
        let tools: Vec<String> = pages[index]
            .iter()
            .map(|tool| match tool.starts_with('{') {
                true => tool.clone(),
                false => format!(r#"{{"name":"{tool}","inputSchema":{{"type":"object"}}}}"#),
            })
            .collect();
        let next = if index + 1 < pages.len() {
            format!(r#","nextCursor":"{prefix}{}""#, index + 1)
        } else {
            String::new()
        };
        Some(format!(r#""tools":[{}]{next}"#, tools.join(",")))
    }

    fn call(&mut self, asked: &Asked) {
        let text = self.echo(asked);
        self.text(asked, &text);
    }

    /// The text that its tools answer with.
    pub(super) fn echo(&self, asked: &Asked) -> String {
        let json = asked.json();
        let name = self.shared.state.lock().unwrap().name.clone();
        let tool = asked.tool().unwrap_or_default();
        format!("{name} {tool} {}", json["params"]["arguments"])
    }
}
