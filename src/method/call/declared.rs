//! `tools/call` of a tool that the virtual host declares itself, for clients with a session and
//! without.

use std::{cell::RefCell, pin::pin, rc::Rc, time::Instant};

use futures_util::future::{Either, select};

use super::{
    attempt::Attempt,
    way::{NOT_STATELESS, Way},
};
use crate::{
    declared::{
        Profile, Served,
        call::{Asker, BackendCall, BackendFailure, CallRefusal, call},
        claims_of,
    },
    mcp::{
        envelope::{self, Envelope},
        json::{self, DEPTH_MAX},
        profile,
        reply_scan::{ReplyKind, first_error_code, scan_reply},
    },
    method::{id_of, result, taken},
    refusal::Refusal,
    reply::{
        Reply, Sink,
        flow::Flow,
        relay::{Cut, Relayed},
    },
    request::{Caller, gone_is_fine},
    route::names::{Route, expose_tool},
    session::{Session, calls::ClientCall},
    shard_state::ShardState,
    stateless::StatelessFault,
    upstream::{CallFault, FromClient, exchange::Repeat},
};

/// A call of a declared tool is refused in the words of the client's profile.
pub(super) fn refused(session: &Session, id: &[u8], refusal: CallRefusal) -> Refusal {
    match session.has_client() {
        true => Refusal::Tool(id.into(), refusal),
        false => Refusal::modern(Some(id), StatelessFault::Tool(refusal)),
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
    admitted.map_err(|denial| refused(session, id, denial.into()))
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
    let head = caller.request.head_bytes();
    let token = message.progress_token.map(|span| span.slice(caller.body));
    let entered = session.calls.enter(id, token);
    let claims = claims_of(caller);
    let profile = match session.has_client() {
        true => Profile::Legacy,
        false => Profile::Stateless,
    };
    let asker = Asker {
        shard,
        claims: &claims,
        client_head: head,
        profile,
        cancel: Some(&entered.call.cancel),
    };
    let behind = Behind {
        shard,
        caller,
        session,
        served,
        message,
        entry: &entered.call,
        started,
        refusal: RefCell::default(),
    };
    let arguments = message.arguments.map(|span| span.slice(caller.body));
    let declared = &caller.host.declared;
    let backend = async |call: BackendCall<'_>| behind.call(call).await;
    let outcome = {
        let mut work = pin!(call(&asker, declared, served, arguments, backend));
        let pause = pin!(shard.before_watching());
        match session.has_client() {
            true => work.await,
            false => match select(&mut work, pause).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => {
                    match select(&mut work, pin!(reply.client_hung_up())).await {
                        Either::Left((outcome, _)) => outcome,
                        Either::Right(_) => {
                            // Leaving is cancelling (mcp.md 2.6).
                            shard.numbers.calls_cancelled.add(1);
                            let client = FromClient::of(caller.request, &caller.principal);
                            taken::abandon(shard, &entered.call, client);
                            work.await
                        }
                    }
                }
            },
        }
    };
    let is_cancelled = entered.call.cancel.is_cancelled();
    if let Some(refusal) = behind.refusal.take() {
        return Err(refusal);
    }
    drop(entered);
    match outcome {
        Err(CallRefusal::Cancelled) => gone_is_fine(reply.nothing().await),
        _ if is_cancelled => gone_is_fine(reply.nothing().await),
        Ok(outcome) => {
            if served.tool.http().is_some() {
                let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                shard.latency.borrow_mut().record(micros, micros);
            }
            let document = result(id, &outcome.object(profile));
            gone_is_fine(reply.response(&document).await)
        }
        Err(refusal) => Err(refused(session, id, refusal)),
    }
}

/// A backend's tool behind a declared one: it is called as if the client had called it with the
/// masked arguments, and its response is kept.
struct Behind<'a, 'b> {
    shard: &'a Rc<ShardState>,
    caller: &'a Caller<'b>,
    session: &'a Rc<Session>,
    served: &'a Served,
    message: &'a Envelope,
    entry: &'a Rc<ClientCall>,
    started: Instant,
    /// Why no way leads to the backend, when that has an answer of its own.
    refusal: RefCell<Option<Refusal>>,
}

impl Behind<'_, '_> {
    async fn call(&self, call: BackendCall<'_>) -> Result<Vec<u8>, BackendFailure> {
        let (shard, host) = (self.shard, &self.caller.host);
        let tool = &self.served.tool;
        let is_independent = tool.mcp().is_some_and(|route| route.is_session_independent);
        if let Err(fault) = host.backends[call.backend].admit(&self.caller.principal) {
            return Err(self.refuse(not_meant(
                self.session,
                id_of(self.caller, self.message),
                fault,
            )));
        }
        let found = Way::find(
            shard,
            self.caller,
            self.session,
            call.backend,
            Some((call.tool, is_independent)),
            self.message,
        );
        let way = match Box::pin(found).await {
            Ok(Some(way)) => way,
            Ok(None) => return Err(BackendFailure::Told(NOT_STATELESS)),
            Err(refusal) => return Err(self.refuse(refusal)),
        };
        let session = way.session();
        let link = session
            .backend(host, call.backend)
            .ok_or(CallFault::Reconfigured)?;
        let body = self.body(&call);
        let message = envelope::scan(&body, DEPTH_MAX).map_err(|_| CallFault::NotAReply)?;
        let caller = self.caller.with_body(&body);
        let route = Route {
            backend: call.backend,
            original: call.tool.into(),
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
            entry: self.entry,
            repeat: match tool.safety.idempotent {
                Some(true) => Repeat::Harmless,
                _ => Repeat::IfUnsent,
            },
            has_client_mirrored: false,
            time: tool.timeout,
        };
        let gate = shard.shard.gate.clone();
        let mut kept = Reply::new(Sink::Memory(Vec::new()), gate, true, 1);
        let client = FromClient::of(self.caller.request, &self.caller.principal);
        let mut flow = Flow::new(shard, session, self.entry, client, &mut kept);
        let outcome = Box::pin(attempt.run_to_end(self.started, &mut flow)).await;
        drop(flow);
        match outcome {
            Ok(Relayed::Said(ReplyKind::Result | ReplyKind::Error)) => read(&kept.into_body()),
            // It wants to hear more of the client first, which a declared tool does not pass on.
            Ok(_) => Err(BackendFailure::Told(NO_ROUNDS)),
            Err(Cut::Backend(fault)) => Err(fault.into()),
            Err(Cut::Client) => Err(CallFault::Cancelled.into()),
            Err(Cut::Headers(_)) => Err(CallFault::HeaderMismatch.into()),
        }
    }

    /// Keeps the answer for when the call has ended without one.
    fn refuse(&self, refusal: Refusal) -> BackendFailure {
        *self.refusal.borrow_mut() = Some(refusal);
        CallFault::Reconfigured.into()
    }

    /// The request as the backend's own clients would make it.
    fn body(&self, call: &BackendCall<'_>) -> Vec<u8> {
        let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        body.extend_from_slice(id_of(self.caller, self.message));
        body.extend_from_slice(b",\"method\":\"tools/call\",\"params\":{\"name\":");
        json::quote(&mut body, call.tool);
        body.extend_from_slice(b",\"arguments\":");
        body.extend_from_slice(&call.arguments);
        if !self.session.has_client() {
            // A stateless client says in each request who it is; a session has said it once.
            let raw =
                |span: Option<crate::http::Span>| span.map(|span| span.slice(self.caller.body));
            let asker = profile::Asker {
                info: raw(self.message.meta_client_info),
                capabilities: raw(self.message.meta_capabilities).unwrap_or(b"{}"),
                log_level: None,
            };
            body.extend_from_slice(b",\"_meta\":{");
            asker.write(&mut body);
            body.push(b'}');
        }
        body.extend_from_slice(b"}}");
        body
    }
}

/// What a tool error says about a backend that asks back (dual-profile.md 2.3).
const NO_ROUNDS: &str =
    "shardgate does not support MCP multi round-trip bridging for declared tools";

/// The raw result in a response.
fn read(document: &[u8]) -> Result<Vec<u8>, BackendFailure> {
    let scan = scan_reply(document).map_err(|_| CallFault::NotAReply)?;
    if let Some(error) = scan.error {
        let code = first_error_code(error.slice(document));
        return Err(BackendFailure::Error(code.unwrap_or(-32603)));
    }
    let result = scan.result.ok_or(CallFault::NotAReply)?;
    match profile::result_marks(document, &scan).kind {
        profile::ResultType::Complete | profile::ResultType::Missing => {
            Ok(result.slice(document).to_vec())
        }
        profile::ResultType::InputRequired
        | profile::ResultType::Task
        | profile::ResultType::Extension => Err(BackendFailure::Told(NO_ROUNDS)),
    }
}
