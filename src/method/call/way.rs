//! By which way a request reaches its backend: the client's own session, none at all, or one that
//! is opened for it.

use std::rc::Rc;

use crate::{
    config::compiled::Backend,
    mcp::{envelope::Envelope, profile},
    method::result,
    refusal::Refusal,
    request::Caller,
    session::{Session, state::OpenBackend},
    shard_state::ShardState,
    stateless::bridge::{self, Bridged},
    upstream::{
        CallFault, FromClient,
        discover::{self, Era},
    },
};

/// By which session a request goes to its backend.
pub(super) enum Way<'a> {
    /// The caller's own.
    Session(&'a Rc<Session>),
    /// None is needed: what the backend can do is known.
    Stateless(&'a Rc<Session>, Rc<OpenBackend>),
    /// One that is opened for it.
    Bridged(Box<Bridged>),
}

impl<'a> Way<'a> {
    /// `tool`: the one that is called, by the backend's own name, and whether it is declared to
    /// need nothing said before. `None`: no stateless client reaches it.
    pub(super) async fn find(
        shard: &Rc<ShardState>,
        caller: &Caller<'_>,
        session: &'a Rc<Session>,
        index: usize,
        tool: Option<(&str, bool)>,
        message: &Envelope,
    ) -> Result<Option<Self>, Refusal> {
        if session.has_client() {
            return Ok(Some(Self::Session(session)));
        }
        let id = crate::method::id_of(caller, message);
        let backend = &caller.host.backends[index];
        let client = FromClient::of(caller.request, &caller.principal);
        let patience = shard.upstream.limits.first_byte;
        match discover::era(shard, backend, client, patience).await {
            Ok(Era::Stateless(open)) => Ok(Some(Self::Stateless(session, open))),
            Ok(Era::Sessions) if is_bridged(backend, tool) => {
                match Box::pin(Bridged::open(
                    shard,
                    caller,
                    index,
                    client_of(caller, message),
                ))
                .await
                {
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

    /// The session.
    pub(super) fn session(&self) -> &Rc<Session> {
        match self {
            Self::Session(session) | Self::Stateless(session, _) => session,
            Self::Bridged(bridged) => &bridged.session,
        }
    }

    /// What is known of a stateless backend.
    pub(super) fn known(&self) -> Option<&Rc<OpenBackend>> {
        match self {
            Self::Stateless(_, open) => Some(open),
            Self::Session(_) | Self::Bridged(_) => None,
        }
    }
}

/// What the client of a stateless request can do, raw: what a backend with sessions may ask of it.
fn client_of<'a>(caller: &Caller<'a>, message: &Envelope) -> bridge::Client<'a> {
    let raw = |span: Option<crate::http::Span>| span.map(|span| span.slice(caller.body));
    bridge::Client {
        info: raw(message.meta_client_info),
        capabilities: raw(message.meta_capabilities).unwrap_or(b"{}"),
    }
}

/// Whether a request may be bridged; `tool` as in [`Way::find`].
fn is_bridged(backend: &Backend, tool: Option<(&str, bool)>) -> bool {
    let is_declared = tool.is_some_and(|(_, is_independent)| is_independent);
    (is_declared && backend.bridge.is_some()) || bridge::allows(backend, tool.map(|(name, _)| name))
}

/// What a tool's result says when no stateless client reaches its backend (dual-profile.md 2.1).
pub(super) const NOT_STATELESS: &str =
    "Gateway does not support stateless calls to this MCP backend profile";

/// The result of a call to a tool of a backend that no stateless client reaches.
pub(super) fn not_stateless(id: &[u8]) -> Vec<u8> {
    result(id, tool_error(NOT_STATELESS).as_bytes())
}

/// A tool's result that says why there is none.
pub fn tool_error(text: &str) -> String {
    let content = serde_json::json!([{"type": "text", "text": text}]);
    format!(
        r#"{{"resultType":"complete","content":{content},"isError":true,"_meta":{{{}}}}}"#,
        profile::own_server_info()
    )
}
