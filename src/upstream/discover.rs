//! What a backend without sessions can do, and whether a backend is one (mcp.md 2.4, 2.12).
//!
//! `server/discover` is asked once for each place and set of own headers, under single flight, and
//! the answer is kept for as long as it says, within bounds. A backend counts as one with sessions
//! only when it answers as such: refused credentials, server errors and silence prove nothing
//! (dual-profile.md 2.7), so they are never remembered as a verdict.

use std::{cell::RefCell, rc::Rc, time::Duration};

use shards::{clock::coarse_ms, deadline::now_ms, notify::Event, spawn};

use crate::{
    config::{compiled::Backend, credential::Credential, user_config::BackendProtocol},
    http::{ContentKind, Encoding},
    mcp::{
        json,
        profile::own_meta,
        reply_scan::first_error_code,
        version::{STATELESS, Version},
    },
    session::state::OpenBackend,
    shard_state::ShardState,
    upstream::{
        CallFault, Exchange, FromClient,
        exchange::{Manner, Repeat},
        request,
        rpc::{Answer, response_to},
        target::Target,
    },
};

/// Places remembered of one target.
const KNOWN_MAX: usize = 64;
/// How long what a backend said is kept, ms: at least, and at the most.
const KEPT_MS: (u64, u64) = (1_000, 300_000);
/// How long a backend counts as one with sessions before it is asked again, ms.
const LEGACY_MS: u64 = 300_000;
/// Bytes read of a reply that is an HTTP error.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Which profile a backend speaks.
#[derive(Debug, Clone)]
pub enum Era {
    /// The one with sessions.
    Sessions,
    /// The stateless one; with what it can do.
    Stateless(Rc<OpenBackend>),
}

/// What is known of the places of one target.
#[derive(Debug, Default)]
pub struct Discoveries(RefCell<Vec<Discovery>>);

#[derive(Debug)]
struct Discovery {
    place: DiscoveryPlace,
    state: State,
}

#[derive(Debug, Clone, PartialEq)]
struct DiscoveryPlace {
    path: Box<str>,
    add_headers: Vec<(Box<str>, Box<str>)>,
    credential: Option<Credential>,
    caller_resource: Option<Box<str>>,
}

#[derive(Debug, Clone)]
enum State {
    Asking(Rc<Event>),
    Known(Era, u64),
    Failed(CallFault),
}

impl DiscoveryPlace {
    fn of(backend: &Backend) -> Self {
        Self {
            path: backend.path.clone(),
            add_headers: backend.add_headers.clone(),
            credential: backend.credential.clone(),
            caller_resource: backend.caller_resource.clone(),
        }
    }

    fn is_of(&self, backend: &Backend) -> bool {
        self.path == backend.path
            && self.add_headers == backend.add_headers
            && self.credential == backend.credential
            && self.caller_resource == backend.caller_resource
    }
}

impl Discoveries {
    fn get(&self, backend: &Backend) -> Option<State> {
        let all = self.0.borrow();
        let found = all.iter().find(|known| known.place.is_of(backend));
        found.map(|known| known.state.clone())
    }

    fn set(&self, backend: &Backend, state: State) {
        let mut all = self.0.borrow_mut();
        if let Some(known) = all.iter_mut().find(|known| known.place.is_of(backend)) {
            known.state = state;
            return;
        }
        if all.len() >= KNOWN_MAX {
            all.remove(0);
        }
        let place = DiscoveryPlace::of(backend);
        all.push(Discovery { place, state });
    }

    /// Forgets what is known of a backend: it has answered as one of another profile.
    pub fn forget(&self, backend: &Backend) {
        let mut all = self.0.borrow_mut();
        all.retain(|known| matches!(known.state, State::Asking(_)) || !known.place.is_of(backend));
    }
}

/// Which profile a backend speaks, for a client without sessions. Waits at most `patience`. Whether
/// the backend may be asked for this client at all ([`Backend::admit`]) is asked before.
///
/// # Errors
/// Why that is not known.
pub async fn era(
    shard: &Rc<ShardState>,
    backend: &Backend,
    client: FromClient<'_>,
    patience: Duration,
) -> Result<Era, CallFault> {
    if backend.protocol == BackendProtocol::Legacy {
        return Ok(Era::Sessions);
    }
    let known = &backend.target.discoveries;
    let event = match known.get(backend) {
        Some(State::Known(era, until_ms)) if coarse_ms() < until_ms => return Ok(era),
        Some(State::Asking(event)) => event,
        _ if backend.target.breaker.is_open(now_ms()) => return Err(CallFault::CircuitOpen),
        _ => ask_once(shard, backend, client),
    };
    let _ = shards::task::within(patience, event.wait()).await;
    match known.get(backend) {
        Some(State::Known(era, _)) => Ok(era),
        Some(State::Failed(fault)) => Err(fault),
        Some(State::Asking(_)) | None => Err(CallFault::FirstByteTimeout),
    }
}

/// Asks a backend on a task of its own; the event says when it is known.
fn ask_once(shard: &Rc<ShardState>, backend: &Backend, client: FromClient<'_>) -> Rc<Event> {
    let event = Rc::new(Event::default());
    let asking = Asking {
        target: backend.target.clone(),
        event: event.clone(),
    };
    backend
        .target
        .discoveries
        .set(backend, State::Asking(event.clone()));
    let id = backend.target.next_id().to_string();
    let again = backend.target.next_id().to_string();
    let requests = [id, again].map(|id| (discover_request(backend, &id, client), id));
    let head = request::post_head(backend, None, Some(Version::V2026_07_28));
    let place = DiscoveryPlace::of(backend);
    let is_fixed = backend.protocol == BackendProtocol::Stateless;
    let shard = shard.clone();
    spawn(async move {
        let outcome = ask_twice(&shard, &asking.target, requests).await;
        let state = match outcome {
            Ok(Verdict::Stateless(answer)) => known_stateless(&answer, head),
            Ok(Verdict::Sessions) if is_fixed => State::Failed(CallFault::Revision),
            Ok(Verdict::Sessions) => State::Known(Era::Sessions, now_ms() + LEGACY_MS),
            Ok(Verdict::Refused) => State::Failed(CallFault::Revision),
            Err(fault) => State::Failed(fault),
        };
        asking.settle(&place, state);
    });
    event
}

/// The obligation to leave `Asking` again, whatever happens.
struct Asking {
    target: Rc<Target>,
    event: Rc<Event>,
}

impl Asking {
    fn settle(self, place: &DiscoveryPlace, state: State) {
        let mut all = self.target.discoveries.0.borrow_mut();
        if let Some(known) = all.iter_mut().find(|known| known.place == *place) {
            known.state = state;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let event = &self.event;
        let mut all = self.target.discoveries.0.borrow_mut();
        all.retain(|known| !matches!(&known.state, State::Asking(own) if Rc::ptr_eq(own, event)));
        drop(all);
        event.fire();
    }
}

fn discover_request(backend: &Backend, id: &str, client: FromClient<'_>) -> Vec<u8> {
    let mut body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover","params":{{"#)
        .into_bytes();
    own_meta(&mut body);
    body.extend_from_slice(b"}}");
    let mut request = request::post_head(backend, None, Some(Version::V2026_07_28));
    let mirror = request::Mirror::of_method(b"server/discover");
    request::finish_mirrored_head(&mut request, body.len(), &mirror, backend, client);
    request.extend_from_slice(&body);
    request
}

/// How a backend answered `server/discover`.
enum Verdict {
    Stateless(Answer),
    Sessions,
    /// It would not serve the revision, and named it as one that it serves.
    Refused,
}

/// Asks, and once more if the backend contradicts itself: a client retries with a revision that was
/// named to it, and there is no other to choose (mcp.md 2.4).
async fn ask_twice(
    shard: &Rc<ShardState>,
    target: &Rc<Target>,
    [first, second]: [(Vec<u8>, String); 2],
) -> Result<Verdict, CallFault> {
    match ask(shard, target, first.0, &first.1).await {
        Ok(Verdict::Refused) => ask(shard, target, second.0, &second.1).await,
        outcome => outcome,
    }
}

async fn ask(
    shard: &Rc<ShardState>,
    target: &Rc<Target>,
    request: Vec<u8>,
    id: &str,
) -> Result<Verdict, CallFault> {
    let upstream = &shard.upstream;
    let manner = Manner {
        repeat: Repeat::Harmless,
        first_byte: upstream.limits.first_byte,
        is_lateness_telling: true,
        is_stateless: false,
        is_endless: false,
        cancel: None,
    };
    let mut exchange = upstream.exchange_in_time(target, request, manner).await?;
    let status = exchange.head.status;
    let verdict = match status {
        200 => {
            let form = upstream.form(&mut exchange, true).await?;
            judge_answer(upstream.read_answer(exchange, form, id.as_bytes()).await)
        }
        401 | 403 | 407 | 429 | 500.. => Err(CallFault::Status(status)),
        400..500 => judge_refusal(&mut exchange, id).await,
        _ => Err(CallFault::Status(status)),
    };
    match verdict {
        Err(CallFault::CallTimeout) => target.breaker.failed(now_ms()),
        _ => target.breaker.succeeded(),
    }
    verdict
}

/// A reply with status 200.
fn judge_answer(answer: Result<Answer, CallFault>) -> Result<Verdict, CallFault> {
    let answer = match answer {
        Ok(answer) => answer,
        // A stream without our response, or no JSON-RPC: not a server of that revision.
        Err(CallFault::NoResponse | CallFault::NotAReply) => return Ok(Verdict::Sessions),
        Err(fault) => return Err(fault),
    };
    if let Some(code) = answer.error_code() {
        return judge_code(
            code,
            answer.scan.error.map(|span| span.slice(&answer.document)),
        );
    }
    let versions = answer.result_member("supportedVersions").unwrap_or(b"[]");
    if lists(versions, STATELESS) {
        return Ok(Verdict::Stateless(answer));
    }
    Ok(Verdict::Sessions)
}

/// A reply with a status that says no: whatever is not said in the words of the stateless revision
/// comes from a server with sessions (mcp.md 0.8).
async fn judge_refusal(exchange: &mut Exchange, id: &str) -> Result<Verdict, CallFault> {
    let head = &exchange.head;
    let is_json = head.content == ContentKind::Json && head.encoding == Encoding::Identity;
    let body = exchange
        .body
        .whole(&mut exchange.link, ERROR_BYTES_MAX)
        .await?;
    if !is_json {
        return Ok(Verdict::Sessions);
    }
    let scan = response_to(&body, id.as_bytes(), false).ok();
    let error = match scan {
        Some(scan) => scan.error.map(|span| span.slice(&body)),
        None => json::member(&body, "error").map(|span| span.slice(&body)),
    };
    match error.and_then(first_error_code) {
        Some(code) => judge_code(code, error),
        None => Ok(Verdict::Sessions),
    }
}

fn judge_code(code: i64, error: Option<&[u8]>) -> Result<Verdict, CallFault> {
    match code {
        // It knows the revisions, and not this one: older ones it names are its own.
        -32022 => {
            let supported = error.and_then(|error| {
                let data = json::member(error, "data")?.slice(error);
                Some(json::member(data, "supported")?.slice(data))
            });
            let supported = supported.unwrap_or(b"[]");
            if lists(supported, STATELESS) {
                return Ok(Verdict::Refused);
            }
            let mut known = Version::WITH_SESSIONS.iter();
            match known.any(|version| lists(supported, version.name())) {
                true => Ok(Verdict::Sessions),
                false => Err(CallFault::Revision),
            }
        }
        // It is of this revision, and did not like the request.
        -32021 | -32020 => Err(CallFault::Revision),
        _ => Ok(Verdict::Sessions),
    }
}

fn lists(array: &[u8], name: &str) -> bool {
    json::elements(array)
        .map_while(Result::ok)
        .any(|element| json::says(element.slice(array), name))
}

fn known_stateless(answer: &Answer, head: Vec<u8>) -> State {
    let ttl_ms = answer
        .result_member("ttlMs")
        .and_then(|raw| std::str::from_utf8(raw).ok()?.parse::<u64>().ok())
        .unwrap_or_default();
    let instructions = answer.result_member("instructions");
    let open = OpenBackend {
        session_id: None,
        version: Version::V2026_07_28,
        capabilities: answer.result_member("capabilities").unwrap_or(b"{}").into(),
        instructions: RefCell::new(
            instructions
                .filter(|raw| raw.starts_with(b"\""))
                .map(Box::from),
        ),
        head: head.into(),
        is_mute: Default::default(),
        mirrored: Default::default(),
    };
    let until_ms = now_ms() + ttl_ms.clamp(KEPT_MS.0, KEPT_MS.1);
    State::Known(Era::Stateless(Rc::new(open)), until_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(code: i64, data: &str) -> Result<bool, CallFault> {
        let error = format!(r#"{{"code":{code},"data":{data}}}"#);
        judge_code(code, Some(error.as_bytes())).map(|verdict| matches!(verdict, Verdict::Sessions))
    }

    #[test]
    fn only_words_of_the_stateless_revision_keep_a_backend_from_counting_as_old() {
        for code in [-32000, -32600, -32601, -32602, 7] {
            assert_eq!(judged(code, "null"), Ok(true));
        }
        let old = r#"{"supported":["2025-11-25"],"requested":"2026-07-28"}"#;
        assert_eq!(judged(-32022, old), Ok(true));
        let newer = r#"{"supported":["2027-01-01"],"requested":"2026-07-28"}"#;
        assert_eq!(judged(-32022, newer), Err(CallFault::Revision));
        assert_eq!(judged(-32022, "null"), Err(CallFault::Revision));
        // One that also names this revision is asked once more, whatever else it names.
        let both = r#"{"supported":["2025-11-25","2026-07-28"],"requested":"2026-07-28"}"#;
        assert_eq!(judged(-32022, both), Ok(false));
        for code in [-32020, -32021] {
            assert_eq!(judged(code, "null"), Err(CallFault::Revision));
        }
    }
}
