//! A local server of the HTTP+SSE transport of revision 2024-11-05: the bridge's client of it,
//! with limits of this side.

use std::sync::Arc;

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::sync::mpsc;
use url::Url;

use super::{CONNECT_PATIENCE, POST_PATIENCE, Said, StartFault, WAITING_MAX, posted::Fault};
use crate::{
    bridge::remote::{self, Dialer, PostFault, Reading, Remote},
    reverse_client::MESSAGE_BYTES_MAX,
    settings::UpstreamMode,
};

/// A session with a server, for as long as its stream is read.
pub(super) struct Sse {
    remote: Arc<Remote>,
    pub(super) said: mpsc::Sender<Said>,
    _reading: Reading,
}

impl Sse {
    /// Opens the stream and waits for the endpoint; also what the stream brings.
    pub(super) async fn open(
        url: &Url,
        headers: &HeaderMap,
        tls: Arc<rustls::ClientConfig>,
        said: mpsc::Sender<Said>,
    ) -> Result<(Self, mpsc::Receiver<Vec<u8>>), StartFault> {
        let dialer = Dialer {
            tls,
            mode: UpstreamMode::PlainTextOrTls,
            connect: CONNECT_PATIENCE,
            first_byte: POST_PATIENCE,
            event_bytes_max: MESSAGE_BYTES_MAX,
            events_max: WAITING_MAX,
        };
        let opened = remote::open(&dialer, url, headers.clone()).await;
        let (remote, reading, lines) = opened.map_err(|fault| StartFault {
            how: format!("cannot be used: {fault}"),
            is_final: false,
        })?;
        let sse = Self {
            remote,
            said,
            _reading: reading,
        };
        Ok((sse, lines))
    }

    /// Posts a message; what answers it comes over the stream.
    pub(super) async fn post(&self, message: Bytes) -> Result<(), Fault> {
        match self.remote.post(message, HeaderMap::new()).await {
            Ok(()) => Ok(()),
            Err(PostFault::Status(404 | 410)) => Err(Fault::Gone("has forgotten us".to_owned())),
            Err(PostFault::Status(status)) => Err(Fault::Message(format!(
                "answered with HTTP status {status}"
            ))),
            Err(PostFault::Late) => Err(Fault::Message("did not take it in time".to_owned())),
            Err(PostFault::Unreachable) => Err(Fault::Gone("cannot be reached".to_owned())),
        }
    }
}
