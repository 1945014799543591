//! A client that can do all that a server may ask of it: `#[path = "support/conversation.rs"] mod
//! conversation;`. It answers the server's requests itself and keeps the bytes of all it hears.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::support::{Ask, Connection, PATIENCE, Response};

/// What one JSON-RPC message is, and the bytes that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It wants no answer; its params.
    Notification,
    /// The server wants an answer; its params.
    Request,
    /// A result.
    Result,
    /// An error.
    Error,
}

/// A message from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its method; empty in answers.
    pub(crate) method: String,
    /// Its id as it was written.
    pub(crate) id: Option<String>,
    /// Params, result or error as they were written.
    pub(crate) raw: String,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Heard {
    fn parse(text: &str) -> Self {
        let message: Message<'_> =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let kind = match (&message.method, message.id, message.result) {
            (Some(_), Some(_), _) => Kind::Request,
            (Some(_), None, _) => Kind::Notification,
            (None, _, Some(_)) => Kind::Result,
            (None, _, None) => Kind::Error,
        };
        let raw = message.params.or(message.result).or(message.error);
        Self {
            kind,
            method: message.method.unwrap_or_default(),
            id: message.id.map(|id| id.get().to_owned()),
            raw: raw.map_or_else(String::new, |raw| raw.get().to_owned()),
        }
    }

    /// The bytes that count, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.raw).unwrap_or_default()
    }
}

/// What answers a server's requests: method and params in, a result or an error out, as the
/// message's last member.
pub(crate) type Answers = Arc<dyn Fn(&Heard) -> String + Send + Sync>;

/// A session from which requests are sent; several threads may have one of these each.
#[derive(Clone)]
pub(crate) struct Asker {
    address: SocketAddr,
    target: String,
    session: Option<String>,
    version: String,
    answers: Answers,
    next_id: Arc<AtomicU64>,
}

/// The answer to a request, and what came before it on its stream.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The answer.
    pub(crate) reply: Heard,
    /// What came before.
    pub(crate) before: Vec<Heard>,
}

impl Outcome {
    /// The result, which must be one.
    pub(crate) fn result(&self) -> serde_json::Value {
        assert_eq!(self.reply.kind, Kind::Result, "{}", self.reply.raw);
        self.reply.json()
    }

    /// The error's code, which must be one.
    pub(crate) fn error_code(&self) -> i64 {
        assert_eq!(self.reply.kind, Kind::Error, "{}", self.reply.raw);
        self.reply.json()["code"].as_i64().unwrap()
    }
}

impl Asker {
    fn post(&self, body: &str) -> Ask {
        let mut ask = Ask::post(&self.target, body);
        if let Some(session) = &self.session {
            ask = ask
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", &self.version);
        }
        ask
    }

    /// Sends what has no answer.
    fn send(&self, body: &str) {
        let response = Connection::open(self.address).ask(&self.post(body));
        assert_eq!(response.status, 202, "{body}: {}", response.text());
    }

    /// Sends a notification; `params` is raw and may be empty.
    pub(crate) fn notify(&self, method: &str, params: &str) {
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","method":"{method}"{}}}"#,
            member(params)
        ));
    }

    /// Sends a request and listens until it is answered; `params` is raw and may be empty.
    pub(crate) fn ask(&self, method: &str, params: &str) -> Outcome {
        // Numbers and strings by turns: both must come back as they were sent.
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let id = match number % 2 {
            0 => number.to_string(),
            _ => format!(r#""q-{number}""#),
        };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{}}}"#,
            member(params)
        );
        let mut connection = Connection::open(self.address);
        connection.send(self.post(&body).bytes());
        let mut messages = Messages::of(connection);
        assert_eq!(messages.head.status, 200, "{body}: {}", messages.text);
        let mut before = Vec::new();
        let reply = loop {
            let heard = messages
                .next()
                .unwrap_or_else(|| panic!("{method} was not answered"));
            if matches!(heard.kind, Kind::Result | Kind::Error) {
                break heard;
            }
            self.attend(&heard);
            before.push(heard);
        };
        assert_eq!(reply.id.as_ref(), Some(&id), "{method}: {}", reply.raw);
        Outcome { reply, before }
    }

    /// Sends a request with a raw id and gives what comes back, as it comes.
    pub(crate) fn start(&self, id: &str, method: &str, params: &str) -> Messages {
        let params = member(params);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#);
        let mut connection = Connection::open(self.address);
        connection.send(self.post(&body).bytes());
        Messages::of(connection)
    }

    /// Takes up a stream that ended, behind the event with this id.
    pub(crate) fn resume(&self, last_id: &str) -> Messages {
        let mut connection = Connection::open(self.address);
        connection.send(self.get().header("last-event-id", last_id).bytes());
        let messages = Messages::of(connection);
        assert_eq!(messages.head.status, 200, "{}", messages.text);
        messages
    }

    /// The request for the GET stream.
    fn get(&self) -> Ask {
        let mut ask = self.post("").without("content-type");
        ask = ask.with("accept", "text/event-stream");
        ask.method = "GET".to_owned();
        ask.body = None;
        ask
    }

    /// Answers a request of the server.
    pub(crate) fn answer(&self, asked: &Heard, answer: &str) {
        let id = asked.id.as_ref().unwrap();
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#));
    }

    /// Sends requests as one batch; each is a method and raw params. Gives their answers in order,
    /// whatever order and form they came in, and what came before them.
    pub(crate) fn ask_batch(&self, requests: &[(&str, &str)]) -> (Vec<Heard>, Vec<Heard>) {
        let bodies: Vec<String> = requests
            .iter()
            .enumerate()
            .map(|(number, (method, params))| {
                let params = member(params);
                format!(r#"{{"jsonrpc":"2.0","id":"batch-{number}","method":"{method}"{params}}}"#)
            })
            .collect();
        let mut connection = Connection::open(self.address);
        connection.send(self.post(&format!("[{}]", bodies.join(","))).bytes());
        let mut messages = Messages::of(connection);
        assert_eq!(messages.head.status, 200, "{}", messages.text);
        let (mut answers, mut before) = (Vec::new(), Vec::new());
        while answers.len() < requests.len() {
            let heard = messages.next().expect("the whole batch is answered");
            if matches!(heard.kind, Kind::Result | Kind::Error) {
                answers.push(heard);
            } else {
                self.attend(&heard);
                before.push(heard);
            }
        }
        answers.sort_by_key(|heard| heard.id.clone());
        (answers, before)
    }

    /// Answers it, if it is a request.
    fn attend(&self, heard: &Heard) {
        if heard.kind == Kind::Request {
            self.answer(heard, &(self.answers)(heard));
        }
    }
}

fn member(params: &str) -> String {
    match params {
        "" => String::new(),
        params => format!(r#","params":{params}"#),
    }
}

/// The messages of an answer: one, or an event stream's in any dialect, as they come.
pub(crate) struct Messages {
    head: Response,
    /// What brings more; `None`: all is there.
    connection: Option<Connection>,
    /// Lines of an event stream.
    text: String,
    /// The rest of an array.
    batch: VecDeque<Heard>,
    /// The id of the last event, from which the stream can be taken up again.
    pub(crate) last_id: Option<String>,
}

impl Messages {
    /// Reads a head, and what has a known end.
    fn of(mut connection: Connection) -> Self {
        let head = connection.read_head();
        let is_stream = head.header("content-type") == Some("text/event-stream");
        if is_stream && head.header("transfer-encoding") == Some("chunked") {
            return Self {
                head,
                connection: Some(connection),
                text: String::new(),
                batch: VecDeque::new(),
                last_id: None,
            };
        }
        let head = connection.read_body("POST", head);
        let text = match is_stream {
            true => head.text().replace("\r\n", "\n"),
            false => format!("data:{}\n\n", head.text()),
        };
        Self {
            head,
            connection: None,
            text,
            batch: VecDeque::new(),
            last_id: None,
        }
    }

    /// The next one; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.batch.pop_front() {
                return Some(heard);
            }
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let data: Vec<&str> = block
                    .lines()
                    .filter_map(|line| line.strip_prefix("data:"))
                    .map(str::trim_start)
                    .collect();
                let data = data.join("\n");
                let mut ids = block.lines().filter_map(|line| line.strip_prefix("id:"));
                if let Some(id) = ids.next_back() {
                    self.last_id = Some(id.trim_start().to_owned());
                }
                self.text = rest.to_owned();
                // Not a comment, and not the event that only brings an id.
                if data.starts_with('[') {
                    let all: Vec<&RawValue> = serde_json::from_str(&data).unwrap();
                    self.batch = all.into_iter().map(|one| Heard::parse(one.get())).collect();
                } else if !data.is_empty() {
                    return Some(Heard::parse(&data));
                }
                continue;
            }
            let chunk = self.connection.as_mut()?.read_chunk()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
            self.text = self.text.replace("\r\n", "\n");
        }
    }
}

/// A session with an open GET stream.
pub(crate) struct Conversation {
    asker: Asker,
    /// The answer to `initialize`.
    pub(crate) greeting: Heard,
    heard: Receiver<Heard>,
    waiting: VecDeque<Heard>,
    /// Shorter once something did not come: the test has failed by then.
    patience: Duration,
    listener: Option<JoinHandle<()>>,
}

impl std::ops::Deref for Conversation {
    type Target = Asker;

    fn deref(&self) -> &Asker {
        &self.asker
    }
}

impl Conversation {
    /// Opens one at an endpoint, asking for a revision with these raw capabilities.
    pub(crate) fn open(url: &str, version: &str, capabilities: &str, answers: Answers) -> Self {
        let (address, path) = url
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once('/'))
            .unwrap();
        let mut asker = Asker {
            address: address.parse().unwrap(),
            target: format!("/{path}"),
            session: None,
            version: version.to_owned(),
            answers,
            next_id: Arc::default(),
        };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"walker","version":"1"}}}}}}"#
        );
        let mut connection = Connection::open(asker.address);
        connection.send(asker.post(&body).bytes());
        let mut messages = Messages::of(connection);
        let greeting = messages.next().unwrap();
        let session = messages.head.header("mcp-session-id").unwrap();
        asker.session = Some(session.to_owned());
        asker.notify("notifications/initialized", "");
        let (sender, heard) = channel();
        let listener = listen(&asker, sender);
        Self {
            asker,
            greeting,
            heard,
            waiting: VecDeque::new(),
            patience: PATIENCE / 2,
            listener: Some(listener),
        }
    }

    /// Sends requests of this session on another thread.
    pub(crate) fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// The next message of the GET stream that `is_it` wants, waited for; the others stay.
    pub(crate) fn next_heard(&mut self, is_it: impl Fn(&Heard) -> bool) -> Option<Heard> {
        if let Some(at) = self.waiting.iter().position(&is_it) {
            return self.waiting.remove(at);
        }
        let end = Instant::now() + self.patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok(heard) if is_it(&heard) => return Some(heard),
                Ok(heard) => self.waiting.push_back(heard),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.patience = Duration::from_millis(500);
                    return None;
                }
            }
        }
    }

    /// What came on the GET stream and nobody asked for, so far.
    pub(crate) fn unasked(&mut self) -> Vec<Heard> {
        self.waiting.extend(self.heard.try_iter());
        self.waiting.drain(..).collect()
    }

    /// Ends the session, and gives what came on the GET stream and nobody asked for.
    pub(crate) fn close(mut self) -> Vec<Heard> {
        let mut ask = self.asker.post("").without("content-type");
        ask.method = "DELETE".to_owned();
        ask.body = None;
        let response = Connection::open(self.asker.address).ask(&ask);
        assert!((200..300).contains(&response.status));
        self.listener.take().unwrap().join().unwrap();
        self.unasked()
    }
}

/// Opens the GET stream, answers what is asked on it and hands on what is heard.
fn listen(asker: &Asker, sender: Sender<Heard>) -> JoinHandle<()> {
    let mut connection = Connection::open(asker.address);
    connection.send(asker.get().bytes());
    let mut messages = Messages::of(connection);
    assert_eq!(messages.head.status, 200);
    let asker = asker.clone();
    std::thread::spawn(move || {
        while let Some(heard) = messages.next() {
            // An answer that takes its time must not keep others from being asked.
            let (asker, asked) = (asker.clone(), heard.clone());
            std::thread::spawn(move || asker.attend(&asked));
            if sender.send(heard).is_err() {
                return;
            }
        }
    })
}
