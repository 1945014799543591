//! The story: one request from its head to its reply, each step one call.
//!
//! The connection has read the request and steered it here, to the shard that owns its session; the
//! steps below are the same whether the client's connection is this shard's or another's.

use std::{net::SocketAddr, ops::Range, rc::Rc, time::Instant};

use crate::{
    auth, bootstrap,
    config::compiled::VirtualHost,
    connection_gateway::index::Ask,
    endpoint::Endpoint,
    http::{Method, RequestHead, Span},
    mcp::{
        classify::Profile,
        envelope::{self, Envelope, EnvelopeFault, Kind},
        json::DEPTH_MAX,
    },
    method::{self, call::Aim},
    refusal::Refusal,
    reply::Reply,
    route::family::Family,
    session::{Session, SessionId},
    settings::Protocols,
    shard_state::ShardState,
    stateless::{self, StatelessFault},
};

/// A whole request as it was read.
#[derive(Debug)]
pub struct Request {
    /// Head and body, the body without its transfer coding.
    pub bytes: Vec<u8>,
    /// The head's members.
    pub head: RequestHead,
    /// Where the body is.
    pub body: Range<usize>,
    /// The client's address.
    pub peer: SocketAddr,
    /// The session id the client sent, if it has the form of one of ours.
    pub session_id: Option<SessionId>,
}

/// What is on its way to another shard, to be answered.
#[derive(Debug)]
pub enum Forwarded {
    /// A request of an MCP client.
    Request(Box<Request>),
    /// A request to the connection gateway's internal API.
    Internal(Box<Request>),
    /// A question of the connection gateway's registry.
    Ask(Box<Ask>),
}

impl Request {
    /// A header's value.
    pub fn field(&self, span: Option<Span>) -> Option<&[u8]> {
        span.map(|span| span.slice(&self.bytes))
    }

    /// The head's bytes.
    pub fn head_bytes(&self) -> &[u8] {
        &self.bytes[..self.head.len]
    }

    /// The body's bytes.
    pub fn body_bytes(&self) -> &[u8] {
        &self.bytes[self.body.clone()]
    }
}

/// Who asks, and for what: known after the first steps.
#[derive(Debug)]
pub struct Caller<'a> {
    /// The request.
    pub request: &'a Request,
    /// The message, or the batch of messages, in its body.
    pub body: &'a [u8],
    /// Who asks.
    pub principal: Rc<auth::Principal>,
    /// The virtual host asked for.
    pub host: Rc<VirtualHost>,
}

impl<'a> Caller<'a> {
    /// Which protocol profiles the virtual host serves.
    pub fn protocols<'b>(&'b self, shard: &'b ShardState) -> &'b Protocols {
        self.host.protocols(&shard.settings.protocols)
    }

    /// The same caller with one message of its batch.
    pub fn with_body(&self, body: &'a [u8]) -> Self {
        Self {
            request: self.request,
            body,
            principal: self.principal.clone(),
            host: self.host.clone(),
        }
    }
}

/// Serves one request. Whatever happens, a panic included, it has one answer or its connection
/// ends.
pub async fn serve(shard: &Rc<ShardState>, request: &Request, reply: &mut Reply<'_>) {
    let _pass = shard.shard.gate.enter();
    if request.head.method == Method::Head {
        reply.leave_out_body();
    }
    let outcome = shards::task::guard(steps(shard, request, reply)).await;
    let refusal = match outcome {
        Some(Ok(())) => None,
        Some(Err(refusal)) => {
            shard.numbers.refused.count(&refusal);
            Some(refusal)
        }
        None => {
            shard.numbers.panics.add(1);
            Some(Refusal::Internal)
        }
    };
    if let Some(refusal) = refusal {
        auth::metadata::point_to(shard, request, &refusal, reply);
        // A client that has left needs no answer.
        let _ = reply.refuse(&refusal).await;
    }
    shard.numbers.requests.add(1);
}

/// The steps. What is rare is boxed, so that the future of a call stays small: it is moved and
/// allocated with every request.
async fn steps(
    shard: &Rc<ShardState>,
    request: &Request,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let head = &request.head;
    if let Some(document) = auth::metadata::document_of(shard, request) {
        return Box::pin(auth::metadata::serve(request, document, reply)).await;
    }
    shard.access.check_origin(request.field(head.origin))?;
    if let Some(origin) = request.field(head.origin) {
        reply.allow_origin(origin);
    }
    shard.access.check_host(request.field(head.host))?;
    let endpoint = Endpoint::of(head.path.slice(&request.bytes))?;
    let protocols = &shard.settings.protocols;
    if head.method == Method::Options {
        return Box::pin(crate::preflight::answer(protocols, request, reply)).await;
    }
    crate::preflight::check_header_budget(&shard.settings.limits, request)?;
    let host_name = match endpoint {
        Endpoint::Mcp(host_name) => host_name,
        Endpoint::Bootstrap(route) => {
            return Box::pin(bootstrap::serve(shard, request, route, reply)).await;
        }
    };
    let principal = auth::gate::authenticate(shard, request).await?;
    let config = shard.configs.of_subject(shard, &principal).await?;
    let preferred = shard.settings.access.default_virtual_host.as_deref();
    let host = match host_name {
        Some(name) => config.host(name),
        None => config.default_host(preferred.unwrap_or("default")),
    };
    let host = host.ok_or(Refusal::NoVirtualHost)?.clone();
    auth::scope::admit(shard, request, &principal, &host)?;
    let caller = Caller {
        request,
        body: request.body_bytes(),
        principal,
        host,
    };
    match head.method {
        // Boxed, or every open stream would be as large as a call.
        Method::Post => Box::pin(post(shard, &caller, reply)).await,
        Method::Get => Box::pin(method::stream::open(shard, &caller, reply)).await,
        Method::Delete => Box::pin(method::end::end(shard, &caller, reply)).await,
        Method::Options | Method::Head | Method::Patch | Method::Other => {
            let protocols = caller.protocols(shard);
            Err(crate::preflight::not_a_method(protocols, request))
        }
    }
}

async fn post(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let started = Instant::now();
    let request = caller.request;
    crate::preflight::check_content(request)?;
    let protocols = caller.protocols(shard);
    let body = caller.body;
    let depth_max = shard.settings.limits.json_depth_max;
    let message = match envelope::scan(body, depth_max) {
        Ok(message) => message,
        Err(EnvelopeFault::Batch) => {
            return Box::pin(method::batch::serve(shard, caller, reply)).await;
        }
        Err(fault) => {
            let id = envelope::readable_id(body, DEPTH_MAX);
            let id = id.map(|span| span.slice(body));
            return Err(match crate::preflight::says_stateless(protocols, request) {
                true => Refusal::modern(id, StatelessFault::Envelope(fault)),
                false => Refusal::Envelope(fault, id.map(Box::from)),
            });
        }
    };
    let version = match crate::preflight::classify(protocols, request, &message, body)? {
        Profile::Session(version) => version,
        Profile::Stateless => {
            prefer_stream(request, reply);
            return stateless::serve::serve(shard, caller, &message, started, reply).await;
        }
        Profile::Initialize => {
            prefer_stream(request, reply);
            return Box::pin(method::initialize::open(shard, caller, &message, reply)).await;
        }
        Profile::Dropped => return gone_is_fine(reply.accepted().await),
    };
    prefer_stream(request, reply);
    let session = session_of(shard, caller)?;
    crate::preflight::check_version(protocols, version, &session)?;
    message_of_session(shard, caller, &session, &message, started, reply).await
}

fn prefer_stream(request: &Request, reply: &mut Reply<'_>) {
    if crate::preflight::prefers_stream(request) {
        reply.prefer_stream();
    }
}

/// Serves one message of a session: a request is answered, anything else is taken.
pub async fn message_of_session(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    message: &Envelope,
    started: Instant,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    if message.kind != Kind::Request {
        method::taken::take(shard, caller, session, message);
        return gone_is_fine(reply.accepted().await);
    }
    let _running = InFlight::enter(session);
    let body = caller.body;
    let method = message.method.map_or(&b""[..], |span| span.slice(body));
    auth::scope::check(shard, &caller.principal, method)?;
    let aim = match Aim::known(method) {
        Some(aim) => aim,
        None => {
            if let Some(family) = Family::of_method(method) {
                let list = method::list::list(shard, caller, session, message, family, reply);
                return Box::pin(list).await;
            }
            match method {
                b"logging/setLevel" => {
                    let set = method::log_level::set(shard, caller, session, message, reply);
                    return Box::pin(set).await;
                }
                b"ping" => return gone_is_fine(method::ping(caller, message, reply).await),
                // One backend is spoken to as if we were not there.
                _ if caller.host.is_single && !caller.host.backends.is_empty() => Aim::Only,
                _ => {
                    let id = method::id_of(caller, message);
                    return Err(Refusal::rpc(id, -32601, "Method not found"));
                }
            }
        }
    };
    method::call::call(shard, caller, session, message, aim, started, reply).await
}

/// The caller's live session: its own, on this virtual host, or none.
pub fn session_of(shard: &ShardState, caller: &Caller<'_>) -> Result<Rc<Session>, Refusal> {
    if caller.request.head.session_id.is_none() {
        return Err(Refusal::NoSession);
    }
    let id = caller.request.session_id.ok_or(Refusal::UnknownSession)?;
    let now = shards::clock::coarse_ms();
    let host = &caller.host.name;
    let session = shard
        .sessions
        .borrow()
        .touch(&id, &caller.principal.fingerprint, host, now)
        .ok_or_else(|| {
            // A drain ends sessions: their clients are to go elsewhere, not to take them for lost.
            match shard.shard.gate.is_closed() {
                true => Refusal::Draining,
                false => Refusal::UnknownSession,
            }
        })?;
    method::follow_configuration(&session, &caller.host);
    session.keep_token(caller.request, &caller.principal, &caller.host);
    Ok(session)
}

/// A client that left needs no answer, and that is no refusal.
pub fn gone_is_fine(result: Result<(), crate::reply::ClientGone>) -> Result<(), Refusal> {
    // The connection sees that the reply is not complete, and closes.
    let _ = result;
    Ok(())
}

/// Keeps a session from being idle while something runs for it.
struct InFlight<'a>(&'a Session);

impl<'a> InFlight<'a> {
    fn enter(session: &'a Session) -> Self {
        session.in_flight.set(session.in_flight.get() + 1);
        Self(session)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
        self.0.used_ms.set(shards::clock::coarse_ms());
    }
}
