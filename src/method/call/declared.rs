//! `tools/call` of a tool that the virtual host declares itself, for clients with a session and
//! without.
//!
//! A backend behind one is asked like any other, and what it says meanwhile goes the ways that it
//! goes for any other; only its result is held back, for it is checked and filtered.

use std::{pin::pin, rc::Rc, time::Instant};

use futures_util::future::{Either, select};
use serde_json::Value;

use super::{
    attempt::Attempt,
    way::{Way, not_stateless},
};
use crate::{
    declared::{
        Profile, Served, ToolResult,
        call::{self, Asker, CallRefusal},
        claims_of,
    },
    http::Span,
    mcp::{
        edits::Edits,
        envelope::{self, Envelope},
        json::{self, DEPTH_MAX},
        profile,
        reply_scan::{first_error_code, scan_reply},
    },
    method::{id_of, result, taken},
    refusal::Refusal,
    reply::{
        Reply,
        flow::{Flow, Kept},
        relay::{Cut, NOT_SUPPORTED, Relayed},
    },
    request::{Caller, gone_is_fine},
    route::names::{Route, expose_tool},
    session::{Session, calls::ClientCall},
    shard_state::ShardState,
    stateless::{StatelessFault, held},
    upstream::{CallFault, FromClient, exchange::Repeat},
};

/// A call of a declared tool is refused in the words of the client's profile.
fn refused(profile: Profile, id: &[u8], refusal: CallRefusal) -> Refusal {
    match profile {
        Profile::Legacy => Refusal::Tool(id.into(), refusal),
        Profile::Stateless => Refusal::modern(Some(id), StatelessFault::Tool(refusal)),
    }
}

fn profile_of(session: &Session) -> Profile {
    match session.has_client() {
        true => Profile::Legacy,
        false => Profile::Stateless,
    }
}

/// The caller's token is not meant for the backend that would get it.
pub(super) fn not_meant(session: &Session, id: &[u8], fault: CallFault) -> Refusal {
    match session.has_client() {
        true => Refusal::Backend(id.into(), fault),
        false => Refusal::modern(Some(id), StatelessFault::Access("audience")),
    }
}

/// Asks the access rules about a tool that only a backend knows, by the name lists show: an alias
/// is no way around them.
///
/// # Errors
/// The caller may not call it.
pub(super) fn admit_relayed(
    caller: &Caller<'_>,
    session: &Session,
    route: &Route<'_>,
    id: &[u8],
) -> Result<(), Refusal> {
    let declared = &caller.host.declared;
    if !declared.asks_claims() {
        return Ok(());
    }
    let name = expose_tool(&caller.host, route.backend, &route.original);
    let admitted = declared.admit_relayed(&name, &claims_of(caller));
    admitted.map_err(|denial| refused(profile_of(session), id, denial.into()))
}

/// Calls a declared tool and answers.
pub(super) async fn serve(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    session: &Rc<Session>,
    message: &Envelope,
    served: &Served,
    started: Instant,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    let id = id_of(caller, message);
    let token = message.progress_token.map(|span| span.slice(caller.body));
    let entered = session.calls.enter(id, token);
    let claims = claims_of(caller);
    let asker = Asker {
        shard,
        claims: &claims,
        client_head: caller.request.head_bytes(),
        profile: profile_of(session),
        cancel: Some(&entered.call.cancel),
    };
    let declared = &caller.host.declared;
    let arguments = message.arguments.map(|span| span.slice(caller.body));
    let prepared = call::prepare(&asker, declared, served, arguments).await;
    let prepared = prepared.map_err(|refusal| refused(asker.profile, id, refusal))?;
    let arguments = match prepared {
        _ if entered.call.cancel.is_cancelled() => {
            return gone_is_fine(reply.nothing().await);
        }
        Ok(arguments) => arguments,
        Err(told) => {
            let document = result(id, &told.object(asker.profile));
            return gone_is_fine(reply.response(&document).await);
        }
    };
    let work = Work {
        shard,
        caller,
        session,
        served,
        message,
        asker: &asker,
        entry: &entered.call,
        started,
    };
    match served.backend() {
        None => work.ask_api(&arguments, reply).await,
        Some(index) => work.ask_backend(index, &arguments, reply).await,
    }
}

/// A call with prepared arguments.
struct Work<'a, 'b> {
    shard: &'a Rc<ShardState>,
    caller: &'a Caller<'b>,
    session: &'a Rc<Session>,
    served: &'a Served,
    message: &'a Envelope,
    asker: &'a Asker<'a>,
    entry: &'a Rc<ClientCall>,
    started: Instant,
}

impl Work<'_, '_> {
    async fn ask_api(&self, arguments: &Value, reply: &mut Reply<'_>) -> Result<(), Refusal> {
        let id = id_of(self.caller, self.message);
        let declared = &self.caller.host.declared;
        let outcome = {
            let asked = call::ask_api(self.asker, declared, self.served, arguments);
            self.unless_left(asked, reply).await
        };
        if self.entry.cancel.is_cancelled() || outcome == Err(CallRefusal::Cancelled) {
            return gone_is_fine(reply.nothing().await);
        }
        let outcome = outcome.map_err(|refusal| refused(self.asker.profile, id, refusal))?;
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.shard.latency.borrow_mut().record(micros, micros);
        let document = result(id, &outcome.object(self.asker.profile));
        gone_is_fine(reply.response(&document).await)
    }

    /// The outcome of `asked`, which is cancelled when a client without a session leaves.
    async fn unless_left<T>(&self, asked: impl Future<Output = T>, reply: &mut Reply<'_>) -> T {
        let mut asked = pin!(asked);
        if self.session.has_client() {
            return asked.await;
        }
        let pause = pin!(self.shard.before_watching());
        if let Either::Left((outcome, _)) = select(&mut asked, pause).await {
            return outcome;
        }
        if let Either::Left((outcome, _)) = select(&mut asked, pin!(reply.client_hung_up())).await {
            return outcome;
        }
        // Leaving is cancelling (mcp.md 2.6).
        self.shard.numbers.calls_cancelled.add(1);
        taken::abandon(self.shard, self.entry, self.client());
        asked.await
    }

    fn client(&self) -> FromClient<'_> {
        FromClient::of(self.caller.request, &self.caller.principal)
    }

    /// Asks the backend as if the client had called its tool with these arguments.
    async fn ask_backend(
        &self,
        index: usize,
        arguments: &Value,
        reply: &mut Reply<'_>,
    ) -> Result<(), Refusal> {
        let (shard, host) = (self.shard, &self.caller.host);
        let id = id_of(self.caller, self.message);
        let tool = &self.served.tool;
        let (name, is_independent) = match tool.mcp() {
            Some(route) => (&*route.tool, route.is_session_independent),
            None => (&*tool.name, false),
        };
        if let Err(fault) = host.backends[index].admit(&self.caller.principal) {
            return Err(not_meant(self.session, id, fault));
        }
        let asked_for = Some((name, is_independent));
        let found = Way::find(
            shard,
            self.caller,
            self.session,
            index,
            asked_for,
            self.message,
        );
        let Some(way) = Box::pin(found).await? else {
            return gone_is_fine(reply.json(&not_stateless(id)).await);
        };
        let session = way.session().clone();
        let entered = match &way {
            Way::Bridged(_) => {
                let token = self.message.progress_token;
                let token = token.map(|span| span.slice(self.caller.body));
                Some(session.calls.enter(id, token))
            }
            Way::Session(_) | Way::Stateless(..) => None,
        };
        let entry = entered.as_ref().map_or(self.entry, |own| &own.call);
        let mut flow = Flow::new(shard, &session, entry, self.client(), reply);
        flow.keep_response();
        let asked = self.relay(&way, entry, (index, name), arguments, &mut flow);
        let mut outcome = Box::pin(asked).await;
        if !session.has_client() && entry.cancel.is_cancelled() {
            // Leaving is cancelling (mcp.md 2.6).
            shard.numbers.calls_cancelled.add(1);
            outcome = Err(Cut::Client);
        }
        let parked = match outcome {
            Ok(Relayed::Parked(parked)) => parked,
            outcome => {
                return conclude(
                    self.asker,
                    self.caller,
                    self.served,
                    (id, entry),
                    outcome,
                    flow,
                )
                .await;
            }
        };
        let Way::Bridged(bridged) = way else {
            return Err(Refusal::Internal);
        };
        // The backend asks first; the call goes on with the client's next request (mcp.md 2.8).
        flow.take_response();
        let parked = held::Parking {
            bridged,
            parked,
            is_declared: true,
        };
        held::park(shard, self.caller, self.message, parked, &mut flow).await
    }

    /// Relays everything but the response.
    async fn relay(
        &self,
        way: &Way<'_>,
        entry: &Rc<ClientCall>,
        (index, name): (usize, &str),
        arguments: &Value,
        flow: &mut Flow<'_, '_>,
    ) -> Result<Relayed, Cut> {
        let (shard, tool) = (self.shard, &self.served.tool);
        let session = way.session();
        let link = session
            .backend(&self.caller.host, index)
            .ok_or(CallFault::Reconfigured)?;
        let body = self.body(name, arguments);
        let message = envelope::scan(&body, DEPTH_MAX).map_err(|_| CallFault::NotAReply)?;
        let caller = self.caller.with_body(&body);
        let route = Route {
            backend: index,
            original: name.into(),
        };
        let attempt = Attempt {
            shard,
            caller: &caller,
            session,
            link: &link,
            known: way.known(),
            route: &route,
            message: &message,
            method: b"tools/call",
            entry,
            repeat: match tool.safety.idempotent {
                Some(true) => Repeat::Harmless,
                _ => Repeat::IfUnsent,
            },
            has_client_mirrored: false,
            time: tool.timeout,
        };
        attempt.run_to_end(self.started, flow).await
    }

    /// The request as a client of the backend would make it. Of the parameters beside the name and
    /// the arguments those pass that have a meaning here; others could make the answer one that is
    /// not checked.
    fn body(&self, name: &str, arguments: &Value) -> Vec<u8> {
        let (caller, message) = (self.caller, self.message);
        let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        body.extend_from_slice(id_of(caller, message));
        body.extend_from_slice(b",\"method\":\"tools/call\",\"params\":{\"name\":");
        json::quote(&mut body, name);
        body.extend_from_slice(b",\"arguments\":");
        body.extend_from_slice(arguments.to_string().as_bytes());
        if let Some(meta) = message.meta {
            body.extend_from_slice(b",\"_meta\":");
            without_extensions(&mut body, caller.body, meta, message.meta_capabilities);
        }
        let params = message.params.map(|span| span.slice(caller.body));
        if let Some(params) = params.filter(|_| !self.session.has_client()) {
            // What the client answers to what the backend has asked (mcp.md 2.8).
            for member in ["inputResponses", "requestState"] {
                if let Some(value) = json::member(params, member) {
                    body.extend_from_slice(format!(",\"{member}\":").as_bytes());
                    body.extend_from_slice(value.slice(params));
                }
            }
        }
        body.extend_from_slice(b"}}");
        body
    }
}

/// Appends `_meta` as it is at `meta` in `document`, without the extensions that the client knows:
/// nothing of one would reach it.
fn without_extensions(out: &mut Vec<u8>, document: &[u8], meta: Span, capabilities: Option<Span>) {
    let mut edits = Edits::default();
    if let Some(capabilities) = capabilities {
        let within = Span {
            start: capabilities.start - meta.start,
            end: capabilities.end - meta.start,
        };
        edits.drop_members(meta.slice(document), within, |name| name == "extensions");
    }
    edits.apply(out, meta.slice(document));
}

/// Answers a call of a declared tool, as what came of asking its backend says. `call` is the id
/// and the entry of the call, `flow` has kept the backend's response.
pub async fn conclude(
    asker: &Asker<'_>,
    caller: &Caller<'_>,
    served: &Served,
    (id, entry): (&[u8], &Rc<ClientCall>),
    outcome: Result<Relayed, Cut>,
    mut flow: Flow<'_, '_>,
) -> Result<(), Refusal> {
    let kept = flow.take_response();
    let told = match outcome {
        Err(Cut::Client) => return Ok(()),
        _ if entry.cancel.is_cancelled() => {
            flow.nothing().await;
            return Ok(());
        }
        Err(Cut::Backend(fault)) => Err(fault),
        Err(Cut::Headers(_)) => Err(CallFault::HeaderMismatch),
        Ok(_) => Ok(kept),
    };
    let answer = match told {
        Ok(Some(kept)) => Answer::read(kept, asker.profile),
        Ok(None) => Err(CallFault::NotAReply),
        Err(fault) => Err(fault),
    };
    let result_of = match answer {
        Ok(Answer::Result(raw)) => {
            call::of_backend(asker, &caller.host.declared, served, raw).await
        }
        Ok(Answer::Question(asks)) => {
            // A client that has left is not asked.
            let _ = flow.finish(Vec::new(), asks.document, asks.status).await;
            return Ok(());
        }
        Ok(Answer::Error(code)) => {
            let refusal = refused(asker.profile, id, CallRefusal::Backend(code));
            return flow.refuse(refusal).await;
        }
        Ok(Answer::Unknown) => ToolResult::error(NOT_SUPPORTED),
        Err(CallFault::Cancelled) => {
            flow.nothing().await;
            return Ok(());
        }
        Err(fault) => call::of_fault(asker, fault),
    };
    let document = result(id, &result_of.object(asker.profile));
    let _ = flow.finish(Vec::new(), document, 200).await;
    Ok(())
}

/// What a response of the backend behind a declared tool is.
enum Answer {
    /// A raw result.
    Result(Vec<u8>),
    /// The client is to do something first: a message for it.
    Question(Kept),
    /// An error of this code.
    Error(i64),
    /// The result is of an extension.
    Unknown,
}

impl Answer {
    fn read(mut kept: Kept, profile: Profile) -> Result<Self, CallFault> {
        let document = &kept.document;
        let scan = scan_reply(document).map_err(|_| CallFault::NotAReply)?;
        if let Some(error) = scan.error {
            let code = first_error_code(error.slice(document)).unwrap_or(-32603);
            return Ok(match (profile, code) {
                (Profile::Stateless, CAPABILITY_MISSING)
                | (Profile::Legacy, URL_ELICITATION_REQUIRED) => Self::Question(kept),
                _ => Self::Error(code),
            });
        }
        let result = scan.result.ok_or(CallFault::NotAReply)?;
        Ok(match profile::result_marks(document, &scan).kind {
            profile::ResultType::Complete | profile::ResultType::Missing => {
                Self::Result(result.slice(document).to_vec())
            }
            profile::ResultType::InputRequired if profile == Profile::Stateless => {
                // Nothing else: it would be a result that nobody has checked.
                let mut edits = Edits::default();
                edits.drop_members(document, result, |name| !QUESTION_MEMBERS.contains(&name));
                let mut asks = Vec::with_capacity(document.len());
                edits.apply(&mut asks, document);
                kept.document = asks;
                Self::Question(kept)
            }
            _ => Self::Unknown,
        })
    }
}

/// Members of a result that asks (mcp.md 2.8).
const QUESTION_MEMBERS: [&str; 4] = ["resultType", "inputRequests", "requestState", "_meta"];
/// A stateless backend needs what the client has not said it can do (dual-profile.md 1.6).
const CAPABILITY_MISSING: i64 = -32021;
/// The user has something to do elsewhere before the call is made again (mcp.md 3.2).
const URL_ELICITATION_REQUIRED: i64 = -32042;
