//! Backends' own event streams (GET, mcp.md 1.2): what they say outside calls.
//!
//! A stream costs a connection for each backend, so it is opened only for sessions that listen
//! themselves, and closes when their last stream does. One that ends is opened again after a pause,
//! from the last event heard on; a backend that has none (405) is not asked twice.

use std::{cell::RefCell, pin::pin, rc::Rc, time::Duration};

use futures_util::future::{Either, select};
use shards::{notify::Event, spawn};

use crate::{
    http::{ContentKind, Encoding, sse::EventParser},
    mcp::reply_scan::scan_reply,
    reply::heard::Ear,
    route::family::Family,
    session::{BackendSession, Place, Session},
    shard_state::ShardState,
    upstream::{
        Exchange,
        exchange::{Manner, Repeat},
        request,
        rpc::is_message,
        say,
        subscribe::{self, Said, Wants},
    },
};

/// How long a session without a GET stream is listened for: its client may be changing its
/// connection.
const GRACE: Duration = Duration::from_secs(5);
/// Pauses before a stream that ended is opened again, ms: first and longest.
const PAUSE_MS: (u64, u64) = (1_000, 30_000);

/// Listens to the backends of a session that listens, as far as nobody does yet. The events say
/// when each stream is open, or cannot be opened.
pub fn start(shard: &Rc<ShardState>, session: &Rc<Session>) -> Vec<Rc<Event>> {
    let Some(deserted) = session.streams.deserted() else {
        return Vec::new();
    };
    let host = session.backends.borrow().host.clone();
    let mut all = Vec::new();
    for (index, link) in session.all_backends().into_iter().enumerate() {
        let Some(open) = link.open().filter(|open| !open.is_mute.get()) else {
            continue;
        };
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
            from: say::Listener {
                place: Place {
                    host: host.clone(),
                    index,
                },
                open,
            },
            link,
            deserted: RefCell::new(deserted.clone()),
        };
        spawn(async move {
            if listener.run().await != Heard::Nothing {
                // Somebody may have come back before this task saw that all had left.
                let (shard, session) = (listener.shard.clone(), listener.session.clone());
                drop(listener);
                start(&shard, &session);
            }
        });
    }
    all
}

/// Has the stream of a stateless backend opened anew, because what its session's client wants to
/// hear of it is another. The event says when it is open, or cannot be; `None`: nobody listens.
pub fn anew(
    shard: &Rc<ShardState>,
    session: &Rc<Session>,
    link: &Rc<BackendSession>,
) -> Option<Rc<Event>> {
    let is_listened_to = link.listening.borrow().is_some();
    if is_listened_to {
        let ready = Rc::new(Event::default());
        *link.listening.borrow_mut() = Some(ready.clone());
        link.relisten.notify();
        return Some(ready);
    }
    start(shard, session);
    link.listening.borrow().clone()
}

/// How listening to one stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// The session's client does not listen any more.
    Deserted,
    /// The backend has no such stream, or is no part of the session any more.
    Nothing,
    /// The backend session was lost: another one is to be listened to.
    Lost,
    /// It ended; it may be opened again, after so many ms when the backend said so.
    End(Option<u64>),
}

/// Listens to one backend; the backend session is free for another one when it is dropped.
struct Listener {
    shard: Rc<ShardState>,
    session: Rc<Session>,
    from: say::Listener,
    link: Rc<BackendSession>,
    deserted: RefCell<Rc<Event>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_ready();
        *self.link.listening.borrow_mut() = None;
    }
}

impl Listener {
    /// The stream is open, or cannot be.
    fn is_ready(&self) {
        if let Some(ready) = &*self.link.listening.borrow() {
            ready.fire();
        }
    }

    async fn run(&self) -> Heard {
        if self.from.open.version.is_stateless() {
            return self.run_stateless().await;
        }
        let mut pause_ms = PAUSE_MS.0;
        loop {
            if !self.is_current() {
                return Heard::Lost;
            }
            let heard = match self.open().await {
                Ok(exchange) => {
                    pause_ms = PAUSE_MS.0;
                    self.hear(exchange).await
                }
                Err(heard) => heard,
            };
            self.is_ready();
            let Heard::End(retry_ms) = heard else {
                return heard;
            };
            let wanted_ms = retry_ms.unwrap_or(pause_ms).min(PAUSE_MS.1);
            let pause = pin!(shards::sleep(Duration::from_millis(wanted_ms)));
            if let Either::Left(_) = select(pin!(self.is_unheard()), pause).await {
                return Heard::Deserted;
            }
            pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
        }
    }

    /// The same at a backend without sessions: it is told what is wanted, and told again when that
    /// changes.
    async fn run_stateless(&self) -> Heard {
        loop {
            let (place, open) = (&self.from.place, &self.from.open);
            let wants = Wants {
                tools: true,
                prompts: true,
                resources: true,
                uris: self.session.subscriptions_at(&place.backend().key),
                tasks: Vec::new(),
            };
            let wants = subscribe::offered(open, wants);
            let unwanted = Rc::new(Event::default());
            if wants.is_empty() {
                self.is_ready();
            } else {
                self.listen_for(wants, unwanted.clone());
            }
            let left = pin!(self.is_unheard());
            let other = pin!(self.link.relisten.wait());
            let is_left = matches!(select(left, other).await, Either::Left(_));
            unwanted.fire();
            if is_left {
                return Heard::Deserted;
            }
            if !self.is_current() {
                return Heard::Lost;
            }
        }
    }

    fn listen_for(&self, wants: Wants, unwanted: Rc<Event>) {
        let (shard, session) = (self.shard.clone(), self.session.clone());
        let (from, link) = (self.from.clone(), self.link.clone());
        spawn(async move {
            let ear = Ear {
                shard: &shard,
                session: &session,
                from: &from,
                level: None,
            };
            let is_ready = || {
                if let Some(ready) = &*link.listening.borrow() {
                    ready.fire();
                }
            };
            let on = |said: Said<'_>| match said {
                Said::Open => is_ready(),
                Said::Notification(data, scan) => {
                    if let Some(message) = ear.hear(data, scan, None).into_message() {
                        session.streams.push(&message);
                    }
                }
                Said::Gap => {
                    session.learned.take();
                    shard.generations.bump(from.place.backend());
                    for family in [Family::Tools, Family::Prompts, Family::Resources] {
                        if let Some(method) = family.changed().filter(|_| wants.is_family(family)) {
                            let message = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
                            session.streams.post(message.as_bytes());
                        }
                    }
                }
            };
            let (place, open) = (&from.place, &from.open);
            // It outlives this request, so its head does not go along.
            let voice = || session.voice();
            subscribe::listen(&shard, place, open, voice, &wants, &unwanted, on).await;
            is_ready();
        });
    }

    /// Waits until the session's client has not listened for a while: one that changes its
    /// connection must not lose what is said meanwhile.
    async fn is_unheard(&self) {
        loop {
            let deserted = self.deserted.borrow().clone();
            deserted.wait().await;
            if !self.session.has_ended.get() {
                shards::sleep(GRACE).await;
            }
            match self.session.streams.deserted() {
                Some(again) => *self.deserted.borrow_mut() = again,
                None => return,
            }
        }
    }

    /// Whether what is listened to is still what is in use.
    fn is_current(&self) -> bool {
        let open = self.link.open();
        self.session.holds(&self.link)
            && open.is_some_and(|open| Rc::ptr_eq(&open, &self.from.open))
    }

    /// Asks for the stream.
    async fn open(&self) -> Result<Exchange, Heard> {
        let (backend, open) = (self.from.place.backend(), &self.from.open);
        let seen = self.link.heard.borrow().clone();
        let voice = self.session.voice();
        let request = request::get(
            backend,
            open.session_id.as_deref(),
            open.version,
            seen.as_deref(),
            voice.say(),
        );
        let manner = Manner {
            repeat: Repeat::Harmless,
            first_byte: self.shard.upstream.limits.first_byte,
            // It may say nothing before there is something to say.
            is_lateness_telling: false,
            is_stateless: false,
            is_endless: true,
            cancel: None,
        };
        let upstream = &self.shard.upstream;
        let asked = upstream.exchange(&backend.target, request, manner, Vec::new());
        let (exchange, _) = asked.await.map_err(|_| Heard::End(None))?;
        let head = &exchange.head;
        let is_stream = head.status == 200
            && head.content == ContentKind::EventStream
            && head.encoding == Encoding::Identity;
        if is_stream {
            return Ok(exchange);
        }
        let heard = match head.status {
            500.. | 429 => Heard::End(None),
            404 => {
                self.link.forget(open);
                Heard::Nothing
            }
            // It has none, and will not have one later (mcp.md 1.2: 405).
            _ => {
                open.is_mute.set(true);
                Heard::Nothing
            }
        };
        // Each session asks once: a connection for each refusal would be one for each session.
        upstream.drain_later(exchange);
        Err(heard)
    }

    async fn hear(&self, mut exchange: Exchange) -> Heard {
        // Silence is what such a stream is made of.
        exchange.link.deadline().disarm();
        self.is_ready();
        let limits = &self.shard.upstream.limits;
        let mut parser = EventParser::new(limits.event_bytes_max);
        let mut piece = Vec::new();
        let mut retry_ms = None;
        let ear = Ear {
            shard: &self.shard,
            session: &self.session,
            from: &self.from,
            level: None,
        };
        loop {
            if exchange.body.needs_input() {
                let input = pin!(exchange.link.readable());
                if let Either::Right(_) = select(input, pin!(self.is_unheard())).await {
                    return Heard::Deserted;
                }
            }
            piece.clear();
            exchange.link.deadline().arm(limits.first_byte);
            let read = exchange.body.piece(&mut exchange.link, &mut piece).await;
            exchange.link.deadline().disarm();
            if read != Ok(true) {
                return Heard::End(retry_ms);
            }
            // It may have fallen away with a change of the configuration meanwhile.
            if !self.session.holds(&self.link) {
                return Heard::Nothing;
            }
            let fed = parser.feed(&piece, |event| {
                retry_ms = event.retry_ms.or(retry_ms);
                if let Some(id) = event.id {
                    *self.link.heard.borrow_mut() = (!id.is_empty()).then(|| id.into());
                }
                if !is_message(event.name) || event.data.is_empty() {
                    return;
                }
                let Ok(scan) = scan_reply(event.data) else {
                    return;
                };
                if let Some(message) = ear.hear(event.data, &scan, None).into_message() {
                    self.session.streams.push(&message);
                }
            });
            if fed.is_err() {
                return Heard::End(retry_ms);
            }
        }
    }
}
