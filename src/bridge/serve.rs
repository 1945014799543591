//! The bridge's HTTP side: Streamable HTTP (mcp.md 1.2, revision 2025-11-25) for shards alone.
//!
//! Every request carries the secret of this process; without it the answer is 403 and nothing else
//! is looked at. What a shard sees is a backend like any other.

mod reverse;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::{Instant, timeout, timeout_at},
};

use super::{
    SECRET_HEADER, URL_HEADER,
    hub::{Hub, Unopened},
    ledger::{Caller, Refused, Ticket},
    peer::{self, Heard, Peer, SendFault, Session, Told},
};
use crate::{
    http::sse,
    log,
    mcp::{
        envelope::{Envelope, Kind, scan},
        json::{self, DEPTH_MAX},
        reply_scan::scan_reply,
    },
    refusal::rpc_error,
};

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Reply = Response<Body>;

/// Connections of all shards together: their pools, and one for each GET stream.
const CONNECTIONS_MAX: usize = 16 << 10;
/// For a request's head, from the end of the one before. Longer than shards keep an idle
/// connection, so that it is they who close it.
const HEAD_PATIENCE: Duration = Duration::from_secs(120);
/// For a request's body.
const BODY_PATIENCE: Duration = Duration::from_secs(15);
const SESSION_HEADER: &str = "mcp-session-id";

/// Serves until the runtime ends.
pub(super) async fn serve(listener: TcpListener, hub: Arc<Hub>, secret: Arc<str>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, as a rule: some will be free again.
                log::warn(|| format!("the bridge cannot accept: {}", error.kind()));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (hub, secret) = (hub.clone(), secret.clone());
        tokio::spawn(async move {
            converse(stream, hub, secret).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, hub: Arc<Hub>, secret: Arc<str>) {
    // Without it a reply may wait for an acknowledgement; it arrives all the same.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let (hub, secret) = (hub.clone(), secret.clone());
        async move { Ok::<_, Infallible>(answer(&hub, &secret, request).await) }
    });
    // What fails here is a shard that has left.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(hub: &Arc<Hub>, secret: &str, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let given = head.headers.get(SECRET_HEADER).map(HeaderValue::as_bytes);
    if !given.is_some_and(|given| is_same(given, secret.as_bytes())) {
        return plain(StatusCode::FORBIDDEN);
    }
    let Some(way) = Way::of(head.uri.path(), &head.headers) else {
        return plain(StatusCode::NOT_FOUND);
    };
    let id = head.headers.get(SESSION_HEADER).map(HeaderValue::to_str);
    let id = match id {
        Some(Ok(id)) => Some(id.to_owned()),
        Some(Err(_)) => return no_session(None),
        None => None,
    };
    match (head.method, id) {
        (Method::POST, id) => {
            let body = Limited::new(body, hub.limits.body_bytes_max);
            match timeout(BODY_PATIENCE, body.collect()).await {
                Ok(Ok(body)) => {
                    let request = Posted {
                        hub,
                        way: &way,
                        headers: way.passed(head.headers),
                        body: body.to_bytes(),
                        stateless: None,
                    };
                    match way.is_reverse {
                        true => reverse::answer(request, id.as_deref()).await,
                        false => request.answer(id.as_deref()).await,
                    }
                }
                _ => plain(StatusCode::PAYLOAD_TOO_LARGE),
            }
        }
        (Method::GET, Some(id)) => match hub.session(&way.route, &id) {
            Some(session) => stream_of(session),
            None => no_session(None),
        },
        (Method::DELETE, Some(id)) => {
            if hub.end(&way.route, &id) {
                plain(StatusCode::OK)
            } else {
                no_session(None)
            }
        }
        (Method::GET | Method::DELETE, None) => plain(StatusCode::BAD_REQUEST),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// Compares in a time that does not tell how much is equal.
fn is_same(given: &[u8], secret: &[u8]) -> bool {
    given.len() == secret.len()
        && given
            .iter()
            .zip(secret)
            .fold(0, |seen, (left, right)| seen | (left ^ right))
            == 0
}

/// Which server a request is for.
struct Way {
    /// What sessions are bound to: the path, for HTTP+SSE with the server's address.
    route: Box<str>,
    url: Option<Box<str>>,
    /// A server that connects to us.
    is_reverse: bool,
}

impl Way {
    fn of(path: &str, headers: &HeaderMap) -> Option<Self> {
        if path == "/sse" {
            let url = headers.get(URL_HEADER)?.to_str().ok()?;
            return Some(Self {
                route: url.into(),
                url: Some(url.into()),
                is_reverse: false,
            });
        }
        let reverse = path.strip_prefix("/reverse/");
        let id = reverse.or_else(|| path.strip_prefix("/stdio/"))?;
        Some(Self {
            route: id.into(),
            url: None,
            is_reverse: reverse.is_some(),
        })
    }

    /// The headers a server gets: those of the configuration and the caller, not those between a
    /// shard and the bridge.
    fn passed(&self, headers: HeaderMap) -> HeaderMap {
        if self.url.is_none() {
            return HeaderMap::new();
        }
        let is_between = |name: &HeaderName| {
            matches!(
                name.as_str(),
                "host"
                    | "connection"
                    | "content-length"
                    | "content-type"
                    | "transfer-encoding"
                    | "keep-alive"
                    | "te"
                    | "trailer"
                    | "upgrade"
                    | "accept"
                    | "accept-encoding"
                    | SESSION_HEADER
                    | SECRET_HEADER
                    | URL_HEADER
            )
        };
        let mut passed = HeaderMap::new();
        for (name, value) in &headers {
            if !is_between(name) {
                passed.append(name.clone(), value.clone());
            }
        }
        passed
    }
}

/// A POST, read whole.
struct Posted<'a> {
    hub: &'a Arc<Hub>,
    way: &'a Way,
    headers: HeaderMap,
    body: Bytes,
    /// It is of the stateless revision, and its result is one to be kept for a while or not.
    stateless: Option<reverse::IsKept>,
}

impl Posted<'_> {
    async fn answer(self, id: Option<&str>) -> Reply {
        let Ok(message) = scan(&self.body, DEPTH_MAX) else {
            return rpc(StatusCode::BAD_REQUEST, None, -32600, "Invalid Request");
        };
        match id {
            Some(id) => match self.hub.session(&self.way.route, id) {
                Some(session) => self.within(session, &message).await,
                None => no_session(message.id.map(|at| at.slice(&self.body))),
            },
            None if self.is(&message, b"initialize") && message.kind == Kind::Request => {
                let limit = Instant::now() + self.hub.limits.initialize;
                let opened = timeout_at(limit, self.open(&message, limit)).await;
                let outcome = opened.unwrap_or(Err(Unopened::Late));
                outcome.unwrap_or_else(|fault| plain(fault.status()))
            }
            None => rpc(
                StatusCode::BAD_REQUEST,
                message.id.map(|at| at.slice(&self.body)),
                -32000,
                "Bad Request: no valid session ID provided",
            ),
        }
    }

    fn is(&self, message: &Envelope, method: &[u8]) -> bool {
        message
            .method
            .is_some_and(|at| at.slice(&self.body) == method)
    }

    /// `initialize`: a server is started or joined, and the session entered when it agrees.
    async fn open(&self, message: &Envelope, limit: Instant) -> Result<Reply, Unopened> {
        let (hub, way) = (self.hub, self.way);
        let session = match &way.url {
            Some(url) => {
                let opened = hub.open_remote(&way.route, url, self.headers.clone());
                opened.await?
            }
            None => hub.open_child(&way.route, &way.route).await?,
        };
        let document = if session.peer.is_shared {
            self.joined(&session, message, limit).await?
        } else {
            self.asked(&session, message, limit).await?
        };
        let is_result = scan_reply(&document).is_ok_and(|reply| reply.result.is_some());
        let mut reply = json_reply(document);
        if is_result {
            let id = hub.enter(session).ok_or(Unopened::Busy)?;
            if let Ok(value) = HeaderValue::from_str(&id) {
                reply.headers_mut().insert(SESSION_HEADER, value);
            }
        }
        Ok(reply)
    }

    /// The server's answer to `initialize`.
    async fn asked(
        &self,
        session: &Arc<Session>,
        message: &Envelope,
        limit: Instant,
    ) -> Result<Vec<u8>, Unopened> {
        let begun = self.begin(session, message);
        let mut call = begun.map_err(|_| Unopened::Failed)?;
        loop {
            match call.next(limit).await {
                Ok(Told::Answer(document)) => return Ok(document),
                // Nobody could hear it yet.
                Ok(Told::Aside(_)) => {}
                Err(SendFault::Status(status)) => return Err(Unopened::Status(status)),
                Err(SendFault::Late) => return Err(Unopened::Late),
                Err(SendFault::Gone) => return Err(Unopened::Failed),
            }
        }
    }

    /// The answer of a shared server: what it said to the first session.
    async fn joined(
        &self,
        session: &Arc<Session>,
        message: &Envelope,
        limit: Instant,
    ) -> Result<Vec<u8>, Unopened> {
        let mut handshake = session.peer.handshake.lock().await;
        if let (Some(result), Some(id)) = (&*handshake, message.id) {
            return Ok(result_document(id.slice(&self.body), result));
        }
        let document = self.asked(session, message, limit).await?;
        let result = json::member(&document, "result").map(|at| at.slice(&document).to_vec());
        *handshake = result;
        Ok(document)
    }

    async fn within(self, session: Arc<Session>, message: &Envelope) -> Reply {
        if message.kind == Kind::Request {
            return self.call(session, message).await;
        }
        let is_second = session.peer.is_shared
            && self.is(message, b"notifications/initialized")
            && !session.peer.initialized();
        let line = session.peer.other(session.key, &self.body, message);
        match line.filter(|_| !is_second) {
            None => plain(StatusCode::ACCEPTED),
            Some(line) => match session.peer.send(line, self.headers).await {
                Ok(()) => plain(StatusCode::ACCEPTED),
                Err(fault) => failed(fault, None),
            },
        }
    }

    /// Enters a request and sends it on its way.
    fn begin(&self, session: &Arc<Session>, message: &Envelope) -> Result<Call, Refused> {
        let (sink, told) = peer::sink();
        let peer = session.peer.clone();
        let caller = Caller {
            session: session.key,
            can_be_asked: self.stateless.is_none(),
        };
        let (ticket, line) = peer.request(caller, &self.body, message, sink)?;
        let own = self.way.is_reverse.then(|| reverse::Manner {
            id: message
                .id
                .map_or(&b"null"[..], |at| at.slice(&self.body))
                .into(),
            method: message
                .method
                .map_or(&b""[..], |at| at.slice(&self.body))
                .into(),
            stateless: self.stateless,
            numbers: self.hub.numbers.clone(),
        });
        let (failed, fault) = mpsc::channel(1);
        let (sender, headers) = (peer.clone(), self.headers.clone());
        // On its own: an HTTP+SSE server may answer before it has taken the POST.
        tokio::spawn(async move {
            if let Err(fault) = sender.send(line, headers).await {
                // Whoever waited may have left.
                let _ = failed.try_send(fault);
            }
        });
        Ok(Call {
            _session: session.clone(),
            peer,
            ticket,
            told,
            fault,
            is_unsent: false,
            reverse: own,
        })
    }

    async fn call(self, session: Arc<Session>, message: &Envelope) -> Reply {
        let id = message.id.map(|at| at.slice(&self.body));
        let mut call = match self.begin(&session, message) {
            Ok(call) => call,
            Err(Refused::Gone) => return no_session(id),
            Err(Refused::TooMany) => return plain(StatusCode::SERVICE_UNAVAILABLE),
            Err(Refused::Duplicate | Refused::NoRequest) => {
                return rpc(StatusCode::BAD_REQUEST, id, -32600, "Invalid Request");
            }
        };
        let limit = Instant::now() + self.hub.limits.call;
        let Ok(heard) = timeout(self.hub.limits.stream_after, call.next(limit)).await else {
            return streamed(call, comment(), limit);
        };
        match heard {
            Ok(Told::Answer(document)) => json_reply(document),
            Ok(Told::Aside(document)) => streamed(call, event(&document), limit),
            Err(fault @ SendFault::Gone) if call.is_unsent => {
                // It knows the session no more, so nothing was done.
                self.hub.forget(&session);
                failed(fault, id)
            }
            Err(SendFault::Gone) => plain(StatusCode::BAD_GATEWAY),
            Err(fault) => failed(fault, id),
        }
    }
}

/// A request under way; forgotten when dropped.
struct Call {
    /// Held: the server lives as long as its callers.
    _session: Arc<Session>,
    peer: Arc<Peer>,
    ticket: Ticket,
    told: Heard,
    fault: mpsc::Receiver<SendFault>,
    is_unsent: bool,
    /// The server is one that connects to us.
    reverse: Option<reverse::Manner>,
}

impl Call {
    /// What the server says next.
    async fn next(&mut self, limit: Instant) -> Result<Told, SendFault> {
        let heard = async {
            tokio::select! {
                biased;
                told = self.told.next() => told.ok_or(SendFault::Gone),
                Some(fault) = self.fault.recv() => {
                    self.is_unsent = true;
                    Err(fault)
                }
            }
        };
        let heard = timeout_at(limit, heard)
            .await
            .unwrap_or(Err(SendFault::Late));
        match &self.reverse {
            Some(manner) => Ok(manner.told(heard)),
            None => heard,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.peer.forget(&self.ticket);
    }
}

/// An event stream that begins with `first` and ends with the answer, or without one.
fn streamed(call: Call, first: Part, limit: Instant) -> Reply {
    let state = (Some(call), Some(first));
    let events = stream::unfold(state, move |(call, first)| async move {
        let mut call = call?;
        if let Some(first) = first {
            return Some((first, (Some(call), None)));
        }
        match call.next(limit).await {
            Ok(Told::Aside(document)) => Some((event(&document), (Some(call), None))),
            Ok(Told::Answer(document)) => Some((event(&document), (None, None))),
            Err(_) => None,
        }
    });
    event_stream(StreamBody::new(events).boxed_unsync())
}

/// A session's GET stream.
fn stream_of(session: Arc<Session>) -> Reply {
    let stream = session.outbox.open();
    let state = (session, stream, true);
    let events = stream::unfold(state, |(session, stream, is_first)| async move {
        if is_first {
            return Some((comment(), (session, stream, false)));
        }
        let message = stream.next().await?;
        Some((event(&message), (session, stream, false)))
    });
    event_stream(StreamBody::new(events).boxed_unsync())
}

/// A part of a stream.
type Part = Result<Frame<Bytes>, Infallible>;

/// Has the head go out at once.
fn comment() -> Part {
    let mut text = Vec::new();
    sse::write_comment(&mut text, b"ok");
    Ok(Frame::data(text.into()))
}

fn event(document: &[u8]) -> Part {
    let mut text = Vec::new();
    sse::write_event(&mut text, None, None, document);
    Ok(Frame::data(text.into()))
}

fn event_stream(body: Body) -> Reply {
    let mut reply = Response::new(body);
    let kind = HeaderValue::from_static("text/event-stream");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed_unsync()
}

fn plain(status: StatusCode) -> Reply {
    let mut reply = Response::new(full(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

fn json_reply(document: Vec<u8>) -> Reply {
    let mut reply = Response::new(full(document));
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn rpc(status: StatusCode, id: Option<&[u8]>, code: i32, text: &str) -> Reply {
    let mut reply = json_reply(rpc_error(id, code, text));
    *reply.status_mut() = status;
    reply
}

/// mcp.md 1.2: 404 makes the shard initialize again.
fn no_session(id: Option<&[u8]>) -> Reply {
    rpc(StatusCode::NOT_FOUND, id, -32001, "Session not found")
}

fn failed(fault: SendFault, id: Option<&[u8]>) -> Reply {
    match fault {
        SendFault::Gone => no_session(id),
        SendFault::Late => plain(StatusCode::GATEWAY_TIMEOUT),
        SendFault::Status(status) => plain(passed_status(status)),
    }
}

/// A refusal is the server's own word; anything else it may have meant is a failure here.
fn passed_status(status: u16) -> StatusCode {
    match status {
        400..=599 => StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY),
        _ => StatusCode::BAD_GATEWAY,
    }
}

pub(super) fn result_document(id: &[u8], result: &[u8]) -> Vec<u8> {
    let mut document = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    document.extend_from_slice(id);
    document.extend_from_slice(br#","result":"#);
    document.extend_from_slice(result);
    document.push(b'}');
    document
}

impl Unopened {
    fn status(self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed => StatusCode::BAD_GATEWAY,
            Self::Status(status) => passed_status(status),
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_equal_only_to_itself() {
        assert!(is_same(b"abc", b"abc"));
        for other in [&b"abd"[..], b"bbc", b"ab", b"abcd", b""] {
            assert!(!is_same(other, b"abc"));
        }
    }

    #[test]
    fn the_headers_between_a_shard_and_the_bridge_stay_there() {
        let mut headers = HeaderMap::new();
        for name in [
            "host",
            "mcp-session-id",
            "authorization",
            "mcp-protocol-version",
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        headers.insert(SECRET_HEADER, HeaderValue::from_static("x"));
        headers.insert(URL_HEADER, HeaderValue::from_static("http://h/sse"));
        let way = Way::of("/sse", &headers).unwrap();
        let passed = way.passed(headers.clone());
        let mut names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "mcp-protocol-version"]);
        // A child process has no headers.
        let way = Way::of("/stdio/x", &headers).unwrap();
        assert!(way.passed(headers).is_empty());
        assert!(Way::of("/", &HeaderMap::new()).is_none());
        assert!(Way::of("/sse", &HeaderMap::new()).is_none());
    }
}
