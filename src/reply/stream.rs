//! A backend's event stream, relayed event by event as it arrives.
//!
//! When the response is the first thing in it, it is answered as JSON, which saves the client a
//! stream ([`crate::reply::flow`]).
//!
//! A client that breaks off may resume (`Last-Event-ID`), so the backend is heard to its end
//! without it. A backend that breaks off after an event id is resumed likewise; when it says
//! `retry`, it wants to be polled (SEP-1699), and a client that knows polling is let go as well.

use std::{pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};

use crate::{
    http::{ContentKind, Encoding, sse, sse::EventParser},
    mcp::{
        profile,
        reply_scan::{ReplyKind, ReplyScan, scan_reply},
    },
    method::result,
    refusal::rpc_error,
    reply::{
        flow::{Flow, RETRY_MS},
        heard::{Ear, Heard, Question},
        relay::{Call, Cut, Relayed, Said, Verdict, judge, response},
    },
    session::calls::Leg,
    shard_state::ShardState,
    upstream::{
        CallFault, Exchange,
        cancel::Cancel,
        exchange::{Manner, Repeat},
        request,
        rpc::is_message,
    },
};

/// Messages of one call's stream before we stop listening to the backend's requests.
const BACKEND_REQUESTS_MAX: u32 = 256;
/// The longest time we wait before we resume, whatever the backend says, ms.
const RETRY_MS_MAX: u64 = 30_000;
/// Attempts in a row to resume a backend's stream.
const RESUME_MAX: u32 = 5;

/// One relay.
pub struct Stream<'a, 'b, 'c, 'd> {
    shard: &'a Rc<ShardState>,
    call: &'a Call<'b>,
    source: Source,
    flow: &'a mut Flow<'c, 'd>,
}

/// A backend's stream, as far as it has been heard.
#[derive(Debug)]
pub struct Source {
    exchange: Exchange,
    parser: EventParser,
    request_count: u32,
    /// The backend's last event id.
    seen: Vec<u8>,
}

/// A backend's stream that goes on once the client has answered.
#[derive(Debug)]
pub struct Parked {
    /// The stream.
    pub source: Source,
    /// What the backend asks.
    pub questions: Vec<Question>,
    /// The request at the backend.
    pub leg: Leg,
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
    /// Questions that cannot be messages to this client.
    questions: Vec<Question>,
    /// The response in the client's terms.
    response: Option<Result<Response, CallFault>>,
}

/// A response in the client's terms.
enum Response {
    /// It is said, with the HTTP status it would have by itself.
    Said(ReplyKind, Vec<u8>, u16),
    /// It is a question to the client: the backend's document.
    Asked(Box<[u8]>),
}

fn in_clients_terms(data: &[u8], scan: &ReplyScan, call: &Call<'_>) -> Result<Response, CallFault> {
    let mut document = Vec::new();
    match judge(data, scan, call)? {
        Verdict::Relay(marks) => {
            let said = Said {
                document: data,
                scan,
                marks,
            };
            response(&mut document, said, call);
        }
        Verdict::Replace(said) => document = result(call.client_id, said.as_bytes()),
        Verdict::Ask => return Ok(Response::Asked(data.into())),
    }
    let status = match call.session.version.is_stateless() {
        true => profile::status_of_error(data, scan).unwrap_or(200),
        false => 200,
    };
    Ok(Response::Said(scan.kind, document, status))
}

impl Source {
    /// A stream of which nothing was heard yet, with events of so many bytes at the most.
    pub fn new(exchange: Exchange, event_bytes_max: usize) -> Self {
        Self {
            exchange,
            parser: EventParser::new(event_bytes_max),
            request_count: 0,
            seen: Vec::new(),
        }
    }

    /// Nobody waits for it: whoever holds it limits its time himself.
    pub fn rest(&self) {
        self.exchange.link.deadline().disarm();
    }

    /// Somebody waits for it again, for `limit`, until `cancel` says otherwise.
    pub fn wake(&self, cancel: &Cancel, limit: Duration) {
        let deadline = self.exchange.link.deadline();
        deadline.arm(limit);
        cancel.watch(deadline);
    }
}

impl<'a, 'b, 'c, 'd> Stream<'a, 'b, 'c, 'd> {
    /// The relay of a stream.
    pub fn new(
        shard: &'a Rc<ShardState>,
        call: &'a Call<'b>,
        source: Source,
        flow: &'a mut Flow<'c, 'd>,
    ) -> Self {
        Self {
            shard,
            call,
            source,
            flow,
        }
    }

    /// Relays until the response.
    pub async fn relay(mut self) -> Result<Relayed, Cut> {
        self.call.entry.set_streamed(true);
        let result = self.run().await;
        self.call.entry.set_streamed(false);
        match result? {
            Step::Done(relayed) => {
                self.shard.upstream.drain_later(self.source.exchange);
                Ok(relayed)
            }
            Step::Parked(questions) => {
                let backend = self.call.backend;
                let upstream_id = std::str::from_utf8(self.call.upstream_id);
                let upstream_id = upstream_id.ok().and_then(|id| id.parse().ok());
                Ok(Relayed::Parked(Box::new(Parked {
                    source: self.source,
                    questions,
                    leg: Leg {
                        place: backend.place.clone(),
                        open: backend.open.clone(),
                        // It is a number of ours.
                        upstream_id: upstream_id.unwrap_or_default(),
                    },
                })))
            }
        }
    }

    async fn run(&mut self) -> Result<Step, Cut> {
        let mut piece = self.shard.shard.buffers.take();
        loop {
            match self.wait().await {
                Woken::Input => {}
                Woken::Left => return Err(self.flow.abandoned()),
                Woken::Silence => {
                    self.flow.heartbeat().await?;
                    continue;
                }
                Woken::Told => {
                    if self.is_cancelled() {
                        return self.cancelled().await;
                    }
                    let injected = self.call.entry.take_injected();
                    self.flow.pass_on(injected).await?;
                    continue;
                }
            }
            piece.clear();
            let exchange = &mut self.source.exchange;
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
                    let event_bytes_max = self.shard.upstream.limits.event_bytes_max;
                    self.source.parser = EventParser::new(event_bytes_max);
                    continue;
                }
            }
            let (batch, fed) = self.sort(&piece);
            if let Some(response) = batch.response {
                self.shard.shard.buffers.put(piece);
                return match response {
                    Ok(Response::Said(kind, response, status)) => {
                        self.flow.finish(batch.messages, response, status).await?;
                        Ok(Step::Done(Relayed::Said(kind)))
                    }
                    Ok(Response::Asked(document)) => {
                        self.flow.pass_on(batch.messages).await?;
                        Ok(Step::Done(Relayed::Asked(document)))
                    }
                    Err(fault) => self.fail(fault).await,
                };
            }
            if fed.is_err() {
                return self.fail(CallFault::TooLarge).await;
            }
            self.flow.pass_on(batch.messages).await?;
            if !batch.questions.is_empty() {
                self.shard.shard.buffers.put(piece);
                return Ok(Step::Parked(batch.questions));
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.call.entry.cancel.is_cancelled()
    }

    async fn wait(&mut self) -> Woken {
        let exchange = &mut self.source.exchange;
        if !exchange.body.needs_input() {
            return Woken::Input;
        }
        let input = pin!(exchange.link.readable());
        let told = pin!(self.call.entry.changed());
        let pause = pin!(shards::sleep(self.shard.upstream.limits.heartbeat));
        let left = pin!(self.flow.client_left());
        match select(input, select(told, select(pause, left))).await {
            Either::Left(_) => Woken::Input,
            Either::Right((Either::Left(_), _)) => Woken::Told,
            Either::Right((Either::Right((Either::Left(_), _)), _)) => Woken::Silence,
            Either::Right((Either::Right((Either::Right(_), _)), _)) => Woken::Left,
        }
    }

    /// Sorts what one piece of the backend's stream held.
    fn sort(&mut self, piece: &[u8]) -> (Batch, Result<(), sse::TooLarge>) {
        let mut batch = Batch::default();
        let (call, shard) = (self.call, self.shard);
        let ear = Ear {
            shard,
            session: call.session,
            from: call.backend,
            level: call.log_level,
        };
        let Source {
            parser,
            seen,
            request_count,
            ..
        } = &mut self.source;
        let retry_ms = &mut self.flow.retry_ms;
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
                (ReplyKind::Request, _) if *request_count >= BACKEND_REQUESTS_MAX => {}
                (kind, _) => {
                    *request_count += u32::from(kind == ReplyKind::Request);
                    match ear.hear(data, &scan, Some(call.entry)) {
                        Heard::Nothing => {}
                        Heard::Message(message) => batch.messages.push(message),
                        Heard::Question(question) => batch.questions.push(question),
                    }
                }
            }
        });
        (batch, fed)
    }

    /// The backend failed: an error in the stream if one was begun, else the caller's to answer.
    async fn fail(&mut self, fault: CallFault) -> Result<Step, Cut> {
        if !self.flow.must_end() {
            return Err(fault.into());
        }
        let text = format!("Routing problem... {fault}");
        let response = rpc_error(Some(self.call.client_id), -32603, &text);
        self.shard.numbers.calls_failed.add(1);
        self.flow.finish(Vec::new(), response, 200).await?;
        Ok(Step::Done(Relayed::Said(ReplyKind::Error)))
    }

    /// The caller does not want the response any more: its stream just ends.
    async fn cancelled(&mut self) -> Result<Step, Cut> {
        if !self.flow.must_end() {
            return Err(CallFault::Cancelled.into());
        }
        self.flow.end(b"").await?;
        Ok(Step::Done(Relayed::Said(ReplyKind::Error)))
    }

    /// Goes on with a stream that its backend ended before the response; false: it cannot be.
    async fn resume(&mut self, fault: CallFault) -> Result<bool, Cut> {
        let may_resume = matches!(fault, CallFault::NoResponse | CallFault::ClosedInReply)
            && !self.call.backend.open.version.is_stateless();
        if self.source.seen.is_empty() || !may_resume {
            return Ok(false);
        }
        if self.flow.retry_ms.is_some() {
            self.flow.let_go().await?;
        }
        let pause_ms = self.flow.retry_ms.unwrap_or(RETRY_MS).min(RETRY_MS_MAX);
        for attempt in 0..RESUME_MAX {
            let pause = Duration::from_millis(pause_ms << attempt.min(4));
            self.rest(pause.min(Duration::from_millis(RETRY_MS_MAX)))
                .await?;
            if self.is_cancelled() {
                return Ok(true);
            }
            if let Some(exchange) = self.open_again().await {
                self.source.exchange = exchange;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits before the next attempt, with heartbeats for a client that waits.
    async fn rest(&mut self, pause: Duration) -> Result<(), Cut> {
        let heartbeat = self.shard.upstream.limits.heartbeat;
        let mut left = pause;
        while left > heartbeat {
            shards::sleep(heartbeat).await;
            self.flow.heartbeat().await?;
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
            Some(&self.source.seen),
            self.call.client,
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

/// How a relay ended.
enum Step {
    Done(Relayed),
    Parked(Vec<Question>),
}
