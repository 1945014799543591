//! The attempts of one call: the request in the backend's terms, its reply, and what may be tried
//! again.

use std::{
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use futures_util::future::{Either, select};
use shards::clock::coarse_ms;

use super::rounds::{self, Round};
use crate::{
    http::Decimal,
    mcp::{
        edits::Edits,
        envelope::Envelope,
        json, mirror,
        profile::{self, Asker},
    },
    method::{id_of, list, taken},
    reply::{
        flow::Flow,
        relay::{Call, Cut, Relayed, relay},
    },
    request::Caller,
    route::{names::Route, rewrite},
    session::{
        BackendSession, Place, Session,
        calls::{ClientCall, Leg},
        state::{OpenBackend, SessionKind},
    },
    shard_state::ShardState,
    stateless::bridge::CALL_PATIENCE,
    upstream::{
        CallFault, Exchange, FromClient,
        exchange::{Manner, Repeat},
        log_level, open, request,
        say::Listener,
        target::Target,
    },
};

/// What every attempt of one call shares.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a, 'b> {
    /// The shard.
    pub shard: &'a Rc<ShardState>,
    /// Who asks.
    pub caller: &'a Caller<'b>,
    /// By which session.
    pub session: &'a Rc<Session>,
    /// Its part with the backend.
    pub link: &'a Rc<BackendSession>,
    /// What a stateless backend can do.
    pub known: Option<&'a Rc<OpenBackend>>,
    /// Where it goes.
    pub route: &'a Route<'a>,
    /// The request.
    pub message: &'a Envelope,
    /// Its method.
    pub method: &'a [u8],
    /// Its entry in the session's table.
    pub entry: &'a Rc<ClientCall>,
    /// Whether it may be sent twice.
    pub repeat: Repeat,
    /// The arguments are the client's, which has mirrored them as the tool wants it.
    pub has_client_mirrored: bool,
    /// Time for it, where it is not as for all calls.
    pub time: Option<Duration>,
}

impl Attempt<'_, '_> {
    /// Asks the backend until there is an outcome.
    pub async fn run_to_end(
        &self,
        started: Instant,
        flow: &mut Flow<'_, '_>,
    ) -> Result<Relayed, Cut> {
        let shard = self.shard;
        let mut is_second = false;
        let mut rounds = 0;
        let mut retry: Option<Vec<u8>> = None;
        loop {
            let opened = match self.known.cloned().or_else(|| self.link.open()) {
                Some(opened) => opened,
                None => {
                    let patience = shard.upstream.limits.first_byte;
                    let place = (&self.caller.host, self.route.backend);
                    let opening = open::ensure(shard, self.session, place, self.link, patience);
                    Box::pin(opening).await?
                }
            };
            if opened.version.is_stateless() && self.method == b"tools/call" {
                self.check_mirrored(&opened).await?;
            }
            match self.run(&opened, retry.as_deref(), started, flow).await {
                Ok(Relayed::Asked(document)) => {
                    // What the client says goes back with the same request (mcp.md 2.8).
                    rounds += 1;
                    match Box::pin(rounds::ask(self, &opened, &document, rounds, flow)).await? {
                        Round::Again(answers) => retry = Some(answers),
                        Round::Over(kind) => return Ok(Relayed::Said(kind)),
                    }
                }
                Err(Cut::Backend(CallFault::HeaderMismatch)) if !is_second => {
                    // What it wants mirrored is not what its list said (mcp.md 2.2).
                    is_second = true;
                    opened.mirrored.begin(0);
                }
                Err(Cut::Backend(CallFault::SessionLost)) if !is_second => {
                    is_second = true;
                    self.link.forget(&opened);
                    shard.numbers.backend_reopened.add(1);
                }
                outcome => return outcome,
            }
        }
    }

    /// What arguments the tool wants mirrored must be known before it is called, and be as the
    /// caller has mirrored them.
    async fn check_mirrored(&self, open: &Rc<OpenBackend>) -> Result<(), Cut> {
        if open.mirrored.is_stale(coarse_ms()) {
            let index = self.route.backend;
            let (shard, caller, session) = (self.shard, self.caller, self.session);
            Box::pin(list::learn_mirrored(shard, caller, session, index, open)).await;
        }
        if self.session.has_client() || !self.has_client_mirrored {
            return Ok(());
        }
        let headers = open.mirrored.of(&self.route.original);
        let arguments = self
            .message
            .arguments
            .map(|span| span.slice(self.caller.body));
        let head = self.caller.request.head_bytes();
        match headers.is_none_or(|own| mirror::check_params(head, &own, arguments).is_ok()) {
            true => Ok(()),
            false => Err(Cut::Headers("Mcp-Param")),
        }
    }

    /// The reply's head, unless the client leaves before it is there.
    async fn exchange(
        &self,
        target: &Rc<Target>,
        http: Vec<u8>,
        manner: Manner<'_>,
        flow: &mut Flow<'_, '_>,
    ) -> Result<(Exchange, Vec<u8>), CallFault> {
        let buffer = self.shard.shard.buffers.take();
        let mut exchange = pin!(self.shard.upstream.exchange(target, http, manner, buffer));
        if self.session.has_client() {
            return exchange.await;
        }
        let pause = pin!(self.shard.before_watching());
        if let Either::Left((outcome, _)) = select(&mut exchange, pause).await {
            return outcome;
        }
        if let Either::Left((outcome, _)) = select(&mut exchange, pin!(flow.client_left())).await {
            return outcome;
        }
        taken::abandon(self.shard, self.entry, self.client());
        exchange.await
    }

    async fn run(
        &self,
        open: &Rc<OpenBackend>,
        retry: Option<&[u8]>,
        started: Instant,
        flow: &mut Flow<'_, '_>,
    ) -> Result<Relayed, Cut> {
        let shard = self.shard;
        let next_id = self.link.next_id();
        let upstream_id = Decimal::new(next_id);
        let backend = Listener {
            place: Place {
                host: self.caller.host.clone(),
                index: self.route.backend,
            },
            open: open.clone(),
        };
        let http = self.request(open, upstream_id.as_bytes(), retry);
        self.entry.add_leg(Leg {
            place: backend.place.clone(),
            open: open.clone(),
            upstream_id: next_id,
        });
        let is_bridged = self.session.kind == SessionKind::Bridged;
        let time = self.time.or(is_bridged.then_some(CALL_PATIENCE));
        let manner = Manner {
            repeat: self.repeat,
            first_byte: time.unwrap_or(shard.upstream.limits.first_byte),
            is_lateness_telling: false,
            is_stateless: open.version.is_stateless(),
            is_endless: false,
            cancel: Some(&self.entry.cancel),
        };
        let sent = Instant::now();
        let target = &backend.place.backend().target;
        let (exchange, http) = match self.exchange(target, http, manner, flow).await {
            Ok(both) => both,
            Err(fault) => {
                self.entry.end_leg(open, next_id);
                return Err(fault.into());
            }
        };
        if let Some(time) = time {
            exchange.link.deadline().arm(time);
        }
        let upstream_us = micros(sent);
        shard.shard.buffers.put(http);
        let call = Call {
            session: self.session,
            backend: &backend,
            method: self.method,
            client_id: id_of(self.caller, self.message),
            upstream_id: upstream_id.as_bytes(),
            entry: self.entry,
            client: self.client(),
            extensions: self.extensions(),
            is_private: !self.caller.principal.anonymous,
            log_level: self.log_level(),
        };
        let result = relay(shard, &call, exchange, flow).await;
        self.entry.end_leg(open, next_id);
        shard
            .latency
            .borrow_mut()
            .record(micros(started), upstream_us);
        result
    }

    /// What backends may get of the caller's.
    fn client(&self) -> FromClient<'_> {
        FromClient::of(self.caller.request, &self.caller.principal)
    }

    /// The extensions that its client said it knows, a raw object.
    fn extensions(&self) -> &[u8] {
        let said = self.message.meta_capabilities;
        let said = said.map_or(&b"{}"[..], |span| span.slice(self.caller.body));
        json::member(said, "extensions").map_or(&b"{}"[..], |span| span.slice(said))
    }

    fn log_level(&self) -> Option<&'static str> {
        let said = self.message.meta_log_level?.slice(self.caller.body);
        log_level::level_of(&json::unescape(said)?)
    }

    /// The request to the backend: its own head, the caller's body with our id and token, and the
    /// backend's own name for what is meant.
    fn request(&self, open: &OpenBackend, upstream_id: &[u8], retry: Option<&[u8]>) -> Vec<u8> {
        let body = self.caller.body;
        let mut edits = Edits::default();
        if let Some(id) = self.message.id {
            edits.put_copy(id, upstream_id);
        }
        if let Some(token) = self.message.progress_token {
            edits.put_copy(token, upstream_id);
        }
        if let (Some(retry), Some(params)) = (retry, self.message.params) {
            edits.put_copy(
                crate::http::Span {
                    start: params.start + 1,
                    end: params.start + 1,
                },
                retry,
            );
        }
        let host = &self.caller.host;
        rewrite::original_params(
            host,
            self.route,
            self.method,
            body,
            self.message,
            &mut edits,
        );
        match (
            self.session.version.is_stateless(),
            open.version.is_stateless(),
        ) {
            (false, true) => {
                let asker = Asker {
                    info: self.session.client_info.as_deref(),
                    capabilities: &self.session.client_capabilities,
                    log_level: self.session.log_level.get(),
                };
                asker.introduce(body, self.message, &mut edits);
            }
            (true, false) => profile::anonymise(body, self.message, &mut edits),
            _ => {}
        }
        let mut http = self.shard.shard.buffers.take();
        http.extend_from_slice(&open.head);
        let length = edits.applied_len(body.len());
        let backend = &host.backends[self.route.backend];
        let client = self.client();
        if open.version.is_stateless() {
            let own = open.mirrored.of(&self.route.original);
            let is_tool = self.method == b"tools/call";
            let mirror = request::Mirror {
                method: self.method,
                name: is_named(self.method).then_some(&*self.route.original),
                params: own.as_deref().filter(|_| is_tool).unwrap_or_default(),
                arguments: self.message.arguments.map(|span| span.slice(body)),
            };
            request::finish_mirrored_head(&mut http, length, &mirror, backend, client);
        } else {
            request::finish_head(&mut http, length, backend, client);
        }
        edits.apply(&mut http, body);
        http
    }
}

/// Whether a request of this method says in `Mcp-Name` what it names (mcp.md 2.2).
fn is_named(method: &[u8]) -> bool {
    matches!(
        method,
        b"tools/call"
            | b"prompts/get"
            | b"resources/read"
            | b"tasks/get"
            | b"tasks/update"
            | b"tasks/cancel"
    )
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
