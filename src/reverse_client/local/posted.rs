//! A local server that is told things by POSTs, in either of the two HTTP transports.
//!
//! Calls are posted beside each other, everything else one after another. A call that is cancelled
//! is given up when the server was told so.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
};

use super::{Letter, Said, http::Http, sse::Sse};
use crate::reverse_client::calls::{CallId, Kind};

/// Bytes of messages that are being posted, in [`UNIT`]s.
const BUDGET_UNITS: u32 = 32 << 10;
/// Bytes.
const UNIT: usize = 1 << 10;
/// Messages that wait behind one that is no call.
const LANE_MAX: usize = 2;

/// What is posted to.
pub(super) enum Server {
    /// Streamable HTTP.
    Http(Box<Http>),
    /// HTTP+SSE.
    Sse(Sse),
}

/// What did not work.
#[derive(Debug)]
pub(super) enum Fault {
    /// This one message came to nothing.
    Message(String),
    /// The server is gone, or has forgotten us.
    Gone(String),
}

/// A task that has ended.
struct Done {
    call: Option<CallId>,
    /// The server is gone, and how.
    gone: Option<String>,
}

impl Done {
    fn gone(how: String) -> Self {
        Self {
            call: None,
            gone: Some(how),
        }
    }
}

/// Carries messages until the letters end or the server is gone; gives how it ended. `stream` is
/// what an HTTP+SSE server says.
pub(super) async fn run(
    server: Server,
    stream: Option<mpsc::Receiver<Vec<u8>>>,
    mut letters: mpsc::Receiver<Letter>,
) -> String {
    let server = Arc::new(server);
    let mut tasks = JoinSet::new();
    if let (Server::Sse(sse), Some(lines)) = (&*server, stream) {
        tasks.spawn(hear(lines, sse.said.clone()));
    }
    let (lane, waiting) = mpsc::channel(LANE_MAX);
    tasks.spawn(follow(server.clone(), waiting));
    tasks.spawn(listen(server.clone()));
    let budget = Arc::new(Semaphore::new(BUDGET_UNITS as usize));
    let mut calls: HashMap<CallId, AbortHandle> = HashMap::new();
    let how = loop {
        tokio::select! {
            letter = letters.recv() => {
                let Some(Letter { message, kind }) = letter else {
                    break "was let go".to_owned();
                };
                let message = charge(message, &budget).await;
                match kind {
                    Kind::Call(ref id) | Kind::Initialize(ref id) => {
                        let is_first = matches!(kind, Kind::Initialize(_));
                        let calling = call(server.clone(), id.clone(), message, is_first);
                        calls.insert(id.clone(), tasks.spawn(calling));
                    }
                    Kind::Cancelled(ref id) => {
                        let given_up = calls.remove(id);
                        // The lane ends when the server is gone, which is heard of below.
                        let _ = lane.send((message, kind, given_up)).await;
                    }
                    Kind::Initialized | Kind::Other => {
                        let _ = lane.send((message, kind, None)).await;
                    }
                }
            }
            Some(done) = tasks.join_next() => {
                // One that was given up says nothing.
                let Ok(Done { call, gone }) = done else { continue };
                if let Some(id) = call {
                    calls.remove(&id);
                }
                if let Some(how) = gone {
                    break how;
                }
            }
        }
    };
    tasks.shutdown().await;
    if let Server::Http(http) = &*server {
        http.end().await;
    }
    how
}

/// A message whose bytes count until they are on the wire.
struct Charged {
    message: Vec<u8>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

async fn charge(message: Vec<u8>, budget: &Arc<Semaphore>) -> Bytes {
    let units = u32::try_from(message.len() / UNIT + 1).unwrap_or(BUDGET_UNITS);
    let permit = budget.clone().acquire_many_owned(units.min(BUDGET_UNITS));
    Bytes::from_owner(Charged {
        message,
        // Nobody closes it.
        _permit: permit.await.ok(),
    })
}

/// One call, to its answer.
async fn call(server: Arc<Server>, id: CallId, message: Bytes, is_first: bool) -> Done {
    let (outcome, said) = match &*server {
        Server::Http(http) => (http.call(&id, message, is_first).await, &http.said),
        Server::Sse(sse) => (sse.post(message).await, &sse.said),
    };
    let (failed, gone) = match outcome {
        Ok(()) => (None, None),
        Err(Fault::Message(why)) => (Some(why), None),
        Err(Fault::Gone(how)) => (Some(how.clone()), Some(how)),
    };
    if let Some(why) = failed {
        let text = format!("the local server {why}");
        // Nobody may wait for it any more.
        let _ = said.send(Said::Failed(id.clone(), text)).await;
    }
    Done {
        call: Some(id),
        gone,
    }
}

/// Posts what is no call, in order.
async fn follow(
    server: Arc<Server>,
    mut waiting: mpsc::Receiver<(Bytes, Kind, Option<AbortHandle>)>,
) -> Done {
    while let Some((message, kind, given_up)) = waiting.recv().await {
        let outcome = match &*server {
            Server::Http(http) => http.tell(message, kind == Kind::Initialized).await,
            Server::Sse(sse) => sse.post(message).await,
        };
        if let Some(call) = given_up {
            call.abort();
        }
        if let Err(Fault::Gone(how)) = outcome {
            return Done::gone(how);
        }
    }
    Done::gone("was let go".to_owned())
}

/// Reads the stream that is no call's, where there is one.
async fn listen(server: Arc<Server>) -> Done {
    let gone = match &*server {
        Server::Http(http) => http.listen().await.err(),
        Server::Sse(_) => None,
    };
    Done { call: None, gone }
}

/// Hears an HTTP+SSE server.
async fn hear(mut lines: mpsc::Receiver<Vec<u8>>, said: mpsc::Sender<Said>) -> Done {
    while let Some(line) = lines.recv().await {
        if said.send(Said::Message(line)).await.is_err() {
            return Done::gone("was let go".to_owned());
        }
    }
    Done::gone("ended its event stream".to_owned())
}
