//! One client connection: requests in, replies out, in order, until it ends or moves away.
//!
//! Idle → Head → Body → Serving → Idle, or closed. While idle it holds no buffer unless its client
//! keeps it busy. A request is read whole, steered, and served here, on its owner over the ring, or
//! by the owner after the whole connection has moved there.

mod forward;

use std::{net::SocketAddr, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use shards::{MovedSocket, Stream, clock::coarse_ms, deadline::now_ms, stream::READ_BYTES_MIN};

use crate::{
    connection_gateway::{Node, api, socket},
    http::{
        ChunkDecoder, Framing, HeadLimits, HttpRefusal, KnownHead, Method, Parsed, PathRule,
        RequestHead, header_values, parse_request_under,
    },
    link::Link,
    mcp::{envelope, json::DEPTH_MAX, version::STATELESS},
    refusal::Refusal,
    reply::{Reply, Sink},
    request::{self, Request},
    session::SessionId,
    shard_state::ShardState,
    stateless::held,
    steer::{self, ConnectionHistory, Decision},
};

/// A request comes soon that follows the last reply within this time.
const BUSY_MS: u64 = 20;
/// After so many in a row a connection waits with its read buffer, which saves a readiness check a
/// request. Fewer are what each client begins with before it rests; a late one costs half of them.
const BUSY_COUNT: u8 = 8;
/// Bytes read ahead of a request being served at the most: pipelined requests wait in the kernel.
const READ_AHEAD_BYTES_MAX: usize = 64 * 1024;

/// Starts to serve an accepted connection.
pub fn accepted(shard: &Rc<ShardState>, stream: Stream, peer: SocketAddr, listener: u8) {
    if shard.shard.own_counters().open.value() >= shard.connections_max() {
        // Over the limit: closing is the only answer that costs nothing.
        return;
    }
    // A handshake counts: half-open ones are what a flood is made of.
    let open = OpenCount::new(shard);
    if let Some(node) = &shard.connection_gateway
        && node.listeners.websocket == listener
    {
        socket::accepted(shard, node, (stream, peer), open);
        return;
    }
    let start = move |link| {
        let history = ConnectionHistory::default();
        let connection = Connection::new(open, link, peer, listener, history, Vec::new());
        shards::spawn(connection.run());
    };
    if shard.tls_listener != Some(listener) {
        start(Link::Plain(stream));
    } else if let Some(config) = shard.tls.borrow().clone() {
        // Nothing has been asked yet: a drain need not wait for it.
        stream.deadline().arm_idle(shard.settings.timeouts.head);
        // In a task of its own: the room a handshake takes is not kept for a connection's life.
        shards::spawn(async move {
            if let Ok(link) = Link::accept_tls(stream, config).await {
                start(link);
            }
        });
    }
}

/// Goes on with a connection that another shard has moved here.
pub fn moved(shard: &Rc<ShardState>, socket: MovedSocket) {
    let Ok(link) = Link::from_parcel(socket.parcel, socket.baggage, &shard.shard.deadlines) else {
        return;
    };
    let history = ConnectionHistory {
        moves: socket.moves,
        ..ConnectionHistory::default()
    };
    let open = OpenCount::new(shard);
    shards::spawn(
        Connection::new(
            open,
            link,
            socket.peer,
            socket.listener,
            history,
            socket.bytes,
        )
        .run(),
    );
}

struct Connection {
    link: Link,
    shard: Rc<ShardState>,
    peer: SocketAddr,
    listener: u8,
    history: ConnectionHistory,
    /// Bytes read and not used yet.
    buffer: Vec<u8>,
    /// Requests that came soon after the last reply, up to [`BUSY_COUNT`].
    soon_count: u8,
    replied_ms: u64,
    /// The last request's head, while requests come soon.
    known: Option<Box<KnownHead>>,
    open: OpenCount,
}

/// Counts the connection as open while it lives.
pub struct OpenCount(Rc<ShardState>);

impl OpenCount {
    fn new(shard: &Rc<ShardState>) -> Self {
        shard.shard.own_counters().open.add(1);
        Self(shard.clone())
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.shard.own_counters().open.subtract(1);
    }
}

/// What became of reading a request.
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time and taken apart at once; a box would be one more allocation a request"
)]
enum Next {
    Request(Request),
    /// The client has ended, or a limit has; nothing is owed.
    Ended,
    Refused(HttpRefusal),
}

impl Connection {
    fn new(
        open: OpenCount,
        link: Link,
        peer: SocketAddr,
        listener: u8,
        history: ConnectionHistory,
        buffer: Vec<u8>,
    ) -> Self {
        Self {
            link,
            shard: open.0.clone(),
            peer,
            listener,
            history,
            buffer,
            soon_count: 0,
            replied_ms: 0,
            known: None,
            open,
        }
    }

    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` holds the connection twice: as its argument and as its variable"
    )]
    fn run(mut self) -> impl Future<Output = ()> {
        async move {
            loop {
                if self.buffer.is_empty() && !self.wait().await {
                    break;
                }
                // Boxed: the busy part of a connection is large, and most connections are idle.
                let next = Box::pin(self.one()).await;
                match next {
                    Step::Again => {}
                    Step::Close => break,
                    Step::Move(owner, request) => {
                        self.hand_over(owner, *request);
                        return;
                    }
                }
            }
            self.put_buffer();
        }
    }

    fn put_buffer(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.shard.shard.buffers.put(buffer);
    }

    /// Waits for the next request's first bytes without a buffer; false: the connection has ended.
    async fn wait(&mut self) -> bool {
        self.put_buffer();
        self.link
            .deadline()
            .arm_idle(self.shard.settings.timeouts.idle);
        if self.soon_count < BUSY_COUNT {
            self.known = None;
            self.link.readable().await;
        }
        let (result, buffer) = self.link.read(self.shard.shard.buffers.take()).await;
        self.buffer = buffer;
        let is_soon = self.replied_ms > 0 && coarse_ms() - self.replied_ms <= BUSY_MS;
        self.soon_count = if is_soon {
            BUSY_COUNT.min(self.soon_count + 1)
        } else {
            self.soon_count / 2
        };
        // What came while a limit or a drain shut the connection down could not be answered: it
        // must not be done either.
        matches!(result, Ok(count) if count > 0) && !self.link.deadline().has_passed()
    }

    /// Reads one request and has it served.
    async fn one(&mut self) -> Step {
        let mut origin = None;
        let mut request = match self.read(&mut origin).await {
            Next::Request(request) => request,
            Next::Ended => return Step::Close,
            Next::Refused(refusal) => {
                let rules = &self.shard.access;
                let origin = origin.filter(|origin| rules.check_origin(Some(origin)).is_ok());
                let refusal = Refusal::Http(refusal);
                self.refuse(&refusal, origin.as_deref(), false, 1).await;
                self.linger().await;
                return Step::Close;
            }
        };
        let (keep_alive, minor) = (request.head.keep_alive, request.head.minor);
        let owner = match self.steer(&request) {
            Steered::Here => None,
            Steered::There(owner) => Some(owner),
            Steered::Move(owner) => return Step::Move(owner, Box::new(request)),
        };
        let is_reusable = match owner {
            // Boxed, or whatever is served here would be as large.
            Some(owner) => Box::pin(self.forward(owner, request, keep_alive)).await,
            None => {
                let shard = self.shard.clone();
                if request.head.method == Method::Get {
                    // It is held as long as the stream it opens.
                    let bytes = request.bytes.as_slice().to_vec();
                    shard
                        .shard
                        .buffers
                        .put(std::mem::replace(&mut request.bytes, bytes));
                }
                let internal_api = shard.internal_api(self.listener);
                let mut reply = self.reply(keep_alive, minor);
                match internal_api {
                    Some(node) => {
                        Box::pin(api::serve(&shard, node, &request, &mut reply)).await;
                    }
                    None => request::serve(&shard, &request, &mut reply).await,
                }
                let is_reusable = reply.is_reusable();
                shard.shard.buffers.put(request.bytes);
                is_reusable
            }
        };
        if !is_reusable {
            self.linger().await;
            return Step::Close;
        }
        self.replied_ms = coarse_ms();
        Step::Again
    }

    /// The connection gateway, when the connection is one to its internal API.
    fn internal_api(&self) -> Option<&Rc<Node>> {
        self.shard.internal_api(self.listener)
    }

    /// The bounds of its requests.
    fn limits(&self) -> (&HeadLimits, PathRule) {
        match self.internal_api() {
            Some(node) => (&node.head_limits, PathRule::Opaque),
            None => (&self.shard.head_limits, PathRule::Plain),
        }
    }

    /// Where the request is served.
    fn steer(&mut self, request: &Request) -> Steered {
        let shard = &self.shard;
        let (me, slots) = (shard.shard.id, &shard.shard.slots);
        if let Some(node) = self.internal_api() {
            // Callers' connections carry requests for any session: they stay where they are.
            let owner = api::owner(shard, node, request);
            return if owner == me {
                Steered::Here
            } else {
                Steered::There(owner)
            };
        }
        if let Some(owner) = held::holder(&self.shard, request) {
            return Steered::There(owner);
        }
        let session = request.session_id;
        // What a session of this shard asks needs no second look.
        let may_open = session.is_none_or(|id| slots.owner_of(id.as_bytes()) != me);
        // A shard that drains places nothing: the other ones may have ended.
        if may_open && !shard.shard.gate.is_closed() && is_initialize(request) {
            let least = shard.shard.less_loaded(shard.random());
            return if least == me {
                Steered::Here
            } else {
                Steered::There(least)
            };
        }
        // A chunked body has been decoded: its bytes are no longer what another shard would read.
        let can_move = request.head.framing != Framing::Chunked;
        match steer::decide(me, slots, session.as_ref(), &mut self.history, can_move) {
            Decision::Local => Steered::Here,
            // A forged id moves nothing and nobody: it is refused here.
            _ if !session.is_some_and(|id| shard.id_keys.is_genuine(&id)) => Steered::Here,
            Decision::Move(owner) => Steered::Move(owner),
            Decision::Forward(owner) => Steered::There(owner),
        }
    }

    fn reply(&mut self, keep_alive: bool, minor: u8) -> Reply<'_> {
        let write_limit = self.shard.settings.timeouts.write;
        let gate = self.shard.shard.gate.clone();
        Reply::new(
            Sink::Link(&mut self.link, write_limit),
            gate,
            keep_alive,
            minor,
        )
    }

    /// Reads a head into the buffer, if it is not there, and out of it.
    async fn read_head(&mut self, origin: &mut Option<Box<[u8]>>) -> Result<RequestHead, Next> {
        let head_limit = self.shard.settings.timeouts.head;
        let mut started_ms = None;
        let head = loop {
            let (limits, rule) = self.limits();
            match parse_request_under(&self.buffer, limits, rule) {
                Ok(Parsed::Complete(head)) => break head,
                Ok(Parsed::Partial) => {}
                Err(refusal) => {
                    *origin = header_values(&self.buffer, "origin").next().map(Box::from);
                    return Err(Next::Refused(refusal));
                }
            }
            // The limit counts from the first look at a head that is not whole.
            let started_ms = *started_ms.get_or_insert_with(now_ms);
            let spent = Duration::from_millis(now_ms() - started_ms);
            self.fill(head_limit.saturating_sub(spent)).await?;
        };
        if self.soon_count == BUSY_COUNT {
            self.known = KnownHead::remember(self.known.take(), &self.buffer, &head);
        }
        Ok(head)
    }

    /// The head in the buffer, if it is the last one again.
    fn known_head(&self) -> Option<RequestHead> {
        let known = self.known.as_ref()?;
        known.recognise(&self.buffer, self.limits().0)
    }

    /// Reads a head and its body out of the buffer and the connection. The request's `Origin` is
    /// told apart: a page may read why it was refused (market.md S11).
    async fn read(&mut self, origin: &mut Option<Box<[u8]>>) -> Next {
        let head = match self.known_head() {
            Some(head) => head,
            None => match self.read_head(origin).await {
                Ok(head) => head,
                Err(next) => return next,
            },
        };
        let body_limit = self.shard.settings.timeouts.body;
        *origin = head.origin.map(|span| span.slice(&self.buffer).into());
        match head.framing {
            Framing::NoBody => Next::Request(self.cut(head, 0)),
            Framing::Length(length) => {
                // Bounded by the body limit, which the head's verdict has checked.
                let whole = head.len + usize::try_from(length).unwrap_or(usize::MAX);
                if self.buffer.len() < whole {
                    if head.expect_continue && Box::pin(self.say_continue()).await.is_err() {
                        return Next::Ended;
                    }
                    // With the room a read wants, or the last one would double the buffer, and
                    // what a client sends ahead would fill it.
                    let missing = whole - self.buffer.len();
                    self.buffer.reserve(missing + READ_BYTES_MIN);
                }
                while self.buffer.len() < whole {
                    if let Err(next) = self.fill(body_limit).await {
                        return next;
                    }
                }
                let body_bytes = whole - head.len;
                Next::Request(self.cut(head, body_bytes))
            }
            Framing::Chunked => Box::pin(self.read_chunks(head, body_limit)).await,
        }
    }

    /// Reads a chunked body: the request gets its data without the coding.
    async fn read_chunks(&mut self, head: RequestHead, limit: Duration) -> Next {
        let mut decoder = ChunkDecoder::new(self.limits().0.body_bytes_max);
        let mut bytes = self.shard.shard.buffers.take();
        bytes.extend_from_slice(&self.buffer[..head.len]);
        self.buffer.drain(..head.len);
        if self.buffer.is_empty()
            && head.expect_continue
            && Box::pin(self.say_continue()).await.is_err()
        {
            return Next::Ended;
        }
        loop {
            match decoder.decode(&self.buffer, &mut bytes) {
                Err(refusal) => return Next::Refused(refusal),
                Ok((taken, is_done)) => {
                    self.buffer.drain(..taken);
                    if is_done {
                        break;
                    }
                }
            }
            if let Err(next) = self.fill(limit).await {
                return next;
            }
        }
        self.link.deadline().disarm();
        let body = head.len..bytes.len();
        let session_id = session_id_in(&head, &bytes);
        Next::Request(Request {
            bytes,
            head,
            body,
            peer: self.peer,
            session_id,
        })
    }

    /// RFC 9110 section 10.1.1: the client waits for a word before it sends its body.
    async fn say_continue(&mut self) -> Result<(), ()> {
        self.link.deadline().arm(self.shard.settings.timeouts.write);
        let (result, _) = self
            .link
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec())
            .await;
        result.map_err(|_| ())
    }

    /// Takes the first request out of the buffer; what follows it stays.
    fn cut(&mut self, head: RequestHead, body_bytes: usize) -> Request {
        let whole = head.len + body_bytes;
        let mut bytes = std::mem::take(&mut self.buffer);
        if bytes.len() > whole {
            self.buffer = self.shard.shard.buffers.take();
            self.buffer.extend_from_slice(&bytes[whole..]);
            bytes.truncate(whole);
        }
        self.link.deadline().disarm();
        let body = head.len..whole;
        let session_id = session_id_in(&head, &bytes);
        Request {
            bytes,
            head,
            body,
            peer: self.peer,
            session_id,
        }
    }

    /// Reads more of a request that is not whole yet; the client has `limit` for it. The wait is
    /// for readiness, which may be given up without losing a byte, so that 408 can still be said.
    async fn fill(&mut self, limit: Duration) -> Result<(), Next> {
        self.link.deadline().disarm();
        let is_late = {
            let input = std::pin::pin!(self.link.readable());
            let pause = std::pin::pin!(shards::sleep(limit));
            matches!(select(input, pause).await, Either::Right(_))
        };
        if is_late {
            let reason = "the request did not arrive in time";
            return Err(Next::Refused(HttpRefusal {
                status: 408,
                reason,
            }));
        }
        let (result, buffer) = self.link.read(std::mem::take(&mut self.buffer)).await;
        self.buffer = buffer;
        match result {
            Ok(count) if count > 0 => Ok(()),
            _ => Err(Next::Ended),
        }
    }

    /// Answers with a refusal of this shard's own; true: the connection may go on.
    async fn refuse(
        &mut self,
        refusal: &Refusal,
        origin: Option<&[u8]>,
        keep_alive: bool,
        minor: u8,
    ) -> bool {
        self.shard.numbers.refused.count(refusal);
        if let Some(node) = self.internal_api().cloned() {
            let max = node.settings.envelope_bytes_max;
            let mut reply = self.reply(keep_alive, minor);
            api::refuse(refusal, max, &mut reply).await;
            return reply.is_reusable();
        }
        let mut reply = self.reply(keep_alive, minor);
        if let Some(origin) = origin {
            reply.allow_origin(origin);
        }
        // A client that has left needs no answer.
        let _ = reply.refuse(refusal).await;
        reply.is_reusable()
    }

    /// Sends the whole connection to the session's owner, with all that was read of it.
    fn hand_over(self, owner: shards::ShardId, request: Request) {
        let Self {
            link,
            shard,
            peer,
            listener,
            history,
            buffer,
            open,
            ..
        } = self;
        let mut bytes = request.bytes;
        bytes.extend_from_slice(&buffer);
        let Ok((parcel, baggage)) = link.into_parcel() else {
            return;
        };
        let socket = MovedSocket {
            parcel,
            bytes,
            baggage,
            peer,
            listener,
            moves: history.moves + 1,
        };
        if let Err(socket) = shard.shard.port.hand_over(owner, socket) {
            // The ring is full: the connection stays and its requests are forwarded one by one.
            let shard_here = shard.clone();
            drop(open);
            moved(&shard_here, socket);
        }
    }

    /// Lets the client read the answer before a close that would reset it: says the end, then reads
    /// what it still sends, for a short while and a bounded amount.
    async fn linger(&mut self) {
        self.link.deadline().arm(Duration::from_millis(500));
        self.link.end_output().await;
        let mut left = READ_AHEAD_BYTES_MAX * 4;
        let mut buffer = std::mem::take(&mut self.buffer);
        while left > 0 {
            buffer.clear();
            let (result, returned) = self.link.read(buffer).await;
            buffer = returned;
            match result {
                Ok(count) if count > 0 => left = left.saturating_sub(count),
                _ => break,
            }
        }
        self.buffer = buffer;
        self.buffer.clear();
    }
}

/// Where a request is served.
enum Steered {
    Here,
    There(shards::ShardId),
    Move(shards::ShardId),
}

/// What to do after a request.
enum Step {
    Again,
    Close,
    /// At most once in a connection's life.
    Move(shards::ShardId, Box<Request>),
}

fn session_id_in(head: &RequestHead, bytes: &[u8]) -> Option<SessionId> {
    // What says it has no session runs where it arrived, whatever else it says.
    let version = head.protocol_version.map(|span| span.slice(bytes));
    if version == Some(STATELESS.as_bytes()) {
        return None;
    }
    SessionId::parse(head.session_id?.slice(bytes))
}

/// Whether the request opens a session.
fn is_initialize(request: &Request) -> bool {
    let body = request.body_bytes();
    let version = request.field(request.head.protocol_version);
    request.head.method == Method::Post
        && version != Some(STATELESS.as_bytes())
        && memchr::memmem::find(body, b"\"initialize\"").is_some()
        && envelope::scan(body, DEPTH_MAX).is_ok_and(|message| {
            message
                .method
                .is_some_and(|span| span.slice(body) == b"initialize")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<F>(_: impl Fn(Connection) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        // With the runtime's 50 bytes it stays in the allocator's class of 512.
        let bytes = bytes_of(Connection::run);
        assert!(bytes <= 456, "{bytes} bytes");
    }
}
