//! Backends' own event streams (GET, mcp.md 1.2): what they say outside calls.
//!
//! A stream costs a connection for each backend, so it is opened only for sessions that have asked
//! for log messages and listen themselves; it closes when their last stream does. Log messages and
//! `tools/list_changed` go to the session's own stream, anything else was not advertised.

use std::{pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use shards::{notify::Event, spawn};

use crate::{
    config::compiled::VirtualHost,
    http::{ContentKind, Encoding, sse::EventParser},
    mcp::reply_scan::{ReplyKind, scan_reply},
    session::{BackendSession, Session, state::OpenBackend},
    shard_state::ShardState,
    upstream::{
        Exchange, answer,
        exchange::{Manner, Repeat},
        log_level, request,
        rpc::is_message,
    },
};

/// Pauses before a stream that ended is opened again, ms: first and longest.
const PAUSE_MS: (u64, u64) = (1_000, 30_000);

/// Listens to the backends of a session that wants it, as far as nobody does yet. The events say
/// when each stream is open, or cannot be opened.
pub fn start(shard: &Rc<ShardState>, session: &Rc<Session>) -> Vec<Rc<Event>> {
    let (Some(_), Some(deserted)) = (session.log_level.get(), session.inbox.deserted()) else {
        return Vec::new();
    };
    let host = session.backends.borrow().host.clone();
    let mut all = Vec::new();
    for (index, link) in session.all_backends().into_iter().enumerate() {
        if !link.open().is_some_and(|open| log_level::is_offered(&open)) {
            continue;
        }
        if let Some(known) = &*link.listening.borrow() {
            all.push(known.clone());
            continue;
        }
        let ready = Rc::new(Event::default());
        *link.listening.borrow_mut() = Some(ready.clone());
        all.push(ready.clone());
        let listener = Listener {
            shard: shard.clone(),
            session: session.clone(),
            host: host.clone(),
            index,
            link,
            deserted: deserted.clone(),
            ready,
        };
        spawn(async move {
            if listener.run().await == Heard::Deserted {
                // Somebody may have come back before this task saw that all had left.
                let (shard, session) = (listener.shard.clone(), listener.session.clone());
                drop(listener);
                start(&shard, &session);
            }
        });
    }
    all
}

/// How listening to one stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// The session's client does not listen any more.
    Deserted,
    /// The backend has no such stream.
    Nothing,
    /// It ended; it may be opened again.
    End,
}

/// Listens to one backend; the backend session is free for another one when it is dropped.
struct Listener {
    shard: Rc<ShardState>,
    session: Rc<Session>,
    host: Rc<VirtualHost>,
    index: usize,
    link: Rc<BackendSession>,
    deserted: Rc<Event>,
    ready: Rc<Event>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        *self.link.listening.borrow_mut() = None;
        self.ready.fire();
    }
}

impl Listener {
    async fn run(&self) -> Heard {
        let mut pause_ms = PAUSE_MS.0;
        loop {
            // A backend that lost its session is listened to again when it has been opened again.
            let Some(open) = self.link.open() else {
                return Heard::Nothing;
            };
            let heard = match self.open(&open).await {
                Some(exchange) => self.hear(exchange, &open).await,
                None => Heard::Nothing,
            };
            self.ready.fire();
            if heard != Heard::End {
                return heard;
            }
            let pause = pin!(shards::sleep(Duration::from_millis(pause_ms)));
            if let Either::Left(_) = select(pin!(self.deserted.wait()), pause).await {
                return Heard::Deserted;
            }
            pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
        }
    }

    /// Asks for the stream; `None`: there is none.
    async fn open(&self, open: &OpenBackend) -> Option<Exchange> {
        let backend = &self.host.backends[self.index];
        let request = request::get(backend, open.session_id.as_deref(), open.version);
        let manner = Manner {
            repeat: Repeat::Harmless,
            first_byte: self.shard.upstream.limits.first_byte,
            // It may say nothing before there is something to say.
            is_lateness_telling: false,
        };
        let upstream = &self.shard.upstream;
        let asked = upstream.exchange(&backend.target, request, manner, Vec::new());
        let (exchange, _) = asked.await.ok()?;
        let head = &exchange.head;
        let is_stream = head.status == 200
            && head.content == ContentKind::EventStream
            && head.encoding == Encoding::Identity;
        is_stream.then_some(exchange)
    }

    async fn hear(&self, mut exchange: Exchange, open: &Rc<OpenBackend>) -> Heard {
        // Silence is what such a stream is made of.
        exchange.link.deadline().disarm();
        self.ready.fire();
        let limits = &self.shard.upstream.limits;
        let mut parser = EventParser::new(limits.event_bytes_max);
        let mut piece = Vec::new();
        loop {
            if exchange.body.needs_input() {
                let input = pin!(exchange.link.readable());
                if let Either::Right(_) = select(input, pin!(self.deserted.wait())).await {
                    return Heard::Deserted;
                }
            }
            piece.clear();
            exchange.link.deadline().arm(limits.first_byte);
            let read = exchange.body.piece(&mut exchange.link, &mut piece).await;
            exchange.link.deadline().disarm();
            if read != Ok(true) {
                return Heard::End;
            }
            // It may have fallen away with a change of the configuration meanwhile.
            if !self.session.holds(&self.link) {
                return Heard::Nothing;
            }
            let fed = parser.feed(&piece, |event| {
                if is_message(event.name) && !event.data.is_empty() {
                    self.pass_on(event.data, open);
                }
            });
            if fed.is_err() {
                return Heard::End;
            }
        }
    }

    fn pass_on(&self, data: &[u8], open: &Rc<OpenBackend>) {
        let Ok(scan) = scan_reply(data) else { return };
        let method = scan.method.map_or(&b""[..], |span| span.slice(data));
        match (scan.kind, scan.id) {
            (ReplyKind::Notification, _) if method == b"notifications/message" => {
                self.session.inbox.push(data);
            }
            (ReplyKind::Notification, _) if method == b"notifications/tools/list_changed" => {
                self.session.inbox.post(data);
            }
            (ReplyKind::Request, Some(id)) => {
                let (id, is_ping) = (id.slice(data), method == b"ping");
                answer::answer(&self.shard, (&self.host, self.index), open, id, is_ping);
            }
            _ => {}
        }
    }
}
