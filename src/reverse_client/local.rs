//! The local MCP server: one for each connection, in whichever transport it speaks.
//!
//! All transports look alike from here: letters go in, what the server says comes out, and it ends
//! when nothing can be put in any more. What waits is a few messages in either direction; a full
//! queue makes the writer wait.

mod child;
mod http;
mod posted;
mod reply;
mod sse;

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinHandle};

use super::calls::{CallId, Kind};
use crate::settings::LocalServer;

/// Messages that wait in either direction.
const WAITING_MAX: usize = 2;
/// How long a server has to end: its own time limits are shorter.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Time for a connection to an HTTP server, TLS included.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Time for an HTTP server to take what it need not work on.
const POST_PATIENCE: Duration = Duration::from_secs(30);

/// A message for the server.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) message: Vec<u8>,
    pub(super) kind: Kind,
}

/// What comes of the server.
#[derive(Debug)]
pub(super) enum Said {
    /// A message.
    Message(Vec<u8>),
    /// A call came to nothing; why, in words for the caller.
    Failed(CallId, String),
}

/// Why a server could not be started.
#[derive(Debug)]
pub(super) struct StartFault {
    /// What is wrong with it.
    pub(super) how: String,
    /// It will not be otherwise the next time.
    pub(super) is_final: bool,
}

/// A running server. Dropping it ends it.
pub(super) struct Local {
    /// What it is told; to be dropped when it is to end, and closed when it has ended by itself.
    pub(super) input: mpsc::Sender<Letter>,
    /// What it says; ends when it does.
    pub(super) said: mpsc::Receiver<Said>,
    /// Gives how it ended.
    task: JoinHandle<String>,
}

impl Local {
    /// Starts a server, or reaches one.
    pub(super) async fn start(
        server: &LocalServer,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<Self, StartFault> {
        let (input, letters) = mpsc::channel(WAITING_MAX);
        let (sender, said) = mpsc::channel(WAITING_MAX);
        let task = match server {
            LocalServer::Command(words) => tokio::spawn(child::start(words, letters, sender)?),
            LocalServer::Http { url, headers } => {
                let server = http::Http::reach(url, headers, tls.clone(), sender).await?;
                let server = posted::Server::Http(Box::new(server));
                tokio::spawn(posted::run(server, None, letters))
            }
            LocalServer::Sse { url, headers } => {
                let (server, lines) = sse::Sse::open(url, headers, tls.clone(), sender).await?;
                let server = posted::Server::Sse(server);
                tokio::spawn(posted::run(server, Some(lines), letters))
            }
        };
        Ok(Self { input, said, task })
    }

    /// Ends it, and says how it ended.
    pub(super) async fn end(self) -> String {
        let Self {
            input,
            said,
            mut task,
        } = self;
        drop((input, said));
        match tokio::time::timeout(END_PATIENCE, &mut task).await {
            Ok(Ok(how)) => how,
            Ok(Err(_)) => "failed".to_owned(),
            Err(_) => {
                task.abort();
                "did not end".to_owned()
            }
        }
    }
}
