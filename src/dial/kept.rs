//! Connections kept for the next request to the same server.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, client::conn::http1::SendRequest};

/// Why there is no reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFault<E> {
    /// No connection.
    Connect(E),
    /// The connection ended, and the server may have got the request.
    Cut,
}

/// The idle connections to one server.
#[derive(Debug)]
pub struct Kept {
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    count_max: usize,
}

impl Kept {
    /// Keeps this many at the most.
    pub fn new(count_max: usize) -> Self {
        Self {
            idle: Mutex::default(),
            count_max,
        }
    }

    /// Sends what `make` makes over a kept connection, or else over what `connect` brings, and
    /// waits for the reply's head. A request is sent again only when it was not sent before.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn send<E>(
        &self,
        make: impl Fn() -> Request<Full<Bytes>>,
        connect: impl Future<Output = Result<SendRequest<Full<Bytes>>, E>>,
    ) -> Result<(SendRequest<Full<Bytes>>, Response<Incoming>), SendFault<E>> {
        while let Some(mut connection) = self.take() {
            match connection.try_send_request(make()).await {
                Ok(response) => return Ok((connection, response)),
                Err(mut error) => {
                    // Given back, it was not sent: the connection had closed before.
                    if error.take_message().is_none() {
                        return Err(SendFault::Cut);
                    }
                }
            }
        }
        let mut connection = connect.await.map_err(SendFault::Connect)?;
        match connection.send_request(make()).await {
            Ok(response) => Ok((connection, response)),
            Err(_) => Err(SendFault::Cut),
        }
    }

    /// Keeps a connection whose reply was read to its end.
    pub fn give_back(&self, connection: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.count_max {
            idle.push(connection);
        }
    }

    fn take(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.is_closed());
        let at = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(at))
    }
}
