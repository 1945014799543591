//! Calls that wait for their client: a backend with sessions asks something in the middle of a
//! call, and the client, which has no session, is asked by the result of its request (mcp.md 2.8).
//!
//! The call's backend session and its open stream are held under a handle that travels as the
//! request's state: authenticated, of this shard, bound to the principal, the virtual host and the
//! very request, and good for one retry. There are few of them, each for a limited time; one that
//! is not taken up ends with its backend session.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{BuildHasher, Hash, Hasher},
    rc::Rc,
    sync::LazyLock,
    time::Instant,
};

use memchr::memmem::Finder;
use shards::{ShardId, deadline::now_ms};

use crate::{
    declared::{
        Profile,
        call::{Asker, admit},
        claims_of,
    },
    mcp::{
        envelope::{self, Envelope},
        json::{self, DEPTH_MAX},
        profile,
        version::STATELESS,
    },
    method::{call::conclude, id_of, result},
    preflight::text,
    refusal::Refusal,
    reply::{
        Reply,
        flow::Flow,
        heard::Question,
        relay::{Call, Cut, Relayed},
        stream::{Parked, Stream},
    },
    request::{Caller, Request, gone_is_fine},
    session::SessionId,
    shard_state::ShardState,
    stateless::{
        StatelessFault,
        bridge::{Bridged, CALL_PATIENCE},
    },
    upstream::{FromClient, say},
};

/// Calls that one shard holds.
const HELD_MAX: usize = 64;
/// How long one is held, ms.
const HELD_MS: u64 = 120_000;

/// A call whose backend asks first.
pub struct Parking {
    /// Its backend session.
    pub bridged: Box<Bridged>,
    /// Its stream, and what is asked.
    pub parked: Box<Parked>,
    /// It is of a tool that the virtual host declares: what it comes to is not relayed as it is.
    pub is_declared: bool,
}

struct Held {
    call: Parking,
    principal: [u8; 16],
    host: Box<str>,
    /// Digest of what was asked for: the retry must ask for the same.
    digest: u64,
    until_ms: u64,
}

/// The calls that one shard holds.
#[derive(Default)]
pub struct HeldCalls {
    known: RefCell<HashMap<SessionId, Held>>,
    hasher: foldhash::fast::RandomState,
}

impl std::fmt::Debug for HeldCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldCalls").finish_non_exhaustive()
    }
}

impl HeldCalls {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.borrow().is_empty()
    }

    /// Ends those nobody came back for.
    pub fn sweep(&self, now_ms: u64) {
        let mut known = self.known.borrow_mut();
        let over: Vec<SessionId> = known
            .iter()
            .filter(|(_, held)| held.until_ms <= now_ms)
            .map(|(id, _)| *id)
            .collect();
        let over: Vec<Held> = over.iter().filter_map(|id| known.remove(id)).collect();
        // Ending them must not meet the table borrowed.
        drop(known);
        drop(over);
    }

    /// Ends all of them.
    pub fn clear(&self) {
        let all = self.known.take();
        drop(all);
    }

    fn digest(&self, caller: &Caller<'_>, message: &Envelope) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for span in [message.method, message.name, message.uri, message.arguments] {
            span.map(|span| span.slice(caller.body)).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Looks for the member of a request that may hold a handle.
static REQUEST_STATE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"requestState\""));

/// The handle that a request's state is, if it has the form of one.
pub fn handle_in(message: &Envelope, body: &[u8]) -> Option<SessionId> {
    let state = message.request_state?.slice(body);
    SessionId::parse(json::unescape(state)?.as_bytes())
}

/// The other shard that holds the call which a stateless request goes on with.
pub fn holder(shard: &ShardState, request: &Request) -> Option<ShardId> {
    let version = request.field(request.head.protocol_version);
    let body = request.body_bytes();
    if shard.shard.count == 1 || version != Some(STATELESS.as_bytes()) {
        return None;
    }
    REQUEST_STATE.find(body)?;
    let message = envelope::scan(body, DEPTH_MAX).ok()?;
    let handle = handle_in(&message, body)?;
    let owner = shard.shard.slots.owner_of(handle.as_bytes());
    (owner != shard.shard.id && shard.id_keys.is_genuine(&handle)).then_some(owner)
}

/// Holds a call, and asks its client.
///
/// # Errors
/// There is no room for it.
pub async fn park(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    message: &Envelope,
    call: Parking,
    flow: &mut Flow<'_, '_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let held = &shard.held;
    if held.len() >= HELD_MAX {
        return Err(Refusal::modern(
            Some(id),
            StatelessFault::Limit("held_calls", 429),
        ));
    }
    let (me, slots) = (shard.shard.id, &shard.shard.slots);
    let handle = shard
        .id_keys
        .mint(|bytes| slots.owner_of(bytes) == me)
        .map_err(|_| Refusal::Internal)?;
    call.parked.source.rest();
    let said = question(&call.parked.questions, &handle);
    let entry = Held {
        call,
        principal: caller.principal.fingerprint,
        host: caller.host.name.clone(),
        digest: held.digest(caller, message),
        until_ms: now_ms() + HELD_MS,
    };
    held.known.borrow_mut().insert(handle, entry);
    shard.numbers.calls_held.add(1);
    // A client that has left does not come back for it; its time ends it.
    let _ = flow.finish(Vec::new(), result(id, &said), 200).await;
    gone_is_fine(Ok(()))
}

/// The result that asks.
fn question(questions: &[Question], handle: &SessionId) -> Vec<u8> {
    let mut out = b"{\"resultType\":\"input_required\",\"inputRequests\":{".to_vec();
    for (index, question) in questions.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(format!("\"{}\":{{\"method\":", key_of(index)).as_bytes());
        json::quote(&mut out, &String::from_utf8_lossy(&question.method));
        if let Some(params) = &question.params {
            out.extend_from_slice(b",\"params\":");
            out.extend_from_slice(params);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"},\"requestState\":\"");
    out.extend_from_slice(handle.as_bytes());
    out.extend_from_slice(b"\",\"_meta\":{");
    out.extend_from_slice(profile::own_server_info().as_bytes());
    out.extend_from_slice(b"}}");
    out
}

fn key_of(index: usize) -> String {
    format!("question-{}", index + 1)
}

/// Goes on with a held call, with the client's answers.
pub async fn resume(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    message: &Envelope,
    handle: SessionId,
    started: Instant,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let refused = |fault| Refusal::modern(Some(id), fault);
    let digest = shard.held.digest(caller, message);
    // The name says one tool only as long as the configuration does.
    let served = match message.method.map(|span| span.slice(caller.body)) {
        Some(b"tools/call") => text(message.name.map(|span| span.slice(caller.body))),
        _ => None,
    };
    let served = served.and_then(|name| caller.host.declared.find(&name));
    let is_own = |held: &Held| {
        held.call.is_declared == served.is_some()
            && held.principal == caller.principal.fingerprint
            && held.host == caller.host.name
            && held.digest == digest
            && held.until_ms > now_ms()
    };
    let held = {
        let mut known = shard.held.known.borrow_mut();
        match known.get(&handle).is_some_and(is_own) {
            true => known.remove(&handle),
            false => None,
        }
    };
    let held =
        held.ok_or_else(|| refused(StatelessFault::Unknown("Invalid params: requestState")))?;
    let call = held.call;
    let (leg, questions) = (&call.parked.leg, &call.parked.questions);
    let to = say::Listener {
        place: leg.place.clone(),
        open: leg.open.clone(),
    };
    let session = call.bridged.session.clone();
    let token = message.progress_token.map(|span| span.slice(caller.body));
    let entered = session.calls.enter(id, token);
    entered.call.add_leg(leg.clone());
    let claims = claims_of(caller);
    let asker = Asker {
        shard,
        claims: &claims,
        client_head: caller.request.head_bytes(),
        profile: Profile::Stateless,
        cancel: Some(&entered.call.cancel),
    };
    if let Some(served) = served {
        // The caller may be another one by now, as far as the token tells.
        let admitted = admit(&asker, &caller.host.declared, served);
        admitted.map_err(|refusal| refused(StatelessFault::Tool(refusal)))?;
    }
    if let Err(fault) = to.place.backend().admit(&caller.principal) {
        return Err(refused(StatelessFault::Backend(fault)));
    }
    let client = FromClient::of(caller.request, &caller.principal);
    let mut flow = Flow::new(shard, &session, &entered.call, client, reply);
    let Some(answers) = answers_in(message, caller.body, questions) else {
        // Some are missing: they are asked again (mcp.md 2.8).
        return park(shard, caller, message, call, &mut flow).await;
    };
    call.parked.source.wake(&entered.call.cancel, CALL_PATIENCE);
    for (question, answer) in questions.iter().zip(answers) {
        let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        body.extend_from_slice(&question.backend_id);
        body.extend_from_slice(b",\"result\":");
        body.extend_from_slice(answer);
        body.push(b'}');
        let patience = shard.upstream.limits.first_byte;
        let told = say::say_now(shard, &to, &body, client, patience).await;
        told.map_err(|fault| refused(StatelessFault::Backend(fault)))?;
    }
    let upstream_id = leg.upstream_id.to_string();
    let method = message
        .method
        .map_or(&b""[..], |span| span.slice(caller.body));
    if served.is_some() {
        flow.keep_response();
    }
    let relayed = Call {
        session: &session,
        backend: &to,
        method,
        client_id: id,
        upstream_id: upstream_id.as_bytes(),
        entry: &entered.call,
        client,
        extensions: b"{}",
        is_private: !caller.principal.anonymous,
        log_level: None,
    };
    let parked = *call.parked;
    let outcome = Box::pin(Stream::new(shard, &relayed, parked.source, &mut flow).relay()).await;
    shard.latency.borrow_mut().record(
        u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        0,
    );
    match (outcome, served) {
        (Ok(Relayed::Parked(parked)), _) => {
            flow.take_response();
            let call = Parking {
                bridged: call.bridged,
                parked,
                is_declared: call.is_declared,
            };
            park(shard, caller, message, call, &mut flow).await
        }
        (outcome, Some(served)) => {
            let asked = (id, &entered.call);
            conclude(&asker, caller, served, asked, outcome, flow).await
        }
        (Ok(_) | Err(Cut::Client), None) => Ok(()),
        (Err(Cut::Headers(name)), None) => Err(refused(StatelessFault::Header(name))),
        (Err(Cut::Backend(fault)), None) => {
            shard.numbers.calls_failed.add(1);
            flow.refuse(refused(StatelessFault::Backend(fault))).await
        }
    }
}

/// The answers, raw, in the order of the questions; `None`: one is missing.
fn answers_in<'a>(
    message: &Envelope,
    body: &'a [u8],
    questions: &[Question],
) -> Option<Vec<&'a [u8]>> {
    let params = message.params?.slice(body);
    let responses = json::member(params, "inputResponses")?.slice(params);
    let answer = |index: usize| {
        let answer = json::member(responses, &key_of(index))?.slice(responses);
        answer.starts_with(b"{").then_some(answer)
    };
    (0..questions.len()).map(answer).collect()
}
