//! An HTTP+SSE server of revision 2024-11-05 (mcp.md 1.3): one GET stream that brings everything it
//! says, and POSTs to the endpoint it announces there.
//!
//! Goes by the same settings as a shard's own connections to backends: which schemes are called at
//! all, whom TLS trusts and what it shows, how long anything may take, how long an event may be.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Response, StatusCode,
    body::Incoming,
    client::conn::http1::SendRequest,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::timeout,
};
use url::Url;

use super::endpoint;
use crate::{
    dial::{self, DialFault, Kept, request},
    http::sse::EventParser,
    log,
    settings::UpstreamMode,
    upstream::rpc::is_message,
};

/// Idle connections kept for POSTs.
const IDLE_MAX: usize = 2;
/// Bytes of a POST's answer that are read to keep its connection; they mean nothing.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// How servers are reached.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    /// TLS, with a client certificate in the modes that have one.
    pub(crate) tls: Arc<rustls::ClientConfig>,
    /// Which schemes are called.
    pub(crate) mode: UpstreamMode,
    /// Time for a connection, TLS included.
    pub(crate) connect: Duration,
    /// Time until a reply begins; also for the `endpoint` event.
    pub(crate) first_byte: Duration,
    /// Bytes of one event.
    pub(crate) event_bytes_max: usize,
    /// Messages of a server that wait to be taken in.
    pub(crate) events_max: usize,
}

/// Why there is no session with a server: one line for the log, without its address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenFault {
    /// The connection mode forbids plain text.
    #[error("plain text is not allowed by the upstream connection mode")]
    PlainText,
    /// No connection.
    #[error("it cannot be connected to")]
    Connect,
    /// No TLS.
    #[error("no TLS session with it")]
    Tls,
    /// Not in time.
    #[error("it took too long")]
    Late,
    /// It refused the stream.
    #[error("it answered with HTTP status {0}")]
    Status(u16),
    /// It answered with something else.
    #[error("its answer is no event stream")]
    NoStream,
    /// The endpoint cannot be used.
    #[error("{0}")]
    Endpoint(#[from] endpoint::EndpointFault),
}

/// Why a POST brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostFault {
    /// It could not be delivered.
    Unreachable,
    /// No answer in time.
    Late,
    /// It was refused.
    Status(u16),
}

/// Keeps a stream open; dropping it ends the session with the server.
#[derive(Debug)]
pub(crate) struct Reading(AbortHandle);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The POST side of a session.
#[derive(Debug)]
pub(crate) struct Remote {
    dialer: Dialer,
    url: Url,
    /// Set on every request.
    headers: HeaderMap,
    kept: Kept,
}

/// A session with a server.
type Opened = (Arc<Remote>, Reading, mpsc::Receiver<Vec<u8>>);

/// Opens the stream at `url` and waits for its endpoint. `headers` go with it and with every POST.
pub(crate) async fn open(
    dialer: &Dialer,
    url: &Url,
    headers: HeaderMap,
) -> Result<Opened, OpenFault> {
    let mut connection = dialer.connect(url).await?;
    let mut request = request(Method::GET, url, &headers, Bytes::new());
    let head = request.headers_mut();
    head.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let answered = timeout(dialer.first_byte, connection.send_request(request));
    let response = match answered.await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => return Err(OpenFault::Connect),
        Err(_) => return Err(OpenFault::Late),
    };
    if response.status() != StatusCode::OK {
        return Err(OpenFault::Status(response.status().as_u16()));
    }
    if !is_event_stream(&response) {
        return Err(OpenFault::NoStream);
    }
    let (sender, lines) = mpsc::channel(dialer.events_max);
    let (announce, announced) = oneshot::channel();
    let stream = Stream {
        body: response.into_body(),
        parser: EventParser::new(dialer.event_bytes_max),
        announce: Some(announce),
        sender,
    };
    let reading = Reading(tokio::spawn(stream.read()).abort_handle());
    let endpoint = match timeout(dialer.first_byte, announced).await {
        Ok(Ok(endpoint)) => endpoint,
        // The stream ended without one.
        Ok(Err(_)) => return Err(OpenFault::NoStream),
        Err(_) => return Err(OpenFault::Late),
    };
    let remote = Remote {
        dialer: dialer.clone(),
        url: endpoint::resolve(url, &endpoint)?,
        headers,
        kept: Kept::new(IDLE_MAX),
    };
    Ok((Arc::new(remote), reading, lines))
}

fn is_event_stream(response: &Response<Incoming>) -> bool {
    let value = response.headers().get(CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream")
}

/// The server's stream.
struct Stream {
    body: Incoming,
    parser: EventParser,
    /// Waits for the first `endpoint`.
    announce: Option<oneshot::Sender<Vec<u8>>>,
    sender: mpsc::Sender<Vec<u8>>,
}

impl Stream {
    async fn read(mut self) {
        // Silence is what such a stream is made of, so nothing here has a deadline: the session's
        // own limits end it.
        while let Some(Ok(frame)) = self.body.frame().await {
            let Some(data) = frame.data_ref() else {
                continue;
            };
            let mut messages = Vec::new();
            let announce = &mut self.announce;
            let fed = self.parser.feed(data, |event| {
                if event.name == b"endpoint" {
                    if let Some(announce) = announce.take() {
                        // Whoever opened it may have given up.
                        let _ = announce.send(event.data.to_vec());
                    }
                } else if is_message(event.name) && !event.data.is_empty() {
                    messages.push(event.data.to_vec());
                }
            });
            for message in messages {
                if self.sender.send(message).await.is_err() {
                    return;
                }
            }
            if fed.is_err() {
                log::warn(|| "an event of an HTTP+SSE backend is over the limit".to_owned());
                return;
            }
        }
    }
}

impl Remote {
    /// Sends a message; any 2xx is success. `headers` win over those of every request.
    pub(crate) async fn post(
        &self,
        message: impl Into<Bytes>,
        headers: HeaderMap,
    ) -> Result<(), PostFault> {
        let sent = self.post_now(message.into(), headers);
        timeout(self.dialer.first_byte, sent)
            .await
            .unwrap_or(Err(PostFault::Late))
    }

    async fn post_now(&self, message: Bytes, headers: HeaderMap) -> Result<(), PostFault> {
        let make = || {
            let mut request = request(Method::POST, &self.url, &self.headers, message.clone());
            let head = request.headers_mut();
            for (name, value) in &headers {
                head.insert(name, value.clone());
            }
            head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            request
        };
        let sent = self.kept.send(make, self.dialer.connect(&self.url)).await;
        let (connection, response) = sent.map_err(|_| PostFault::Unreachable)?;
        self.finish(connection, response).await
    }

    async fn finish(
        &self,
        connection: SendRequest<Full<Bytes>>,
        response: Response<Incoming>,
    ) -> Result<(), PostFault> {
        let status = response.status();
        if !status.is_success() {
            return Err(PostFault::Status(status.as_u16()));
        }
        let mut body = response.into_body();
        let mut left = ANSWER_BYTES_MAX;
        while let Some(frame) = body.frame().await {
            let size = match &frame {
                Ok(frame) => frame.data_ref().map_or(0, Bytes::len),
                Err(_) => return Ok(()),
            };
            match left.checked_sub(size) {
                Some(rest) => left = rest,
                None => return Ok(()),
            }
        }
        self.kept.give_back(connection);
        Ok(())
    }
}

impl Dialer {
    /// A new connection to where `url` is.
    async fn connect(&self, url: &Url) -> Result<SendRequest<Full<Bytes>>, OpenFault> {
        let is_tls = url.scheme() == "https";
        let may_be_plain = matches!(
            self.mode,
            UpstreamMode::PlainTextOrTls | UpstreamMode::PlainTextOrMtls
        );
        if !is_tls && !may_be_plain {
            return Err(OpenFault::PlainText);
        }
        // Where servers are is the configuration's business.
        let connecting = dial::connect(url, &self.tls, |_| true);
        match timeout(self.connect, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(DialFault::Tls)) => Err(OpenFault::Tls),
            Ok(Err(DialFault::NoAddress | DialFault::Connect)) => Err(OpenFault::Connect),
            Err(_) => Err(OpenFault::Late),
        }
    }
}
