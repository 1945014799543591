//! A request of a client without sessions, served by a backend that has them: in a backend session
//! of its own, which is opened for it and ended with it, whatever happens (dual-profile.md 2.8).
//!
//! Only where the configuration says so, and for tools that were declared to need nothing said
//! before. Nothing is pooled, so nothing one client did can be met by another.

use std::{cell::RefCell, rc::Rc, time::Duration};

use crate::{
    config::compiled::Backend,
    http::Span,
    mcp::{edits::Edits, json, version::Version},
    method::initialize::{NewSession, new_session},
    refusal::Refusal,
    request::Caller,
    session::{
        BackendSession, Session,
        state::{OpenBackend, SessionKind},
    },
    shard_state::ShardState,
    stateless::{StatelessFault, permits::Permit},
    upstream::{CallFault, open},
};

/// Bridged requests of one shard at a time, and of one principal.
pub const REQUESTS_MAX: (usize, usize) = (64, 8);
/// Time for a backend session to open.
pub const OPEN_PATIENCE: Duration = Duration::from_secs(2);
/// Time for the request itself.
pub const CALL_PATIENCE: Duration = Duration::from_secs(30);
/// Families that need nothing said before.
const FAMILIES: [&str; 4] = ["tools", "prompts", "resources", "completions"];

/// The client, as its request says.
#[derive(Debug, Clone, Copy)]
pub struct Client<'a> {
    /// `clientInfo`, raw.
    pub info: Option<&'a [u8]>,
    /// What it can do, raw.
    pub capabilities: &'a [u8],
}

/// The gateway, which asks what there is for all of its clients: some can answer questions.
pub const GATEWAY: Client<'static> = Client {
    info: None,
    capabilities: br#"{"elicitation":{},"sampling":{}}"#,
};

impl Client<'_> {
    /// What it can do in a session that lasts for one request. Servers ask for roots at their own
    /// time, on a stream of their own, which such a session does not have.
    fn for_one_request(&self) -> Vec<u8> {
        let whole = Span {
            start: 0,
            // A request's body is shorter than 4 GiB.
            end: self.capabilities.len() as u32,
        };
        let mut edits = Edits::default();
        edits.drop_members(self.capabilities, whole, |name| name == "roots");
        let mut out = Vec::with_capacity(self.capabilities.len());
        edits.apply(&mut out, self.capabilities);
        out
    }
}

/// One request's backend session. It ends when this is dropped.
pub struct Bridged {
    shard: Rc<ShardState>,
    /// The session with the one backend.
    pub session: Rc<Session>,
    /// Its part with that backend.
    pub link: Rc<BackendSession>,
    _permit: Permit,
}

impl std::fmt::Debug for Bridged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridged").finish_non_exhaustive()
    }
}

impl Bridged {
    /// Opens a session with the backend at `index` for the request.
    ///
    /// # Errors
    /// Too many are open, or the backend does not open one.
    pub async fn open(
        shard: &Rc<ShardState>,
        caller: &Caller<'_>,
        index: usize,
        client: Client<'_>,
    ) -> Result<Self, BridgeFault> {
        let principal = &caller.principal;
        let own = (!principal.anonymous).then_some(&principal.fingerprint);
        let permit = shard.bridged.take(own).ok_or(BridgeFault::TooMany)?;
        let session = new_session(
            shard,
            caller,
            NewSession {
                kind: SessionKind::Bridged,
                version: Version::V2026_07_28,
                client_info: client.info,
                client_capabilities: &client.for_one_request(),
            },
        )
        .map_err(BridgeFault::Refused)?;
        let link = session
            .backend(&caller.host, index)
            .ok_or(BridgeFault::Backend(CallFault::Reconfigured))?;
        let bridged = Self {
            shard: shard.clone(),
            session,
            link,
            _permit: permit,
        };
        let place = (&caller.host, index);
        open::ensure(shard, &bridged.session, place, &bridged.link, OPEN_PATIENCE)
            .await
            .map_err(BridgeFault::Backend)?;
        shard.numbers.bridged.add(1);
        Ok(bridged)
    }
}

impl Drop for Bridged {
    fn drop(&mut self) {
        self.session.has_ended.set(true);
        open::end_all(&self.shard, &self.session);
    }
}

/// Why a request could not be bridged.
#[derive(Debug)]
pub enum BridgeFault {
    /// As many are bridged as may be.
    TooMany,
    /// No session could be made here.
    Refused(Refusal),
    /// The backend did not open one.
    Backend(CallFault),
}

impl BridgeFault {
    /// The answer to the request with this raw id.
    pub fn refusal(self, id: Option<&[u8]>) -> Refusal {
        match self {
            Self::TooMany => Refusal::modern(id, StatelessFault::Limit("bridge", 429)),
            Self::Refused(refusal) => refusal,
            Self::Backend(fault) => Refusal::modern(id, StatelessFault::Backend(fault)),
        }
    }
}

/// What a backend with sessions can do for clients that have none.
///
/// # Errors
/// Why it could not be asked.
pub async fn capabilities(
    shard: &Rc<ShardState>,
    caller: &Caller<'_>,
    index: usize,
) -> Result<Rc<OpenBackend>, CallFault> {
    let bridged = Bridged::open(shard, caller, index, GATEWAY).await;
    let bridged = bridged.map_err(|fault| match fault {
        BridgeFault::Backend(fault) => fault,
        BridgeFault::TooMany | BridgeFault::Refused(_) => CallFault::Busy,
    })?;
    let open = bridged.link.open().ok_or(CallFault::SessionLost)?;
    let own = FAMILIES
        .iter()
        .filter(|family| json::member(&open.capabilities, family).is_some());
    let own: Vec<String> = own.map(|family| format!("\"{family}\":{{}}")).collect();
    Ok(Rc::new(OpenBackend {
        session_id: None,
        version: Version::V2026_07_28,
        capabilities: format!("{{{}}}", own.join(",")).into_bytes().into(),
        instructions: RefCell::new(open.instructions.borrow().clone()),
        head: Box::default(),
        is_mute: Default::default(),
        mirrored: Default::default(),
    }))
}

/// Whether a request may be bridged to a backend; `tool`: the one it calls, by its original name.
pub fn allows(backend: &Backend, tool: Option<&str>) -> bool {
    let bridge = backend.bridge.as_ref();
    bridge.is_some_and(|bridge| tool.is_none_or(|tool| bridge.allows(tool)))
}
