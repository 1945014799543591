//! What backends are told without being asked for a reply: answers to their requests, and
//! notifications.

use std::{rc::Rc, time::Duration};

use crate::{
    refusal::rpc_error,
    session::{Place, Session, state::OpenBackend},
    shard_state::ShardState,
    upstream::{
        CallFault, FromClient,
        exchange::{Manner, Repeat},
        request,
    },
};

/// Messages of one session on their way at a time: a backend that floods us with requests is not
/// worth more.
const SAYING_MAX: u32 = 64;

/// A backend, and what was agreed with it.
#[derive(Debug, Clone)]
pub struct Listener {
    /// The backend.
    pub place: Place,
    /// What was agreed.
    pub open: Rc<OpenBackend>,
}

/// Tells a backend `message` on a task of its own. `client` is the request that is the reason, or
/// what the session says by itself with.
pub fn say(
    shard: &Rc<ShardState>,
    session: &Rc<Session>,
    to: Listener,
    message: Vec<u8>,
    client: FromClient<'_>,
) {
    if session.saying.get() >= SAYING_MAX {
        shard.numbers.backend_answers_failed.add(1);
        return;
    }
    let request = request_of(&to, &message, client);
    let saying = Saying::new(session);
    let shard = shard.clone();
    shards::spawn(async move {
        let patience = shard.upstream.limits.first_byte;
        let told = send(&shard, &to, request, patience).await;
        drop(saying);
        if told.is_err() {
            shard.numbers.backend_answers_failed.add(1);
        }
    });
}

/// Tells a backend `message` and waits until it has taken it.
///
/// # Errors
/// Why it did not take it.
pub async fn say_now(
    shard: &Rc<ShardState>,
    to: &Listener,
    message: &[u8],
    client: FromClient<'_>,
    patience: Duration,
) -> Result<(), CallFault> {
    let request = request_of(to, message, client);
    send(shard, to, request, patience).await
}

fn request_of(to: &Listener, message: &[u8], client: FromClient<'_>) -> Vec<u8> {
    let mut request = to.open.head.to_vec();
    request::finish_head(&mut request, message.len(), to.place.backend(), client);
    request.extend_from_slice(message);
    request
}

async fn send(
    shard: &Rc<ShardState>,
    to: &Listener,
    request: Vec<u8>,
    patience: Duration,
) -> Result<(), CallFault> {
    let manner = Manner {
        repeat: Repeat::IfUnsent,
        first_byte: patience,
        is_lateness_telling: false,
        is_stateless: false,
        is_endless: false,
        cancel: None,
    };
    let target = &to.place.backend().target;
    shard.upstream.tell(target, request, manner).await
}

/// Answers the backend's request with this raw `id` with an empty result: a ping's.
pub fn pong(shard: &Rc<ShardState>, session: &Rc<Session>, to: Listener, id: &[u8]) {
    let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    body.extend_from_slice(id);
    body.extend_from_slice(b",\"result\":{}}");
    say(shard, session, to, body, session.voice().say());
}

/// Answers the backend's request with this raw `id` with an error.
pub fn refuse(
    shard: &Rc<ShardState>,
    session: &Rc<Session>,
    to: Listener,
    id: &[u8],
    (code, text): (i32, &str),
) {
    let body = rpc_error(Some(id), code, text);
    say(shard, session, to, body, session.voice().say());
}

/// Counts a message as on its way while it lives.
struct Saying(Rc<Session>);

impl Saying {
    fn new(session: &Rc<Session>) -> Self {
        session.saying.set(session.saying.get() + 1);
        Self(session.clone())
    }
}

impl Drop for Saying {
    fn drop(&mut self) {
        self.0.saying.set(self.0.saying.get() - 1);
    }
}
