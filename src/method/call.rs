//! A request that one backend answers: `tools/call` and every other that names a tool, a prompt, a
//! resource or a task. This is the hot path.

use std::{
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use futures_util::future::{Either, select};
use shards::deadline::now_ms;

use crate::{
    config::compiled::VirtualHost,
    mcp::{
        edits::Edits,
        envelope::Envelope,
        json, mirror,
        profile::{self, Asker},
        reply_scan::ReplyKind,
    },
    method::{id_of, list, result, taken},
    preflight::text,
    refusal::Refusal,
    reply::{
        Reply,
        relay::{Call, Cut, relay},
    },
    request::{Caller, gone_is_fine},
    route::{
        family::Family,
        names::{Route, route_prompt, route_task, route_tool, route_uri},
        rewrite,
    },
    session::{
        BackendSession, Place, Session,
        calls::{ClientCall, Leg},
        state::OpenBackend,
    },
    shard_state::ShardState,
    stateless::{
        StatelessFault,
        bridge::{self, Bridged},
    },
    upstream::{
        CallFault, Exchange,
        discover::{self, Era},
        exchange::{Manner, Repeat},
        log_level, open, request,
        say::Listener,
        target::Target,
    },
};

/// How long a client without a session is not watched for leaving: most calls are over by then.
const WATCH_AFTER: Duration = Duration::from_millis(20);

/// What a request names, and so where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A resource.
    Resource,
    /// A prompt or a resource whose argument is being completed.
    Reference,
    /// A task.
    Task,
    /// Nothing we know: it goes to the only backend.
    Only,
}

impl Aim {
    /// What a request with this method names; `None`: nothing that we know.
    pub fn known(method: &[u8]) -> Option<Self> {
        Some(match method {
            b"tools/call" => Self::Tool,
            b"prompts/get" => Self::Prompt,
            b"resources/read" | b"resources/subscribe" | b"resources/unsubscribe" => Self::Resource,
            b"completion/complete" => Self::Reference,
            b"tasks/get" | b"tasks/result" | b"tasks/cancel" => Self::Task,
            _ => return None,
        })
    }

    /// The family whose merged list teaches what the name means.
    fn family(self) -> Option<Family> {
        match self {
            Self::Tool => Some(Family::Tools),
            Self::Prompt => Some(Family::Prompts),
            Self::Resource | Self::Reference => Some(Family::Resources),
            Self::Task | Self::Only => None,
        }
    }

    /// Whether asking twice does no harm.
    fn repeat(self, method: &[u8]) -> Repeat {
        match self {
            Self::Prompt | Self::Reference => Repeat::Harmless,
            Self::Resource if method == b"resources/read" => Repeat::Harmless,
            _ => Repeat::IfUnsent,
        }
    }
}

/// Relays one request. A backend that lost its session is opened again and asked once more: the
/// first request reached nothing (market.md S4).
pub async fn call(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    message: &Envelope,
    aim: Aim,
    started: Instant,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let body = caller.body;
    let method = message.method.map_or(&b""[..], |span| span.slice(body));
    if let Some(family) = aim.family()
        && list::must_learn(&caller.host, session, family)
    {
        // Prefixes alone do not tell the backend: learn the exact names first.
        Box::pin(list::learn(shard, caller, session, family)).await;
    }
    let named = Named::of(aim, message, body, id)?;
    let mut route = named.route(caller, &session.learned.borrow(), id);
    if let (Err(_), Some(family)) = (&route, aim.family())
        && list::may_learn_more(&caller.host, session, family)
    {
        // A backend was missing from the list that tells what it lets through.
        Box::pin(list::learn(shard, caller, session, family)).await;
        route = named.route(caller, &session.learned.borrow(), id);
    }
    let route = route?;
    let tool = (aim == Aim::Tool).then_some(&*route.original);
    let way = Way::find(shard, caller, session, route.backend, tool, id).await?;
    let Some(way) = way else {
        return gone_is_fine(reply.json(&not_stateless(id)).await);
    };
    let session = way.session();
    let link = session
        .backend(&caller.host, route.backend)
        .ok_or_else(|| Refusal::Backend(id.into(), CallFault::Reconfigured))?;
    let token = message.progress_token.map(|span| span.slice(body));
    let entered = session.calls.enter(id, token);
    let attempt = Attempt {
        shard,
        caller,
        session,
        link: &link,
        known: way.known(),
        route: &route,
        message,
        method,
        entry: &entered.call,
        repeat: aim.repeat(method),
    };
    let subscription = Subscription::of(session, &caller.host, &route, method);
    if !subscription.begin() {
        return Err(Refusal::rpc(id, -32603, "Too many subscriptions"));
    }
    if aim == Aim::Tool {
        shard.numbers.calls.add(1);
    }
    let outcome = match session.has_client() {
        true => attempt.run_to_end(started, reply).await,
        false => Box::pin(attempt.run_watched(started, reply)).await,
    };
    drop(entered);
    subscription.end(outcome.as_ref().ok().copied());
    match outcome {
        Err(Cut::Backend(CallFault::Cancelled)) => gone_is_fine(reply.nothing().await),
        Err(Cut::Headers(name)) => Err(Refusal::modern(Some(id), StatelessFault::Header(name))),
        Err(Cut::Backend(fault)) => {
            shard.numbers.calls_failed.add(1);
            Err(Refusal::Backend(id.into(), fault))
        }
        // A client that left is no refusal; its connection closes.
        Ok(_) | Err(Cut::Client) => Ok(()),
    }
}

/// The member of the request that names something, decoded.
struct Named<'a> {
    aim: Aim,
    name: std::borrow::Cow<'a, str>,
}

impl<'a> Named<'a> {
    fn of(aim: Aim, message: &Envelope, body: &'a [u8], id: &[u8]) -> Result<Self, Refusal> {
        let missing = |member| Refusal::rpc(id, -32602, member);
        let read = |span: Option<crate::http::Span>| text(span.map(|span| span.slice(body)));
        let (aim, name) = match aim {
            Aim::Tool | Aim::Prompt => (aim, read(message.name)),
            Aim::Resource => (aim, read(message.uri)),
            Aim::Task => (aim, read(message.task_id)),
            Aim::Only => (aim, Some("".into())),
            Aim::Reference => {
                let kind = read(message.reference_type);
                match kind.as_deref() {
                    Some("ref/prompt") => (Aim::Prompt, read(message.reference_name)),
                    Some("ref/resource") => (Aim::Resource, read(message.reference_uri)),
                    _ => return Err(missing("Unsupported completion reference")),
                }
            }
        };
        let name = name.ok_or_else(|| {
            missing(match aim {
                Aim::Tool | Aim::Prompt => "Invalid params: name",
                Aim::Resource => "Invalid params: uri",
                _ => "Invalid params: taskId",
            })
        })?;
        Ok(Self { aim, name })
    }

    /// The route, or the routing miss (contextforge.md 5.10).
    fn route<'b>(
        &'b self,
        caller: &'b Caller<'_>,
        learned: &crate::route::learned::Learned,
        id: &[u8],
    ) -> Result<Route<'b>, Refusal> {
        let host = &*caller.host;
        let (route, miss) = match self.aim {
            Aim::Prompt => (
                route_prompt(host, learned, &self.name),
                "Routing problem... prompt not found",
            ),
            Aim::Resource | Aim::Reference => (
                route_uri(host, learned, &self.name),
                "Routing problem... resource not found",
            ),
            Aim::Task => (
                route_task(host, &self.name),
                "Routing problem... task not found",
            ),
            Aim::Tool => (
                route_tool(host, learned, &self.name),
                "Routing problem... tool not found",
            ),
            Aim::Only => {
                let route = Route {
                    backend: 0,
                    original: "".into(),
                };
                (Some(route), "Method not found")
            }
        };
        route.ok_or_else(|| Refusal::rpc(id, -32602, miss))
    }
}

/// What a request means for the session's subscriptions: remembered before the backend is asked, so
/// that the first update is not lost, and forgotten when it refuses.
enum Subscription<'a> {
    None,
    Begin(&'a Session, &'a str, &'a str),
    End(&'a Session, &'a str, &'a str),
}

impl<'a> Subscription<'a> {
    fn of(
        session: &'a Session,
        host: &'a VirtualHost,
        route: &'a Route<'_>,
        method: &[u8],
    ) -> Self {
        let (key, uri) = (&*host.backends[route.backend].key, &*route.original);
        match method {
            b"resources/subscribe" => Self::Begin(session, key, uri),
            b"resources/unsubscribe" => Self::End(session, key, uri),
            _ => Self::None,
        }
    }

    fn begin(&self) -> bool {
        match self {
            Self::Begin(session, key, uri) => session.subscribe(key, uri),
            _ => true,
        }
    }

    fn end(self, outcome: Option<ReplyKind>) {
        match self {
            Self::Begin(session, key, uri) if outcome != Some(ReplyKind::Result) => {
                session.unsubscribe(key, uri);
            }
            Self::End(session, key, uri) if outcome == Some(ReplyKind::Result) => {
                session.unsubscribe(key, uri);
            }
            _ => {}
        }
    }
}

/// By which session a request goes to its backend.
enum Way<'a> {
    /// The caller's own.
    Session(&'a Rc<Session>),
    /// None is needed: what the backend can do is known.
    Stateless(&'a Rc<Session>, Rc<OpenBackend>),
    /// One that is opened for it.
    Bridged(Box<Bridged>),
}

impl<'a> Way<'a> {
    /// `None`: no stateless client reaches it.
    async fn find(
        shard: &Rc<ShardState>,
        caller: &Caller<'_>,
        session: &'a Rc<Session>,
        index: usize,
        tool: Option<&str>,
        id: &[u8],
    ) -> Result<Option<Self>, Refusal> {
        if session.has_client() {
            return Ok(Some(Self::Session(session)));
        }
        let backend = &caller.host.backends[index];
        let client_head = caller.request.head_bytes();
        let patience = shard.upstream.limits.first_byte;
        match discover::era(shard, backend, client_head, patience).await {
            Ok(Era::Stateless(open)) => Ok(Some(Self::Stateless(session, open))),
            Ok(Era::Sessions) if bridge::allows(backend, tool) => {
                match Box::pin(Bridged::open(shard, caller, index)).await {
                    Ok(bridged) => Ok(Some(Self::Bridged(Box::new(bridged)))),
                    Err(fault) => Err(fault.refusal(Some(id))),
                }
            }
            Ok(Era::Sessions) if tool.is_some() => Ok(None),
            Ok(Era::Sessions) => Err(Refusal::Backend(id.into(), CallFault::NotStateless)),
            Err(fault) => {
                shard.numbers.calls_failed.add(1);
                Err(Refusal::Backend(id.into(), fault))
            }
        }
    }

    fn session(&self) -> &Rc<Session> {
        match self {
            Self::Session(session) | Self::Stateless(session, _) => session,
            Self::Bridged(bridged) => &bridged.session,
        }
    }

    fn known(&self) -> Option<&Rc<OpenBackend>> {
        match self {
            Self::Stateless(_, open) => Some(open),
            Self::Session(_) | Self::Bridged(_) => None,
        }
    }
}

/// The result of a call to a tool of a backend that no stateless client reaches
/// (dual-profile.md 2.1).
fn not_stateless(id: &[u8]) -> Vec<u8> {
    const TEXT: &str = "Gateway does not support stateless calls to this MCP backend profile";
    result(id, tool_error(TEXT).as_bytes())
}

/// A tool's result that says why there is none.
pub fn tool_error(text: &str) -> String {
    let content = serde_json::json!([{"type": "text", "text": text}]);
    format!(
        r#"{{"resultType":"complete","content":{content},"isError":true,"_meta":{{{}}}}}"#,
        profile::own_server_info()
    )
}

/// What every attempt of one call shares.
struct Attempt<'a, 'b> {
    shard: &'a Rc<ShardState>,
    caller: &'a Caller<'b>,
    session: &'a Rc<Session>,
    link: &'a Rc<BackendSession>,
    /// What a stateless backend can do.
    known: Option<&'a Rc<OpenBackend>>,
    route: &'a Route<'a>,
    message: &'a Envelope,
    method: &'a [u8],
    entry: &'a Rc<ClientCall>,
    repeat: Repeat,
}

impl Attempt<'_, '_> {
    async fn run_to_end(&self, started: Instant, reply: &mut Reply<'_>) -> Result<ReplyKind, Cut> {
        let shard = self.shard;
        let mut is_second = false;
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
            match self.run(&opened, started, reply).await {
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

    /// The same for a client whose leaving is its cancellation (mcp.md 2.6). A call that is over
    /// soon is not worth a look.
    async fn run_watched(&self, started: Instant, reply: &mut Reply<'_>) -> Result<ReplyKind, Cut> {
        let outcome = self.run_to_end(started, reply).await;
        if matches!(outcome, Err(Cut::Client)) || self.entry.cancel.is_cancelled() {
            self.shard.numbers.calls_cancelled.add(1);
            return Err(Cut::Client);
        }
        outcome
    }

    /// What arguments the tool wants mirrored must be known before it is called, and be as the
    /// caller has mirrored them.
    async fn check_mirrored(&self, open: &Rc<OpenBackend>) -> Result<(), Cut> {
        if open.mirrored.is_stale(now_ms()) {
            let index = self.route.backend;
            let (shard, caller, session) = (self.shard, self.caller, self.session);
            Box::pin(list::learn_mirrored(shard, caller, session, index, open)).await;
        }
        if self.session.has_client() {
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
        reply: &mut Reply<'_>,
    ) -> Result<(Exchange, Vec<u8>), CallFault> {
        let buffer = self.shard.shard.buffers.take();
        let mut exchange = pin!(self.shard.upstream.exchange(target, http, manner, buffer));
        if self.session.has_client() {
            return exchange.await;
        }
        let pause = pin!(shards::sleep(WATCH_AFTER));
        if let Either::Left((outcome, _)) = select(&mut exchange, pause).await {
            return outcome;
        }
        if let Either::Left((outcome, _)) =
            select(&mut exchange, pin!(reply.client_hung_up())).await
        {
            return outcome;
        }
        taken::abandon(self.shard, self.entry, self.caller.request.head_bytes());
        exchange.await
    }

    async fn run(
        &self,
        open: &Rc<OpenBackend>,
        started: Instant,
        reply: &mut Reply<'_>,
    ) -> Result<ReplyKind, Cut> {
        let shard = self.shard;
        let next_id = self.link.next_id();
        let mut upstream_id = Vec::with_capacity(20);
        request::decimal(&mut upstream_id, next_id);
        let backend = Listener {
            place: Place {
                host: self.caller.host.clone(),
                index: self.route.backend,
            },
            open: open.clone(),
        };
        let http = self.request(open, &upstream_id);
        self.entry.add_leg(Leg {
            place: backend.place.clone(),
            open: open.clone(),
            upstream_id: next_id,
        });
        let manner = Manner {
            repeat: self.repeat,
            first_byte: shard.upstream.limits.first_byte,
            is_lateness_telling: false,
            is_stateless: open.version.is_stateless(),
            is_endless: false,
            cancel: Some(&self.entry.cancel),
        };
        let sent = Instant::now();
        let target = &backend.place.backend().target;
        let (exchange, http) = match self.exchange(target, http, manner, reply).await {
            Ok(both) => both,
            Err(fault) => {
                self.entry.end_leg(open, next_id);
                return Err(fault.into());
            }
        };
        let upstream_us = micros(sent);
        shard.shard.buffers.put(http);
        let call = Call {
            session: self.session,
            backend: &backend,
            method: self.method,
            client_id: id_of(self.caller, self.message),
            upstream_id: &upstream_id,
            entry: self.entry,
            client_head: self.caller.request.head_bytes(),
            knows_extensions: self.knows_extensions(),
            is_private: !self.caller.principal.anonymous,
            log_level: self.log_level(),
        };
        let result = relay(shard, &call, exchange, reply).await;
        self.entry.end_leg(open, next_id);
        shard
            .latency
            .borrow_mut()
            .record(micros(started), upstream_us);
        result
    }

    fn knows_extensions(&self) -> bool {
        let said = self.message.meta_capabilities;
        let said = said.map(|span| span.slice(self.caller.body));
        said.is_some_and(|said| json::member(said, "extensions").is_some())
    }

    fn log_level(&self) -> Option<&'static str> {
        let said = self.message.meta_log_level?.slice(self.caller.body);
        log_level::level_of(&json::unescape(said)?)
    }

    /// The request to the backend: its own head, the caller's body with our id and token, and the
    /// backend's own name for what is meant.
    fn request(&self, open: &OpenBackend, upstream_id: &[u8]) -> Vec<u8> {
        let body = self.caller.body;
        let mut edits = Edits::default();
        if let Some(id) = self.message.id {
            edits.put_copy(id, upstream_id);
        }
        if let Some(token) = self.message.progress_token {
            edits.put_copy(token, upstream_id);
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
        let client_head = self.caller.request.head_bytes();
        if open.version.is_stateless() {
            let own = open.mirrored.of(&self.route.original);
            let is_tool = self.method == b"tools/call";
            let mirror = request::Mirror {
                method: self.method,
                name: is_named(self.method).then_some(&*self.route.original),
                params: own.as_deref().filter(|_| is_tool).unwrap_or_default(),
                arguments: self.message.arguments.map(|span| span.slice(body)),
            };
            request::finish_mirrored_head(&mut http, length, &mirror, backend, client_head);
        } else {
            request::finish_head(&mut http, length, backend, client_head);
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
