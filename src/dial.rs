//! Client connections of the threads that run tokio: TCP or TLS, and HTTP/1.1 over either.
//!
//! Shards have their own ([`crate::upstream`]). Says nothing about time: who dials sets the limit.

mod kept;

pub use kept::{Kept, SendFault};

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request,
    client::conn::http1::{self, SendRequest},
    header::{ACCEPT_ENCODING, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use url::{Position, Url};

/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Why there is no connection: one line for the log, without the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialFault {
    /// The name has no address, or none that may be reached.
    #[error("it has no address that may be connected to")]
    NoAddress,
    /// No connection.
    #[error("it cannot be connected to")]
    Connect,
    /// No TLS.
    #[error("no TLS session with it")]
    Tls,
}

/// What carries a connection's bytes.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A new connection for HTTP to where `url` is; as [`open`].
///
/// # Errors
/// Why there is none.
pub async fn connect(
    url: &Url,
    tls: &Arc<rustls::ClientConfig>,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<SendRequest<Full<Bytes>>, DialFault> {
    let stream = open(url, tls, may_reach).await?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|_| DialFault::Connect)?;
    // Ends when the sender and the last body are dropped; what fails is told by them.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// A new connection to where `url` is, by one of the addresses that `may_reach` allows: asked of
/// what is connected to, not of what a name stood for a moment ago. TLS for `https` and `wss`.
///
/// # Errors
/// Why there is none.
pub async fn open(
    url: &Url,
    tls: &Arc<rustls::ClientConfig>,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<Box<dyn Stream>, DialFault> {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or_default();
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|_| DialFault::NoAddress)?;
    let addresses = addresses.filter(|address| may_reach(address.ip().to_canonical()));
    let addresses: Vec<_> = addresses.take(ADDRESSES_MAX).collect();
    if addresses.is_empty() {
        return Err(DialFault::NoAddress);
    }
    let stream = TcpStream::connect(&*addresses)
        .await
        .map_err(|_| DialFault::Connect)?;
    // Without it a message may wait for an acknowledgement; it arrives all the same.
    let _ = stream.set_nodelay(true);
    if !matches!(url.scheme(), "https" | "wss") {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| DialFault::Tls)?;
    let connector = TlsConnector::from(tls.clone());
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|_| DialFault::Tls)?;
    Ok(Box::new(stream))
}

/// A request for `url`, to be sent on a connection to where it is.
pub fn request(
    method: Method,
    url: &Url,
    headers: &HeaderMap,
    body: Bytes,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    let target = &url[Position::BeforePath..Position::AfterQuery];
    // What `Url` accepts is a valid target; one that is not would be refused by the server.
    *request.uri_mut() = target.parse().unwrap_or_default();
    let head = request.headers_mut();
    head.clone_from(headers);
    let authority = &url[Position::BeforeHost..Position::AfterPort];
    if let Ok(host) = HeaderValue::from_str(authority) {
        head.insert(HOST, host);
    }
    head.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    request
}
