//! A backend's event stream, relayed event by event as it arrives.
//!
//! When the response is the first thing in it, it is answered as JSON, which saves the client a
//! stream. What comes before is never held back: the client's stream begins with the first message,
//! or with a heartbeat when the backend is silent for that long.
//!
//! A client that breaks off may resume (`Last-Event-ID`), so the backend is heard to its end
//! without it. A backend that breaks off after an event id is resumed likewise; when it says
//! `retry`, it wants to be polled (SEP-1699), and a client that knows polling is let go as well.

use std::{pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use shards::deadline::now_ms;

use crate::{
    http::{ContentKind, Encoding, LAST_CHUNK, encode_chunk, sse, sse::EventParser},
    mcp::{
        profile,
        reply_scan::{ReplyKind, ReplyScan, scan_reply},
        version::Version,
    },
    method::{result, taken},
    refusal::rpc_error,
    reply::{
        ClientGone, Reply,
        heard::Ear,
        relay::{Call, Cut, Verdict, judge, response},
    },
    session::streams::CallStream,
    shard_state::ShardState,
    upstream::{
        CallFault, Exchange,
        exchange::{Manner, Repeat},
        request,
        rpc::is_message,
    },
};

/// Messages of one call's stream before we stop listening to the backend's requests.
const BACKEND_REQUESTS_MAX: u32 = 256;
/// Time a client waits before it resumes, when the backend does not say, ms.
pub const RETRY_MS: u64 = 1_000;
/// The longest time we wait before we resume, whatever the backend says, ms.
const RETRY_MS_MAX: u64 = 30_000;
/// Attempts in a row to resume a backend's stream.
const RESUME_MAX: u32 = 5;

/// One relay.
pub struct Stream<'a, 'b, 'c> {
    shard: &'a Rc<ShardState>,
    call: &'a Call<'b>,
    exchange: Exchange,
    reply: &'a mut Reply<'c>,
    /// Where the client can resume it, once it has begun.
    log: Option<Rc<CallStream>>,
    has_begun: bool,
    has_head: bool,
    /// The client's connection is gone, or was let go; what comes is kept for when it resumes.
    is_detached: bool,
    request_count: u32,
    /// The backend's last event id, and the pause it asked for.
    seen: Vec<u8>,
    retry_ms: Option<u64>,
}

/// What woke the relay.
enum Woken {
    Input,
    Silence,
    Told,
    Left,
}

/// What one piece of a backend's stream held.
#[derive(Default)]
struct Batch {
    /// Messages for the client.
    messages: Vec<Vec<u8>>,
    /// The response in the client's terms, and the HTTP status it would have by itself.
    response: Option<Result<(ReplyKind, Vec<u8>, u16), CallFault>>,
}

/// A response in the client's terms, and the HTTP status it would have by itself.
fn in_clients_terms(
    data: &[u8],
    scan: &ReplyScan,
    call: &Call<'_>,
) -> Result<(ReplyKind, Vec<u8>, u16), CallFault> {
    let mut document = Vec::new();
    match judge(data, scan, call)? {
        Verdict::Relay => response(&mut document, data, scan, call),
        Verdict::Replace(said) => document = result(call.client_id, said.as_bytes()),
    }
    let status = match call.session.version.is_stateless() {
        true => profile::status_of_error(data, scan).unwrap_or(200),
        false => 200,
    };
    Ok((scan.kind, document, status))
}

impl<'a, 'b, 'c> Stream<'a, 'b, 'c> {
    /// A relay that has not begun.
    pub fn new(
        shard: &'a Rc<ShardState>,
        call: &'a Call<'b>,
        exchange: Exchange,
        reply: &'a mut Reply<'c>,
    ) -> Self {
        Self {
            shard,
            call,
            exchange,
            reply,
            log: None,
            has_begun: false,
            has_head: false,
            is_detached: false,
            request_count: 0,
            seen: Vec::new(),
            retry_ms: None,
        }
    }

    /// Relays until the response.
    pub async fn relay(mut self) -> Result<ReplyKind, Cut> {
        self.call.entry.set_streamed(true);
        let result = self.run().await;
        self.call.entry.set_streamed(false);
        if let Some(log) = self.log.take() {
            self.call.session.streams.end_call(&log);
        }
        self.shard.upstream.drain_later(self.exchange);
        result
    }

    async fn run(&mut self) -> Result<ReplyKind, Cut> {
        let mut parser = EventParser::new(self.shard.upstream.limits.event_bytes_max);
        let mut piece = self.shard.shard.buffers.take();
        loop {
            match self.wait().await {
                Woken::Input => {}
                Woken::Left => return Err(self.abandoned()),
                Woken::Silence => {
                    self.heartbeat().await?;
                    continue;
                }
                Woken::Told => {
                    if self.is_cancelled() {
                        return self.cancelled().await;
                    }
                    let injected = self.call.entry.take_injected();
                    self.pass_on(injected).await?;
                    continue;
                }
            }
            piece.clear();
            let exchange = &mut self.exchange;
            let read = exchange.body.piece(&mut exchange.link, &mut piece).await;
            if self.is_cancelled() {
                return self.cancelled().await;
            }
            match read {
                Ok(true) => {}
                ended => {
                    let fault = ended.err().unwrap_or(CallFault::NoResponse);
                    if !self.resume(fault).await? {
                        return self.fail(fault).await;
                    }
                    parser = EventParser::new(self.shard.upstream.limits.event_bytes_max);
                    continue;
                }
            }
            let (batch, fed) = self.sort(&mut parser, &piece);
            if let Some(response) = batch.response {
                self.shard.shard.buffers.put(piece);
                return match response {
                    Ok((kind, response, status)) => {
                        self.finish(batch.messages, response, status).await?;
                        Ok(kind)
                    }
                    Err(fault) => self.fail(fault).await,
                };
            }
            if fed.is_err() {
                return self.fail(CallFault::TooLarge).await;
            }
            self.pass_on(batch.messages).await?;
        }
    }

    fn is_cancelled(&self) -> bool {
        self.call.entry.cancel.is_cancelled()
    }

    async fn wait(&mut self) -> Woken {
        if !self.exchange.body.needs_input() {
            return Woken::Input;
        }
        let has_client = self.call.session.has_client();
        let input = pin!(self.exchange.link.readable());
        let told = pin!(self.call.entry.changed());
        let pause = pin!(shards::sleep(self.shard.upstream.limits.heartbeat));
        let reply = &mut *self.reply;
        // Without a session, leaving is cancelling (mcp.md 2.6).
        let left = pin!(async move {
            match has_client {
                true => std::future::pending().await,
                false => reply.client_hung_up().await,
            }
        });
        match select(input, select(told, select(pause, left))).await {
            Either::Left(_) => Woken::Input,
            Either::Right((Either::Left(_), _)) => Woken::Told,
            Either::Right((Either::Right((Either::Left(_), _)), _)) => Woken::Silence,
            Either::Right((Either::Right((Either::Right(_), _)), _)) => Woken::Left,
        }
    }

    /// Sorts what one piece of the backend's stream held.
    fn sort(
        &mut self,
        parser: &mut EventParser,
        piece: &[u8],
    ) -> (Batch, Result<(), sse::TooLarge>) {
        let mut batch = Batch::default();
        let (call, shard) = (self.call, self.shard);
        let ear = Ear {
            shard,
            session: call.session,
            from: call.backend,
            level: call.log_level,
        };
        let (seen, retry_ms, requests) =
            (&mut self.seen, &mut self.retry_ms, &mut self.request_count);
        let fed = parser.feed(piece, |event| {
            if let Some(id) = event.id {
                seen.clear();
                seen.extend_from_slice(id);
            }
            *retry_ms = event.retry_ms.or(*retry_ms);
            if !is_message(event.name) || event.data.is_empty() || batch.response.is_some() {
                return;
            }
            let data = event.data;
            let Ok(scan) = scan_reply(data) else { return };
            match (scan.kind, scan.id) {
                (ReplyKind::Result | ReplyKind::Error, Some(id)) => {
                    if id.slice(data) == call.upstream_id {
                        batch.response = Some(in_clients_terms(data, &scan, call));
                    }
                }
                (ReplyKind::Request, _) if *requests >= BACKEND_REQUESTS_MAX => {}
                (kind, _) => {
                    *requests += u32::from(kind == ReplyKind::Request);
                    let heard = ear.hear(data, &scan, Some(call.entry));
                    batch.messages.extend(heard);
                }
            }
        });
        (batch, fed)
    }

    /// Writes messages as events of the client's stream, or to its own streams when the reply
    /// cannot be one.
    async fn pass_on(&mut self, messages: Vec<Vec<u8>>) -> Result<(), Cut> {
        if messages.is_empty() {
            return Ok(());
        }
        if !self.reply.can_stream() {
            for message in messages {
                self.call.session.streams.push(&message);
            }
            return Ok(());
        }
        let mut events = Vec::new();
        self.begin(&mut events);
        for message in messages {
            self.event(&mut events, &message);
        }
        self.write(&events).await
    }

    /// The client's stream begins: where it can resume is the first thing it hears (mcp.md 1.2:
    /// only from 2025-11-25 on; older clients read an empty event as JSON).
    fn begin(&mut self, events: &mut Vec<u8>) {
        if std::mem::replace(&mut self.has_begun, true) || !self.call.session.has_client() {
            return;
        }
        let log = self.call.session.streams.open_call();
        if self.call.session.version >= Version::V2025_11_25 {
            let retry_ms = self.retry_ms.unwrap_or(RETRY_MS);
            let id = log.last_id().to_string();
            sse::write_event(events, Some(id.as_bytes()), Some(retry_ms), b"");
        }
        self.log = Some(log);
    }

    /// One message as an event that can be replayed.
    fn event(&mut self, events: &mut Vec<u8>, message: &[u8]) {
        let id = self.log.as_ref().map(|log| {
            let id = self.call.session.streams.add(log, message, now_ms());
            id.to_string()
        });
        sse::write_event(events, id.as_ref().map(String::as_bytes), None, message);
    }

    async fn heartbeat(&mut self) -> Result<(), Cut> {
        if !self.reply.can_stream() {
            return Ok(());
        }
        let mut text = Vec::new();
        self.begin(&mut text);
        sse::write_comment(&mut text, b"");
        self.write(&text).await
    }

    /// Writes a part of the stream. A client that has gone may come back for what it missed.
    async fn write(&mut self, events: &[u8]) -> Result<(), Cut> {
        if self.is_away() {
            return Ok(());
        }
        let mut out = self.shard.shard.buffers.take();
        self.frame(&mut out, events);
        match self.reply.part(out).await {
            Ok(buffer) => self.shard.shard.buffers.put(buffer),
            Err(ClientGone) if !self.call.session.has_client() => return Err(self.abandoned()),
            Err(ClientGone) => self.is_detached = true,
        }
        Ok(())
    }

    /// The client has left for good.
    fn abandoned(&self) -> Cut {
        taken::abandon(self.shard, self.call.entry, self.call.client_head);
        Cut::Client
    }

    /// Whether the client does not listen here any more. When it has resumed elsewhere, this
    /// connection is of no use to it.
    fn is_away(&mut self) -> bool {
        if !self.is_detached && self.log.as_ref().is_some_and(|log| log.is_taken()) {
            self.is_detached = true;
            self.reply.hang_up();
        }
        self.is_detached
    }

    fn frame(&mut self, out: &mut Vec<u8>, events: &[u8]) {
        if !self.has_head {
            self.has_head = true;
            self.reply.stream_head(out);
        }
        if !self.reply.is_chunked() {
            out.extend_from_slice(events);
        } else if !events.is_empty() {
            encode_chunk(out, events);
        }
    }

    /// Writes the response as the last thing: in the stream if one was begun, else as JSON.
    async fn finish(
        &mut self,
        messages: Vec<Vec<u8>>,
        response: Vec<u8>,
        status: u16,
    ) -> Result<(), Cut> {
        let is_stream = self.has_begun
            || (status == 200 && self.reply.prefers_stream())
            || (!messages.is_empty() && self.reply.can_stream());
        if !is_stream {
            self.pass_on(messages).await?;
            let mut out = self.shard.shard.buffers.take();
            self.reply.json_head_with(&mut out, status, response.len());
            out.extend_from_slice(&response);
            self.shard.shard.buffers.put(self.reply.last(out).await?);
            return Ok(());
        }
        let mut events = Vec::new();
        self.begin(&mut events);
        for message in messages {
            self.event(&mut events, &message);
        }
        self.event(&mut events, &response);
        self.end(&events).await
    }

    /// Writes the end of the stream.
    async fn end(&mut self, events: &[u8]) -> Result<(), Cut> {
        if self.is_away() {
            return Ok(());
        }
        let mut out = self.shard.shard.buffers.take();
        self.frame(&mut out, events);
        if self.reply.is_chunked() {
            out.extend_from_slice(LAST_CHUNK);
        }
        self.shard.shard.buffers.put(self.reply.last(out).await?);
        Ok(())
    }

    /// The backend failed: an error in the stream if one was begun, else the caller's to answer.
    async fn fail(&mut self, fault: CallFault) -> Result<ReplyKind, Cut> {
        if !self.has_begun {
            return Err(fault.into());
        }
        let text = format!("Routing problem... {fault}");
        let response = rpc_error(Some(self.call.client_id), -32603, &text);
        self.shard.numbers.calls_failed.add(1);
        self.finish(Vec::new(), response, 200).await?;
        Ok(ReplyKind::Error)
    }

    /// The caller does not want the response any more: its stream just ends.
    async fn cancelled(&mut self) -> Result<ReplyKind, Cut> {
        if !self.has_begun {
            return Err(CallFault::Cancelled.into());
        }
        self.end(b"").await?;
        Ok(ReplyKind::Error)
    }

    /// Goes on with a stream that its backend ended before the response; false: it cannot be.
    async fn resume(&mut self, fault: CallFault) -> Result<bool, Cut> {
        let may_resume = matches!(fault, CallFault::NoResponse | CallFault::ClosedInReply)
            && !self.call.backend.open.version.is_stateless();
        if self.seen.is_empty() || !may_resume {
            return Ok(false);
        }
        if self.retry_ms.is_some() {
            self.let_go().await?;
        }
        let pause_ms = self.retry_ms.unwrap_or(RETRY_MS).min(RETRY_MS_MAX);
        for attempt in 0..RESUME_MAX {
            let pause = Duration::from_millis(pause_ms << attempt.min(4));
            self.rest(pause.min(Duration::from_millis(RETRY_MS_MAX)))
                .await?;
            if self.is_cancelled() {
                return Ok(true);
            }
            if let Some(exchange) = self.open_again().await {
                self.exchange = exchange;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets a client that knows polling go until it resumes.
    async fn let_go(&mut self) -> Result<(), Cut> {
        let knows_polling = self.call.session.version >= Version::V2025_11_25;
        if !knows_polling || self.is_detached || !self.reply.can_stream() {
            return Ok(());
        }
        let mut events = Vec::new();
        self.begin(&mut events);
        if let Some(log) = &self.log {
            let id = log.last_id().to_string();
            sse::write_event(&mut events, Some(id.as_bytes()), self.retry_ms, b"");
        }
        // It may have gone by itself.
        let _ = self.end(&events).await;
        // What it asks next must not wait for this call.
        self.reply.hang_up();
        self.is_detached = true;
        Ok(())
    }

    /// Waits before the next attempt, with heartbeats for a client that waits.
    async fn rest(&mut self, pause: Duration) -> Result<(), Cut> {
        let heartbeat = self.shard.upstream.limits.heartbeat;
        let mut left = pause;
        while left > heartbeat {
            shards::sleep(heartbeat).await;
            self.heartbeat().await?;
            left -= heartbeat;
        }
        shards::sleep(left).await;
        Ok(())
    }

    /// Asks for the rest of the backend's stream.
    async fn open_again(&self) -> Option<Exchange> {
        let to = self.call.backend;
        let backend = to.place.backend();
        let request = request::get(
            backend,
            to.open.session_id.as_deref(),
            to.open.version,
            Some(&self.seen),
            self.call.client_head,
        );
        let upstream = &self.shard.upstream;
        let manner = Manner {
            repeat: Repeat::Harmless,
            first_byte: upstream.limits.first_byte,
            is_lateness_telling: false,
            is_stateless: false,
            is_endless: true,
            cancel: Some(&self.call.entry.cancel),
        };
        let asked = upstream.exchange(&backend.target, request, manner, Vec::new());
        let (exchange, _) = asked.await.ok()?;
        let head = &exchange.head;
        let is_stream = head.status == 200
            && head.content == ContentKind::EventStream
            && head.encoding == Encoding::Identity;
        is_stream.then_some(exchange)
    }
}
