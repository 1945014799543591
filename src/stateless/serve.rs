//! One stateless request, from the checks to the method that answers it.

use std::{rc::Rc, time::Instant};

use crate::{
    auth::scope,
    http::Span,
    mcp::{envelope::Envelope, json},
    method::{self, call::Aim},
    preflight::text,
    refusal::Refusal,
    reply::Reply,
    request::Caller,
    route::family::Family,
    shard_state::ShardState,
    stateless::{Standing, StatelessFault, admit, discover, held, listen, permits::Permit},
};

/// Methods of older revisions that this one has not (mcp.md 2.11): no backend is asked.
const REMOVED: [&[u8]; 8] = [
    b"initialize",
    b"ping",
    b"logging/setLevel",
    b"resources/subscribe",
    b"resources/unsubscribe",
    b"tasks/list",
    b"tasks/result",
    b"roots/list",
];

/// Serves a request that was classified as stateless.
pub async fn serve(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    message: &Envelope,
    started: Instant,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let body = caller.body;
    let id = message.id.map(|span| span.slice(body));
    let refused = |fault| Refusal::modern(id, fault);
    let request = caller.request;
    let (head, head_bytes) = (&request.head, request.head_bytes());
    admit::admit(head, head_bytes, message, body).map_err(refused)?;
    let method = message.method.map_or(&b""[..], |span| span.slice(body));
    let work = Work::of(method)
        .ok_or(StatelessFault::Method)
        .map_err(refused)?;
    scope::check(shard, &caller.principal, method)?;
    if let Some(name) = work.named(message, body).map_err(refused)? {
        admit::check_name(head, head_bytes, &name).map_err(refused)?;
    }
    if shard.shard.gate.is_closed() {
        return Err(refused(StatelessFault::Draining));
    }
    let standing = shard.standings.of(shard, caller)?;
    shard.numbers.stateless.add(1);
    if work == Work::Listen {
        // It holds no place among the requests under way.
        let listen = listen::serve(shard, caller, &standing, message, reply);
        return Box::pin(listen).await;
    }
    let _permit = permit(shard, caller).map_err(refused)?;
    match work {
        Work::Discover => {
            Box::pin(discover::answer(shard, caller, &standing, message, reply)).await
        }
        Work::Listen => Ok(()),
        Work::List(family) => {
            let list = method::list::stateless(shard, caller, &standing, message, family, reply);
            Box::pin(list).await
        }
        Work::Call(aim) => {
            if aim == Aim::Only && !Box::pin(has_extensions(shard, caller, &standing)).await {
                return Err(refused(StatelessFault::Method));
            }
            if let Some(handle) = held::handle_in(message, body)
                && shard.id_keys.is_genuine(&handle)
            {
                let resume = held::resume(shard, caller, message, handle, started, reply);
                return Box::pin(resume).await;
            }
            method::call::call(
                shard,
                caller,
                &standing.session,
                message,
                aim,
                started,
                reply,
            )
            .await
        }
    }
}

/// A place among the requests under way. Callers nobody tells apart have no share of their own.
fn permit(shard: &ShardState, caller: &Caller<'_>) -> Result<Permit, StatelessFault> {
    let principal = &caller.principal;
    let own = (!principal.anonymous).then_some(&principal.fingerprint);
    shard
        .stateless_requests
        .take(own)
        .ok_or(StatelessFault::Limit("concurrency", 429))
}

/// What a method wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Discover,
    Listen,
    List(Family),
    Call(Aim),
}

impl Work {
    fn of(method: &[u8]) -> Option<Self> {
        if REMOVED.contains(&method) || method.starts_with(b"notifications/") {
            return None;
        }
        Some(match method {
            b"server/discover" => Self::Discover,
            b"subscriptions/listen" => Self::Listen,
            b"tasks/get" | b"tasks/update" | b"tasks/cancel" => Self::Call(Aim::Task),
            _ => match (Aim::known(method), Family::of_method(method)) {
                (Some(aim), _) => Self::Call(aim),
                (None, Some(family)) => Self::List(family),
                (None, None) => Self::Call(Aim::Only),
            },
        })
    }

    /// What `Mcp-Name` must say; `None`: the method has none.
    fn named<'a>(
        self,
        message: &Envelope,
        body: &'a [u8],
    ) -> Result<Option<std::borrow::Cow<'a, str>>, StatelessFault> {
        let read = |span: Option<Span>| text(span.map(|span| span.slice(body)));
        let (name, missing) = match self {
            Self::Call(Aim::Tool | Aim::Prompt) => (read(message.name), "name"),
            Self::Call(Aim::Resource) => (read(message.uri), "uri"),
            Self::Call(Aim::Task) => (read(message.task_id), "taskId"),
            _ => return Ok(None),
        };
        if let Some(arguments) = message.arguments
            && self == Self::Call(Aim::Tool)
            && !arguments.slice(body).starts_with(b"{")
        {
            return Err(StatelessFault::Params("arguments must be an object"));
        }
        name.map(Some).ok_or(StatelessFault::Params(missing))
    }
}

/// Whether the only backend has extensions, whose methods are its own.
async fn has_extensions(shard: &Rc<ShardState>, caller: &Caller<'_>, standing: &Standing) -> bool {
    if !caller.host.is_single {
        return false;
    }
    let opened = standing.all_open(shard, caller).await;
    let Some(Ok(open)) = opened.first() else {
        return false;
    };
    json::member(&open.capabilities, "extensions").is_some()
}
