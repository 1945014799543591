//! A request that one backend answers: `tools/call` and every other that names a tool, a prompt, a
//! resource or a task. This is the hot path.

mod attempt;
mod declared;
mod rounds;
mod way;

use std::{rc::Rc, time::Instant};

pub use attempt::Attempt;
pub use declared::conclude;
pub use way::tool_error;
use way::{Way, not_stateless};

use crate::{
    config::compiled::VirtualHost,
    mcp::{envelope::Envelope, reply_scan::ReplyKind},
    method::{id_of, list, result},
    preflight::text,
    refusal::Refusal,
    reply::{
        Reply,
        flow::Flow,
        relay::{Cut, Relayed},
    },
    request::{Caller, gone_is_fine},
    route::{
        family::Family,
        names::{Route, route_prompt, route_task, route_tool, route_uri},
    },
    session::{BackendSession, Session, state::OpenBackend},
    shard_state::ShardState,
    stateless::{StatelessFault, held},
    upstream::{CallFault, FromClient, exchange::Repeat, listen, subscribe},
};

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
    let named = Named::of(aim, message, body, id)?;
    if aim == Aim::Tool
        && let Some(served) = caller.host.declared.find(&named.name)
    {
        let serve = declared::serve(shard, caller, session, message, served, started, reply);
        return Box::pin(serve).await;
    }
    if let Some(family) = aim.family()
        && list::must_learn(&caller.host, session, family)
    {
        // Prefixes alone do not tell the backend: learn the exact names first.
        Box::pin(list::learn(shard, caller, session, family)).await;
    }
    let mut route = named.route(caller, &session.learned.borrow(), id);
    if let (Err(_), Some(family)) = (&route, aim.family())
        && list::may_learn_more(&caller.host, session, family)
    {
        // A backend was missing from the list that tells what it lets through.
        Box::pin(list::learn(shard, caller, session, family)).await;
        route = named.route(caller, &session.learned.borrow(), id);
    }
    let route = route?;
    if let Err(fault) = caller.host.backends[route.backend].admit(&caller.principal) {
        return Err(declared::not_meant(session, id, fault));
    }
    if aim == Aim::Tool {
        declared::admit_relayed(caller, session, &route, id)?;
    }
    let tool = (aim == Aim::Tool).then_some((&*route.original, false));
    let way = Way::find(shard, caller, session, route.backend, tool, message).await?;
    let Some(way) = way else {
        return gone_is_fine(reply.json(&not_stateless(id)).await);
    };
    let session = way.session().clone();
    let session = &session;
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
        has_client_mirrored: true,
        time: None,
    };
    let subscription = Subscription::of(session, &caller.host, &route, method);
    if !subscription.begin() {
        return Err(Refusal::rpc(id, -32603, "Too many subscriptions"));
    }
    if aim == Aim::Tool {
        shard.numbers.calls.add(1);
    }
    if let Some(open) = link.open().filter(|open| open.version.is_stateless())
        && subscription.is_one()
    {
        // It knows no such request: the filter of its stream says what is wanted.
        let outcome = subscribe_there(shard, session, &link, &open).await;
        subscription.end(Some(outcome));
        return match outcome {
            ReplyKind::Result => gone_is_fine(reply.response(&result(id, b"{}")).await),
            _ => Err(Refusal::rpc(id, -32601, "Method not found")),
        };
    }
    let client = FromClient::of(caller.request, &caller.principal);
    let mut flow = Flow::new(shard, session, &entered.call, client, reply);
    let mut outcome = attempt.run_to_end(started, &mut flow).await;
    if !session.has_client() && entered.call.cancel.is_cancelled() {
        // Leaving is cancelling (mcp.md 2.6).
        shard.numbers.calls_cancelled.add(1);
        outcome = Err(Cut::Client);
    }
    if let Ok(Relayed::Parked(parked)) = outcome {
        // The backend asks first; the call goes on with the client's next request (mcp.md 2.8).
        let Way::Bridged(bridged) = way else {
            return Err(Refusal::Internal);
        };
        let parked = held::Parking {
            bridged,
            parked,
            is_declared: false,
        };
        return held::park(shard, caller, message, parked, &mut flow).await;
    }
    subscription.end(match &outcome {
        Ok(Relayed::Said(kind)) => Some(*kind),
        _ => None,
    });
    match outcome {
        Err(Cut::Backend(CallFault::Cancelled)) => {
            flow.nothing().await;
            Ok(())
        }
        Err(Cut::Headers(name)) => Err(Refusal::modern(Some(id), StatelessFault::Header(name))),
        Err(Cut::Backend(fault)) => {
            shard.numbers.calls_failed.add(1);
            flow.refuse(Refusal::Backend(id.into(), fault)).await
        }
        // A client that left is no refusal; its connection closes.
        Ok(_) | Err(Cut::Client) => Ok(()),
    }
}

/// Subscribes at a stateless backend, or ends that: its stream is opened anew.
async fn subscribe_there(
    shard: &Rc<ShardState>,
    session: &Rc<Session>,
    link: &Rc<BackendSession>,
    open: &Rc<OpenBackend>,
) -> ReplyKind {
    if !subscribe::takes_uris(open) {
        return ReplyKind::Error;
    }
    let ready = listen::anew(shard, session, link);
    let patience = shard.upstream.limits.fan_out;
    // Without its own stream the client hears nothing, and it may open one later.
    if let Some(ready) = ready {
        let _ = shards::task::within(patience, ready.wait()).await;
    }
    ReplyKind::Result
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

    fn is_one(&self) -> bool {
        !matches!(self, Self::None)
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
