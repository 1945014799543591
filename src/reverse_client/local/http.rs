//! A local server over Streamable HTTP (revisions 2025-03-26 to 2025-11-25): POSTs whose replies
//! are JSON or event streams, one GET stream, one session.
//!
//! A stream that ends before its answer is asked for again behind its last event's id, if its
//! events have ids. The session's id and revision go with every request after `initialize`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Response,
    body::Incoming,
    client::conn::http1::SendRequest,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};
use tokio::{
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};
use url::Url;

use super::{
    CONNECT_PATIENCE, POST_PATIENCE, Said, StartFault,
    posted::Fault,
    reply::{Content, Cursor, Events, Room},
};
use crate::{
    dial::{self, DialFault, Kept, SendFault},
    mcp::{
        json,
        reply_scan::{ReplyKind, scan_reply},
    },
    reverse_client::{
        MESSAGE_BYTES_MAX,
        calls::{CALL_TIME_MAX, call_id},
    },
    upstream::rpc::speaks_of_session,
};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Idle connections kept.
const IDLE_MAX: usize = 8;
/// How long a stream may go on after its answer; longer, and its connection is closed.
const TAIL_PATIENCE: Duration = Duration::from_secs(1);
/// How long the server has to end the session.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How often in a row a stream is asked for again that brings nothing.
const RESUMED_MAX: u32 = 10;
/// Between attempts to have the GET stream at the most.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

type Connection = SendRequest<Full<Bytes>>;

/// A server, and the session with it.
pub(super) struct Http {
    url: Url,
    /// Set on every request.
    headers: HeaderMap,
    tls: Arc<rustls::ClientConfig>,
    kept: Kept,
    /// Set on every request after the first.
    session: Mutex<HeaderMap>,
    /// The server was told that it is initialized.
    initialized: Notify,
    room: Room,
    pub(super) said: mpsc::Sender<Said>,
}

impl Http {
    /// A server that can be connected to; it hears nothing yet.
    pub(super) async fn reach(
        url: &Url,
        headers: &HeaderMap,
        tls: Arc<rustls::ClientConfig>,
        said: mpsc::Sender<Said>,
    ) -> Result<Self, StartFault> {
        let server = Self {
            url: url.clone(),
            headers: headers.clone(),
            tls,
            kept: Kept::new(IDLE_MAX),
            session: Mutex::default(),
            initialized: Notify::new(),
            room: Room::default(),
            said,
        };
        match server.connect().await {
            Ok(connection) => {
                server.kept.give_back(connection);
                Ok(server)
            }
            Err(fault) => Err(StartFault {
                how: fault.to_owned(),
                is_final: false,
            }),
        }
    }

    /// Posts a call and hands on all that comes of it, its answer last.
    pub(super) async fn call(
        &self,
        id: &[u8],
        message: Bytes,
        is_first: bool,
    ) -> Result<(), Fault> {
        let calling = self.call_now(id, message, is_first);
        timeout(CALL_TIME_MAX, calling)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn call_now(&self, id: &[u8], message: Bytes, is_first: bool) -> Result<(), Fault> {
        let (connection, response) = self.send(Method::POST, message, None).await?;
        if !response.status().is_success() {
            return match self.refused(response).await? {
                (_, body) if is_answer(&body, id) => self.hand_on(body).await,
                (status, _) => Err(status_fault(status)),
            };
        }
        if is_first && let Some(session) = response.headers().get(SESSION_ID) {
            self.session(|headers| headers.insert(SESSION_ID, session.clone()));
        }
        match Content::of(&response) {
            Content::Json => {
                let body = response.into_body();
                let answer = self.room.document(body, MESSAGE_BYTES_MAX).await?;
                self.kept.give_back(connection);
                if !is_answer(&answer, id) {
                    return Err(Fault::Message("answered something else".to_owned()));
                }
                if is_first {
                    self.learn(&answer);
                }
                self.hand_on(answer).await
            }
            Content::Events => {
                let body = response.into_body();
                self.follow(id, connection, body, is_first).await
            }
            Content::Other => Err(Fault::Message(
                "answered with neither JSON nor an event stream".to_owned(),
            )),
        }
    }

    /// Reads streams until the answer.
    async fn follow(
        &self,
        id: &[u8],
        mut connection: Connection,
        body: Incoming,
        is_first: bool,
    ) -> Result<(), Fault> {
        let mut cursor = Cursor::default();
        let mut events = Events::new(body, &self.room);
        let mut empty_count = 0;
        loop {
            let before = cursor.event_count;
            while let Some(message) = events.next(&mut cursor).await? {
                if !is_answer(&message, id) {
                    self.hand_on(message).await?;
                    continue;
                }
                if is_first {
                    self.learn(&message);
                }
                self.hand_on(message).await?;
                // Its end comes at once as a rule; then the connection serves again.
                let ending = async {
                    while let Ok(Some(message)) = events.next(&mut cursor).await {
                        self.hand_on(message).await?;
                    }
                    Ok::<_, Fault>(())
                };
                if let Ok(Ok(())) = timeout(TAIL_PATIENCE, ending).await {
                    self.kept.give_back(connection);
                }
                return Ok(());
            }
            empty_count = if cursor.event_count == before {
                empty_count + 1
            } else {
                0
            };
            if cursor.last_id.is_none() || empty_count > RESUMED_MAX {
                return Err(Fault::Message(
                    "ended its stream without an answer".to_owned(),
                ));
            }
            sleep(cursor.pause()).await;
            let (again, body) = self.stream(&cursor).await?;
            (connection, events) = (again, Events::new(body, &self.room));
        }
    }

    /// Posts what has no answer.
    pub(super) async fn tell(&self, message: Bytes, is_initialized: bool) -> Result<(), Fault> {
        let telling = async {
            let (connection, response) = self.send(Method::POST, message, None).await?;
            if !response.status().is_success() {
                let (status, _) = self.refused(response).await?;
                return Err(status_fault(status));
            }
            let body = response.into_body();
            self.room.document(body, REFUSAL_BYTES_MAX).await?;
            self.kept.give_back(connection);
            Ok(())
        };
        timeout(POST_PATIENCE, telling)
            .await
            .unwrap_or_else(|_| Err(late()))?;
        if is_initialized {
            self.initialized.notify_one();
        }
        Ok(())
    }

    /// Reads the GET stream from when the server is initialized, and has it again when it ends. A
    /// server need not have one. Errs when the server is gone.
    pub(super) async fn listen(&self) -> Result<(), String> {
        self.initialized.notified().await;
        let mut cursor = Cursor::default();
        let mut was_open = false;
        let mut failed_count = 0;
        loop {
            let outcome = match self.stream(&cursor).await {
                Ok((_, body)) => {
                    (was_open, failed_count) = (true, 0);
                    self.read_on(body, &mut cursor).await
                }
                Err(fault) => Err(fault),
            };
            match outcome {
                Ok(()) => {}
                // Some say 404 for a stream they do not have.
                Err(_) if !was_open => return Ok(()),
                Err(Fault::Gone(how)) => return Err(how),
                Err(Fault::Message(_)) => failed_count += 1,
            }
            let pause = cursor.pause().saturating_mul(1 << failed_count.min(10));
            sleep(pause.min(PAUSE_MAX)).await;
        }
    }

    async fn read_on(&self, body: Incoming, cursor: &mut Cursor) -> Result<(), Fault> {
        let mut events = Events::new(body, &self.room);
        while let Some(message) = events.next(cursor).await? {
            self.hand_on(message).await?;
        }
        Ok(())
    }

    /// Ends the session, if there is one.
    pub(super) async fn end(&self) {
        if self.session(|headers| headers.contains_key(SESSION_ID)) {
            let ending = self.send(Method::DELETE, Bytes::new(), None);
            // A server that does not answer ends it by itself some time.
            let _ = timeout(END_PATIENCE, ending).await;
        }
    }

    /// Asks for a stream that goes on where the cursor is.
    async fn stream(&self, cursor: &Cursor) -> Result<(Connection, Incoming), Fault> {
        let last_id = cursor.last_id.clone();
        let asking = self.send(Method::GET, Bytes::new(), last_id);
        let (connection, response) = timeout(POST_PATIENCE, asking)
            .await
            .unwrap_or_else(|_| Err(late()))?;
        if !response.status().is_success() {
            let (status, _) = self.refused(response).await?;
            return Err(status_fault(status));
        }
        match Content::of(&response) {
            Content::Events => Ok((connection, response.into_body())),
            _ => Err(Fault::Message("answered with no event stream".to_owned())),
        }
    }

    async fn send(
        &self,
        method: Method,
        body: Bytes,
        last_id: Option<HeaderValue>,
    ) -> Result<(Connection, Response<Incoming>), Fault> {
        let mut headers = self.headers.clone();
        self.session(|session| headers.extend(session.clone()));
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let accepted = HeaderValue::from_static("application/json, text/event-stream");
            headers.insert(ACCEPT, accepted);
        } else if method == Method::GET {
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        }
        if let Some(last_id) = last_id {
            headers.insert(LAST_EVENT_ID, last_id);
        }
        let make = || dial::request(method.clone(), &self.url, &headers, body.clone());
        match self.kept.send(make, self.connect()).await {
            Ok(answered) => Ok(answered),
            Err(SendFault::Connect(how)) => Err(Fault::Gone(how.to_owned())),
            Err(SendFault::Cut) => Err(Fault::Message("closed the connection".to_owned())),
        }
    }

    async fn connect(&self) -> Result<Connection, &'static str> {
        // Where the server is, is the operator's business.
        let connecting = dial::connect(&self.url, &self.tls, |_| true);
        match timeout(CONNECT_PATIENCE, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(DialFault::NoAddress)) => Err("has a name without an address"),
            Ok(Err(DialFault::Connect)) => Err("cannot be connected to"),
            Ok(Err(DialFault::Tls)) => Err("cannot be trusted: no TLS session with it"),
            Err(_) => Err("cannot be connected to in time"),
        }
    }

    /// What a refusal says; a fault when it says that the session is lost.
    async fn refused(&self, response: Response<Incoming>) -> Result<(u16, Vec<u8>), Fault> {
        let status = response.status().as_u16();
        let is_json = Content::of(&response) == Content::Json;
        let body = if is_json {
            let reading = self.room.document(response.into_body(), REFUSAL_BYTES_MAX);
            let read = timeout(POST_PATIENCE, reading).await;
            read.ok().and_then(Result::ok).unwrap_or_default()
        } else {
            Vec::new()
        };
        let has_session = self.session(|headers| headers.contains_key(SESSION_ID));
        // Real servers say 400 for a session they do not know (mcp.md 0.7).
        let is_lost = status == 404 || status == 400 && speaks_of_session(&body);
        if has_session && is_lost {
            return Err(Fault::Gone("has lost the session".to_owned()));
        }
        Ok((status, body))
    }

    /// Keeps the revision that `initialize` was answered with.
    fn learn(&self, answer: &[u8]) {
        let version = json::member(answer, "result").and_then(|result| {
            let result = result.slice(answer);
            let version = json::member(result, "protocolVersion")?.slice(result);
            HeaderValue::from_str(&json::unescape(version)?).ok()
        });
        if let Some(version) = version {
            self.session(|headers| headers.insert(PROTOCOL_VERSION, version));
        }
    }

    async fn hand_on(&self, message: Vec<u8>) -> Result<(), Fault> {
        let sent = self.said.send(Said::Message(message)).await;
        sent.map_err(|_| Fault::Gone("was let go".to_owned()))
    }

    fn session<R>(&self, work: impl FnOnce(&mut HeaderMap) -> R) -> R {
        work(&mut self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a message is the answer to the call.
fn is_answer(message: &[u8], id: &[u8]) -> bool {
    scan_reply(message).is_ok_and(|scan| {
        matches!(scan.kind, ReplyKind::Result | ReplyKind::Error)
            && scan
                .id
                .is_some_and(|span| *call_id(span.slice(message)) == *id)
    })
}

fn late() -> Fault {
    Fault::Message("did not answer in time".to_owned())
}

fn status_fault(status: u16) -> Fault {
    Fault::Message(format!("answered with HTTP status {status}"))
}
